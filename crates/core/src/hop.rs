//! The agreement with a neighbour on the keys for relayed fast frames over a link, once for each
//! epoch of the link.
//!
//! It works like the agreement between the ends of a session ([`crate::session`]). Each end sends
//! its capabilities until the other has acknowledged them, installs the keys once it knows both
//! capabilities, and then sends a frame that asks for one in return. The agreement begins when this
//! node needs such keys, or when the neighbour begins. docs/protocol/fast.md, "Hop keys".

use weft_noise::fast::{self, Seed};
use weft_packet::{EpochId, LinkCommand, LinkId, ReceiverIndex, SendCommand};
use weft_wire::fast::{Capabilities, DIGEST_LEN};
use weft_wire::link::{HOP_CAPABILITIES, HOP_CAPABILITIES_ACK};

use crate::capability;
use crate::context::Context;

/// First wait before capabilities are sent again; doubles each time.
const TELL_AGAIN: u64 = 500;
/// Number of capabilities messages without an answer after which the neighbour counts as one that
/// does not support relayed frames.
const MAX_TELLS: u32 = 4;
/// First wait before a confirmation is requested again; doubles each time.
const ASK_AGAIN: u64 = 250;
/// Number of requests without a confirmation after which fast frames count as not reaching the
/// neighbour.
const MAX_ASKS: u32 = 5;

/// The link, and this node's index of the epoch under which the messages are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) link: LinkId,
    pub(crate) index: ReceiverIndex,
}

/// The agreement of one epoch of a link.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) id: EpochId,
    /// Needed until the keys are derived.
    seed: Option<Seed>,
    our_index: ReceiverIndex,
    ours: Vec<u8>,
    acknowledged: bool,
    tells: u32,
    next: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The neighbour's capabilities are not known.
    Telling,
    /// Keys are installed; the number counts the requests for a confirmation.
    Asking(u32),
    /// Relayed frames may be sent.
    Proven,
    /// The agreement has failed for this epoch, and nothing more is tried.
    Over,
}

impl Hop {
    /// Begins the agreement with the seed from the handshake of the epoch.
    pub(crate) fn begin(ctx: &mut Context, now: u64, id: EpochId, seed: Seed) -> Option<Self> {
        let (our_index, ours) = capability::tell(ctx, 1)?;
        Some(Self {
            id,
            seed: Some(seed),
            our_index,
            ours,
            acknowledged: false,
            tells: 0,
            next: now,
            stage: Stage::Telling,
        })
    }

    /// Returns an agreement whose keys are proven.
    #[cfg(test)]
    pub(crate) fn proven(id: EpochId) -> Self {
        Self {
            id,
            seed: None,
            our_index: ReceiverIndex(0),
            ours: Vec::new(),
            acknowledged: true,
            tells: 0,
            next: u64::MAX,
            stage: Stage::Proven,
        }
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.stage == Stage::Proven
    }

    /// Frees the resources of an epoch that has ended.
    pub(crate) fn end(&self, ctx: &mut Context, link: LinkId) {
        ctx.free_fast_index(self.our_index);
        ctx.to_link(link, LinkCommand::RetireHop { id: self.id });
    }

    /// Handles the capabilities of the neighbour.
    pub(crate) fn handle_capabilities(&mut self, ctx: &mut Context, now: u64, at: At, body: &[u8]) {
        let Ok(theirs) = Capabilities::parse(body) else { return };
        if let Some(seed) = self.seed.take() {
            self.install(ctx, now, at.link, &seed, body, &theirs);
        }
        if !self.acknowledged && self.stage != Stage::Telling {
            // The neighbour may have begun the agreement only now, and have ignored the earlier
            // messages.
            self.next = now;
            self.tells = self.tells.min(MAX_TELLS - 1);
        }
        let digest: [u8; DIGEST_LEN] = fast::digest(body);
        send(ctx, at, HOP_CAPABILITIES_ACK, digest.to_vec());
        self.drive(ctx, now, at);
    }

    /// Handles the neighbour's acknowledgement of this node's capabilities.
    pub(crate) fn handle_ack(&mut self, body: &[u8]) {
        let digest: [u8; DIGEST_LEN] = fast::digest(&self.ours);
        self.acknowledged |= body == digest;
    }

    /// Handles proof that frames of this node open at the neighbour: a frame that it answered has
    /// opened here.
    pub(crate) fn handle_proven(&mut self) {
        if self.seed.is_none() {
            self.stage = Stage::Proven;
            self.acknowledged = true;
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        match self.stage {
            Stage::Telling | Stage::Asking(_) => self.next,
            Stage::Proven | Stage::Over => u64::MAX,
        }
    }

    pub(crate) fn drive(&mut self, ctx: &mut Context, now: u64, at: At) {
        if now < self.deadline() {
            return;
        }
        let waits = self.tells < MAX_TELLS;
        self.tells += u32::from(waits);
        let tell = waits && !self.acknowledged;
        match self.stage {
            Stage::Telling if !waits => self.stage = Stage::Over,
            Stage::Telling => self.next = now + (TELL_AGAIN << (self.tells - 1)),
            Stage::Asking(MAX_ASKS) => self.stage = Stage::Over,
            Stage::Asking(asks) => {
                self.stage = Stage::Asking(asks + 1);
                self.next = now + (ASK_AGAIN << asks);
                ctx.to_link(at.link, LinkCommand::ConfirmHop { id: self.id });
            }
            Stage::Proven | Stage::Over => {}
        }
        if tell {
            send(ctx, at, HOP_CAPABILITIES, self.ours.clone());
        }
    }

    /// Derives the keys and hands them to the lane.
    fn install(
        &mut self,
        ctx: &mut Context,
        now: u64,
        link: LinkId,
        seed: &Seed,
        body: &[u8],
        theirs: &Capabilities<'_>,
    ) {
        let Some(keys) = capability::keys(ctx, self.id, seed, &self.ours, (body, theirs)).next() else {
            self.stage = Stage::Over;
            return;
        };
        ctx.to_link(link, LinkCommand::InstallHop { keys });
        self.stage = Stage::Asking(0);
        self.next = now;
    }
}

fn send(ctx: &mut Context, at: At, msg_type: u8, body: Vec<u8>) {
    ctx.lane(SendCommand::OnLink {
        link: at.link,
        epoch: Some(at.index),
        msg_type,
        body,
    });
}
