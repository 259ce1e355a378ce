//! The measurements of a link or a session: round trip, loss, jitter, and the cost that follows.
//!
//! The peer reports what it received, the lane counts what this node received. Source: FIPS
//! fips-mmp, "Metrics Tracked". The differences:
//!
//! - Loss is a share of frames over the last reports, weighted by frames, not the share of the last
//!   interval alone: an interval of three frames with one loss does not triple the cost of a link.
//! - A round trip below the clocks' millisecond is a measurement too. FIPS waits for one that is
//!   above.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_contract::{CountedEpoch, Measured, Received};
use weft_wire::mmp::ReceiverReport;

use crate::thousandths;

/// The cost of a perfect link without delay, in thousandths: the unit of link costs.
const PERFECT: u32 = 1_000;
/// Maximum ETX (FIPS: 100), in thousandths.
const MAX_ETX: u64 = 100_000;
/// Minimum time between two looks at the received frames, in ms.
const LOOK: u64 = 1_000;
/// Number of frames of the previous interval that may arrive in an interval.
const LATE: u64 = 64;
/// A longer round trip is not a measurement, in ms.
const MAX_RTT: u32 = 60_000;
/// How far quantised clocks can make a round trip negative, in ms: two differences of two times
/// each.
const CLOCK_SLACK: i64 = 2;

/// Smoothed round-trip time (RFC 6298), in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Srtt {
    mean: i64,
    variation: i64,
}

impl Srtt {
    fn first(sample: i64) -> Self {
        Self {
            mean: sample,
            variation: sample.abs() / 2,
        }
    }

    fn update(&mut self, sample: i64) {
        let error = sample - self.mean;
        self.variation += (error.abs() - self.variation) / 4;
        self.mean += error / 8;
    }
}

/// The share of frames that arrive. Recent frames have more weight: each report counts an eighth
/// less than the next.
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    /// Epoch, highest counter and frames at the last look.
    last: Option<(CountedEpoch, u64, u64)>,
    /// Frames sent and received, in 1/256.
    sent: u64,
    came: u64,
}

impl Delivery {
    /// Handles the highest counter of an epoch and the total of received frames.
    fn look(&mut self, epoch: CountedEpoch, highest: u64, frames: u64) {
        let before = self.last.replace((epoch, highest, frames));
        // Other keys have other counters: the frames in between are unknown.
        let Some((_, from, came)) = before.filter(|(known, ..)| *known == epoch) else {
            return;
        };
        let sent = highest.saturating_sub(from).min(1 << 40);
        let came = frames.saturating_sub(came).min(sent + LATE);
        if sent > 0 {
            self.sent = self.sent - self.sent / 8 + (sent << 8);
            self.came = self.came - self.came / 8 + (came << 8);
        }
    }

    /// Returns the loss in thousandths, once it is known.
    fn lost(&self) -> Option<u32> {
        (self.sent > 0).then(|| (self.sent.saturating_sub(self.came) * 1_000 / self.sent) as u32)
    }
}

/// The quality of a link or a session. `out` is the direction to the peer, as the peer reports it;
/// `in` is the direction from the peer. Values that were not measured yet are `None`: without
/// traffic nothing is measured except on a link that has just come up. Documents have shares, `etx` and
/// `cost` as numbers, and memory has them in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Quality {
    /// Smoothed round-trip time. The clocks that measure it have a resolution of one millisecond.
    #[serde(rename = "rtt_ms", with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub rtt_us: Option<u32>,
    /// Its mean variation.
    #[serde(rename = "rtt_variation_ms", with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub rtt_variation_us: Option<u32>,
    /// Share of the frames that were lost recently, 0 to 1.
    #[serde(with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub loss_out: Option<u32>,
    /// The same for received frames.
    #[serde(with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub loss_in: Option<u32>,
    /// Interarrival jitter (RFC 3550).
    #[serde(rename = "jitter_out_ms", with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub jitter_out_us: Option<u32>,
    /// The same for received frames.
    #[serde(rename = "jitter_in_ms", with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub jitter_in_us: Option<u32>,
    /// The longest run of lost frames in the last report.
    pub burst_out: Option<u16>,
    /// How the one-way delay changed during the last report, in microseconds a second: above zero,
    /// a queue fills.
    pub delay_trend_out_us_s: Option<i32>,
    /// Number of all frames that arrived behind a later one.
    pub reordered_out: Option<u32>,
    /// The same for received frames.
    pub reordered_in: u64,
    /// Number of all frames that were marked as having experienced congestion.
    pub ce_out: Option<u32>,
    /// The same for received frames.
    pub ce_in: u64,
    /// Expected transmissions: 1 over the product of the delivery ratios of both directions.
    #[serde(with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub etx: Option<u32>,
    /// The cost of the link in the choice of routes: ETX times (1 + round trip / 100 ms). A session has none.
    #[serde(with = "thousandths")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<u32>,
    /// Seconds since the last report of the peer.
    pub report_age_s: Option<u64>,
}

