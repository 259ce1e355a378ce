//! When a link has something to do, and doing it.

use weft_contract::LinkCommand;
use weft_wire::link::{DisconnectReason, PROBE};

use super::{CANDIDATE_LIFE, Epoch, Link, PASSIVE_KEEPALIVE, Stage};
use crate::context::Context;
use crate::{Config, Event, LinkDown};

impl Link {
    /// Returns the next moment at which [`Link::handle_timeout`] has something to do, and what.
    pub(crate) fn deadline(&self, ctx: &Context) -> (u64, &'static str) {
        [
            (self.resend_at(), "handshake resend"),
            (self.dial_at(ctx), "dial"),
            (
                self.epochs.iter().map(Self::retire_at).min().unwrap_or(u64::MAX),
                "old keys drained",
            ),
            (self.heartbeat_at(ctx), "heartbeat"),
            (self.announce_at(), "announce our address"),
            (self.observed_at(), "observed address"),
            (self.report_at(ctx), "link report"),
            (self.health_at(ctx), "probe"),
            (self.while_up(self.hop_at()), "keys of the hop"),
            (self.while_up(self.moves_at()), "probe of a path"),
            (self.choice_at(), "choice of a path"),
            (self.late_at(), "probe of a late peer"),
            (self.while_up(self.bond_at()), "paths at the same time"),
            (self.dead_at(ctx), "link dead"),
            (self.keys_end_at(ctx), "link keys too old"),
            (self.keys_overdue_at(ctx), "link keys overdue"),
        ]
        .into_iter()
        .min_by_key(|(at, _)| *at)
        .unwrap_or((u64::MAX, ""))
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context, now: u64) {
        if now >= self.dead_at(ctx) {
            self.take_down(ctx, now, LinkDown::Silent);
        }
        if now >= self.keys_end_at(ctx) {
            self.disconnect(ctx, DisconnectReason::Restart);
            self.take_down(ctx, now, LinkDown::KeysTooOld);
        }
        if now >= self.keys_overdue_at(ctx) {
            self.overdue_told = true;
            ctx.event(Event::KeysOverdue {
                peer: self.peer,
                session: false,
                ends_in: self.keys_end_at(ctx).saturating_sub(now),
            });
        }
        self.retire(ctx, now);
        self.drive_attempt(ctx, now);
        if now >= self.dial_at(ctx) {
            let rekey = self.is_up() && now < self.unanswered_at();
            if rekey || self.may_dial(ctx, now) {
                self.start_attempt(ctx, now, rekey);
            }
        }
        if now >= self.report_at(ctx) {
            self.send_reports(ctx, now);
        }
        if now >= self.heartbeat_at(ctx) {
            self.heartbeat(ctx, now);
        }
        if now >= self.late_at() {
            self.probe_late(ctx, now);
        }
        if now >= self.announce_at() {
            self.announce(ctx, now);
        }
        if now >= self.observed_at() {
            self.repeat_observed(ctx, now);
        }
        self.drive_hop(ctx, now);
        self.drive_moves(ctx, now);
        self.drive_choice(ctx, now);
        if now >= self.while_up(self.bond_at()) {
            self.drive_bond(ctx, now);
        }
        if now >= self.health_at(ctx)
            && let Some(number) = self.health.handle_timeout(now, &self.liveness)
        {
            self.send(ctx, PROBE, number.to_le_bytes().to_vec());
        }
    }

    /// Returns when the keys in use end if no new ones replace them.
    fn keys_end_at(&self, ctx: &Context) -> u64 {
        self.current()
            .map_or(u64::MAX, |epoch| epoch.born + ctx.config.key_life())
    }

    /// Returns the time until the keys in use end, if they are overdue.
    pub(crate) fn overdue_keys_end(&self, config: &Config, now: u64) -> Option<u64> {
        let born = self.current()?.born;
        let is_overdue = now >= self.overdue_unless_idle(config, born);
        is_overdue.then(|| (born + config.key_life()).saturating_sub(now))
    }

    /// Returns when the keys are reported as overdue.
    fn keys_overdue_at(&self, ctx: &Context) -> u64 {
        match self.current() {
            Some(epoch) if !self.overdue_told => self.overdue_unless_idle(&ctx.config, epoch.born),
            _ => u64::MAX,
        }
    }

    /// Returns when a heartbeat is due: as an answer to payload, or because this node has sent
    /// nothing.
    fn heartbeat_at(&self, ctx: &Context) -> u64 {
        let quiet = self.quiet_at(ctx);
        self.while_up(self.liveness.answer_at(PASSIVE_KEEPALIVE).min(quiet))
    }

    fn announce_at(&self) -> u64 {
        if self.announcements > 0 {
            self.while_up(self.announce_at)
        } else {
            u64::MAX
        }
    }

    /// Returns when the health of the link needs a probe. A mesh alone has other paths that could be used.
    fn health_at(&self, ctx: &Context) -> u64 {
        if ctx.config.mesh {
            self.while_up(self.health.deadline(&self.liveness))
        } else {
            u64::MAX
        }
    }

    fn retire_at(epoch: &Epoch) -> u64 {
        match epoch.stage {
            Stage::Candidate => epoch.born + CANDIDATE_LIFE,
            Stage::Current => u64::MAX,
            Stage::Draining(until) => until,
        }
    }

    fn dial_at(&self, ctx: &Context) -> u64 {
        if self.attempt.is_some() || !self.has_target() {
            return u64::MAX;
        }
        if self.is_up() {
            self.unanswered_at().max(self.next_dial).min(self.rekey_at(ctx))
        } else {
            self.next_dial
        }
    }

    /// Whether a dial that is due may begin. Otherwise it is postponed to the place that it gets
    /// among those of all peers.
    fn may_dial(&mut self, ctx: &mut Context, now: u64) -> bool {
        if !std::mem::take(&mut self.has_place) {
            let at = ctx.dials.take(now);
            if at > now {
                (self.next_dial, self.has_place) = (at, true);
                return false;
            }
        }
        true
    }

    fn retire(&mut self, ctx: &mut Context, now: u64) {
        let expired: Vec<_> = self.epochs.extract_if(.., |e| now >= Self::retire_at(e)).collect();
        for epoch in expired {
            if let Some(answered) = &epoch.answered {
                self.spend(ctx, answered);
            }
            epoch.end_hop(ctx, self.id);
            ctx.free_index(epoch.index);
            let (link, index) = (self.id, epoch.index);
            ctx.change_link(link, LinkCommand::RetireEpoch { index });
        }
    }
}
