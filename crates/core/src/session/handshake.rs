//! Noise XK of a session: starting, answering, confirming, and giving up.

use weft_contract::{EpochId, EpochUse, LinkId, SessionCommand};
use weft_noise::{Established, xk};
use weft_wire::session::{READS_DIRECT, SessionAck, SessionMsg3, SessionSetup};
use weft_wire::{Coords, NodeAddr};

use super::half_open::{Awaiting, HalfOpen};
use super::{Session, Stage};
use crate::SessionDown;
use crate::context::Context;
use crate::unproven::Arrival;

/// First wait before a handshake message is repeated; doubles each time.
const RESEND_MIN: u64 = 500;
/// Longest such wait.
const RESEND_MAX: u64 = 4_000;
/// Minimum time between two setups if coordinates change meanwhile.
const RESEND_GENTLY: u64 = 250;
/// A handshake without success ends after this.
pub(crate) const HANDSHAKE_LIFE: u64 = 12_000;
/// A rekey that failed is tried again after this, an eighth more or less, as for links.
const REKEY_RETRY: u64 = 36_000;
/// For this long, frames that do not open are attributed to a lost msg3. Later this node starts a
/// handshake itself.
const HALF_OPEN: u64 = 2_000;
/// Minimum time between two answers to the same message.
const REPEAT_PAUSE: u64 = 100;
/// Frames under unknown keys cause a handshake only if nothing of the session was received for this
/// long.
const LOST_AFTER: u64 = 3_000;
/// Frames under unknown keys that arrive for this long are not attributed to a lost msg3.
const PERSISTENT: u64 = 1_000;
/// First wait between two handshakes that frames under unknown keys cause; doubles each time.
const LOST_MIN: u64 = 1_000;
/// Longest such wait.
const LOST_MAX: u64 = 60_000;
/// The wait returns to its minimum after this long without such a handshake.
const LOST_FORGIVEN: u64 = 120_000;
/// Minimum time between two handshakes that this node starts.
pub(super) const MIN_INITIATE: u64 = 1_000;

/// The repeats of one message.
#[derive(Debug)]
pub(super) struct Repeat {
    started: u64,
    sends: u32,
    last: Option<u64>,
    next: u64,
}

impl Repeat {
    fn new(now: u64) -> Self {
        Self {
            started: now,
            sends: 0,
            last: None,
            next: now,
        }
    }

    /// Returns repeats that begin with the wait that others reach after two messages.
    fn late(now: u64) -> Self {
        Self {
            sends: 2,
            ..Self::new(now)
        }
    }

    fn sent(&mut self, ctx: &mut Context, now: u64) {
        let wait = (RESEND_MIN << self.sends.min(8)).min(RESEND_MAX);
        self.sends += 1;
        self.last = Some(now);
        self.next = now + ctx.jittered(wait);
    }

    /// Repeats at `at`, if the next repeat would be later.
    pub(super) fn hurry(&mut self, at: u64) {
        self.next = self.next.min(at);
    }

    /// Repeats soon, but leaves time for an answer.
    fn hurry_gently(&mut self, now: u64) {
        self.hurry(self.last.map_or(now, |last| now.max(last + RESEND_GENTLY)));
    }

    fn expired(&self, now: u64) -> bool {
        now.saturating_sub(self.started) >= HANDSHAKE_LIFE
    }
}

/// Returns what this node says it reads, in its part of a handshake.
fn offered(ctx: &Context) -> u8 {
    if ctx.takes_whole { READS_DIRECT } else { 0 }
}

/// State after a SessionSetup was sent.
pub(super) struct Initiating {
    handshake: xk::AwaitingMsg2,
    msg1: [u8; xk::MSG1_LEN],
    /// The link over which the setup was last sent.
    over: Option<LinkId>,
    pub(super) repeat: Repeat,
}

/// State after msg3 was sent, until a frame under its keys is received.
pub(super) struct Finishing {
    pub(super) id: EpochId,
    /// Kept because another answer to the setup may arrive.
    handshake: xk::AwaitingMsg2,
    msg3: Vec<u8>,
    msg2: [u8; xk::MSG2_LEN],
    /// The link over which the setup was last sent.
    over: Option<LinkId>,
    pub(super) repeat: Repeat,
}

/// Frames under unknown keys that were received in the peer's name, and the handshakes that they
/// caused. Any node can send such frames.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// When the first of the present series was received.
    since: u64,
    /// When the latest of them was received.
    last: u64,
    /// The time from which the next handshake may start because of them.
    next: u64,
    /// The length of the present wait.
    wait: u64,
}

