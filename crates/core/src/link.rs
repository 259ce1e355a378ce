//! FMP: the relation with one neighbour, from first dial to rekey and loss.
//!
//! A handshake message never replaces anything. Msg1 arms a candidate epoch next to the present one; the lane promotes
//! it when a frame authenticates under it. Msg2 proves that the responder holds the keys, so the initiator seals with
//! them at once. Old epochs stay open until they have drained.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use weft_noise::{Established, PublicKey, ik};
use weft_packet::{Command, EpochUse, LinkActivity, LinkId, LinkKeys, Totals};
use weft_wire::fmp;
use weft_wire::link::{Disconnect, DisconnectReason, LinkMessageType};

use crate::context::Context;
use crate::{Event, LinkDown};

/// How long replaced keys still open late frames (L5).
const DRAIN: u64 = 10_000;
/// A candidate that nobody has used for this long is forgotten.
const CANDIDATE_LIFE: u64 = 30_000;
/// Unproven candidates at a time. A recorded msg1 can be replayed to arm one, so they are few and the young stay.
const MAX_CANDIDATES: usize = 3;
/// A candidate younger than this is not pushed out by another.
const CANDIDATE_GRACE: u64 = 5_000;
/// First wait for an answer to msg1; doubles up to [`RESEND_MAX`].
const RESEND_MIN: u64 = 500;
/// Longest wait between two msg1 to a peer that does not answer: it bounds how long a restarted peer goes unnoticed.
const RESEND_MAX: u64 = 2_500;
/// One msg1 is repeated for this long, then a fresh one is made.
const ATTEMPT_LIFE: u64 = 10_000;
/// A rekey that the peer does not answer is given up after this, and tried again later.
const REKEY_LIFE: u64 = 8_000;
/// A rekey whose answer was lost while the peer has cut over: begin anew after this. FIPS-NOTES, "Rekey".
const OUT_OF_STEP: u64 = 3_000;
/// Who receives but has nothing to send answers after this, so that silence means something.
const PASSIVE_KEEPALIVE: u64 = 1_000;
/// Sent but nothing heard for this long: the peer may have restarted or moved, so dial beside the present keys.
const UNANSWERED: u64 = 3_000;

/// Heartbeats after a change of our own network, so that the peer learns where we are.
const ANNOUNCEMENTS: u32 = 3;
/// The time between them.
const ANNOUNCE_EVERY: u64 = 300;

/// An epoch the lane holds for this link.
#[derive(Debug)]
struct Epoch {
    index: u32,
    remote_epoch: [u8; 8],
    born: u64,
    stage: Stage,
    /// The handshake messages, kept by the responder to answer a repeated msg1 alike.
    answered: Option<Answered>,
    /// Replaces keys of a link that is up, rather than opening it.
    rekey: bool,
    /// Armed while our own first handshake was in flight: one of the two must lose.
    crossed: bool,
}

#[derive(Debug)]
struct Answered {
    msg1: [u8; fmp::NOISE_MSG1_LEN],
    msg2: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Candidate,
    Current,
    /// Open until then.
    Draining(u64),
}

/// A handshake of ours in flight.
struct Attempt {
    index: u32,
    initiator: ik::Initiator,
    msg1: Vec<u8>,
    rekey: bool,
    started: u64,
    sends: u32,
    next_send: u64,
    /// When the peer was first seen to use these keys although its answer has not come.
    early: Option<u64>,
}

/// The link with one configured peer.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    peer: PublicKey,
    we_are_smaller: bool,
    addresses: Vec<SocketAddr>,
    /// Where the peer was last seen, in this life or an earlier one.
    last_path: Option<SocketAddr>,
    /// Where the link goes now.
    path: Option<SocketAddr>,
    epochs: Vec<Epoch>,
    /// The number that the peer drew at its start, as last proven: a link that comes back to another one finds a peer
    /// without memory.
    known_start: Option<[u8; 8]>,
    attempt: Option<Attempt>,
    next_dial: u64,
    /// Attempts since the peer last answered.
    pub(crate) failures: u32,
    rekey_due: u64,
    pub(crate) rekeys: u64,
    pub(crate) up_since: Option<u64>,
    pub(crate) last_down: Option<(u64, LinkDown)>,
    pub(crate) totals: Totals,
    /// When something authentic last came: a frame, or the answer to a handshake.
    last_heard: u64,
    /// The first payload that we sent since, if any: it deserves an answer.
    unanswered_since: Option<u64>,
    heartbeat_due: u64,
    announcements: u32,
    announce_at: u64,
    /// Payload frames received when we last sent something.
    answered_frames: u64,
    answered_at: u64,
}

