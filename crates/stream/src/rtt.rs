//! How long an answer may take (RFC 6298).

/// The retransmission timeout before the first measurement, in ms.
const INITIAL: u64 = 1_000;
/// The least and the largest timeout that follows from measurements, in ms.
const BOUNDS: (u64, u64) = (200, 10_000);
/// What doubling leads to at most, in ms, unless the timeout is larger from the start. So a
/// transfer goes on within two seconds of the end of a cut.
const MAX_BACKOFF: u64 = 2_000;

/// The estimate of the round-trip time of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    /// Smoothed time and variation, in ms.
    measured: Option<(u64, u64)>,
    /// How often the timeout has doubled since the last answer.
    doubled: u32,
}

impl Rtt {
    /// Returns the present timeout in ms.
    pub(crate) fn timeout(&self) -> u64 {
        let base = match self.measured {
            Some((smoothed, variation)) => smoothed
                .saturating_add(variation.saturating_mul(4))
                .clamp(BOUNDS.0, BOUNDS.1),
            None => INITIAL,
        };
        let backed_off = base.saturating_mul(1 << self.doubled.min(6));
        backed_off.min(MAX_BACKOFF.max(base))
    }

    /// Takes a measurement in ms, of a segment that was sent once (Karn).
    pub(crate) fn sample(&mut self, time: u64) {
        let time = time.clamp(1, u64::from(u32::MAX));
        self.measured = Some(match self.measured {
            Some((smoothed, variation)) => ((7 * smoothed + time) / 8, (3 * variation + smoothed.abs_diff(time)) / 4),
            None => (time, time / 2),
        });
    }

    /// Processes new data being acknowledged.
    pub(crate) fn answered(&mut self) {
        self.doubled = 0;
    }

    /// Processes a timeout.
    pub(crate) fn timed_out(&mut self) {
        self.doubled = self.doubled.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_measurements_and_doubles() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(), 1_000);
        rtt.sample(100);
        assert_eq!(rtt.timeout(), 300);
        for _ in 0..50 {
            rtt.sample(100);
        }
        assert_eq!(rtt.timeout(), 200);
        let timeouts = [(); 6].map(|()| {
            rtt.timed_out();
            rtt.timeout()
        });
        assert_eq!(timeouts, [400, 800, 1_600, 2_000, 2_000, 2_000]);
        rtt.answered();
        assert_eq!(rtt.timeout(), 200);
        rtt.sample(u64::MAX);
        assert_eq!(rtt.timeout(), 10_000);
        rtt.timed_out();
        assert_eq!(rtt.timeout(), 10_000);
    }
}
