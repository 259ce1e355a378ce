//! The agreement on fast frames with the peer of a session, once for each of its epochs
//! ([`crate::agreement`]), and the frames that data goes in as a result.
//!
//! After any failure the epoch stays on FIPS frames and the failure is reported.
//! docs/protocol/fast.md, "Negotiation".

use weft_contract::{EpochId, LinkId, Relay, SendCommand, SessionCommand, lane_of};
use weft_wire::fast::{CAPABILITIES, CAPABILITIES_ACK};

use super::Session;
use crate::agreement::{Agreement, MAX_PAYLOAD, MAX_REQUESTS, REQUEST_AGAIN, Stage};
use crate::context::Context;
use crate::{Event, Frames};

/// First wait before the other lanes repeat their requests, once the first lane is confirmed: their
/// requests may have arrived before the keys that sealed them were installed.
const REQUEST_LANES: u64 = 20;
/// Number of unconfirmed requests on a relayed path, over 16 s, after which the failure is
/// reported. The requests continue.
const REPORT_REQUESTS: u32 = 7;

/// The fast keys of one epoch.
pub(super) struct Fast {
    agreement: Agreement,
    /// The largest frame that the peer accepts.
    max_payload: u16,
    /// A frame has proven that fast frames pass on the direct path.
    direct: bool,
    /// Number of requests whose silence proves nothing: on a relayed path, on the direct path once
    /// fast frames pass on a relayed one, or in other lanes once the first is confirmed.
    more_requests: u32,
    /// The lanes other than the first that have keys but no proof that frames of this node open at
    /// the peer, one bit each.
    unproven: u16,
}

impl Session {
    /// Begins the agreement of an epoch whose keys the peer holds, so that it can read
    /// capabilities.
    pub(super) fn begin_agreement(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if !ctx.config.fast || self.fast.as_ref().is_some_and(|fast| fast.agreement.id >= id) {
            return;
        }
        let Some(epoch) = self.epochs.iter_mut().find(|epoch| epoch.id == id) else {
            return;
        };
        let Some(seed) = epoch.seed.take() else { return };
        let (lanes, version) = (ctx.config.lanes, ctx.config.version);
        let Some(agreement) = Agreement::begin(ctx, now, id, seed, lanes, version) else {
            return;
        };
        epoch.fast_index = Some(agreement.our_index);
        self.fast = Some(Fast {
            agreement,
            max_payload: MAX_PAYLOAD,
            direct: false,
            more_requests: 0,
            unproven: 0,
        });
        self.drive_agreement(ctx, now);
    }

    /// Handles the capabilities of the peer.
    pub(crate) fn handle_capabilities(&mut self, ctx: &mut Context, now: u64, id: EpochId, body: &[u8]) {
        let Some(fast) = self.fast_of(id) else { return };
        let Some(accepted) = fast.agreement.handle_capabilities(ctx, now, body) else {
            return;
        };
        for keys in &accepted.keys {
            fast.unproven |= 1 << lane_of(keys.our_index.0);
            fast.max_payload = keys.max_payload;
        }
        // The proof of the first lane is the state of the agreement itself.
        fast.unproven &= !1;
        if let Some(reads_full) = accepted.reads_full {
            self.reads_full = reads_full;
            self.version = accepted.version;
            ctx.event(Event::Announced { peer: self.peer });
            if accepted.keys.is_empty() {
                self.end_agreement(ctx, Frames::NoCommonSuite);
            }
        }
        let peer = self.peer.node_addr();
        for keys in accepted.keys {
            ctx.change_session(peer, SessionCommand::InstallFast { keys });
        }
        self.send_message(ctx, id, CAPABILITIES_ACK, accepted.ack);
        self.drive_agreement(ctx, now);
    }

    /// Handles the peer's acknowledgement of this node's capabilities.
    pub(crate) fn handle_capabilities_ack(&mut self, id: EpochId, body: &[u8]) {
        if let Some(fast) = self.fast_of(id) {
            fast.agreement.handle_ack(body);
        }
    }

    fn fast_of(&mut self, id: EpochId) -> Option<&mut Fast> {
        self.fast.as_mut().filter(|fast| fast.agreement.id == id)
    }

    /// Handles the proof that fast frames open at both ends. The lane seals in them where it can.
    pub(crate) fn handle_fast_proven(&mut self, ctx: &mut Context, now: u64, id: EpochId, direct: bool) {
        self.liveness.heard(now);
        let Some(fast) = self.fast_of(id) else { return };
        fast.direct |= direct;
        fast.more_requests = 0;
        // After the direct proof only other lanes can be unproven, and their frames are in flight
        // too.
        fast.agreement.next = if fast.direct { now + REQUEST_LANES } else { now };
        let (direct, news) = (fast.direct, fast.agreement.handle_proven());
        self.fast_direct = direct;
        let Some(suite) = news else { return };
        self.was_fast = true;
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
        if let Some(fast) = self.fast_of(id) {
            fast.unproven &= !1_u16.checked_shl(lane.into()).unwrap_or(0);
        }
    }