impl Quality {
    /// Returns the cost of a link of this quality, in thousandths of a perfect one: ETX times (1 + SRTT / 100 ms).
    /// Source: FIPS fips-mmp, "ETX".
    pub(crate) fn link_cost(&self) -> Option<u32> {
        let (rtt, etx) = (u64::from(self.rtt_us?), u64::from(self.etx?));
        let cost = etx * (100_000 + rtt) / 100_000;
        Some(u32::try_from(cost).unwrap_or(u32::MAX))
    }

    /// Whether frames over a link should be marked, given whether they are at present. Source: FIPS
    /// fips-mmp, "ECN Congestion Signaling": from 5 % of loss or an ETX of 3. Marking ends a fifth
    /// below that, as a hysteresis.
    pub(crate) fn is_congested(&self, so_far: bool) -> bool {
        let (loss, etx) = if so_far { (40, 2_400) } else { (50, 3_000) };
        self.loss_out.is_some_and(|lost| lost >= loss) || self.etx.is_some_and(|now| now >= etx)
    }
}

/// The estimators behind [`Quality`].
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    srtt: Option<Srtt>,
    /// The path changed, so the next round trip restarts the mean.
    moved: bool,
    /// Number of measured round trips.
    samples: u32,
    ours: Delivery,
    theirs: Delivery,
    looked: u64,
    /// The last report: its time, its epoch, and its content.
    report: Option<(u64, CountedEpoch, ReceiverReport)>,
    received: Received,
}

impl Metrics {
    /// Handles the peer's report on frames of this node under the epoch `epoch`. This node has
    /// sealed `sent` frames under it, and its clock in that epoch reads `clock`. Returns `false` if
    /// the report is impossible or old.
    pub(crate) fn handle_report(&mut self, now: u64, measured: &Measured) -> bool {
        let Measured {
            epoch,
            sent,
            clock,
            ref report,
        } = *measured;
        if report.highest_counter >= sent || self.is_old(epoch, report) {
            return false;
        }
        self.measure(clock, report);
        self.ours
            .look(epoch, report.highest_counter, report.cumulative_packets_recv);
        self.report = Some((now, epoch, *report));
        true
    }

    /// A report is made only after new frames, so one without news is a copy or late.
    fn is_old(&self, epoch: CountedEpoch, report: &ReceiverReport) -> bool {
        let Some((_, _, last)) = self.report.as_ref().filter(|(_, known, _)| *known == epoch) else {
            return false;
        };
        report.highest_counter < last.highest_counter || report.cumulative_packets_recv <= last.cumulative_packets_recv
    }

    fn measure(&mut self, clock: u32, report: &ReceiverReport) {
        if report.timestamp_echo == 0 {
            return;
        }
        let ms = i64::from(clock) - i64::from(report.timestamp_echo) - i64::from(report.dwell_time);
        if !(-CLOCK_SLACK..=i64::from(MAX_RTT)).contains(&ms) {
            return;
        }
        let sample = ms * 1_000;
        self.samples = self.samples.saturating_add(1);
        match self.srtt.as_mut().filter(|_| !self.moved) {
            Some(srtt) => srtt.update(sample),
            None => self.srtt = Some(Srtt::first(sample)),
        }
        self.moved = false;
    }

