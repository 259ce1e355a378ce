//! The guard: the number of instructions that the packet path takes, which does not depend on the
//! load of the host.
//!
//! `.ci/guard` runs each case under callgrind, which counts inside [`measured`] alone, and compares
//! with `guard.txt`. By itself this program measures nothing. Usage: `guard CASE COUNT`, or `guard
//! list`.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark ends when something is wrong"
)]

#[path = "guard/hops.rs"]
mod hops;
#[path = "guard/rules.rs"]
mod rules;

use std::hint::black_box;

use weft_contract::{
    Command, Endpoint, EpochId, EpochUse, FastKeys, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex,
    SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_noise::replay::ReplayWindow;
use weft_packet::checksum::Checksum;
use weft_packet::coalesce::Coalescer;
use weft_packet::flow::FlowHasher;
use weft_packet::split::Splitter;
use weft_packet::{HEADROOM, Inbound, Lane, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::{GSO_TCPV6, NEEDS_CSUM, VirtioNetHdr};

const A: NodeAddr = NodeAddr::new([1; 16]);
const B: NodeAddr = NodeAddr::new([2; 16]);
const C: NodeAddr = NodeAddr::new([3; 16]);
const MTU: u16 = 1472;
/// The payload of a TCP segment, in bytes.
const PAYLOAD: u16 = 1300;
/// The number of segments in a super-packet.
const SEGMENTS: usize = 48;
const NOW: u64 = 1_000;

/// The name of a case, its unit, and the function that runs a number of units.
type Case = (&'static str, &'static str, fn(usize));

const CASES: [Case; 19] = [
    ("split", "super-packet of 48 TCP segments", split),
    ("coalesce", "batch of 48 TCP segments, one flow", coalesce),
    ("classify", "flow hash of a TCP segment", classify),
    ("replay", "counter in order", replay),
    ("seal", "packet of 1,372 bytes, both layers", seal),
    ("open", "frame of such a packet, both layers", open),
    ("route", "frame carried for others: open, look up, seal the link", route),
    ("small", "packet of 100 bytes sealed, both layers", small),
    (
        "fast_seal",
        "super-packet of 48 TCP segments into fast frames",
        fast_seal,
    ),
    ("fast_open", "fast frame of a TCP segment", fast_open),
    (
        "fast_receive",
        "receive of 48 fast frames, opened and coalesced",
        fast_receive,
    ),
    (
        "fast_relay",
        "receive of 48 relayed frames, carried on",
        hops::fast_relay,
    ),
    ("fast_small", "packet of 100 bytes into a fast frame", fast_small),
    (
        "flows_turns",
        "receive of 48 fast frames of 48 flows",
        rules::turns_without_rules,
    ),
    (
        "rules_turns",
        "receive of 48 of 10,000 flows, with 1,000 rules",
        rules::turns,
    ),
    (
        "rules_runs",
        "receive of 48 fast frames of one of these flows",
        rules::runs,
    ),
    (
        "rules_receive",
        "receive as fast_receive, with these rules and flows",
        rules::one,
    ),
    (
        "rules_first",
        "receive of the first packets of 48 flows, with rules",
        rules::first,
    ),
    (
        "rules_small",
        "packet of 100 bytes into a fast frame, with rules",
        rules::small,
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => CASES.iter().for_each(|(name, unit, _)| println!("{name}\t{unit}")),
        [case, count] => {
            let (.., run) = CASES.iter().find(|(name, ..)| *name == case).unwrap();
            run(count.parse().unwrap());
        }
        // `cargo test` and `cargo bench` run every case once, so that each keeps working.
        _ => CASES.iter().for_each(|(.., run)| run(2)),
    }
}

/// Callgrind counts in this function.
#[inline(never)]
fn measured(mut work: impl FnMut()) {
    work();
}

fn split(count: usize) {
    let (hdr, packet) = super_packet();
    let mut out = vec![0; 2_000];
    measured(|| {
        for _ in 0..count {
            let mut splitter = Splitter::new(hdr, black_box(&packet), 1_400).unwrap();
            while let Some(len) = splitter.next_into(&mut out) {
                black_box(&out[..len]);
            }
        }
    });
}

fn coalesce(count: usize) {
    let segments = segments();
    let mut coalescer = Coalescer::new(64, true);
    measured(|| {
        for _ in 0..count {
            for (id, segment) in segments.iter().enumerate() {
                coalescer.push(id as u32, black_box(segment), Checksum::Full).unwrap();
            }
            let groups = coalescer.groups().map(|group| group.packet_count()).max();
            assert_eq!(groups, Some(SEGMENTS));
            coalescer.clear();
        }
    });
}

fn classify(count: usize) {
    let segment = segments().remove(0);
    let hasher = FlowHasher::new(37);
    measured(|| {
        for _ in 0..count {
            black_box(hasher.hash(black_box(&segment)));
        }
    });
}

fn replay(count: usize) {
    let mut window = ReplayWindow::new();
    measured(|| {
        for counter in 0..count as u64 {
            window.accept(black_box(counter)).unwrap();
        }
    });
}

fn seal(count: usize) {
    let [(mut lane, mut train), _] = pair();
    let segment = segments().remove(0);
    // The first frame prepares the keys for sealing.
    send(&mut lane, &mut train, &segment, 1);
    measured(|| send(&mut lane, &mut train, &segment, count));
}

fn small(count: usize) {
    let [(mut lane, mut train), _] = pair();
    let packet = ip_packet(40, 1);
    send(&mut lane, &mut train, &packet, 1);
    measured(|| send(&mut lane, &mut train, &packet, count));
}

fn open(count: usize) {
    let [(mut sender, mut sent), (mut lane, mut train)] = pair();
    send(&mut sender, &mut sent, &segments()[0], count);
    let mut frames = received(&mut sent, count);
    measured(|| {
        for frame in &mut frames {
            let inbound = lane.inbound(NOW, address(1), frame, &mut train);
            assert!(matches!(inbound, Inbound::Packet(..)));
        }
    });
}

fn route(count: usize) {
    let [(mut sender, mut sent), (mut lane, mut train)] = pair();
    // A session with C through B, which forwards it over another link.
    install_session(&mut sender, &mut sent, C, 3);
    lane.apply(NOW, install_link(2, 7, 8), &mut train);
    let (dest, link) = (C, LinkId(2));
    lane.apply(NOW, Command::Table(TableCommand::SetRoute { dest, link }), &mut train);
    send(&mut sender, &mut sent, &ip_packet(usize::from(PAYLOAD), 2), count + 1);
    let mut frames = received(&mut sent, count + 1);
    let (first, frames) = frames.split_first_mut().unwrap();
    lane.inbound(NOW, address(1), first, &mut train);
    measured(|| {
        for frame in &mut *frames {
            lane.inbound(NOW, address(1), frame, &mut train);
        }
        train.flush();
    });
    assert_eq!(train.out_mut().0.len(), count + 1);
}

fn fast_seal(count: usize) {
    let [(mut lane, mut train), _] = fast_pair();
    let (hdr, packet) = super_packet();
    measured(|| {
        for _ in 0..count {
            lane.outbound(NOW, hdr, black_box(&packet), &mut train);
            train.flush();
            train.out_mut().0.clear();
        }
    });
}

fn fast_small(count: usize) {
    let [(mut lane, mut train), _] = fast_pair();
    let packet = ip_packet(40, 1);
    send(&mut lane, &mut train, &packet, 1);
    measured(|| send(&mut lane, &mut train, &packet, count));
}

fn fast_open(count: usize) {
    let [(mut sender, mut sent), (mut lane, mut train)] = fast_pair();
    send(&mut sender, &mut sent, &segments()[0], count);
    let mut frames = received(&mut sent, count);
    measured(|| {
        for frame in &mut frames {
            let inbound = lane.inbound(NOW, address(1), frame, &mut train);
            assert!(matches!(inbound, Inbound::Packet(..)));
        }
    });
}

fn fast_receive(count: usize) {
    receive(fast_pair(), count);
}

/// Measures receives of 48 frames of one flow.
fn receive([(mut sender, mut sent), (mut lane, mut train)]: [End; 2], count: usize) {
    let (hdr, packet) = super_packet();
    let mut receives: Vec<Vec<u8>> = Vec::new();
    for _ in 0..count {
        sender.outbound(NOW, hdr, &packet, &mut sent);
        sent.flush();
        receives.push([&[0; HEADROOM], &sent.out_mut().0.concat()[..]].concat());
        sent.out_mut().0.clear();
    }
    let step = usize::from(PAYLOAD) + 62;
    let mut coalescer = Coalescer::new(SEGMENTS, true);
    measured(|| {
        for room in &mut receives {
            let mut id = 0;
            lane.inbound_train(NOW, address(1), room, step, &mut train, |packet, _, checksum| {
                coalescer.push(id, packet, checksum).unwrap();
                id += 1;
            });
            let groups = coalescer.groups().map(|group| group.packet_count()).max();
            assert_eq!(groups, Some(SEGMENTS));
            coalescer.clear();
        }
    });
}

/// Makes a pair that has fast keys and has proven them.
fn fast_pair() -> [End; 2] {
    let [mut a, mut b] = pair();
    let id = EpochId(1);
    for ((lane, train), peer, send, recv) in [(&mut a, B, 1, 2), (&mut b, A, 2, 1)] {
        let secret = |of: u8| Secret::from_key(&Key::from_bytes([of; 32]));
        let keys = FastKeys {
            id,
            our_index: ReceiverIndex(u32::from(recv)),
            their_index: ReceiverIndex(u32::from(send)),
            max_payload: MTU,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(send),
                recv: secret(recv),
            },
            phase_frames: 1 << 23,
        };
        lane.apply(NOW, Command::Session(peer, SessionCommand::InstallFast { keys }), train);
        lane.apply(NOW, Command::Session(peer, SessionCommand::ConfirmFast { id }), train);
    }
    // Requests, then answers.
    for _ in 0..2 {
        let [from_a, from_b] = [&mut a, &mut b].map(|(_, train)| {
            train.flush();
            std::mem::take(&mut train.out_mut().0)
        });
        for (frames, (lane, train)) in [(from_a, &mut b), (from_b, &mut a)] {
            for frame in frames {
                lane.inbound_alone(NOW, address(1), &frame, train);
            }
        }
    }
    [a, b]
}

/// Returns what was sent, laid out as in a receive.
fn received(sent: &mut Train<Sent>, count: usize) -> Vec<Vec<u8>> {
    let frames = std::mem::take(&mut sent.out_mut().0);
    assert_eq!(frames.len(), count);
    frames
        .iter()
        .map(|frame| [&[0; HEADROOM], &frame[..]].concat())
        .collect()
}

#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Transmit for Sent {
    fn transmit(&mut self, _: Endpoint, train: &[u8], segment: usize) {
        self.0.extend(train.chunks(segment).map(<[u8]>::to_vec));
    }
}

