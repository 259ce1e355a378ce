//! The memory of a lane: the flows of which it has just let a packet pass.

use super::flow_key::{Direction, FlowKey};

/// Places for flows, a power of two: 1 MiB for each lane.
const PLACES: usize = 16_384;
/// How long packets of a flow pass without a look into the table, in ms.
const REMEMBER: u64 = 1_000;

/// The flows that have passed lately. The hash of a flow is its place, and a new one displaces the
/// old. Its packets then cost a look into the table, no more.
pub(super) struct RecentFlows {
    hash_key: u64,
    places: Vec<Place>,
}

/// A flow, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Place {
    key: FlowKey,
    /// The end of the memory in each [`Direction`], in ms: the ends of a flow pass for reasons of
    /// their own.
    until: [u64; 2],
}

impl RecentFlows {
    pub(super) fn new(hash_key: u64) -> Self {
        let nothing = Place {
            key: FlowKey::NONE,
            until: [0; 2],
        };
        Self {
            hash_key,
            places: vec![nothing; PLACES],
        }
    }

    /// Makes a memory that never remembers.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self {
            hash_key: 0,
            places: Vec::new(),
        }
    }

    /// Whether a packet of a flow has passed lately in this direction.
    #[inline]
    pub(super) fn has(&self, now: u64, key: &FlowKey, direction: Direction) -> bool {
        let place = self.places.get(self.place(key));
        place.is_some_and(|place| place.key == *key && now < place.until[direction as usize])
    }

    /// Adds the flow of a packet that the table has let pass.
    pub(super) fn add(&mut self, now: u64, key: FlowKey, direction: Direction) {
        let at = self.place(&key);
        let Some(place) = self.places.get_mut(at) else { return };
        if place.key != key {
            *place = Place { key, until: [0; 2] };
        }
        place.until[direction as usize] = now + REMEMBER;
    }

    #[inline]
    fn place(&self, key: &FlowKey) -> usize {
        key.short_hash(self.hash_key) as usize % PLACES
    }
}
