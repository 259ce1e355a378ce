//! Noise IK on a link: dialling, answering, and the outcome of two handshakes at once.

use weft_contract::{Endpoint, EpochUse, LinkCommand, LinkKeys, ReceiverIndex, SendCommand};
use weft_noise::fast::Seed;
use weft_noise::tag::{Digest, TagKeys};
use weft_noise::{Role, ik};
use weft_wire::fmp;
use weft_wire::link::DisconnectReason;

use super::{DRAIN, Effect, Epoch, Link, Stage};
use crate::LinkDown;
use crate::context::Context;

/// Unproven candidates at a time. A replayed msg1 can arm one, so they are few and the young ones
/// stay.
const MAX_CANDIDATES: usize = 4;
/// A candidate younger than this, two long round trips, is not evicted for another.
const CANDIDATE_GRACE: u64 = 2_000;
/// First wait for an answer to msg1; doubles up to [`RESEND_MAX`].
pub(super) const RESEND_MIN: u64 = 500;
/// Longest wait between two msg1 to a peer that does not answer. It bounds the time until a
/// restarted peer is noticed.
const RESEND_MAX: u64 = 2_500;
/// Attempts after which a peer is dialled less often if no packets wait for it: it is away, not
/// restarting.
const PATIENT_ATTEMPTS: u32 = 30;
/// The wait between two msg1 to such a peer.
const RESEND_LONG: u64 = 10_000;
/// One msg1 is repeated for this long, then a fresh one is made.
const ATTEMPT_LIFE: u64 = 12_000;
/// A rekey that the peer does not answer is given up after this, and tried again later.
const REKEY_LIFE: u64 = 8_000;
/// A rekey that failed is tried again after this, an eighth more or less. A FIPS daemon ignores
/// requests within 30 s of the last one.
pub(crate) const REKEY_RETRY: u64 = 36_000;
/// A peer that asked for new keys within this time may finish before this node asks.
const YIELD: u64 = 2_000;
/// This node's own rekey is postponed by no more than this. Otherwise replayed requests could
/// postpone it for ever.
const MAX_YIELD: u64 = 30_000;
/// The link ends after this long without an authentic frame, if the peer seems to use keys whose
/// answer never arrived.
const OUT_OF_STEP: u64 = 3_000;

/// A msg1 that was answered, and the answer.
#[derive(Debug)]
pub(super) struct Answered {
    msg1: [u8; fmp::NOISE_MSG1_LEN],
    msg2: Vec<u8>,
    /// The first destination of the answer, and whether it was sent to another one too. In that
    /// case the keys do not prove the address of the peer.
    to: Endpoint,
    elsewhere: bool,
}

impl Answered {
    /// Forgets the message, so that the same msg1 makes new keys if it is received again.
    pub(super) fn forget(&self, ctx: &mut Context) {
        ctx.first_messages.forget(&self.msg1);
    }
}

/// A handshake of this node in flight.
pub(super) struct Attempt {
    index: ReceiverIndex,
    initiator: ik::Initiator,
    msg1: Vec<u8>,
    pub(super) rekey: bool,
    pub(super) started: u64,
    /// The destinations of msg1.
    asked: Vec<Endpoint>,
    sends: u32,
    next_send: u64,
    /// When the peer was first seen to use these keys although its answer has not arrived.
    early: Option<u64>,
}

impl Link {
    /// Returns the number of msg1 sent without an answer, and the time since the first.
    pub(crate) fn dialing(&self, now: u64) -> Option<(u32, u64)> {
        self.attempt.as_ref().map(|a| (a.sends, now.saturating_sub(a.started)))
    }

