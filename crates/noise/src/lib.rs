//! Node identities, and the handshakes by which two nodes agree on keys.
//!
//! Contents, outermost first:
//!
//! - [`identity`]: the Nostr key pair that *is* the node: `nsec` / `npub` texts, the node address,
//!   BIP-340 signatures.
//! - [`ik`] and [`xk`]: the two handshakes of FIPS. IK authenticates a link in two messages, XK a session end to
//!   end in three. Both end in [`Established`].
//! - [`Key`], [`Established`]: the result of a handshake, and the exporter that fast frames start
//!   from.
//! - [`aead`]: ChaCha20-Poly1305 in place, for the handshakes and for every FIPS frame after them.
//! - [`fast`]: the keys and suites of fast frames.
//! - [`replay`]: the window that accepts each counter once.
//! - [`tag`]: how a node recognises handshake messages of nodes that it knows before any
//!   Diffie-Hellman.
//!
//! Never here: sockets, clocks, threads, logging, and randomness of its own. The caller supplies
//! the random number generator, so a seed reproduces a handshake byte for byte.
//!
//! # FIPS is not standard Noise
//!
//! The handshakes follow FIPS (`src/noise/` of its reference implementation), which departs from the Noise
//! specification. None of these can change without losing interoperation:
//!
//! - The curve is secp256k1, and a Diffie-Hellman result is SHA-256 of the shared point's x coordinate alone, so
//!   the parity of a public key does not matter to it.
//! - The responder's static key is mixed in beforehand with the parity byte 0x02, whatever its
//!   parity is, because an `npub` does not contain it. No prologue is mixed in, not even an empty
//!   one.
//! - Handshake payloads are sealed with *empty* associated data. The transcript hash is therefore computed but
//!   never checked by FIPS itself: flipping the parity byte of an ephemeral key in flight leaves the keys equal
//!   and the hashes different. [`Established::exporter`] does depend on the hash.
//! - The `se` step of IK's second message combines the responder's static with the *initiator's ephemeral* key,
//!   as `es` did before. A peer's proof of its static key in IK is thus the `ss` step of the first message alone:
//!   an attacker with a responder's secret key can pose as any node towards that responder.
//!
//! # Secrets in memory
//!
//! Key bytes are on the heap and are overwritten when their owner is dropped; what computing with
//! them leaves on the stack is overwritten before a handshake's function returns. A test searches
//! the whole memory of its process for remains. Registers, which the kernel saves when it switches
//! threads, are beyond its reach.

pub mod aead;
pub mod fast;
mod handshake;
pub mod identity;
mod keys;
mod memo;
#[cfg(all(test, target_os = "linux"))]
mod memory_tests;
pub mod replay;
mod symmetric;
pub mod tag;

pub use handshake::{NoiseError, ik, xk};
pub use identity::{Identity, KeyError, PublicKey, SecretKey, SignatureError, parse_public, parse_secret};
pub use keys::{Established, Key, wipe_stack};
pub use symmetric::Role;
