//! A configured peer that has turned hostile: it has its keys and knows the protocol, and the bytes
//! choose which steps of both handshakes it takes.

use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_contract::{
    Command, EpochId, EpochUse, LaneConfig, LinkCommand, LinkId, LinkKeys, LinkReport, ReceiverIndex, Report,
    SendCommand, SessionCommand, SessionKeys, TableCommand,
};
use weft_noise::{Identity, PublicKey, SecretKey, ik, xk};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session::{SessionAck, SessionMsg3, SessionSetup};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{Coords, NodeAddr, fmp, session};

use super::input::Input;

const LINK: LinkId = LinkId(1);
/// Maximum number of messages of each kind that it keeps.
const MAX_KEPT: usize = 64;

/// The datagrams that its lane has sent, with their destinations.
#[derive(Default)]
struct Outbox(Vec<(SocketAddr, Vec<u8>)>);

impl Transmit for Outbox {
    fn transmit(&mut self, to: weft_contract::Endpoint, train: &[u8], segment: usize) {
        self.0
            .extend(train.chunks(segment).map(|datagram| (to.remote(), datagram.to_vec())));
    }
}

/// Its state towards one honest node.
pub(super) struct Hostile {
    identity: Identity,
    rng: ChaCha20Rng,
    pub(super) addr: SocketAddr,
    target: PublicKey,
    target_addr: SocketAddr,
    lane: Lane,
    train: Train<Outbox>,
    next_index: u32,
    next_epoch: u32,
    dialled: Vec<(u32, ik::Initiator)>,
    /// First messages that the target sent.
    calls: Vec<Vec<u8>>,
    opened: Vec<xk::AwaitingMsg2>,
    acks: Vec<[u8; xk::MSG2_LEN]>,
    setups: Vec<[u8; xk::MSG1_LEN]>,
    answered: Vec<xk::AwaitingMsg3>,
    /// The messages that it has sent in session datagrams.
    said: Vec<Vec<u8>>,
}

impl Hostile {
    pub(super) fn identity() -> Identity {
        Identity::new(SecretKey::generate(&mut ChaCha20Rng::seed_from_u64(0xbad)))
    }

    pub(super) fn new(addr: SocketAddr, target: PublicKey, target_addr: SocketAddr) -> Self {
        let identity = Self::identity();
        let mut lane = Lane::new(LaneConfig {
            me: identity.node_addr(),
            mtu: 1280,
            probe: false,
            transit: false,
            handshakes: weft_contract::HandshakeLimits::default(),
        });
        let mut train = Train::new(Outbox::default(), 64);
        let peer = target.node_addr();
        lane.apply(0, Command::Table(TableCommand::AllowPeer { peer }), &mut train);
        lane.apply(
            0,
            Command::Session(peer, SessionCommand::Bind { link: LINK }),
            &mut train,
        );
        Self {
            identity,
            rng: ChaCha20Rng::seed_from_u64(1),
            addr,
            target,
            target_addr,
            lane,
            train,
            next_index: 1,
            next_epoch: 0,
            dialled: Vec::new(),
            calls: Vec::new(),
            opened: Vec::new(),
            acks: Vec::new(),
            setups: Vec::new(),
            answered: Vec::new(),
            said: Vec::new(),
        }
    }

    pub(super) fn node_addr(&self) -> NodeAddr {
        self.identity.node_addr()
    }

