//! Offers of routes: those that this node sends to administrators, and those that it received.
//!
//! An offer has no effect by itself. It shows an administrator which subnets a member would like to
//! forward to; the record that the administrator signs counts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_noise::PublicKey;
use weft_roster::record::Exit;
use weft_wire::Subnet;

/// Maximum number of subnets that one member offers.
pub const MAX_OFFERED: usize = 16;
/// The first interval between two equal offers to one administrator, in ms. It doubles each time.
const AGAIN: u64 = 60_000;
/// The longest such interval, in ms: each offer ends the silence of an idle link.
const LAST_AGAIN: u64 = 3_600_000;
/// The minimum interval between two offers to one administrator, in ms.
const PAUSE: u64 = 2_000;
/// How long an offer stands that is not repeated, in ms.
const STANDS: u64 = 3 * LAST_AGAIN;
/// In which offers of a member are counted, in ms.
const COUNTED: u64 = 60_000;
/// Maximum number of offers that are taken from one member within [`COUNTED`].
const MAX_TAKEN: u8 = 40;

/// The IP versions for which an offer is one of an exit; `None` if it is none.
#[must_use]
pub fn exit_of(subnets: &BTreeSet<Subnet>) -> Option<Exit> {
    let all = |ipv4| {
        let mut of_version = subnets.iter().filter(|subnet| subnet.address().is_ipv4() == ipv4);
        of_version.any(|subnet| subnet.prefix_len() == 0)
    };
    let exit = Exit {
        ipv4: all(true),
        ipv6: all(false),
    };
    (exit.ipv4 || exit.ipv6).then_some(exit)
}

/// All addresses of each IP version that an exit forwards.
pub fn of_exit(exit: Exit) -> impl Iterator<Item = Subnet> {
    let ipv4 = exit.ipv4.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let ipv6 = exit.ipv6.then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    let addresses = ipv4.into_iter().chain(ipv6);
    addresses.filter_map(|address| Subnet::around(address, 0))
}

/// The offers of one network.
#[derive(Debug, Clone, Default)]
pub(super) struct Offers {
    /// What each member offers, other than this node.
    received: BTreeMap<PublicKey, Received>,
    /// What was last sent to each administrator.
    sent: BTreeMap<PublicKey, Sent>,
}

#[derive(Debug, Clone)]
struct Received {
    subnets: BTreeSet<Subnet>,
    /// When it ends unless it is repeated, in ms.
    ends: u64,
    /// Since when offers are counted, in ms, and their number.
    counted: (u64, u8),
}

#[derive(Debug, Clone)]
struct Sent {
    subnets: BTreeSet<Subnet>,
    /// When, in ms.
    at: u64,
    /// When it is repeated, in ms after that.
    again: u64,
    /// Whether the administrator could be reached.
    is_reached: bool,
}

impl Offers {
    /// Takes the offer of a member, which replaces the one before. Returns whether it was taken: a
    /// member that sends too many is ignored for a while.
    pub(super) fn receive(&mut self, from: PublicKey, subnets: BTreeSet<Subnet>, now: u64) -> bool {
        let before = self.received.get(&from).map(|received| received.counted);
        let (since, count) = before.filter(|(since, _)| now < since + COUNTED).unwrap_or((now, 0));
        if count >= MAX_TAKEN {
            return false;
        }
        let received = Received {
            subnets,
            ends: now + STANDS,
            counted: (since, count + 1),
        };
        self.received.insert(from, received);
        true
    }

    /// The subnets that a member offers at `now`.
    pub(super) fn of(&self, member: &PublicKey, now: u64) -> impl Iterator<Item = Subnet> {
        let received = self.received.get(member).filter(|received| now < received.ends);
        received
            .into_iter()
            .flat_map(|received| received.subnets.iter().copied())
    }

    /// Forgets offers of nodes that are not members, and what was sent to nodes that are not
    /// administrators.
    pub(super) fn retain(&mut self, member: impl Fn(&PublicKey) -> bool, admin: impl Fn(&PublicKey) -> bool) {
        self.received.retain(|key, _| member(key));
        self.sent.retain(|key, _| admin(key));
    }

    /// Takes over which nodes can be reached now. An administrator that could not be reached gets its offer
    /// again: it may have restarted.
    pub(super) fn follow_reachable(&mut self, reachable: &BTreeSet<PublicKey>) {
        self.sent.retain(|admin, sent| {
            let before = std::mem::replace(&mut sent.is_reached, reachable.contains(admin));
            before || !sent.is_reached
        });
    }

    /// An administrator has lost what it was sent, and gets it again.
    pub(super) fn forget_sent(&mut self, admin: &PublicKey) {
        self.sent.remove(admin);
    }

