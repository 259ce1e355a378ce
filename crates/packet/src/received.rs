//! The datagrams of one receive, and the outcome of each.

use std::ops::Range;

use weft_wire::fast::HEADROOM;

use crate::checksum::Checksum;

/// The outcome of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// An IP packet for the TUN, at this range of the buffer, and the state of its checksum.
    Packet(Range<usize>, Checksum),
    /// Nothing for the TUN: the datagram was a message, or was dropped and counted.
    Done,
}

/// Datagrams one behind the other, of `step` bytes each but the last, and how many of them are
/// processed.
///
/// The [`HEADROOM`] bytes in front of each may be overwritten. Those of the first are spare. Those
/// of any other are the end of the datagram before it, and only its tag lies there.
pub(crate) struct Received<'a> {
    room: &'a mut [u8],
    step: usize,
    at: usize,
}

impl<'a> Received<'a> {
    /// Wraps the datagrams in `room`, which has [`HEADROOM`] spare bytes in front of the first.
    pub(crate) fn new(room: &'a mut [u8], step: usize) -> Self {
        let step = step.max(1);
        Self { room, step, at: 0 }
    }

    /// Returns the number of remaining datagrams.
    pub(crate) fn count(&self) -> usize {
        self.len().div_ceil(self.step)
    }

    /// Returns the first remaining datagram.
    #[inline]
    pub(crate) fn head(&mut self) -> Option<&mut [u8]> {
        let end = self.head_end();
        self.room
            .get_mut(HEADROOM + self.at..HEADROOM + end)
            .filter(|head| !head.is_empty())
    }

    /// Returns the first remaining datagram behind its [`HEADROOM`] bytes, and the offset of these
    /// in the whole room.
    #[inline]
    pub(crate) fn head_in_room(&mut self) -> (usize, &mut [u8]) {
        let end = self.head_end();
        let head = self.room.get_mut(self.at..HEADROOM + end);
        (self.at, head.unwrap_or_default())
    }

    /// Marks the first remaining datagram as processed.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.at = self.head_end();
    }

    /// Marks the next `bytes`, which are whole datagrams, as processed.
    pub(crate) fn skip_bytes(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.total());
    }

    /// Returns the bytes of the remaining datagrams, and the length of each but the last.
    pub(crate) fn rest(&mut self) -> (&mut [u8], usize) {
        let rest = self.room.get_mut(HEADROOM + self.at..).unwrap_or_default();
        (rest, self.step)
    }

    fn len(&self) -> usize {
        self.total() - self.at
    }

    #[inline]
    fn total(&self) -> usize {
        self.room.len().saturating_sub(HEADROOM)
    }

    #[inline]
    fn head_end(&self) -> usize {
        self.at.saturating_add(self.step).min(self.total())
    }
}
