//! The parts that both agreements on fast keys share: the capabilities that this node sends, and
//! the keys that follow from the capabilities of both ends.
//!
//! One agreement is between the ends of a session ([`crate::session`]), the other between
//! neighbours ([`crate::hop`]).

use rand_core::Rng as _;
use weft_noise::fast::{Seed, Suite};
use weft_packet::{EpochId, FastKeys, ReceiverIndex};
use weft_wire::fast::{Capabilities, READS_FULL};

use crate::context::Context;

/// The largest frame that this node accepts: the largest UDP payload over IPv4.
pub(crate) const MAX_PAYLOAD: u16 = 65_507;

/// Returns the receiver index of the first lane, and the body of a capabilities message with the
/// indices of `lanes` lanes.
pub(crate) fn tell(ctx: &mut Context, lanes: u8) -> Option<(ReceiverIndex, Vec<u8>)> {
    let index = ctx.allocate_fast_index();
    let mut random = [0; 16];
    ctx.rng.fill_bytes(&mut random);
    let suites: Vec<(u8, u32)> = ctx.config.suites.offers().collect();
    let mut body = vec![0; Capabilities::MAX_LEN];
    let flags = if ctx.config.reads_full { READS_FULL } else { 0 };
    let indices: Vec<u32> = (0..lanes.into()).map(|lane| index.0 | lane).collect();
    let Ok(len) = Capabilities::emit_with(flags, MAX_PAYLOAD, &random, &suites, &indices, &mut body) else {
        ctx.free_fast_index(index);
        return None;
    };
    body.truncate(len);
    Some((index, body))
}

/// Returns the keys that follow from both bodies, `ours` and `body`, whose parsed form is `theirs`:
/// one set for each lane that both ends have, in the order of the lanes. There are none if the ends
/// have no suite in common.
pub(crate) fn keys(
    ctx: &Context,
    id: EpochId,
    seed: &Seed,
    ours: &[u8],
    (body, theirs): (&[u8], &Capabilities<'_>),
) -> impl Iterator<Item = FastKeys> {
    let offered: Vec<(u8, u32)> = ctx.config.suites.offers().collect();
    let offers: Vec<(u8, u32)> = theirs.suites().collect();
    let suite = Suite::choose(&offered, &offers);
    let indices = Capabilities::parse(ours).map(|ours| ours.indices().collect());
    let indices: Vec<u32> = indices.unwrap_or_default();
    let reads_full = theirs.flags & READS_FULL != 0;
    let (max_payload, phase_frames) = (theirs.max_payload, ctx.config.phase_frames);
    (0..)
        .zip(indices.into_iter().zip(theirs.indices()))
        .filter_map(move |(lane, (our_index, their_index))| {
            let suite = suite?;
            Some(FastKeys {
                id,
                our_index: ReceiverIndex(our_index),
                their_index: ReceiverIndex(their_index),
                max_payload,
                reads_full,
                suite,
                secrets: seed.secrets(ours, body, suite, lane),
                phase_frames,
            })
        })
}