    /// Returns an administrator of `admins` that is due to get the offer `subnets`, and notes that it
    /// does.
    pub(super) fn poll(
        &mut self,
        subnets: &BTreeSet<Subnet>,
        mut admins: impl Iterator<Item = PublicKey>,
        now: u64,
    ) -> Option<PublicKey> {
        let to = admins.find(|admin| self.due(subnets, admin).is_some_and(|due| due <= now))?;
        let equal = self.sent.get(&to).filter(|sent| sent.subnets == *subnets);
        let again = equal.map_or(AGAIN, |sent| (2 * sent.again).min(LAST_AGAIN));
        let (subnets, at) = (subnets.clone(), now);
        let is_reached = true;
        let sent = Sent {
            subnets,
            at,
            again,
            is_reached,
        };
        self.sent.insert(to, sent);
        Some(to)
    }

    /// When an administrator gets the offer `subnets`, in ms; `None` if it needs none.
    pub(super) fn due(&self, subnets: &BTreeSet<Subnet>, admin: &PublicKey) -> Option<u64> {
        match self.sent.get(admin) {
            None => (!subnets.is_empty()).then_some(0),
            Some(sent) if sent.subnets != *subnets => Some(sent.at + PAUSE),
            Some(sent) => (!subnets.is_empty()).then_some(sent.at + sent.again),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn subnets(texts: &[&str]) -> BTreeSet<Subnet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn offers_are_repeated_replaced_and_withdrawn() {
        let mut offers = Offers::default();
        let (one, none) = (subnets(&["192.168.7.0/24"]), subnets(&[]));
        let mut poll = |subnets: &BTreeSet<Subnet>, now| offers.poll(subnets, [key(1)].into_iter(), now);
        assert_eq!(poll(&none, 0), None, "nothing is offered");
        assert_eq!(poll(&one, 1), Some(key(1)));
        assert_eq!(poll(&one, AGAIN), None);
        assert_eq!(poll(&one, 1 + AGAIN), Some(key(1)), "it is repeated");
        assert_eq!(poll(&none, 1 + AGAIN + PAUSE - 1), None);
        assert_eq!(poll(&none, 1 + AGAIN + PAUSE), Some(key(1)), "it is withdrawn");
        assert_eq!(poll(&none, 10 * AGAIN), None);
    }

    #[test]
    fn equal_offers_become_rare_and_a_new_connection_gets_one() {
        let mut offers = Offers::default();
        let one = subnets(&["192.168.7.0/24"]);
        let mut at = 0;
        for interval in [AGAIN, 2 * AGAIN, 4 * AGAIN] {
            assert_eq!(offers.poll(&one, [key(1)].into_iter(), at), Some(key(1)));
            at += interval;
            assert_eq!(offers.due(&one, &key(1)), Some(at));
        }
        for _ in 0..10 {
            offers.poll(&one, [key(1)].into_iter(), at);
            at = offers.due(&one, &key(1)).unwrap();
        }
        offers.poll(&one, [key(1)].into_iter(), at);
        assert_eq!(offers.due(&one, &key(1)), Some(at + LAST_AGAIN));
        let reached = BTreeSet::from([key(1)]);
        offers.follow_reachable(&reached);
        assert_eq!(offers.due(&one, &key(1)), Some(at + LAST_AGAIN));
        offers.follow_reachable(&BTreeSet::new());
        assert_eq!(offers.due(&one, &key(1)), Some(at + LAST_AGAIN));
        offers.follow_reachable(&reached);
        assert_eq!(offers.due(&one, &key(1)), Some(0));
        offers.poll(&one, [key(1)].into_iter(), at);
        offers.forget_sent(&key(1));
        assert_eq!(offers.due(&one, &key(1)), Some(0));
    }

    #[test]
    fn offers_end_and_are_counted() {
        let mut offers = Offers::default();
        let one = subnets(&["192.168.7.0/24"]);
        assert!(offers.receive(key(1), one.clone(), 5));
        assert_eq!(offers.of(&key(1), 4 + STANDS).count(), 1);
        assert_eq!(offers.of(&key(1), 5 + STANDS).count(), 0);
        for _ in 1..MAX_TAKEN {
            assert!(offers.receive(key(1), one.clone(), 6));
        }
        assert!(!offers.receive(key(1), subnets(&[]), 7), "too many");
        assert_eq!(offers.of(&key(1), 8).count(), 1);
        assert!(offers.receive(key(2), one, 8), "another member");
        assert!(offers.receive(key(1), subnets(&[]), 5 + COUNTED));
        offers.retain(|key| *key != self::key(2), |_| false);
        assert_eq!(offers.of(&key(2), 9).count(), 0);
    }
}
