//! Direct paths to peers that are reached through others: candidates and probes in and out, and what
//! they find.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use weft_config::ReachConfig;
use weft_contract::{Endpoint, SocketId};
use weft_core::{Event, HintSource, Path};
use weft_desired::addresses::HostAddresses;
use weft_discovery::further_sockets::FurtherSockets;
use weft_discovery::probe_sockets::{Arrived, ProbeSockets};
use weft_networks::place::MAX_PLACES;
use weft_noise::PublicKey;
use weft_nostr::signal::Own;
use weft_os::clock::boottime_ms;
use weft_os::random::SystemRng;
use weft_reach::lifetime::request::Request;
use weft_reach::message::{Candidate, Kind};
use weft_reach::nat64::Nat64;
use weft_reach::other_port::OtherPort;
use weft_reach::{Output, Reach, Source, Standing};
use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

use super::run::Daemon;

pub(super) const PORTS: DataPorts = DataPorts {
    src: weft_reach::PORT,
    dst: weft_reach::PORT,
};

/// Neighbours that are asked whether they see a peer at an address.
const WITNESSES: usize = 4;

/// The search for direct paths, of all peers.
pub(super) struct Reaching {
    reach: Reach,
    /// The keys of the peers that the search knows.
    keys: BTreeMap<NodeAddr, PublicKey>,
    /// Peers whose paths may have changed.
    changed: BTreeSet<PublicKey>,
    /// Addresses at which others see this node, as its owner knows.
    external: Vec<SocketAddr>,
    /// Whether peers are told where others see this node, so that both probe each other's addresses.
    punch: bool,
    /// The sockets of the present search of ports.
    searching: ProbeSockets,
    /// The sockets that lanes have beside the ordinary ones.
    further: FurtherSockets,
    /// How addresses of IPv4 are reached by a host that has IPv6 alone. The search itself sees the
    /// addresses that other nodes name.
    nat64: Nat64,
    /// Peers that are reached through others.
    relayed: BTreeSet<NodeAddr>,
    /// Another port for peers that do not answer.
    pub(super) other_port: OtherPort,
}

impl Reaching {
    /// Creates the search.
    pub(super) fn new(me: NodeAddr, settings: &ReachConfig) -> Self {
        let config = weft_reach::Config::default();
        let mut reaching = Self {
            reach: Reach::new(me, config, Box::new(SystemRng)),
            external: settings.external.clone(),
            punch: settings.punch,
            keys: BTreeMap::new(),
            changed: BTreeSet::new(),
            searching: ProbeSockets::default(),
            further: FurtherSockets::default(),
            nat64: Nat64::default(),
            relayed: BTreeSet::new(),
            other_port: OtherPort::default(),
        };
        reaching.set_mapped(boottime_ms(), None);
        reaching
    }

    /// Sets the address that a gateway maps to the node, beside those that its owner knows.
    pub(super) fn set_mapped(&mut self, now: u64, mapped: Option<SocketAddr>) {
        let all = mapped.into_iter().chain(self.external.iter().copied());
        self.reach.set_mapped(now, all.collect());
    }

    /// Returns the search itself.
    pub(super) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Returns what sockets of a search have received. Safe to cancel.
    pub(super) async fn arrived(&self) -> Vec<Arrived> {
        self.searching.arrived().await
    }

    /// Gives a number to a socket that lanes get beside the ordinary ones.
    pub(super) fn number_socket(&mut self) -> SocketId {
        self.further.number()
    }

    /// Returns the sockets for all peers.
    pub(super) fn for_all(&self) -> impl Iterator<Item = SocketId> {
        self.further.for_all()
    }

    /// Adds a socket for all peers that has this port. Returns its number, unless there are too many.
    pub(super) fn add_for_all(&mut self, now: u64, port: u16) -> Option<SocketId> {
        self.further.add_for_all(now, port)
    }

    /// Returns the search itself, for what gateways and servers say.
    pub(super) fn reach_mut(&mut self) -> &mut Reach {
        &mut self.reach
    }

    /// Returns true if this host has an address of IPv4 or, if `v6`, of IPv6 that other hosts may
    /// reach.
    pub(super) fn has_version(&self, v6: bool) -> bool {
        let host = |own: &Candidate| own.kind == Kind::Host && own.at.is_ipv6() == v6;
        self.reach.candidates().iter().any(host)
    }

    /// Takes the addresses of this host into account.
    pub(super) fn set_host(&mut self, now: u64, host: &HostAddresses) {
        self.reach.set_untold(now, host.untold().collect());
        self.reach.set_host(now, host.told.clone());
        let has_ipv4 = self.has_version(false);
        self.nat64.set_ipv4(has_ipv4);
    }

