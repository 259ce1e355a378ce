//! When to report to the peer what was sent and what was received.
//!
//! Intervals and modes are those of FIPS (fips-mmp, "Report Scheduling"; `proto/mmp`). But reports
//! follow payload: a report does not cause another, so an idle link or session stays idle. Only a
//! link that has just come up, or whose peer has roamed, is measured by reports about reports, a
//! bounded number of times. If a heartbeat is due and frames were received, a report is sent
//! instead.

use weft_contract::{ReportKind, Totals};

use crate::ReportMode;
use crate::metrics::Metrics;

/// Number of round trips that are measured on a link before it settles (FIPS: 5).
const COLD_SAMPLES: u32 = 5;
/// Maximum number of reports for them on a link without payload: the peer may never report.
const COLD_REPORTS: u32 = 16;
/// While keys are being replaced the two ends count under different epochs; reports wait for this
/// long, in ms.
pub(crate) const REKEY_PAUSE: u64 = 3_000;

/// The bounds of one layer's intervals, in ms. In between they follow the round trip.
#[derive(Debug)]
pub(crate) struct Pace {
    shortest: u64,
    longest: u64,
    /// The interval before a round trip is known.
    first: u64,
    /// The shortest interval while a link is new. Sessions have none, because their reports use
    /// every link on the path.
    cold: Option<u64>,
}

/// FIPS `proto/mmp/limits.rs`: `MIN_REPORT_INTERVAL_MS` and others.
pub(crate) const LINK: Pace = Pace {
    shortest: 1_000,
    longest: 5_000,
    first: 200,
    cold: Some(200),
};
/// FIPS `proto/mmp/limits.rs`: `MIN_SESSION_REPORT_INTERVAL_MS` and others.
pub(crate) const SESSION: Pace = Pace {
    shortest: 500,
    longest: 10_000,
    first: 1_000,
    cold: None,
};

/// The reports of one link or session so far. Times are ms.
#[derive(Debug)]
pub(crate) struct Reports {
    pace: &'static Pace,
    /// When the last ReceiverReport was sent, and what had been received by then: frames, and those
    /// that require an answer.
    received_at: u64,
    frames: u64,
    payload: u64,
    /// When the last SenderReport was sent.
    sent_at: u64,
    /// Number of ReceiverReports since the start or the last change of path.
    count: u32,
    /// Whether a message came whose sender waits for a ReceiverReport.
    wanted: bool,
}

impl Reports {
    pub(crate) fn new(pace: &'static Pace) -> Self {
        Self {
            pace,
            received_at: 0,
            frames: 0,
            payload: 0,
            sent_at: 0,
            count: 0,
            wanted: false,
        }
    }

