//! The interval of a SenderReport: what was sent since the last one.

use weft_contract::{CountedEpoch, Totals};
use weft_wire::mmp::SenderReport;

/// The beginning of the next SenderReport.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SenderInterval {
    epoch: Option<CountedEpoch>,
    counter: u64,
    clock: u32,
    bytes: u64,
}

impl SenderInterval {
    /// Returns what was sent under the keys in use since their last report, and begins a new
    /// interval.
    pub(crate) fn report(&mut self, keys: Sealed, totals: &Totals) -> Option<SenderReport> {
        if self.epoch != Some(keys.epoch) {
            (self.epoch, self.counter, self.clock) = (Some(keys.epoch), 0, 0);
        }
        let end = keys.frames.checked_sub(1).filter(|end| *end >= self.counter)?;
        let clock = keys.clock;
        let report = SenderReport {
            interval_start_counter: self.counter,
            interval_end_counter: end,
            interval_start_timestamp: self.clock,
            interval_end_timestamp: clock,
            interval_bytes_sent: u32::try_from(totals.tx_bytes - self.bytes).unwrap_or(u32::MAX),
            cumulative_packets_sent: totals.tx_frames,
            cumulative_bytes_sent: totals.tx_bytes,
        };
        (self.counter, self.clock, self.bytes) = (end + 1, clock, totals.tx_bytes);
        Some(report)
    }
}

/// The keys in use, in the terms of reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    /// The epoch that their frames are counted for.
    pub(crate) epoch: CountedEpoch,
    /// The number of frames sealed so far.
    pub(crate) frames: u64,
    /// Their clock when the last frame was sealed, in ms.
    pub(crate) clock: u32,
}
