//! What may go to addresses that have not answered and that the user has not named.
//!
//! A member of a network can name any address as its own, and so can many members, in many ways: what they
//! pass on, candidates of attempts, announcements in the LAN. Whatever goes to such an address is counted by
//! IPv4 address, or by /64 of IPv6, for all peers and ways together (docs/protocol/security.md, P28).
//! What links send has one part of the bytes, and what the daemon sends outside of links has the other, so
//! that neither leaves nothing to the other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Bytes that handshakes and probes of links may send to an address at once, with IP and UDP headers.
const LINK_BURST: u64 = 1_536;
/// Bytes that go outside of links to an address at once: probes of attempts, and inquiries.
const OUTSIDE_BURST: u64 = 2_560;
/// Bytes that may go to an address in an hour, for each byte that may at once. Both parts together are 4 KiB
/// at once and 16 KiB in an hour.
const HOUR: u64 = 4;
/// Addresses whose bytes are counted. Nothing goes to further ones.
const COUNTED: usize = 4_096;
/// For how long an address is free that has answered, in ms: until the link that follows from it is up.
const ANSWERED: u64 = 60_000;

/// What the bytes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Handshakes and probes of links.
    Link,
    /// What the daemon sends outside of links.
    Outside,
}

impl Part {
    const fn burst(self) -> u64 {
        match self {
            Self::Link => LINK_BURST,
            Self::Outside => OUTSIDE_BURST,
        }
    }

    /// The time after which one more byte may go, in ms.
    const fn byte(self) -> u64 {
        3_600_000 / ((HOUR - 1) * self.burst()) + 1
    }
}

/// What went to addresses that have not answered.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed {
    /// When each address has its whole burst again, in ms.
    places: BTreeMap<(IpAddr, Part), u64>,
    /// The same for each port, if no other had received anything.
    ports: BTreeMap<(SocketAddr, Part), u64>,
    /// Until when addresses are free that have answered, in ms.
    answered: BTreeMap<SocketAddr, u64>,
}

impl Unconfirmed {
    /// Whether a UDP payload of `len` bytes may go to `to`, which then counts.
    pub(crate) fn admits(&mut self, now: u64, to: SocketAddr, len: usize, part: Part) -> bool {
        let to = plain(to);
        if self.answered.get(&to).is_some_and(|until| now < *until) {
            return true;
        }
        let place = (place(to.ip()), part);
        if !has_room(&mut self.places, now, &place) {
            return false;
        }
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let cost = (len as u64 + headers) * part.byte();
        let full = self.places.entry(place).or_default();
        let next = (*full).max(now) + cost;
        let admitted = next <= now + part.burst() * part.byte();
        if admitted {
            *full = next;
            if has_room(&mut self.ports, now, &(to, part)) {
                let full = self.ports.entry((to, part)).or_default();
                *full = (*full).max(now) + cost;
            }
        }
        admitted
    }

    /// Notes that an address has answered. What went there no longer counts, and what goes there next is free.
    pub(crate) fn note_answered(&mut self, now: u64, at: SocketAddr) {
        let at = plain(at);
        if has_room(&mut self.answered, now, &at) {
            self.answered.insert(at, now + ANSWERED);
        }
        self.give_back(now, at);
    }

    /// Notes that a handshake was answered where it went, so that a link is up. What went there no longer
    /// counts.
    pub(crate) fn give_back(&mut self, now: u64, at: SocketAddr) {
        let at = plain(at);
        for part in [Part::Link, Part::Outside] {
            let Some(own) = self.ports.remove(&(at, part)) else {
                continue;
            };
            // No more than what would still be missing if nothing had gone to other ports.
            if let Some(full) = self.places.get_mut(&(place(at.ip()), part)) {
                *full = full.saturating_sub(own.saturating_sub(now));
            }
        }
    }
}

/// Whether a table has `key`, or room for it without the entries whose time is over.
fn has_room<K: Ord>(table: &mut BTreeMap<K, u64>, now: u64, key: &K) -> bool {
    if table.len() >= COUNTED && !table.contains_key(key) {
        table.retain(|_, until| *until > now);
    }
    table.len() < COUNTED || table.contains_key(key)
}

