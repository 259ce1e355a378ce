//! Fast frames: an honest peer, a hostile one with keys, and a host that writes anything to its
//! TUN.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use weft_contract::{
    Command, EpochId, EpochUse, FastKeys, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex, Report,
    SendCommand, SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::fast::{LaneSecrets, Secret, Suite};
use weft_packet::checksum::{Checksum, complete};
use weft_packet::{Counters, DropReason, Lane, Train};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, Subnet, session};

use super::input::Input;
use super::lane::{Sent, cut, key, salt, tun_read};
use super::model;

mod content;
mod hostile;
mod pieces;
mod relayed;

use content::{assert_packet, full_content, left_out};
use hostile::{Hostile, train_in};
use relayed::HostileHop;

const ME: NodeAddr = NodeAddr::new([1; 16]);
const HONEST: NodeAddr = NodeAddr::new([2; 16]);
const HOSTILE: NodeAddr = NodeAddr::new([3; 16]);
const MTU: u16 = 1280;
/// A packet of this length passes, in pieces if needed.
const LEAST: usize = 1280;
const MAX_EVENTS: usize = 200;
/// Maximum number of frames kept for replay.
const MAX_CAPTURED: usize = 64;
/// The largest TUN read has 1,800 segments, and a sender goes on for eight phases without an acknowledgement.
const PHASE_FRAMES: [u64; 3] = [300, 1_000, 1 << 20];
/// Datagrams that one frame makes the lane send: the answer to a confirm, and the phase. Packets
/// that waited for the proof of the keys come in addition.
const MAX_ANSWERS: usize = 2;
/// Maximum number of frames of one packet (docs/protocol/sizes.md).
const MAX_PIECES: usize = weft_wire::fast::Fragment::MAX_PIECES;

/// Runs frames of a peer with right keys: any content, in any order and number, whole, in pieces,
/// or to be relayed; and reads from the TUN with any header. A frame gives at most its own packet,
/// none is accepted twice, and none that the peer did not seal; a frame reaches another peer only
/// unchanged; no store grows; and afterwards packets of an honest peer pass in both directions.
pub fn fast(data: &[u8]) {
    let mut input = Input::new(data);
    let mut trio = Trio::new(salt(data));
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        trio.event(&mut input);
        if let Err(broken) = trio.me.check_invariants() {
            panic!("{broken}");
        }
    }
    trio.packets_pass();
    trio.give_back();
}

thread_local! {
    /// Send batches of earlier inputs: each has a buffer of 128 KiB, which takes longer to allocate
    /// than an input to run.
    static TRAINS: RefCell<Vec<Train<Sent>>> = const { RefCell::new(Vec::new()) };
}

fn train() -> Train<Sent> {
    let spare = TRAINS.with(|trains| trains.borrow_mut().pop());
    spare.unwrap_or_else(|| Train::new(Sent::default(), 64))
}

#[cfg(test)]
fn fresh() -> Trio {
    Trio::new(salt(&[]))
}

/// The lane under test, an honest peer, and an attacker that has keys.
struct Trio {
    now: u64,
    salt: u64,
    me: Lane,
    train: Train<Sent>,
    honest: Lane,
    honest_train: Train<Sent>,
    hostile: Hostile,
    hop: HostileHop,
    /// Number of packets that the hostile peer has sent in pieces.
    cut: u32,
    /// Its packets that were reassembled.
    whole: Vec<Vec<u8>>,
    /// The number of the newest keys.
    id: u32,
    /// Frames of the honest peer, each delivered or withheld.
    captured: Vec<Vec<u8>>,
    /// Whether no frame of the honest peer was withheld since its keys were installed.
    lossless: bool,
    /// Whether frames of one length arrive in one receive, as the kernel coalesces them, instead of
    /// one by one.
    in_trains: bool,
}

