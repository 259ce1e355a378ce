//! The agreement on fast frames with the peer of a session, once for each of its epochs.
//!
//! Each end sends its capabilities until the other has acknowledged them, and installs the keys
//! once it knows both capabilities. Then each sends a fast frame that asks for one in return. That
//! is the proof: the handshake of FIPS does not authenticate its transcript, so an attacker on the
//! path can make the two ends derive different keys while FIPS frames still work. After any failure
//! the epoch stays on FIPS frames and the failure is reported. docs/protocol/fast.md,
//! "Negotiation".

use weft_noise::fast::{self, Seed, Suite};
use weft_packet::{EpochId, FastKeys, LinkId, Relay, SendCommand, SessionCommand, lane_of};
use weft_wire::NodeAddr;
use weft_wire::fast::{CAPABILITIES, CAPABILITIES_ACK, Capabilities, DIGEST_LEN, READS_FULL};

use super::Session;
use crate::capability::{self, MAX_PAYLOAD};
use crate::context::Context;
use crate::{Event, Frames};

/// First wait before capabilities are sent again; doubles each time.
const TELL_AGAIN: u64 = 500;
/// Number of capabilities messages without an answer after which the peer counts as one that does
/// not support fast frames.
const MAX_TELLS: u32 = 4;
/// First wait before a confirmation is requested again; doubles each time.
const ASK_AGAIN: u64 = 250;
/// First wait before the other lanes repeat their requests, once the first lane is confirmed: their
/// requests may have arrived before the keys that sealed them were installed.
const ASK_LANES: u64 = 20;
/// Number of requests without a confirmation after which fast frames count as not arriving, or as
/// opening with other keys than this node's. A loss of one in three in each direction, which is
/// high, delays one agreement in 50 to the next epoch.
const MAX_ASKS: u32 = 5;
/// Number of unconfirmed requests on a relayed path, over 16 s, after which the failure is
/// reported. The requests continue.
const TELL_ASKS: u32 = 7;

/// The agreement of one epoch.
pub(super) struct Agreement {
    id: EpochId,
    /// Needed until the keys are derived; the peer's capabilities may be late.
    seed: Option<Seed>,
    ours: Vec<u8>,
    /// The largest frame that the peer accepts.
    max_payload: u16,
    acknowledged: bool,
    tells: u32,
    next: u64,
    stage: Stage,
    /// A frame has proven that fast frames pass on the direct path.
    direct: bool,
    /// Number of requests whose silence proves nothing: on a relayed path, on the direct path once
    /// fast frames pass on a relayed one, or in other lanes once the first is confirmed.
    more_asks: u32,
    /// The lanes other than the first that have keys but no proof that frames of this node open at
    /// the peer, one bit each.
    unproven: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer's capabilities are not known.
    Telling,
    /// Keys are installed; the number counts the requests for a confirmation.
    Asking(Suite, u32),
    /// Fast frames open at both ends.
    Proven(Suite),
    /// The agreement has ended for this epoch, and nothing more is tried.
    Over(Frames),
}

impl Session {
    /// Begins the agreement of an epoch whose keys the peer holds, so that it can read
    /// capabilities.
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

