//! The candidates of this node, and what is known about its NATs.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_wire::NodeAddr;

use crate::candidate::{check, plain};
use crate::message::{Candidate, Kind};
use crate::nat::{Behaviour, Mappings, behaviour, is_private, predict};
use crate::rate::Bucket;

/// Candidates of each kind that are told to peers, at most: [`message::MOST`](crate::message::MOST)
/// together.
pub(crate) const HOST_MOST: usize = 16;
pub(crate) const MAPPED_MOST: usize = 4;
pub(crate) const OBSERVED_MOST: usize = 4;
pub(crate) const PREDICTED_MOST: usize = 8;
/// Observers that are remembered.
pub(crate) const OBSERVERS: usize = 64;
/// An observer may change its mind this often, and then once a minute.
const CHANGES: u64 = 4;
const CHANGE_INTERVAL: u64 = 60_000;

/// A node or server that says under which address it sees this node's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observer {
    /// A neighbour, over its link.
    Neighbour(NodeAddr),
    /// A STUN server.
    Server(SocketAddr),
}

impl From<NodeAddr> for Observer {
    fn from(neighbour: NodeAddr) -> Self {
        Self::Neighbour(neighbour)
    }
}

#[derive(Debug)]
struct Observation {
    at: SocketAddr,
    /// Counts up with each observation: their order in time.
    order: u64,
    changes: Bucket,
}

/// What happened to an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// It is kept.
    Yes,
    /// It says what was known.
    Known,
    /// There are too many observers, or this one says something else too often.
    TooMany,
}

/// The addresses of this node's socket, by where they come from.
#[derive(Debug, Default)]
pub(crate) struct Own {
    host: Vec<SocketAddr>,
    /// Those of the host that peers are not told.
    untold: Vec<SocketAddr>,
    mapped: Vec<SocketAddr>,
    observers: BTreeMap<Observer, Observation>,
    observations: u64,
}

impl Own {
    pub(crate) fn host(&self) -> &[SocketAddr] {
        &self.host
    }

    pub(crate) fn set_host(&mut self, host: Vec<SocketAddr>) {
        self.host = usable(host, HOST_MOST);
    }

    pub(crate) fn set_untold(&mut self, untold: Vec<SocketAddr>) {
        self.untold = untold;
    }

    pub(crate) fn set_mapped(&mut self, mapped: Vec<SocketAddr>) {
        self.mapped = usable(mapped, MAPPED_MOST);
    }

    /// Notes an observation of an address that [`check`] has passed.
    pub(crate) fn observe(&mut self, now: u64, by: Observer, at: SocketAddr) -> Noted {
        let full = self.observers.len() >= OBSERVERS;
        let order = self.observations;
        match self.observers.get_mut(&by) {
            Some(known) if known.at == at => return Noted::Known,
            Some(known) => {
                if !known.changes.take(now) {
                    return Noted::TooMany;
                }
                (known.at, known.order) = (at, order);
            }
            None if full => return Noted::TooMany,
            None => {
                let changes = Bucket::new(CHANGES, CHANGE_INTERVAL);
                self.observers.insert(by, Observation { at, order, changes });
            }
        }
        self.observations += 1;
        Noted::Yes
    }

    pub(crate) fn forget(&mut self, by: Observer) {
        self.observers.remove(&by);
    }