impl Lost {
    /// Records one more frame, and returns for how long they have kept arriving.
    fn came(&mut self, now: u64) -> u64 {
        if self.last == 0 || now.saturating_sub(self.last) >= HALF_OPEN {
            self.since = now;
        }
        self.last = now;
        now.saturating_sub(self.since)
    }

    /// Whether a handshake may start because of them now. If so, records its start.
    fn take(&mut self, now: u64) -> bool {
        if now < self.next {
            return false;
        }
        let forgiven = self.wait == 0 || now >= self.next.saturating_add(LOST_FORGIVEN);
        self.wait = if forgiven {
            LOST_MIN
        } else {
            (2 * self.wait).min(LOST_MAX)
        };
        self.next = now + self.wait;
        true
    }
}

impl Session {
    /// Handles frames received over `link` in the peer's name that do not open. The peer may have
    /// lost msg3, this node its keys, or an attacker has forged the frames.
    pub(crate) fn handle_unknown(&mut self, ctx: &mut Context, now: u64, link: LinkId) {
        let persistent = self.lost.get_or_insert_default().came(now) >= PERSISTENT;
        if let Some(awaiting) = self.awaiting.latest_over(now, link, HALF_OPEN) {
            if awaiting.take_answer(now) {
                let msg2 = awaiting.msg2;
                self.send_ack(ctx, link, &msg2);
            }
            if !persistent {
                return;
            }
        }
        let heard = self.is_up() && now.saturating_sub(self.liveness.last_heard()) < LOST_AFTER;
        if !heard && self.may_initiate(now) && self.lost.get_or_insert_default().take(now) {
            self.initiate(ctx, now);
        }
    }

    /// Classifies the link over which a handshake message was received, by what it proves about the
    /// sender.
    fn arrival(&self, link: LinkId) -> Arrival {
        let ours = [
            self.arrives,
            self.initiating.as_ref().and_then(|i| i.over),
            self.finishing.as_ref().and_then(|f| f.over),
        ];
        match link {
            own if own == self.own_link => Arrival::Own,
            known if ours.contains(&Some(known)) => Arrival::Proven,
            _ => Arrival::Other,
        }
    }

    /// Starts a handshake, unless one is in progress or was just tried, or there is no path.
    pub(super) fn initiate(&mut self, ctx: &mut Context, now: u64) {
        if self.may_initiate(now) {
            self.send_first(ctx, now, Repeat::new(now));
        }
    }

    fn may_initiate(&self, now: u64) -> bool {
        self.initiating.is_none() && self.finishing.is_none() && self.link.is_some() && now >= self.not_before
    }

    fn send_first(&mut self, ctx: &mut Context, now: u64, repeat: Repeat) {
        let (handshake, msg1) = xk::Initiator::start(self.peer, &mut *ctx.rng);
        self.not_before = now + MIN_INITIATE;
        self.initiating = Some(Box::new(Initiating {
            handshake,
            msg1,
            over: None,
            repeat,
        }));
        self.drive_initiating(ctx, now);
    }

    /// Sets the coordinates of both ends, and returns whether they changed. A handshake in progress
    /// reports them at once: the answer may find no route back by the earlier ones.
    pub(crate) fn set_coords(&mut self, now: u64, coords: (Vec<NodeAddr>, Vec<NodeAddr>)) -> bool {
        let news = self.coords != coords;
        self.coords = coords;
        if let Some(initiating) = self.initiating.as_mut().filter(|_| news) {
            initiating.repeat.hurry_gently(now);
        }
        news
    }

    /// Sends a SessionSetup with the present coordinates of both ends.
    fn send_setup(&self, ctx: &mut Context, msg1: &[u8]) {
        let (src, dest) = self.told_coords(ctx);
        let setup = SessionSetup {
            flags: offered(ctx),
            src: Coords::new(&src),
            dest: Coords::new(&dest),
            noise: msg1,
        };
        let mut bytes = vec![0; setup.wire_len()];
        if setup.emit(&mut bytes).is_ok() {
            self.send_datagram(ctx, &bytes);
        }
    }

    /// Sends a SessionAck over a link, with the present coordinates of both ends.
    fn send_ack(&self, ctx: &mut Context, link: LinkId, msg2: &[u8]) {
        let (src, dest) = self.told_coords(ctx);
        let ack = SessionAck {
            flags: offered(ctx),
            src: Coords::new(&src),
            dest: Coords::new(&dest),
            noise: msg2,
        };
        let mut bytes = vec![0; ack.wire_len()];
        if ack.emit(&mut bytes).is_ok() {
            self.send_datagram_over(ctx, link, &bytes);
        }
    }