    /// Handles a change of the network of this host.
    pub(super) fn handle_network_change(&mut self, now: u64) {
        self.reach.handle_network_change(now);
        self.other_port.handle_network_change();
    }

    /// Returns true if a peer is reached through others.
    pub(super) fn has_relayed(&self) -> bool {
        !self.relayed.is_empty()
    }

    /// Returns the time at which something is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        self.reach.poll_timeout().map(|(at, _)| at)
    }

    /// Returns the addresses of this node that members are told: those that others see and that gateways have mapped,
    /// at most half, and those of this host. What others see is left out by a node that lets in no probes.
    pub(super) fn own_addresses(&self) -> Vec<SocketAddr> {
        let of_host = |candidate: &&Candidate| candidate.kind == Kind::Host;
        let told = |candidate: &&Candidate| self.punch || matches!(candidate.kind, Kind::Host | Kind::Mapped);
        let (host, outer): (Vec<&Candidate>, Vec<&Candidate>) =
            self.reach.candidates().iter().filter(told).partition(of_host);
        let outer = outer.into_iter().take(MAX_PLACES / 2);
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for candidate in outer.chain(host) {
            if !addresses.contains(&candidate.at) && addresses.len() < MAX_PLACES {
                addresses.push(candidate.at);
            }
        }
        addresses
    }

    /// Returns the addresses of this node of one kind.
    pub(super) fn own_of(&self, kind: Kind) -> Vec<SocketAddr> {
        let of_kind = self.reach.candidates().iter().filter(|own| own.kind == kind);
        of_kind.map(|own| own.at).collect()
    }

    /// Returns the addresses of this node that an offer names: [`own`](Self::own), or none if it does not punch.
    pub(super) fn offered(&self) -> Own {
        match self.punch {
            true => self.own(),
            false => Own::default(),
        }
    }

    /// Returns the address of this node that others see, and those of this host.
    pub(super) fn own(&self) -> Own {
        let candidates = self.reach.candidates();
        let outer = |candidate: &&Candidate| matches!(candidate.kind, Kind::Observed | Kind::Mapped);
        let host = candidates.iter().filter(|candidate| candidate.kind == Kind::Host);
        Own {
            reflexive: candidates.iter().find(outer).map(|candidate| candidate.at),
            local: host.map(|candidate| candidate.at).collect(),
        }
    }

    /// Sends probes to a peer that does so, too: both have agreed on the key elsewhere.
    pub(super) fn punch(&mut self, now: u64, peer: PublicKey, key: [u8; 16], targets: &[SocketAddr]) {
        let addr = peer.node_addr();
        if self.reach.punch(now, addr, key, targets) {
            self.keys.insert(addr, peer);
        }
    }

    /// Notes what an event says about addresses and paths. `aside`: the link with the peer that it is about goes through a further socket.
    pub(super) fn note(&mut self, now: u64, event: &Event, aside: bool) {
        if let Event::LinkUp { peer, .. } | Event::Roamed { peer, .. } = event
            && aside
        {
            // Its observations may have been about that socket already.
            self.reach.forget_observer(now, peer.node_addr());
        }
        if let Event::LinkUp { path, .. } | Event::Roamed { path, .. } = event {
            self.nat64.note_link(*path);
        }
        match event {
            // A neighbour behind a further socket sees the address of that one.
            Event::Observed { by, .. } if aside || self.further.serves(by.node_addr()) => {}
            Event::Observed { by, at } => self.reach.handle_observed(now, by.node_addr(), *at),
            Event::Sighted { by, of, at } => self.reach.handle_seen(now, *of, by.node_addr(), *at),
            Event::LinkDown { peer, .. } => {
                self.reach.forget_observer(now, peer.node_addr());
                self.changed.insert(*peer);
            }
            Event::LinkUp { peer, .. }
            | Event::Roamed { peer, .. }
            | Event::PathChanged { peer, .. }
            | Event::SessionUp { peer }
            | Event::SessionDown { peer, .. }
            | Event::Announced { peer }
            | Event::FramesChanged { peer, .. } => drop(self.changed.insert(*peer)),
            _ => {}
        }
    }
}

