//! Several lanes of one node, each on a thread of its own, and what each of them owns.
//!
//! FIPS has one counter and one replay window for a link and for a session. So the first lane alone
//! owns those, and with them the messages that lead to decisions, and all traffic through other
//! nodes. Fast frames between neighbours have keys for each lane. The receiver index names the
//! keys, and its low bits are the number of the lane. So a frame shows its owner
//! ([`Place::owner`]), to the lane as to the kernel, which picks the socket by it.
//! docs/decisions/0015-lanes.md.

use weft_wire::fast::{index_of, is_fast};

/// The largest number of lanes of a node: as many receiver indices as capabilities hold.
pub const MAX_LANES: u8 = 16;
/// The bits of this node's receiver indices that name the lane.
pub const LANE_MASK: u32 = MAX_LANES as u32 - 1;

/// Returns the lane that a receiver index of this node belongs to.
#[must_use]
pub const fn lane_of(index: u32) -> u8 {
    (index & LANE_MASK) as u8
}

/// The number of a lane, and how many lanes the node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    number: u8,
    count: u8,
}

/// The lanes that a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The first lane, which owns links, FIPS's sessions, and relayed paths.
    First,
    /// The lane of this number.
    One(u8),
    /// All lanes but the first.
    Others,
    /// All lanes.
    All,
}

impl Place {
    /// The only lane of a node.
    pub const ALONE: Self = Self { number: 0, count: 1 };

    /// Makes lane `number` of `count`. Returns `None` if `count` is above [`MAX_LANES`], or
    /// `number` is not below `count`.
    #[must_use]
    #[inline]
    pub const fn new(number: u8, count: u8) -> Option<Self> {
        if number < count && count <= MAX_LANES {
            Some(Self { number, count })
        } else {
            None
        }
    }

    /// Returns the number of the lane, from 0.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u8 {
        self.number
    }

    /// Returns whether this is the first lane.
    #[must_use]
    #[inline]
    pub const fn is_first(self) -> bool {
        self.number == 0
    }

    /// Returns whether the node has no other lane.
    #[must_use]
    #[inline]
    pub const fn is_alone(self) -> bool {
        self.count == 1
    }

    /// Returns the lane that a datagram names as its owner. Nothing of the datagram is
    /// authenticated.
    #[must_use]
    #[inline]
    pub fn owner(self, datagram: &[u8]) -> u8 {
        let named = match index_of(datagram) {
            Some(index) => lane_of(index),
            None => 0,
        };
        if named < self.count { named } else { 0 }
    }

    /// Returns the lane that a datagram is for, if it is another one.
    #[must_use]
    #[inline]
    pub fn other_owner(self, datagram: &[u8]) -> Option<u8> {
        if self.is_alone() || self.is_first() && !is_fast(datagram) {
            return None;
        }
        Some(self.owner(datagram)).filter(|owner| *owner != self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_names_the_lane_and_the_first_gets_all_else() {
        let place = Place::new(1, 4).unwrap();
        let frame = |first: u8, index: u32| {
            let mut frame = [0; 40];
            frame[0] = first;
            frame[4..8].copy_from_slice(&index.to_le_bytes());
            frame
        };
        for lane in 0..4 {
            assert_eq!(place.owner(&frame(0xa0, 0xdead_bee0 | lane)), lane as u8);
            assert_eq!(place.owner(&frame(0xa4, 0xdead_bee0 | lane)), lane as u8);
            assert_eq!(place.owner(&frame(0x00, 0xdead_bee0 | lane)), 0);
            assert_eq!(place.owner(&frame(0x10, lane)), 0);
        }
        for lane in 4..16 {
            assert_eq!(place.owner(&frame(0xa0, lane)), 0, "a lane that does not exist");
        }
        assert_eq!(place.owner(&frame(0xa0, 1)[..7]), 0, "cut short");
        assert_eq!(place.owner(&[]), 0);
        assert_eq!(Place::new(4, 4), None);
        assert_eq!(Place::new(0, 17), None);
        assert_eq!(Place::new(15, MAX_LANES).map(Place::number), Some(15));
    }
}
