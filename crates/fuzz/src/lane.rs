//! One lane with keys, and any input.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use weft_contract::{
    Command, EpochId, EpochUse, Expected, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex, Report, ReportKind,
    SendCommand, SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::Key;
use weft_packet::split::Splitter;
use weft_packet::{Lane, Train, Transmit, mss};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session::{DataPorts, IPV6_SHIM_PORT, SessionMessageType, SessionMsg3};
use weft_wire::shim::ShimHeader;
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, fmp};

use super::input::Input;
use super::model;

const ME: NodeAddr = NodeAddr::new([1; 16]);
const PEER: NodeAddr = NodeAddr::new([2; 16]);
const OTHER: NodeAddr = NodeAddr::new([3; 16]);
const NODES: [NodeAddr; 3] = [PEER, OTHER, ME];
const LINK: LinkId = LinkId(1);
const MTU: u16 = 1280;
const MAX_EVENTS: usize = 400;

/// Runs datagrams, TUN packets and commands through a lane that shares keys with a peer. A frame
/// that the peer did not seal changes nothing; a packet of the peer is delivered unchanged, and
/// once; no queue and no table grows; and afterwards, fresh keys let packets pass.
pub fn lane(data: &[u8]) {
    let mut input = Input::new(data);
    let mut pair = Pair::new(salt(data));
    pair.rekey(EpochUse::Send, EpochUse::Send);
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        pair.event(&mut input);
        if let Err(broken) = pair.me.check_invariants() {
            panic!("{broken}");
        }
    }
    pair.packets_pass();
}

/// The datagrams that a lane has sent.
#[derive(Default)]
pub(super) struct Sent(pub(super) Vec<(SocketAddr, Vec<u8>)>);

impl Transmit for Sent {
    fn transmit(&mut self, to: weft_contract::Endpoint, train: &[u8], segment: usize) {
        assert!(!train.is_empty() && segment > 0);
        self.0.extend(train.chunks(segment).map(|d| (to.remote(), d.to_vec())));
    }
}

/// The lane under test and its honest peer.
struct Pair {
    now: u64,
    me: Lane,
    my_train: Train<Sent>,
    peer: Lane,
    peer_train: Train<Sent>,
    path: SocketAddr,
    salt: u64,
    /// All frames that the peer has sealed.
    captured: Vec<Vec<u8>>,
    /// All datagrams of the lane under test.
    answers: Vec<Vec<u8>>,
    /// IP packets that the peer has sealed and that have not been delivered, with their number.
    owed: BTreeMap<Vec<u8>, u32>,
    next_index: u32,
    next_epoch: u32,
    /// Reports since the last check.
    reports: Vec<Report>,
}

impl Pair {
    fn new(salt: u64) -> Self {
        let lane = |me| {
            Lane::new(LaneConfig {
                me,
                mtu: MTU,
                probe: false,
                transit: false,
                handshakes: weft_contract::HandshakeLimits::default(),
            })
        };
        let mut pair = Self {
            now: 1_000,
            me: lane(ME),
            my_train: Train::new(Sent::default(), 64),
            peer: lane(PEER),
            peer_train: Train::new(Sent::default(), 64),
            path: address(2),
            salt,
            captured: Vec::new(),
            answers: Vec::new(),
            owed: BTreeMap::new(),
            next_index: 100,
            next_epoch: 0,
            reports: Vec::new(),
        };
        pair.command(Command::Table(TableCommand::AllowPeer { peer: PEER }));
        pair.command(Command::Table(TableCommand::AllowPeer { peer: OTHER }));
        pair.tell_peer(Command::Table(TableCommand::AllowPeer { peer: ME }));
        pair
    }

    /// Installs new keys of both layers at both ends.
    fn rekey(&mut self, link: EpochUse, session: EpochUse) {
        self.rekey_link(link);
        self.rekey_session(session);
    }

