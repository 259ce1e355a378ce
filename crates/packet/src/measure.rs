//! Reports of measurements: those we send, and what they say about us.
//!
//! A report is about the epoch that it is sealed under, so that each side can set it against counters and clock of its
//! own. Source: FIPS fips-mmp and wire-formats, "SenderReport", "ReceiverReport".

use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::SessionMessageType;

use crate::control::{Layer, LinkId, Report, ReportKind, Totals};
use crate::epoch::Epochs;
use crate::lane::Lane;
use crate::meter::Meter;
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
    /// What was sent since the last report of the epoch in use, and a new interval.
    fn report(&mut self, now: u64, epochs: &Epochs, totals: &Totals) -> Option<SenderReport> {
        let epoch = epochs.current()?;
        if self.epoch != Some(epoch.id) {
            (self.epoch, self.counter, self.clock) = (Some(epoch.id), 0, 0);
        }
        let end = epoch.sealed().checked_sub(1).filter(|end| *end >= self.counter)?;
        let clock = epoch.timestamp(totals.last_tx.min(now));
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

/// The body of a report with this framing, if there is anything to tell.
fn body(
    now: u64,
    kind: ReportKind,
    framing: ReportFraming,
    (epochs, totals): (&Epochs, &Totals),
    (meter, told): (&mut Meter, &mut Told),
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; ReceiverReport::wire_len(framing).max(SenderReport::wire_len(framing))];
    let len = match kind {
        ReportKind::Sender => told.report(now, epochs, totals)?.emit(&mut bytes, framing),
        ReportKind::Receiver => {
            let current = epochs.current()?;
            let about = meter.follows(current.id).then(|| meter.report(now)).flatten()?;
            about.emit(&mut bytes, framing)
        }
    };
    bytes.truncate(len.ok()?);
    Some(bytes)
}

impl Lane {
    pub(crate) fn report_on_link<T: Transmit>(&mut self, now: u64, id: LinkId, kind: ReportKind, train: &mut Train<T>) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let sources = (&link.epochs, &link.totals);
        let body = body(
            now,
            kind,
            ReportFraming::Link,
            sources,
            (&mut link.meter, &mut link.told),
        );
        let msg_type = match (kind, &body) {
            (ReportKind::Receiver, None) => LinkMessageType::Heartbeat,
            (ReportKind::Sender, None) => return,
            (ReportKind::Receiver, Some(_)) => LinkMessageType::ReceiverReport,
            (ReportKind::Sender, Some(_)) => LinkMessageType::SenderReport,
        };
        let body = body.unwrap_or_default();
        self.send_on_link(now, id, None, msg_type.to_byte(), &body, train);
    }

    pub(crate) fn report_on_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        kind: ReportKind,
        train: &mut Train<T>,
    ) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        let sources = (&session.epochs, &session.totals);
        let meters = (&mut session.meter, &mut session.told);
        let Some(body) = body(now, kind, ReportFraming::Session, sources, meters) else {
            return;
        };
        let msg_type = match kind {
            ReportKind::Sender => SessionMessageType::SenderReport,
            ReportKind::Receiver => SessionMessageType::ReceiverReport,
        };
        self.send_on_session(now, peer, None, msg_type.to_byte(), &body, train);
    }

    /// The other side tells what it received from us under our epoch `epoch`.
    pub(crate) fn measured(&mut self, now: u64, on: Layer, epoch: u32, body: &[u8]) {
        let (framing, epochs) = match on {
            Layer::Link(id) => (ReportFraming::Link, self.links.get(&id).map(|link| &link.epochs)),
            Layer::Session(peer) => (ReportFraming::Session, self.sessions.get(&peer).map(|s| &s.epochs)),
        };
        let Ok(report) = ReceiverReport::parse(body, framing) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(known) = epochs.and_then(|epochs| epochs.get(epoch)) else {
            return;
        };
        let (sent, clock) = (known.sealed(), known.timestamp(now));
        self.report(Report::Measured {
            on,
            epoch,
            sent,
            clock,
            report,
        });
    }
}
