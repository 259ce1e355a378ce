//! A simulated host.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_contract::{Command, Endpoint, LaneConfig, Report, ReportQueue, SendCommand};
use weft_core::{Config, Event, Node, Output, PeerConfig, ServiceError, TraversalError};
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_packet::{Lane, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::outside::Token;
use weft_wire::session::{DataPorts, TraversalType};

use crate::HostId;
use crate::datagram::{Datagram, Kind};
use crate::lanes::numbered;
use crate::packet::Probe;

/// Interval at which lanes report their activity to the core, as in the daemon, ms.
const SAMPLE: u64 = 250;

/// A datagram that a lane has sent.
pub struct Sent {
    /// The path that it leaves by.
    pub to: Endpoint,
    /// Its payload.
    pub bytes: Vec<u8>,
    /// What it contains.
    pub kind: Kind,
    /// The hosts that have forwarded the message inside; empty for one of this host.
    pub trail: Vec<HostId>,
}

/// The datagrams of a lane until the world takes them.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) kind: Kind,
    pub(crate) sent: Vec<Sent>,
}

impl Transmit for Outbox {
    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
        let kind = self.kind;
        self.sent.extend(train.chunks(segment).map(|datagram| Sent {
            to,
            bytes: datagram.to_vec(),
            kind,
            trail: Vec::new(),
        }));
    }
}

/// A function by which a hostile host alters link messages of its core: their type, and their body.
pub type Hand = Box<dyn FnMut(u8, &mut Vec<u8>)>;

/// A node with its lanes.
pub struct Host {
    seed: u64,
    starts: u64,
    config: Config,
    /// The public key.
    pub key: PublicKey,
    node_addr: NodeAddr,
    /// The address at which it receives.
    pub addr: SocketAddr,
    /// The core.
    pub node: Node,
    /// Its first lane, and its only one unless [`Config::lanes`] has more.
    pub lane: Lane,
    /// The other lanes, in the order of their numbers.
    pub others: Vec<Lane>,
    /// The lane whose TUN queue the last packet was read from.
    pub(crate) queue: u8,
    /// Probes that arrived intact, with the time of arrival in ms.
    pub received: Vec<(u64, Probe)>,
    /// IP packets that arrived and are not intact probes.
    pub garbled: u64,
    /// The node's events, with the time in ms.
    pub events: Vec<(u64, Event)>,
    /// Datagrams outside of links that the node awaits, until a test takes them.
    pub outside: Vec<(Endpoint, Vec<u8>)>,
    /// Datagrams to sockets that no lane reads, by the number of the socket, until a test takes them.
    pub raw: Vec<(u16, SocketAddr, Vec<u8>)>,
    /// Messages of peers for services that the node listens for, until a test takes them.
    pub services: Vec<(PublicKey, DataPorts, Vec<u8>)>,
    /// Offers and answers of peers about NATs.
    pub traversals: Vec<(PublicKey, TraversalType, Vec<u8>)>,
    /// The control frames of peers, each with its sender.
    pub controls: Vec<(PublicKey, Vec<u8>)>,
    /// Whether the process runs. A host that is down receives and sends nothing.
    pub running: bool,
    /// Delay from a lane's report to the core, ms: they run on different threads.
    pub core_delay: u64,
    /// Maximum number of reports that the core takes in a millisecond; 0: unlimited.
    pub core_pace: u32,
    /// The last millisecond in which it took any, and how many.
    taken: (u64, u32),
    /// Reports on their way to the core: when they arrive, and the lane they are from.
    pending: ReportQueue<(u64, u8)>,
    peers: Vec<PeerConfig>,
    /// The ports that the node listens at.
    ports: Vec<u16>,
    /// Peers by their IPv6 address.
    sources: BTreeMap<[u8; 16], NodeAddr>,
    /// When the core next receives the lane's activity; `u64::MAX` if there was none.
    sample_at: u64,
    /// The hosts that have forwarded the current message, including this one: the trail of what
    /// this host sends because of it.
    carrying: Vec<HostId>,
    /// Turns so far.
    pub(crate) turns: u32,
    /// Alters each link message of a hostile host, between core and lane, before it is sealed.
    hand: Option<Hand>,
    /// A broken promise.
    pub(crate) complaint: Option<String>,
    pub(crate) train: Train<Outbox>,
}