    fn rekey_link(&mut self, usage: EpochUse) {
        self.next_index += 1;
        let index = self.next_index;
        let salt = self.salt;
        let key = |tag| key(tag, index, salt);
        let keys = |send, recv| LinkKeys {
            our_index: ReceiverIndex(index),
            their_index: ReceiverIndex(index),
            send,
            recv,
        };
        let (mine, theirs) = (keys(key(0x10), key(0x20)), keys(key(0x20), key(0x10)));
        let install = |peer, path, keys, usage| {
            Command::Link(
                LINK,
                LinkCommand::Install {
                    peer,
                    path,
                    proven: true,
                    keys,
                    usage,
                },
            )
        };
        self.command(install(PEER, self.path.into(), mine, usage));
        self.tell_peer(install(ME, address(1).into(), theirs, EpochUse::Send));
    }

    fn rekey_session(&mut self, usage: EpochUse) {
        self.next_epoch += 1;
        self.peer_session();
        self.my_session(usage);
    }

    fn peer_session(&mut self) {
        let (peer, keys, usage) = (ME, self.session_keys(0x80, 0x40), EpochUse::Send);
        self.tell_peer(Command::Session(peer, SessionCommand::Install { keys, usage }));
        self.tell_peer(Command::Session(peer, SessionCommand::Bind { link: LINK }));
    }

    fn my_session(&mut self, usage: EpochUse) {
        let (peer, keys) = (PEER, self.session_keys(0x40, 0x80));
        self.command(Command::Session(peer, SessionCommand::Install { keys, usage }));
        self.command(Command::Session(peer, SessionCommand::Bind { link: LINK }));
    }

    fn session_keys(&self, send: u8, recv: u8) -> SessionKeys {
        let key = |tag| key(tag, self.next_epoch, self.salt);
        SessionKeys {
            id: EpochId(self.next_epoch),
            // Both ends of the pair turn or reflect the bit; nothing may depend on that.
            initiator: send < recv,
            send: key(send),
            recv: key(recv),
        }
    }

    /// The peer has new session keys and uses them before this node's are installed, as after the
    /// last handshake message.
    fn late_session(&mut self, input: &mut Input<'_>, usage: EpochUse) {
        if input.flag() {
            self.command(Command::Session(PEER, SessionCommand::Remove));
        }
        let msg3 = SessionMsg3 {
            flags: 0,
            noise: &[0; 73],
        };
        let mut payload = vec![0; msg3.wire_len()];
        msg3.emit(&mut payload).unwrap();
        self.peer_datagram(SessionDatagram {
            ttl: 64,
            path_mtu: MTU,
            src: PEER,
            dest: ME,
            payload: &payload,
        });
        for frame in self.peer_flush() {
            self.frame(0, &frame);
        }
        self.next_epoch += 1;
        self.peer_session();
        for _ in 0..input.below(20) {
            self.peer_sends(input);
        }
        self.my_session(usage);
    }

    fn peer_datagram(&mut self, datagram: SessionDatagram<'_>) {
        let mut body = vec![0; datagram.wire_len()];
        datagram.emit(&mut body).unwrap();
        self.tell_peer(Command::Send(SendCommand::OnLink {
            link: LINK,
            epoch: None,
            msg_type: LinkMessageType::SessionDatagram.to_byte(),
            body,
        }));
    }