    /// Returns the coordinates for a handshake message. They must not be empty, so an end whose
    /// coordinates are not known has its address alone.
    fn told_coords(&self, ctx: &Context) -> (Vec<NodeAddr>, Vec<NodeAddr>) {
        let or_alone = |path: &[NodeAddr], alone| if path.is_empty() { vec![alone] } else { path.to_vec() };
        (
            or_alone(&self.coords.0, ctx.me),
            or_alone(&self.coords.1, self.peer.node_addr()),
        )
    }

    /// Handles a setup that was received over `link`.
    pub(crate) fn handle_setup(&mut self, ctx: &mut Context, now: u64, link: LinkId, setup: &SessionSetup<'_>) {
        let Ok(msg1) = <[u8; xk::MSG1_LEN]>::try_from(setup.noise) else {
            return;
        };
        if let Some(again) = self.awaiting.of_setup(&msg1) {
            if !again.take_answer(now) {
                return;
            }
            again.link = link;
            again.own_way = !again.own_way;
            let (msg2, own_way) = (again.msg2, self.link.filter(|_| again.own_way));
            self.send_ack(ctx, own_way.unwrap_or(link), &msg2);
            return;
        }
        // Both ends may start at once: the handshake of the smaller address wins, as in FIPS. The
        // larger one keeps its own in flight nevertheless, because this message proves nothing.
        if self.initiating.is_some() && self.we_are_smaller {
            return;
        }
        if !ctx.admits(now, link, self.arrival(link)) || !self.awaiting.make_room(now, link) {
            return;
        }
        let Ok((handshake, msg2)) = xk::Responder::read(&ctx.identity, &msg1, ctx.epoch, &mut *ctx.rng) else {
            return;
        };
        self.awaiting.push(Awaiting {
            handshake,
            msg1,
            msg2,
            link,
            own_way: false,
            born: now,
            answered: now,
            crossed: None,
        });
        self.send_ack(ctx, link, &msg2);
    }

    pub(crate) fn handle_ack(&mut self, ctx: &mut Context, now: u64, link: LinkId, ack: &SessionAck<'_>) {
        let Ok(msg2) = <[u8; xk::MSG2_LEN]>::try_from(ack.noise) else {
            return;
        };
        let arrival = self.arrival(link);
        if let Some(finishing) = &mut self.finishing {
            if finishing.msg2 == msg2 {
                if finishing
                    .repeat
                    .last
                    .is_none_or(|last| now.saturating_sub(last) >= REPEAT_PAUSE)
                {
                    finishing.repeat.last = Some(now);
                    let msg3 = finishing.msg3.clone();
                    self.send_datagram(ctx, &msg3);
                }
            } else if ctx.admits(now, link, arrival)
                && finishing.handshake.finish(&ctx.identity, &msg2, ctx.epoch).is_ok()
            {
                self.start_over(ctx, now);
            }
            return;
        }
        let Some(initiating) = self.initiating.as_ref().filter(|_| ctx.admits(now, link, arrival)) else {
            return;
        };
        let Ok((noise, keys)) = initiating.handshake.finish(&ctx.identity, &msg2, ctx.epoch) else {
            return;
        };
        let Some(initiating) = self.initiating.take() else {
            return;
        };
        let Initiating { handshake, over, .. } = *initiating;
        self.note_arrival(link);
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
        let usage = if rekey { EpochUse::Candidate } else { EpochUse::Send };
        let id = self.install(ctx, now, keys, usage, true);
        if !rekey {
            self.promote(ctx, now, id);
        }
        let mut repeat = Repeat::new(now);
        repeat.sent(ctx, now);
        self.finishing = Some(Box::new(Finishing {
            id,
            handshake,
            msg3,
            msg2,
            over,
            repeat,
        }));
        self.send_alive(ctx, Some(id));
    }

    /// Handles a second, different answer of the peer to a repeat of the setup. The peer has
    /// forgotten its first answer, so msg3 has no effect. A FIPS daemon that has older keys gives a
    /// new answer to each repeat, and forgets that one too when it receives a msg3 for the first.
    /// So the next setup is repeated late, in case answers just take that long.
    fn start_over(&mut self, ctx: &mut Context, now: u64) {
        let Some(finishing) = self.finishing.take() else { return };
        // Keys that data already uses stay: there are no others, and the next ones follow as at a
        // rekey.
        if self.current().is_none_or(|epoch| epoch.id != finishing.id) {
            self.withdraw(ctx, finishing.id);
        }
        self.send_first(ctx, now, Repeat::late(now));
    }

