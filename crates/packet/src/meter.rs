//! What a receiver can measure about the frames that reach it, on one link or in one session.
//!
//! The only input is the sender's counter and clock (milliseconds) in each frame. Each frame costs
//! a few additions; divisions wait for a report. Source: FIPS fips-mmp, "Metrics Tracked". The
//! differences from it:
//!
//! - A gap in the counters counts as a loss only once it is 64 counters back, or at the next
//!   report. So a frame that merely arrives late is reordered, not lost.
//! - The trend of the delay is the slope over time of all frames since the last report, in the unit
//!   of the report.

mod gaps;
mod trend;

use weft_contract::{CountedEpoch, Received};
use weft_wire::mmp::ReceiverReport;

use self::gaps::Gaps;
use self::trend::Trend;

/// The largest change of delay between two frames that counts, in ms: a clock that jumped is not
/// jitter.
const MAX_CHANGE: u32 = 60_000;

/// One frame, as its receiver observes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The epoch of this node that opened it.
    pub(crate) epoch: CountedEpoch,
    /// Its counter.
    pub(crate) counter: u64,
    /// The sender's clock, in ms since its epoch began.
    pub(crate) timestamp: u32,
    /// Its length, in bytes.
    pub(crate) bytes: usize,
    /// Whether it is marked as having experienced congestion.
    pub(crate) ce: bool,
}

/// Counts the frames of one epoch after the other.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    epoch: Option<CountedEpoch>,
    gaps: Gaps,
    trend: Trend,
    frames: u64,
    bytes: u64,
    reordered: u64,
    ce: u64,
    /// The newest frame: the sender's clock, and this node's, in ms.
    newest: Option<(u32, u64)>,
    /// This node's clock less the sender's for the last frame, in ms. Only its changes have a
    /// meaning.
    delay: Option<u32>,
    /// The mean of these changes, in sixteenths of a microsecond (RFC 3550 section 6.4.1).
    jitter: u64,
    /// Frames and bytes at the time of the last report.
    reported: (u64, u64),
}

impl Meter {
    /// Returns whether frames of this epoch are counted.
    pub(crate) fn follows(&self, epoch: CountedEpoch) -> bool {
        self.epoch == Some(epoch)
    }

    /// Counts a frame that was opened under the epoch in use. The first one of another epoch
    /// restarts gaps, trend and delay; the totals continue.
    pub(crate) fn receive(&mut self, now: u64, frame: Arrival) {
        if self.epoch != Some(frame.epoch) {
            self.begin(frame.epoch, frame.counter);
        }
        self.frames += 1;
        self.bytes += frame.bytes as u64;
        self.ce += u64::from(frame.ce);
        if self.gaps.receive(frame.counter) {
            self.newest = Some((frame.timestamp, now));
        } else {
            self.reordered += 1;
        }
        let delay = (now as u32).wrapping_sub(frame.timestamp);
        if let Some(before) = self.delay.replace(delay) {
            let change = (delay.wrapping_sub(before) as i32).unsigned_abs().min(MAX_CHANGE);
            self.jitter = self.jitter - (self.jitter >> 4) + u64::from(change) * 1_000;
        }
        self.trend.add(now, delay);
    }

    fn begin(&mut self, epoch: CountedEpoch, counter: u64) {
        self.epoch = Some(epoch);
        self.gaps = Gaps::new(counter);
        self.trend = Trend::default();
        self.newest = None;
        self.delay = None;
    }

    /// Returns the measurements so far.
    pub(crate) fn received(&self) -> Received {
        Received {
            epoch: self.epoch.unwrap_or_default(),
            highest: self.gaps.highest(),
            frames: self.frames,
            reordered: self.reordered,
            ce: self.ce,
            jitter_us: self.jitter_us(),
        }
    }

    fn jitter_us(&self) -> u32 {
        u32::try_from(self.jitter >> 4).unwrap_or(u32::MAX)
    }