impl Daemon {
    /// Handles a datagram outside of links.
    pub(super) fn handle_outside(&mut self, from: Endpoint, datagram: &[u8]) {
        let (now, socket, from) = (boottime_ms(), from.socket(), from.remote());
        let Reaching {
            reach, further, nat64, ..
        } = &mut self.reaching;
        if socket.is_ordinary() {
            if !self.netcheck.handle_datagram(datagram)
                && !self.stun.handle_datagram(now, from, datagram)
                && !self.lifetimes.handle_datagram(now, from, datagram)
            {
                reach.handle_datagram(now, nat64.inward(from), datagram);
            }
        } else if let Some(number) = further.in_search(socket) {
            reach.handle_socket_datagram(now, number, from, datagram);
        }
    }

    /// Handles what sockets of a search have received.
    pub(super) fn handle_search(&mut self, arrived: Vec<Arrived>) {
        let now = boottime_ms();
        for Arrived { socket, from, datagram } in arrived {
            self.reaching.reach.handle_socket_datagram(now, socket, from, &datagram);
        }
    }

    /// Handles a message of a peer about candidates, or about lifetimes.
    pub(super) fn handle_reach_message(&mut self, peer: &PublicKey, bytes: &[u8]) {
        let now = boottime_ms();
        if Request::is_named(bytes) {
            if let Err(error) = self.lifetimes.handle_message(now, peer, bytes) {
                tracing::debug!(peer = self.facts.name(peer), %error, "a request is ignored");
            }
            return;
        }
        // The peer may have become one in this turn: its message comes right behind the one that
        // shows what node it is.
        if self.configuration.config.reach.punch && self.reaching.changed.remove(peer) {
            self.set_standing(now, *peer);
        }
        let handled = self.reaching.reach.handle_message(now, peer.node_addr(), bytes);
        if let Err(error) = handled {
            tracing::debug!(peer = self.facts.name(peer), %error, "candidates are ignored");
        }
    }

    /// Goes on with the search. Returns whether the core has something to do because of it.
    pub(super) fn drive_reaching(&mut self) -> bool {
        let now = boottime_ms();
        let changed = std::mem::take(&mut self.reaching.changed);
        if self.configuration.config.reach.punch {
            changed.into_iter().for_each(|peer| self.set_standing(now, peer));
        }
        self.reaching.reach.handle_timeout(now);
        let mut active = false;
        while let Some(output) = self.reaching.reach.poll_output() {
            active = true;
            self.reach_output(now, output);
        }
        self.drive_other_port(now);
        self.close_idle_sockets(now);
        active
    }

    fn set_standing(&mut self, now: u64, peer: PublicKey) {
        let addr = peer.node_addr();
        let standing = match self.node.weft_path(&peer) {
            Some(Path::Relayed(_)) => Standing::Relayed,
            Some(Path::Direct(at)) => Standing::Direct(self.reaching.nat64.inward(at)),
            // An attempt on which both agreed in this session continues.
            None if self.node.has_fips_session(&peer) => return,
            None => Standing::Gone,
        };
        match standing {
            Standing::Gone => self.reaching.keys.remove(&addr),
            _ => self.reaching.keys.insert(addr, peer),
        };
        let _ = match standing {
            Standing::Relayed => self.reaching.relayed.insert(addr),
            _ => self.reaching.relayed.remove(&addr),
        };
        self.reaching.reach.set_peer(now, addr, standing);
    }

    fn reach_output(&mut self, now: u64, output: Output) {
        match output {
            Output::Message { peer, body } => {
                if let Some(key) = self.reaching.keys.get(&peer) {
                    // A message that is not taken is lost, and sent again.
                    let _ = self.node.send_service(now, key, PORTS, &body);
                }
            }
            Output::Probe { to, datagram, counts } => {
                if !counts || self.may_probe(now, to, datagram.len()) {
                    let to = self.reaching.nat64.outward(to);
                    self.node.send_outside(to, datagram.to_vec());
                }
            }
            Output::Listen { token } => self.node.await_token(token),
            Output::Ignore { token } => self.node.forget_token(token),
            Output::Ask { peer, at } => self.ask_neighbours(now, peer, at),
            Output::OpenSockets { count, .. } => {
                self.reaching.further.end_search();
                let count = self.reaching.searching.open(self.facts.listen_ip(false), count);
                self.reaching.reach.handle_sockets(now, count);
            }
            Output::ProbeFrom {
                socket,
                to,
                datagram,
                counts,
            } => {
                if counts && !self.may_probe(now, to, datagram.len())
                    || self.reaching.searching.send(socket, to, &datagram)
                {
                    return;
                }
                if let Some(id) = self.reaching.further.with_number(socket) {
                    self.node.send_outside(id.path(to), datagram.to_vec());
                }
            }
            Output::CloseSockets => self.reaching.searching.close(),
            Output::Adopt { peer, socket, at } => self.adopt_socket(now, peer, socket, at),
            Output::Found { peer, at, source } => {
                if let Some(key) = self.reaching.keys.get(&peer) {
                    tracing::info!(peer = self.facts.name(key), %at, "the peer answers directly");
                    let source = match source {
                        Source::Searched => HintSource::Search,
                        Source::Told(_) | Source::Heard => HintSource::Probe,
                    };
                    let at = self.reaching.nat64.outward(at);
                    self.node.dial(now, key, at, source);
                }
            }
        }
    }

