//! Byte layouts: what weft reads from and writes to links, sessions and TUN devices.
//!
//! Pure: no allocation, no dependency, no standard library. `parse` turns bytes into a checked
//! message and panics on no input.
//!
//! # One pattern
//! - `Message::parse(&[u8]) -> Result<Message, WireError>` checks once. Fields are plain values, or
//!   borrow from the input if their size varies. The parser of a *header* that something follows
//!   returns `(header, rest)`, or the header is `LEN` bytes long.
//! - `message.emit(&mut [u8]) -> Result<usize, WireError>` writes what `parse` reads and returns
//!   the length. `LEN` or `wire_len` gives the length beforehand. Headers of fixed size have
//!   `to_bytes`.
//! - Parsers refuse what FIPS's own parsers refuse and tolerate what they tolerate (reserved bits,
//!   bytes behind a message), as each type documents. `emit` never writes what is only tolerated.
//! - Integers are little-endian in FIPS messages; network byte order within IP packets and the
//!   shim.
//!
//! # Layers, outermost first
//! - [`fmp`]: the frames between neighbours. Inside a sealed frame, [`fmp::InnerHeader`] names a
//!   link message, whose *body* follows: [`link`], [`mmp`], [`tree`], [`filter`], [`lookup`],
//!   [`sighting`], [`keepalive`], [`hops`], [`check`], [`grant`].
//! - [`link::SessionDatagram`] carries a session message: [`fsp`] for the headers, [`session`] for
//!   the handshake, [`signal`] for errors in the clear. Inside a sealed message, [`fsp::FspInner`]
//!   names a session message, whose *body* follows: [`session`], [`mmp`].
//! - [`session::DataPorts`] precedes an IP packet behind the [`shim`].
//! - [`fast`]: fast frames, and the session messages that agree on them.
//! - [`outside`]: datagrams that belong to no link, at the same socket.
//! - [`ip`], [`transport`], [`checksum`], [`virtio`]: packets as a TUN device has them.
//!   [`subnet`]: IP prefixes that a node routes. [`internet`]: addresses that an exit forwards to.
//!
//! # Never here
//! Keys, seals and signatures (weft-noise); what a message means and whether to believe it
//! (weft-core); sockets and devices (weft-os).
#![no_std]

#[cfg(test)]
extern crate std;

mod addr;
pub mod address;
pub mod check;
pub mod checksum;
mod coords;
mod cursor;
mod error;
pub mod fast;
pub mod filter;
pub mod fmp;
pub mod fsp;
pub mod grant;
pub mod hops;
pub mod internet;
pub mod ip;
pub mod keepalive;
pub mod link;
pub mod lookup;
pub mod mmp;
pub mod outside;
pub mod session;
pub mod shim;
pub mod sighting;
pub mod signal;
pub mod subnet;
pub mod transport;
pub mod tree;
pub mod virtio;

pub use addr::{FIPS_PREFIX, NodeAddr};
pub use coords::{Coords, CoordsPair};
pub use error::WireError;
pub use subnet::Subnet;
