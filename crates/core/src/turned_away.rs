//! Nodes that asked to link and are not configured, kept so that a user sees why two nodes do not
//! connect.
//!
//! A key and the source of a datagram can be forged, so the list is bounded, and no network prefix
//! has more than a share of it. If the list is full, a newcomer displaces the node that asked least
//! often. A flood of forged keys therefore displaces no node that asks again and again, as a node
//! that wants a link does.

use std::net::{IpAddr, SocketAddr};

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;

/// Maximum number of nodes.
pub(crate) const MOST: usize = 16;
/// Maximum number of nodes of one network prefix among them.
pub(crate) const OF_A_PREFIX: usize = 4;
/// A node that has not asked for this long is forgotten, in ms.
const LIFE: u64 = 600_000;
/// Number of handshakes that count in the choice of the node to displace: an attacker gains nothing
/// by more.
const ENOUGH: u32 = 4;
/// The rate of events about nodes that are alone in their prefix, and the rate of those about all
/// others. An event beyond the rate is reported when the node asks the next time.
const EVENTS: Rate = Rate {
    per_second: 1,
    burst: 8,
};

/// A node that asked to link, is not configured and got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// Its public key.
    pub key: PublicKey,
    /// The source of its last handshake message.
    pub from: SocketAddr,
    /// How long ago that was, in ms.
    pub ago: u64,
    /// Number of its handshake messages.
    pub times: u64,
}

#[derive(Debug)]
struct Entry {
    key: PublicKey,
    from: SocketAddr,
    /// The prefix of the first message's source: a copy that is sent from elsewhere does not move
    /// the entry into another share.
    prefix: [u8; 6],
    at: u64,
    times: u64,
    told: bool,
}

impl Entry {
    /// Returns the weight for keeping the entry. Handshakes count first; age decides between
    /// equals.
    fn weight(&self) -> u64 {
        self.times.min(ENOUGH.into())
    }
}

/// The nodes that were turned away lately, the first one first.
#[derive(Debug)]
pub(crate) struct TurnedAwayNodes {
    entries: Vec<Entry>,
    alone: Bucket,
    crowded: Bucket,
}

impl Default for TurnedAwayNodes {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            alone: Bucket::new(EVENTS, 0),
            crowded: Bucket::new(EVENTS, 0),
        }
    }
}

impl TurnedAwayNodes {
    /// Records a handshake message that authenticated. Returns whether it is to be reported: once
    /// for each key, and at a bounded rate.
    pub(crate) fn note(&mut self, now: u64, key: PublicKey, from: SocketAddr) -> bool {
        self.entries.retain(|entry| now.saturating_sub(entry.at) < LIFE);
        let at = match self.entries.iter().position(|entry| entry.key == key) {
            Some(at) => at,
            None => {
                let prefix = prefix(from.ip());
                self.make_room(&prefix);
                self.entries.push(Entry {
                    key,
                    from,
                    prefix,
                    at: now,
                    times: 0,
                    told: false,
                });
                self.entries.len() - 1
            }
        };
        let crowded = self
            .entries
            .get(at)
            .is_some_and(|entry| self.of(&entry.prefix).count() > 1);
        let bucket = if crowded { &mut self.crowded } else { &mut self.alone };
        let Some(entry) = self.entries.get_mut(at) else {
            return false;
        };
        (entry.from, entry.at) = (from, now);
        entry.times += 1;
        let tell = !entry.told && bucket.take(EVENTS, now, 1) == 1;
        entry.told |= tell;
        tell
    }

    /// Forgets a key that is configured from now on, or whose node is linked.
    pub(crate) fn forget(&mut self, key: &PublicKey) {
        self.entries.retain(|entry| entry.key != *key);
    }

    /// Returns the nodes, the last one first.
    pub(crate) fn list(&self, now: u64) -> impl Iterator<Item = TurnedAway> {
        let fresh = self
            .entries
            .iter()
            .filter(move |entry| now.saturating_sub(entry.at) < LIFE);
        fresh.rev().map(move |entry| TurnedAway {
            key: entry.key,
            from: entry.from,
            ago: now.saturating_sub(entry.at),
            times: entry.times,
        })
    }

