//! FIPS frames: two layers, each with its own keys. The link layer is sealed for the next hop, and
//! the session layer for the peer. Sources: FIPS fips-mesh-layer, fips-session-layer, wire-formats.
//!
//! - `epoch`: keys that overlap during a rekey, of either layer.
//! - `frame`: sealing both layers in place.
//! - `record`: session messages without a link layer, as nodes of nvpn send them. `direct`: those that arrive.
//! - `link`, `session`: what arrives, layer by layer. `forward`: session datagrams of other nodes.
//! - `relay_probe`: probes of paths that a session does not use.

mod direct;
mod early;
mod epoch;
mod forward;
pub(crate) mod frame;
mod link;
mod record;
mod relay_probe;
mod session;

pub(crate) use epoch::{Epoch, Epochs, MAX_EPOCHS, OpenFailure, Proof};
pub(crate) use frame::FipsFrames;
pub use frame::IPV6_OVERHEAD;
pub(crate) use frame::SESSION_OVERHEAD;
pub(crate) use record::{LINK_FRAME_EVERY, RECORD_OVERHEAD, Records};

use crate::lane::Lane;
use crate::train::Train;

/// What the processing of received FIPS frames needs.
pub(crate) struct FipsIngress<'a, T> {
    pub(crate) lane: &'a mut Lane,
    /// The present time, in ms.
    pub(crate) now: u64,
    pub(crate) train: &'a mut Train<T>,
}