    /// Returns whether a probe of so many bytes may go to an address that has not answered.
    fn may_probe(&mut self, now: u64, to: SocketAddr, len: usize) -> bool {
        let may = self.node.may_send(now, to, len);
        if !may {
            self.reaching.reach.handle_unsent(to);
        }
        may
    }

    /// Asks neighbours that the user trusts, the one that relays to the peer first, whether they see
    /// the peer at an address.
    fn ask_neighbours(&mut self, now: u64, peer: NodeAddr, at: SocketAddr) {
        let relay = self.node.status_of(now, peer).and_then(|status| match status.path {
            Some(Path::Relayed(relay)) => Some(relay),
            _ => None,
        });
        let linked = self.node.peer_status(now).filter(|status| status.link.is_some());
        let mut neighbours: Vec<PublicKey> = linked.map(|status| status.key).collect();
        neighbours.sort_by_key(|key| Some(*key) != relay);
        neighbours.truncate(WITNESSES);
        for neighbour in neighbours {
            self.node.ask_sighting(now, &neighbour, peer, at);
        }
    }

    /// Lets lanes take over a socket of a search, and dials the peer through it.
    fn adopt_socket(&mut self, now: u64, peer: NodeAddr, socket: u16, at: SocketAddr) {
        let Some(key) = self.reaching.keys.get(&peer).copied() else {
            return;
        };
        let name = self.facts.name(&key);
        let options = super::bind_options(&self.configuration.config);
        let taken = match self.reaching.searching.take(socket, options) {
            Some(Ok(taken)) => taken,
            Some(Err(error)) => {
                return tracing::info!(peer = name, %error, "the socket that a search found cannot be used");
            }
            None => return,
        };
        let port = taken.local_address().port();
        let Some(id) = self.reaching.further.add(now, (peer, port), socket) else {
            return tracing::info!(peer = name, "too many sockets beside the ordinary one are in use");
        };
        tracing::info!(peer = name, %at, from = %taken.local_address(), "the peer answers a search of ports");
        self.lanes.add_socket(id, taken);
        self.tell_underlay_ports();
        self.node.dial(now, &key, id.path(at), HintSource::Search);
    }

    /// Closes the sockets beside the ordinary ones that no link uses any more.
    fn close_idle_sockets(&mut self, now: u64) {
        let idle = self.reaching.further.expire(now, |id| self.node.uses_socket(id));
        if idle.is_empty() {
            return;
        }
        for id in idle {
            self.node.forget_socket(now, id);
            self.lanes.remove_socket(id);
        }
        self.tell_underlay_ports();
    }

    /// Passes the UDP ports of all underlay sockets to the packet path.
    pub(super) fn tell_underlay_ports(&mut self) {
        let ordinary = self.facts.listen.iter().map(SocketAddr::port);
        let ports = ordinary
            .chain(self.reaching.further.ports())
            .chain(self.uplinks.ports())
            .chain(self.wireguard.port());
        self.node.set_underlay_ports(ports.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_does_not_punch_tells_nothing_that_others_see() {
        let [mapped, host, seen] =
            ["11.0.0.1:2121", "192.168.1.2:2121", "11.0.0.2:9"].map(|at| at.parse::<SocketAddr>().unwrap());
        let told = |punch| {
            let settings = ReachConfig {
                punch,
                external: vec![mapped],
                ..weft_config::Config::default().reach
            };
            let mut reaching = Reaching::new(NodeAddr::new([1; 16]), &settings);
            reaching.reach_mut().set_host(0, vec![host]);
            reaching.reach_mut().handle_observed(0, NodeAddr::new([2; 16]), seen);
            (reaching.own_addresses(), reaching.offered(), reaching.own().is_empty())
        };
        let (addresses, offered, none) = told(true);
        assert_eq!(addresses, [mapped, seen, host]);
        assert!(!offered.is_empty() && !none);
        let (addresses, offered, none) = told(false);
        assert_eq!(addresses, [mapped, host], "what the owner and the host name");
        assert!(offered.is_empty() && !none, "an advert has them");
    }
}
