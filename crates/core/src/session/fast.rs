//! Agreeing on fast frames with the other end of a session, anew for each of its epochs.
//!
//! Each side tells its capabilities, until the other has acknowledged them, and installs the keys once it knows both.
//! Then each asks in a fast frame for one back. That is the proof: the handshake of FIPS authenticates no transcript, so
//! an attacker on the path can make the two ends derive different keys while FIPS frames go on working. Whatever fails,
//! the epoch stays on FIPS frames and says why. docs/protocol/fast.md, "Negotiation".

use weft_noise::fast::{self, Seed, Suite};
use weft_packet::{Command, EpochId, FastKeys, LinkId, Relay, lane_of};
use weft_wire::NodeAddr;
use weft_wire::fast::{CAPABILITIES, CAPABILITIES_ACK, Capabilities, DIGEST_LEN, READS_FULL};

use super::Session;
use crate::capability::{self, MAX_PAYLOAD};
use crate::context::Context;
use crate::{Event, Frames};

/// First wait before capabilities are told again; doubles each time.
const TELL_AGAIN: u64 = 500;
/// Told that often without an answer: the other end does not know of fast frames.
const MAX_TELLS: u32 = 4;
/// First wait before a confirm is asked for again; doubles each time.
const ASK_AGAIN: u64 = 250;
/// First wait before other lanes ask again, once the first has had its answer: a question of theirs may have come before
/// the keys that it was under.
const ASK_LANES: u64 = 20;
/// Asked that often in vain: fast frames do not get through, or open with other keys than ours. One in three lost each
/// way, which is bad, leaves one in 50 agreements to the next epoch.
const MAX_ASKS: u32 = 5;
/// Asked that often through others in vain, over 16 s: it is told, and asked for all the same.
const TELL_ASKS: u32 = 7;

/// The agreement of one epoch.
pub(super) struct Agreement {
    id: EpochId,
    /// Needed until the keys are made; the other end may tell late.
    seed: Option<Seed>,
    ours: Vec<u8>,
    /// The largest frame that the other end takes.
    max_payload: u16,
    acknowledged: bool,
    tells: u32,
    next: u64,
    stage: Stage,
    /// A frame has shown that fast frames get through on the direct way.
    direct: bool,
    /// Asked that often where no verdict follows: through others, or directly once they get through others, or in the
    /// first lane.
    more_asks: u32,
    /// Lanes beside the first that have keys, and those of them in which no frame has opened that shows that ours do at
    /// the other end: a bit for each.
    unproven: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other end's capabilities are not known.
    Telling,
    /// Keys are installed, and asked that often for a confirm.
    Asking(Suite, u32),
    /// Fast frames open at both ends.
    Proven(Suite),
    /// Nothing more is tried in this epoch.
    Over(Frames),
}

impl Session {
    /// The other end holds the keys of this epoch, so it can be told what we can do.
    pub(super) fn begin_agreement(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if !ctx.config.fast || self.fast.as_ref().is_some_and(|fast| fast.id >= id) {
            return;
        }
        let Some(epoch) = self.epochs.iter_mut().find(|epoch| epoch.id == id) else {
            return;
        };
        let Some(seed) = epoch.seed.take() else { return };
        let Some((our_index, ours)) = capability::tell(ctx, ctx.config.lanes) else {
            return;
        };
        epoch.fast_index = Some(our_index);
        self.fast = Some(Agreement {
            id,
            seed: Some(seed),
            ours,
            max_payload: MAX_PAYLOAD,
            acknowledged: false,
            tells: 0,
            next: now,
            stage: Stage::Telling,
            direct: false,
            more_asks: 0,
            unproven: 0,
        });
        self.drive_agreement(ctx, now);
    }

