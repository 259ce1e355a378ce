//! Several lanes of two nodes, without a network: each opens its own frames and leaves the others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

use proptest::prelude::*;
use weft_contract::{
    Audience, Command, Endpoint, EpochId, EpochUse, FastKeys, LaneConfig, LinkCommand, LinkId, LinkKeys, Place,
    ReceiverIndex, Report, SessionCommand, SessionKeys, SessionReport, TableCommand, lane_of,
};
use weft_noise::Key;
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::checksum::Checksum;
use weft_packet::{DropReason, HEADROOM, Lane, Outbound, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

const A: NodeAddr = NodeAddr::new([1; 16]);
const B: NodeAddr = NodeAddr::new([2; 16]);
const LINK: LinkId = LinkId(1);
const NOW: u64 = 1_000;
/// Later than the time for which a lane leaves packets to the first.
const LATER: u64 = NOW + 20;

#[derive(Default)]
struct Sent {
    datagrams: Vec<Vec<u8>>,
    to: Option<Endpoint>,
}

impl Transmit for Sent {
    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
        self.to = Some(to);
        self.datagrams.extend(train.chunks(segment).map(<[u8]>::to_vec));
    }
}

/// A node with a link and a session. No FIPS frames are opened here, so their keys do not matter.
struct Node {
    me: NodeAddr,
    other: NodeAddr,
    lanes: Vec<(Lane, Train<Sent>)>,
}

/// The packets of a receive, and the datagrams for other lanes, with their owner.
type Received = (Vec<Vec<u8>>, Vec<(u8, Vec<u8>)>);

fn address(of: NodeAddr) -> Endpoint {
    Endpoint::from(([192, 0, 2, of.as_bytes()[0]], 2121))
}

fn index(of: NodeAddr, lane: u8) -> u32 {
    u32::from(of.as_bytes()[0]) << 16 | u32::from(lane)
}

impl Node {
    fn new(me: NodeAddr, other: NodeAddr, lanes: u8) -> Self {
        let config = LaneConfig {
            me,
            mtu: 1280,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        };
        let lanes = Lane::several(config, lanes).into_iter();
        let mut node = Self {
            me,
            other,
            lanes: lanes.map(|lane| (lane, Train::new(Sent::default(), 64))).collect(),
        };
        node.apply(&Command::Table(TableCommand::AllowPeer { peer: other }));
        let key = || Key::from_bytes([9; 32]);
        node.apply(&Command::Link(
            LINK,
            LinkCommand::Install {
                peer: other,
                path: address(other),
                proven: true,
                keys: LinkKeys {
                    our_index: ReceiverIndex(1),
                    their_index: ReceiverIndex(1),
                    send: key(),
                    recv: key(),
                },
                usage: EpochUse::Send,
            },
        ));
        node.apply(&Command::Session(
            other,
            SessionCommand::Install {
                keys: SessionKeys {
                    id: EpochId(0),
                    initiator: me == A,
                    send: key(),
                    recv: key(),
                },
                usage: EpochUse::Send,
            },
        ));
        node.apply(&Command::Link(
            LINK,
            LinkCommand::Place {
                peer: other,
                path: address(other),
                left: None,
            },
        ));
        node.apply(&Command::Session(other, SessionCommand::Bind { link: LINK }));
        node
    }

    /// Applies a command to its audience, as the daemon does.
    fn apply(&mut self, command: &Command) {
        let audience = command.audience();
        for (number, (lane, train)) in (0..).zip(&mut self.lanes) {
            let hears = match audience {
                Audience::First => number == 0,
                Audience::One(one) => number == one,
                Audience::Others => number > 0,
                Audience::All => true,
            };
            if hears {
                lane.apply(NOW, command.clone(), train);
            }
        }
    }

    fn install(&mut self, lanes: u8) {
        for lane in 0..lanes {
            let secret = |from: NodeAddr| Secret::from_key(&Key::from_bytes([from.as_bytes()[0] ^ lane << 4; 32]));
            self.apply(&Command::Session(
                self.other,
                SessionCommand::InstallFast {
                    keys: FastKeys {
                        id: EpochId(0),
                        our_index: ReceiverIndex(index(self.me, lane)),
                        their_index: ReceiverIndex(index(self.other, lane)),
                        max_payload: 9_000,
                        reads_full: true,
                        suite: Suite::Aes256Gcm,
                        secrets: LaneSecrets {
                            send: secret(self.me),
                            recv: secret(self.other),
                        },
                        phase_frames: 1 << 23,
                    },
                },
            ));
        }
    }

    fn send(&mut self, now: u64, lane: usize, packet: &[u8]) -> Outbound {
        let (lane, train) = &mut self.lanes[lane];
        lane.outbound(now, VirtioNetHdr::default(), packet, train)
    }

