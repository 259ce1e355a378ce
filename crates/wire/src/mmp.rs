//! Measurement reports, the same for a link and for a session.
//!
//! Source: FIPS wire-formats, "SenderReport" and "ReceiverReport", and `proto/mmp/wire.rs`. The two
//! framings differ only in the reserved bytes before the fields. Reserved bytes are sent as zero
//! and ignored on receipt; bytes behind a report are ignored, as the FIPS daemon does.

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// The layer that a report is about, which determines how its body begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportFraming {
    /// Behind [`InnerHeader`](crate::fmp::InnerHeader): three reserved bytes, then the fields.
    Link,
    /// Behind [`FspInner`](crate::fsp::FspInner): two reserved bytes, then the fields.
    Session,
}

impl ReportFraming {
    /// The reserved bytes before the fields.
    #[must_use]
    pub const fn reserved_len(self) -> usize {
        match self {
            Self::Link => 3,
            Self::Session => 2,
        }
    }

    fn open(self, body: &[u8]) -> Result<Reader<'_>, WireError> {
        let mut r = Reader::new(body);
        r.take(self.reserved_len())?;
        Ok(r)
    }

    fn begin(self, out: &mut [u8]) -> Writer<'_> {
        let mut w = Writer::new(out);
        match self {
            Self::Link => w.bytes(&[0; 3]),
            Self::Session => w.bytes(&[0; 2]),
        };
        w
    }
}

/// What a sender sent, overall and since its last report (FIPS wire-formats, "SenderReport").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SenderReport {
    /// First counter of the interval.
    pub interval_start_counter: u64,
    /// Last counter of the interval.
    pub interval_end_counter: u64,
    /// Session time at the start of the interval, in milliseconds.
    pub interval_start_timestamp: u32,
    /// Session time at the end of the interval, in milliseconds.
    pub interval_end_timestamp: u32,
    /// Payload bytes sent in the interval.
    pub interval_bytes_sent: u32,
    /// Packets sent in all.
    pub cumulative_packets_sent: u64,
    /// Bytes sent in all.
    pub cumulative_bytes_sent: u64,
}

impl SenderReport {
    /// Bytes of the fields, without the reserved bytes before them.
    pub const FIELDS_LEN: usize = 44;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8], framing: ReportFraming) -> Result<Self, WireError> {
        let mut r = framing.open(body)?;
        Ok(Self {
            interval_start_counter: r.u64()?,
            interval_end_counter: r.u64()?,
            interval_start_timestamp: r.u32()?,
            interval_end_timestamp: r.u32()?,
            interval_bytes_sent: r.u32()?,
            cumulative_packets_sent: r.u64()?,
            cumulative_bytes_sent: r.u64()?,
        })
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn wire_len(framing: ReportFraming) -> usize {
        framing.reserved_len() + Self::FIELDS_LEN
    }

    /// Writes the body and returns [`SenderReport::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8], framing: ReportFraming) -> Result<usize, WireError> {
        let mut w = framing.begin(out);
        w.u64(self.interval_start_counter)
            .u64(self.interval_end_counter)
            .u32(self.interval_start_timestamp)
            .u32(self.interval_end_timestamp)
            .u32(self.interval_bytes_sent)
            .u64(self.cumulative_packets_sent)
            .u64(self.cumulative_bytes_sent)
            .finish()
    }
}

/// What a receiver measured of a sender's packets (FIPS wire-formats, "ReceiverReport").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReceiverReport {
    /// Highest counter received.
    pub highest_counter: u64,
    /// Packets received in all.
    pub cumulative_packets_recv: u64,
    /// Bytes received in all.
    pub cumulative_bytes_recv: u64,
    /// A timestamp of the sender, echoed, in milliseconds.
    pub timestamp_echo: u32,
    /// Milliseconds between the receipt of that timestamp and this report.
    pub dwell_time: u16,
    /// Longest run of lost packets in the interval.
    pub max_burst_loss: u16,
    /// Mean length of such runs, as 8.8 fixed point.
    pub mean_burst_loss: u16,
    /// Interarrival jitter in microseconds.
    pub jitter: u32,
    /// Packets marked as having experienced congestion, in all.
    pub ecn_ce_count: u32,
    /// Trend of the one-way delay in microseconds per second; negative if it falls.
    pub owd_trend: i32,
    /// Runs of lost packets in the interval.
    pub burst_loss_count: u32,
    /// Packets received out of order, in all.
    pub cumulative_reorder_count: u32,
    /// Packets received in the interval.
    pub interval_packets_recv: u32,
    /// Bytes received in the interval.
    pub interval_bytes_recv: u32,
}

impl ReceiverReport {
    /// Bytes of the fields, including two reserved bytes, without the reserved bytes before them.
    pub const FIELDS_LEN: usize = 64;

    /// Reads a body.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn parse(body: &[u8], framing: ReportFraming) -> Result<Self, WireError> {
        let mut r = framing.open(body)?;
        let mut report = Self {
            highest_counter: r.u64()?,
            cumulative_packets_recv: r.u64()?,
            cumulative_bytes_recv: r.u64()?,
            timestamp_echo: r.u32()?,
            dwell_time: r.u16()?,
            max_burst_loss: r.u16()?,
            mean_burst_loss: r.u16()?,
            ..Self::default()
        };
        r.take(2)?;
        report.jitter = r.u32()?;
        report.ecn_ce_count = r.u32()?;
        report.owd_trend = r.i32()?;
        report.burst_loss_count = r.u32()?;
        report.cumulative_reorder_count = r.u32()?;
        report.interval_packets_recv = r.u32()?;
        report.interval_bytes_recv = r.u32()?;
        Ok(report)
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn wire_len(framing: ReportFraming) -> usize {
        framing.reserved_len() + Self::FIELDS_LEN
    }

    /// Writes the body and returns [`ReceiverReport::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8], framing: ReportFraming) -> Result<usize, WireError> {
        let mut w = framing.begin(out);
        w.u64(self.highest_counter)
            .u64(self.cumulative_packets_recv)
            .u64(self.cumulative_bytes_recv)
            .u32(self.timestamp_echo)
            .u16(self.dwell_time)
            .u16(self.max_burst_loss)
            .u16(self.mean_burst_loss)
            .u16(0)
            .u32(self.jitter)
            .u32(self.ecn_ce_count)
            .i32(self.owd_trend)
            .u32(self.burst_loss_count)
            .u32(self.cumulative_reorder_count)
            .u32(self.interval_packets_recv)
            .u32(self.interval_bytes_recv)
            .finish()
    }
}