impl Host {
    /// A host with the key and the random numbers of `seed`, and no peers.
    pub fn new(seed: u64, addr: SocketAddr, config: Config) -> Self {
        let identity = identity(seed);
        let key = identity.public();
        let (node, lane, others) = start(seed, 0, config);
        Self {
            seed,
            starts: 0,
            config,
            key,
            node_addr: key.node_addr(),
            addr,
            node,
            lane,
            others,
            queue: 0,
            received: Vec::new(),
            garbled: 0,
            events: Vec::new(),
            outside: Vec::new(),
            raw: Vec::new(),
            services: Vec::new(),
            traversals: Vec::new(),
            controls: Vec::new(),
            running: true,
            core_delay: 0,
            core_pace: 0,
            taken: (0, 0),
            pending: ReportQueue::new(usize::MAX),
            peers: Vec::new(),
            ports: Vec::new(),
            sources: BTreeMap::new(),
            sample_at: u64::MAX,
            carrying: Vec::new(),
            turns: 0,
            hand: None,
            complaint: None,
            train: Train::new(Outbox::default(), 64),
        }
    }

    /// Another host with the key of this one, whose node has other random numbers.
    pub(crate) fn copy(&self, addr: SocketAddr, config: Config) -> Self {
        let mut copy = Self::new(self.seed, addr, config);
        copy.starts = self.starts + 1_000;
        (copy.node, copy.lane, copy.others) = start(copy.seed, copy.starts, config);
        copy
    }

    /// The host's node address.
    pub fn node_addr(&self) -> NodeAddr {
        self.node_addr
    }

    /// The key pair, for forging messages in this host's name.
    pub fn identity(&self) -> Identity {
        identity(self.seed)
    }

    pub(crate) fn say(&mut self, now: u64, to: &NodeAddr, message: LinkMessageType, body: Vec<u8>) {
        self.say_type(now, to, message.to_byte(), body);
    }

    pub(crate) fn say_type(&mut self, now: u64, to: &NodeAddr, msg_type: u8, body: Vec<u8>) {
        if let Some(link) = self.node.link_with(to) {
            let epoch = None;
            let command = Command::Send(SendCommand::OnLink {
                link,
                epoch,
                msg_type,
                body,
            });
            self.command(now, command);
        }
    }

    /// From now on `hand` may alter each link message of this host, including forwarded handshakes,
    /// before it is sealed.
    pub fn set_hand(&mut self, hand: impl FnMut(u8, &mut Vec<u8>) + 'static) {
        self.hand = Some(Box::new(hand));
    }

    /// Adds a peer to the node, or replaces its addresses. `now` is in ms, here and below.
    pub fn add_peer(&mut self, now: u64, peer: PeerConfig) {
        let from = peer.key.node_addr();
        self.sources.insert(from.to_ipv6().octets(), from);
        self.peers.retain(|known| known.key != peer.key);
        self.node.add_peer(now, &peer);
        self.peers.push(peer);
        self.settle(now);
    }

    /// Takes messages of peers at these service ports, which the node listens at again after a
    /// restart, into [`Host::services`].
    pub fn listen(&mut self, now: u64, ports: &[u16]) {
        self.ports = ports.to_vec();
        self.node.listen(self.ports.clone());
        self.settle(now);
    }

    /// Sends a message of a service to a peer.
    ///
    /// # Errors
    /// As [`Node::send_service`].
    pub fn send_service(
        &mut self,
        now: u64,
        peer: &PublicKey,
        ports: DataPorts,
        bytes: &[u8],
    ) -> Result<(), ServiceError> {
        let sent = self.node.send_service(now, peer, ports, bytes);
        self.settle(now);
        sent
    }

    /// Sends a peer an offer or answer about NATs.
    ///
    /// # Errors
    /// As [`Node::send_traversal`].
    pub fn send_traversal(
        &mut self,
        now: u64,
        peer: &PublicKey,
        kind: TraversalType,
        text: &[u8],
    ) -> Result<(), TraversalError> {
        let sent = self.node.send_traversal(peer, kind, text);
        self.settle(now);
        sent
    }

    /// As [`Node::take_whole_packets`].
    pub fn take_whole_packets(&mut self, now: u64, on: bool) {
        self.node.take_whole_packets(on);
        self.settle(now);
    }

    /// Sends a peer a control frame.
    ///
    /// # Errors
    /// As [`Node::send_control`].
    pub fn send_control(&mut self, now: u64, peer: &PublicKey, bytes: &[u8]) -> Result<(), TraversalError> {
        let sent = self.node.send_control(peer, bytes);
        self.settle(now);
        sent
    }

    /// Awaits datagrams with this token, which come to [`Host::outside`].
    pub fn await_token(&mut self, now: u64, token: Token) {
        self.node.await_token(token);
        self.settle(now);
    }

    /// Sends a datagram outside of links, as [`Node::send_outside`] does.
    pub fn send_outside(&mut self, now: u64, to: impl Into<Endpoint>, datagram: Vec<u8>) {
        self.node.send_outside(to, datagram);
        self.settle(now);
    }