    /// Returns the datagrams that it has sent since the last call, with their destinations.
    pub(super) fn take_sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.train.flush();
        std::mem::take(&mut self.train.out_mut().0)
    }

    /// Receives a datagram and remembers what is useful to it.
    pub(super) fn receive(&mut self, now: u64, from: SocketAddr, datagram: &mut [u8]) {
        let _ = self.lane.inbound_alone(now, from, datagram, &mut self.train);
        while let Some(report) = self.lane.poll_report() {
            match report {
                Report::Handshake { datagram, .. } => self.link_handshake(now, &datagram),
                Report::Link(_, LinkReport::Message { body, .. }) => self.session_handshake(&body),
                _ => {}
            }
        }
    }

    fn link_handshake(&mut self, now: u64, datagram: &[u8]) {
        let Ok(msg2) = fmp::Msg2::parse(datagram) else {
            keep(&mut self.calls, datagram.to_vec());
            return;
        };
        let dialled = self.dialled.iter().position(|(index, _)| *index == msg2.receiver_idx);
        let Some((index, initiator)) = dialled.map(|at| self.dialled.remove(at)) else {
            return;
        };
        if let Ok(keys) = initiator.finish(msg2.noise) {
            self.install_link(now, index, msg2.sender_idx, keys);
        }
    }

    fn install_link(&mut self, now: u64, our_index: u32, their_index: u32, keys: weft_noise::Established) {
        let keys = LinkKeys {
            our_index: ReceiverIndex(our_index),
            their_index: ReceiverIndex(their_index),
            send: keys.send,
            recv: keys.recv,
        };
        self.apply(
            now,
            Command::Link(
                LINK,
                LinkCommand::Install {
                    peer: self.target.node_addr(),
                    path: self.target_addr.into(),
                    proven: true,
                    keys,
                    usage: EpochUse::Send,
                },
            ),
        );
    }

    fn session_handshake(&mut self, body: &[u8]) {
        let Ok(datagram) = SessionDatagram::parse(body) else {
            return;
        };
        if let Ok(setup) = SessionSetup::parse(datagram.payload) {
            if let Ok(noise) = setup.noise.try_into() {
                keep(&mut self.setups, noise);
            }
        } else if let Ok(ack) = SessionAck::parse(datagram.payload) {
            if let Ok(noise) = ack.noise.try_into() {
                keep(&mut self.acks, noise);
            }
        } else if let Ok(msg3) = SessionMsg3::parse(datagram.payload) {
            let keys = self.answered.iter().rev().find_map(|a| a.finish(msg3.noise).ok());
            if let Some(keys) = keys {
                self.install_session(0, keys);
            }
        }
    }

    fn install_session(&mut self, now: u64, keys: weft_noise::Established) {
        self.next_epoch += 1;
        let keys = SessionKeys {
            id: EpochId(self.next_epoch),
            initiator: false,
            send: keys.send,
            recv: keys.recv,
        };
        let (peer, usage) = (self.target.node_addr(), EpochUse::Send);
        self.apply(now, Command::Session(peer, SessionCommand::Install { keys, usage }));
    }

    /// Sends an IP packet through its session.
    pub(super) fn send_ip(&mut self, now: u64, packet: &[u8]) {
        self.lane
            .outbound(now, VirtioNetHdr::default(), packet, &mut self.train);
    }

    /// Takes one step of its own choice. `honest` is another node that the target knows.
    pub(super) fn act(&mut self, now: u64, input: &mut Input<'_>, honest: NodeAddr) {
        match input.below(12) {
            0 | 1 => self.dial(now),
            2 => self.answer(now, input),
            3 => {
                let body = input.bytes().to_vec();
                self.link_message(now, input.u8(), body);
            }
            4 => self.link_message(now, LinkMessageType::Heartbeat.to_byte(), Vec::new()),
            5 => self.link_message(now, LinkMessageType::Disconnect.to_byte(), vec![input.u8()]),
            6 => self.open_session(now),
            7 | 8 => self.finish_session(now, input),
            9 => self.answer_session(now, input),
            10 => {
                let peer = self.target.node_addr();
                let command = Command::Send(SendCommand::OnSession {
                    peer,
                    epoch: None,
                    msg_type: if input.flag() { session::ALIVE } else { input.u8() }, // Not an IP packet, which the accounting would not know.
                    body: vec![0; input.below(4)],
                });
                self.apply(now, command);
            }
            _ => {
                let src = if input.flag() { honest } else { self.node_addr() };
                let payload = match input.latest(&self.said) {
                    Some(again) => again.clone(),
                    None => input.bytes().to_vec(),
                };
                self.datagram(now, src, payload);
            }
        }
    }

    fn apply(&mut self, now: u64, command: Command) {
        self.lane.apply(now, command, &mut self.train);
    }

    fn epoch() -> [u8; 8] {
        [7; 8]
    }

    fn dial(&mut self, now: u64) {
        self.next_index += 1;
        let index = self.next_index;
        let (initiator, noise) = ik::Initiator::start(&self.identity, self.target, Self::epoch(), &mut self.rng);
        let mut datagram = vec![0; fmp::Msg1::LEN];
        let msg1 = fmp::Msg1 {
            sender_idx: index,
            noise: &noise,
        };
        msg1.emit(&mut datagram).unwrap();
        keep(&mut self.dialled, (index, initiator));
        self.apply(
            now,
            Command::Link(
                LINK,
                LinkCommand::ArmIndex {
                    peer: self.target.node_addr(),
                    index: ReceiverIndex(index),
                },
            ),
        );
        let to = self.target_addr;
        self.apply(
            now,
            Command::Send(SendCommand::Transmit {
                to: to.into(),
                datagram,
            }),
        );
    }

    fn answer(&mut self, now: u64, input: &mut Input<'_>) {
        let Some(call) = input.latest(&self.calls).cloned() else {
            return;
        };
        let Ok(msg1) = fmp::Msg1::parse(&call) else { return };
        let Ok(received) = ik::Responder::read(&self.identity, msg1.noise) else {
            return;
        };
        let (noise, keys) = received.accept(Self::epoch(), &mut self.rng);
        self.next_index += 1;
        let msg2 = fmp::Msg2 {
            sender_idx: self.next_index,
            receiver_idx: msg1.sender_idx,
            noise: &noise,
        };
        let mut datagram = vec![0; fmp::Msg2::LEN];
        msg2.emit(&mut datagram).unwrap();
        self.install_link(now, self.next_index, msg1.sender_idx, keys);
        let to = self.target_addr;
        self.apply(
            now,
            Command::Send(SendCommand::Transmit {
                to: to.into(),
                datagram,
            }),
        );
    }

    fn link_message(&mut self, now: u64, msg_type: u8, body: Vec<u8>) {
        let (link, epoch) = (LINK, None);
        self.apply(
            now,
            Command::Send(SendCommand::OnLink {
                link,
                epoch,
                msg_type,
                body,
            }),
        );
    }

    fn datagram(&mut self, now: u64, src: NodeAddr, payload: Vec<u8>) {
        let datagram = SessionDatagram {
            ttl: 64,
            path_mtu: 1280,
            src,
            dest: self.target.node_addr(),
            payload: &payload,
        };
        let mut body = vec![0; datagram.wire_len()];
        datagram.emit(&mut body).unwrap();
        self.link_message(now, LinkMessageType::SessionDatagram.to_byte(), body);
        keep(&mut self.said, payload);
    }

    fn open_session(&mut self, now: u64) {
        let (handshake, noise) = xk::Initiator::start(self.target, &mut self.rng);
        keep(&mut self.opened, handshake);
        let (me, peer) = ([self.node_addr()], [self.target.node_addr()]);
        let setup = SessionSetup {
            flags: 0,
            src: Coords::new(&me),
            dest: Coords::new(&peer),
            noise: &noise,
        };
        let mut bytes = vec![0; setup.wire_len()];
        setup.emit(&mut bytes).unwrap();
        self.datagram(now, me[0], bytes);
    }

    fn finish_session(&mut self, now: u64, input: &mut Input<'_>) {
        let Some(ack) = input.latest(&self.acks).copied() else {
            return;
        };
        let finished = self.opened.iter().rev().find_map(|opened| {
            let epoch = Self::epoch();
            opened.finish(&self.identity, &ack, epoch).ok()
        });
        let Some((noise, keys)) = finished else { return };
        let msg3 = SessionMsg3 {
            flags: 0,
            noise: &noise,
        };
        let mut bytes = vec![0; msg3.wire_len()];
        msg3.emit(&mut bytes).unwrap();
        self.datagram(now, self.node_addr(), bytes);
        self.install_session(now, keys);
    }

    fn answer_session(&mut self, now: u64, input: &mut Input<'_>) {
        let Some(setup) = input.latest(&self.setups).copied() else {
            return;
        };
        let answer = xk::Responder::read(&self.identity, &setup, Self::epoch(), &mut self.rng);
        let Ok((handshake, noise)) = answer else { return };
        keep(&mut self.answered, handshake);
        let (me, peer) = ([self.node_addr()], [self.target.node_addr()]);
        let ack = SessionAck {
            flags: 0,
            src: Coords::new(&me),
            dest: Coords::new(&peer),
            noise: &noise,
        };
        let mut bytes = vec![0; ack.wire_len()];
        ack.emit(&mut bytes).unwrap();
        self.datagram(now, me[0], bytes);
    }
}

fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() == MAX_KEPT {
        list.remove(0);
    }
    list.push(item);
}