    /// Returns what peers are told: each address once, under the first kind that it has.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = Vec::new();
        let kinds = [
            (Kind::Host, self.host.clone()),
            (Kind::Mapped, self.mapped.clone()),
            (Kind::Observed, self.observed()),
            (Kind::Predicted, predict(&self.behaviour(false), PREDICTED_MOST)),
        ];
        for (kind, at) in kinds
            .into_iter()
            .flat_map(|(kind, all)| all.into_iter().map(move |at| (kind, at)))
        {
            if !all.iter().any(|known| known.at == at) && !self.untold.contains(&at) {
                all.push(Candidate { kind, at });
            }
        }
        all
    }

    /// Returns the observed addresses, those with most observers first, and among them the oldest.
    fn observed(&self) -> Vec<SocketAddr> {
        let mut seen: BTreeMap<SocketAddr, (Reverse<usize>, u64)> = BTreeMap::new();
        for observation in self.observers.values() {
            let (observers, order) = seen.entry(observation.at).or_insert((Reverse(0), u64::MAX));
            observers.0 += 1;
            *order = (*order).min(observation.order);
        }
        let mut ranked: Vec<_> = seen.into_iter().map(|(at, rank)| (rank, at)).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, at)| at).take(OBSERVED_MOST).collect()
    }

    /// Whether an address is one of this host, whatever its port, or is mapped to this socket. What
    /// observers say does not count: one that lies would keep an address of a peer from being probed.
    pub(crate) fn is_own(&self, at: SocketAddr) -> bool {
        self.local().any(|own| own.ip() == at.ip()) || self.mapped.contains(&at)
    }

    /// Returns what observers say about the NATs of one version of IP.
    pub(crate) fn behaviour(&self, v6: bool) -> Behaviour {
        behaviour(&self.seen(v6), &self.local().collect::<Vec<_>>())
    }

    /// All addresses of this host.
    fn local(&self) -> impl Iterator<Item = SocketAddr> {
        self.host.iter().chain(&self.untold).copied()
    }

    /// Returns the addresses of one version of IP that observers see, one for each of them, in the order
    /// of time.
    pub(crate) fn seen(&self, v6: bool) -> Vec<SocketAddr> {
        let of_version = self.observers.values().filter(|seen| seen.at.is_ipv6() == v6);
        let mut seen: Vec<_> = of_version.map(|seen| (seen.order, seen.at)).collect();
        seen.sort_unstable();
        seen.into_iter().map(|(_, at)| at).collect()
    }

    /// Returns the public address of IPv4 that more than half of the observers of such addresses see.
    pub(crate) fn outer(&self) -> Option<SocketAddr> {
        let mut seen = self.seen(false);
        seen.retain(|at| !is_private(at.ip()));
        let by_most = |at: &SocketAddr| 2 * seen.iter().filter(|other| *other == at).count() > seen.len();
        seen.iter().copied().find(by_most)
    }

    pub(crate) fn mappings(&self) -> Mappings {
        let v4 = self.behaviour(false);
        Mappings {
            v4: v4.mapping,
            v6: self.behaviour(true).mapping,
            likely: v4.likely,
        }
    }
}

