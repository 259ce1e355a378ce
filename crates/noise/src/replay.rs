//! The anti-replay window: each counter is accepted once, and late ones while they are in the
//! window.
//!
//! A bitmap over the last [`WINDOW`] counters, kept as a ring in the manner of RFC 6479: a
//! counter's bit stays at `counter mod WINDOW`, so advancing the window clears the bits that come
//! into use instead of shifting all. The ring is allocated when counters need it.

use std::fmt;

use thiserror::Error;

/// How many counters the window spans, the highest accepted one included.
///
/// FIPS keeps 2,048; the window's size is not visible to the peer.
pub const WINDOW: u64 = 8192;

const WORDS: usize = (WINDOW / 64) as usize;
/// Words that hold the first counters without the ring. Keys of an idle peer need no more: it sends
/// a frame every few seconds, and keys are replaced every two minutes.
const FIRST_WORDS: usize = 2;
/// The first words hold the counters below this.
const FIRST: u64 = FIRST_WORDS as u64 * 64;

/// Why a counter is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplayError {
    /// The counter was accepted before.
    #[error("this counter has been accepted before")]
    Replayed,
    /// The counter is [`WINDOW`] or more below the highest accepted one, outside the window.
    #[error("this counter is too far behind the newest one")]
    TooOld,
}

/// The record of which of the last [`WINDOW`] counters were accepted.
///
/// Call [`check`](Self::check) before the costly opening of a frame, and [`accept`](Self::accept)
/// only after its tag has been verified; otherwise a forged frame could advance the window.
#[derive(Clone)]
pub struct ReplayWindow {
    highest: u64,
    seen: Seen,
}

/// A counter's bit is set if it was accepted.
#[derive(Clone)]
enum Seen {
    /// Bit `c` for counter `c`, while all counters are below [`FIRST`].
    First([u64; FIRST_WORDS]),
    /// Bit `c % WINDOW` for counter `c` of the current window.
    Ring(Box<[u64; WORDS]>),
}

impl ReplayWindow {
    /// A window without an accepted counter.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            highest: 0,
            seen: Seen::First([0; FIRST_WORDS]),
        }
    }

    /// Checks whether `counter` could be accepted now. Changes nothing.
    ///
    /// # Errors
    ///
    /// The reason, as a [`ReplayError`].
    pub fn check(&self, counter: u64) -> Result<(), ReplayError> {
        if counter > self.highest {
            return Ok(());
        }
        if self.highest - counter >= WINDOW {
            return Err(ReplayError::TooOld);
        }
        let word = match &self.seen {
            // All of these are at most the highest.
            Seen::First(words) => words[counter as usize / 64 % FIRST_WORDS],
            Seen::Ring(words) => words[word(counter)],
        };
        if word & bit(counter) != 0 {
            return Err(ReplayError::Replayed);
        }
        Ok(())
    }

    /// Marks `counter` as accepted.
    ///
    /// It checks again, because two copies of one frame in a batch both pass [`check`](Self::check)
    /// before either is accepted.
    ///
    /// # Errors
    ///
    /// The reason, as for [`check`](Self::check); the window is unchanged and the frame must be
    /// dropped.
    pub fn accept(&mut self, counter: u64) -> Result<(), ReplayError> {
        self.check(counter)?;
        match &mut self.seen {
            Seen::Ring(words) => {
                if counter > self.highest {
                    advance(words, self.highest, counter);
                    self.highest = counter;
                }
                words[word(counter)] |= bit(counter);
            }
            Seen::First(words) if counter < FIRST => {
                words[counter as usize / 64 % FIRST_WORDS] |= bit(counter);
                self.highest = self.highest.max(counter);
            }
            Seen::First(words) => {
                let ring = ring_after(words, self.highest, counter);
                self.seen = Seen::Ring(ring);
                self.highest = counter;
            }
        }
        Ok(())
    }

    /// The highest counter accepted so far; 0 if none was.
    #[must_use]
    pub const fn highest(&self) -> u64 {
        self.highest
    }
}

/// Builds the ring for a first counter beyond the `first` ones, with that counter in it.
#[cold]
fn ring_after(first: &[u64; FIRST_WORDS], highest: u64, counter: u64) -> Box<[u64; WORDS]> {
    let mut words = Box::new([0; WORDS]);
    words[..FIRST_WORDS].copy_from_slice(first);
    advance(&mut words, highest, counter);
    words[word(counter)] |= bit(counter);
    words
}

/// Advances the upper end of the ring's window to `to`, above the present one, and clears the bits
/// of the counters that leave the window.
fn advance(words: &mut [u64; WORDS], highest: u64, to: u64) {
    if to - highest >= WINDOW {
        *words = [0; WORDS];
    } else {
        forget(words, highest + 1, to);
    }
}

