//! Byte layouts: what weft reads from and writes to links, sessions and TUN devices.
//!
//! Pure: no allocation, no dependency, no standard library. Bytes go in, a checked message comes
//! out, and nothing panics on any input.
//!
//! # One pattern
//! - `Message::parse(&[u8]) -> Result<Message, WireError>` checks once. Fields are plain values, or
//!   borrow from the input where the size varies. A *header* that something follows returns
//!   `(header, rest)`, or is `LEN` bytes long.
//! - `message.emit(&mut [u8]) -> Result<usize, WireError>` writes what `parse` reads and returns
//!   the length. `LEN` or `wire_len` says it beforehand. Headers of fixed size have `to_bytes`.
//! - What FIPS's own parsers refuse is refused and what they tolerate (reserved bits, bytes
//!   behind a message) is tolerated, as each type says. A message that is emitted never has it.
//! - Integers are little-endian on FIPS's wire; network byte order within IP packets and the shim.
//!
//! # Layers, from the outside in
//! - [`fmp`]: the frames between neighbours. Inside a sealed one, [`fmp::InnerHeader`] names a link
//!   message, whose *body* follows: [`link`], [`mmp`], [`tree`], [`filter`], [`lookup`].
//! - [`link::SessionDatagram`] carries a session message: [`fsp`] for the headers, [`session`]
//!   for the handshake, [`signal`] for errors in the clear. Inside a sealed one, [`fsp::FspInner`]
//!   names a session message, whose *body* follows: [`session`], [`mmp`].
//! - [`session::DataPorts`] carries an IP packet behind the [`shim`].
//! - [`fast`]: fast frames, weft's own, and the session messages that agree on them.
//! - [`ip`], [`transport`], [`checksum`], [`virtio`]: packets as a TUN device has them. [`network`]: where they go.
//!
//! # Never here
//! Keys, seals and signatures (weft-noise); what a message means and whether to believe it
//! (weft-core); sockets and devices (weft-os).
#![no_std]

#[cfg(test)]
extern crate std;

mod addr;
pub mod checksum;
mod coords;
mod cursor;
mod error;
pub mod fast;
pub mod filter;
pub mod fmp;
pub mod fsp;
pub mod ip;
pub mod link;
pub mod lookup;
pub mod mmp;
pub mod network;
pub mod session;
pub mod shim;
pub mod signal;
pub mod transport;
pub mod tree;
pub mod virtio;

pub use addr::{FIPS_PREFIX, NodeAddr};
pub use coords::{Coords, CoordsPair};
pub use error::WireError;
pub use network::Network;
