//! FSP: the end-to-end session with one node, over whatever path there is.
//!
//! The initiator keeps msg3 until a frame under the new keys has come back (L1), the responder repeats its ack while
//! msg3 is missing (L2). At a rekey data stays on the old keys until the new ones are proven: the responder is sure
//! with msg3, and the initiator sends small frames under the new keys until the first one from the other side comes.

use std::collections::BTreeSet;

use weft_noise::{Established, PublicKey, xk};
use weft_packet::{Command, EpochId, EpochUse, LinkId, SessionActivity, SessionKeys, Totals};
use weft_wire::Coords;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session::{self, SessionAck, SessionMsg3, SessionSetup};

use crate::context::Context;
use crate::{Event, SessionDown};

/// How long replaced keys still open late frames (L5).
const DRAIN: u64 = 10_000;
/// First wait before a handshake message is repeated; doubles each time.
const RESEND_MIN: u64 = 500;
/// Longest such wait.
const RESEND_MAX: u64 = 4_000;
/// A handshake without success ends after this.
const HANDSHAKE_LIFE: u64 = 12_000;
/// Half-open handshakes of the responder at a time: msg1 proves nothing, so they are few.
const MAX_AWAITING: usize = 2;
/// At least this between two handshakes that we start.
const MIN_INITIATE: u64 = 1_000;
/// Data sent and nothing heard for this long: the other end may have lost its keys.
const UNANSWERED: u64 = 5_000;
/// Who receives data but has nothing to send answers after this.
const PASSIVE_KEEPALIVE: u64 = 2_000;

/// An epoch the lane holds for this session.
#[derive(Debug)]
struct Epoch {
    id: EpochId,
    born: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Candidate,
    Current,
    /// Open until then.
    Draining(u64),
}

/// Repeats of one message.
#[derive(Debug)]
struct Repeat {
    started: u64,
    sends: u32,
    next: u64,
}

impl Repeat {
    fn new(now: u64) -> Self {
        Self {
            started: now,
            sends: 0,
            next: now,
        }
    }

    fn sent(&mut self, ctx: &mut Context, now: u64) {
        let wait = (RESEND_MIN << self.sends.min(8)).min(RESEND_MAX);
        self.sends += 1;
        self.next = now + ctx.jittered(wait);
    }

    fn expired(&self, now: u64) -> bool {
        now.saturating_sub(self.started) >= HANDSHAKE_LIFE
    }
}

/// We sent SessionSetup.
struct Initiating {
    handshake: xk::AwaitingMsg2,
    setup: Vec<u8>,
    repeat: Repeat,
}

/// We sent msg3 and nothing has come back under its keys.
struct Finishing {
    id: EpochId,
    msg3: Vec<u8>,
    msg2: [u8; xk::MSG2_LEN],
    repeat: Repeat,
}

/// We sent SessionAck.
struct Awaiting {
    handshake: xk::AwaitingMsg3,
    msg1: [u8; xk::MSG1_LEN],
    ack: Vec<u8>,
    born: u64,
}

/// The session with one configured peer.
pub(crate) struct Session {
    peer: PublicKey,
    we_are_smaller: bool,
    link: Option<LinkId>,
    epochs: Vec<Epoch>,
    next_id: u32,
    initiating: Option<Initiating>,
    finishing: Option<Finishing>,
    awaiting: Vec<Awaiting>,
    last_msg3: Option<[u8; xk::MSG3_LEN]>,
    /// Packets wait since then.
    pub(crate) wanted: Option<u64>,
    not_before: u64,
    rekey_due: u64,
    pub(crate) rekeys: u64,
    pub(crate) up_since: Option<u64>,
    pub(crate) totals: Totals,
    pub(crate) last_data: u64,
    last_heard: u64,
    unanswered_since: Option<u64>,
    answered_frames: u64,
    answered_at: u64,
}

impl Session {
    pub(crate) fn new(me_smaller: bool, peer: PublicKey) -> Self {
        Self {
            peer,
            we_are_smaller: me_smaller,
            link: None,
            epochs: Vec::new(),
            next_id: 0,
            initiating: None,
            finishing: None,
            awaiting: Vec::new(),
            last_msg3: None,
            wanted: None,
            not_before: 0,
            rekey_due: u64::MAX,
            rekeys: 0,
            up_since: None,
            totals: Totals::default(),
            last_data: 0,
            last_heard: 0,
            unanswered_since: None,
            answered_frames: 0,
            answered_at: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.initiating.is_some() || !self.awaiting.is_empty()
    }

    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.current().map(|e| now.saturating_sub(e.born))
    }

