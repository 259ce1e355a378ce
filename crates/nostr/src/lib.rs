//! Nostr: signed events, texts that are encrypted for one key, and what nodes of FIPS say to each other
//! through relays.
//!
//! | module | what is there |
//! |---|---|
//! | [`event`] | signed events (NIP-01), also the form of records of networks; rumors (NIP-59) |
//! | [`message`] | what a client and a relay tell each other (NIP-01) |
//! | [`json`] | limits in front of the JSON reader |
//! | [`nip44`] | encryption of texts (NIP-44, version 2) |
//! | [`wrap`] | messages of one node for another one (kind 21059) |
//! | [`advert`], [`inbox`] | where a node says that it is, and at which relays it waits |
//! | [`signal`], [`address`] | offers and answers, and the addresses in them |
//! | [`rendezvous`] | the state machine of one node at its relays |
//! | [`hex`] | hexadecimal digits |
//!
//! `docs/protocol/nostr.md` has every field and bound, `docs/protocol/security.md` (P31) what others
//! can make it cost.
//!
//! Never here: sockets, clocks, threads, randomness of its own, links and their paths.

pub mod address;
pub mod advert;
pub mod event;
pub mod hex;
pub mod inbox;
pub mod json;
pub mod message;
pub mod nip44;
pub mod rendezvous;
pub mod signal;
pub mod wrap;
