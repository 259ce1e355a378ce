//! Reports about a session.

use weft_contract::{ReportKind, SendCommand};

use super::Session;
use crate::context::Context;

impl Session {
    /// Returns when a receiver report is due.
    fn receiver_at(&self, ctx: &Context) -> u64 {
        let totals = self.liveness.totals();
        self.reports
            .receiver_at(ctx.config.session_reports, totals, &self.metrics)
    }

    /// Returns when a sender report is due.
    fn sender_at(&self, ctx: &Context) -> u64 {
        self.reports
            .sender_at(ctx.config.session_reports, self.last_data_tx, &self.metrics)
    }

    /// Returns when a report is due. While keys are being replaced the two ends count under
    /// different epochs, so none is.
    pub(super) fn report_at(&self, ctx: &Context) -> u64 {
        if !self.is_up() || self.link.is_none() || self.finishing.is_some() {
            return u64::MAX;
        }
        self.receiver_at(ctx).min(self.sender_at(ctx))
    }

    pub(super) fn send_reports(&mut self, ctx: &mut Context, now: u64) {
        for (at, kind) in [
            (self.sender_at(ctx), ReportKind::Sender),
            (self.receiver_at(ctx), ReportKind::Receiver),
        ] {
            if at <= now {
                self.liveness.said(now);
                self.reports.sent(now, kind, self.liveness.totals());
                let peer = self.peer.node_addr();
                ctx.lane(SendCommand::ReportOnSession { peer, kind });
            }
        }
    }
}