/// Returns the first `most` addresses that a peer could use, each once.
fn usable(addresses: Vec<SocketAddr>, most: usize) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for at in addresses.into_iter().map(plain) {
        if check(at).is_ok() && !all.contains(&at) && all.len() < most {
            all.push(at);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::Mapping;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn by(n: u8) -> Observer {
        Observer::Neighbour(NodeAddr::new([n; 16]))
    }

    #[test]
    fn candidates_are_bounded_and_each_address_comes_once() {
        let mut own = Own::default();
        let many = |net: u8| {
            (0..60)
                .map(|n| SocketAddr::from(([10, net, 0, n], 2121)))
                .collect::<Vec<_>>()
        };
        own.set_host([many(1), vec![at("[fd00::1]:2121"), at("127.0.0.1:2121")]].concat());
        own.set_mapped(many(2));
        for n in 0..50 {
            own.observe(0, by(n), SocketAddr::from(([203, 0, 113, 1], 2121 + u16::from(n))));
        }
        let kinds = |own: &Own| {
            own.candidates()
                .iter()
                .map(|candidate| candidate.kind)
                .collect::<Vec<_>>()
        };
        let count = |own: &Own, kind| kinds(own).iter().filter(|other| **other == kind).count();
        let counts = [Kind::Host, Kind::Mapped, Kind::Observed, Kind::Predicted].map(|kind| count(&own, kind));
        assert_eq!(counts, [HOST_MOST, MAPPED_MOST, OBSERVED_MOST, PREDICTED_MOST]);
        assert_eq!(counts.iter().sum::<usize>(), crate::message::MOST);
        own.set_host(vec![at("203.0.113.1:2121"), at("[fd00::1]:2121")]);
        own.set_mapped(vec![at("203.0.113.1:2122")]);
        assert_eq!(kinds(&own)[..3], [Kind::Host, Kind::Mapped, Kind::Observed]);
        assert_eq!(count(&own, Kind::Observed), OBSERVED_MOST - 2);
    }

    #[test]
    fn observers_are_bounded_and_so_are_their_changes() {
        let mut own = Own::default();
        let port = |port| SocketAddr::from(([203, 0, 113, 1], port));
        for n in 0..OBSERVERS as u8 {
            assert_eq!(own.observe(0, by(n), port(1)), Noted::Yes);
        }
        assert_eq!(own.observe(0, by(200), port(1)), Noted::TooMany);
        assert_eq!(own.observe(0, by(1), port(1)), Noted::Known);
        let changes = (2..100).filter(|n| own.observe(0, by(1), port(*n)) == Noted::Yes);
        assert_eq!(changes.count(), 4);
        assert_eq!(own.observe(59_999, by(1), port(7)), Noted::TooMany);
        assert_eq!(own.observe(60_000, by(1), port(7)), Noted::Yes);
        own.forget(by(1));
        assert_eq!(own.observe(60_000, by(200), port(1)), Noted::Yes);
    }

    #[test]
    fn the_address_that_most_observers_see_comes_first() {
        let mut own = Own::default();
        let seen = ["203.0.113.9:1", "203.0.113.8:2", "203.0.113.7:3", "203.0.113.7:3"];
        for (n, text) in seen.iter().enumerate() {
            own.observe(0, by(n as u8), at(text));
        }
        let ports: Vec<_> = own.candidates().iter().map(|candidate| candidate.at.port()).collect();
        assert_eq!(ports, [3, 1, 2], "other addresses of the NAT let nothing be predicted");
        assert_eq!(own.mappings().v4, Mapping::EndpointDependent);
        assert_eq!(own.mappings().v6, Mapping::Unknown);
    }

    #[test]
    fn the_outer_address_is_what_most_observers_see() {
        let mut own = Own::default();
        assert_eq!(own.outer(), None);
        for (n, text, outer) in [
            (1, "192.168.1.7:2121", None),
            (2, "203.0.113.7:2121", Some("203.0.113.7:2121")),
            (3, "203.0.113.8:2121", None),
            (4, "203.0.113.8:2121", Some("203.0.113.8:2121")),
            (5, "[2001:db8::1]:2121", Some("203.0.113.8:2121")),
        ] {
            own.observe(0, by(n), at(text));
            assert_eq!(own.outer(), outer.map(at), "{text}");
        }
    }

    #[test]
    fn an_address_that_peers_are_not_told_is_own_all_the_same() {
        let mut own = Own::default();
        let (stable, temporary) = (at("[2001:db8::1]:2121"), at("[2001:db8::abcd]:2121"));
        own.set_host(vec![stable]);
        own.set_untold(vec![temporary]);
        own.observe(0, by(1), temporary);
        let told: Vec<_> = own.candidates().iter().map(|candidate| candidate.at).collect();
        assert_eq!(told, [stable]);
        assert!(own.is_own(temporary));
        assert_eq!(own.mappings().v6, Mapping::Public, "no NAT translates it");
    }

    #[test]
    fn a_host_is_own_on_every_port_and_an_observation_is_not() {
        let mut own = Own::default();
        own.set_host(vec![at("192.168.1.2:2121")]);
        own.set_mapped(vec![at("203.0.113.1:2121")]);
        own.observe(0, by(1), at("203.0.113.2:2121"));
        for (text, is) in [
            ("192.168.1.2:53", true),
            ("192.168.1.3:2121", false),
            ("203.0.113.1:2121", true),
            ("203.0.113.1:2122", false),
            ("203.0.113.2:2121", false),
        ] {
            assert_eq!(own.is_own(at(text)), is, "{text}");
        }
    }
}
