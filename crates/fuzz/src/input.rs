//! Choices that are read from bytes.

use std::ops::Range;

/// Reads choices from the front of a byte slice. Behind its end every choice is the first one, so
/// any bytes are a complete run, and one byte more or less changes little.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.rest.len());
        let (taken, rest) = self.rest.split_at(n);
        out[..n].copy_from_slice(taken);
        self.rest = rest;
        out
    }

    pub(super) fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(super) fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// A number below `n`, which is at most 256; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// Chooses from a list, counted from its end, so that the latest entry of a growing list is the
    /// first choice.
    pub(super) fn latest<'t, T>(&mut self, list: &'t [T]) -> Option<&'t T> {
        let back = usize::from(self.u16()) % list.len().max(1);
        list.iter().rev().nth(back)
    }

    pub(super) fn within(&mut self, range: Range<usize>) -> usize {
        range.start + usize::from(self.u16()) % range.len().max(1)
    }

    /// Up to 255 bytes.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let n = usize::from(self.u8()).min(self.rest.len());
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        taken
    }

    /// Corrupts a frame: shorter, longer, or with a byte changed.
    pub(super) fn spoil(&mut self, frame: &mut Vec<u8>) {
        match self.below(3) {
            0 => frame.truncate(self.within(0..frame.len())),
            1 => frame.extend(self.bytes()),
            _ => {
                let at = self.within(0..frame.len());
                frame[at] ^= self.u8();
            }
        }
    }

    /// All remaining bytes.
    pub(super) fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}
