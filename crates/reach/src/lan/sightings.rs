//! Peers that were seen in a LAN, and when they are dialled there.
//!
//! An announcement can be copied, with other addresses in it. So a peer is dialled at addresses of
//! the LAN only ([`on_link`]), one address at a time, and both a peer and an address have a budget.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use weft_wire::Subnet;

use super::Key;
use crate::candidate;
use crate::rate::Bucket;

/// Peers that are kept, at most.
pub const MAX_PEERS: usize = 256;
/// Addresses of one peer, at most. A new one takes the place of that which would be dialled last.
pub const MAX_ADDRESSES: usize = 8;
/// Addresses with a budget, at most. No further one is dialled while there are so many.
pub const MAX_BUDGETS: usize = 1_024;
/// How often one address is dialled at once, at most, for whatever peer.
pub const ADDRESS_BURST: u64 = 4;
/// The interval in which an address may be dialled once more, in ms.
pub const ADDRESS_INTERVAL: u64 = 15_000;
/// How often addresses of all peers are dialled at once, at most.
pub const BURST: u64 = 32;
/// The interval in which one more address may be dialled, in ms.
pub const INTERVAL: u64 = 500;
/// Announcements that are looked at at once, at most.
pub const LOOK_BURST: u64 = 64;
/// The interval in which one more announcement is looked at, in ms.
pub const LOOK_INTERVAL: u64 = 20;
/// The time from one address of a peer to the next, in ms.
pub const NEXT_ADDRESS: u64 = 2_000;
/// The pause when all addresses of a peer were dialled, in ms. It doubles up to [`LAST_PAUSE`].
pub const FIRST_PAUSE: u64 = 5_000;
/// The longest pause, in ms.
pub const LAST_PAUSE: u64 = 300_000;

/// An address at which a peer is to be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dial {
    /// The peer.
    pub key: Key,
    /// The address.
    pub at: SocketAddr,
}

/// The peers that were seen.
#[derive(Debug)]
pub struct Sightings {
    peers: BTreeMap<Key, Peer>,
    budgets: BTreeMap<SocketAddr, Bucket>,
    all: Bucket,
    looks: Bucket,
}

#[derive(Debug)]
struct Peer {
    /// The addresses. The first one is dialled next.
    addresses: VecDeque<Sighted>,
    /// Whether it has a direct link.
    linked: bool,
    /// When the next address is dialled, in ms.
    due: u64,
    /// When the last one was dialled, in ms.
    last: Option<u64>,
    /// How many were dialled since the last pause.
    dialled: usize,
    /// The next pause, in ms.
    pause: u64,
}

/// No peer.
impl Default for Sightings {
    fn default() -> Self {
        Self {
            peers: BTreeMap::new(),
            budgets: BTreeMap::new(),
            all: Bucket::new(BURST, INTERVAL),
            looks: Bucket::new(LOOK_BURST, LOOK_INTERVAL),
        }
    }
}

impl Sightings {
    /// Whether one more announcement may be looked at, which costs a hash for each member of a
    /// network.
    pub fn may_look(&mut self, now: u64) -> bool {
        self.looks.take(now)
    }

    /// When the next announcement may be looked at, in ms.
    #[must_use]
    pub fn next_look(&self, now: u64) -> u64 {
        self.looks.next(now)
    }

