//! The agreement of two nodes on keys for fast frames: between the ends of a session
//! ([`crate::session`]), or between neighbours, for relayed frames over their link
//! ([`crate::link`]). There is one for each epoch.
//!
//! Each end announces its capabilities until the other has acknowledged them, and derives the keys
//! once it knows both. Then it sends a fast frame that requests one in return. That is the proof:
//! the handshake of FIPS does not authenticate its transcript, so an attacker on the path can make
//! the two ends derive different keys while FIPS frames still work. After any failure the epoch
//! stays without fast frames. docs/protocol/fast.md, "Negotiation" and "Hop keys".

use rand_core::Rng as _;
use weft_contract::{EpochId, FastKeys, ReceiverIndex};
use weft_noise::fast::{Seed, Suite, digest};
use weft_wire::fast::{Capabilities, DIGEST_LEN, READS_FULL};

use crate::Frames;
use crate::context::Context;

/// The largest frame that this node accepts: the largest UDP payload over IPv4.
pub(crate) const MAX_PAYLOAD: u16 = 65_507;
/// First wait before capabilities are announced again; doubles each time.
const ANNOUNCE_AGAIN: u64 = 500;
/// Number of announcements without an answer after which the peer counts as one that does not
/// support fast frames.
const MAX_ANNOUNCEMENTS: u32 = 4;
/// First wait before a confirmation is requested again; doubles each time.
pub(crate) const REQUEST_AGAIN: u64 = 250;
/// Number of requests without a confirmation after which fast frames count as not arriving, or as
/// opening with other keys than this node's. A loss of one in three in each direction, which is
/// high, delays one agreement in 19 to the next epoch.
pub(crate) const MAX_REQUESTS: u32 = 5;

/// The agreement of one epoch.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) id: EpochId,
    /// The receiver index of the first lane.
    pub(crate) our_index: ReceiverIndex,
    /// Needed until the keys are derived; the peer's capabilities may be late.
    seed: Option<Seed>,
    ours: Vec<u8>,
    acknowledged: bool,
    announcements: u32,
    /// When the next step is due. What the step is follows from the stage.
    pub(crate) next: u64,
    pub(crate) stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer's capabilities are not known.
    Announcing,
    /// Keys are installed; the number counts the requests for a confirmation.
    Requesting(Suite, u32),
    /// Fast frames open at both ends.
    Proven(Suite),
    /// The agreement has ended for this epoch, and nothing more is tried.
    Over(Frames),
}

/// The effect of the peer's capabilities.
pub(crate) struct Accepted {
    /// Whether the peer reads frames of packets with their whole header. `None` if its capabilities
    /// were known before.
    pub(crate) reads_full: Option<bool>,
    /// The version that the peer claims, if it is not known from earlier capabilities.
    pub(crate) version: Option<Box<str>>,
    /// The keys to install, one set for each lane that both ends have.
    pub(crate) keys: Vec<FastKeys>,
    /// The body of the acknowledgement.
    pub(crate) ack: Vec<u8>,
}

impl Agreement {
    /// Begins the agreement of an epoch, for `lanes` lanes of this node. The peer is told `version`
    /// unless it is empty.
    pub(crate) fn begin(
        ctx: &mut Context,
        now: u64,
        id: EpochId,
        seed: Seed,
        lanes: u8,
        version: &str,
    ) -> Option<Self> {
        let our_index = ctx.allocate_fast_index();
        let Some(ours) = capabilities(ctx, our_index, lanes, version) else {
            ctx.free_fast_index(our_index);
            return None;
        };
        Some(Self {
            id,
            our_index,
            seed: Some(seed),
            ours,
            acknowledged: false,
            announcements: 0,
            next: now,
            stage: Stage::Announcing,
        })
    }

    /// Handles the capabilities of the peer: derives the keys if they are the first ones. Returns
    /// `None` if they do not parse.
    pub(crate) fn handle_capabilities(&mut self, ctx: &Context, now: u64, body: &[u8]) -> Option<Accepted> {
        let theirs = Capabilities::parse(body).ok()?;
        let (mut keys, mut reads_full, mut version) = (Vec::new(), None, None);
        if let Some(seed) = self.seed.take() {
            reads_full = Some(theirs.flags & READS_FULL != 0);
            version = theirs.version.map(Box::from);
            keys = self.derive(ctx, &seed, body, &theirs);
            (self.stage, self.next) = match keys.first() {
                Some(first) => (Stage::Requesting(first.suite, 0), now),
                None => (Stage::Over(Frames::NoCommonSuite), self.next),
            };
        }
        if !self.acknowledged && self.stage != Stage::Announcing {
            // The peer may have begun the agreement only now, and have ignored the earlier
            // messages.
            self.next = now;
            self.announcements = self.announcements.min(MAX_ANNOUNCEMENTS - 1);
        }
        let ack: [u8; DIGEST_LEN] = digest(body);
        Some(Accepted {
            reads_full,
            version,
            keys,
            ack: ack.to_vec(),
        })
    }

