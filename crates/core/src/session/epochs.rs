//! The epochs of a session: one set of keys each, from its handshake to its end.

use std::collections::BTreeSet;

use weft_contract::{EpochId, EpochUse, ReceiverIndex, SessionCommand, SessionKeys};
use weft_noise::fast::Seed;
use weft_noise::{Established, Role};

use super::half_open::HalfOpen;
use super::{ASLEEP, DRAIN, Session};
use crate::context::Context;
use crate::metrics::Metrics;
use crate::{Event, SessionDown};

/// An epoch that the lane holds for this session.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) id: EpochId,
    /// The random number that the peer drew at its start.
    pub(super) start: [u8; 8],
    pub(super) born: u64,
    pub(super) stage: Stage,
    /// The seed of fast keys, until they are derived.
    pub(super) seed: Option<Seed>,
    /// The receiver index of this node's fast frames in this epoch.
    pub(super) fast_index: Option<ReceiverIndex>,
}

impl Epoch {
    pub(super) fn free(&self, ctx: &mut Context) {
        if let Some(index) = self.fast_index {
            ctx.free_fast_index(index);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Candidate,
    Current,
    /// Opens frames until this time.
    Draining(u64),
}

impl Session {
    pub(super) fn current(&self) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.stage == Stage::Current)
    }

    pub(super) fn install(
        &mut self,
        ctx: &mut Context,
        now: u64,
        keys: Established,
        usage: EpochUse,
        initiator: bool,
    ) -> EpochId {
        let id = EpochId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let role = if initiator { Role::Initiator } else { Role::Responder };
        self.epochs.reserve_exact(1);
        self.epochs.push(Epoch {
            id,
            start: keys.remote_epoch,
            born: now,
            stage: Stage::Candidate,
            seed: Some(Seed::new(&keys, role)),
            fast_index: None,
        });
        let keys = SessionKeys {
            id,
            initiator,
            send: keys.send,
            recv: keys.recv,
        };
        ctx.change_session(self.peer.node_addr(), SessionCommand::Install { keys, usage });
        id
    }

    pub(super) fn promote(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        let had = self.is_up();
        for epoch in &mut self.epochs {
            if epoch.id == id {
                epoch.stage = Stage::Current;
                epoch.born = now;
            } else if epoch.stage == Stage::Current {
                epoch.stage = Stage::Draining(now + DRAIN);
            }
        }
        let peer = self.peer.node_addr();
        ctx.change_session(peer, SessionCommand::SelectEpoch { id });
        self.forget_lost_keys(ctx, id);
        self.rekey_due = now + ctx.jittered(ctx.config.rekey);
        self.liveness.settle();
        self.passing.settle();
        self.overdue_told = false;
        if had {
            self.rekeys += 1;
            ctx.event(Event::SessionRekeyed { peer: self.peer });
        } else {
            self.wanted = None;
            self.up_since = Some(now);
            self.last_down = None;
            self.last_data = self.last_data.max(now);
            ctx.event(Event::SessionUp { peer: self.peer });
        }
        self.flush_services(ctx, now);
    }

    /// Lets these keys open frames for a while, but seal none.
    pub(super) fn drain(&mut self, now: u64, id: EpochId) {
        for epoch in self.epochs.iter_mut().filter(|epoch| epoch.id == id) {
            epoch.stage = Stage::Draining(now + DRAIN);
        }
    }

    /// Ends older epochs with fast keys if the peer has restarted since. The peer has lost these
    /// keys, and data would go in their fast frames until the ends agree on new ones.
    pub(super) fn forget_lost_keys(&mut self, ctx: &mut Context, id: EpochId) {
        let start = self.epochs.iter().find(|epoch| epoch.id == id).map(|epoch| epoch.start);
        let lost = |epoch: &Epoch| epoch.fast_index.is_some() && Some(epoch.start) != start;
        let peer = self.peer.node_addr();
        if !self.epochs.iter().any(lost) {
            return;
        }
        self.epochs.retain(|epoch| {
            if lost(epoch) {
                epoch.free(ctx);
                ctx.change_session(peer, SessionCommand::RetireEpoch { id: epoch.id });
            }
            !lost(epoch)
        });
        self.forget_agreement();
        self.forget_sizes();
    }