/// What a link's event means for the session above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// The link can carry traffic; `restarted` tells that the peer lost its memory.
    Up { restarted: bool },
}

impl Link {
    pub(crate) fn new(ctx: &mut Context, now: u64, id: LinkId, peer: PublicKey, addresses: Vec<SocketAddr>) -> Self {
        // Ours may be the only end that can dial, but nodes started together need not all dial in the same instant.
        let spread = ctx.jittered(40);
        Self {
            id,
            peer,
            we_are_smaller: ctx.me < peer.node_addr(),
            addresses,
            last_path: None,
            path: None,
            epochs: Vec::new(),
            known_start: None,
            attempt: None,
            next_dial: now + spread,
            failures: 0,
            rekey_due: u64::MAX,
            rekeys: 0,
            up_since: None,
            last_down: None,
            totals: Totals::default(),
            last_heard: now,
            unanswered_since: None,
            heartbeat_due: u64::MAX,
            announcements: 0,
            announce_at: 0,
            answered_frames: 0,
            answered_at: now,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn path(&self) -> Option<SocketAddr> {
        self.path
    }

    /// Every place where the peer may be, the most likely first.
    pub(crate) fn targets(&self) -> Vec<SocketAddr> {
        let mut targets: Vec<SocketAddr> = self.path.into_iter().chain(self.last_path).collect();
        for addr in &self.addresses {
            if !targets.contains(addr) {
                targets.push(*addr);
            }
        }
        targets.dedup();
        targets
    }

    /// Msg1 sent and unanswered, and for how long.
    pub(crate) fn dialing(&self, now: u64) -> Option<(u32, u64)> {
        self.attempt.as_ref().map(|a| (a.sends, now.saturating_sub(a.started)))
    }

    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.current().map(|e| now.saturating_sub(e.born))
    }

    pub(crate) fn hint(&mut self, now: u64, addr: SocketAddr) {
        self.last_path = Some(addr);
        self.next_dial = self.next_dial.min(now);
    }

    pub(crate) fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        self.addresses = addresses;
    }

    /// Whether msg2 for `index` answers this link's handshake.
    pub(crate) fn awaits(&self, index: u32) -> bool {
        self.attempt.as_ref().is_some_and(|a| a.index == index)
    }