impl Trio {
    fn new(salt: u64) -> Self {
        let config = |me| LaneConfig {
            me,
            mtu: MTU,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        };
        let mut trio = Self {
            now: 1_000,
            salt,
            me: Lane::new(config(ME)),
            train: train(),
            honest: Lane::new(config(HONEST)),
            honest_train: train(),
            hostile: Hostile {
                index: 0,
                suite: Suite::Aes256Gcm,
                secrets: Vec::new(),
                counter: 0,
                opened: BTreeSet::new(),
            },
            hop: HostileHop::default(),
            cut: 0,
            whole: Vec::new(),
            id: 0,
            captured: Vec::new(),
            lossless: true,
            in_trains: salt & 1 == 1,
        };
        for (me, peer) in [(ME, HONEST), (ME, HOSTILE), (HONEST, ME)] {
            trio.install_fips(me, peer);
        }
        trio.rekey_honest(1 << 20);
        trio.rekey_hostile(Suite::Aes256Gcm);
        for (me, peers) in [(ME, &[HONEST, HOSTILE][..]), (HONEST, &[ME])] {
            let (ours, theirs) = (vec![behind(me)], peers.iter().map(|peer| (behind(*peer), *peer)));
            let theirs = theirs.collect();
            trio.apply(me, Command::Table(TableCommand::SetSubnets { ours, theirs }));
        }
        trio
    }

    /// Returns the send batches for the next input, emptied.
    fn give_back(mut self) {
        self.take_sent();
        self.honest_sent();
        TRAINS.with(|trains| trains.borrow_mut().extend([self.train, self.honest_train]));
    }

    /// The key with which one node sends to another.
    fn key(&self, layer: u8, from: NodeAddr, to: NodeAddr) -> weft_noise::Key {
        key(
            layer << 4 | from.as_bytes()[0] << 2 | to.as_bytes()[0],
            self.id,
            self.salt,
        )
    }

    fn apply(&mut self, me: NodeAddr, command: Command) {
        if me == ME {
            self.me.apply(self.now, command, &mut self.train);
        } else {
            self.honest.apply(self.now, command, &mut self.honest_train);
        }
    }

    /// Installs link and session, which fast frames require.
    fn install_fips(&mut self, me: NodeAddr, peer: NodeAddr) {
        let keys = LinkKeys {
            our_index: ReceiverIndex(self.id << 8 | u32::from(peer.as_bytes()[0])),
            their_index: ReceiverIndex(self.id << 8 | u32::from(me.as_bytes()[0])),
            send: self.key(1, me, peer),
            recv: self.key(1, peer, me),
        };
        let usage = EpochUse::Send;
        let link = link_to(peer);
        let path = address(peer);
        self.apply(me, Command::Table(TableCommand::AllowPeer { peer }));
        self.apply(
            me,
            Command::Link(
                link,
                LinkCommand::Install {
                    peer,
                    path: path.into(),
                    proven: true,
                    keys,
                    usage,
                },
            ),
        );
        let keys = SessionKeys {
            id: EpochId(self.id),
            initiator: me == ME,
            send: self.key(2, me, peer),
            recv: self.key(2, peer, me),
        };
        self.apply(me, Command::Session(peer, SessionCommand::Install { keys, usage }));
        self.apply(me, Command::Session(peer, SessionCommand::Bind { link }));
    }

    fn install_fast(&mut self, me: NodeAddr, peer: NodeAddr, suite: Suite, phase_frames: u64) {
        let secret = |from, to| Secret::from_key(&self.key(3, from, to));
        let keys = FastKeys {
            id: EpochId(self.id),
            our_index: ReceiverIndex(index(self.id, peer)),
            their_index: ReceiverIndex(index(self.id, me)),
            max_payload: 9_000,
            reads_full: true,
            suite,
            secrets: LaneSecrets {
                send: secret(me, peer),
                recv: secret(peer, me),
            },
            phase_frames,
        };
        self.apply(me, Command::Session(peer, SessionCommand::InstallFast { keys }));
    }

