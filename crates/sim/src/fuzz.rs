//! Fuzz targets as ordinary functions: they take bytes, and panic if a promise is broken.
//!
//! - [`wire`]: every parser of weft-wire on the same bytes; what parses is emitted unchanged.
//! - [`split`]: a TUN read against a plain model of segmentation, and the other operations on its
//!   packets.
//! - [`coalesce`]: packets of several flows coalesced and segmented again: the same packets, each
//!   flow in order.
//! - [`lane`]: a lane with keys, its peer, and an attacker between them that controls neither.
//! - [`fast`]: like [`lane`], with fast frames, and with a peer that has keys and obeys no rule.
//! - [`core`]: two nodes and a hostile one, on a network that the bytes control.
//! - [`mesh`]: up to eight nodes that relay for each other, some of which send forged messages.
//! - [`handshake`]: two nodes and an attacker that forges, replays, spoofs and floods, and drops
//!   nothing.
//!
//! The targets of `fuzz/` are these functions under libFuzzer; the tests run their corpus and some
//! random bytes on any toolchain. These functions report failures by panics, so they are not for
//! use in a daemon.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a broken promise is told"
)]

mod coalesce;
mod core;
mod fast;
mod handshake;
mod hostile;
mod input;
mod lane;
mod mesh;
mod model;
mod split;
mod wire;

pub use coalesce::coalesce;
pub use core::core;
pub use fast::fast;
pub use handshake::handshake;
pub use lane::lane;
pub use mesh::mesh;
pub use split::split;
pub use wire::wire;

/// One target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of their corpus.
pub const TARGETS: [(&str, Target); 8] = [
    ("wire", wire),
    ("split", split),
    ("coalesce", coalesce),
    ("lane", lane),
    ("fast", fast),
    ("core", core),
    ("mesh", mesh),
    ("handshake", handshake),
];