    /// Handles the lane's counts of received frames.
    pub(crate) fn handle_received(&mut self, now: u64, received: &Received) {
        self.received = *received;
        let other = self.theirs.last.is_none_or(|(epoch, ..)| epoch != received.epoch);
        if other || now.saturating_sub(self.looked) >= LOOK {
            self.looked = now;
            self.theirs.look(received.epoch, received.highest, received.frames);
        }
    }

    /// Handles a changed path: its round trip has changed too.
    pub(crate) fn handle_moved(&mut self) {
        self.moved = true;
        self.samples = 0;
    }

    /// Returns the number of round trips measured since the start or the last change of path.
    pub(crate) fn samples(&self) -> u32 {
        self.samples
    }

    /// Returns the smoothed round-trip time, in ms.
    pub(crate) fn srtt(&self) -> Option<u64> {
        self.srtt.map(|srtt| u64::try_from(srtt.mean / 1_000).unwrap_or(0))
    }

    pub(crate) fn quality(&self, now: u64) -> Quality {
        let micros = |us: i64| u32::try_from(us.max(0)).unwrap_or(u32::MAX);
        let (loss_out, loss_in) = (self.ours.lost(), self.theirs.lost());
        let (report, received) = (self.report.map(|(.., report)| report), &self.received);
        Quality {
            rtt_us: self.srtt.map(|srtt| micros(srtt.mean)),
            rtt_variation_us: self.srtt.map(|srtt| micros(srtt.variation)),
            loss_out,
            loss_in,
            jitter_out_us: report.map(|report| report.jitter),
            jitter_in_us: (received.frames > 1).then_some(received.jitter_us),
            burst_out: report.map(|report| report.max_burst_loss),
            delay_trend_out_us_s: report.map(|report| report.owd_trend),
            reordered_out: report.map(|report| report.cumulative_reorder_count),
            reordered_in: received.reordered,
            ce_out: report.map(|report| report.ecn_ce_count),
            ce_in: received.ce,
            etx: report.map(|_| etx(loss_out.unwrap_or(0), loss_in.unwrap_or(0))),
            cost: None,
            report_age_s: self.report.map(|(at, ..)| now.saturating_sub(at) / 1_000),
        }
    }
}