    fn event(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0 => {
                let datagram = input.bytes().to_vec();
                self.forged(input.below(4), &datagram);
            }
            1 | 2 => self.peer_sends(input),
            3 => self.peer_link_message(input),
            4 => self.peer_session_message(input),
            5 | 6 => {
                if let Some(frame) = input.latest(&self.captured).cloned() {
                    self.frame(input.below(4), &frame);
                }
            }
            7 => self.spoiled(input),
            8 | 9 => self.lane_sends(input),
            10 => self.rekey_link(usage(input)),
            11 => {
                let usage = usage(input);
                if input.flag() {
                    self.late_session(input, usage);
                } else {
                    self.rekey_session(usage);
                }
            }
            12 => self.now += [1, 10, 250, 1_000, 5_000, 100_000][input.below(6)],
            13 => self.any_command(input),
            14 => self.aimed(input),
            _ => {
                self.me.sample(self.now);
                self.drain();
            }
        }
    }

    /// An IP packet of the peer's host, delivered at once or later.
    fn peer_sends(&mut self, input: &mut Input<'_>) {
        let (hdr, packet) = tun_read(input, PEER, &[ME, ME, ME, OTHER]);
        let segments = segments(hdr, &packet, &self.peer);
        self.peer.outbound(self.now, hdr, &packet, &mut self.peer_train);
        let frames = self.peer_flush();
        if addresses(&packet) == Some((PEER, ME)) {
            assert_eq!(frames.len(), segments.len(), "segments of one TUN read");
            for segment in segments {
                self.owe(segment);
            }
        } else {
            assert!(frames.is_empty(), "a packet from or for somebody else");
        }
        self.maybe_deliver(input, frames);
    }

    /// A sealed link message of the peer with any type and body, as no honest node sends it.
    fn peer_link_message(&mut self, input: &mut Input<'_>) {
        if input.flag() {
            self.peer_datagram(SessionDatagram {
                ttl: input.u8(),
                path_mtu: input.u16(),
                src: NODES[input.below(3)],
                dest: NODES[2 - input.below(3)],
                payload: input.bytes(),
            });
        } else {
            self.tell_peer(Command::Send(SendCommand::OnLink {
                link: LINK,
                epoch: None,
                msg_type: any_link_type(input),
                body: input.bytes().to_vec(),
            }));
        }
        let frames = self.peer_flush();
        self.maybe_deliver(input, frames);
    }

    /// A sealed session message of the peer with any type and body.
    fn peer_session_message(&mut self, input: &mut Input<'_>) {
        let msg_type = match input.below(3) {
            0 => SessionMessageType::Data.to_byte(),
            1 => input.u8(),
            _ => 0x10 | input.u8() & 0x0f,
        };
        let mut body = input.bytes().to_vec();
        if input.flag() && body.len() > 4 {
            body[..4].copy_from_slice(&DataPorts::IPV6_SHIM.to_bytes());
            body[4] &= input.u8();
        }
        if let Some(packet) = data_packet(msg_type, &body) {
            self.owe(packet);
        }
        self.tell_peer(Command::Send(SendCommand::OnSession {
            peer: ME,
            epoch: None,
            msg_type,
            body,
        }));
        let frames = self.peer_flush();
        self.maybe_deliver(input, frames);
    }

    fn maybe_deliver(&mut self, input: &mut Input<'_>, frames: Vec<Vec<u8>>) {
        if input.below(4) != 3 {
            for frame in frames {
                self.frame(0, &frame);
            }
        }
    }

    /// A genuine frame arrives, for the first time or again, from the peer's address or another.
    fn frame(&mut self, from: usize, frame: &[u8]) {
        let packet = self
            .me
            .inbound_alone(self.now, address(from), frame, &mut self.my_train);
        self.my_flush();
        if let Some(packet) = packet {
            self.delivered(&packet);
        }
        self.drain();
    }

    /// A datagram that no key of this node has sealed: it is counted or reported, and has no other
    /// effect.
    fn forged(&mut self, from: usize, datagram: &[u8]) {
        let (counters, links, sessions) = (
            *self.me.counters(),
            self.me.inspect().links(),
            self.me.inspect().sessions(),
        );
        let packet = self
            .me
            .inbound_alone(self.now, address(from), datagram, &mut self.my_train);
        assert_eq!(packet, None, "a forged datagram is delivered");
        assert_eq!(self.my_flush(), 0, "a forged datagram is answered by the lane");
        let mut one_more = counters;
        one_more.udp_rx += 1;
        let reported = self.drain();
        assert!(
            *self.me.counters() != one_more || reported > 0,
            "dropped without a trace"
        );
        assert_eq!(
            (links, sessions),
            (self.me.inspect().links(), self.me.inspect().sessions())
        );
    }

    /// A corrupted genuine frame.
    fn spoiled(&mut self, input: &mut Input<'_>) {
        let Some(mut frame) = input.latest(&self.captured).cloned() else {
            return;
        };
        input.spoil(&mut frame);
        if !self.captured.contains(&frame) {
            self.forged(input.below(4), &frame);
        }
    }

    /// A datagram without a seal, but with an index of this node, or in the form of a handshake.
    fn aimed(&mut self, input: &mut Input<'_>) {
        let index = self.next_index.wrapping_sub(input.u32() & 3);
        let datagram = match input.below(3) {
            0 => {
                let header = fmp::EstablishedHeader {
                    flags: input.u8(),
                    payload_len: input.u16(),
                    receiver_idx: index,
                    counter: u64::from(input.u32()),
                };
                [&header.to_bytes()[..], input.bytes()].concat()
            }
            1 => {
                let mut out = vec![0; fmp::Msg1::LEN];
                let noise = &[input.u8(); fmp::NOISE_MSG1_LEN];
                let sender_idx = index;
                fmp::Msg1 { sender_idx, noise }.emit(&mut out).unwrap();
                out
            }
            _ => {
                let mut out = vec![0; fmp::Msg2::LEN];
                let msg2 = fmp::Msg2 {
                    sender_idx: 1,
                    receiver_idx: index,
                    noise: &[input.u8(); fmp::NOISE_MSG2_LEN],
                };
                msg2.emit(&mut out).unwrap();
                out
            }
        };
        self.forged(input.below(4), &datagram);
    }

    /// An IP packet of this node's own host. The peer receives it unchanged.
    fn lane_sends(&mut self, input: &mut Input<'_>) {
        let (hdr, packet) = tun_read(input, ME, &[PEER, PEER, PEER, OTHER]);
        let at = self.answers.len();
        self.me.outbound(self.now, hdr, &packet, &mut self.my_train);
        self.my_flush();
        let segments = segments(hdr, &packet, &self.me);
        let mut frames = self.answers[at..].to_vec();
        // If the peer appears to be at another address, copies are sent there.
        let mut seen = BTreeSet::new();
        frames.retain(|frame| seen.insert(frame.clone()));
        assert!(frames.is_empty() || frames.len() == segments.len());
        for (frame, segment) in frames.into_iter().zip(segments) {
            let packet = self
                .peer
                .inbound_alone(self.now, address(1), &frame, &mut self.peer_train);
            if let Some(packet) = packet {
                assert_eq!(addresses(&segment), Some((ME, PEER)));
                assert!(packet == segment, "the peer got another packet");
            }
        }
        self.peer_flush();
        self.drain();
    }

    /// Any command that the core could send, and some that it would not.
    fn any_command(&mut self, input: &mut Input<'_>) {
        let (peer, link) = (NODES[input.below(3)], LinkId(1 + u32::from(input.flag())));
        let index = self.next_index.wrapping_sub(u32::from(input.u8()) & 7);
        let id = EpochId(self.next_epoch.wrapping_sub(u32::from(input.u8()) & 7));
        let command = match input.below(18) {
            0 => {
                self.next_index += 1;
                let index = self.next_index;
                Command::Link(
                    link,
                    LinkCommand::ArmIndex {
                        peer,
                        index: ReceiverIndex(index),
                    },
                )
            }
            1 => Command::Link(
                link,
                LinkCommand::DisarmIndex {
                    index: ReceiverIndex(index),
                },
            ),
            2 => Command::Link(
                LINK,
                LinkCommand::RetireEpoch {
                    index: ReceiverIndex(index),
                },
            ),
            3 => Command::Link(
                link,
                LinkCommand::Demote {
                    index: ReceiverIndex(index),
                },
            ),
            4 => Command::Link(link, LinkCommand::Remove),
            5 => Command::Session(peer, SessionCommand::RetireEpoch { id }),
            6 => Command::Session(peer, SessionCommand::Remove),
            7 => Command::Session(peer, SessionCommand::Bind { link }),
            8 => Command::Table(TableCommand::AllowPeer { peer }),
            9 => Command::Table(TableCommand::DenyPeer { peer }),
            10 if input.flag() => Command::Table(TableCommand::Unexpect { peer }),
            10 => Command::Table(TableCommand::Expect(Expected {
                peer,
                hosts: [IpAddr::from([192, 0, 2, input.u8()])].into(),
                tag: None,
            })),
            11 => Command::Session(peer, SessionCommand::DropQueue),
            12 => Command::Send(SendCommand::OnLink {
                link,
                epoch: input.flag().then_some(ReceiverIndex(index)),
                msg_type: any_link_type(input),
                body: vec![0; usize::from(input.u16())],
            }),
            13 => Command::Send(SendCommand::OnSession {
                peer,
                epoch: input.flag().then_some(id),
                msg_type: input.u8(),
                body: vec![0; usize::from(input.u16())],
            }),
            14 => Command::Send(SendCommand::ReportOnLink {
                link,
                kind: any_report(input),
            }),
            15 => Command::Send(SendCommand::ReportOnSession {
                peer,
                kind: any_report(input),
            }),
            16 => Command::Link(link, LinkCommand::MarkCongestion { on: input.flag() }),
            _ => Command::Send(SendCommand::Echo {
                peer,
                token: u64::from(input.u8()),
                seq: input.u16(),
            }),
        };
        // An index that was disarmed or retired may no longer be armed or keyed; the numbers are
        // not reused.
        self.command(command);
        self.drain();
    }

    /// Installs fresh keys and checks that packets pass in both directions, whatever happened
    /// before.
    fn packets_pass(&mut self) {
        self.now += 10_000;
        self.command(Command::Table(TableCommand::AllowPeer { peer: PEER }));
        self.rekey(EpochUse::Send, EpochUse::Send);
        let owed = self.owed.values().sum::<u32>();
        let packet = weft_sim::probe(PEER, ME, 0xffff_ffff, 1_000);
        self.owe(packet.clone());
        self.peer
            .outbound(self.now, VirtioNetHdr::default(), &packet, &mut self.peer_train);
        for frame in self.peer_flush() {
            self.frame(0, &frame);
        }
        assert_eq!(
            self.owed.values().sum::<u32>(),
            owed,
            "a packet under fresh keys does not arrive"
        );

        let at = self.answers.len();
        let packet = weft_sim::probe(ME, PEER, 0xffff_fffe, 1_000);
        self.me
            .outbound(self.now, VirtioNetHdr::default(), &packet, &mut self.my_train);
        self.my_flush();
        let last = self.answers.split_off(at).pop();
        let last = last.unwrap_or_else(|| panic!("nothing is sent under fresh keys"));
        let arrived = self
            .peer
            .inbound_alone(self.now, address(1), &last, &mut self.peer_train);
        assert_eq!(arrived, Some(packet));
    }

    fn owe(&mut self, mut packet: Vec<u8>) {
        mss::clamp(&mut packet, self.me.inspect().max_tcp());
        *self.owed.entry(packet).or_default() += 1;
    }

    /// Checks a packet that is written to the TUN.
    fn delivered(&mut self, packet: &[u8]) {
        let left = self.owed.get_mut(packet).filter(|left| **left > 0);
        *left.unwrap_or_else(|| panic!("{packet:02x?} is delivered once more than it was sent")) -= 1;
    }

    fn command(&mut self, command: Command) {
        self.me.apply(self.now, command, &mut self.my_train);
        self.my_flush();
        self.drain();
    }

    fn tell_peer(&mut self, command: Command) {
        self.peer.apply(self.now, command, &mut self.peer_train);
    }

    fn my_flush(&mut self) -> usize {
        self.my_train.flush();
        let sent = std::mem::take(&mut self.my_train.out_mut().0);
        let count = sent.len();
        self.answers.extend(sent.into_iter().map(|(_, datagram)| datagram));
        count
    }

    fn peer_flush(&mut self) -> Vec<Vec<u8>> {
        self.peer_train.flush();
        let sent = std::mem::take(&mut self.peer_train.out_mut().0);
        let frames: Vec<_> = sent.into_iter().map(|(_, datagram)| datagram).collect();
        self.captured.extend(frames.iter().cloned());
        while self.peer.poll_report().is_some() || self.peer.poll_reply().is_some() {}
        frames
    }

    /// Takes all output of the lane: packets are checked, reports counted.
    fn drain(&mut self) -> usize {
        while let Some(packet) = self.me.poll_reply() {
            if packet[8..24] == ME.to_ipv6().octets() {
                assert!(packet.len() <= 1280 && model::verifies(&packet, model::IPV6_HEADER, 58));
            } else {
                self.delivered(&packet);
            }
        }
        self.reports.extend(std::iter::from_fn(|| self.me.poll_report()));
        let count = self.reports.len();
        self.reports.clear();
        count
    }
}