type End = (Lane, Train<Sent>);

/// Makes two lanes with a link and a session between them.
fn pair() -> [End; 2] {
    let end = |me, other, send, recv| {
        let mut lane = Lane::new(LaneConfig {
            me,
            mtu: MTU,
            probe: false,
            transit: true,
            handshakes: weft_contract::HandshakeLimits::default(),
        });
        let mut train = Train::new(Sent::default(), 64);
        lane.apply(NOW, install_link(1, send, recv), &mut train);
        install_session(&mut lane, &mut train, other, send);
        (lane, train)
    };
    [end(A, B, 3, 4), end(B, A, 4, 3)]
}

/// The session keys of direction 3 are those of direction 4 with send and receive exchanged.
fn install_session(lane: &mut Lane, train: &mut Train<Sent>, peer: NodeAddr, send: u8) {
    let keys = SessionKeys {
        id: EpochId(1),
        initiator: send == 3,
        send: Key::from_bytes([send + 10; 32]),
        recv: Key::from_bytes([17 - send; 32]),
    };
    let (usage, link) = (EpochUse::Send, LinkId(1));
    lane.apply(NOW, Command::Table(TableCommand::AllowPeer { peer }), train);
    lane.apply(
        NOW,
        Command::Session(peer, SessionCommand::Install { keys, usage }),
        train,
    );
    lane.apply(NOW, Command::Session(peer, SessionCommand::Bind { link }), train);
}