    pub(crate) fn last_heard(&self) -> u64 {
        self.last_heard
    }

    fn current(&self) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.stage == Stage::Current)
    }

    /// A link to the next hop came up.
    pub(crate) fn handle_link_up(&mut self, ctx: &mut Context, now: u64, link: LinkId, restarted: bool) {
        self.link = Some(link);
        ctx.lane(Command::BindSession {
            peer: self.peer.node_addr(),
            link,
        });
        let in_use =
            self.wanted.is_some() || now.saturating_sub(self.last_data) < ctx.config.session_idle && self.last_data > 0;
        if restarted && (self.is_up() || self.is_handshaking()) {
            self.take_down(ctx, SessionDown::PeerRestarted);
            if in_use {
                self.not_before = now;
                self.initiate(ctx, now);
            }
        } else if self.wanted.is_some() && !self.is_up() {
            self.not_before = now;
            self.initiate(ctx, now);
        } else if let Some(initiating) = &mut self.initiating {
            initiating.repeat.next = now;
        }
    }

    pub(crate) fn handle_link_down(&mut self) {
        self.link = None;
    }

    /// A packet waits for this session.
    pub(crate) fn handle_wanted(&mut self, ctx: &mut Context, now: u64) {
        self.wanted.get_or_insert(now);
        if !self.is_up() {
            self.initiate(ctx, now);
        }
    }

    /// Someone who claims to be the other end sends frames that we cannot open.
    pub(crate) fn handle_unknown(&mut self, ctx: &mut Context, now: u64) {
        if let Some(awaiting) = self.awaiting.last().filter(|a| now.saturating_sub(a.born) < 2_000) {
            let ack = awaiting.ack.clone();
            self.send_datagram(ctx, &ack);
            return;
        }
        self.initiate(ctx, now);
    }

    /// Starts a handshake, unless one is under way, was just tried, or there is no path.
    fn initiate(&mut self, ctx: &mut Context, now: u64) {
        if self.initiating.is_some() || self.finishing.is_some() || self.link.is_none() || now < self.not_before {
            return;
        }
        let (handshake, noise) = xk::Initiator::start(self.peer, &mut *ctx.rng);
        let (src, dest) = ([ctx.me], [self.peer.node_addr()]);
        let setup = SessionSetup {
            flags: 0,
            src: Coords::new(&src),
            dest: Coords::new(&dest),
            noise: &noise,
        };
        let mut bytes = vec![0; setup.wire_len()];
        if setup.emit(&mut bytes).is_err() {
            return;
        }
        self.not_before = now + MIN_INITIATE;
        self.initiating = Some(Initiating {
            handshake,
            setup: bytes,
            repeat: Repeat::new(now),
        });
        self.drive_initiating(ctx, now);
    }

    pub(crate) fn handle_setup(&mut self, ctx: &mut Context, now: u64, setup: &SessionSetup<'_>) {
        let Ok(msg1) = <[u8; xk::MSG1_LEN]>::try_from(setup.noise) else {
            return;
        };
        if let Some(again) = self.awaiting.iter().find(|a| a.msg1 == msg1) {
            let ack = again.ack.clone();
            self.send_datagram(ctx, &ack);
            return;
        }
        if self.initiating.is_some() {
            if self.we_are_smaller {
                return;
            }
            self.initiating = None;
        }
        let Ok((handshake, msg2)) = xk::Responder::read(&ctx.identity, &msg1, ctx.epoch, &mut *ctx.rng) else {
            return;
        };
        let (src, dest) = ([ctx.me], [self.peer.node_addr()]);
        let ack = SessionAck {
            flags: 0,
            src: Coords::new(&src),
            dest: Coords::new(&dest),
            noise: &msg2,
        };
        let mut bytes = vec![0; ack.wire_len()];
        if ack.emit(&mut bytes).is_err() {
            return;
        }
        if self.awaiting.len() == MAX_AWAITING {
            self.awaiting.remove(0);
        }
        self.awaiting.push(Awaiting {
            handshake,
            msg1,
            ack: bytes.clone(),
            born: now,
        });
        self.send_datagram(ctx, &bytes);
    }

    pub(crate) fn handle_ack(&mut self, ctx: &mut Context, now: u64, ack: &SessionAck<'_>) {
        let Ok(msg2) = <[u8; xk::MSG2_LEN]>::try_from(ack.noise) else {
            return;
        };
        if let Some(finishing) = self.finishing.as_ref().filter(|f| f.msg2 == msg2) {
            let msg3 = finishing.msg3.clone();
            self.send_datagram(ctx, &msg3);
            return;
        }
        let Some(initiating) = &self.initiating else { return };
        let Ok((noise, keys)) = initiating.handshake.finish(&ctx.identity, &msg2, ctx.epoch) else {
            return;
        };
        self.initiating = None;
        let mut msg3 = vec![
            0;
            SessionMsg3 {
                flags: 0,
                noise: &noise
            }
            .wire_len()
        ];
        if (SessionMsg3 {
            flags: 0,
            noise: &noise,
        })
        .emit(&mut msg3)
        .is_err()
        {
            return;
        }
        self.send_datagram(ctx, &msg3);
        let rekey = self.is_up();
        let id = self.install(ctx, now, keys, if rekey { EpochUse::Candidate } else { EpochUse::Send });
        if !rekey {
            self.promote(ctx, now, id);
        }
        let mut repeat = Repeat::new(now);
        repeat.sent(ctx, now);
        self.finishing = Some(Finishing { id, msg3, msg2, repeat });
        self.prove(ctx, id);
    }

    pub(crate) fn handle_msg3(&mut self, ctx: &mut Context, now: u64, msg3: &SessionMsg3<'_>) {
        let Ok(bytes) = <[u8; xk::MSG3_LEN]>::try_from(msg3.noise) else {
            return;
        };
        if self.last_msg3 == Some(bytes) {
            // Our confirmation was lost.
            self.keep_alive(ctx, now);
            return;
        }
        let finished = self
            .awaiting
            .iter()
            .position(|a| a.handshake.finish(&bytes).is_ok_and(|k| k.remote == self.peer));
        let Some(awaiting) = finished.map(|at| self.awaiting.remove(at)) else {
            return;
        };
        let Ok(keys) = awaiting.handshake.finish(&bytes) else {
            return;
        };
        self.awaiting.clear();
        self.initiating = None;
        self.last_msg3 = Some(bytes);
        // Msg3 proves that the initiator holds these keys, so they serve at once.
        let id = self.install(ctx, now, keys, EpochUse::Send);
        self.promote(ctx, now, id);
        self.keep_alive(ctx, now);
    }

    /// The other end used a candidate epoch of ours, and the lane seals with it now.
    pub(crate) fn handle_proven(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if self.epochs.iter().any(|e| e.id == id && e.stage == Stage::Candidate) {
            self.promote(ctx, now, id);
        }
        self.handle_confirmed(now, id);
    }

    /// The other end used the epoch that we seal with.
    pub(crate) fn handle_confirmed(&mut self, now: u64, id: EpochId) {
        self.heard(now);
        self.finishing.take_if(|f| f.id == id);
    }

    pub(crate) fn handle_activity(&mut self, now: u64, activity: &SessionActivity) {
        self.heard(activity.totals.last_rx.min(now));
        if activity.last_data_tx > self.last_heard {
            self.unanswered_since.get_or_insert(activity.last_data_tx);
        }
        if activity.totals.tx_frames != self.totals.tx_frames {
            self.answered_frames = activity.totals.rx_payload;
            self.answered_at = activity.totals.last_tx;
        }
        self.totals = activity.totals;
        self.last_data = self.last_data.max(activity.last_data);
        if self.is_up() && self.link.is_some() && self.last_data > 0 {
            self.wanted = None;
        }
    }

    fn heard(&mut self, at: u64) {
        self.last_heard = self.last_heard.max(at);
        self.unanswered_since = self.unanswered_since.filter(|since| *since > self.last_heard);
    }

    fn install(&mut self, ctx: &mut Context, now: u64, keys: Established, usage: EpochUse) -> EpochId {
        let id = EpochId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.epochs.push(Epoch {
            id,
            born: now,
            stage: Stage::Candidate,
        });
        let keys = SessionKeys {
            id,
            send: keys.send,
            recv: keys.recv,
        };
        ctx.lane(Command::InstallSession {
            peer: self.peer.node_addr(),
            keys,
            usage,
        });
        id
    }

    fn promote(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        let had = self.is_up();
        for epoch in &mut self.epochs {
            if epoch.id == id {
                epoch.stage = Stage::Current;
                epoch.born = now;
            } else if epoch.stage == Stage::Current {
                epoch.stage = Stage::Draining(now + DRAIN);
            }
        }
        self.rekey_due = now + ctx.jittered(ctx.config.rekey);
        self.unanswered_since = None;
        if had {
            self.rekeys += 1;
            ctx.event(Event::SessionRekeyed { peer: self.peer });
        } else {
            self.wanted = None;
            self.up_since = Some(now);
            self.last_data = self.last_data.max(now);
            ctx.event(Event::SessionUp { peer: self.peer });
        }
    }

    /// Sends a small frame under an epoch, to show the other end that we have it.
    fn prove(&self, ctx: &mut Context, id: EpochId) {
        let peer = self.peer.node_addr();
        ctx.lane(Command::SendOnSession {
            peer,
            epoch: Some(id),
            msg_type: session::ALIVE,
            body: Vec::new(),
        });
    }

    fn keep_alive(&mut self, ctx: &mut Context, now: u64) {
        self.answered_frames = self.totals.rx_payload;
        self.answered_at = now;
        let peer = self.peer.node_addr();
        ctx.lane(Command::SendOnSession {
            peer,
            epoch: None,
            msg_type: session::ALIVE,
            body: Vec::new(),
        });
    }

    fn send_datagram(&self, ctx: &mut Context, payload: &[u8]) {
        let Some(link) = self.link else { return };
        let datagram = SessionDatagram {
            ttl: SessionDatagram::DEFAULT_TTL,
            path_mtu: ctx.config.mtu,
            src: ctx.me,
            dest: self.peer.node_addr(),
            payload,
        };
        let mut body = vec![0; datagram.wire_len()];
        if datagram.emit(&mut body).is_ok() {
            ctx.lane(Command::SendOnLink {
                link,
                epoch: None,
                msg_type: LinkMessageType::SessionDatagram.to_byte(),
                body,
            });
        }
    }

    fn keepalive_at(&self) -> u64 {
        let owed = self.is_up() && self.link.is_some() && self.totals.rx_payload > self.answered_frames;
        if owed {
            self.answered_at
                .max(self.totals.last_rx.saturating_sub(PASSIVE_KEEPALIVE))
                + PASSIVE_KEEPALIVE
        } else {
            u64::MAX
        }
    }

    fn idle_at(&self, ctx: &Context) -> u64 {
        if self.is_up() {
            self.last_data + ctx.config.session_idle
        } else {
            u64::MAX
        }
    }

    fn initiate_at(&self) -> (u64, &'static str) {
        if self.initiating.is_some() || self.finishing.is_some() || self.link.is_none() {
            return (u64::MAX, "");
        }
        if !self.is_up() {
            return (self.wanted.map_or(u64::MAX, |_| self.not_before), "session wanted");
        }
        let unanswered = self.unanswered_since.map_or(u64::MAX, |since| since + UNANSWERED);
        if unanswered < self.rekey_due {
            (unanswered.max(self.not_before), "session unanswered")
        } else {
            (self.rekey_due, "session rekey")
        }
    }

    fn retire_at(epoch: &Epoch) -> u64 {
        match epoch.stage {
            Stage::Draining(until) => until,
            // A candidate ends with its handshake, see `drive_finishing`.
            Stage::Candidate | Stage::Current => u64::MAX,
        }
    }

    /// The next moment at which [`Session::handle_timeout`] has something to do, and what.
    pub(crate) fn deadline(&self, ctx: &Context) -> (u64, &'static str) {
        let linked = |at: u64| if self.link.is_some() { at } else { u64::MAX };
        let handshake = self.initiating.as_ref().map_or(u64::MAX, |i| {
            linked(i.repeat.next).min(i.repeat.started + HANDSHAKE_LIFE)
        });
        let finish = self.finishing.as_ref().map_or(u64::MAX, |f| {
            linked(f.repeat.next).min(f.repeat.started + HANDSHAKE_LIFE)
        });
        let half_open = self
            .awaiting
            .iter()
            .map(|a| a.born + HANDSHAKE_LIFE)
            .min()
            .unwrap_or(u64::MAX);
        let retire = self.epochs.iter().map(Self::retire_at).min().unwrap_or(u64::MAX);
        [
            (handshake, "session setup resend"),
            (finish, "session msg3 resend"),
            (half_open, "half-open session"),
            (retire, "old session keys drained"),
            self.initiate_at(),
            (self.keepalive_at(), "session keepalive"),
            (self.idle_at(ctx), "session idle"),
        ]
        .into_iter()
        .min_by_key(|(at, _)| *at)
        .unwrap_or((u64::MAX, ""))
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context, now: u64) {
        if now >= self.idle_at(ctx) {
            self.take_down(ctx, SessionDown::Idle);
        }
        self.awaiting.retain(|a| now < a.born + HANDSHAKE_LIFE);
        self.retire(ctx, now);
        self.drive_initiating(ctx, now);
        self.drive_finishing(ctx, now);
        if now >= self.initiate_at().0 {
            // An idle session is not rekeyed: it will end, or its next packet will do it.
            if self.is_up() && self.unanswered_since.is_none() && now.saturating_sub(self.last_data) > ctx.config.rekey
            {
                self.rekey_due = now + ctx.config.rekey;
            } else {
                self.unanswered_since = None;
                self.rekey_due = self.rekey_due.max(now + MIN_INITIATE);
                self.initiate(ctx, now);
            }
        }
        if now >= self.keepalive_at() {
            self.keep_alive(ctx, now);
        }
    }

    fn retire(&mut self, ctx: &mut Context, now: u64) {
        let peer = self.peer.node_addr();
        self.epochs.retain(|epoch| {
            let keep = now < Self::retire_at(epoch);
            if !keep {
                ctx.lane(Command::RetireSessionEpoch { peer, id: epoch.id });
            }
            keep
        });
    }

    fn drive_initiating(&mut self, ctx: &mut Context, now: u64) {
        let Some(mut initiating) = self.initiating.take() else {
            return;
        };
        if initiating.repeat.expired(now) {
            self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(31_000));
            if !self.is_up() && self.wanted.take().is_some() {
                ctx.lane(Command::DropQueue {
                    peer: self.peer.node_addr(),
                });
            }
            return;
        }
        if now >= initiating.repeat.next && self.link.is_some() {
            initiating.repeat.sent(ctx, now);
            self.send_datagram(ctx, &initiating.setup);
        }
        self.initiating = Some(initiating);
    }

    fn drive_finishing(&mut self, ctx: &mut Context, now: u64) {
        let Some(mut finishing) = self.finishing.take() else {
            return;
        };
        if finishing.repeat.expired(now) {
            self.give_up(ctx, now, finishing.id);
            return;
        }
        if now >= finishing.repeat.next && self.link.is_some() {
            finishing.repeat.sent(ctx, now);
            self.send_datagram(ctx, &finishing.msg3);
            self.prove(ctx, finishing.id);
        }
        self.finishing = Some(finishing);
    }

    /// The other end never used the epoch: at a rekey the old keys go on, a first session ends.
    fn give_up(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if self.current().is_some_and(|e| e.id == id) {
            self.take_down(ctx, SessionDown::Unconfirmed);
            self.not_before = now + MIN_INITIATE;
            return;
        }
        self.epochs.retain(|e| e.id != id);
        self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(31_000));
        ctx.lane(Command::RetireSessionEpoch {
            peer: self.peer.node_addr(),
            id,
        });
    }

    pub(crate) fn take_down(&mut self, ctx: &mut Context, reason: SessionDown) {
        let was_up = self.is_up();
        self.epochs.clear();
        self.initiating = None;
        self.finishing = None;
        self.awaiting.clear();
        self.up_since = None;
        self.unanswered_since = None;
        self.answered_frames = self.totals.rx_payload;
        ctx.lane(Command::RemoveSession {
            peer: self.peer.node_addr(),
        });
        if was_up {
            ctx.event(Event::SessionDown {
                peer: self.peer,
                reason,
            });
        }
    }

    pub(crate) fn epochs_held(&self) -> usize {
        self.epochs.len() + self.awaiting.len()
    }

    /// The numbers of all epochs, and of the present one.
    pub(crate) fn held(&self) -> (BTreeSet<u32>, Option<u32>) {
        (self.epochs.iter().map(|e| e.id.0).collect(), self.current().map(|e| e.id.0))
    }
}
