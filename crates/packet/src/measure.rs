//! Reports of measurements: those that this node sends, and those of its peers about it.
//!
//! A report is about the epoch that it is sealed under, so that each end can compare it with its
//! own counters and clock. Source: FIPS fips-mmp and wire-formats, "SenderReport",
//! "ReceiverReport".

use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::SessionMessageType;

use crate::control::{Layer, LinkId, Measured, Report, ReportKind, Totals};
use crate::counters::DropReason;
use crate::epoch::Epochs;
use crate::lane::Lane;
use crate::link::Link;
use crate::meter::Meter;
use crate::session::Session;
use crate::train::{Train, Transmit};

/// Where the interval of the next SenderReport begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    epoch: Option<u32>,
    counter: u64,
    clock: u32,
    bytes: u64,
}

impl Told {
    /// Returns what was sent under the keys in use since their last report, and begins a new
    /// interval.
    fn report(&mut self, keys: Sealed, totals: &Totals) -> Option<SenderReport> {
        if self.epoch != Some(keys.number) {
            (self.epoch, self.counter, self.clock) = (Some(keys.number), 0, 0);
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
struct Sealed {
    /// Their number.
    number: u32,
    /// The number of frames sealed so far.
    frames: u64,
    /// Their clock when the last frame was sealed, in ms.
    clock: u32,
}

impl Sealed {
    fn of_link(link: &Link, now: u64) -> Option<Self> {
        Self::of(&link.epochs, link.totals.last_tx.min(now))
    }

    fn of_session(session: &Session, now: u64, fast: bool) -> Option<Self> {
        let last = session.totals.last_tx.min(now);
        if !fast {
            return Self::of(&session.epochs, last);
        }
        session.fast.current().map(|keys| Self {
            number: keys.number(),
            frames: keys.sealed(),
            clock: keys.timestamp(last),
        })
    }

    fn of(epochs: &Epochs, last: u64) -> Option<Self> {
        epochs.current().map(|epoch| Self {
            number: epoch.id,
            frames: epoch.sealed(),
            clock: epoch.timestamp(last),
        })
    }
}

/// Returns the body of a report with this framing, or `None` if there is nothing to report.
fn body(
    now: u64,
    kind: ReportKind,
    framing: ReportFraming,
    (keys, totals): (Sealed, &Totals),
    (meter, told): (&mut Meter, &mut Told),
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; ReceiverReport::wire_len(framing).max(SenderReport::wire_len(framing))];
    let len = match kind {
        ReportKind::Sender => told.report(keys, totals)?.emit(&mut bytes, framing),
        ReportKind::Receiver => {
            let about = meter.follows(keys.number).then(|| meter.report(now)).flatten()?;
            about.emit(&mut bytes, framing)
        }
    };
    bytes.truncate(len.ok()?);
    Some(bytes)
}

impl Lane {
    pub(crate) fn report_on_link<T: Transmit>(&mut self, now: u64, id: LinkId, kind: ReportKind, train: &mut Train<T>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let body = Sealed::of_link(link, now).and_then(|keys| {
            let meters = (&mut link.meter, &mut link.told);
            body(now, kind, ReportFraming::Link, (keys, &link.totals), meters)
        });
        let msg_type = match (kind, &body) {
            (ReportKind::Receiver, None) => LinkMessageType::Heartbeat,
            (ReportKind::Sender, None) => return,
            (ReportKind::Receiver, Some(_)) => LinkMessageType::ReceiverReport,
            (ReportKind::Sender, Some(_)) => LinkMessageType::SenderReport,
        };
        let body = body.unwrap_or_default();
        if kind == ReportKind::Receiver {
            self.tell_hop_phase(now, id, None, train);
        }
        self.send_on_link(now, id, None, msg_type.to_byte(), &body, train);
    }

    pub(crate) fn report_on_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        kind: ReportKind,
        train: &mut Train<T>,
    ) {
        let fast = self.egress(&peer).fast.is_some();
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let Some(keys) = Sealed::of_session(session, now, fast) else {
            return;
        };
        let meters = (&mut session.meter, &mut session.told);
        let Some(body) = body(now, kind, ReportFraming::Session, (keys, &session.totals), meters) else {
            return;
        };
        if kind == ReportKind::Receiver {
            // The acknowledgement that was sent at once may have been lost.
            self.tell_phase(now, peer, None, train);
        }
        let msg_type = match kind {
            ReportKind::Sender => SessionMessageType::SenderReport,
            ReportKind::Receiver => SessionMessageType::ReceiverReport,
        };
        self.send_on_session(now, peer, None, msg_type.to_byte(), &body, train);
    }

    /// Processes the peer's report on what it received under this node's epoch `epoch`.
    pub(crate) fn measured(&mut self, now: u64, on: Layer, epoch: u32, body: &[u8]) -> Result<(), DropReason> {
        let framing = match on {
            Layer::Link(_) => ReportFraming::Link,
            Layer::Session(_) => ReportFraming::Session,
        };
        let report = ReceiverReport::parse(body, framing).map_err(|_| DropReason::Malformed)?;
        let of = |epochs: &Epochs| epochs.get(epoch).map(|known| (known.sealed(), known.timestamp(now)));
        let known = match on {
            Layer::Link(id) => self.links.get(&id).and_then(|link| of(&link.epochs)),
            Layer::Session(peer) => self.sessions.get(&peer).and_then(|session| {
                let fast = session.fast.measured(epoch);
                let fast = fast.map(|known| (known.sealed(), known.timestamp(now)));
                fast.or_else(|| of(&session.epochs))
            }),
        };
        let (sent, clock) = known.ok_or(DropReason::NoKeys)?;
        self.report(Report::Measured(
            on,
            Measured {
                epoch,
                sent,
                clock,
                report,
            },
        ));
        Ok(())
    }
}
