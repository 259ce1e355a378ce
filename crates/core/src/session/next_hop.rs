//! The link that the frames of a session go out on, and the one that the peer's frames arrive on.

use weft_contract::{LinkId, SessionCommand};

use super::{SILENT, Session};
use crate::context::Context;

/// A received frame shows for this long that frames arrive, in ms.
const FRESH: u64 = 1_000;

impl Session {
    /// Handles a changed or lost path to the peer.
    pub(crate) fn handle_route(&mut self, ctx: &mut Context, now: u64, link: Option<LinkId>) {
        if self.link == link {
            return;
        }
        self.link = link;
        self.hurry_agreement(now);
        self.handle_moved(ctx, now);
        let Some(link) = link else { return };
        ctx.change_session(self.peer.node_addr(), SessionCommand::Bind { link });
        if self.wanted.is_some() && !self.is_up() {
            self.not_before = now;
            self.initiate(ctx, now);
        } else if let Some(initiating) = &mut self.initiating {
            initiating.repeat.hurry(now);
        }
        self.flush_services(ctx, now);
    }

    /// Handles the report that frames arrive over this link now.
    pub(crate) fn handle_arrival(&mut self, now: u64, link: LinkId) {
        self.liveness.heard(now);
        self.arrives_since = now;
        self.note_arrival(link);
    }

    /// Records the link over which a message was received that only the peer can have made.
    pub(super) fn note_arrival(&mut self, link: LinkId) {
        self.arrives = Some(link);
        self.left = true;
    }

    /// Returns the link over which frames were last received.
    pub(crate) fn arrives(&self) -> Option<LinkId> {
        self.arrives
    }

    /// Whether frames of the peer arrive over a link at present.
    pub(crate) fn hears_over(&self, now: u64, link: LinkId) -> bool {
        self.arrives == Some(link) && now.saturating_sub(self.liveness.last_heard()) < FRESH
    }

    /// Returns when the peer last reported that frames of this node arrive, since its own arrive
    /// over the present link. Its reports from before it switched links say nothing about the path
    /// that it left.
    pub(crate) fn told(&self) -> Option<u64> {
        Some(self.passing.told()).filter(|told| *told > self.arrives_since)
    }

    /// Returns the link on which to follow the peer, if it is time.
    pub(crate) fn take_arrival(&mut self, now: u64) -> Option<LinkId> {
        if now < self.follow_at() {
            return None;
        }
        self.left = false;
        self.arrives.filter(|link| Some(*link) != self.link)
    }

    /// Prevents this node from following the peer again until that time.
    pub(crate) fn stay(&mut self, until: u64) {
        self.follow_from = until;
    }

    pub(super) fn follow_at(&self) -> u64 {
        if self.left { self.follow_from } else { u64::MAX }
    }

    /// Whether the peer has been silent for so long that another path should be tried now. If so,
    /// the path is not suspect again for the same time.
    pub(crate) fn take_silence(&mut self, now: u64) -> bool {
        let silent = now >= self.silent_at();
        if silent {
            self.doubt_from = now + SILENT;
        }
        silent
    }

    pub(super) fn silent_at(&self) -> u64 {
        if self.is_up() {
            self.liveness.unanswered_at(SILENT).max(self.doubt_from)
        } else {
            u64::MAX
        }
    }

    /// Whether no other node is between the ends.
    pub(super) fn is_direct(&self) -> bool {
        self.link == Some(self.own_link)
    }

    /// Whether other nodes are between the ends.
    pub(crate) fn is_relayed(&self) -> bool {
        self.link.is_some() && !self.is_direct()
    }

    /// Returns the link on which frames are sent.
    pub(crate) fn next_hop(&self) -> Option<LinkId> {
        self.link
    }

    /// Whether a path to the peer is needed: packets wait, or there are keys, or a handshake is in
    /// progress.
    pub(crate) fn needs_route(&self) -> bool {
        self.wanted.is_some() || self.is_up() || self.is_handshaking()
    }
}