/// Returns the ETX, in thousandths: one over the product of the arriving shares of both directions,
/// computed from the losses.
fn etx(out: u32, back: u32) -> u32 {
    let arrive = |lost: u32| u64::from(PERFECT.saturating_sub(lost));
    let both = arrive(out) * arrive(back);
    1_000_000_000_u64.checked_div(both).unwrap_or(MAX_ETX).min(MAX_ETX) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(highest: u64, came: u64, echo: u32, dwell: u16) -> ReceiverReport {
        ReceiverReport {
            highest_counter: highest,
            cumulative_packets_recv: came,
            timestamp_echo: echo,
            dwell_time: dwell,
            ..ReceiverReport::default()
        }
    }

    fn measured(epoch: u32, sent: u64, clock: u32, report: ReceiverReport) -> Measured {
        Measured {
            epoch: CountedEpoch::fips(epoch),
            sent,
            clock,
            report,
        }
    }

    #[test]
    fn the_dwell_is_not_travel() {
        let mut metrics = Metrics::default();
        assert!(metrics.handle_report(0, &measured(1, 100, 1_300, report(50, 51, 1_000, 260))));
        assert_eq!(metrics.quality(0).rtt_us, Some(40_000));
        assert_eq!((metrics.srtt(), metrics.samples()), (Some(40), 1));
        metrics.handle_report(0, &measured(1, 100, 2_000, report(60, 61, 1_880, 0)));
        assert_eq!(metrics.quality(0).rtt_us, Some(50_000), "an eighth of the way to 120");
    }

    #[test]
    fn less_than_a_millisecond_is_a_round_trip_too() {
        let mut metrics = Metrics::default();
        metrics.handle_report(0, &measured(1, 100, 1_010, report(50, 51, 1_000, 10)));
        metrics.handle_report(0, &measured(1, 100, 1_020, report(60, 61, 1_010, 11)));
        assert_eq!((metrics.quality(0).rtt_us, metrics.samples()), (Some(0), 2));
    }

    #[test]
    fn impossible_reports_are_not_believed() {
        let mut metrics = Metrics::default();
        assert!(
            !metrics.handle_report(0, &measured(1, 50, 1_000, report(50, 51, 900, 0))),
            "never sent"
        );
        for echo in [0, 2_000, u32::MAX] {
            let report = report(u64::from(50 + echo % 3), 51 + u64::from(echo), echo, 0);
            metrics.handle_report(0, &measured(1, 100, 1_000, report));
        }
        assert_eq!(metrics.quality(0).rtt_us, None);
        assert!(
            !metrics.handle_report(0, &measured(1, 100, 1_000, report(10, 11, 900, 0))),
            "old"
        );
        assert!(
            metrics.handle_report(0, &measured(2, 100, 1_000, report(10, 11, 900, 0))),
            "other keys"
        );
    }

    #[test]
    fn loss_is_weighed_by_frames() {
        let mut metrics = Metrics::default();
        metrics.handle_report(0, &measured(1, 9_000, 9_000, report(0, 1, 0, 0)));
        metrics.handle_report(0, &measured(1, 9_000, 9_000, report(1_000, 1_001, 0, 0)));
        metrics.handle_report(0, &measured(1, 9_000, 9_000, report(1_003, 1_003, 0, 0)));
        assert!(metrics.quality(0).loss_out < Some(3), "one in three, after a thousand");
    }

    #[test]
    fn costs_are_those_of_fips() {
        assert_eq!(etx(0, 0), PERFECT);
        assert_eq!(etx(500, 0), 2_000);
        assert_eq!(etx(300, 300), 2_040);
        assert_eq!((etx(1_000, 0), etx(999, 999)), (100_000, 100_000));
        let quality = Quality {
            rtt_us: Some(50_000),
            etx: Some(2_000),
            ..Quality::default()
        };
        assert_eq!(quality.link_cost(), Some(3_000));
        assert_eq!(Quality::default().link_cost(), None);
    }

    #[test]
    fn congestion_begins_and_ends_at_different_losses() {
        let losing = |lost| Quality {
            loss_out: Some(lost),
            ..Quality::default()
        };
        assert!(!losing(49).is_congested(false) && losing(50).is_congested(false));
        assert!(losing(40).is_congested(true) && !losing(39).is_congested(true));
        let dear = Quality {
            etx: Some(3_000),
            ..Quality::default()
        };
        assert!(dear.is_congested(false) && !Quality::default().is_congested(true));
    }

    #[test]
    fn another_path_begins_a_new_mean() {
        let mut metrics = Metrics::default();
        metrics.handle_report(0, &measured(1, 100, 1_000, report(50, 51, 800, 0)));
        metrics.handle_moved();
        metrics.handle_report(0, &measured(1, 100, 2_000, report(60, 61, 1_990, 0)));
        assert_eq!(metrics.quality(0).rtt_us, Some(10_000));
    }

    proptest! {
        /// Any reports: no overflow, and figures within their bounds.
        #[test]
        fn any_reports(
            reports in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>(), 0_u32..3), 0..60),
        ) {
            let mut metrics = Metrics::default();
            for (highest, came, echo, clock, epoch) in reports {
                metrics.handle_report(0, &measured(epoch, u64::MAX, clock, report(highest, came, echo, 7)));
                metrics.handle_received(clock.into(), &Received {
                    epoch: CountedEpoch::fips(epoch), highest, frames: came, ..Received::default()
                });
                let quality = metrics.quality(0);
                prop_assert!(quality.loss_out.unwrap_or(0) <= 1_000 && quality.loss_in.unwrap_or(0) <= 1_000);
                prop_assert!(quality.etx.is_none_or(|etx| (PERFECT..=100_000).contains(&etx)));
                prop_assert!(quality.rtt_us.unwrap_or(0) <= MAX_RTT * 1_000);
            }
        }

        /// The share of a long run, whatever it was before.
        #[test]
        fn the_share_is_found(lost in 0_u64..=1_000) {
            let mut delivery = Delivery::default();
            let (mut highest, mut came) = (0, 0);
            for i in 0..100 {
                delivery.look(CountedEpoch::fips(1), highest, came);
                highest += 1_000;
                came += if i < 10 { 500 } else { 1_000 - lost };
            }
            let found = u64::from(delivery.lost().unwrap());
            prop_assert!(found.abs_diff(lost) <= 1, "{} for {}", found, lost);
        }
    }
}