    /// Asks a neighbour whether it sees a node, as [`Node::ask_sighting`] does.
    pub fn ask_sighting(&mut self, now: u64, neighbour: &PublicKey, of: NodeAddr, at: SocketAddr) -> bool {
        let asked = self.node.ask_sighting(now, neighbour, of, at);
        self.settle(now);
        asked
    }

    /// Asks for the nodes of the path to a peer, as [`Node::ask_hops`] does.
    pub fn ask_hops(&mut self, now: u64, peer: &PublicKey) -> Option<u32> {
        let asked = self.node.ask_hops(now, peer);
        self.settle(now);
        asked
    }

    /// Asks for a session with a peer, as [`Node::want_session`] does.
    pub fn want_session(&mut self, now: u64, peer: &PublicKey) {
        self.node.want_session(now, peer);
        self.settle(now);
    }

    /// Restarts the process, with the same key and configuration and no other state.
    pub fn restart(&mut self, now: u64) {
        self.starts += 1;
        (self.node, self.lane, self.others) = start(self.seed, self.starts, self.config);
        self.running = true;
        self.pending = ReportQueue::new(usize::MAX);
        self.sample_at = u64::MAX;
        self.services.clear();
        self.outside.clear();
        self.raw.clear();
        self.node.listen(self.ports.clone());
        for peer in &self.peers {
            self.node.add_peer(now, peer);
        }
        self.settle(now);
    }

    /// When the core takes the next report, ms.
    pub fn next_report(&self) -> Option<u64> {
        let due = self.pending.next_tags().map(|(due, _)| *due).min()?;
        Some(due.max(self.core_free_at()))
    }

    /// The load of reports that wait for the core, without proofs and handshakes.
    pub fn reports_waiting(&self) -> weft_contract::Load {
        self.pending.load()
    }

    /// When the core can take another report.
    fn core_free_at(&self) -> u64 {
        let busy = self.core_pace > 0 && self.taken.1 >= self.core_pace;
        if busy { self.taken.0 + 1 } else { 0 }
    }

    /// Drops all reports that wait for the core, except proofs, as when it is too far behind.
    pub fn lose_reports(&mut self) {
        self.pending.drop_all_but_proofs();
    }

    /// Sends an IPv6 packet, as an application of this host.
    pub fn send_ip(&mut self, now: u64, packet: &[u8]) {
        self.train.out_mut().kind = Kind::Data;
        self.outbound(now, packet);
        self.train.flush();
        self.active(now);
        self.settle(now);
    }

    /// Receives a datagram that the world delivers, and records the trail of what is inside.
    pub(crate) fn receive_on_trail(&mut self, now: u64, me: HostId, from: Endpoint, datagram: &mut Datagram) {
        if datagram.trail.len() > usize::from(SessionDatagram::DEFAULT_TTL) {
            self.complaint = Some(format!("a datagram was carried along {:?}", datagram.trail));
        }
        self.carrying = std::mem::take(&mut datagram.trail);
        self.carrying.push(me);
        self.receive(now, from, &datagram.bytes);
        self.carrying.clear();
    }

    /// Receives a datagram at the socket of the lane that owns it.
    pub fn receive(&mut self, now: u64, from: impl Into<Endpoint>, datagram: &[u8]) {
        let socket = self.place().owner(datagram);
        self.receive_at(now, socket, from.into(), datagram);
    }

    /// Receives it at the socket of this lane, whichever lane owns it.
    pub(crate) fn receive_at(&mut self, now: u64, socket: u8, from: Endpoint, datagram: &[u8]) {
        self.train.out_mut().kind = Kind::Data;
        let carried = |lane: &Lane| lane.counters().forwarded + lane.counters().relayed;
        let before = carried(&self.lane);
        let packets = self.inbound(now, socket, from, datagram);
        self.train.flush();
        if carried(&self.lane) > before
            && let Some(sent) = self.train.out_mut().sent.last_mut()
        {
            sent.trail.clone_from(&self.carrying);
        }
        self.active(now);
        for packet in packets {
            self.deliver(now, &packet);
        }
        self.settle(now);
    }

    /// Reports the lanes' activity to the core, and runs its timers that are due.
    pub fn timeout(&mut self, now: u64) {
        self.each_lane().for_each(|lane| lane.sample(now));
        self.sample_at = u64::MAX;
        if self.each_lane().any(|lane| lane.gives_up_soon()) {
            self.active(now);
        }
        self.settle(now);
        self.node.handle_timeout(now);
        self.settle(now);
    }

    /// Whether the core is to receive the lane's activity.
    pub(crate) fn sample_due(&self, now: u64) -> bool {
        self.sample_at <= now
    }