    /// Whether data goes in fast frames on paths that take them.
    pub(crate) fn has_fast(&self) -> bool {
        matches!(self.frames, Some(Frames::Fast(_)))
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

    /// Whether the peer has said in this session what frames it reads, as weft nodes do. It is known
    /// before fast frames pass: those wait for labels on a relayed path.
    pub(crate) fn is_with_weft(&self) -> bool {
        let stage = self.fast.as_ref().map(|fast| fast.agreement.stage);
        let announced = matches!(stage, Some(Stage::Requesting(..) | Stage::Proven(_)));
        announced || self.frames() != Frames::Fips
    }

    /// Whether the present path is relayed and has a label for fast frames.
    fn is_labelled(&self) -> bool {
        !self.is_direct() && self.relay.is_some_and(|relay| Some(relay.link) == self.link)
    }

    /// Returns the link to the relay that fast frames could use, if both ends have the keys.
    pub(crate) fn wants_label(&self) -> Option<LinkId> {
        let stage = self.fast.as_ref().map(|fast| fast.agreement.stage);
        let keys = matches!(stage, Some(Stage::Requesting(..) | Stage::Proven(_)));
        let keys = keys || matches!(self.frames, Some(Frames::Fast(_)));
        self.link.filter(|_| keys && self.is_up() && !self.is_direct())
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
        ctx.change_session(peer, SessionCommand::Relay { relay });
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
        if let Some(fast) = self.fast.as_mut().filter(|fast| fast.more_requests > 0) {
            fast.more_requests = 0;
            fast.agreement.next = fast.agreement.next.min(now);
        }
    }

    /// Makes data wait from now on if there are no fast frames for it.
    pub(crate) fn require_fast(&mut self, ctx: &mut Context, required: bool) {
        if self.require_fast != required {
            self.require_fast = required;
            ctx.change_session(self.peer.node_addr(), SessionCommand::RequireFast { required });
        }
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

    /// Returns the version that the peer claims in its capabilities.
    pub(crate) fn version(&self) -> Option<&str> {
        self.version.as_deref()
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
        let agreement = &fast.agreement;
        match agreement.stage {
            Stage::Announcing => agreement.next,
            // A confirmation takes the path of data, so it waits until there is one.
            Stage::Requesting(..) if self.is_direct() || self.is_labelled() || !agreement.is_acknowledged() => {
                agreement.next
            }
            Stage::Proven(_) if self.is_direct() && fast.has_open_question() => agreement.next,
            Stage::Proven(_) | Stage::Requesting(..) | Stage::Over(_) => u64::MAX,
        }
    }

    pub(super) fn drive_agreement(&mut self, ctx: &mut Context, now: u64) {
        if now < self.agreement_at() {
            return;
        }
        let (peer, direct, labelled) = (self.peer.node_addr(), self.is_direct(), self.is_labelled());
        let Some(fast) = &mut self.fast else { return };
        let agreement = &mut fast.agreement;
        let (id, confirm) = (agreement.id, SessionCommand::ConfirmFast { id: agreement.id });
        let announcement = agreement.announce(now);
        match agreement.stage {
            Stage::Requesting(suite, _) if direct => {
                if agreement.request(now) {
                    ctx.change_session(peer, confirm);
                } else {
                    self.end_agreement(ctx, Frames::Unproven(suite));
                }
            }
            Stage::Requesting(..) | Stage::Proven(_) if labelled || direct => {
                // Silence proves nothing here: the peer's path to this node may be another one,
                // without labels. So the wait doubles, up to 16 s.
                ctx.change_session(peer, confirm);
                agreement.next = now + (REQUEST_AGAIN << fast.more_requests.min(MAX_REQUESTS + 1));
                fast.more_requests += 1;
                if let Stage::Requesting(suite, _) = agreement.stage
                    && fast.more_requests == REPORT_REQUESTS
                {
                    self.report_frames(ctx, Frames::Unproven(suite));
                }
            }
            Stage::Requesting(..) => agreement.hold_requests(now, announcement.is_some()),
            Stage::Over(frames) => self.end_agreement(ctx, frames),
            Stage::Announcing | Stage::Proven(_) => {}
        }
        if let Some(body) = announcement {
            self.send_message(ctx, id, CAPABILITIES, body);
        }
    }

    fn end_agreement(&mut self, ctx: &mut Context, frames: Frames) {
        if let Some(fast) = &mut self.fast {
            fast.agreement.stage = Stage::Over(frames);
        }
        // Older keys that work stay in use until they are retired.
        self.report_frames(ctx, frames);
        if self.require_fast && !matches!(self.frames(), Frames::Fast(_) | Frames::Relayed(_)) {
            // The senders of waiting packets learn that these are not delivered; later packets wait
            // for the next epoch.
            ctx.change_session(self.peer.node_addr(), SessionCommand::DropQueue);
        }
    }

    fn report_frames(&mut self, ctx: &mut Context, frames: Frames) {
        let before = self.frames.replace(frames);
        let usual = before.is_none() && frames == Frames::Fips && !self.was_fast;
        if before != Some(frames) && !usual {
            ctx.event(Event::FramesChanged {
                peer: self.peer,
                frames,
            });
        }
    }

    /// Forgets the agreement, because its epochs are over. The size of the path stays.
    pub(super) fn forget_agreement(&mut self) {
        self.fast = None;
        self.frames = None;
        self.fast_direct = false;
        self.reads_full = false;
        self.version = None;
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

impl Fast {
    /// Whether data goes in fast frames, but not yet in every lane or not yet directly, and more
    /// requests are allowed.
    fn has_open_question(&self) -> bool {
        (!self.direct || self.unproven != 0) && self.more_requests < MAX_REQUESTS
    }
}

#[cfg(test)]
impl Session {
    /// Brings the session up with keys for fast frames, on `link`.
    pub(crate) fn open_over(&mut self, now: u64, link: LinkId) {
        self.epochs.push(super::Epoch {
            id: EpochId(0),
            start: [0; 8],
            born: now,
            stage: super::Stage::Current,
            seed: None,
            fast_index: None,
        });
        self.frames = Some(Frames::Fast(weft_noise::fast::Suite::Aes256Gcm));
        self.link = Some(link);
    }
}
