//! The times in initiations: TAI64N, of which each is later than the one before (paper, section 5.1).

use std::time::Duration;

use crate::message::TIMESTAMP_LEN;

/// What TAI64 counts at the start of 1970: 2^62, and ten leap seconds.
const EPOCH: u64 = (1 << 62) + 10;
/// The unit of the fraction in ns, a power of two. A finer one would show an observer how fast this machine computes.
const GRAIN: u32 = 1 << 24;

#[derive(Debug, Default)]
pub(super) struct Timestamps {
    last: Duration,
}

impl Timestamps {
    /// Returns the time for one initiation: seconds and nanoseconds in big-endian order.
    pub(super) fn next(&mut self, unix: Duration) -> [u8; TIMESTAMP_LEN] {
        let coarse = Duration::new(unix.as_secs(), unix.subsec_nanos() & !(GRAIN - 1));
        // A clock that was set back, or two initiations in one grain.
        self.last = if coarse > self.last {
            coarse
        } else {
            let next = self.last + Duration::from_nanos(u64::from(GRAIN));
            Duration::new(next.as_secs(), next.subsec_nanos() & !(GRAIN - 1))
        };
        let mut bytes = [0; TIMESTAMP_LEN];
        bytes[..8].copy_from_slice(&EPOCH.saturating_add(self.last.as_secs()).to_be_bytes());
        bytes[8..].copy_from_slice(&self.last.subsec_nanos().to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_later_than_the_one_before() {
        let mut times = Timestamps::default();
        let mut last = times.next(Duration::new(1_000, 999_999_999));
        for unix in [
            Duration::new(1_000, 999_999_999),
            Duration::new(1, 0),
            Duration::new(1_001, 5),
            Duration::ZERO,
        ] {
            for _ in 0..100 {
                let next = times.next(unix);
                assert!(next > last);
                last = next;
            }
        }
    }

    #[test]
    fn the_form_is_tai64n_without_fine_parts() {
        let bytes = Timestamps::default().next(Duration::new(1, GRAIN + 77));
        assert_eq!(bytes, [0x40, 0, 0, 0, 0, 0, 0, 11, 1, 0, 0, 0]);
    }
}
