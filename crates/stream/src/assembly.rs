//! A document whose bytes arrive in any order, some of them twice.

/// Pieces ahead of a gap that are kept track of. More than the window has segments of default size
/// cannot wait, unless they are smaller than that or every second one was lost.
const MAX_AHEAD: usize = 64;

/// Bytes of a document, from its start.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    bytes: Vec<u8>,
    /// All bytes before this are there.
    ready: usize,
    /// What is there behind a gap: ordered, neither touching nor overlapping.
    ahead: Vec<(usize, usize)>,
    /// Where the document ends, if that is known.
    end: Option<usize>,
}

impl Assembly {
    /// Returns the number of bytes that are there without a gap.
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Returns whether all bytes are there up to the end.
    pub(crate) fn complete(&self) -> bool {
        self.end == Some(self.ready)
    }

    /// Returns the document, or what there is of it.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.bytes.truncate(self.ready);
        std::mem::take(&mut self.bytes)
    }

    /// Makes room for documents of `len` bytes, so that no insertion up to there allocates.
    pub(crate) fn reserve(&mut self, len: usize) {
        self.bytes.reserve_exact(len.saturating_sub(self.bytes.len()));
    }

    /// Takes `payload`, which begins at `start`; `last` says that the document ends behind it. The
    /// caller has bounded both. A second, different end and bytes behind an end are ignored.
    pub(crate) fn insert(&mut self, start: usize, payload: &[u8], last: bool) {
        if last && self.end.is_none() && start + payload.len() >= self.ready {
            self.end = Some(start + payload.len());
        }
        let end = (start + payload.len()).min(self.end.unwrap_or(usize::MAX));
        let from = start.max(self.ready);
        let Some(new) = payload
            .get(from - start..end.saturating_sub(start))
            .filter(|new| !new.is_empty())
        else {
            return;
        };
        // The pieces that this one touches become one with it.
        let first = self.ahead.partition_point(|&(_, behind)| behind < from);
        let after = self.ahead.partition_point(|&(before, _)| before <= end);
        if from > self.ready && first == after && self.ahead.len() >= MAX_AHEAD {
            return;
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        if let Some(place) = self.bytes.get_mut(from..end) {
            place.copy_from_slice(new);
        }
        let touched = self.ahead.drain(first..after);
        let piece = touched.fold((from, end), |piece, other| (piece.0.min(other.0), piece.1.max(other.1)));
        if piece.0 == self.ready {
            self.ready = piece.1;
        } else {
            self.ahead.insert(first, piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_are_bounded() {
        let mut assembly = Assembly::default();
        for gap in 0..1_000 {
            assembly.insert(2 * gap + 1, &[7], false);
        }
        assert_eq!(assembly.ahead.len(), MAX_AHEAD);
        assembly.insert(0, &[7; 2_001], true);
        assert_eq!((assembly.ready(), assembly.ahead.len()), (2_001, 0));
        assert!(assembly.complete());
    }

    #[test]
    fn an_end_stays_where_it_is() {
        let mut assembly = Assembly::default();
        assembly.insert(2, &[3, 4, 5, 6], false);
        assembly.insert(2, &[3], true);
        assembly.insert(0, &[1, 2, 3, 4], true);
        assert!(!assembly.complete(), "more arrived than the first end allows");
        let mut assembly = Assembly::default();
        assembly.insert(2, &[3], true);
        assembly.insert(0, &[1, 2, 3, 4], true);
        assert!(assembly.complete());
        assert_eq!(assembly.take(), [1, 2, 3]);
    }

    proptest! {
        /// Every order of overlapping pieces gives the document.
        #[test]
        fn any_order_gives_the_document(
            len in 0_usize..400,
            pieces in prop::collection::vec((0_usize..400, 0_usize..90), 0..80),
        ) {
            let document: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut assembly = Assembly::default();
            let mut there = vec![false; len];
            for (start, size) in pieces {
                let (start, end) = (start.min(len), (start + size).min(len));
                assembly.insert(start, &document[start..end.max(start)], end == len);
                there[start..end.max(start)].fill(true);
                prop_assert_eq!(assembly.ready(), there.iter().take_while(|there| **there).count());
            }
            let mut rest = (0..len).step_by(50).rev().peekable();
            if rest.peek().is_none() {
                assembly.insert(0, &[], true);
            }
            for start in rest {
                let end = (start + 50).min(len);
                assembly.insert(start, &document[start..end], end == len);
            }
            prop_assert!(assembly.complete());
            prop_assert_eq!(assembly.take(), document);
        }
    }
}
