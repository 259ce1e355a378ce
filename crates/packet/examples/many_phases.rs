//! A long run of fast frames: seals and opens as many packets as its argument says, and checks each
//! of them.
//!
//!     cargo run --release -p weft-packet --example many_phases -- FRAMES FRAMES_PER_PHASE
//!
//! Two lanes exchange packets of 64 bytes. For each frame: its counter is one more than that of the
//! frame before, over all phases; its phase bit is that of its place in the chain of phases; it
//! opens once and gives the packet that was sealed. For each phase: a chain of secrets that is
//! independent of the lanes opens its first frame; no other phase opens it; and its key differs
//! from all those before, as its ciphertext of one plaintext shows. Any other outcome ends the
//! program.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_types,
    reason = "a program of its own, which ends when something is wrong"
)]

use std::collections::HashSet;
use std::time::Instant;

use weft_contract::{
    Command, Endpoint, EpochId, EpochUse, FastKeys, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex,
    SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::Key;
use weft_noise::fast::{FastCipher, LaneSecrets, Secret, Suite};
use weft_packet::{DropReason, HEADROOM, Lane, Train, Transmit};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, fast};

const A: NodeAddr = NodeAddr::new([1; 16]);
const B: NodeAddr = NodeAddr::new([2; 16]);
const ID: EpochId = EpochId(1);
const NOW: u64 = 1_000;
/// Packets that leave together.
const BURST: u64 = 60;

#[derive(Default)]
struct Sent(Vec<(Vec<u8>, usize)>);

impl Transmit for Sent {
    fn transmit(&mut self, _: Endpoint, train: &[u8], segment: usize) {
        self.0.push((train.to_vec(), segment));
    }
}

struct End {
    lane: Lane,
    train: Train<Sent>,
}

impl End {
    fn new(me: NodeAddr, other: NodeAddr, phase_frames: u64) -> Self {
        let (ours, theirs) = (me.as_bytes()[0], other.as_bytes()[0]);
        let key = |of: u8| Key::from_bytes([of; 32]);
        let mtu = 1472;
        let lane = Lane::new(LaneConfig {
            me,
            mtu,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        });
        let mut end = Self {
            lane,
            train: Train::new(Sent::default(), 64),
        };
        let (peer, link, usage) = (other, LinkId(1), EpochUse::Send);
        end.apply(Command::Table(TableCommand::AllowPeer { peer }));
        let keys = LinkKeys {
            our_index: ReceiverIndex(ours.into()),
            their_index: ReceiverIndex(theirs.into()),
            send: key(10 + ours),
            recv: key(10 + theirs),
        };
        let path = address();
        end.apply(Command::Link(
            link,
            LinkCommand::Install {
                peer,
                path,
                proven: true,
                keys,
                usage,
            },
        ));
        let keys = SessionKeys {
            id: ID,
            initiator: ours == 1,
            send: key(20 + ours),
            recv: key(20 + theirs),
        };
        end.apply(Command::Session(peer, SessionCommand::Install { keys, usage }));
        end.apply(Command::Session(peer, SessionCommand::Bind { link }));
        let keys = FastKeys {
            id: ID,
            our_index: ReceiverIndex(ours.into()),
            their_index: ReceiverIndex(theirs.into()),
            max_payload: mtu,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(ours),
                recv: secret(theirs),
            },
            phase_frames,
        };
        end.apply(Command::Session(peer, SessionCommand::InstallFast { keys }));
        end
    }

    fn apply(&mut self, command: Command) {
        self.lane.apply(NOW, command, &mut self.train);
    }

    fn take_sent(&mut self) -> Vec<(Vec<u8>, usize)> {
        self.train.flush();
        std::mem::take(&mut self.train.out_mut().0)
    }

    /// Receives what the peer sent, and passes the packets to `deliver`.
    fn receive(&mut self, sent: &[(Vec<u8>, usize)], mut deliver: impl FnMut(&[u8])) {
        for (train, step) in sent {
            let mut room = [&[0; HEADROOM], &train[..]].concat();
            self.lane
                .inbound_train(NOW, address(), &mut room, *step, &mut self.train, |packet, _, _| {
                    deliver(packet);
                });
        }
        while self.lane.poll_report().is_some() {}
    }
}