    /// Installs new keys for both layers; each side sends a confirm.
    fn rekey_honest(&mut self, phase_frames: u64) {
        self.id += 1;
        let id = EpochId(self.id);
        for (me, peer) in [(ME, HONEST), (HONEST, ME)] {
            self.install_fips(me, peer);
            self.install_fast(me, peer, Suite::Aes256Gcm, phase_frames);
        }
        for (me, peer) in [(ME, HONEST), (HONEST, ME)] {
            self.apply(me, Command::Session(peer, SessionCommand::ConfirmFast { id }));
        }
        self.install_honest_hop();
        self.lossless = true;
        self.exchange();
    }

    fn rekey_hostile(&mut self, suite: Suite) {
        self.id += 1;
        self.install_fips(ME, HOSTILE);
        self.install_fast(ME, HOSTILE, suite, 300);
        let first = Secret::from_key(&self.key(3, HOSTILE, ME));
        let next = first.next();
        self.hostile = Hostile {
            index: index(self.id, HOSTILE),
            suite,
            secrets: vec![first, next],
            counter: 0,
            opened: BTreeSet::new(),
        };
        self.hop = self.install_hostile_hop(suite);
        self.take_sent();
        // Any frame but a confirm that asks proves the keys, so that packets for the hostile peer
        // use fast frames too.
        let alive = self.hostile.seal(1, 0, &[0, 0, 0, 0, session::ALIVE], 0, None);
        self.deliver(&[alive]);
    }