/// A hash of the whole input (FNV-1a). Keys depend on it: otherwise a fuzzer that traces
/// comparisons would learn to seal.
pub(super) fn salt(data: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    data.iter().fold(start, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A key that no other epoch has.
pub(super) fn key(tag: u8, epoch: u32, salt: u64) -> Key {
    let mut bytes = [tag; 32];
    bytes[..4].copy_from_slice(&epoch.to_be_bytes());
    bytes[4..12].copy_from_slice(&salt.to_be_bytes());
    Key::from_bytes(bytes)
}

fn address(host: usize) -> SocketAddr {
    let host = [2, 1, 3, 4][host % 4];
    SocketAddr::from(([192, 0, 2, host], 2121))
}

fn usage(input: &mut Input<'_>) -> EpochUse {
    [EpochUse::Send, EpochUse::Candidate, EpochUse::ReceiveOnly][input.below(3)]
}

fn any_report(input: &mut Input<'_>) -> ReportKind {
    if input.flag() {
        ReportKind::Sender
    } else {
        ReportKind::Receiver
    }
}

fn any_link_type(input: &mut Input<'_>) -> u8 {
    match input.below(3) {
        0 => LinkMessageType::SessionDatagram.to_byte(),
        1 => LinkMessageType::Heartbeat.to_byte(),
        _ => input.u8(),
    }
}

/// A TUN read: mostly an IPv6 packet between the two, with any request of a virtio header.
pub(super) fn tun_read(input: &mut Input<'_>, from: NodeAddr, to: &[NodeAddr]) -> (VirtioNetHdr, Vec<u8>) {
    let shape = input.u8();
    let mut hdr = VirtioNetHdr::default();
    if shape & 1 != 0 {
        (hdr, _) = VirtioNetHdr::parse(&input.array::<10>()).unwrap();
    }
    let mut packet = input.bytes().to_vec();
    if shape & 2 == 0 {
        packet.resize(packet.len() + model::IPV6_HEADER + usize::from(shape >> 4) * 100, shape);
        model::make_ipv6(&mut packet);
        packet[24..40].copy_from_slice(&to[usize::from(shape >> 2) % to.len()].to_ipv6().octets());
        let from = if shape >> 2 == 0x3f { OTHER } else { from };
        packet[8..24].copy_from_slice(&from.to_ipv6().octets());
    }
    (hdr, packet)
}

fn segments(hdr: VirtioNetHdr, packet: &[u8], lane: &Lane) -> Vec<Vec<u8>> {
    let mut segments = cut(hdr, packet, lane.inspect().max_inner());
    for segment in &mut segments {
        mss::clamp(segment, lane.inspect().max_tcp());
    }
    segments
}

/// The segments of a TUN read, none longer than `max`; empty if that is impossible.
pub(super) fn cut(hdr: VirtioNetHdr, packet: &[u8], max: usize) -> Vec<Vec<u8>> {
    let Ok(mut splitter) = Splitter::new(hdr, packet, max) else {
        return Vec::new();
    };
    let mut out = vec![0; splitter.segment_len()];
    std::iter::from_fn(|| splitter.next_into(&mut out).map(|len| out[..len].to_vec())).collect()
}

/// The nodes of an IPv6 packet's addresses.
fn addresses(packet: &[u8]) -> Option<(NodeAddr, NodeAddr)> {
    let owner = |octets: &[u8]| NODES.into_iter().find(|node| node.to_ipv6().octets() == *octets);
    let (src, dst) = (owner(packet.get(8..24)?)?, owner(packet.get(24..40)?)?);
    (packet[0] >> 4 == 6).then_some((src, dst))
}

/// The IP packet in a session message, if it contains one.
fn data_packet(msg_type: u8, body: &[u8]) -> Option<Vec<u8>> {
    let (ports, payload) = DataPorts::parse(body).ok()?;
    let (_, upper) = ShimHeader::parse(payload).ok()?;
    if msg_type != SessionMessageType::Data.to_byte() || ports.dst != IPV6_SHIM_PORT {
        return None;
    }
    let mut packet = payload[1..5].to_vec();
    packet.extend([0, 0]);
    packet.extend(&payload[5..7]);
    // The addresses are not on the wire: they are those of the session's ends.
    for node in [PEER, ME] {
        packet.extend(node.to_ipv6().octets());
    }
    packet.extend(upper);
    model::make_ipv6(&mut packet);
    Some(packet)
}
