//! Reports about a link.

use weft_contract::{LinkCommand, ReportKind, SendCommand};
use weft_wire::link::LinkMessageType;

use super::{Link, Stage};
use crate::ReportMode;
use crate::context::Context;
use crate::metrics::Quality;
use crate::reports::REKEY_PAUSE;

/// The time between two reports of an idle link, in ms: a report is nearly twice as long as a heartbeat, and
/// the round trip of an idle link may be that old.
const IDLE_REPORT: u64 = 120_000;

impl Link {
    /// Returns when a receiver report is due.
    fn receiver_at(&self, ctx: &Context) -> u64 {
        let totals = self.liveness.totals();
        self.reports.receiver_at(ctx.config.link_reports, totals, &self.metrics)
    }

    /// Returns when a sender report is due.
    fn sender_at(&self, ctx: &Context) -> u64 {
        let payload = self.liveness.totals().last_payload_tx;
        self.reports.sender_at(ctx.config.link_reports, payload, &self.metrics)
    }

    /// Returns when a report is due.
    pub(super) fn report_at(&self, ctx: &Context) -> u64 {
        let due = self.receiver_at(ctx).min(self.sender_at(ctx));
        self.while_up(due.max(self.settled_at()))
    }

    pub(super) fn send_reports(&mut self, ctx: &mut Context, now: u64) {
        for (at, kind) in [
            (self.sender_at(ctx), ReportKind::Sender),
            (self.receiver_at(ctx), ReportKind::Receiver),
        ] {
            if at <= now {
                self.send_report(ctx, now, kind);
            }
        }
    }

    /// Shows the peer that this node is alive, with a report if there is something to report. On an
    /// idle link it first says how often it will do so, and reports each [`IDLE_REPORT`] only.
    pub(super) fn heartbeat(&mut self, ctx: &mut Context, now: u64) {
        if let Some(message) = self.keepalive_due(ctx, now) {
            return self.send_keepalive(ctx, now, message);
        }
        let is_due = !self.is_agreed() || now >= self.reports.received_at().saturating_add(IDLE_REPORT);
        let reports = ctx.config.link_reports != ReportMode::Minimal && self.settled_at() <= now;
        if reports && is_due && self.reports.has_news(self.liveness.totals()) {
            self.send_report(ctx, now, ReportKind::Receiver);
        } else {
            self.liveness.said(now);
            self.send(ctx, LinkMessageType::Heartbeat.to_byte(), Vec::new());
        }
    }

    fn send_report(&mut self, ctx: &mut Context, now: u64, kind: ReportKind) {
        self.liveness.said(now);
        self.reports.sent(now, kind, self.liveness.totals());
        ctx.lane(SendCommand::ReportOnLink { link: self.id, kind });
    }

    /// Makes lanes mark what they forward over the link, for as long as its loss is high.
    pub(crate) fn review_congestion(&mut self, ctx: &mut Context, quality: &Quality) {
        let congested = quality.is_congested(self.congested);
        if std::mem::replace(&mut self.congested, congested) != congested {
            let (link, on) = (self.id, congested);
            ctx.change_link(link, LinkCommand::MarkCongestion { on });
        }
    }

    /// Returns when both ends will presumably have settled on their keys.
    fn settled_at(&self) -> u64 {
        let candidates = self.epochs.iter().filter(|e| e.stage == Stage::Candidate);
        let asked = candidates.map(|e| e.born).max();
        let asking = self.attempt.as_ref().map(|a| a.started);
        asked.max(asking).map_or(0, |at| at + REKEY_PAUSE)
    }
}
