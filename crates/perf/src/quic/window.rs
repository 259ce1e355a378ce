//! The limit on datagrams in flight: slow start, then one more each round trip, and a reduction by
//! a factor on loss.
//!
//! It has the shape of RFC 9002, section 7, without its details: no recovery of single datagrams,
//! no probes, no persistent congestion. It finds the rate of a path, and backs off from one that it
//! overfills.

/// The initial window, in datagrams (RFC 9002, section 7.2).
const INITIAL: f64 = 10.0;

/// The minimum (the same section).
const MIN: f64 = 2.0;

/// The maximum, in datagrams: a second of 150 Mbit/s, or 8 ms of 20 Gbit/s.
const MAX: f64 = 16_384.0;

/// The factor by which loss reduces the window: that of CUBIC (RFC 9438, section 4.6), which QUIC
/// stacks use.
const BETA: f64 = 0.7;

/// Pacing: a window is sent in four fifths of a round trip (RFC 9002, section 7.7).
const AHEAD: f64 = 1.25;

/// Minimum time without answers after which everything in flight is given up, in ns.
const SILENCE: u64 = 200_000_000;

/// The receiver's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// The sender's time in the datagram received last, ns.
    pub time: u64,
    /// The highest number received.
    pub highest: u64,
    /// Different numbers received.
    pub datagrams: u64,
}

/// The sender's window. Pure: times are ns of the sender's clock, numbers begin with 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    size: f64,
    /// Below it the window doubles in a round trip.
    threshold: f64,
    sent: u64,
    passed: u64,
    /// Numbers that were missing at the last feedback.
    missing: u64,
    /// Numbers known to be lost.
    lost: u64,
    /// Loss up to this number has already reduced the window.
    reduced: u64,
    rtt: Option<u64>,
    heard: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            size: INITIAL,
            threshold: MAX,
            sent: 0,
            passed: 0,
            missing: 0,
            lost: 0,
            reduced: 0,
            rtt: None,
            heard: 0,
        }
    }
}

impl Window {
    /// Number of datagrams that may be sent now.
    #[must_use]
    pub fn room(&self) -> u64 {
        (self.size as u64).saturating_sub(self.sent - self.passed)
    }

    /// The window in datagrams.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The interval between two datagrams, ns; `None` until a round trip is known.
    #[must_use]
    pub fn gap(&self) -> Option<u64> {
        Some((self.rtt? as f64 / (self.size * AHEAD)) as u64)
    }

    /// Registers `count` datagrams as sent. Returns the number of the first.
    pub fn take(&mut self, now: u64, count: u64) -> u64 {
        if self.sent == self.passed {
            // No answer was due until now.
            self.heard = now;
        }
        self.sent += count;
        self.sent + 1 - count
    }

    /// Takes the last `count` registered datagrams back, as they were not sent.
    pub fn put_back(&mut self, count: u64) {
        self.sent = self.sent.saturating_sub(count).max(self.passed);
    }

    /// Processes feedback. Impossible and outdated values are ignored.
    pub fn hear(&mut self, now: u64, feedback: Feedback) {
        if feedback.highest > self.sent || feedback.highest < self.passed || feedback.time > now {
            return;
        }
        let was_used = (self.sent - self.passed) as f64 >= self.size / 2.0;
        let new = feedback.highest - self.passed;
        self.heard = now;
        self.passed = feedback.highest;
        let sample = now - feedback.time;
        self.rtt = Some(self.rtt.map_or(sample, |rtt| rtt - rtt / 8 + sample / 8));
        let missing = feedback.highest.saturating_sub(feedback.datagrams);
        // A datagram that was only reordered arrives by the next feedback.
        let lost = missing.min(std::mem::replace(&mut self.missing, missing));
        let is_loss = lost > std::mem::replace(&mut self.lost, lost);
        if is_loss && self.passed > self.reduced {
            self.reduced = self.sent;
            self.size = (self.size * BETA).max(MIN);
            self.threshold = self.size;
        } else if !is_loss && was_used {
            let more = if self.size < self.threshold {
                new as f64
            } else {
                new as f64 / self.size
            };
            self.size = (self.size + more).min(MAX);
        }
    }