    fn event(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..=4 => self.hostile_sends(input),
            5..=7 => self.host_writes(input),
            8 | 9 => self.honest_sends(input),
            10 => self.replayed(input),
            11 => self.spoiled(input),
            12 => {
                if input.flag() {
                    self.rekey_honest(PHASE_FRAMES[input.below(3)]);
                } else {
                    self.rekey_hostile(Suite::ALL[input.below(3)]);
                }
            }
            13 => self.now += [1, 250, 1_000, 11_000, 100_000][input.below(5)],
            14 => self.core_says(input),
            _ => match input.below(8) {
                0 => {
                    self.me.sample(self.now);
                    self.drain();
                }
                2 => self.pieces(input),
                4 | 6 => self.relayed(input),
                _ => self.host_routes(input),
            },
        }
    }

    /// The host writes any packets to the TUN. Their destination receives no others.
    fn host_writes(&mut self, input: &mut Input<'_>) {
        let (hdr, packet) = tun_read(input, ME, &[HONEST, HONEST, HOSTILE, ME]);
        let withheld = input.below(8) == 7;
        let reference = cut(hdr, &packet, self.me.inspect().max_inner_to(&HONEST));
        let before = *self.me.counters();
        self.me.outbound(self.now, hdr, &packet, &mut self.train);
        let frames = self.take_sent();
        self.drain();
        let counters = self.me.counters();
        // A packet that is a little too long for a frame is sent in pieces.
        let pieces = counters.fast_fragmented > before.fast_fragmented;
        let to = packet.get(24..40).filter(|_| packet[0] >> 4 == 6);
        if to != Some(&HONEST.to_ipv6().octets()[..]) || packet[8..24] != ME.to_ipv6().octets() {
            assert!(pieces || frames.len() <= cut(hdr, &packet, usize::MAX).len());
            return;
        }
        let spent = counters.drops[DropReason::EpochSpent] > before.drops[DropReason::EpochSpent];
        let fast = counters.fast_tx > before.fast_tx;
        let reference = if pieces { cut(hdr, &packet, LEAST) } else { reference };
        assert!(pieces || frames.len() == reference.len() || spent && frames.len() < reference.len());
        assert!(
            !(spent && self.lossless),
            "keys are spent though every phase was acknowledged"
        );
        if withheld {
            self.lossless &= frames.is_empty();
            return;
        }
        if pieces {
            for frame in &frames {
                self.honest
                    .inbound_alone(self.now, address(ME), frame, &mut self.honest_train);
            }
            let arrived: Vec<_> = std::iter::from_fn(|| self.honest.poll_reply()).collect();
            assert!(spent || arrived.len() == reference.len(), "a packet in pieces is lost");
            for (arrived, segment) in arrived.iter().zip(&reference) {
                assert_packet(arrived, segment, left_out(hdr, segment));
            }
            self.exchange();
            return;
        }
        for (frame, segment) in frames.iter().zip(&reference) {
            let arrived = self
                .honest
                .inbound_alone(self.now, address(ME), frame, &mut self.honest_train);
            let arrived = arrived.unwrap_or_else(|| panic!("an honest frame does not open"));
            assert_packet(&arrived, segment, fast && left_out(hdr, segment));
        }
        self.exchange();
    }

    /// A host behind this node sends to one behind the honest peer, over IPv4: whole or in pieces,
    /// the packet arrives unchanged, or not at all.
    fn host_routes(&mut self, input: &mut Input<'_>) {
        let (hdr, _) = VirtioNetHdr::parse(&input.array::<10>()).unwrap_or_default();
        let hdr = if input.flag() { hdr } else { VirtioNetHdr::default() };
        let mut packet = full_content(input, (ME, HONEST));
        let more = usize::from(input.u8()) * 40;
        if packet.len() > 40 && more > 0 && model::is_v4(&packet) {
            packet.resize(packet.len() + more, 0x3c);
            model::make_ipv4(&mut packet);
        }
        self.me.outbound(self.now, hdr, &packet, &mut self.train);
        let frames = self.take_sent();
        self.drain();
        // It may also be for the other peer.
        let for_honest = model::is_v4(&packet) && packet[16..18] == [10, HONEST.as_bytes()[0]]
            || !model::is_v4(&packet) && packet.get(24..40) == Some(&HONEST.to_ipv6().octets());
        if frames.is_empty() || !for_honest {
            return;
        }
        let expected = cut(hdr, &packet, usize::MAX);
        let mut arrived = Vec::new();
        for frame in &frames {
            let train = &mut self.honest_train;
            arrived.extend(self.honest.inbound_alone(self.now, address(ME), frame, train));
            arrived.extend(self.honest.poll_reply());
        }
        assert!(arrived.len() == expected.len() || self.me.counters().drops[DropReason::EpochSpent] > 0);
        for (arrived, expected) in arrived.iter().zip(&expected) {
            assert_packet(arrived, expected, left_out(hdr, expected));
        }
        self.exchange();
    }

    /// A host behind the honest peer sends to this node's.
    fn honest_sends(&mut self, input: &mut Input<'_>) {
        let (hdr, packet) = tun_read(input, HONEST, &[ME]);
        let reference = cut(hdr, &packet, self.honest.inspect().max_inner_to(&ME));
        let before = *self.honest.counters();
        self.honest.outbound(self.now, hdr, &packet, &mut self.honest_train);
        let fast = self.honest.counters().fast_tx > before.fast_tx;
        let pieces = self.honest.counters().fast_fragmented > before.fast_fragmented;
        let frames = self.honest_sent();
        if packet.len() < model::IPV6_HEADER || packet[8..24] != HONEST.to_ipv6().octets() {
            assert!(frames.is_empty());
            return;
        }
        if input.below(8) == 7 {
            self.lossless &= frames.is_empty();
            return;
        }
        if pieces {
            for frame in &frames {
                self.me.inbound_alone(self.now, address(HONEST), frame, &mut self.train);
            }
            let arrived: Vec<_> = std::iter::from_fn(|| self.me.poll_reply()).collect();
            let reference = cut(hdr, &packet, LEAST);
            let spent = self.honest.counters().drops[DropReason::EpochSpent] > before.drops[DropReason::EpochSpent];
            assert!(spent || arrived.len() == reference.len(), "a packet in pieces is lost");
            for (arrived, segment) in arrived.iter().zip(&reference) {
                assert_packet(arrived, segment, left_out(hdr, segment));
            }
            return self.exchange();
        }
        let alike = frames.split_last().is_some_and(|(last, before)| {
            before
                .iter()
                .all(|frame| frame.len() == before[0].len() && frame.len() >= last.len())
        });
        if self.in_trains && alike {
            let joined = frames.iter().map(Vec::as_slice);
            let arrived = train_in(&mut self.me, &mut self.train, (self.now, HONEST), joined);
            assert_eq!(arrived.len(), frames.len(), "an honest frame does not open");
            for ((_, packet, checksum), segment) in arrived.iter().zip(&reference) {
                let mut packet = packet.clone();
                if *checksum == Checksum::Partial {
                    complete(&mut packet);
                }
                assert_packet(&packet, segment, fast && left_out(hdr, segment));
            }
            return self.exchange();
        }
        for (frame, segment) in frames.iter().zip(&reference) {
            let arrived = self.me.inbound_alone(self.now, address(HONEST), frame, &mut self.train);
            let arrived = arrived.unwrap_or_else(|| panic!("an honest frame does not open"));
            assert_packet(&arrived, segment, fast && left_out(hdr, segment));
        }
        self.exchange();
    }

    /// Any command that the core may send about the session with the hostile peer.
    fn core_says(&mut self, input: &mut Input<'_>) {
        let (peer, id) = (HOSTILE, EpochId(self.id.wrapping_sub(u32::from(input.u8() & 3))));
        let command = match input.below(8) {
            0 => Command::Session(peer, SessionCommand::Suspend),
            1 => Command::Session(peer, SessionCommand::Remove),
            2 => Command::Table(TableCommand::DenyPeer { peer }),
            3 => Command::Table(TableCommand::AllowPeer { peer }),
            4 => Command::Session(
                peer,
                SessionCommand::Limit {
                    mtu: 1_200 + u16::from(input.u8()),
                },
            ),
            5 => Command::Session(peer, SessionCommand::ConfirmFast { id }),
            6 => Command::Link(link_to(peer), LinkCommand::Remove),
            _ => Command::Send(SendCommand::OnSession {
                peer,
                epoch: input.flag().then_some(id),
                msg_type: input.u8(),
                body: vec![0; usize::from(input.u16())],
            }),
        };
        self.apply(ME, command);
        self.take_sent();
        self.drain();
    }

    /// Installs fresh keys and checks that packets pass in both directions in fast frames.
    fn packets_pass(&mut self) {
        self.now += 10_000;
        self.rekey_honest(1 << 20);
        let (of_me, of_honest) = (self.me.counters().fast_rx, self.honest.counters().fast_rx);
        let (hdr, there) = (VirtioNetHdr::default(), weft_sim::probe(ME, HONEST, 0xffff_ffff, 1_000));
        self.me.outbound(self.now, hdr, &there, &mut self.train);
        let frame = self
            .take_sent()
            .pop()
            .unwrap_or_else(|| panic!("nothing is sent under fresh keys"));
        let arrived = self
            .honest
            .inbound_alone(self.now, address(ME), &frame, &mut self.honest_train);
        assert_eq!(arrived, Some(there));
        let back = weft_sim::probe(HONEST, ME, 0xffff_fffe, 1_000);
        self.honest.outbound(self.now, hdr, &back, &mut self.honest_train);
        let frame = self
            .honest_sent()
            .pop()
            .unwrap_or_else(|| panic!("nothing comes under fresh keys"));
        let arrived = self
            .me
            .inbound_alone(self.now, address(HONEST), &frame, &mut self.train);
        assert_eq!(arrived, Some(back));
        assert!(self.me.counters().fast_rx > of_me && self.honest.counters().fast_rx > of_honest);
    }

    /// Checks that one frame of the hostile peer made the lane send no more than it may, given the
    /// counters and the packets that waited for its keys before.
    fn assert_few(&self, sent: usize, answers: usize, before: &Counters, waiting: usize) {
        let sent_in = |counters: &Counters| counters.fast_tx + counters.fast_fragmented;
        let packets = sent_in(self.me.counters()) - sent_in(before);
        let released = if waiting > 0 { packets as usize * MAX_PIECES } else { 0 };
        assert!(
            sent <= answers + released,
            "{sent} datagrams for one frame, {waiting} packets waited"
        );
    }

    /// Exchanges the output of both honest ends until there is no more.
    fn exchange(&mut self) {
        loop {
            let (mine, theirs) = (self.take_sent(), self.honest_sent());
            if mine.is_empty() && theirs.is_empty() {
                break;
            }
            for frame in mine {
                self.honest
                    .inbound_alone(self.now, address(ME), &frame, &mut self.honest_train);
            }
            for frame in theirs {
                self.me
                    .inbound_alone(self.now, address(HONEST), &frame, &mut self.train);
            }
        }
        self.drain();
    }

    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        self.train.flush();
        let sent = std::mem::take(&mut self.train.out_mut().0);
        sent.into_iter().map(|(_, datagram)| datagram).collect()
    }

    fn honest_sent(&mut self) -> Vec<Vec<u8>> {
        self.honest_train.flush();
        let sent = std::mem::take(&mut self.honest_train.out_mut().0);
        let frames: Vec<_> = sent.into_iter().map(|(_, datagram)| datagram).collect();
        self.captured.extend(frames.iter().cloned());
        let old = self.captured.len().saturating_sub(MAX_CAPTURED);
        self.captured.drain(..old);
        while self.honest.poll_report().is_some() || self.honest.poll_reply().is_some() {}
        frames
    }

    /// Takes all reports of the lane. Returns their number.
    fn drain(&mut self) -> usize {
        while let Some(packet) = self.me.poll_reply() {
            if model::is_v4(&packet) && packet[9] == 1 && packet.len() <= 576 {
                continue;
            }
            if packet[8..24] == ME.to_ipv6().octets() {
                assert!(packet.len() <= 1280);
            } else {
                self.came_in_pieces(packet);
            }
        }
        let reports: Vec<Report> = std::iter::from_fn(|| self.me.poll_report()).collect();
        reports.len()
    }
}

