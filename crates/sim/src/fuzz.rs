//! What fuzzers run, as ordinary functions: bytes go in, and a promise that does not hold is a panic.
//!
//! - [`wire`]: every parser of weft-wire on the same bytes; what parses is emitted as it was.
//! - [`split`]: a TUN read against a plain model of segmentation, and what else is done to its packets.
//! - [`coalesce`]: packets of several flows joined and cut again: the same packets, each flow in order.
//! - [`lane`]: a lane with keys, its peer, and an attacker between them that controls neither.
//! - [`fast`]: the same with fast frames, and with a peer that has keys and keeps no rule.
//! - [`core`]: two nodes and one that has turned hostile, on a network that does what the bytes say.
//! - [`mesh`]: up to eight nodes that reach each other through each other, and some of them lie.
//! - [`handshake`]: two nodes and an attacker that forges, replays, spoofs and floods, and drops nothing.
//!
//! The targets of `fuzz/` are these under libFuzzer; the tests replay their corpus and some random bytes on any
//! toolchain. A panic is what a caller looks for here, so this is no code for a daemon.

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

/// One entry point.
pub type Target = fn(&[u8]);

/// All of them by name, which is also the name of their corpus.
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