    pub(super) fn retire_at(epoch: &Epoch) -> u64 {
        match epoch.stage {
            Stage::Draining(until) => until,
            // A candidate ends with its handshake, see `drive_finishing`.
            Stage::Candidate | Stage::Current => u64::MAX,
        }
    }

    /// Returns when the keys in use end if no new ones replace them.
    pub(super) fn keys_end_at(&self, ctx: &Context) -> u64 {
        self.current()
            .map_or(u64::MAX, |epoch| epoch.born + ctx.config.key_life())
    }

    /// Returns when the keys are reported as overdue.
    pub(super) fn keys_overdue_at(&self, ctx: &Context) -> u64 {
        match self.current() {
            Some(epoch) if !self.overdue_told => epoch.born + ctx.config.key_overdue(),
            _ => u64::MAX,
        }
    }

    /// Ends keys at their maximum age, and reports overdue ones. The session is requested again at
    /// once, and its packets wait.
    pub(super) fn end_old_keys(&mut self, ctx: &mut Context, now: u64) {
        if now >= self.keys_end_at(ctx) {
            self.take_down(ctx, SessionDown::KeysTooOld);
            self.last_down = Some((now, SessionDown::KeysTooOld));
            self.wanted.get_or_insert(now);
            self.not_before = now;
            self.initiate(ctx, now);
        }
        if now >= self.keys_overdue_at(ctx) {
            self.overdue_told = true;
            ctx.event(Event::KeysOverdue {
                peer: self.peer,
                session: true,
                ends_in: self.keys_end_at(ctx).saturating_sub(now),
            });
        }
    }

    pub(super) fn retire(&mut self, ctx: &mut Context, now: u64) {
        let peer = self.peer.node_addr();
        self.epochs.retain(|epoch| {
            let keep = now < Self::retire_at(epoch);
            if !keep {
                epoch.free(ctx);
                ctx.change_session(peer, SessionCommand::RetireEpoch { id: epoch.id });
            }
            keep
        });
    }

    /// Ends an idle session at this end, before a FIPS daemon ends it at its own. The peer's
    /// reports under the present keys still arrive for a while, and must not look like frames of a
    /// session whose keys were lost.
    pub(super) fn fall_asleep(&mut self, ctx: &mut Context, now: u64) {
        self.initiating = None;
        self.finishing = None;
        self.forget_agreement();
        self.rest_probes(now);
        for epoch in self
            .epochs
            .iter_mut()
            .filter(|e| !matches!(e.stage, Stage::Draining(_)))
        {
            epoch.stage = Stage::Draining(now + ASLEEP);
        }
        self.up_since = None;
        self.metrics = Metrics::default();
        self.passing.end();
        self.liveness.settle();
        ctx.change_session(self.peer.node_addr(), SessionCommand::Suspend);
        ctx.event(Event::SessionDown {
            peer: self.peer,
            reason: SessionDown::Idle,
        });
    }

    pub(crate) fn take_down(&mut self, ctx: &mut Context, reason: SessionDown) {
        let was_up = self.is_up();
        self.forget_agreement();
        self.forget_sizes();
        self.epochs.drain(..).for_each(|epoch| epoch.free(ctx));
        self.initiating = None;
        self.finishing = None;
        self.awaiting = HalfOpen::default();
        self.up_since = None;
        self.metrics = Metrics::default();
        self.passing.end();
        self.liveness.settle();
        ctx.change_session(self.peer.node_addr(), SessionCommand::Remove);
        if was_up {
            ctx.event(Event::SessionDown {
                peer: self.peer,
                reason,
            });
        }
    }

    pub(crate) fn epochs_held(&self) -> usize {
        self.epochs.len()
    }

    /// Returns the numbers of all epochs, and of the present one.
    pub(crate) fn held(&self) -> (BTreeSet<u32>, Option<u32>) {
        (
            self.epochs.iter().map(|e| e.id.0).collect(),
            self.current().map(|e| e.id.0),
        )
    }
}
