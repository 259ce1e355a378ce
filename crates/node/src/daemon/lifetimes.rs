//! How often idle links send something: measurements of how long NATs and firewalls let silent peers in,
//! and what follows from them (docs/protocol/reach.md, "Lifetimes").

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weft_contract::Endpoint;
use weft_control::status::KeepaliveStatus;
use weft_core::{Event, KeepaliveIntervals};
use weft_discovery::probe_sockets::{Arrived, ProbeSockets, send_aside};
use weft_noise::PublicKey;
use weft_os::clock::boottime_ms;
use weft_os::random::SystemRng;
use weft_reach::lifetime::request::BadRequest;
use weft_reach::lifetime::{self, DELAYS, Filtering, Lifetime, Output, SOCKETS, Scope};
use weft_wire::NodeAddr;

use super::reaching::PORTS;
use super::run::Daemon;

/// The measurements of this node, and what it does for those of its peers.
pub(super) struct Lifetimes {
    state: lifetime::Lifetimes,
    sockets: ProbeSockets,
    /// The weft nodes with links.
    neighbours: BTreeMap<NodeAddr, Neighbour>,
    /// Those whose links may have changed.
    changed: BTreeSet<PublicKey>,
    intervals: KeepaliveIntervals,
}

struct Neighbour {
    key: PublicKey,
    /// Where its link goes, from the ordinary socket.
    path: Option<SocketAddr>,
    /// Where it sees this node, if it has said so on this path and in this network.
    sees: Option<SocketAddr>,
}

impl Lifetimes {
    pub(super) fn new() -> Self {
        Self {
            state: lifetime::Lifetimes::new(Box::new(SystemRng)),
            sockets: ProbeSockets::default(),
            neighbours: BTreeMap::new(),
            changed: BTreeSet::new(),
            intervals: KeepaliveIntervals::default(),
        }
    }

    /// Returns what sockets of a measurement have received. Safe to cancel.
    pub(super) async fn arrived(&self) -> Vec<Arrived> {
        self.sockets.arrived().await
    }

    /// Handles what they have received.
    pub(super) fn handle_arrived(&mut self, arrived: Vec<Arrived>) {
        let now = boottime_ms();
        for Arrived { socket, from, datagram } in arrived {
            self.state.handle_datagram(now, Some(socket), from, &datagram);
        }
    }

    /// Handles a datagram that an ordinary socket has received. Returns whether it belongs here.
    pub(super) fn handle_datagram(&mut self, now: u64, from: SocketAddr, datagram: &[u8]) -> bool {
        self.state.handle_datagram(now, None, from, datagram)
    }

    /// Handles a request of a peer.
    ///
    /// # Errors
    /// [`BadRequest`].
    pub(super) fn handle_message(&mut self, now: u64, peer: &PublicKey, bytes: &[u8]) -> Result<(), BadRequest> {
        self.state.handle_message(now, peer.node_addr(), bytes)
    }

    /// Handles a change of the network of this host.
    pub(super) fn handle_network_change(&mut self, now: u64) {
        self.state.handle_network_change(now);
        // Another address that a peer sees now follows from the change, and not from a NAT that forgets.
        self.neighbours.values_mut().for_each(|neighbour| neighbour.sees = None);
    }

    /// Returns the time at which something is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        self.state.poll_timeout()
    }

    /// Notes what an event says about links. `aside`: the link goes through a further socket.
    pub(super) fn note(&mut self, event: &Event, aside: bool) {
        match event {
            Event::Observed { by, at } if !aside => {
                let (key, addr) = (*by, by.node_addr());
                let neighbour = self.neighbours.entry(addr).or_insert(Neighbour {
                    key,
                    path: None,
                    sees: None,
                });
                if neighbour.sees.replace(*at).is_some_and(|before| before != *at) {
                    self.state.handle_moved(boottime_ms(), addr);
                }
                self.changed.insert(key);
            }
            Event::LinkDown { peer, .. } => {
                self.neighbours.remove(&peer.node_addr());
                self.state.set_peer(boottime_ms(), peer.node_addr(), None);
            }
            Event::LinkUp { peer, .. } | Event::Roamed { peer, .. } => drop(self.changed.insert(*peer)),
            _ => {}
        }
    }

    /// Handles a change of the members.
    pub(super) fn handle_members(&mut self) {
        self.changed
            .extend(self.neighbours.values().map(|neighbour| neighbour.key));
    }

    /// Returns the interval at which idle links in a scope send something, in s.
    fn interval(&self, scope: Scope) -> u16 {
        let found = self
            .state
            .finding(scope)
            .and_then(|finding| finding.lifetime.interval());
        found.unwrap_or(KeepaliveIntervals::default().ipv4)
    }

    fn own_intervals(&self) -> KeepaliveIntervals {
        KeepaliveIntervals {
            local: self.interval(Scope::Local),
            ipv4: self.interval(Scope::Ipv4),
            ipv6: self.interval(Scope::Ipv6),
        }
    }
}

