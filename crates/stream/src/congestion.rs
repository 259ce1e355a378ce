//! How much may be on its way: Reno with NewReno's recovery (RFC 5681, RFC 6582).

/// Segments that may be sent at the start (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// No window of TCP/FIPS v1 is larger, in bytes.
const MAX: u32 = 65_535;
/// Acknowledgments of the same number after which a segment counts as lost.
const DUPLICATES: u32 = 3;

/// The congestion window of a connection. Positions count from the start of its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    mss: u32,
    window: u32,
    threshold: u32,
    duplicates: u32,
    /// Where sending was when the last loss was noticed. Earlier acknowledgments say nothing new.
    recover: u32,
    /// Whether one loss after the other is repaired until `recover`.
    recovering: bool,
}

impl Congestion {
    /// Returns the window of a new connection with segments of at most `mss` bytes.
    pub(crate) fn new(mss: u32) -> Self {
        Self {
            mss,
            window: INITIAL_SEGMENTS * mss,
            threshold: MAX,
            duplicates: 0,
            recover: 0,
            recovering: false,
        }
    }

    /// Returns how many bytes may be on their way.
    pub(crate) fn window(&self) -> u32 {
        self.window.max(self.mss)
    }

    /// Processes that `acked` bytes were acknowledged, now all before `una`. Returns whether the
    /// segment at `una` is to be sent again.
    pub(crate) fn acked(&mut self, una: u32, acked: u32) -> bool {
        self.duplicates = 0;
        if self.recovering {
            self.recovering = una < self.recover;
            if self.recovering {
                self.window = self.window.saturating_sub(acked).saturating_add(self.mss).min(MAX);
            } else {
                self.window = self.threshold;
            }
            return self.recovering;
        }
        let more = if self.window < self.threshold {
            acked.min(self.mss)
        } else {
            (self.mss * self.mss / self.window.max(1)).max(1)
        };
        self.window = self.window.saturating_add(more).min(MAX);
        false
    }

    /// Processes an acknowledgment that repeats `una` while `in_flight` bytes are on their way, up
    /// to `sent`. Returns whether the segment at `una` is to be sent again.
    pub(crate) fn duplicate(&mut self, una: u32, sent: u32, in_flight: u32) -> bool {
        if self.recovering {
            self.window = self.window.saturating_add(self.mss).min(MAX);
            return false;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        if self.duplicates != DUPLICATES || una < self.recover {
            return false;
        }
        self.threshold = (in_flight / 2).max(2 * self.mss);
        self.window = (self.threshold + DUPLICATES * self.mss).min(MAX);
        self.recover = sent;
        self.recovering = true;
        true
    }

    /// Processes a timeout while `in_flight` bytes from `una` are on their way, and all up to `sent`
    /// were. The second timeout of a cut says nothing new about the path (RFC 5681, 3.1).
    pub(crate) fn timed_out(&mut self, una: u32, sent: u32, in_flight: u32) {
        if una >= self.recover {
            self.threshold = (in_flight / 2).max(2 * self.mss);
        }
        self.window = self.mss;
        self.duplicates = 0;
        self.recover = sent;
        self.recovering = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_and_closes() {
        let mut congestion = Congestion::new(1_000);
        assert_eq!(congestion.window(), 10_000);
        assert!(!congestion.acked(1_000, 1_000));
        assert_eq!(congestion.window(), 11_000);
        assert!(!congestion.duplicate(1_000, 12_000, 11_000));
        assert!(!congestion.duplicate(1_000, 12_000, 11_000));
        assert!(congestion.duplicate(1_000, 12_000, 11_000));
        assert_eq!(congestion.window(), 8_500);
        // A part only: the next hole.
        assert!(congestion.acked(3_000, 2_000));
        assert!(!congestion.acked(12_000, 9_000));
        assert_eq!(congestion.window(), 5_500);
        assert!(!congestion.acked(13_000, 1_000));
        assert_eq!(congestion.window(), 5_500 + 181);
        congestion.timed_out(13_000, 20_000, 6_000);
        assert_eq!(congestion.window(), 1_000);
        assert!(!congestion.acked(14_000, 1_000));
        assert_eq!(congestion.window(), 2_000);
        congestion.timed_out(14_000, 20_000, 2_000);
        assert_eq!((congestion.window(), congestion.threshold), (1_000, 3_000));
    }

    #[test]
    fn acknowledgments_of_what_a_timeout_repeats_are_no_losses() {
        let mut congestion = Congestion::new(1_000);
        congestion.timed_out(0, 8_000, 8_000);
        assert!(!(0..9).any(|_| congestion.duplicate(2_000, 8_000, 1_000)));
    }
}
