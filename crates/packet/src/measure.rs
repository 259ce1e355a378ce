//! Reports of measurements: those that this node sends, and those of its peers about it.
//!
//! A report is about the epoch that it is sealed under, so that each end can compare it with its
//! own counters and clock. Source: FIPS fips-mmp and wire-formats, "SenderReport",
//! "ReceiverReport".

use weft_contract::{CountedEpoch, Layer, Measured, Report, ReportKind, Totals};
use weft_wire::link::LinkMessageType;
use weft_wire::mmp::{ReceiverReport, ReportFraming, SenderReport};
use weft_wire::session::SessionMessageType;

use crate::counters::DropReason;
use crate::fips::Epochs;
use crate::interval::{Sealed, SenderInterval};
use crate::meter::Meter;
use crate::sender::Sender;
use crate::session::Session;
use crate::tables::{LinkKey, SessionKey, Tables};
use crate::train::Transmit;

fn of_session(session: &Session, now: u64, fast: bool) -> Option<Sealed> {
    let last = session.totals.last_tx.min(now);
    if !fast {
        return of_epochs(&session.epochs, last);
    }
    session.fast.current().map(|keys| Sealed {
        epoch: keys.counted(),
        frames: keys.sealed(),
        clock: keys.timestamp(last),
    })
}

fn of_epochs(epochs: &Epochs, last: u64) -> Option<Sealed> {
    epochs.current().map(|epoch| Sealed {
        epoch: epoch.counted(),
        frames: epoch.sealed(),
        clock: epoch.timestamp(last),
    })
}

/// Returns the body of a report with this framing, or `None` if there is nothing to report.
fn body(
    now: u64,
    kind: ReportKind,
    framing: ReportFraming,
    keys: Sealed,
    totals: &Totals,
    meter: &mut Meter,
    interval: &mut SenderInterval,
) -> Option<Vec<u8>> {
    let mut bytes = vec![0; ReceiverReport::wire_len(framing).max(SenderReport::wire_len(framing))];
    let len = match kind {
        ReportKind::Sender => interval.report(keys, totals)?.emit(&mut bytes, framing),
        ReportKind::Receiver => {
            let about = meter.follows(keys.epoch).then(|| meter.report(now)).flatten()?;
            about.emit(&mut bytes, framing)
        }
    };
    bytes.truncate(len.ok()?);
    Some(bytes)
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends a report on a link, or a heartbeat if there is nothing that was received to report.
    pub(crate) fn report_on_link(&mut self, key: LinkKey, kind: ReportKind) {
        let Some(link) = self.tables.links.get_mut(key) else {
            return;
        };
        let (now, framing) = (self.now, ReportFraming::Link);
        let (totals, meter, interval) = (&link.totals, &mut link.meter, &mut link.sender_interval);
        let keys = of_epochs(&link.epochs, totals.last_tx.min(now));
        let body = keys.and_then(|keys| body(now, kind, framing, keys, totals, meter, interval));
        let msg_type = match (kind, &body) {
            (ReportKind::Receiver, None) => LinkMessageType::Heartbeat,
            (ReportKind::Sender, None) => return,
            (ReportKind::Receiver, Some(_)) => LinkMessageType::ReceiverReport,
            (ReportKind::Sender, Some(_)) => LinkMessageType::SenderReport,
        };
        if kind == ReportKind::Receiver {
            self.announce_hop_phase(key, None);
        }
        self.link_message(key, None, msg_type.to_byte(), &body.unwrap_or_default());
    }

    /// Sends a report on a session, if there is anything to report.
    pub(crate) fn report_on_session(&mut self, key: SessionKey, kind: ReportKind) {
        let fast = self.tables.egress(key).frames.is_fast();
        let Some(session) = self.tables.sessions.get_mut(key) else {
            return;
        };
        let (now, framing) = (self.now, ReportFraming::Session);
        let keys = of_session(session, now, fast);
        let (totals, meter, interval) = (&session.totals, &mut session.meter, &mut session.sender_interval);
        let body = keys.and_then(|keys| body(now, kind, framing, keys, totals, meter, interval));
        let Some(body) = body else { return };
        if kind == ReportKind::Receiver {
            // The acknowledgement that was sent at once may have been lost.
            self.announce_phase(key, None);
        }
        let msg_type = match kind {
            ReportKind::Sender => SessionMessageType::SenderReport,
            ReportKind::Receiver => SessionMessageType::ReceiverReport,
        };
        self.session_message(key, None, msg_type.to_byte(), &body);
    }
}

impl Tables {
    /// Returns the report to the core on what a peer received under this node's epoch `epoch`.
    /// `body` is the peer's report.
    pub(crate) fn measured(&self, now: u64, on: Layer, epoch: CountedEpoch, body: &[u8]) -> Result<Report, DropReason> {
        let framing = match on {
            Layer::Link(_) => ReportFraming::Link,
            Layer::Session(_) => ReportFraming::Session,
        };
        let report = ReceiverReport::parse(body, framing).map_err(|_| DropReason::Malformed)?;
        let of = |epochs: &Epochs| {
            epochs
                .counted(epoch)
                .map(|known| (known.sealed(), known.timestamp(now)))
        };
        let known = match on {
            Layer::Link(id) => self.links.find(&id).and_then(|link| of(&link.epochs)),
            Layer::Session(peer) => self.sessions.find(&peer).and_then(|session| {
                let fast = session.fast.counted(epoch);
                let fast = fast.map(|known| (known.sealed(), known.timestamp(now)));
                fast.or_else(|| of(&session.epochs))
            }),
        };
        let (sent, clock) = known.ok_or(DropReason::NoKeys)?;
        Ok(Report::Measured(
            on,
            Measured {
                epoch,
                sent,
                clock,
                report,
            },
        ))
    }
}