    /// A peer was announced by `instance`, at these addresses and no others any more. Addresses that
    /// [`on_link`] refuses are the caller's to leave out. `linked`: it has a direct link.
    pub fn sight(&mut self, now: u64, key: Key, instance: &str, addresses: &[SocketAddr], linked: bool) {
        if addresses.is_empty() || (self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&key)) {
            return;
        }
        let peer = self.peers.entry(key).or_insert_with(|| Peer::new(now));
        peer.linked = linked;
        peer.addresses
            .retain(|sighted| sighted.instance != instance || addresses.contains(&sighted.at));
        for at in addresses.iter().take(MAX_ADDRESSES).rev() {
            peer.add(now, instance, *at);
        }
    }

    /// Whether a peer was seen.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.peers.contains_key(key)
    }

    /// An instance is announced no more.
    pub fn lose(&mut self, instance: &str) {
        self.retain_instances(|of| of != instance);
    }

    /// Forgets the instances for which `keep` is false.
    pub fn retain_instances(&mut self, keep: impl Fn(&str) -> bool) {
        self.peers.retain(|_, peer| {
            peer.addresses.retain(|sighted| keep(&sighted.instance));
            !peer.addresses.is_empty()
        });
    }

    /// Forgets the peers for which `keep` is false.
    pub fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.peers.retain(|key, _| keep(key));
    }

    /// A peer has a direct link now, or none.
    pub fn set_linked(&mut self, now: u64, key: &Key, linked: bool) {
        if let Some(peer) = self.peers.get_mut(key)
            && std::mem::replace(&mut peer.linked, linked)
            && !linked
        {
            (peer.due, peer.dialled, peer.pause) = (now, 0, FIRST_PAUSE);
        }
    }

    /// When [`poll`](Self::poll) has something, in ms.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let wanted = self.peers.values().filter(|peer| peer.is_wanted());
        wanted.map(|peer| peer.due).min()
    }

    /// The next address to dial. The caller asks until there is none. A peer with a direct link is
    /// tried once at each address: the LAN may be the better path.
    pub fn poll(&mut self, now: u64) -> Option<Dial> {
        loop {
            let due = |peer: &Peer| peer.is_wanted() && peer.due <= now;
            let (key, peer) = self.peers.iter_mut().find(|(_, peer)| due(peer))?;
            let key = *key;
            let at = peer.turn(now)?;
            if self.may_dial(now, at) {
                return Some(Dial { key, at });
            }
            self.peers.get_mut(&key)?.was_not_dialled();
        }
    }

    fn may_dial(&mut self, now: u64, at: SocketAddr) -> bool {
        if self.budgets.len() >= MAX_BUDGETS && !self.budgets.contains_key(&at) {
            self.budgets.retain(|_, bucket| !bucket.is_full(now));
            if self.budgets.len() >= MAX_BUDGETS {
                return false;
            }
        }
        let fresh = || Bucket::new(ADDRESS_BURST, ADDRESS_INTERVAL);
        let budget = self.budgets.entry(at).or_insert_with(fresh);
        budget.take(now) && self.all.take(now)
    }
}

#[derive(Debug)]
struct Sighted {
    at: SocketAddr,
    /// Who announced it.
    instance: String,
    /// Whether the peer was dialled there.
    tried: bool,
}