/// Clears the bits of `first..=last`, a word at a time.
fn forget(words: &mut [u64; WORDS], first: u64, last: u64) {
    let mut at = first;
    loop {
        let offset = at % 64;
        let more = (63 - offset).min(last - at);
        let mask = (u64::MAX >> (63 - more)) << offset;
        words[word(at)] &= !mask;
        if last - at == more {
            return;
        }
        at += more + 1;
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayWindow")
            .field("highest", &self.highest)
            .finish_non_exhaustive()
    }
}

const fn word(counter: u64) -> usize {
    (counter % WINDOW / 64) as usize
}

const fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_types, reason = "a model needs no order")]

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The slow model: it remembers every counter.
    #[derive(Default)]
    struct Reference {
        highest: u64,
        seen: HashSet<u64>,
    }

    impl Reference {
        fn accept(&mut self, counter: u64) -> Result<(), ReplayError> {
            if counter < self.highest && self.highest - counter >= WINDOW {
                return Err(ReplayError::TooOld);
            }
            if !self.seen.insert(counter) {
                return Err(ReplayError::Replayed);
            }
            self.highest = self.highest.max(counter);
            Ok(())
        }
    }

    fn agree(counters: impl IntoIterator<Item = u64>) {
        let (mut window, mut model) = (ReplayWindow::new(), Reference::default());
        for counter in counters {
            let expected = model.accept(counter);
            assert_eq!(window.check(counter), expected, "check of {counter}");
            assert_eq!(window.accept(counter), expected, "accept of {counter}");
            assert_eq!(window.highest(), model.highest);
        }
    }

    #[test]
    fn starts_with_counter_zero_open() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.accept(0), Ok(()));
        assert_eq!(window.accept(0), Err(ReplayError::Replayed));
    }

    #[test]
    fn edges_of_the_window() {
        let mut window = ReplayWindow::new();
        window.accept(WINDOW).unwrap();
        assert_eq!(window.check(0), Err(ReplayError::TooOld));
        assert_eq!(window.check(1), Ok(()));
        assert_eq!(window.check(WINDOW), Err(ReplayError::Replayed));
        // Counter 1 shares its bit with WINDOW + 1, which must not count as accepted.
        window.accept(1).unwrap();
        assert_eq!(window.accept(WINDOW + 1), Ok(()));
        assert_eq!(window.check(1), Err(ReplayError::TooOld));
    }

    #[test]
    fn the_first_counters_go_over_into_the_ring() {
        let most = FIRST;
        for last in most - 3..most {
            for next in (most - 2..most + 3)
                .chain(WINDOW - 2..WINDOW + 3)
                .chain([WINDOW + last, WINDOW + last + 1])
            {
                let first = (0..=last).filter(|counter| counter % 3 != 0);
                agree(first.chain([next]).chain(0..most + 2).chain(next - 70..next));
            }
        }
    }

    #[test]
    fn an_idle_peer_costs_no_ring() {
        let mut window = ReplayWindow::new();
        // One frame a second for two minutes.
        for counter in 0..128 {
            window.accept(counter).unwrap();
        }
        assert!(matches!(window.seen, Seen::First(_)));
        assert!(size_of::<ReplayWindow>() <= 32);
    }

    #[test]
    fn last_counters_there_are() {
        let top = u64::MAX;
        agree([
            top - WINDOW,
            top - 1,
            top - WINDOW,
            top - 1,
            top,
            top,
            top - WINDOW,
            top - WINDOW + 1,
            0,
        ]);
    }

    #[test]
    fn every_step_length_clears_exactly_what_falls_out() {
        for step in (1..200).chain(WINDOW - 70..WINDOW + 70) {
            let mut counters: Vec<u64> = (0..WINDOW).collect();
            let next = WINDOW - 1 + step;
            counters.push(next);
            counters.extend(step.saturating_sub(3)..step + 3);
            counters.extend(next - 70..next);
            agree(counters);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn same_as_the_reference(
            start in prop_oneof![Just(0), 0..3 * WINDOW, Just(u64::MAX - 2 * WINDOW), any::<u64>()],
            steps in prop::collection::vec(
                prop_oneof![
                    6 => -80_i64..80,
                    2 => -(WINDOW as i64) - 70..-(WINDOW as i64) + 70,
                    2 => WINDOW as i64 - 70..WINDOW as i64 + 70,
                    1 => any::<i64>(),
                ],
                1..400,
            ),
        ) {
            let mut at = start;
            agree(steps.into_iter().map(|step| {
                at = at.saturating_add_signed(step);
                at
            }));
        }
    }
}
