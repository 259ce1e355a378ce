//! WireGuard as a state machine: no sockets, no clocks, no threads.
//!
//! Source: "WireGuard: Next Generation Kernel Network Tunnel" (J. Donenfeld, revision of 2020-06-01),
//! called the *paper* in this crate; its sections are named where a format or a constant comes from.
//!
//! Contents, outermost first:
//!
//! - [`config`]: files of wg-quick, read strictly and written.
//! - [`interface`]: one private key and its peers: who may begin a handshake, when keys are renewed, where a peer
//!   is. Datagrams and the time go in, [`interface::Output`]s come out.
//! - [`transport`]: data messages under the keys of a handshake.
//! - [`handshake`]: `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` in two messages.
//! - [`cookie`]: MAC1, MAC2 and cookies, by which a node under load answers real addresses alone.
//! - [`message`]: the four messages on the wire.
//! - [`keys`]: private, public and preshared keys, and their text.
//!
//! Never here: sockets, clocks, threads, and randomness of its own. The caller supplies the random number
//! generator and both clocks: `now` counts ms from any start, and the time of day stands in initiations.

pub mod config;
pub mod cookie;
pub mod handshake;
pub mod interface;
pub mod keys;
pub mod message;
mod noise;
pub mod transport;