    /// Gives up everything in flight if there was no feedback for too long. Returns true if it did.
    pub fn give_up(&mut self, now: u64) -> bool {
        let limit = self.rtt.unwrap_or(0).saturating_mul(3).max(SILENCE);
        let silent = self.sent > self.passed && now.saturating_sub(self.heard) > limit;
        if silent {
            self.passed = self.sent;
            self.reduced = self.sent;
            self.threshold = (self.size * BETA).max(MIN);
            self.size = MIN;
            self.heard = now;
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn said(time: u64, highest: u64, missing: u64) -> Feedback {
        Feedback {
            time,
            highest,
            datagrams: highest - missing,
        }
    }

    /// All numbers so far arrive, `ms` later.
    fn round(window: &mut Window, now: &mut u64, ms: u64) {
        let room = window.room();
        let first = window.take(*now, room);
        let (sent, missing) = (*now, window.missing);
        *now += ms * MS;
        window.hear(*now, said(sent, first + room - 1, missing));
    }

    #[test]
    fn it_doubles_until_loss_and_then_grows_by_one() {
        let (mut window, mut now) = (Window::default(), MS);
        for size in [20, 40, 80] {
            round(&mut window, &mut now, 10);
            assert_eq!((window.size(), window.room()), (size, size));
        }
        // 80 in 8 ms of 10.
        assert_eq!(window.gap(), Some(100_000));
        // Two of 80 are missing, also in the next feedback.
        let first = window.take(now, 80);
        window.hear(now + 10 * MS, said(now, first + 39, 2));
        assert_eq!(window.size(), 120, "not yet known to be lost");
        window.hear(now + 10 * MS, said(now, first + 79, 2));
        assert_eq!(window.size(), 84);
        now += 10 * MS;
        for size in [85, 86, 87] {
            round(&mut window, &mut now, 10);
            assert_eq!(window.size(), size);
        }
    }

    #[test]
    fn one_loss_in_a_window_is_one_reduction() {
        let mut window = Window::default();
        window.take(MS, 10);
        for (highest, missing) in [(2, 1), (3, 1), (5, 2), (6, 2), (8, 3), (10, 3)] {
            window.hear(2 * MS, said(MS, highest, missing));
        }
        assert_eq!(window.size(), 8, "12 by slow start, then seven tenths once");
        window.take(2 * MS, 8);
        for (highest, missing) in [(12, 4), (13, 4)] {
            window.hear(3 * MS, said(2 * MS, highest, missing));
        }
        assert_eq!(window.size(), 6);
    }

    #[test]
    fn reordering_is_not_loss() {
        let mut window = Window::default();
        window.take(MS, 10);
        // 5 arrives before 3 and 4, which arrive a moment later; 9 arrives before 8.
        for (highest, missing) in [(5, 2), (6, 0), (9, 1), (10, 0)] {
            window.hear(2 * MS, said(MS, highest, missing));
        }
        assert_eq!((window.lost, window.size()), (0, 15));
    }

    #[test]
    fn silence_gives_up_what_is_under_way() {
        let mut window = Window::default();
        assert!(!window.give_up(9_000 * MS), "nobody owes an answer");
        window.take(9_000 * MS, 10);
        assert_eq!(window.room(), 0);
        assert!(!window.give_up(9_200 * MS));
        assert!(window.give_up(9_201 * MS));
        assert_eq!((window.room(), window.size()), (2, 2));
        assert_eq!(window.take(9_201 * MS, 2), 11);
    }

    #[test]
    fn an_unused_window_does_not_grow_and_nonsense_is_ignored() {
        let mut window = Window::default();
        window.take(0, 2);
        window.hear(MS, said(0, 2, 0));
        assert_eq!(window.size(), 10);
        let before = window.clone();
        window.hear(MS, said(0, 3, 0));
        window.hear(MS, said(0, 1, 0));
        window.hear(MS, said(2 * MS, 2, 0));
        assert_eq!(window, before);
        window.take(MS, 4);
        window.put_back(3);
        assert_eq!((window.sent, window.room()), (3, 9));
    }

    proptest! {
        /// Whatever a receiver reports, no more is in flight than the window allows, and the window
        /// stays within its bounds.
        #[test]
        fn never_more_than_the_window(steps in proptest::collection::vec((0_u64..60, 0_u64..400, 0_u64..50), 1..300)) {
            let (mut window, mut now) = (Window::default(), 0);
            for (taken, highest, missing) in steps {
                now += MS;
                let count = taken.min(window.room());
                let first = window.take(now, count);
                prop_assert_eq!(first + count, window.sent + 1);
                // The window may have shrunk below what is in flight; then nothing is sent.
                prop_assert!(count == 0 || window.sent - window.passed <= window.size());
                let highest = window.passed + highest.min(2 * (window.sent - window.passed));
                window.hear(now, said(now - MS, highest, missing.min(highest)));
                window.give_up(now + 150 * MS);
                prop_assert!((MIN..=MAX).contains(&window.size));
                prop_assert!(window.passed <= window.sent);
            }
        }
    }
}
