//! Several lanes of one node, each on a thread of its own, and what each of them owns.
//!
//! FIPS has one counter and one replay window for a link and for a session. So the first lane alone
//! owns those, and with them the messages that lead to decisions, and all traffic through other
//! nodes. Fast frames between neighbours have keys for each lane. The receiver index names the
//! keys, and its low bits are the number of the lane. So a frame shows its owner
//! ([`Place::owner`]), to the lane as to the kernel, which picks the socket by it. A lane leaves
//! packets that it cannot send itself to the first ([`Outbound::HandOver`]).
//! docs/decisions/0015-lanes.md.

use weft_wire::fast::{index_of, is_fast};

use crate::lane::Lane;
use crate::sender::Sender;
use crate::tables::Egress;
use crate::train::Transmit;

/// The largest number of lanes of a node: as many receiver indices as capabilities hold.
pub const MAX_LANES: u8 = 16;
/// The bits of this node's receiver indices that name the lane.
pub const LANE_MASK: u32 = MAX_LANES as u32 - 1;

/// How long no packet for a node may have gone to the first lane before this one sends by itself,
/// in ms. The packets that went to the first lane have arrived by then, so this lane does not
/// overtake them.
const SETTLE: u64 = 20;

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

/// The outcome of a packet from the TUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// The packet was sent, waits, or was dropped and counted.
    Done,
    /// The lane left the packet unchanged; the caller passes it to the lane of this number.
    HandOver(u8),
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
    pub const fn new(number: u8, count: u8) -> Option<Self> {
        if number < count && count <= MAX_LANES {
            Some(Self { number, count })
        } else {
            None
        }
    }

    /// Returns the number of the lane, from 0.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.number
    }

    pub(crate) const fn is_first(self) -> bool {
        self.number == 0
    }

    pub(crate) const fn is_alone(self) -> bool {
        self.count == 1
    }

    /// Returns the lane that a datagram names as its owner. Nothing of the datagram is
    /// authenticated.
    #[must_use]
    pub fn owner(self, datagram: &[u8]) -> u8 {
        let named = match index_of(datagram) {
            Some(index) => lane_of(index),
            None => 0,
        };
        if named < self.count { named } else { 0 }
    }

    /// Returns the lane that a datagram is for, if it is another one.
    pub(crate) fn other_owner(self, datagram: &[u8]) -> Option<u8> {
        if self.is_alone() || self.is_first() && !is_fast(datagram) {
            return None;
        }
        Some(self.owner(datagram)).filter(|owner| *owner != self.number)
    }
}

/// Datagrams of one receive for other lanes. They are copies, since a datagram that is opened may
/// overwrite the end of the one before it.
#[derive(Default)]
pub(crate) struct Foreign {
    bytes: Vec<u8>,
    /// The owner and the end of each run of datagrams.
    runs: Vec<(u8, usize)>,
}

impl Foreign {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    pub(crate) fn push(&mut self, owner: u8, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some((last, so_far)) if *last == owner => *so_far = end,
            _ => self.runs.push((owner, end)),
        }
    }

    fn runs(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.runs.iter().scan(0, |start, (owner, end)| {
            let run = self.bytes.get(std::mem::replace(start, *end)..*end);
            Some((*owner, run.unwrap_or_default()))
        })
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Returns the lane that sends packets for a node, if it is another one. That is so if this
    /// lane has no fast keys or no path for them, and then for [`SETTLE`], so that its packets do
    /// not overtake the earlier ones.
    pub(crate) fn yields(&mut self, egress: Egress) -> Option<u8> {
        if self.place.is_first() {
            return None;
        }
        let (now, session) = (self.now, self.tables.sessions.get_mut(egress.session)?);
        if egress.frames.is_fast() && session.yielded.is_none_or(|at| now.saturating_sub(at) >= SETTLE) {
            return None;
        }
        session.yielded = Some(now);
        self.out.counters.handed_out += 1;
        Some(0)
    }
}

impl Lane {
    /// Returns the datagrams of the last [`Lane::inbound_train`] that are for other lanes: the
    /// owner, and the datagrams as received, several for one lane one behind the other.
    pub fn foreign(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.foreign.runs()
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
