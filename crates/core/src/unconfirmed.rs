//! What may go to addresses that only other nodes have named, until a peer has answered there.
//!
//! A member of a network can name any address as its own, and so can many members. Such an address is
//! unconfirmed: handshake messages and probes to it are counted by IPv4 address, or by /64 of IPv6, for all
//! peers together (docs/protocol/security.md, P28).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Bytes that may go to an address at once, with IP and UDP headers.
const BURST: u64 = 4_096;
/// Bytes that may go to it in an hour.
const HOUR: u64 = 16_384;
/// The time after which one more byte may, in ms.
const BYTE: u64 = 3_600_000 / (HOUR - BURST) + 1;
/// Addresses whose bytes are counted. Nothing goes to further ones.
const COUNTED: usize = 4_096;

/// The addresses that only other nodes have named, and what went there.
#[derive(Debug, Default)]
pub(crate) struct Unconfirmed {
    addresses: BTreeSet<IpAddr>,
    /// When each address has its whole burst again, in ms.
    full: BTreeMap<IpAddr, u64>,
}

impl Unconfirmed {
    /// Replaces the addresses. What went to them stays counted.
    pub(crate) fn set(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.addresses = addresses.into_iter().collect();
    }

    /// Whether a UDP payload of `len` bytes may go to `to`, which then counts.
    pub(crate) fn admits(&mut self, now: u64, to: SocketAddr, len: usize) -> bool {
        if self.addresses.is_empty() || !self.addresses.contains(&to.ip().to_canonical()) {
            return true;
        }
        let place = place(to.ip());
        if self.full.len() >= COUNTED && !self.full.contains_key(&place) {
            self.full.retain(|_, full| *full > now);
            if self.full.len() >= COUNTED {
                return false;
            }
        }
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let full = self.full.entry(place).or_default();
        let next = (*full).max(now) + (len as u64 + headers) * BYTE;
        let admitted = next <= now + BURST * BYTE;
        if admitted {
            *full = next;
        }
        admitted
    }
}

/// What is counted together.
fn place(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Bytes with headers that go to `to` until `until`, if 114 bytes are ready each second.
    fn bytes(unconfirmed: &mut Unconfirmed, to: &[SocketAddr], from: u64, until: u64) -> u64 {
        let mut bytes = 0;
        for now in (from..until).step_by(1_000) {
            for to in to.iter().filter(|to| unconfirmed.admits(now, **to, 114)) {
                bytes += 114 + if to.is_ipv4() { 28 } else { 48 };
            }
        }
        bytes
    }

    #[test]
    fn an_address_gets_4_kb_at_once_and_16_kb_in_an_hour() {
        let mut unconfirmed = Unconfirmed::default();
        let ports: Vec<SocketAddr> = (1..50).map(|port| SocketAddr::from(([203, 0, 113, 1], port))).collect();
        unconfirmed.set([ports[0].ip()]);
        let first = bytes(&mut unconfirmed, &ports, 0, 1_000);
        assert!((3_900..=BURST).contains(&first), "{first}");
        let hour = first + bytes(&mut unconfirmed, &ports, 1_000, 3_600_000);
        assert!((15_900..=HOUR).contains(&hour), "{hour}");
        let hosts = ["[2001:db8::1]:1", "[2001:db8::2]:1"].map(at);
        unconfirmed.set(hosts.map(|at| at.ip()));
        assert!(bytes(&mut unconfirmed, &hosts, 0, 3_600_000) <= HOUR);
    }

    #[test]
    fn other_addresses_are_free() {
        let mut unconfirmed = Unconfirmed::default();
        let to = [at("203.0.113.1:1")];
        assert_eq!(bytes(&mut unconfirmed, &to, 0, 100_000), 100 * 142);
        unconfirmed.set([at("203.0.113.2:1").ip()]);
        assert_eq!(bytes(&mut unconfirmed, &to, 0, 100_000), 100 * 142);
    }

    #[test]
    fn names_that_change_gain_nothing_and_take_bounded_memory() {
        let mut unconfirmed = Unconfirmed::default();
        let victim = at("203.0.113.1:1");
        let mut total = 0;
        for round in 0..60 {
            unconfirmed.set([victim.ip()]);
            total += bytes(&mut unconfirmed, &[victim], round * 60_000, round * 60_000 + 30_000);
            unconfirmed.set([]);
        }
        assert!(total <= HOUR, "{total}");
        for n in 0..10_000_u32 {
            let to = SocketAddr::from((n.to_be_bytes(), 1));
            unconfirmed.set([to.ip()]);
            unconfirmed.admits(4_000_000, to, 114);
            assert!(unconfirmed.full.len() <= COUNTED);
        }
    }
}
