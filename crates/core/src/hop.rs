//! Agreeing with a neighbour on the keys that relayed fast frames go over a link with, anew for each of its epochs.
//!
//! As between the ends of a session ([`crate::session`]): each side tells its capabilities until the other has
//! acknowledged them, installs the keys once it knows both, and then asks in a frame for one back. It begins when such
//! keys are wanted, or when the neighbour begins. docs/protocol/fast.md, "Hop keys".

use weft_noise::fast::{self, Seed};
use weft_packet::{Command, EpochId, LinkId};
use weft_wire::fast::{Capabilities, DIGEST_LEN};
use weft_wire::link::{HOP_CAPABILITIES, HOP_CAPABILITIES_ACK};

use crate::capability;
use crate::context::Context;

/// First wait before capabilities are told again; doubles each time.
const TELL_AGAIN: u64 = 500;
/// Told that often without an answer: the neighbour does not know of relayed frames.
const MAX_TELLS: u32 = 4;
/// First wait before a confirm is asked for again; doubles each time.
const ASK_AGAIN: u64 = 250;
/// Asked that often in vain: fast frames do not get through to the neighbour.
const MAX_ASKS: u32 = 5;

/// The link, and our index of the epoch that the messages go under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) link: LinkId,
    pub(crate) index: u32,
}

/// The agreement of one epoch of a link.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) id: EpochId,
    /// Needed until the keys are made.
    seed: Option<Seed>,
    our_index: u32,
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
    /// Keys are installed, and asked that often for a confirm.
    Asking(u32),
    /// Relayed frames may go.
    Proven,
    /// Nothing more is tried in this epoch.
    Over,
}

impl Hop {
    /// Begins, with the seed that the handshake of the epoch left.
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

    /// Keys that are agreed on and work.
    #[cfg(test)]
    pub(crate) fn proven(id: EpochId) -> Self {
        Self {
            id,
            seed: None,
            our_index: 0,
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

    /// The epoch is over.
    pub(crate) fn end(&self, ctx: &mut Context, link: LinkId) {
        ctx.free_fast_index(self.our_index);
        ctx.lane(Command::RetireHop { link, id: self.id });
    }

    /// The neighbour tells what it can do.
    pub(crate) fn handle_capabilities(&mut self, ctx: &mut Context, now: u64, at: At, body: &[u8]) {
        let Ok(theirs) = Capabilities::parse(body) else { return };
        if let Some(seed) = self.seed.take() {
            self.install(ctx, now, at.link, &seed, body, &theirs);
        }
        if !self.acknowledged && self.stage != Stage::Telling {
            // It may have come to know of us only now.
            self.next = now;
            self.tells = self.tells.min(MAX_TELLS - 1);
        }
        let digest: [u8; DIGEST_LEN] = fast::digest(body);
        send(ctx, at, HOP_CAPABILITIES_ACK, digest.to_vec());
        self.drive(ctx, now, at);
    }

    /// The neighbour has our capabilities.
    pub(crate) fn handle_ack(&mut self, body: &[u8]) {
        let digest: [u8; DIGEST_LEN] = fast::digest(&self.ours);
        self.acknowledged |= body == digest;
    }

    /// A frame has opened that shows that ours open at the neighbour.
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
                ctx.lane(Command::ConfirmHop {
                    link: at.link,
                    id: self.id,
                });
            }
            Stage::Proven | Stage::Over => {}
        }
        if tell {
            send(ctx, at, HOP_CAPABILITIES, self.ours.clone());
        }
    }

    /// Makes the keys and hands them to the lane.
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
        ctx.lane(Command::InstallHop { link, keys });
        self.stage = Stage::Asking(0);
        self.next = now;
    }
}

fn send(ctx: &mut Context, at: At, msg_type: u8, body: Vec<u8>) {
    ctx.lane(Command::SendOnLink {
        link: at.link,
        epoch: Some(at.index),
        msg_type,
        body,
    });
}