fn address() -> Endpoint {
    Endpoint::from(([192, 0, 2, 1], 2121))
}

fn secret(of: u8) -> Secret {
    Secret::from_key(&Key::from_bytes([30 + of; 32]))
}

/// The phases of A's keys, derived without the lanes.
struct Chain {
    secret: Secret,
    cipher: FastCipher,
    number: u64,
    fingerprints: HashSet<[u8; 16]>,
    next_counter: u64,
}

impl Chain {
    fn check(&mut self, frame: &[u8]) {
        let header = fast::Header::parse(frame).unwrap();
        assert_eq!(header.counter, self.next_counter, "a counter");
        self.next_counter += 1;
        if (header.flags & fast::FLAG_PHASE != 0) == (self.number & 1 == 1) {
            return;
        }
        let (aad, sealed) = frame.split_at(fast::Header::LEN);
        let opens = |cipher: &FastCipher| cipher.open_in_place(header.counter, aad, &mut sealed.to_vec()).is_ok();
        assert!(!opens(&self.cipher), "a new phase under the old key");
        self.secret = self.secret.next();
        self.cipher = self.secret.cipher(Suite::Aes256Gcm);
        self.number += 1;
        assert!(opens(&self.cipher), "a phase that is not the next");
        let fingerprint = self.cipher.seal_in_place(u64::MAX, &[], &mut [0; 32]);
        assert!(self.fingerprints.insert(fingerprint), "a key twice");
    }
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let [frames, phase_frames] = arguments[..] else {
        panic!("usage: many_phases FRAMES FRAMES_PER_PHASE");
    };
    let began = Instant::now();
    let [mut a, mut b] = [End::new(A, B, phase_frames), End::new(B, A, phase_frames)];
    let mut chain = Chain {
        secret: secret(1),
        cipher: secret(1).cipher(Suite::Aes256Gcm),
        number: 0,
        fingerprints: HashSet::new(),
        next_counter: 0,
    };
    a.apply(Command::Session(B, SessionCommand::ConfirmFast { id: ID }));
    b.apply(Command::Session(A, SessionCommand::ConfirmFast { id: ID }));
    let mut packet = vec![0x60, 0, 0, 0, 0, 24, 59, 64];
    packet.extend(A.to_ipv6().octets());
    packet.extend(B.to_ipv6().octets());
    packet.extend([0; 24]);
    let (mut sent, mut delivered) = (0_u64, 0_u64);
    while delivered < frames || sent > delivered {
        // Confirms and their answers come first, and packets as soon as they go in fast frames.
        if chain.next_counter > 1 {
            for _ in 0..BURST.min(frames - sent) {
                packet[40..48].copy_from_slice(&sent.to_be_bytes());
                a.lane.outbound(NOW, VirtioNetHdr::default(), &packet, &mut a.train);
                sent += 1;
            }
        }
        let from_a = a.take_sent();
        for (train, step) in &from_a {
            train.chunks(*step).for_each(|frame| chain.check(frame));
        }
        b.receive(&from_a, |packet| {
            assert_eq!(packet[40..48], delivered.to_be_bytes(), "another packet");
            delivered += 1;
        });
        let from_b = b.take_sent();
        a.receive(&from_b, |_| panic!("B sends no packets"));
        assert_eq!(sent, delivered, "a packet was lost");
    }
    let counters = b.lane.counters();
    assert_eq!(
        (
            counters.drops[DropReason::FastTag],
            counters.drops[DropReason::FastReplay]
        ),
        (0, 0)
    );
    println!(
        "{delivered} packets in {} frames and {} phases: every counter 1 more than the one before, every key new, every packet \
         delivered once and in order; {:.0} s",
        chain.next_counter,
        chain.number + 1,
        began.elapsed().as_secs_f64(),
    );
}
