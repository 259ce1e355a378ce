//! When ports of a NAT are searched for, and with which peer.

use std::net::{IpAddr, SocketAddr};

use weft_wire::NodeAddr;

use super::{Output, Reach};
use crate::candidate::{Prefix, check, plain};
use crate::nat::{Mapping, is_private};
use crate::search::{ASKED, PAUSE, SOCKETS, Search};

/// Addresses that were searched within [`PAUSE`] and are remembered.
const SEARCHED: usize = 64;

/// What this node has to do in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// To probe many ports of one host.
    Ports,
    /// To probe one address from many sockets.
    Sockets,
}

/// The same, with where.
enum Part {
    /// To probe ports of this address.
    Ports(IpAddr),
    /// To probe this address from many sockets.
    Sockets(SocketAddr),
}

impl Reach {
    /// Handles the word of a neighbour, or of another node that is trusted in this: it sees a peer
    /// under this address. What a peer says of itself is not enough for a search, whose many
    /// datagrams would else go wherever it says.
    pub fn handle_seen(&mut self, now: u64, addr: NodeAddr, by: NodeAddr, at: SocketAddr) {
        let at = plain(at);
        let Some(peer) = self.peers.get_mut(&addr).filter(|_| by != addr) else {
            return;
        };
        peer.see(now, by, at);
        // The search may have waited for this word.
        self.reconsider_search(now, addr);
        self.advance(now, addr);
    }

    /// Asks other nodes about the addresses that a peer named, if a search with it would be possible
    /// but for their word.
    pub(super) fn ask_others(&mut self, now: u64, addr: NodeAddr) {
        if self.role(addr).is_none() || self.part(now, addr).is_some() {
            return;
        }
        let Some(round) = self.round(addr) else { return };
        let mut asked: Vec<SocketAddr> = Vec::new();
        for at in round.told().filter(|at| self.is_elsewhere(*at)) {
            if asked.len() < ASKED && asked.iter().all(|known| known.ip() != at.ip()) {
                asked.push(at);
            }
        }
        asked.retain(|at| self.may_search(now, addr, Prefix::of(at.ip())));
        if let Some(round) = self.round_mut(addr).filter(|_| !asked.is_empty()) {
            round.asked = true;
        }
        let asks = asked.into_iter().map(|at| Output::Ask { peer: addr, at });
        self.outputs.extend(asks);
    }

    /// Lets an attempt that was found to need no search decide again: what that depends on has changed.
    pub(super) fn reconsider_search(&mut self, now: u64, addr: NodeAddr) {
        let attempt = self.peers.get_mut(&addr).and_then(|peer| peer.attempt.as_mut());
        if let Some(attempt) = attempt.filter(|attempt| attempt.probes())
            && let Some(round) = &mut attempt.round
        {
            round.reconsider(now);
        }
    }

    /// The sockets for which [`Output::OpenSockets`] has asked are open, or so many of them.
    pub fn handle_sockets(&mut self, now: u64, count: u16) {
        let (Some(addr), most) = (self.searching, self.config.sockets) else {
            return;
        };
        if let Some(search) = self.round_mut(addr).and_then(|round| round.search.as_mut()) {
            search.open(now, count.min(most));
        }
        self.send_probes(now);
    }

    /// Begins a search with a peer whose targets have not answered, if one may find something, and
    /// if budgets allow.
    pub(super) fn consider_search(&mut self, now: u64, addr: NodeAddr) {
        let Some(part) = self.part(now, addr) else {
            return;
        };
        let prefix = Prefix::of(match &part {
            Part::Ports(ip) => *ip,
            Part::Sockets(at) => at.ip(),
        });
        if !self.may_search(now, addr, prefix) {
            return;
        }
        let random = [0; 3].map(|_: u32| self.random());
        let search = match part {
            Part::Ports(ip) => Search::of_ports(now, ip, random),
            Part::Sockets(to) => Search::of_sockets(now, to, random[0]),
        };
        self.searching = Some(addr);
        self.searched.insert(prefix, now);
        if search.has_sockets() {
            let (peer, count) = (addr, self.config.sockets.min(SOCKETS));
            self.outputs.push_back(Output::OpenSockets { peer, count });
        }
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.searched = Some(now);
        }
        if let Some(round) = self.round_mut(addr) {
            round.search = Some(search);
        }
    }

    /// Whether neither this peer, nor its address, nor another peer keeps a search from beginning.
    fn may_search(&mut self, now: u64, addr: NodeAddr, prefix: Prefix) -> bool {
        self.searched.retain(|_, at| now < *at + PAUSE);
        let searched = self.peers.get(&addr).and_then(|peer| peer.searched);
        self.config.search
            && self.searching.is_none()
            && searched.is_none_or(|at| now >= at + PAUSE)
            && self.searched.len() < SEARCHED
            && !self.searched.contains_key(&prefix)
    }

    /// Returns what this node would have to do in a search, if the mappings of both nodes call for
    /// one: of exactly one of them, those of IPv4 depend on the endpoint, or probably do.
    fn role(&self, addr: NodeAddr) -> Option<Role> {
        let fixed = |mapping| matches!(mapping, Mapping::EndpointIndependent | Mapping::Public);
        match (self.own.mappings().of_search(), self.round(addr)?.mappings.of_search()) {
            (own, Mapping::EndpointDependent) if fixed(own) => Some(Role::Ports),
            (Mapping::EndpointDependent, peer) if fixed(peer) && self.config.sockets > 0 => Some(Role::Sockets),
            _ => None,
        }
    }

    /// Returns what there is to do in a search: there is a role for this node, and others have seen
    /// the peer under an address that it named.
    fn part(&self, now: u64, addr: NodeAddr) -> Option<Part> {
        let (peer, round) = (self.peers.get(&addr)?, self.round(addr)?);
        let told: Vec<SocketAddr> = round.told().collect();
        let mut seen = peer.seen(now).filter(|at| self.is_elsewhere(*at));
        match self.role(addr)? {
            Role::Ports => {
                let at = seen.find(|at| told.iter().any(|told| told.ip() == at.ip()))?;
                Some(Part::Ports(at.ip()))
            }
            Role::Sockets => {
                let at = seen.find(|at| told.contains(at))?;
                Some(Part::Sockets(at))
            }
        }
    }

    /// Whether an address may be searched: a public one of IPv4 that this node does not have, too.
    fn is_elsewhere(&self, at: SocketAddr) -> bool {
        let own = self.told.iter().any(|candidate| candidate.at.ip() == at.ip());
        at.is_ipv4() && !own && !is_private(at.ip()) && check(at).is_ok()
    }

    /// The attempt with a peer is over: so is its search.
    pub(super) fn end_search(&mut self, addr: NodeAddr) {
        if self.searching != Some(addr) {
            return;
        }
        self.searching = None;
        let search = self.round(addr).and_then(|round| round.search.as_ref());
        if search.is_some_and(Search::has_sockets) {
            self.outputs.push_back(Output::CloseSockets);
        }
    }
}