    /// Handles the peer's acknowledgement of this node's capabilities.
    pub(crate) fn handle_ack(&mut self, body: &[u8]) {
        let digest: [u8; DIGEST_LEN] = digest(&self.ours);
        self.acknowledged |= body == digest;
    }

    /// Handles the proof that fast frames open at both ends. Returns the suite if it is news.
    pub(crate) fn handle_proven(&mut self) -> Option<Suite> {
        let (Stage::Requesting(suite, _) | Stage::Over(Frames::Unproven(suite))) = self.stage else {
            return None;
        };
        self.stage = Stage::Proven(suite);
        self.acknowledged = true;
        Some(suite)
    }

    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.stage, Stage::Proven(_))
    }

    /// Whether the peer needs no more announcements.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged
    }

    /// Counts one step, and returns the announcement that is due with it. Without an answer to the
    /// last one the agreement is over.
    pub(crate) fn announce(&mut self, now: u64) -> Option<Vec<u8>> {
        let waits = self.announcements < MAX_ANNOUNCEMENTS;
        self.announcements += u32::from(waits);
        if self.stage == Stage::Announcing {
            if waits {
                self.wait_for_answer(now);
            } else {
                self.stage = Stage::Over(Frames::Fips);
            }
        }
        (waits && !self.acknowledged).then(|| self.ours.clone())
    }

    /// Postpones the next step until the last announcement should have been answered.
    fn wait_for_answer(&mut self, now: u64) {
        self.next = now + (ANNOUNCE_AGAIN << self.announcements.saturating_sub(1));
    }

    /// Continues with announcements alone, while there is no path for requests. After the last
    /// one, acknowledged or not, nothing is due. `announced`: one is sent in this step.
    pub(crate) fn hold_requests(&mut self, now: u64, announced: bool) {
        self.acknowledged |= !announced;
        self.wait_for_answer(now);
    }

    /// Counts one request for a confirmation, and returns whether to send it. After the last one
    /// the agreement is over.
    pub(crate) fn request(&mut self, now: u64) -> bool {
        let Stage::Requesting(suite, requests) = self.stage else {
            return false;
        };
        let more = requests < MAX_REQUESTS;
        self.stage = if more {
            self.next = now + (REQUEST_AGAIN << requests);
            Stage::Requesting(suite, requests + 1)
        } else {
            Stage::Over(Frames::Unproven(suite))
        };
        more
    }

    /// Returns the keys that follow from the capabilities of both ends: one set for each lane that
    /// both have, in the order of the lanes. There are none if the ends have no suite in common.
    fn derive(&self, ctx: &Context, seed: &Seed, body: &[u8], theirs: &Capabilities<'_>) -> Vec<FastKeys> {
        let offered: Vec<(u8, u32)> = ctx.config.suites.offers().collect();
        let offers: Vec<(u8, u32)> = theirs.suites().collect();
        let Some(suite) = Suite::choose(&offered, &offers) else {
            return Vec::new();
        };
        let indices = Capabilities::parse(&self.ours).map(|ours| ours.indices().collect());
        let indices: Vec<u32> = indices.unwrap_or_default();
        let lanes = (0..).zip(indices.into_iter().zip(theirs.indices()));
        let keys = lanes.map(|(lane, (our_index, their_index))| FastKeys {
            id: self.id,
            our_index: ReceiverIndex(our_index),
            their_index: ReceiverIndex(their_index),
            max_payload: theirs.max_payload,
            reads_full: theirs.flags & READS_FULL != 0,
            suite,
            secrets: seed.secrets(&self.ours, body, suite, lane),
            phase_frames: ctx.config.phase_frames,
        });
        keys.collect()
    }
}

/// Returns the body of a capabilities message with the indices of `lanes` lanes.
fn capabilities(ctx: &mut Context, index: ReceiverIndex, lanes: u8, version: &str) -> Option<Vec<u8>> {
    let mut random = [0; 16];
    ctx.rng.fill_bytes(&mut random);
    let suites: Vec<(u8, u32)> = ctx.config.suites.offers().collect();
    let mut body = vec![0; Capabilities::MAX_LEN];
    let flags = if ctx.config.reads_full { READS_FULL } else { 0 };
    let indices: Vec<u32> = (0..lanes.into()).map(|lane| index.0 | lane).collect();
    let len = Capabilities::emit_with(flags, MAX_PAYLOAD, &random, &suites, &indices, version, &mut body).ok()?;
    body.truncate(len);
    // It is kept as long as the epoch.
    body.shrink_to_fit();
    Some(body)
}

#[cfg(test)]
impl Agreement {
    /// Returns an agreement whose keys are proven.
    pub(crate) fn proven(id: EpochId) -> Self {
        Self {
            id,
            our_index: ReceiverIndex(0),
            seed: None,
            ours: Vec::new(),
            acknowledged: true,
            announcements: 0,
            next: u64::MAX,
            stage: Stage::Proven(Suite::Aes256Gcm),
        }
    }
}