impl Daemon {
    /// Goes on with measurements. Returns whether the core has something to do because of it.
    pub(super) fn drive_lifetimes(&mut self) -> bool {
        let now = boottime_ms();
        for peer in std::mem::take(&mut self.lifetimes.changed) {
            self.take_link(now, &peer);
        }
        self.lifetimes.state.handle_timeout(now);
        let mut active = false;
        while let Some(output) = self.lifetimes.state.poll_output() {
            active = true;
            self.lifetime_output(now, output);
        }
        let intervals = self.lifetimes.own_intervals();
        if intervals != self.lifetimes.intervals {
            tracing::info!(
                local = intervals.local,
                ipv4 = intervals.ipv4,
                ipv6 = intervals.ipv6,
                "idle links send in intervals of other seconds"
            );
            self.lifetimes.intervals = intervals;
            self.node.set_keepalive(intervals);
            active = true;
        }
        active
    }

    /// Takes over where the link of a weft node goes.
    fn take_link(&mut self, now: u64, peer: &PublicKey) {
        let addr = peer.node_addr();
        let Some(neighbour) = self.lifetimes.neighbours.get_mut(&addr) else {
            return;
        };
        let path = self.node.link_path(peer);
        let path = path.filter(|path| path.socket().is_ordinary()).map(Endpoint::remote);
        // Strangers neither help nor are helped.
        let path = path.filter(|_| self.desired.members.contains(peer));
        if neighbour.path.is_some() && neighbour.path != path {
            // Another path has another mapping.
            neighbour.sees = None;
        }
        neighbour.path = path;
        self.lifetimes.state.set_peer(now, addr, path);
    }

    fn lifetime_output(&mut self, now: u64, output: Output) {
        let Self {
            lifetimes, facts, node, ..
        } = self;
        match output {
            Output::OpenSockets { to } => {
                let count = lifetimes.sockets.open(facts.listen_ip(to.is_ipv6()), SOCKETS);
                let last = lifetimes.sockets.port(SOCKETS - 1).filter(|_| count == SOCKETS);
                lifetimes.state.handle_sockets(last);
            }
            Output::CloseSockets => lifetimes.sockets.close(),
            Output::Message { peer, body } => {
                if let Some(neighbour) = lifetimes.neighbours.get(&peer) {
                    // Without an answer another one is asked.
                    let _ = node.send_service(now, &neighbour.key, PORTS, &body);
                }
            }
            Output::Listen { token } => node.await_token(token),
            Output::Ignore { token } => node.forget_token(token),
            Output::Send { to, datagram } => node.send_outside(to, datagram.to_vec()),
            Output::SendFrom { socket, to, datagram } => {
                lifetimes.sockets.send(socket, to, &datagram);
            }
            Output::SendAside { to, datagram } => {
                if let Some(own) = facts.listen_ip(to.is_ipv6()) {
                    send_aside(own, to, &datagram);
                }
            }
        }
    }

    /// Returns which datagrams reach the ordinary socket of a version of IP, and the name of the neighbour that has
    /// helped to find out.
    pub(super) fn filtering(&self, v6: bool) -> Option<(Filtering, String)> {
        let scope = if v6 { Scope::Ipv6 } else { Scope::Ipv4 };
        let (found, by) = self.lifetimes.state.filtering(scope)?;
        Some((found, self.helper(by)))
    }

    fn helper(&self, addr: NodeAddr) -> String {
        let by = self.lifetimes.neighbours.get(&addr);
        by.map_or_else(|| "a neighbour".to_owned(), |by| self.facts.name(&by.key))
    }

    /// Returns the intervals at which idle links send something, and the reasons.
    pub(super) fn keepalives(&self) -> Vec<KeepaliveStatus> {
        Scope::ALL.map(|scope| self.keepalive(scope)).into()
    }

    fn keepalive(&self, scope: Scope) -> KeepaliveStatus {
        let state = &self.lifetimes.state;
        let because = match state.finding(scope) {
            None if state.is_measuring(scope) => "a measurement goes on".to_owned(),
            None => "no neighbour has helped to measure how long the network lets answers in".to_owned(),
            Some(found) => {
                let by = self.helper(found.by);
                match found.lifetime {
                    Lifetime::Open => format!("what {by} sends from any port arrives"),
                    Lifetime::AtLeast(delay) => format!("an answer of {by} arrived after {delay} s of silence"),
                    Lifetime::Short => format!("no answer of {by} arrived after {} s of silence", DELAYS[0]),
                }
            }
        };
        let name = match scope {
            Scope::Local => "local",
            Scope::Ipv4 => "ipv4",
            Scope::Ipv6 => "ipv6",
        };
        KeepaliveStatus {
            scope: name.to_owned(),
            interval_s: self.lifetimes.interval(scope),
            because,
        }
    }
}
