//! How many bytes go to addresses that have not answered.
//!
//! An address is what it is on the wire, an IPv4 address or a /64 of IPv6, whichever peer named it
//! and however often.

use std::collections::BTreeMap;

use thiserror::Error;
use weft_wire::NodeAddr;

use crate::candidate::Prefix;

/// Bytes to one address within an hour, with IP and UDP headers, for all peers together.
pub const HOUR: u32 = 16_384;
/// Bytes to one address in one attempt, with IP and UDP headers.
pub const ATTEMPT: u32 = 4_096;
/// Pairs of an address and a peer that named it, of the last hour.
pub const PLACES: usize = 4_096;

/// Bytes are counted by slots of ten minutes. The present one and six before it hold an hour.
const SLOT: u64 = 600_000;
const SLOTS: usize = 7;

/// Why nothing is sent to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum OverBudget {
    /// [`ATTEMPT`] is spent.
    #[error("the bytes of the attempt to this address are spent")]
    Attempt,
    /// The part of [`HOUR`] that is the peer's is spent.
    #[error("the bytes of the hour to this address are spent")]
    Hour,
    /// The part of [`PLACES`] that is the peer's is taken.
    #[error("too many other addresses were probed within an hour")]
    Places,
}

/// The bytes of the last hour, by address and by the peer that named it.
///
/// A peer gets half of what others have left, of bytes to an address and of places alike. So one
/// that wastes what it gets leaves as much to the next one.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    places: BTreeMap<(Prefix, NodeAddr), Spent>,
    of_peer: BTreeMap<NodeAddr, usize>,
    /// The slot in which places were last made free.
    pruned: u64,
}

impl Budgets {
    /// Spends bytes on an address that `peer` named.
    ///
    /// # Errors
    /// [`OverBudget::Hour`] or [`OverBudget::Places`]: nothing is spent.
    pub(crate) fn spend(&mut self, now: u64, peer: NodeAddr, to: Prefix, bytes: u32) -> Result<(), OverBudget> {
        let slot = now / SLOT;
        if !self.places.contains_key(&(to, peer)) {
            self.make_place(slot, peer)?;
            self.places.insert((to, peer), Spent::default());
            *self.of_peer.entry(peer).or_default() += 1;
        }
        let (first, last) = (NodeAddr::new([0; 16]), NodeAddr::new([0xff; 16]));
        let place = self.places.range((to, first)..=(to, last));
        let others = place.filter(|((_, other), _)| *other != peer);
        let others: u32 = others.map(|(_, spent)| spent.total(slot)).sum();
        let own = self.places.entry((to, peer)).or_default();
        if own.total(slot) + bytes > HOUR.saturating_sub(others) / 2 {
            return Err(OverBudget::Hour);
        }
        own.add(slot, bytes);
        Ok(())
    }

    /// Returns the places that are taken.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    fn make_place(&mut self, slot: u64, peer: NodeAddr) -> Result<(), OverBudget> {
        if self.has_room(peer) {
            return Ok(());
        }
        // Once for each slot: a flood of names costs no more than one look through the table.
        if self.pruned != slot {
            self.pruned = slot;
            self.prune(slot);
        }
        if self.has_room(peer) {
            Ok(())
        } else {
            Err(OverBudget::Places)
        }
    }

    fn has_room(&self, peer: NodeAddr) -> bool {
        let own = self.of_peer.get(&peer).copied().unwrap_or(0);
        let others = self.places.len().saturating_sub(own);
        own < PLACES.saturating_sub(others) / 2
    }

    fn prune(&mut self, slot: u64) {
        self.places.retain(|_, spent| spent.total(slot) > 0);
        self.of_peer.clear();
        for (_, peer) in self.places.keys() {
            *self.of_peer.entry(*peer).or_default() += 1;
        }
    }
}

/// Bytes in the slots up to `slot`. [`HOUR`] fits into 16 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    bytes: [u16; SLOTS],
    slot: u64,
}

impl Spent {
    fn total(&self, slot: u64) -> u32 {
        // The slot `age` steps before the last one is still within the hour if it is among SLOTS.
        let gone = slot.saturating_sub(self.slot).min(SLOTS as u64) as usize;
        self.bytes
            .iter()
            .take(SLOTS - gone)
            .map(|bytes| u32::from(*bytes))
            .sum()
    }

    /// The first slot is the latest.
    fn add(&mut self, slot: u64, bytes: u32) {
        let gone = slot.saturating_sub(self.slot).min(SLOTS as u64) as usize;
        self.bytes.rotate_right(gone % SLOTS);
        self.bytes[..gone].fill(0);
        self.slot = self.slot.max(slot);
        self.bytes[0] = self.bytes[0].saturating_add(u16::try_from(bytes).unwrap_or(u16::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn peer(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    fn to(n: u32) -> Prefix {
        Prefix::of(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)))
    }

    #[test]
    fn a_peer_gets_half_of_what_others_have_left() {
        let mut budgets = Budgets::default();
        let mut spend = |peer| {
            let mut bytes = 0;
            while budgets.spend(0, peer, to(1), 52).is_ok() {
                bytes += 52;
            }
            bytes
        };
        let all = [1, 2, 3].map(|n| spend(peer(n)));
        assert_eq!(all, [8_164, 4_108, 2_028], "halves, in whole probes");
        assert_eq!(spend(peer(1)), 0);
    }

    #[test]
    fn a_peer_gets_half_of_the_free_places() {
        let mut budgets = Budgets::default();
        // Each peer names addresses of its own.
        let fill = |budgets: &mut Budgets, now, n: u8| {
            let first = 10_000 * u32::from(n);
            let all = first..first + 10_000;
            all.filter(|i| budgets.spend(now, peer(n), to(*i), 52).is_ok()).count()
        };
        assert_eq!(fill(&mut budgets, 0, 1), 2_048);
        assert_eq!(fill(&mut budgets, 0, 2), 1_024);
        assert_eq!(budgets.spend(0, peer(1), to(9_999), 52), Err(OverBudget::Places));
        assert_eq!(budgets.places(), 3_072);
        // What is an hour old makes room.
        assert_eq!(fill(&mut budgets, 5 * SLOT + SLOT - 1, 3), 512);
        assert_eq!(
            fill(&mut budgets, 7 * SLOT, 4),
            1_792,
            "half of what the third one left"
        );
    }

    proptest! {
        /// Against a list of all that was spent, at any hour.
        #[test]
        fn no_hour_has_more(steps in proptest::collection::vec((0u64..400_000, 0u8..4, 0u32..2), 0..600)) {
            let mut budgets = Budgets::default();
            let mut all: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            for (pause, who, address) in steps {
                now += pause / 20;
                if budgets.spend(now, peer(who), to(address), 500).is_ok() {
                    all.push((now, address));
                }
                let lately = all.iter().filter(|(at, to)| at + 3_600_000 > now && *to == address);
                prop_assert!(lately.count() * 500 <= HOUR as usize);
            }
        }
    }
}