    fn take_sent(&mut self, lane: usize) -> Vec<Vec<u8>> {
        let train = &mut self.lanes[lane].1;
        train.flush();
        std::mem::take(&mut train.out_mut().datagrams)
    }

    /// Processes one receive of equal datagrams.
    fn receive(&mut self, lane: usize, datagrams: &[Vec<u8>]) -> Received {
        let step = datagrams.first().map_or(1, Vec::len);
        let mut room = [vec![0; HEADROOM], datagrams.concat()].concat();
        let (lane, train) = &mut self.lanes[lane];
        let mut packets = Vec::new();
        lane.inbound_train(
            NOW,
            address(self.other),
            &mut room,
            step,
            train,
            |packet, _, checksum| {
                let mut packet = packet.to_vec();
                if checksum == Checksum::Partial {
                    weft_packet::checksum::complete(&mut packet);
                }
                packets.push(packet);
            },
        );
        let foreign = lane.foreign().map(|(owner, run)| (owner, run.to_vec()));
        (packets, foreign.collect())
    }
}

/// Makes two nodes that hold the keys of `lanes` lanes, each of which has been proven to both.
fn proven(lanes: u8) -> [Node; 2] {
    let mut nodes = [Node::new(A, B, lanes), Node::new(B, A, lanes)];
    for node in &mut nodes {
        node.install(lanes);
    }
    let [a, b] = &mut nodes;
    for a_asks in [true, false] {
        let [asks, answers] = if a_asks { [&mut *a, &mut *b] } else { [&mut *b, &mut *a] };
        let peer = asks.other;
        asks.apply(&Command::Session(peer, SessionCommand::ConfirmFast { id: EpochId(0) }));
        for lane in 0..lanes.into() {
            let question = asks.take_sent(lane);
            answers.receive(lane, &question);
            let answer = answers.take_sent(lane);
            asks.receive(lane, &answer);
        }
    }
    for node in &mut nodes {
        for (number, (lane, _)) in node.lanes.iter_mut().enumerate() {
            let mut reports = std::iter::from_fn(|| lane.poll_report());
            assert!(
                reports.any(|report| matches!(
                    report,
                    Report::Session(_, SessionReport::FastProven { direct: true, .. })
                )),
                "lane {number}"
            );
        }
    }
    nodes
}

/// Makes a UDP packet from one node to the other; `mark` is its payload.
fn packet(from: NodeAddr, to: NodeAddr, mark: u32) -> Vec<u8> {
    let mut packet = vec![0; 40 + 8 + 32];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&40_u16.to_be_bytes());
    packet[6..8].copy_from_slice(&[17, 64]);
    packet[8..24].copy_from_slice(&from.to_ipv6().octets());
    packet[24..40].copy_from_slice(&to.to_ipv6().octets());
    packet[40..46].copy_from_slice(&[1, 0, 2, 0, 0, 40]);
    packet[48..52].copy_from_slice(&mark.to_be_bytes());
    packet
}

#[test]
fn each_lane_seals_for_its_like_alone() {
    let [mut a, mut b] = proven(3);
    for lane in 0..3 {
        // Counters that no other lane has used.
        for _ in 0..10 * (lane + 1) {
            a.send(NOW, lane, &packet(A, B, 99));
        }
        a.take_sent(lane);
        assert_eq!(a.send(NOW, lane, &packet(A, B, lane as u32)), Outbound::Done);
        let frames = a.take_sent(lane);
        let [frame] = &frames[..] else {
            panic!("one frame, not {}", frames.len())
        };
        // The index names the lane, so that the kernel can choose it. The frame does not open under
        // another lane's keys.
        assert_eq!(weft_wire::fast::index_of(frame), Some(index(B, lane as u8)));
        for other in (0..3).filter(|other| *other != lane) {
            let (packets, foreign) = b.receive(other, &frames);
            assert_eq!((packets, foreign), (vec![], vec![(lane as u8, frame.clone())]));
            let mut moved = frame.clone();
            moved[4..8].copy_from_slice(&index(B, other as u8).to_le_bytes());
            let failed = |node: &Node| node.lanes[other].0.counters().drops[DropReason::FastTag];
            let before = failed(&b);
            assert_eq!(b.receive(other, &[moved]), (vec![], vec![]));
            assert_eq!(failed(&b), before + 1);
        }
        assert_eq!(b.receive(lane, &frames), (vec![packet(A, B, lane as u32)], vec![]));
        assert_eq!(b.receive(lane, &frames).0, Vec::<Vec<u8>>::new(), "a replay");
    }
}