    /// When this host acts next if nothing arrives, ms.
    pub(crate) fn next_turn(&mut self) -> u64 {
        if !self.running {
            return u64::MAX;
        }
        let timer = self.node.poll_timeout().map_or(u64::MAX, |(at, _)| at);
        timer.min(self.sample_at).min(self.next_report().unwrap_or(u64::MAX))
    }

    /// The datagrams that the lane has sent since the last call.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.train.out_mut().sent)
    }

    /// Records activity of the lane: the lane reports it at the next full quarter of a second.
    fn active(&mut self, now: u64) {
        self.sample_at = self.sample_at.min(now - now % SAMPLE + SAMPLE);
    }

    fn deliver(&mut self, now: u64, packet: &[u8]) {
        let source = packet.get(8..24).and_then(|source| <[u8; 16]>::try_from(source).ok());
        let from = source.and_then(|source| self.sources.get(&source).copied());
        match from.and_then(|from| Probe::verify(from, self.node_addr, packet)) {
            Some(probe) => {
                let hops = self.carrying.len().max(1) as u32;
                self.received.push((now, Probe { hops, ..probe }));
            }
            // Answers of the lane to its own host, such as "packet too big", are not from a peer.
            None if from.is_none() => {}
            None => self.garbled += 1,
        }
    }

    /// Passes reports to the core and commands to the lane until both are idle.
    pub fn settle(&mut self, now: u64) {
        loop {
            let mut quiet = true;
            while let Some((lane, report)) = self.next_of_lanes(Lane::poll_report) {
                for refused in self.pending.push((now + self.core_delay, lane), report) {
                    numbered(&mut self.lane, &mut self.others, lane).return_report(refused);
                }
            }
            while let Some((lane, report)) = self.next_pending(now) {
                quiet = false;
                self.node.handle_report_of(now, lane, report);
            }
            while let Some((_, packet)) = self.next_of_lanes(Lane::poll_reply) {
                self.deliver(now, &packet);
            }
            while let Some(output) = self.node.poll_output() {
                quiet = false;
                match output {
                    Output::Event(event) => self.events.push((now, event)),
                    Output::Outside { from, datagram } => self.outside.push((from, datagram)),
                    Output::Service { peer, ports, bytes } => self.services.push((peer, ports, bytes)),
                    Output::Traversal { peer, kind, text } => self.traversals.push((peer, kind, text)),
                    Output::Control { peer, bytes } => self.controls.push((peer, bytes)),
                    Output::Lane(mut command) => {
                        if let (Some(hand), Command::Send(SendCommand::OnLink { msg_type, body, .. })) =
                            (&mut self.hand, &mut command)
                        {
                            hand(*msg_type, body);
                        }
                        self.command(now, command);
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn next_pending(&mut self, now: u64) -> Option<(u8, Report)> {
        if now < self.core_free_at() {
            return None;
        }
        let ((_, lane), report) = self.pending.pop_if(|(due, _)| *due <= now)?;
        self.taken = if self.taken.0 == now {
            (now, self.taken.1 + 1)
        } else {
            (now, 1)
        };
        Some((lane, report))
    }

    fn command(&mut self, now: u64, command: Command) {
        let (kind, carried) = Kind::of(&command, self.node_addr);
        let out = self.train.out_mut();
        out.kind = kind;
        let before = out.sent.len();
        self.apply(now, command);
        let sent = self.train.out_mut().sent.get_mut(before..).unwrap_or_default();
        if !sent.is_empty() {
            if carried {
                sent.iter_mut().for_each(|sent| sent.trail.clone_from(&self.carrying));
            }
            self.active(now);
        }
    }
}

fn identity(seed: u64) -> Identity {
    Identity::new(SecretKey::generate(&mut ChaCha20Rng::seed_from_u64(seed)))
}

fn start(seed: u64, starts: u64, config: Config) -> (Node, Lane, Vec<Lane>) {
    let identity = identity(seed);
    let lane = LaneConfig {
        me: identity.node_addr(),
        mtu: config.mtu,
        probe: config.probe,
        transit: config.mesh && config.transit,
        handshakes: weft_contract::HandshakeLimits {
            per_second: config.unproven_per_second,
            ..weft_contract::HandshakeLimits::default()
        },
    };
    let mut lanes = Lane::several(lane, config.lanes.max(1)).into_iter();
    let first = lanes.next().unwrap_or_else(|| Lane::new(lane));
    let others = lanes.collect();
    let rng = ChaCha20Rng::seed_from_u64(seed ^ (starts + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (Node::new(config, identity, Box::new(rng)), first, others)
}