    /// Whether msg2 for `index` answers this link's handshake.
    pub(crate) fn awaits(&self, index: ReceiverIndex) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.index == index)
    }

    /// Repeats the answer to a msg1 that was answered before, and returns whether there was one.
    pub(crate) fn repeat_answer(
        &mut self,
        ctx: &mut Context,
        from: Endpoint,
        noise: &[u8; fmp::NOISE_MSG1_LEN],
    ) -> bool {
        let known = self.epochs.iter_mut().find_map(|e| {
            let answered = e.answered.as_mut().filter(|a| a.msg1 == *noise)?;
            Some((e.index, answered))
        });
        let Some((index, answered)) = known else { return false };
        if !answered.to.is_to(from) && !std::mem::replace(&mut answered.elsewhere, true) {
            ctx.change_link(self.id, LinkCommand::SuspectPath { index });
        }
        ctx.lane(SendCommand::Transmit {
            to: from,
            datagram: answered.msg2.clone(),
        });
        true
    }

    /// Handles a msg1 of this peer that authenticated and was not answered before. `noise` is its
    /// Noise message.
    pub(crate) fn handle_msg1(
        &mut self,
        ctx: &mut Context,
        now: u64,
        from: Endpoint,
        their_index: ReceiverIndex,
        noise: &[u8; fmp::NOISE_MSG1_LEN],
        received: ik::Received,
    ) {
        let restarted = self.current().is_some_and(|e| e.remote_epoch != received.remote_epoch);
        // Both ends may rekey at once: the handshake of the smaller address wins, as in FIPS. The
        // larger one keeps its own in flight nevertheless, because this message may be a replay.
        let ours = self.attempt.as_ref().filter(|a| a.rekey && !restarted);
        if self.we_are_smaller && ours.is_some_and(|a| a.early.is_none()) {
            return;
        }
        if !self.make_room_for_candidate(ctx, now) {
            return;
        }
        let remote_epoch = received.remote_epoch;
        let (msg2, established) = received.accept(ctx.epoch, &mut *ctx.rng);
        let index = self.index_of(ctx, |keys| keys.ours.tag(Digest::of_msg2(&msg2, their_index.0)));
        let mut datagram = vec![0; fmp::Msg2::LEN];
        let answer = fmp::Msg2 {
            sender_idx: index.0,
            receiver_idx: their_index.0,
            noise: &msg2,
        };
        if answer.emit(&mut datagram).is_err() {
            ctx.free_index(index);
            return;
        }
        let seed = Seed::hop(&established, Role::Responder);
        let keys = LinkKeys {
            our_index: index,
            their_index,
            send: established.send,
            recv: established.recv,
        };
        self.install(ctx, from, true, keys, EpochUse::Candidate);
        ctx.first_messages.note_answered(noise, self.id);
        self.epochs.reserve_exact(1);
        self.epochs.push(Epoch {
            index,
            remote_epoch,
            began: now,
            born: now,
            stage: Stage::Candidate,
            answered: Some(Box::new(Answered {
                msg1: *noise,
                msg2: datagram.clone(),
                to: from,
                elsewhere: false,
            })),
            rekey: self.is_up() && !restarted,
            crossed: self.attempt.as_ref().map(|a| a.index),
            seed: Some(seed),
            hop: None,
        });
        ctx.lane(SendCommand::Transmit { to: from, datagram });
    }

    /// Handles the answer to msg1 if it is genuine; otherwise nothing changes.
    pub(crate) fn handle_msg2(&mut self, ctx: &mut Context, now: u64, from: Endpoint, msg2: &fmp::Msg2<'_>) -> Effect {
        let Some(attempt) = self.attempt.take_if(|a| a.index.0 == msg2.receiver_idx) else {
            return Effect::None;
        };
        let Ok(established) = attempt.initiator.finish(msg2.noise) else {
            self.attempt = Some(attempt);
            return Effect::None;
        };
        let remote_epoch = established.remote_epoch;
        let seed = Seed::hop(&established, Role::Initiator);
        let usage = self.settle_crossing(ctx, now, attempt.index);
        // The answer proves the peer's address if its source is one that msg1 was sent to. From
        // elsewhere another host may have forwarded it.
        let asked = attempt.asked.iter().find(|asked| asked.covers(from)).copied();
        if asked.is_some() {
            ctx.unconfirmed.give_back(now, from.remote());
        }
        let path = asked.or(self.path).unwrap_or(from);
        let proven = asked.is_some() || self.proven_path().is_some();
        let keys = LinkKeys {
            our_index: attempt.index,
            their_index: ReceiverIndex(msg2.sender_idx),
            send: established.send,
            recv: established.recv,
        };
        self.install(ctx, path, proven, keys, usage);
        let stage = if usage == EpochUse::Send {
            Stage::Candidate
        } else {
            Stage::Draining(now + DRAIN)
        };
        self.epochs.reserve_exact(1);
        self.epochs.push(Epoch {
            index: attempt.index,
            remote_epoch,
            began: attempt.started,
            born: now,
            stage,
            answered: None,
            rekey: attempt.rekey,
            crossed: None,
            seed: Some(seed),
            hop: None,
        });
        self.liveness.heard(now);
        if usage != EpochUse::Send {
            return Effect::None;
        }
        self.moves.handle_proven(self.path == Some(path), proven);
        let effect = self.promote(ctx, now, attempt.index, path);
        // The responder holds a candidate until it receives a frame.
        self.heartbeat(ctx, now);
        effect
    }

    /// Settles two handshakes that crossed. If both ends dialled at once, the handshake of the
    /// smaller address wins, as in FIPS. The other one is used until the winner is proven.
    fn settle_crossing(&mut self, ctx: &mut Context, now: u64, ours: ReceiverIndex) -> EpochUse {
        if self.we_are_smaller {
            for epoch in self
                .epochs
                .iter_mut()
                .filter(|e| e.crossed == Some(ours) && e.stage == Stage::Candidate)
            {
                epoch.stage = Stage::Draining(now + DRAIN);
                ctx.change_link(self.id, LinkCommand::Demote { index: epoch.index });
            }
            return EpochUse::Send;
        }
        let lost = self
            .epochs
            .iter()
            .any(|e| e.crossed == Some(ours) && e.stage == Stage::Current);
        if lost { EpochUse::ReceiveOnly } else { EpochUse::Send }
    }

    /// Allocates an index for a handshake message, with its tag if the peer may know of tags.
    fn index_of(&self, ctx: &mut Context, tag: impl Fn(&TagKeys) -> u32) -> ReceiverIndex {
        match &self.tags {
            Some(keys) => ctx.allocate_tagged(tag(keys)),
            None => ctx.allocate_index(),
        }
    }

    /// Handles a frame under keys whose answer this node waits for. Either the peer uses them
    /// already, or an attacker forged the frame.
    pub(crate) fn handle_early_frame(&mut self, now: u64, index: ReceiverIndex) {
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.index == index) {
            attempt.early.get_or_insert(now);
            attempt.next_send = now;
        }
    }

    /// Returns when to ask for new keys.
    pub(super) fn rekey_at(&self, ctx: &Context) -> u64 {
        let candidates = self.epochs.iter().filter(|e| e.stage == Stage::Candidate);
        let asked = candidates.map(|e| e.born + YIELD).max().unwrap_or(0);
        let due = self.rekey_unless_idle(ctx, self.rekey_due);
        due.max(asked.min(due.saturating_add(MAX_YIELD)))
    }

    /// Returns when msg1 is repeated.
    pub(super) fn resend_at(&self) -> u64 {
        let next_send = self.attempt.as_ref().map_or(u64::MAX, |attempt| attempt.next_send);
        next_send.min(self.out_of_step_at())
    }

    /// Returns when the link ends because the peer seems to use other keys already. The sign of
    /// that is not authentic. So the peer must also have been silent although there was payload to
    /// answer. A peer that has the present keys ends that silence with its next frame.
    fn out_of_step_at(&self) -> u64 {
        let early = self.attempt.as_ref().and_then(|attempt| attempt.early);
        early.map_or(u64::MAX, |at| self.unanswered_at().max(at + OUT_OF_STEP))
    }

    /// Repeats msg1 at `at`, if the next repeat would be later.
    pub(super) fn hurry(&mut self, at: u64) {
        if let Some(attempt) = &mut self.attempt {
            attempt.next_send = attempt.next_send.min(at);
        }
    }

    pub(super) fn start_attempt(&mut self, ctx: &mut Context, now: u64, rekey: bool) {
        let (initiator, noise) = ik::Initiator::start(&ctx.identity, self.peer, ctx.epoch, &mut *ctx.rng);
        let index = self.index_of(ctx, |keys| keys.ours.tag(Digest::of_msg1(&noise)));
        let mut msg1 = vec![0; fmp::Msg1::LEN];
        if (fmp::Msg1 {
            sender_idx: index.0,
            noise: &noise,
        })
        .emit(&mut msg1)
        .is_err()
        {
            ctx.free_index(index);
            return;
        }
        let (link, peer) = (self.id, self.peer.node_addr());
        ctx.change_link(link, LinkCommand::ArmIndex { peer, index });
        self.attempt = Some(Box::new(Attempt {
            index,
            initiator,
            msg1,
            rekey,
            started: now,
            asked: Vec::new(),
            sends: 0,
            next_send: now,
            early: None,
        }));
        self.drive_attempt(ctx, now);
    }

    /// Repeats msg1, or ends an attempt that fails.
    pub(super) fn drive_attempt(&mut self, ctx: &mut Context, now: u64) {
        let Some(attempt) = self.attempt.as_ref().filter(|_| now >= self.resend_at()) else {
            return;
        };
        let life = if attempt.rekey { REKEY_LIFE } else { ATTEMPT_LIFE };
        if now >= self.out_of_step_at() {
            self.disconnect(ctx, DisconnectReason::Restart);
            self.take_down(ctx, now, LinkDown::OutOfStep);
        } else if now.saturating_sub(attempt.started) >= life {
            self.give_up_attempt(ctx, now);
        } else {
            self.send_msg1(ctx, now);
        }
    }

    fn send_msg1(&mut self, ctx: &mut Context, now: u64) {
        let away = self.failures >= PATIENT_ATTEMPTS;
        let (rekey, sent) = self
            .attempt
            .as_ref()
            .map_or((false, 0), |attempt| (attempt.rekey, attempt.sends));
        let targets: Vec<Endpoint> = match rekey {
            // What came from elsewhere bounds what goes there.
            true => self.path.into_iter().chain(self.elsewhere()).collect(),
            false => self.dialled(ctx, now, sent),
        };
        let Some(attempt) = self.attempt.as_mut() else { return };
        let wait = if away {
            RESEND_LONG
        } else {
            (RESEND_MIN << attempt.sends.min(8)).min(RESEND_MAX)
        };
        attempt.sends += 1;
        attempt.next_send = now + ctx.jittered(wait);
        for to in targets {
            if !attempt.asked.contains(&to) {
                attempt.asked.push(to);
            }
            let datagram = attempt.msg1.clone();
            ctx.lane(SendCommand::Transmit { to, datagram });
        }
    }

    /// Returns where a message goes to: the paths on which the peer is dialled, and addresses where it was seen,
    /// without those that have had what may go there. `sent`: messages of this attempt before.
    fn dialled(&mut self, ctx: &mut Context, now: u64, sent: u32) -> Vec<Endpoint> {
        let again = self.is_up() || sent > 0 || self.failures > 0;
        let mut targets = self.dial_paths(ctx, now, again, sent);
        for at in self.paths.take_sighted() {
            if !targets.iter().any(|known| known.is_to(at)) {
                targets.push(at);
            }
        }
        targets.retain(|to| self.may_send(ctx, now, *to, fmp::Msg1::LEN));
        targets
    }

    fn give_up_attempt(&mut self, ctx: &mut Context, now: u64) {
        let rekey = self.attempt.as_ref().is_some_and(|a| a.rekey);
        self.abandon_attempt(ctx);
        self.failures += 1;
        self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(REKEY_RETRY));
        self.next_dial = now + if rekey { REKEY_LIFE } else { RESEND_MIN };
    }

    /// Handles packets that wait for this peer: a long pause between attempts is cut short.
    pub(crate) fn handle_wanted(&mut self, now: u64) {
        if self.attempt.is_none() {
            self.next_dial = self.next_dial.min(now);
        } else if !self.is_up() && self.failures >= PATIENT_ATTEMPTS {
            self.failures = 0;
            self.hurry(now);
        }
    }

    pub(crate) fn abandon_attempt(&mut self, ctx: &mut Context) {
        if let Some(attempt) = self.attempt.take() {
            ctx.free_index(attempt.index);
            ctx.change_link(self.id, LinkCommand::DisarmIndex { index: attempt.index });
        }
    }

    /// Evicts the oldest candidate if there are too many. Returns `false` if all are too young for
    /// that.
    fn make_room_for_candidate(&mut self, ctx: &mut Context, now: u64) -> bool {
        let candidates = self.epochs.iter().filter(|e| e.stage == Stage::Candidate);
        if candidates.clone().count() < MAX_CANDIDATES {
            return true;
        }
        let Some(oldest) = candidates
            .min_by_key(|e| e.born)
            .filter(|e| now.saturating_sub(e.born) >= CANDIDATE_GRACE)
        else {
            return false;
        };
        let index = oldest.index;
        // A live sender would have sent a frame long ago. Its msg1 makes no further candidate.
        // Otherwise a few replays in rotation would keep all places for ever.
        let at = self.epochs.iter().position(|e| e.index == index);
        let pushed_out = at.map(|at| self.epochs.remove(at));
        if let Some(answered) = pushed_out.and_then(|epoch| epoch.answered) {
            self.spend(ctx, &answered);
        }
        ctx.free_index(index);
        ctx.change_link(self.id, LinkCommand::RetireEpoch { index });
        true
    }

    /// Handles a msg1 whose keys are in use, or were never used in all their time. It makes no
    /// other keys.
    pub(super) fn spend(&mut self, ctx: &mut Context, answered: &Answered) {
        if self.tags.is_some() {
            ctx.first_messages.spend(&answered.msg1, &mut self.spent);
        } else {
            answered.forget(ctx);
        }
    }

    fn install(&self, ctx: &mut Context, path: Endpoint, proven: bool, keys: LinkKeys, usage: EpochUse) {
        let peer = self.peer.node_addr();
        ctx.change_link(
            self.id,
            LinkCommand::Install {
                peer,
                path,
                proven,
                keys,
                usage,
            },
        );
    }
}