/// The address without what never crosses the network.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// What is counted together. An address of NAT64 is that of IPv4 in it (RFC 6052, section 2.1).
fn place(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => match ip.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into(),
            _ => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        },
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 2] = [Part::Link, Part::Outside];

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Bytes with headers that go to `to` until `until`, if both parts have 114 bytes ready each second.
    fn bytes(unconfirmed: &mut Unconfirmed, to: &[SocketAddr], from: u64, until: u64) -> u64 {
        let mut bytes = 0;
        for now in (from..until).step_by(1_000) {
            for (to, part) in to.iter().flat_map(|to| PARTS.map(|part| (to, part))) {
                if unconfirmed.admits(now, *to, 114, part) {
                    bytes += 114 + if to.is_ipv4() { 28 } else { 48 };
                }
            }
        }
        bytes
    }

    #[test]
    fn an_address_gets_4_kb_at_once_and_16_kb_in_an_hour() {
        let mut unconfirmed = Unconfirmed::default();
        let ports: Vec<SocketAddr> = (1..50).map(|port| SocketAddr::from(([203, 0, 113, 1], port))).collect();
        let first = bytes(&mut unconfirmed, &ports, 0, 1_000);
        assert!((3_800..=4_096).contains(&first), "{first}");
        let hour = first + bytes(&mut unconfirmed, &ports, 1_000, 3_600_000);
        assert!((15_500..=16_384).contains(&hour), "{hour}");
        let hosts = ["[2001:db8::1]:1", "[2001:db8::2]:1"].map(at);
        assert!(bytes(&mut unconfirmed, &hosts, 0, 3_600_000) <= 16_384);
    }

    #[test]
    fn neither_part_takes_what_the_other_has() {
        for (one, other) in [(Part::Link, Part::Outside), (Part::Outside, Part::Link)] {
            let mut unconfirmed = Unconfirmed::default();
            let to = at("203.0.113.1:1");
            while unconfirmed.admits(0, to, 24, one) {}
            let left = (0..100).filter(|_| unconfirmed.admits(0, to, 24, other)).count() as u64;
            assert_eq!(left, other.burst() / 52);
        }
    }

    #[test]
    fn hosts_behind_nat64_are_counted_by_their_ipv4_addresses() {
        let mut unconfirmed = Unconfirmed::default();
        while unconfirmed.admits(0, at("[64:ff9b::c000:201]:1"), 114, Part::Link) {}
        assert!(!unconfirmed.admits(0, at("192.0.2.1:2"), 114, Part::Link));
        assert!(unconfirmed.admits(0, at("[64:ff9b::c000:202]:1"), 114, Part::Link));
    }

    #[test]
    fn bytes_to_a_port_that_answers_count_no_more() {
        let mut unconfirmed = Unconfirmed::default();
        let [peer, other] = ["203.0.113.1:1", "203.0.113.1:2"].map(at);
        let first = bytes(&mut unconfirmed, &[peer], 0, 5_000);
        assert!(first >= 1_000, "{first}");
        unconfirmed.note_answered(5_000, peer);
        assert_eq!(
            bytes(&mut unconfirmed, &[peer], 5_000, 65_000),
            2 * 60 * 142,
            "free for a minute"
        );
        let all = bytes(&mut unconfirmed, &[other], 65_000, 165_000);
        assert!((3_800..=4_096 + 342).contains(&all), "{all}");
    }

    #[test]
    fn an_answer_gives_nothing_back_that_others_have_spent() {
        let mut unconfirmed = Unconfirmed::default();
        let [peer, other] = ["203.0.113.1:1", "203.0.113.1:2"].map(at);
        // The peer's bytes are forgotten by the time of the answer.
        assert!(bytes(&mut unconfirmed, &[peer], 0, 3_000) > 0);
        let mut all = bytes(&mut unconfirmed, &[other], 1_800_000, 1_900_000);
        unconfirmed.note_answered(1_900_000, peer);
        all += bytes(&mut unconfirmed, &[other], 1_900_000, 1_901_000);
        assert!(all <= 4_096 + 350, "{all}");
    }

    #[test]
    fn many_names_take_bounded_memory() {
        let mut unconfirmed = Unconfirmed::default();
        for n in 0..10_000_u32 {
            let to = SocketAddr::from((n.to_be_bytes(), 1));
            unconfirmed.admits(4_000_000, to, 114, Part::Link);
            unconfirmed.note_answered(4_000_000, to);
            unconfirmed.admits(4_000_000, SocketAddr::new(to.ip(), 2), 114, Part::Link);
            assert!(unconfirmed.places.len() <= COUNTED && unconfirmed.ports.len() <= COUNTED);
            assert!(unconfirmed.answered.len() <= COUNTED);
        }
    }
}