    /// Returns the report to the sender and begins a new interval, or returns `None` if no frame
    /// was received since the last report.
    pub(crate) fn report(&mut self, now: u64) -> Option<ReceiverReport> {
        let (frames, bytes) = (self.frames - self.reported.0, self.bytes - self.reported.1);
        if frames == 0 {
            return None;
        }
        self.reported = (self.frames, self.bytes);
        let bursts = self.gaps.report();
        let waited = self.newest.map(|(timestamp, at)| (timestamp, now.saturating_sub(at)));
        // A dwell time that does not fit its field would give a wrong round trip.
        let (timestamp_echo, dwell_time) = waited
            .and_then(|(timestamp, ms)| Some((timestamp, u16::try_from(ms).ok()?)))
            .unwrap_or((0, u16::MAX));
        Some(ReceiverReport {
            highest_counter: self.gaps.highest(),
            cumulative_packets_recv: self.frames,
            cumulative_bytes_recv: self.bytes,
            timestamp_echo,
            dwell_time,
            max_burst_loss: bursts.longest,
            mean_burst_loss: bursts.mean(),
            jitter: self.jitter_us(),
            ecn_ce_count: low(self.ce),
            owd_trend: self.trend.take(),
            burst_loss_count: bursts.count,
            cumulative_reorder_count: low(self.reordered),
            interval_packets_recv: low(frames),
            interval_bytes_recv: low(bytes),
        })
    }
}

/// Returns a count, or the largest value of its field if it is higher.
fn low(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(counter: u64, timestamp: u32) -> Arrival {
        Arrival {
            epoch: CountedEpoch::fips(7),
            counter,
            timestamp,
            bytes: 100,
            ce: counter % 10 == 3,
        }
    }

    #[test]
    fn a_steady_stream_has_no_jitter_and_is_told_once() {
        let mut meter = Meter::default();
        for i in 0..100 {
            meter.receive(5_000 + 20 * i, frame(i, 20 * i as u32));
        }
        let report = meter.report(5_000 + 20 * 99 + 7).unwrap();
        assert_eq!((report.jitter, report.owd_trend), (0, 0));
        assert_eq!((report.highest_counter, report.cumulative_packets_recv), (99, 100));
        assert_eq!((report.timestamp_echo, report.dwell_time), (1_980, 7));
        assert_eq!((report.ecn_ce_count, report.cumulative_reorder_count), (10, 0));
        assert_eq!((report.burst_loss_count, report.max_burst_loss), (0, 0));
        assert_eq!(
            (report.interval_packets_recv, report.interval_bytes_recv),
            (100, 10_000)
        );
        assert_eq!(meter.report(9_000), None);
    }

    #[test]
    fn a_growing_queue_is_a_trend() {
        let mut meter = Meter::default();
        // Each 100 ms of sending takes 5 ms more to arrive: 50 ms a second of sending, in 1.05 s of
        // receiving.
        for i in 0..40_u64 {
            meter.receive(1_000 + 105 * i, frame(i, 100 * i as u32));
        }
        let trend = meter.report(6_000).unwrap().owd_trend;
        assert!((47_000..48_200).contains(&trend), "{trend}");
        assert!((4_000..=5_000).contains(&meter.received().jitter_us));
    }

    #[test]
    fn new_keys_begin_new_counters_and_keep_the_totals() {
        let mut meter = Meter::default();
        for i in 0..50 {
            meter.receive(1_000 + i, frame(i, i as u32));
        }
        assert!(meter.follows(CountedEpoch::fips(7)) && !meter.follows(CountedEpoch::fips(8)));
        let fresh = Arrival {
            epoch: CountedEpoch::fips(8),
            ..frame(0, 0)
        };
        meter.receive(90_000, fresh);
        let report = meter.report(90_000).unwrap();
        assert_eq!((report.highest_counter, report.cumulative_packets_recv), (0, 51));
        assert_eq!((report.burst_loss_count, report.jitter), (0, 0));
    }

    #[test]
    fn an_echo_that_waited_too_long_is_withheld() {
        let mut meter = Meter::default();
        meter.receive(1_000, frame(0, 500));
        let report = meter.report(1_000 + 65_536).unwrap();
        assert_eq!((report.timestamp_echo, report.dwell_time), (0, u16::MAX));
    }

    proptest! {
        /// Any frames of an authenticated but faulty peer cause no overflow, and the counts add up.
        #[test]
        fn any_frames(
            frames in prop::collection::vec((any::<u64>(), any::<u32>(), 0..200_000_u64, any::<bool>()), 0..200),
        ) {
            let mut meter = Meter::default();
            let mut now = 1_000_000_000;
            let mut told = 0;
            for (counter, timestamp, pause, report) in frames {
                now += pause;
                meter.receive(now, Arrival { epoch: CountedEpoch::fips(7), counter, timestamp, bytes: 1_400, ce: false });
                if report {
                    told += u64::from(meter.report(now).unwrap().interval_packets_recv);
                }
            }
            told += meter.report(now).map_or(0, |r| u64::from(r.interval_packets_recv));
            prop_assert_eq!(told, meter.received().frames);
        }
    }
}