fn install_link(link: u32, send: u8, recv: u8) -> Command {
    Command::Link(
        LinkId(link),
        LinkCommand::Install {
            peer: match (link, send) {
                (2, _) => C,
                (_, 3) => B,
                _ => A,
            },
            path: address(link as u8),
            proven: true,
            keys: LinkKeys {
                our_index: ReceiverIndex(u32::from(recv)),
                their_index: ReceiverIndex(u32::from(send)),
                send: Key::from_bytes([send; 32]),
                recv: Key::from_bytes([recv; 32]),
            },
            usage: EpochUse::Send,
        },
    )
}

fn send(lane: &mut Lane, train: &mut Train<Sent>, packet: &[u8], count: usize) {
    for _ in 0..count {
        lane.outbound(NOW, VirtioNetHdr::default(), black_box(packet), train);
    }
    train.flush();
}

fn address(host: u8) -> Endpoint {
    Endpoint::from(([192, 0, 2, host], 2121))
}

/// Makes a TCP packet from A whose checksum is left to complete.
fn ip_packet(payload: usize, to: u8) -> Vec<u8> {
    let to = if to == 1 { B } else { C };
    let mut packet = vec![0_u8; 60 + payload];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(20 + payload as u16).to_be_bytes());
    (packet[6], packet[7]) = (6, 64);
    packet[8..24].copy_from_slice(&A.to_ipv6().octets());
    packet[24..40].copy_from_slice(&to.to_ipv6().octets());
    packet[40..44].copy_from_slice(&[0x30, 0x39, 0, 80]);
    // Header length 20 bytes, ACK.
    (packet[52], packet[53]) = (5 << 4, 0x10);
    for (n, byte) in packet[60..].iter_mut().enumerate() {
        *byte = n as u8;
    }
    packet
}

fn super_packet() -> (VirtioNetHdr, Vec<u8>) {
    let hdr = VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV6,
        hdr_len: 60,
        gso_size: PAYLOAD,
        csum_start: 40,
        csum_offset: 16,
    };
    (hdr, ip_packet(usize::from(PAYLOAD) * SEGMENTS, 1))
}

/// Returns the segments of [`super_packet`], with their checksums.
fn segments() -> Vec<Vec<u8>> {
    let (hdr, packet) = super_packet();
    let mut splitter = Splitter::new(hdr, &packet, 1_400).unwrap();
    let mut out = vec![0; 2_000];
    std::iter::from_fn(|| splitter.next_into(&mut out).map(|len| out[..len].to_vec())).collect()
}
