//! The datagrams of one receive.

use weft_wire::fast::HEADROOM;

/// Datagrams one behind the other, of `step` bytes each but the last, and how many of them are done with.
///
/// The [`HEADROOM`] bytes in front of each may be overwritten: those of the first are spare, those of any other are the end
/// of the datagram before it, of which only the tag lies there.
pub(crate) struct Received<'a> {
    room: &'a mut [u8],
    step: usize,
    at: usize,
}

impl<'a> Received<'a> {
    /// `room` has [`HEADROOM`] spare bytes in front of the first datagram.
    pub(crate) fn new(room: &'a mut [u8], step: usize) -> Self {
        let step = step.max(1);
        Self { room, step, at: 0 }
    }

    /// The datagrams that are left.
    pub(crate) fn count(&self) -> usize {
        self.len().div_ceil(self.step)
    }

    /// The first datagram that is left.
    #[inline]
    pub(crate) fn head(&mut self) -> Option<&mut [u8]> {
        let end = self.head_end();
        self.room
            .get_mut(HEADROOM + self.at..HEADROOM + end)
            .filter(|head| !head.is_empty())
    }

    /// The first datagram that is left, behind its [`HEADROOM`] bytes, and where in the whole room these begin.
    #[inline]
    pub(crate) fn head_in_room(&mut self) -> (usize, &mut [u8]) {
        let end = self.head_end();
        let head = self.room.get_mut(self.at..HEADROOM + end);
        (self.at, head.unwrap_or_default())
    }

    /// Is done with the first datagram that is left.
    #[inline]
    pub(crate) fn skip(&mut self) {
        self.at = self.head_end();
    }

    /// Is done with the next `bytes`, which are whole datagrams.
    pub(crate) fn skip_bytes(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.total());
    }

    /// The bytes of the datagrams that are left, and the length of each but the last.
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