    fn current(&self) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.stage == Stage::Current)
    }

    /// A msg1 from this peer that authenticated. `noise` is its Noise message.
    pub(crate) fn handle_msg1(
        &mut self,
        ctx: &mut Context,
        now: u64,
        from: SocketAddr,
        their_index: u32,
        noise: &[u8; fmp::NOISE_MSG1_LEN],
        received: ik::Received,
    ) {
        let known = self
            .epochs
            .iter()
            .filter_map(|e| e.answered.as_ref())
            .find(|a| a.msg1 == *noise);
        if let Some(answered) = known {
            ctx.lane(Command::Transmit {
                to: from,
                datagram: answered.msg2.clone(),
            });
            return;
        }
        let restarted = self.current().is_some_and(|e| e.remote_epoch != received.remote_epoch);
        if let Some(attempt) = self.attempt.as_ref().filter(|a| a.rekey && !restarted) {
            if self.we_are_smaller && attempt.early.is_none() {
                return;
            }
            self.abandon_attempt(ctx);
        }
        if !self.make_room_for_candidate(ctx, now) {
            return;
        }
        let remote_epoch = received.remote_epoch;
        let (msg2, established) = received.accept(ctx.epoch, &mut *ctx.rng);
        let index = ctx.allocate_index();
        let mut datagram = vec![0; fmp::Msg2::LEN];
        let answer = fmp::Msg2 {
            sender_idx: index,
            receiver_idx: their_index,
            noise: &msg2,
        };
        if answer.emit(&mut datagram).is_err() {
            return;
        }
        self.install(ctx, from, established, index, their_index, EpochUse::Candidate);
        self.epochs.push(Epoch {
            index,
            remote_epoch,
            born: now,
            stage: Stage::Candidate,
            answered: Some(Answered {
                msg1: *noise,
                msg2: datagram.clone(),
            }),
            rekey: self.is_up() && !restarted,
            crossed: self.attempt.as_ref().is_some_and(|a| !a.rekey),
        });
        ctx.lane(Command::Transmit { to: from, datagram });
    }

    /// The answer to our msg1, if it is genuine; otherwise nothing changes.
    pub(crate) fn handle_msg2(
        &mut self,
        ctx: &mut Context,
        now: u64,
        from: SocketAddr,
        msg2: &fmp::Msg2<'_>,
    ) -> Effect {
        let Some(attempt) = self.attempt.take_if(|a| a.index == msg2.receiver_idx) else {
            return Effect::None;
        };
        let Ok(established) = attempt.initiator.finish(msg2.noise) else {
            self.attempt = Some(attempt);
            return Effect::None;
        };
        let remote_epoch = established.remote_epoch;
        let usage = self.settle_crossing(ctx, &attempt, now);
        self.install(ctx, from, established, attempt.index, msg2.sender_idx, usage);
        let stage = if usage == EpochUse::Send {
            Stage::Candidate
        } else {
            Stage::Draining(now + DRAIN)
        };
        self.epochs.push(Epoch {
            index: attempt.index,
            remote_epoch,
            born: now,
            stage,
            answered: None,
            rekey: attempt.rekey,
            crossed: false,
        });
        self.heard(now);
        if usage != EpochUse::Send {
            return Effect::None;
        }
        let effect = self.promote(ctx, now, attempt.index, from);
        // The responder holds a candidate until it sees a frame.
        self.send(ctx, LinkMessageType::Heartbeat.to_byte(), Vec::new());
        effect
    }

    /// When both ends dialled at once, the handshake of the smaller address wins, as in FIPS. The other one serves
    /// until the winner is proven.
    fn settle_crossing(&mut self, ctx: &mut Context, attempt: &Attempt, now: u64) -> EpochUse {
        if attempt.rekey {
            return EpochUse::Send;
        }
        if self.we_are_smaller {
            for epoch in self
                .epochs
                .iter_mut()
                .filter(|e| e.crossed && e.stage == Stage::Candidate)
            {
                epoch.stage = Stage::Draining(now + DRAIN);
                ctx.lane(Command::Demote {
                    link: self.id,
                    index: epoch.index,
                });
            }
            return EpochUse::Send;
        }
        let lost = self.epochs.iter().any(|e| e.crossed && e.stage == Stage::Current);
        if lost { EpochUse::ReceiveOnly } else { EpochUse::Send }
    }

    /// The lane saw a first frame under a candidate and seals with it now.
    pub(crate) fn handle_proven(&mut self, ctx: &mut Context, now: u64, index: u32, path: SocketAddr) -> Effect {
        if !self
            .epochs
            .iter()
            .any(|e| e.index == index && e.stage == Stage::Candidate)
        {
            return Effect::None;
        }
        self.heard(now);
        if !self.we_are_smaller || self.attempt.as_ref().is_some_and(|a| a.rekey) {
            self.abandon_attempt(ctx);
        }
        self.promote(ctx, now, index, path)
    }

    /// Makes an epoch the current one and lets the others drain.
    fn promote(&mut self, ctx: &mut Context, now: u64, index: u32, path: SocketAddr) -> Effect {
        let was_up = self.is_up();
        let (mut remote_epoch, mut rekey) = (None, false);
        for epoch in &mut self.epochs {
            if epoch.index == index {
                epoch.stage = Stage::Current;
                epoch.born = now;
                (remote_epoch, rekey) = (Some(epoch.remote_epoch), epoch.rekey);
            } else if epoch.stage == Stage::Current {
                epoch.stage = Stage::Draining(now + DRAIN);
            }
        }
        self.path = Some(path);
        self.last_path = Some(path);
        self.rekey_due = now + ctx.jittered(ctx.config.rekey);
        self.heartbeat_due = now + ctx.config.heartbeat;
        self.failures = 0;
        let restarted = self.known_start.is_some() && self.known_start != remote_epoch;
        self.known_start = remote_epoch;
        if !was_up || restarted {
            self.up_since = Some(now);
            ctx.event(Event::LinkUp {
                peer: self.peer,
                path,
                restarted,
            });
            return Effect::Up { restarted };
        }
        if rekey {
            self.rekeys += 1;
            ctx.event(Event::LinkRekeyed { peer: self.peer });
        }
        Effect::None
    }

    /// An authenticated frame came from a new address; the lane already sends there.
    pub(crate) fn handle_roamed(&mut self, ctx: &mut Context, path: SocketAddr) {
        let moved = self.path.is_some_and(|old| old != path);
        self.path = Some(path);
        self.last_path = Some(path);
        if moved && self.is_up() {
            ctx.event(Event::Roamed { peer: self.peer, path });
        }
    }

    /// A frame under keys we wait for: the peer went ahead.
    pub(crate) fn handle_early_frame(&mut self, now: u64, index: u32) {
        if let Some(attempt) = self.attempt.as_mut().filter(|a| a.index == index) {
            attempt.early.get_or_insert(now);
            attempt.next_send = now;
        }
    }

    /// The peer takes leave. Only a goodbye under the present keys ends the present link.
    pub(crate) fn handle_disconnect(
        &mut self,
        ctx: &mut Context,
        now: u64,
        index: u32,
        reason: DisconnectReason,
    ) -> bool {
        if self.current().is_none_or(|e| e.index != index) {
            return false;
        }
        self.take_down(ctx, now, LinkDown::Disconnected(reason.to_byte()));
        self.next_dial = now + RESEND_MIN;
        true
    }

    pub(crate) fn handle_activity(&mut self, now: u64, activity: &LinkActivity) {
        self.heard(activity.totals.last_rx.min(now));
        if activity.totals.last_payload_tx > self.last_heard {
            self.unanswered_since.get_or_insert(activity.totals.last_payload_tx);
        }
        if activity.totals.tx_frames != self.totals.tx_frames {
            self.answered_frames = activity.totals.rx_payload;
            self.answered_at = activity.totals.last_tx;
        }
        self.totals = activity.totals;
    }

    /// Says goodbye, for an orderly stop.
    pub(crate) fn disconnect(&mut self, ctx: &mut Context, reason: DisconnectReason) {
        if self.is_up() {
            self.send(
                ctx,
                LinkMessageType::Disconnect.to_byte(),
                vec![Disconnect { reason }.reason.to_byte()],
            );
        }
    }

    /// Our own addresses or routes changed. The peer learns where we are from the next frame, so it gets one now, and
    /// two more in case the new way is not ready yet; a peer that is not linked is dialled at once.
    pub(crate) fn handle_network_change(&mut self, ctx: &mut Context, now: u64) {
        if self.is_up() {
            self.announcements = ANNOUNCEMENTS;
            self.announce_at = now;
            self.announce(ctx, now);
        } else if let Some(attempt) = &mut self.attempt {
            attempt.next_send = attempt.next_send.min(now + RESEND_MIN);
        } else {
            self.next_dial = now;
        }
    }

    fn announce(&mut self, ctx: &mut Context, now: u64) {
        if !self.is_up() {
            self.announcements = 0;
        }
        if self.announcements > 0 && now >= self.announce_at {
            self.announcements -= 1;
            self.announce_at = now + ANNOUNCE_EVERY;
            self.send(ctx, LinkMessageType::Heartbeat.to_byte(), Vec::new());
        }
    }

    fn send(&self, ctx: &mut Context, msg_type: u8, body: Vec<u8>) {
        ctx.lane(Command::SendOnLink {
            link: self.id,
            epoch: None,
            msg_type,
            body,
        });
    }

    fn heard(&mut self, at: u64) {
        self.last_heard = self.last_heard.max(at);
        self.unanswered_since = self.unanswered_since.filter(|since| *since > self.last_heard);
    }

    /// When payload that we sent has been without any sign of the peer for longer than a live one takes.
    fn unanswered_at(&self) -> u64 {
        self.unanswered_since
            .filter(|_| self.is_up())
            .map_or(u64::MAX, |since| since + UNANSWERED)
    }

    /// When to answer payload that we received, if we have sent nothing since.
    fn keepalive_at(&self) -> u64 {
        if self.is_up() && self.totals.rx_payload > self.answered_frames {
            self.answered_at
                .max(self.totals.last_rx.saturating_sub(PASSIVE_KEEPALIVE))
                + PASSIVE_KEEPALIVE
        } else {
            u64::MAX
        }
    }

    fn dead_at(&self, ctx: &Context) -> u64 {
        if self.is_up() {
            self.last_heard + ctx.config.link_dead
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

    fn dial_at(&self) -> u64 {
        if self.attempt.is_some() || self.targets().is_empty() {
            return u64::MAX;
        }
        if self.is_up() {
            self.unanswered_at().max(self.next_dial).min(self.rekey_due)
        } else {
            self.next_dial
        }
    }

    /// The next moment at which [`Link::handle_timeout`] has something to do, and what.
    pub(crate) fn deadline(&self, ctx: &Context) -> (u64, &'static str) {
        let attempt = self.attempt.as_ref();
        let retire = self.epochs.iter().map(Self::retire_at).min().unwrap_or(u64::MAX);
        let heartbeat = if self.is_up() { self.heartbeat_due } else { u64::MAX };
        [
            (attempt.map_or(u64::MAX, |a| a.next_send), "handshake resend"),
            (self.dial_at(), "dial"),
            (retire, "old keys drained"),
            (heartbeat, "heartbeat"),
            (self.keepalive_at(), "keepalive"),
            (
                if self.announcements > 0 {
                    self.announce_at
                } else {
                    u64::MAX
                },
                "announce our address",
            ),
            (self.dead_at(ctx), "link dead"),
        ]
        .into_iter()
        .min_by_key(|(at, _)| *at)
        .unwrap_or((u64::MAX, ""))
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context, now: u64) {
        if now >= self.dead_at(ctx) {
            self.take_down(ctx, now, LinkDown::Silent);
        }
        self.retire(ctx, now);
        self.drive_attempt(ctx, now);
        if now >= self.dial_at() {
            let rekey = self.is_up() && now < self.unanswered_at();
            self.start_attempt(ctx, now, rekey);
        }
        self.keep_alive(ctx, now);
        self.announce(ctx, now);
    }

    fn keep_alive(&mut self, ctx: &mut Context, now: u64) {
        if !self.is_up() {
            return;
        }
        let idle = now.saturating_sub(self.totals.last_tx) >= ctx.config.heartbeat;
        if now >= self.keepalive_at() || (now >= self.heartbeat_due && idle) {
            self.answered_frames = self.totals.rx_payload;
            self.answered_at = now;
            self.totals.last_tx = self.totals.last_tx.max(now);
            self.send(ctx, LinkMessageType::Heartbeat.to_byte(), Vec::new());
        }
        if now >= self.heartbeat_due {
            self.heartbeat_due = (self.totals.last_tx + ctx.config.heartbeat).max(now + 1);
        }
    }

    fn retire(&mut self, ctx: &mut Context, now: u64) {
        let (id, expired): (_, Vec<u32>) = (
            self.id,
            self.epochs
                .iter()
                .filter(|e| now >= Self::retire_at(e))
                .map(|e| e.index)
                .collect(),
        );
        for index in expired {
            self.epochs.retain(|e| e.index != index);
            ctx.free_index(index);
            ctx.lane(Command::RetireLinkEpoch { link: id, index });
        }
    }

    fn start_attempt(&mut self, ctx: &mut Context, now: u64, rekey: bool) {
        let index = ctx.allocate_index();
        let (initiator, noise) = ik::Initiator::start(&ctx.identity, self.peer, ctx.epoch, &mut *ctx.rng);
        let mut msg1 = vec![0; fmp::Msg1::LEN];
        if (fmp::Msg1 {
            sender_idx: index,
            noise: &noise,
        })
        .emit(&mut msg1)
        .is_err()
        {
            return;
        }
        ctx.lane(Command::ArmIndex { link: self.id, index });
        self.attempt = Some(Attempt {
            index,
            initiator,
            msg1,
            rekey,
            started: now,
            sends: 0,
            next_send: now,
            early: None,
        });
        self.drive_attempt(ctx, now);
    }

    fn drive_attempt(&mut self, ctx: &mut Context, now: u64) {
        let Some(attempt) = self.attempt.as_ref().filter(|a| now >= a.next_send) else {
            return;
        };
        let (rekey, age) = (attempt.rekey, now.saturating_sub(attempt.started));
        if attempt.early.is_some_and(|at| now.saturating_sub(at) >= OUT_OF_STEP) && self.is_up() {
            self.disconnect(ctx, DisconnectReason::Restart);
            self.take_down(ctx, now, LinkDown::OutOfStep);
            self.next_dial = now;
            return;
        }
        if age >= if rekey { REKEY_LIFE } else { ATTEMPT_LIFE } {
            self.abandon_attempt(ctx);
            self.failures += 1;
            self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(31_000));
            self.next_dial = now + if rekey { REKEY_LIFE } else { RESEND_MIN };
            return;
        }
        let targets = if rekey {
            self.path.into_iter().collect()
        } else {
            self.targets()
        };
        let wait = ctx.jittered((RESEND_MIN << self.attempt.as_ref().map_or(0, |a| a.sends.min(8))).min(RESEND_MAX));
        let Some(attempt) = self.attempt.as_mut() else { return };
        attempt.sends += 1;
        attempt.next_send = now + wait;
        for to in targets {
            ctx.lane(Command::Transmit {
                to,
                datagram: attempt.msg1.clone(),
            });
        }
    }

    fn abandon_attempt(&mut self, ctx: &mut Context) {
        if let Some(attempt) = self.attempt.take() {
            ctx.free_index(attempt.index);
            ctx.lane(Command::DisarmIndex { index: attempt.index });
        }
    }

    fn take_down(&mut self, ctx: &mut Context, now: u64, reason: LinkDown) {
        self.abandon_attempt(ctx);
        for epoch in std::mem::take(&mut self.epochs) {
            ctx.free_index(epoch.index);
        }
        ctx.lane(Command::RemoveLink { link: self.id });
        self.path = None;
        self.up_since = None;
        self.unanswered_since = None;
        self.last_down = Some((now, reason));
        self.next_dial = now;
        ctx.event(Event::LinkDown {
            peer: self.peer,
            reason,
        });
    }

    /// Pushes out the oldest candidate if there are too many; false if all are too young for that.
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
        self.epochs.retain(|e| e.index != index);
        ctx.free_index(index);
        ctx.lane(Command::RetireLinkEpoch { link: self.id, index });
        true
    }

    fn install(
        &self,
        ctx: &mut Context,
        path: SocketAddr,
        keys: Established,
        our_index: u32,
        their_index: u32,
        usage: EpochUse,
    ) {
        let keys = LinkKeys {
            our_index,
            their_index,
            send: keys.send,
            recv: keys.recv,
        };
        ctx.lane(Command::InstallLink {
            link: self.id,
            path,
            keys,
            usage,
        });
    }

    /// Bytes of state this link holds, for the bound on what peers can make us keep.
    pub(crate) fn epochs_held(&self) -> usize {
        self.epochs.len()
    }

    /// The indices of all epochs, and of the present one.
    pub(crate) fn held(&self) -> (BTreeSet<u32>, Option<u32>) {
        (self.epochs.iter().map(|e| e.index).collect(), self.current().map(|e| e.index))
    }
}