    /// Handles the capabilities of the peer.
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
            // The peer may have begun the agreement only now, and have ignored the earlier
            // messages.
            fast.next = now;
            fast.tells = fast.tells.min(MAX_TELLS - 1);
        }
        let digest: [u8; DIGEST_LEN] = fast::digest(body);
        self.send_message(ctx, id, CAPABILITIES_ACK, digest.to_vec());
        self.drive_agreement(ctx, now);
    }

    /// Handles the peer's acknowledgement of this node's capabilities.
    pub(crate) fn handle_capabilities_ack(&mut self, id: EpochId, body: &[u8]) {
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) {
            let digest: [u8; DIGEST_LEN] = fast::digest(&fast.ours);
            fast.acknowledged |= body == digest;
        }
    }

    /// Handles the proof that fast frames open at both ends. The lane seals in them where it can.
    pub(crate) fn handle_fast_proven(&mut self, ctx: &mut Context, now: u64, id: EpochId, direct: bool) {
        self.liveness.heard(now);
        let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) else {
            return;
        };
        fast.direct |= direct;
        fast.more_asks = 0;
        // After the direct proof only other lanes can be unproven, and their frames are in flight
        // too.
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

    /// Handles the same proof for a lane other than the first. Such a lane seals data from then on,
    /// and leaves data to the first lane until then.
    pub(crate) fn handle_lane_proven(&mut self, now: u64, id: EpochId, lane: u8) {
        self.liveness.heard(now);
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.id == id) {
            fast.unproven &= !1_u16.checked_shl(lane.into()).unwrap_or(0);
        }
    }

    /// Returns the frames that data goes in on the present path.
    pub(crate) fn frames(&self) -> Frames {
        match self.frames.unwrap_or(Frames::Fips) {
            Frames::Fast(suite) if self.is_labelled() => Frames::Relayed(suite),
            Frames::Fast(suite) if self.is_direct() && !self.fast_direct => Frames::NoWay(suite),
            Frames::Fast(suite) if self.link.is_some() && !self.is_direct() => Frames::NoWay(suite),
            frames => frames,
        }
    }

    /// Whether the present path is relayed and has a label for fast frames.
    fn is_labelled(&self) -> bool {
        !self.is_direct() && self.relay.is_some_and(|relay| Some(relay.link) == self.link)
    }

    /// Returns the link to the relay that fast frames could use, if both ends have the keys.
    pub(crate) fn wants_label(&self) -> Option<LinkId> {
        let keys = self
            .fast
            .as_ref()
            .is_some_and(|fast| matches!(fast.stage, Stage::Asking(..) | Stage::Proven(_)));
        let keys = keys || matches!(self.frames, Some(Frames::Fast(_)));
        self.link.filter(|_| keys && self.is_up() && !self.is_direct())
    }

    /// Brings the session up with keys for fast frames, on `link`.
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

    /// Returns the label of fast frames on a relayed path.
    pub(crate) fn relay(&self) -> Option<Relay> {
        self.relay
    }

    /// Sets or removes that label.
    pub(crate) fn set_relay(&mut self, ctx: &mut Context, now: u64, relay: Option<Relay>) {
        if self.relay == relay {
            return;
        }
        let (before, peer) = (self.frames(), self.peer.node_addr());
        self.relay = relay;
        ctx.to_session(peer, SessionCommand::Relay { relay });
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

    /// Handles a changed path: requests that waited for one may continue.
    pub(super) fn hurry_agreement(&mut self, now: u64) {
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.more_asks > 0) {
            (fast.more_asks, fast.next) = (0, fast.next.min(now));
        }
    }

    /// Makes data wait from now on if there are no fast frames for it.
    pub(crate) fn require_fast(&mut self, ctx: &mut Context) {
        self.require_fast = true;
        ctx.to_session(self.peer.node_addr(), SessionCommand::RequireFast);
    }

    /// Records that data with the peer went in fast frames before this process began, so that their
    /// absence is reported.
    pub(crate) fn remember_fast(&mut self) {
        self.was_fast = true;
    }

    /// Whether data may go in fast frames only.
    pub(crate) fn requires_fast(&self) -> bool {
        self.require_fast
    }

    /// Whether the peer reads fast frames of packets that keep their whole header, as far as it has
    /// announced it.
    pub(crate) fn reads_full(&self) -> bool {
        self.reads_full
    }

    /// Returns the largest frame that the peer accepts, in bytes of UDP payload, as far as it has
    /// announced it.
    pub(super) fn their_max_payload(&self) -> u16 {
        self.fast.as_ref().map_or(MAX_PAYLOAD, |fast| fast.max_payload)
    }

    /// Returns when the agreement needs attention.
    pub(super) fn agreement_at(&self) -> u64 {
        let Some(fast) = self.fast.as_ref().filter(|_| self.link.is_some()) else {
            return u64::MAX;
        };
        match fast.stage {
            Stage::Telling => fast.next,
            // A confirmation takes the path of data, so it waits until there is one.
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
                    ctx.to_session(peer, SessionCommand::ConfirmFast { id });
                }
            }
            Stage::Asking(..) | Stage::Proven(_) if labelled || direct => {
                // Silence proves nothing here: the peer's path to this node may be another one,
                // without labels. So the wait doubles, up to 16 s.
                ctx.to_session(peer, SessionCommand::ConfirmFast { id });
                fast.next = now + (ASK_AGAIN << fast.more_asks.min(MAX_ASKS + 1));
                fast.more_asks += 1;
                if let Stage::Asking(suite, _) = fast.stage
                    && fast.more_asks == TELL_ASKS
                {
                    self.tell_frames(ctx, Frames::Unproven(suite));
                }
            }
            Stage::Asking(..) => {
                // After the last capabilities message, acknowledged or not, nothing is due until
                // the path takes fast frames.
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
        // Older keys that work stay in use until they are retired.
        self.tell_frames(ctx, frames);
        if self.require_fast && !matches!(self.frames(), Frames::Fast(_) | Frames::Relayed(_)) {
            // The senders of waiting packets learn that these are not delivered; later packets wait
            // for the next epoch.
            ctx.to_session(self.peer.node_addr(), SessionCommand::DropQueue);
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

    /// Forgets the agreement, because its epochs are over.
    pub(super) fn forget_agreement(&mut self) {
        self.fast = None;
        self.frames = None;
        self.probing = None;
        self.fast_direct = false;
        self.reads_full = false;
    }

    fn send_message(&mut self, ctx: &mut Context, id: EpochId, msg_type: u8, body: Vec<u8>) {
        ctx.lane(SendCommand::OnSession {
            peer: self.peer.node_addr(),
            epoch: Some(id),
            msg_type,
            body,
        });
    }
}

impl Agreement {
    /// Whether data goes in fast frames, but not yet in every lane or not yet directly, and more
    /// requests are allowed.
    fn has_open_question(&self) -> bool {
        (!self.direct || self.unproven != 0) && self.more_asks < MAX_ASKS
    }

    /// Derives the keys and hands them to the lanes.
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
            self.unproven |= 1 << lane_of(keys.our_index.0);
            ctx.to_session(peer, SessionCommand::InstallFast { keys });
        }
        let Some(suite) = suite else {
            self.stage = Stage::Over(Frames::NoCommonSuite);
            return;
        };
        // The proof of the first lane is the state of the agreement itself.
        self.unproven &= !1;
        self.max_payload = theirs.max_payload;
        self.stage = Stage::Asking(suite, 0);
        self.next = now;
    }
}
