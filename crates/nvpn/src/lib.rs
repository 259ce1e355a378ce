//! What nvpn devices tell each other, as bytes and their meaning.
//!
//! | module | what is there |
//! |---|---|
//! | [`network_id`] | the identifier of a network, and texts that mean the same one |
//! | [`shared_roster`] | the signed list of members, and which of two lists holds |
//! | [`control`] | control frames: presence, capabilities, rosters, requests to join |
//! | [`hint`] | the addresses in capabilities |
//! | [`secret`] | secrets as text |
//! | [`exchange`] | what this node and devices tell each other, and when |
//! | [`join`] | the link that a device shows in order to join, and the token of a manual one |
//!
//! Read from nostr-vpn-core 4.1.19 and nostr-identity 0.4.0. `docs/protocol/nvpn.md` has every field
//! and bound. Readers take what they know and pass over the rest, as nvpn's own do.
//!
//! Never here: sockets, clocks, randomness, sessions, the packets of members. Times are arguments, in
//! seconds since 1970.

pub mod control;
pub mod exchange;
pub mod hint;
pub mod join;
pub mod network_id;
pub mod secret;
pub mod shared_roster;
