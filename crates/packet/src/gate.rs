//! What may come in before anything is authenticated: handshakes, at a bounded rate.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::bucket::{Bucket, Rate};

/// Handshakes that are looked at (FIPS: the same). A Diffie-Hellman costs about 0.1 ms, so this bounds it to 0.1 % of a core.
const RATE: Rate = Rate {
    per_second: 10,
    burst: 100,
};

/// Lets first handshake messages through to the core.
///
/// Source addresses prove nothing, but a flood from elsewhere must not keep out the peers that we know: hosts that we
/// expect to hear from have a bucket of their own.
#[derive(Debug)]
pub(crate) struct Gate {
    expected: BTreeSet<IpAddr>,
    known: Bucket,
    strangers: Bucket,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            expected: BTreeSet::new(),
            known: Bucket::new(RATE, 0),
            strangers: Bucket::new(RATE, 0),
        }
    }

    /// Replaces the hosts that we expect to hear from.
    pub(crate) fn expect(&mut self, hosts: impl IntoIterator<Item = IpAddr>) {
        self.expected = hosts.into_iter().collect();
    }

    /// Whether a first handshake message from this address is looked at.
    pub(crate) fn admits(&mut self, now: u64, from: SocketAddr) -> bool {
        let bucket = if self.expected.contains(&from.ip()) {
            &mut self.known
        } else {
            &mut self.strangers
        };
        bucket.take(RATE, now, 1) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_to_the_rate_and_leaves_room_for_peers() {
        let stranger = SocketAddr::from(([203, 0, 113, 9], 1));
        let peer = SocketAddr::from(([192, 0, 2, 1], 2121));
        let mut gate = Gate::new();
        gate.expect([peer.ip()]);
        let admitted = (0..100_000u64).filter(|i| gate.admits(i / 10, stranger)).count();
        assert_eq!(admitted, 199, "a burst of 100, then 10 a second for 9.999 s");
        assert!(gate.admits(10_000, peer));
    }
}