#[test]
fn a_lane_leaves_packets_to_the_first_until_its_keys_work() {
    let mut a = Node::new(A, B, 2);
    let left = packet(A, B, 7);
    assert_eq!(a.send(NOW, 1, &left), Outbound::HandOver(0));
    // Installed keys are not proven.
    a.install(2);
    assert_eq!(a.send(NOW, 1, &left), Outbound::HandOver(0));
    assert_eq!(a.lanes[1].0.counters().handed_out, 2);
    assert!(a.take_sent(1).is_empty());

    let [mut a, _] = proven(2);
    assert_eq!(a.send(NOW, 1, &left), Outbound::Done);
    // Nothing goes over the link until it exists again.
    a.apply(&Command::Link(LINK, LinkCommand::Remove));
    assert_eq!(a.send(NOW + 1, 1, &left), Outbound::HandOver(0));
    a.apply(&Command::Link(
        LINK,
        LinkCommand::Place {
            peer: B,
            path: address(B),
            left: None,
        },
    ));
    // Packets that went through the first lane may still be on their way, as long as more of them
    // follow.
    for n in 2..50 {
        assert_eq!(a.send(NOW + n, 1, &left), Outbound::HandOver(0));
    }
    assert_eq!(a.send(LATER + 49, 1, &left), Outbound::Done);
    assert_eq!(a.send(LATER + 50, 1, &left), Outbound::Done);
}

#[test]
fn datagrams_that_are_no_fast_frames_go_to_the_first_lane() {
    let [_, mut b] = proven(2);
    for first in [0x00_u8, 0x01, 0x10, 0x40, 0xb0] {
        let datagram = vec![first; 60];
        let left = b.receive(1, std::slice::from_ref(&datagram));
        assert_eq!(left, (vec![], vec![(0, datagram)]));
    }
    // The first lane keeps what it cannot read, and counts it.
    let (packets, foreign) = b.receive(0, &[vec![0x40; 60]]);
    assert!(packets.is_empty() && foreign.is_empty());
    assert_eq!(b.lanes[0].0.counters().drops[DropReason::Malformed], 1);
}

#[test]
fn a_move_that_the_core_reports_is_followed_in_every_lane() {
    let [mut a, _] = proven(2);
    let moved = Endpoint::from(([198, 51, 100, 1], 9));
    a.apply(&Command::Link(
        LINK,
        LinkCommand::Place {
            peer: B,
            path: moved,
            left: None,
        },
    ));
    assert_eq!(a.send(NOW, 1, &packet(A, B, 1)), Outbound::Done);
    assert_eq!(a.take_sent(1).len(), 1);
    assert_eq!(a.lanes[1].1.out().to, Some(moved));
}

proptest! {
    /// The kernel joins frames of one length, whichever lane owns them. All packets are delivered,
    /// those of each lane in order.
    #[test]
    fn joined_frames_of_several_lanes(owners in prop::collection::vec(0..3_usize, 1..60), reader in 0..3_usize) {
        let [mut a, mut b] = proven(3);
        let mut frames = Vec::new();
        let mut expected = vec![Vec::new(); 3];
        for (mark, owner) in (0..).zip(&owners) {
            let packet = packet(A, B, mark);
            prop_assert_eq!(a.send(NOW, *owner, &packet), Outbound::Done);
            frames.extend(a.take_sent(*owner));
            expected[*owner].push(packet);
        }
        let received = |node: &Node| node.lanes.iter().map(|(lane, _)| lane.counters().udp_rx).sum::<u64>();
        let before = received(&b);
        let (packets, foreign) = b.receive(reader, &frames);
        prop_assert_eq!(&packets, &expected[reader]);
        let mut others = vec![Vec::new(); 3];
        for (owner, bytes) in foreign {
            prop_assert_ne!(usize::from(owner), reader);
            others[usize::from(owner)].extend(bytes.chunks(frames[0].len()).map(<[u8]>::to_vec));
        }
        for (owner, frames) in others.iter().enumerate().filter(|(owner, _)| *owner != reader) {
            let (packets, foreign) = b.receive(owner, frames);
            prop_assert_eq!(&packets, &expected[owner]);
            prop_assert!(foreign.is_empty());
        }
        prop_assert_eq!(received(&b) - before, owners.len() as u64, "each counts once");
    }

    #[test]
    fn an_index_names_one_lane(index: u32, count in 1..=16_u8) {
        let mut frame = [0; 20];
        frame[0] = 0xa0;
        frame[4..8].copy_from_slice(&index.to_le_bytes());
        let owners: Vec<u8> = (0..count).map(|n| Place::new(n, count).unwrap().owner(&frame)).collect();
        let named = lane_of(index);
        prop_assert_eq!(owners, vec![if named < count { named } else { 0 }; count.into()]);
    }
}