    /// The other end tells what it can do.
    pub(crate) fn handle_capabilities(&mut self, ctx: &mut Context, now: u64, id: EpochId, body: &[u8]) {
        let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) else {
            return;
        };
        let Ok(theirs) = Capabilities::parse(body) else {
            return;
        };
        if let Some(seed) = fast.seed.take() {
            self.reads_full = theirs.flags & READS_FULL != 0;
            fast.install(ctx, now, self.peer.node_addr(), &seed, body, &theirs);
            if fast.stage == Stage::Over(Frames::NoCommonSuite) {
                self.end_agreement(ctx, Frames::NoCommonSuite);
            }
        }
        let Some(fast) = &mut self.fast else { return };
        if !fast.acknowledged && fast.stage != Stage::Telling {
            // It may have come to know of us only now.
            fast.next = now;
            fast.tells = fast.tells.min(MAX_TELLS - 1);
        }
        let digest: [u8; DIGEST_LEN] = fast::digest(body);
        self.send_message(ctx, id, CAPABILITIES_ACK, digest.to_vec());
        self.drive_agreement(ctx, now);
    }

    /// The other end has our capabilities.
    pub(crate) fn handle_capabilities_ack(&mut self, id: EpochId, body: &[u8]) {
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) {
            let digest: [u8; DIGEST_LEN] = fast::digest(&fast.ours);
            fast.acknowledged |= body == digest;
        }
    }

    /// Fast frames open at both ends, and the lane seals in them where it can.
    pub(crate) fn handle_fast_proven(&mut self, ctx: &mut Context, now: u64, id: EpochId, direct: bool) {
        self.liveness.heard(now);
        let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) else {
            return;
        };
        fast.direct |= direct;
        fast.more_asks = 0;
        // What is left to prove directly is the matter of other lanes, whose frames are on their way too.
        fast.next = if fast.direct { now + ASK_LANES } else { now };
        self.fast_direct = fast.direct;
        let (Stage::Asking(suite, _) | Stage::Over(Frames::Unproven(suite))) = fast.stage else {
            return;
        };
        self.was_fast = true;
        fast.stage = Stage::Proven(suite);
        fast.acknowledged = true;
        let before = self.frames.replace(Frames::Fast(suite));
        if before != self.frames {
            ctx.event(Event::FramesChanged {
                peer: self.peer,
                frames: self.frames(),
            });
        }
    }

    /// Fast frames open at both ends in a lane beside the first. A lane seals data once they do in it, and leaves it to the
    /// first until then.
    pub(crate) fn handle_lane_proven(&mut self, now: u64, id: EpochId, lane: u8) {
        self.liveness.heard(now);
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) {
            fast.unproven &= !1_u16.checked_shl(lane.into()).unwrap_or(0);
        }
    }

    /// What data goes in, by the way that it goes now.
    pub(crate) fn frames(&self) -> Frames {
        match self.frames.unwrap_or(Frames::Fips) {
            Frames::Fast(suite) if self.is_labelled() => Frames::Relayed(suite),
            Frames::Fast(suite) if self.is_direct() && !self.fast_direct => Frames::NoWay(suite),
            Frames::Fast(suite) if self.link.is_some() && !self.is_direct() => Frames::NoWay(suite),
            frames => frames,
        }
    }

    /// Fast frames go through others, by the present way.
    fn is_labelled(&self) -> bool {
        !self.is_direct() && self.relay.is_some_and(|relay| Some(relay.link) == self.link)
    }

    /// The link to others through which fast frames could go, if both ends have the keys.
    pub(crate) fn wants_label(&self) -> Option<LinkId> {
        let keys = self
            .fast
            .as_ref()
            .is_some_and(|fast| matches!(fast.stage, Stage::Asking(..) | Stage::Proven(_)));
        let keys = keys || matches!(self.frames, Some(Frames::Fast(_)));
        self.link.filter(|_| keys && self.is_up() && !self.is_direct())
    }

    /// The session is up and has keys for fast frames, which go by `link`.
    #[cfg(test)]
    pub(crate) fn open_over(&mut self, now: u64, link: LinkId) {
        self.epochs.push(super::Epoch {
            id: EpochId(0),
            start: [0; 8],
            born: now,
            stage: super::Stage::Current,
            seed: None,
            fast_index: None,
        });
        self.frames = Some(Frames::Fast(Suite::Aes256Gcm));
        self.link = Some(link);
    }

    /// How fast frames go through others.
    pub(crate) fn relay(&self) -> Option<Relay> {
        self.relay
    }

    /// They go so from now on, or not at all.
    pub(crate) fn set_relay(&mut self, ctx: &mut Context, now: u64, relay: Option<Relay>) {
        if self.relay == relay {
            return;
        }
        let (before, peer) = (self.frames(), self.peer.node_addr());
        self.relay = relay;
        ctx.lane(Command::RelaySession { peer, relay });
        let frames = self.frames();
        if before != frames {
            ctx.event(Event::FramesChanged {
                peer: self.peer,
                frames,
            });
        }
        self.hurry_agreement(now);
        self.drive_agreement(ctx, now);
    }

    /// The way has changed: what waited for one may go on.
    pub(super) fn hurry_agreement(&mut self, now: u64) {
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.more_asks > 0) {
            (fast.more_asks, fast.next) = (0, fast.next.min(now));
        }
    }

    /// Data waits for fast frames from now on where there are none.
    pub(crate) fn require_fast(&mut self, ctx: &mut Context) {
        self.require_fast = true;
        ctx.lane(Command::RequireFast {
            peer: self.peer.node_addr(),
        });
    }

    /// Data with the other end went in fast frames before this process began: that it does no more is worth telling.
    pub(crate) fn remember_fast(&mut self) {
        self.was_fast = true;
    }

    /// Whether data may go in fast frames alone.
    pub(crate) fn requires_fast(&self) -> bool {
        self.require_fast
    }

    /// Whether the other end reads packets with all of their header, as far as it has told.
    pub(crate) fn reads_full(&self) -> bool {
        self.reads_full
    }

    /// The largest frame that the other end takes, bytes of UDP payload, as far as it has told.
    pub(super) fn their_max_payload(&self) -> u16 {
        self.fast.as_ref().map_or(MAX_PAYLOAD, |fast| fast.max_payload)
    }

    /// When the agreement needs attention.
    pub(super) fn agreement_at(&self) -> u64 {
        let Some(fast) = self.fast.as_ref().filter(|_| self.link.is_some()) else {
            return u64::MAX;
        };
        match fast.stage {
            Stage::Telling => fast.next,
            // A confirm takes the way of data, so it waits for there to be one.
            Stage::Asking(..) if self.is_direct() || self.is_labelled() || !fast.acknowledged => fast.next,
            Stage::Proven(_) if self.is_direct() && fast.has_open_question() => fast.next,
            Stage::Proven(_) | Stage::Asking(..) | Stage::Over(_) => u64::MAX,
        }
    }

    pub(super) fn drive_agreement(&mut self, ctx: &mut Context, now: u64) {
        if now < self.agreement_at() {
            return;
        }
        let (peer, direct, labelled) = (self.peer.node_addr(), self.is_direct(), self.is_labelled());
        let Some(fast) = &mut self.fast else { return };
        let id = fast.id;
        let waits = fast.tells < MAX_TELLS;
        fast.tells += u32::from(waits);
        let tell = (waits && !fast.acknowledged).then(|| fast.ours.clone());
        match fast.stage {
            Stage::Telling if !waits => self.end_agreement(ctx, Frames::Fips),
            Stage::Telling => fast.next = now + (TELL_AGAIN << (fast.tells - 1)),
            Stage::Asking(suite, asks) if direct => {
                if asks == MAX_ASKS {
                    self.end_agreement(ctx, Frames::Unproven(suite));
                } else {
                    fast.stage = Stage::Asking(suite, asks + 1);
                    fast.next = now + (ASK_AGAIN << asks);
                    ctx.lane(Command::ConfirmFast { peer, id });
                }
            }
            Stage::Asking(..) | Stage::Proven(_) if labelled || direct => {
                // Nothing follows from silence: the other end's way to us may be another, without labels. So the wait
                // doubles, up to 16 s.
                ctx.lane(Command::ConfirmFast { peer, id });
                fast.next = now + (ASK_AGAIN << fast.more_asks.min(MAX_ASKS + 1));
                fast.more_asks += 1;
                if let Stage::Asking(suite, _) = fast.stage
                    && fast.more_asks == TELL_ASKS
                {
                    self.tell_frames(ctx, Frames::Unproven(suite));
                }
            }
            Stage::Asking(..) => {
                // Acknowledged or not, nothing more can be told until the way is direct.
                fast.acknowledged |= !waits;
                fast.next = now + (TELL_AGAIN << fast.tells.saturating_sub(1));
            }
            Stage::Proven(_) | Stage::Over(_) => {}
        }
        if let Some(body) = tell {
            self.send_message(ctx, id, CAPABILITIES, body);
        }
    }

    fn end_agreement(&mut self, ctx: &mut Context, frames: Frames) {
        if let Some(fast) = &mut self.fast {
            fast.stage = Stage::Over(frames);
        }
        // Older keys that work go on until they are retired.
        self.tell_frames(ctx, frames);
        if self.require_fast && !matches!(self.frames(), Frames::Fast(_) | Frames::Relayed(_)) {
            // The senders of waiting packets learn that these do not go; later packets wait for the next epoch.
            ctx.lane(Command::DropQueue {
                peer: self.peer.node_addr(),
            });
        }
    }

    fn tell_frames(&mut self, ctx: &mut Context, frames: Frames) {
        let before = self.frames.replace(frames);
        let usual = before.is_none() && frames == Frames::Fips && !self.was_fast;
        if before != Some(frames) && !usual {
            ctx.event(Event::FramesChanged {
                peer: self.peer,
                frames,
            });
        }
    }

    /// The epochs that it was about are over.
    pub(super) fn forget_agreement(&mut self) {
        self.fast = None;
        self.frames = None;
        self.probing = None;
        self.fast_direct = false;
        self.reads_full = false;
    }

    fn send_message(&mut self, ctx: &mut Context, id: EpochId, msg_type: u8, body: Vec<u8>) {
        ctx.lane(Command::SendOnSession {
            peer: self.peer.node_addr(),
            epoch: Some(id),
            msg_type,
            body,
        });
    }
}

impl Agreement {
    /// Data goes in fast frames, but not yet by every lane, or not directly; and it may be asked for that.
    fn has_open_question(&self) -> bool {
        (!self.direct || self.unproven != 0) && self.more_asks < MAX_ASKS
    }

    /// Makes the keys and hands them to the lane.
    fn install(
        &mut self,
        ctx: &mut Context,
        now: u64,
        peer: NodeAddr,
        seed: &Seed,
        body: &[u8],
        theirs: &Capabilities<'_>,
    ) {
        let mut suite = None;
        let all: Vec<FastKeys> = capability::keys(ctx, self.id, seed, &self.ours, (body, theirs)).collect();
        for keys in all {
            suite = Some(keys.suite);
            self.unproven |= 1 << lane_of(keys.our_index);
            ctx.lane(Command::InstallFast { peer, keys });
        }
        let Some(suite) = suite else {
            self.stage = Stage::Over(Frames::NoCommonSuite);
            return;
        };
        // The first one is what the agreement is about.
        self.unproven &= !1;
        self.max_payload = theirs.max_payload;
        self.stage = Stage::Asking(suite, 0);
        self.next = now;
    }
}