    /// Notes that a message came whose sender waits for a ReceiverReport.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
    }

    /// Returns when a ReceiverReport is due; `u64::MAX` while there is nothing to report.
    pub(crate) fn receiver_at(&self, mode: ReportMode, totals: &Totals, metrics: &Metrics) -> u64 {
        let worth = self.wanted || totals.rx_payload != self.payload || self.cold(metrics) && self.has_news(totals);
        if mode == ReportMode::Minimal || !worth {
            return u64::MAX;
        }
        self.received_at.saturating_add(self.interval(metrics, 1))
    }

    /// Returns when a SenderReport is due; payload was last sent at `payload_tx`.
    pub(crate) fn sender_at(&self, mode: ReportMode, payload_tx: u64, metrics: &Metrics) -> u64 {
        if mode != ReportMode::Full || payload_tx <= self.sent_at {
            return u64::MAX;
        }
        self.sent_at.saturating_add(self.interval(metrics, 2))
    }

    /// Returns when the last ReceiverReport was sent.
    pub(crate) fn received_at(&self) -> u64 {
        self.received_at
    }

    /// Whether frames were received since the last ReceiverReport.
    pub(crate) fn has_news(&self, totals: &Totals) -> bool {
        totals.rx_frames != self.frames
    }

    /// Records that a report is sent now.
    pub(crate) fn sent(&mut self, now: u64, kind: ReportKind, totals: &Totals) {
        match kind {
            ReportKind::Sender => self.sent_at = now,
            ReportKind::Receiver => {
                (self.received_at, self.wanted) = (now, false);
                (self.frames, self.payload) = (totals.rx_frames, totals.rx_payload);
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// Handles a changed path, which is measured again.
    pub(crate) fn handle_moved(&mut self) {
        self.count = 0;
    }

    fn cold(&self, metrics: &Metrics) -> bool {
        self.pace.cold.is_some() && metrics.samples() < COLD_SAMPLES && self.count < COLD_REPORTS
    }

    fn interval(&self, metrics: &Metrics, round_trips: u64) -> u64 {
        let Some(srtt) = metrics.srtt() else {
            // A peer that does not report receives no more than the usual number.
            return if self.count < COLD_REPORTS {
                self.pace.first
            } else {
                self.pace.shortest
            };
        };
        let cold = self.pace.cold.filter(|_| self.cold(metrics));
        (srtt * round_trips).clamp(cold.unwrap_or(self.pace.shortest), self.pace.longest)
    }
}

#[cfg(test)]
mod tests {
    use weft_contract::{CountedEpoch, Measured};
    use weft_wire::mmp::ReceiverReport;

    use super::*;

    fn totals(frames: u64, payload: u64) -> Totals {
        Totals {
            rx_frames: frames,
            rx_payload: payload,
            ..Totals::default()
        }
    }

    /// Metrics with `samples` round trips of `rtt` ms.
    fn metrics(samples: u32, rtt: u32) -> Metrics {
        let mut metrics = Metrics::default();
        for i in 1..=samples {
            let report = ReceiverReport {
                highest_counter: i.into(),
                cumulative_packets_recv: i.into(),
                timestamp_echo: 1_000,
                ..ReceiverReport::default()
            };
            let measured = Measured {
                epoch: CountedEpoch::fips(1),
                sent: 100,
                clock: 1_000 + rtt,
                report,
            };
            assert!(metrics.handle_report(0, &measured));
        }
        metrics
    }

    #[test]
    fn a_new_link_is_measured_and_then_left_alone() {
        let mut reports = Reports::new(&LINK);
        let full = ReportMode::Full;
        assert_eq!(reports.receiver_at(full, &totals(0, 0), &metrics(0, 0)), u64::MAX);
        reports.sent(5_000, ReportKind::Receiver, &totals(0, 0));
        assert_eq!(reports.receiver_at(full, &totals(1, 0), &metrics(0, 0)), 5_200);
        assert_eq!(reports.receiver_at(full, &totals(1, 0), &metrics(4, 300)), 5_300);
        assert_eq!(reports.receiver_at(full, &totals(1, 0), &metrics(5, 300)), u64::MAX);
        assert!(reports.has_news(&totals(1, 0)), "a heartbeat may carry it");
        for i in 0..COLD_REPORTS {
            reports.sent(5_000, ReportKind::Receiver, &totals(i.into(), 0));
        }
        assert_eq!(reports.receiver_at(full, &totals(99, 0), &metrics(0, 0)), u64::MAX);
        reports.handle_moved();
        assert_eq!(reports.receiver_at(full, &totals(99, 0), &metrics(0, 0)), 5_200);
    }

    #[test]
    fn payload_is_reported_at_the_pace_of_the_layer() {
        for (pace, rtt, receiver, sender) in [
            (&LINK, 10, 1_000, 1_000),
            (&LINK, 1_500, 1_500, 3_000),
            (&LINK, 9_000, 5_000, 5_000),
            (&SESSION, 10, 500, 500),
            (&SESSION, 400, 500, 800),
            (&SESSION, 30_000, 10_000, 10_000),
        ] {
            let reports = Reports::new(pace);
            let metrics = metrics(6, rtt);
            let full = ReportMode::Full;
            assert_eq!(reports.receiver_at(full, &totals(1, 1), &metrics), receiver);
            assert_eq!(reports.sender_at(full, 1, &metrics), sender);
            assert_eq!(reports.sender_at(full, 0, &metrics), u64::MAX);
        }
    }

    #[test]
    fn sessions_never_report_about_reports() {
        let reports = Reports::new(&SESSION);
        let at = reports.receiver_at(ReportMode::Full, &totals(9, 0), &metrics(0, 0));
        assert_eq!(at, u64::MAX);
    }

    #[test]
    fn modes_leave_out_what_they_say() {
        let reports = Reports::new(&LINK);
        let metrics = metrics(6, 10);
        let due = |mode| {
            (
                reports.receiver_at(mode, &totals(1, 1), &metrics) < u64::MAX,
                reports.sender_at(mode, 1, &metrics) < u64::MAX,
            )
        };
        assert_eq!(due(ReportMode::Full), (true, true));
        assert_eq!(due(ReportMode::Lightweight), (true, false));
        assert_eq!(due(ReportMode::Minimal), (false, false));
    }
}
