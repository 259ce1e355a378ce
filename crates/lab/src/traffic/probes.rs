//! The record of numbered probes: arrivals, times, and silences.

use std::time::Duration;

use serde::Serialize;

/// The fate of each of a sequence of numbered probes. Times are counted from one start that both
/// ends share, which is possible on one machine.
#[derive(Debug, Clone, Default)]
pub struct ProbeLog {
    probes: Vec<Probe>,
    duplicates: u64,
    reordered: u64,
    highest: Option<u64>,
    refused: u64,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    sent: Duration,
    arrived: Option<Duration>,
}

impl ProbeLog {
    /// Records that the next probe was sent at `at`; returns its number. The first is 0.
    pub fn sent(&mut self, at: Duration) -> u64 {
        self.probes.push(Probe {
            sent: at,
            arrived: None,
        });
        self.probes.len() as u64 - 1
    }

    /// Records that the system refused to send the last probe. It counts as lost.
    pub fn refused(&mut self) {
        self.refused += 1;
    }

    /// Records that probe `number` (or its answer) arrived at `at`. A number that was never sent is
    /// ignored.
    pub fn arrived(&mut self, number: u64, at: Duration) {
        let Some(probe) = usize::try_from(number)
            .ok()
            .and_then(|index| self.probes.get_mut(index))
        else {
            return;
        };
        if probe.arrived.is_some() {
            self.duplicates += 1;
            return;
        }
        probe.arrived = Some(at);
        match self.highest {
            Some(highest) if number < highest => self.reordered += 1,
            _ => self.highest = Some(number),
        }
    }

    /// The number of probes sent.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.probes.len() as u64
    }

    /// The number of probes that have not arrived yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let missing = self.probes.iter().filter(|probe| probe.arrived.is_none());
        missing.count()
    }

    /// The report so far.
    #[must_use]
    pub fn report(&self) -> ProbeReport {
        let times: Vec<Duration> = self.probes.iter().filter_map(Probe::time).collect();
        let received = times.len() as u64;
        let total: Duration = times.iter().sum();
        let lost = (0..).zip(&self.probes);
        let lost = lost.filter(|(_, probe)| probe.arrived.is_none());
        ProbeReport {
            sent: self.probes.len() as u64,
            received,
            lost: lost.map(|(number, _)| number).collect(),
            refused: self.refused,
            duplicates: self.duplicates,
            reordered: self.reordered,
            min_ms: times.iter().min().map(millis),
            avg_ms: (received > 0).then(|| millis(&total) / received as f64),
            max_ms: times.iter().max().map(millis),
            longest_gap_ms: millis(&self.longest_gap()),
        }
    }

    /// The longest time without an arrival, from the first sending to the last sending or arrival,
    /// whichever is later.
    fn longest_gap(&self) -> Duration {
        let (Some(first), Some(last)) = (self.probes.first(), self.probes.last()) else {
            return Duration::ZERO;
        };
        let mut marks: Vec<Duration> = self.probes.iter().filter_map(|p| p.arrived).collect();
        marks.extend([first.sent, last.sent]);
        marks.sort_unstable();
        let gaps = marks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        gaps.max().unwrap_or_default()
    }
}

impl Probe {
    /// From sending to arrival.
    fn time(&self) -> Option<Duration> {
        self.arrived.map(|at| at.saturating_sub(self.sent))
    }
}

/// The result of a sequence of probes. For pings the times are round trips, for a one-way flow they
/// are one-way delays; a gap is a time without an arrival, however much was sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeReport {
    /// Probes sent or refused.
    pub sent: u64,
    /// Probes that arrived, each counted once.
    pub received: u64,
    /// The numbers of those that did not arrive.
    pub lost: Vec<u64>,
    /// Probes that the sending system refused (no route, for example); they are also in `lost`.
    pub refused: u64,
    /// Arrivals beyond the first of a number.
    pub duplicates: u64,
    /// First arrivals after one with a higher number.
    pub reordered: u64,
    /// Shortest time in milliseconds; `None` without an arrival.
    pub min_ms: Option<f64>,
    /// Mean time in milliseconds.
    pub avg_ms: Option<f64>,
    /// Longest time in milliseconds.
    pub max_ms: Option<f64>,
    /// The longest time without an arrival in milliseconds.
    pub longest_gap_ms: f64,
}

fn millis(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Ten probes 100 ms apart; all but those in `lost` are answered after 2 ms.
    fn row(lost: &[u64]) -> ProbeLog {
        let mut log = ProbeLog::default();
        for number in 0..10 {
            assert_eq!(log.sent(ms(number * 100)), number);
            if !lost.contains(&number) {
                log.arrived(number, ms(number * 100 + 2));
            }
        }
        log
    }

    #[test]
    fn nothing_lost() {
        let report = row(&[]).report();
        assert_eq!((report.sent, report.received), (10, 10));
        assert!(report.lost.is_empty());
        assert_eq!(
            (report.min_ms, report.avg_ms, report.max_ms),
            (Some(2.0), Some(2.0), Some(2.0))
        );
        assert_eq!(report.longest_gap_ms, 100.0);
    }

    #[test]
    fn a_gap_in_the_middle_spans_from_answer_to_answer() {
        let log = row(&[3, 4]);
        assert_eq!(log.outstanding(), 2);
        let report = log.report();
        assert_eq!(report.lost, [3, 4]);
        assert_eq!(report.longest_gap_ms, 300.0);
    }

    #[test]
    fn silence_at_either_end_is_a_gap() {
        assert_eq!(row(&[0, 1, 2, 3]).report().longest_gap_ms, 402.0);
        assert_eq!(row(&[6, 7, 8, 9]).report().longest_gap_ms, 398.0);
        let all: Vec<u64> = (0..10).collect();
        let report = row(&all).report();
        assert_eq!((report.received, report.avg_ms), (0, None));
        assert_eq!(report.longest_gap_ms, 900.0);
    }

    #[test]
    fn a_late_answer_counts_and_closes_the_gap_when_it_comes() {
        let mut log = row(&[8, 9]);
        log.arrived(8, ms(2000));
        let report = log.report();
        assert_eq!(report.lost, [9]);
        assert_eq!(report.longest_gap_ms, 1100.0);
        assert_eq!(report.max_ms, Some(1200.0));
    }

    #[test]
    fn order_duplicates_strangers_and_refusals() {
        let mut log = row(&[2, 5]);
        log.arrived(2, ms(950));
        log.arrived(2, ms(951));
        log.arrived(77, ms(952));
        log.sent(ms(1000));
        log.refused();
        let report = log.report();
        assert_eq!((report.reordered, report.duplicates, report.refused), (1, 1, 1));
        assert_eq!(report.lost, [5, 10]);
        assert_eq!(report.received + report.lost.len() as u64, report.sent);
    }

    #[test]
    fn an_empty_row() {
        let report = ProbeLog::default().report();
        assert_eq!((report.sent, report.longest_gap_ms), (0, 0.0));
    }
}
