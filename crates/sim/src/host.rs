//! One simulated host.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_core::{Config, Event, Node, Output, PeerConfig};
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_packet::{Command, Inbound, Lane, LaneConfig, Report, Train, Transmit};
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::packet::Probe;
use crate::world::Kind;

/// Where a lane's datagrams go until the world takes them.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) kind: Kind,
    pub(crate) sent: Vec<(SocketAddr, Vec<u8>, Kind)>,
}

impl Transmit for Outbox {
    fn transmit(&mut self, to: SocketAddr, train: &[u8], segment: usize) {
        let kind = self.kind;
        self.sent
            .extend(train.chunks(segment).map(|datagram| (to, datagram.to_vec(), kind)));
    }
}

/// A node with its lane.
pub struct Host {
    seed: u64,
    starts: u64,
    config: Config,
    /// The public key.
    pub key: PublicKey,
    /// Where it receives.
    pub addr: SocketAddr,
    /// The core.
    pub node: Node,
    /// Its only lane.
    pub lane: Lane,
    /// Probes that arrived intact, with the time of arrival in ms.
    pub received: Vec<(u64, Probe)>,
    /// IP packets that arrived and are not intact probes.
    pub garbled: u64,
    /// What the node said, with the time in ms.
    pub events: Vec<(u64, Event)>,
    /// The process runs. A host that is down takes nothing and says nothing.
    pub running: bool,
    /// How long the core takes to hear what its lane reports, ms: they run on different threads.
    pub core_delay: u64,
    pending: VecDeque<(u64, Report)>,
    peers: Vec<PeerConfig>,
    pub(crate) train: Train<Outbox>,
}

impl Host {
    pub(crate) fn new(seed: u64, addr: SocketAddr, config: Config) -> Self {
        let identity = identity(seed);
        let key = identity.public();
        let (node, lane) = start(seed, 0, config);
        Self {
            seed,
            starts: 0,
            config,
            key,
            addr,
            node,
            lane,
            received: Vec::new(),
            garbled: 0,
            events: Vec::new(),
            running: true,
            core_delay: 0,
            pending: VecDeque::new(),
            peers: Vec::new(),
            train: Train::new(Outbox::default(), 64),
        }
    }

    /// Our node address.
    pub fn node_addr(&self) -> NodeAddr {
        self.key.node_addr()
    }

    pub(crate) fn add_peer(&mut self, now: u64, peer: PeerConfig) {
        self.peers.push(peer.clone());
        self.node.add_peer(now, peer);
        self.settle(now);
    }

    /// Starts the process anew, with the same key and configuration and nothing else.
    pub(crate) fn restart(&mut self, now: u64) {
        self.starts += 1;
        (self.node, self.lane) = start(self.seed, self.starts, self.config);
        self.running = true;
        self.pending.clear();
        for peer in self.peers.clone() {
            self.node.add_peer(now, peer);
        }
        self.settle(now);
    }

    /// When the core hears the next report.
    pub(crate) fn next_report(&self) -> Option<u64> {
        self.pending.front().map(|(due, _)| *due)
    }

    /// The core never hears what it has not heard yet, as when it is too far behind.
    pub(crate) fn lose_reports(&mut self) {
        self.pending.clear();
    }

    pub(crate) fn send_ip(&mut self, now: u64, packet: &[u8]) {
        self.train.out_mut().kind = Kind::Data;
        self.lane
            .outbound(now, VirtioNetHdr::default(), packet, &mut self.train);
        self.train.flush();
        self.settle(now);
    }

    pub(crate) fn receive(&mut self, now: u64, from: SocketAddr, datagram: &mut [u8]) {
        self.train.out_mut().kind = Kind::Data;
        let inbound = self.lane.inbound(now, from, datagram, &mut self.train);
        self.train.flush();
        if let Inbound::Packet(range) = inbound {
            self.deliver(now, &datagram[range]);
        }
        self.settle(now);
    }

    pub(crate) fn timeout(&mut self, now: u64) {
        self.lane.sample();
        self.settle(now);
        self.node.handle_timeout(now);
        self.settle(now);
    }

    fn deliver(&mut self, now: u64, packet: &[u8]) {
        let from = self
            .peers
            .iter()
            .map(|p| p.key.node_addr())
            .find(|a| packet.get(8..24) == Some(&a.to_ipv6().octets()));
        match from.and_then(|from| Probe::verify(from, self.node_addr(), packet)) {
            Some(probe) => self.received.push((now, probe)),
            // Answers of the lane to its own host, such as "packet too big", are not from a peer.
            None if from.is_none() => {}
            None => self.garbled += 1,
        }
    }

    /// Passes reports to the core and commands to the lane until both are quiet.
    pub(crate) fn settle(&mut self, now: u64) {
        loop {
            let mut quiet = true;
            while let Some(report) = self.lane.poll_report() {
                self.pending.push_back((now + self.core_delay, report));
            }
            while let Some((_, report)) = self.pending.pop_front_if(|(due, _)| *due <= now) {
                quiet = false;
                self.node.handle_report(now, report);
            }
            while let Some(packet) = self.lane.poll_reply() {
                self.deliver(now, &packet);
            }
            while let Some(output) = self.node.poll_output() {
                quiet = false;
                match output {
                    Output::Event(event) => self.events.push((now, event)),
                    Output::Lane(command) => self.command(now, command),
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn command(&mut self, now: u64, command: Command) {
        self.train.out_mut().kind = Kind::of(&command);
        self.lane.apply(now, command, &mut self.train);
        self.train.flush();
    }
}

fn identity(seed: u64) -> Identity {
    Identity::new(SecretKey::generate(&mut ChaCha20Rng::seed_from_u64(seed)))
}

fn start(seed: u64, starts: u64, config: Config) -> (Node, Lane) {
    let identity = identity(seed);
    let lane = Lane::new(LaneConfig {
        me: identity.node_addr(),
        mtu: config.mtu,
        transit: config.mesh && config.transit,
    });
    let rng = ChaCha20Rng::seed_from_u64(seed ^ (starts + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (Node::new(config, identity, Box::new(rng)), lane)
}