    pub(crate) fn handle_msg3(&mut self, ctx: &mut Context, now: u64, link: LinkId, msg3: &SessionMsg3<'_>) {
        let Ok(bytes) = <[u8; xk::MSG3_LEN]>::try_from(msg3.noise) else {
            return;
        };
        let tag = bytes.last_chunk().copied();
        if tag.is_some() && self.last_msg3 == tag {
            // The confirmation of this node was lost.
            if now.saturating_sub(self.confirmed) >= REPEAT_PAUSE {
                self.confirmed = now;
                self.say_alive(ctx, now);
            }
            return;
        }
        let trials = ctx.unproven.trials(now, self.arrival(link), self.awaiting.len());
        let Some((keys, crossed)) = self.awaiting.finish(link, &bytes, &self.peer, trials) else {
            return;
        };
        self.awaiting = HalfOpen::default();
        self.note_arrival(link);
        self.last_msg3 = tag;
        if self.loses_crossing(&keys, crossed) {
            let id = self.install(ctx, now, keys, EpochUse::ReceiveOnly, false);
            self.drain(now, id);
            return;
        }
        self.initiating = None;
        if let Some(ours) = self.finishing.take_if(|_| !self.we_are_smaller)
            && self.current().is_none_or(|epoch| epoch.id != ours.id)
        {
            self.withdraw(ctx, ours.id);
        }
        // Msg3 proves that the initiator holds these keys, so they are used at once.
        let id = self.install(ctx, now, keys, EpochUse::Send, false);
        self.promote(ctx, now, id);
        self.say_alive(ctx, now);
    }

    /// Whether this handshake of the peer loses against one that crossed it. Both ends may finish
    /// the handshakes that they began at once. Each would then use the keys of the other's last
    /// message, and both would lose everything when the older keys end. So here, too, the handshake
    /// of the smaller address wins, and the keys of the other one open the frames that were sent
    /// under them. A process that has restarted does not have the winner's keys.
    fn loses_crossing(&self, keys: &Established, crossed: Option<EpochId>) -> bool {
        let winner = self.finishing.as_ref().map(|finishing| finishing.id).or(crossed);
        let mut in_use = self
            .epochs
            .iter()
            .filter(|epoch| !matches!(epoch.stage, Stage::Draining(_)));
        self.we_are_smaller && in_use.any(|epoch| Some(epoch.id) == winner && epoch.start == keys.remote_epoch)
    }

    /// Returns the next moment at which a handshake needs attention, and which one.
    pub(super) fn handshake_at(&self) -> (u64, &'static str) {
        let repeat = |repeat: &Repeat| {
            let end = repeat.started + HANDSHAKE_LIFE;
            // Without a link it cannot be repeated, but it still ends.
            if self.link.is_some() { repeat.next.min(end) } else { end }
        };
        let setup = self.initiating.as_ref().map_or(u64::MAX, |i| repeat(&i.repeat));
        let msg3 = self.finishing.as_ref().map_or(u64::MAX, |f| repeat(&f.repeat));
        let half_open = self.awaiting.ends_at();
        let all = [
            (setup, "session setup resend"),
            (msg3, "session msg3 resend"),
            (half_open, "half-open session"),
        ];
        all.into_iter().min_by_key(|(at, _)| *at).unwrap_or((u64::MAX, ""))
    }

    pub(super) fn drive_handshakes(&mut self, ctx: &mut Context, now: u64) {
        self.awaiting.expire(now);
        self.drive_initiating(ctx, now);
        self.drive_finishing(ctx, now);
    }

    fn drive_initiating(&mut self, ctx: &mut Context, now: u64) {
        let Some(mut initiating) = self.initiating.take() else {
            return;
        };
        if initiating.repeat.expired(now) {
            self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(REKEY_RETRY));
            if !self.is_up() && self.wanted.take().is_some() {
                ctx.change_session(self.peer.node_addr(), SessionCommand::DropQueue);
            }
            return;
        }
        if now >= initiating.repeat.next && self.link.is_some() {
            initiating.repeat.sent(ctx, now);
            initiating.over = self.link;
            self.send_setup(ctx, &initiating.msg1);
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
            self.send_alive(ctx, Some(finishing.id));
        }
        self.finishing = Some(finishing);
    }

    /// Gives up an epoch that the peer never used: at a rekey the old keys stay in use, a first
    /// session ends.
    fn give_up(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if self.current().is_some_and(|e| e.id == id) {
            self.take_down(ctx, SessionDown::Unconfirmed);
            self.not_before = now + MIN_INITIATE;
            return;
        }
        self.withdraw(ctx, id);
        self.rekey_due = now + ctx.jittered(ctx.config.rekey.min(REKEY_RETRY));
    }

    fn withdraw(&mut self, ctx: &mut Context, id: EpochId) {
        self.epochs.iter().filter(|e| e.id == id).for_each(|e| e.free(ctx));
        self.epochs.retain(|e| e.id != id);
        ctx.change_session(self.peer.node_addr(), SessionCommand::RetireEpoch { id });
    }
}

#[cfg(test)]
mod tests;