impl Peer {
    fn new(now: u64) -> Self {
        Self {
            addresses: VecDeque::new(),
            linked: false,
            due: now,
            last: None,
            dialled: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether an address is to be dialled.
    fn is_wanted(&self) -> bool {
        !self.linked || self.addresses.iter().any(|sighted| !sighted.tried)
    }

    /// Adds an address, which is the next one if it is new.
    fn add(&mut self, now: u64, instance: &str, at: SocketAddr) {
        if self.addresses.iter().any(|known| known.at == at) {
            return;
        }
        self.addresses.push_front(Sighted {
            at,
            instance: instance.to_owned(),
            tried: false,
        });
        self.addresses.truncate(MAX_ADDRESSES);
        self.dialled = 0;
        let soon = self.last.map_or(now, |last| now.max(last + NEXT_ADDRESS));
        self.due = self.due.min(soon);
    }

    /// The address that [`turn`](Self::turn) returned has no budget: it stays one that was not tried.
    fn was_not_dialled(&mut self) {
        if let Some(last) = self.addresses.back_mut() {
            last.tried = false;
        }
    }

    /// The address whose turn it is; the next one has it later.
    fn turn(&mut self, now: u64) -> Option<SocketAddr> {
        if self.linked {
            let next = self.addresses.iter().position(|sighted| !sighted.tried)?;
            self.addresses.rotate_left(next);
        }
        let sighted = self.addresses.front_mut()?;
        sighted.tried = true;
        let at = sighted.at;
        self.addresses.rotate_left(1);
        self.last = Some(now);
        self.dialled += 1;
        self.due = now + NEXT_ADDRESS;
        if self.dialled >= self.addresses.len() {
            self.dialled = 0;
            self.due = now + self.pause;
            self.pause = (self.pause * 2).min(LAST_PAUSE);
        }
        Some(at)
    }
}

/// Whether an announced address is one of the LAN: in a subnet of an interface of this host, or
/// link-local with the interface (scope id) that the announcement came by.
#[must_use]
pub fn on_link(at: SocketAddr, subnets: &[Subnet]) -> bool {
    match (candidate::check(at), at) {
        (Ok(()), _) => subnets
            .iter()
            .any(|subnet| subnet.prefix_len() > 0 && subnet.contains(at.ip())),
        (Err(candidate::Refused::LinkLocal), SocketAddr::V6(at)) => at.scope_id() != 0,
        (Err(candidate::Refused::LinkLocal), SocketAddr::V4(_)) => subnets
            .iter()
            .any(|subnet| subnet.contains(at.ip()) && matches!(at.ip(), IpAddr::V4(_))),
        (Err(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 168, 1, last], 2121))
    }

    fn dials(sightings: &mut Sightings, from: u64, until: u64) -> Vec<(u64, Dial)> {
        let mut dials = Vec::new();
        for now in (from..until).step_by(100) {
            while let Some(dial) = sightings.poll(now) {
                dials.push((now, dial));
            }
        }
        dials
    }

    #[test]
    fn a_peer_is_dialled_at_each_address_and_then_less_and_less() {
        let mut sightings = Sightings::default();
        sightings.sight(0, [1; 32], "a", &[at(1), at(2)], false);
        let first = dials(&mut sightings, 0, 4_000);
        let addresses: Vec<_> = first.iter().map(|(_, dial)| dial.at).collect();
        assert_eq!(addresses, [at(1), at(2)]);
        assert_eq!(first[0].0, 0, "at once");
        let hour = dials(&mut sightings, 4_000, 3_600_000).len();
        assert!((20..60).contains(&hour), "{hour} in an hour");
        // The same again changes nothing.
        sightings.sight(3_600_000, [1; 32], "a", &[at(1), at(2)], false);
        assert!(dials(&mut sightings, 3_600_000, 3_602_000).len() <= 1);
    }

    #[test]
    fn a_peer_with_a_link_is_tried_once_at_each_address() {
        let mut sightings = Sightings::default();
        sightings.sight(0, [1; 32], "a", &[at(1), at(2)], true);
        let tried: Vec<_> = dials(&mut sightings, 0, 60_000)
            .iter()
            .map(|(_, dial)| dial.at)
            .collect();
        assert_eq!(tried, [at(1), at(2)]);
        assert_eq!(sightings.timeout(), None);
        sightings.sight(60_000, [1; 32], "a", &[at(3), at(1)], true);
        let tried: Vec<_> = dials(&mut sightings, 60_000, 120_000)
            .iter()
            .map(|(_, dial)| dial.at)
            .collect();
        assert_eq!(tried, [at(3)]);
        let mut sightings = Sightings::default();
        sightings.sight(0, [1; 32], "a", &[at(1)], true);
        assert!(sightings.poll(0).is_some() && sightings.poll(1_000_000).is_none());
        sightings.set_linked(1_000_000, &[1; 32], false);
        assert_eq!(
            sightings.poll(1_000_000),
            Some(Dial {
                key: [1; 32],
                at: at(1)
            })
        );
        sightings.lose("a");
        assert_eq!(sightings.timeout(), None);
    }

    #[test]
    fn an_address_that_is_announced_no_more_is_dialled_no_more() {
        let mut sightings = Sightings::default();
        sightings.sight(0, [1; 32], "a", &[at(1), at(2)], false);
        sightings.sight(0, [1; 32], "b", &[at(4)], false);
        sightings.sight(0, [1; 32], "a", &[at(2), at(3)], false);
        let dialled = |sightings: &mut Sightings, from| -> BTreeSet<SocketAddr> {
            let all = dials(sightings, from, from + 60_000);
            all.into_iter().map(|(_, dial)| dial.at).collect()
        };
        assert_eq!(dialled(&mut sightings, 0), [2, 3, 4].map(at).into());
        sightings.retain_instances(|instance| instance == "b");
        assert_eq!(dialled(&mut sightings, 60_000), [at(4)].into());
    }

    #[test]
    fn an_address_without_a_budget_is_tried_later() {
        let mut sightings = Sightings::default();
        for peer in 1..=4 {
            sightings.sight(0, [peer; 32], "x", &[at(1)], true);
            assert!(sightings.poll(0).is_some());
        }
        sightings.sight(0, [5; 32], "a", &[at(1)], true);
        assert_eq!(sightings.poll(0), None);
        let later = dials(&mut sightings, 0, 60_000);
        assert_eq!(later.len(), 1, "{later:?}");
    }

    #[test]
    fn copies_of_announcements_cost_an_address_little() {
        let mut sightings = Sightings::default();
        // All members of a network seem to be at one address.
        for peer in 0..=255 {
            sightings.sight(0, [peer; 32], &format!("i{peer}"), &[at(9)], false);
        }
        let minute = dials(&mut sightings, 0, 60_000).len() as u64;
        assert!(minute <= ADDRESS_BURST + 60_000 / ADDRESS_INTERVAL, "{minute} dials");
        assert!(minute >= ADDRESS_BURST);
    }

    #[test]
    fn memory_is_bounded() {
        let mut sightings = Sightings::default();
        for n in 0..5_000_u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&n.to_be_bytes());
            let [_, _, c, d] = n.to_be_bytes();
            let at = SocketAddr::from(([10, 0, c, d], 2121));
            sightings.sight(u64::from(n), key, "x", &[at], false);
            sightings.sight(u64::from(n), [1; 32], "x", &[at], false);
            while sightings.poll(u64::from(n) * 1_000).is_some() {}
        }
        assert!(sightings.peers.len() <= MAX_PEERS && sightings.budgets.len() <= MAX_BUDGETS);
        assert!(
            sightings
                .peers
                .values()
                .all(|peer| peer.addresses.len() <= MAX_ADDRESSES)
        );
        let looks = (0..10_000).filter(|_| sightings.may_look(1)).count() as u64;
        assert_eq!(looks, LOOK_BURST);
    }

    #[test]
    fn only_addresses_of_the_lan_are_dialled() {
        let subnets = ["192.168.1.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()];
        let on_link = |text: &str| on_link(text.parse().unwrap(), &subnets);
        assert!(on_link("192.168.1.7:2121") && on_link("[2001:db8::7]:2121") && on_link("[fe80::7%3]:2121"));
        for other in [
            "192.168.2.7:2121",
            "203.0.113.7:2121",
            "192.168.1.7:0",
            "[fe80::7]:2121",
            "169.254.1.1:2121",
            "[2001:db9::7]:2121",
            "[fd00::7]:2121",
            "127.0.0.1:2121",
            "224.0.0.251:5353",
        ] {
            assert!(!on_link(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn budgets_hold_whatever_is_announced(events in proptest::collection::vec((0..6_u8, 0..6_u8, any::<bool>(), 0..3_000_u64), 1..200)) {
            let mut sightings = Sightings::default();
            let (mut now, mut dialled) = (0, Vec::new());
            for (peer, address, linked, later) in events {
                now += later;
                sightings.sight(now, [peer; 32], "i", &[at(address)], linked);
                if address == 0 {
                    sightings.lose("i");
                }
                while let Some(dial) = sightings.poll(now) {
                    dialled.push((now, dial.at));
                }
            }
            for (from, at) in &dialled {
                let within = dialled.iter().filter(|(when, of)| of == at && (*from..from + 60_000).contains(when));
                prop_assert!(within.count() as u64 <= ADDRESS_BURST + 60_000 / ADDRESS_INTERVAL);
            }
        }
    }
}