/// The subnet behind a node.
fn behind(node: NodeAddr) -> Subnet {
    let subnet = Subnet::around([10, node.as_bytes()[0], 0, 0].into(), 16);
    subnet.unwrap_or_else(|| Subnet::host(node.to_ipv6().into()))
}

fn link_to(peer: NodeAddr) -> LinkId {
    LinkId(peer.as_bytes()[0].into())
}

/// The receiver index that a peer writes into frames to this node under these keys.
fn index(id: u32, peer: NodeAddr) -> u32 {
    id << 8 | 0x80 | u32::from(peer.as_bytes()[0])
}

fn address(node: NodeAddr) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, node.as_bytes()[0]], 2121))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_waited_leave_when_fast_keys_are_proven() {
        let mut trio = fresh();
        trio.apply(ME, Command::Session(HOSTILE, SessionCommand::Remove));
        trio.id += 1;
        trio.install_fips(ME, HOSTILE);
        // To the subnet behind it, which only fast frames reach, and longer than one frame.
        let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, model::UDP, 0, 0];
        packet.extend([10, ME.as_bytes()[0], 0, 1, 10, HOSTILE.as_bytes()[0], 0, 1]);
        packet.resize(3_000, 0);
        model::make_ipv4(&mut packet);
        trio.me
            .outbound(trio.now, VirtioNetHdr::default(), &packet, &mut trio.train);
        assert_eq!(trio.me.inspect().queued(&HOSTILE), 1);
        let before = trio.me.counters().fast_fragmented;
        // Proves its keys with one frame.
        trio.rekey_hostile(Suite::Aes256Gcm);
        assert_eq!(trio.me.inspect().queued(&HOSTILE), 0);
        assert_eq!(trio.me.counters().fast_fragmented, before + 1);
    }
}