    fn of(&self, prefix: &[u8; 6]) -> impl Iterator<Item = (usize, &Entry)> {
        let all = self.entries.iter().enumerate();
        all.filter(move |(_, entry)| entry.prefix == *prefix)
    }

    /// Makes room for one entry. A prefix with a full share displaces one of its own. Otherwise the
    /// entry of the node that asked least often is removed, and the newest among several.
    fn make_room(&mut self, prefix: &[u8; 6]) {
        let least = |(at, entry): &(usize, &Entry)| (entry.weight(), std::cmp::Reverse(*at));
        let of_prefix = self.of(prefix).count();
        let goes = if of_prefix >= OF_A_PREFIX {
            self.of(prefix).min_by_key(least)
        } else if self.entries.len() >= MOST {
            self.entries.iter().enumerate().min_by_key(least)
        } else {
            None
        };
        if let Some(at) = goes.map(|(at, _)| at) {
            self.entries.remove(at);
        }
    }
}

/// Returns the network that an address is charged to: /24 of IPv4, /48 of IPv6.
fn prefix(ip: IpAddr) -> [u8; 6] {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            [0, 0, 0, a, b, c]
        }
        IpAddr::V6(ip) => {
            let [a, b, c, d, e, f, ..] = ip.octets();
            [a, b, c, d, e, f]
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(n: u16) -> PublicKey {
        let mut bytes = [1; 32];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        SecretKey::from_bytes(&bytes).unwrap().public()
    }

    fn from(a: u8, b: u8, c: u8) -> SocketAddr {
        SocketAddr::new(IpAddr::from([192, a, b, c]), 2121)
    }

    #[test]
    fn a_node_is_told_once_and_listed_where_it_asked_last() {
        let mut list = TurnedAwayNodes::default();
        assert!(list.note(1_000, key(1), from(0, 2, 1)));
        assert!(!list.note(2_000, key(1), from(0, 2, 1)));
        assert!(!list.note(3_000, key(1), from(0, 9, 1)));
        let expected = TurnedAway {
            key: key(1),
            from: from(0, 9, 1),
            ago: 500,
            times: 3,
        };
        assert_eq!(list.list(3_500).collect::<Vec<_>>(), [expected]);
        assert_eq!(list.list(3_000 + LIFE).count(), 0, "old");
        assert!(list.note(3_000 + LIFE, key(1), from(0, 2, 1)), "told anew");
        list.forget(&key(1));
        assert_eq!(list.list(3_000 + LIFE).count(), 0);
    }

    #[test]
    fn a_flood_displaces_its_own_network_and_events_have_a_rate() {
        let mut list = TurnedAwayNodes::default();
        assert!(list.note(0, key(0), from(0, 2, 1)));
        let flood = (1..2_000).filter(|n| list.note(u64::from(*n), key(*n), from(9, 9, *n as u8)));
        let told = flood.count() as u64;
        assert!(told <= 1 + EVENTS.burst + 2 * EVENTS.per_second, "{told}");
        assert_eq!(list.entries.len(), 1 + OF_A_PREFIX);
        assert!(list.list(2_000).any(|node| node.key == key(0)));
        assert!(list.note(2_000, key(5_000), from(0, 3, 1)), "another network is told");
    }

    #[test]
    fn a_flood_from_everywhere_displaces_no_node_that_asks_again() {
        let mut list = TurnedAwayNodes::default();
        list.note(0, key(0), from(0, 2, 1));
        list.note(1, key(0), from(0, 2, 1));
        let mut told = 0;
        for n in 1..2_000_u16 {
            let [a, b] = n.to_be_bytes();
            told += u64::from(list.note(2 + u64::from(n), key(n), from(a, b, 1)));
        }
        assert!(told <= 2 * EVENTS.burst + 2 * 3 * EVENTS.per_second, "{told}");
        assert_eq!(list.entries.len(), MOST);
        assert!(list.list(3_000).any(|node| node.key == key(0)));
    }

    #[test]
    fn networks_are_told_apart_by_their_prefix() {
        let of = |text: &str| prefix(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1::1"), of("2001:db8:1:9::1"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
    }
}
