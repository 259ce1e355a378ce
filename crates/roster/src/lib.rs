//! A network as a set of signed records, and what they amount to.
//!
//! Contents, from the bytes to their meaning:
//!
//! - [`event`]: signed Nostr events, the form of all records; from weft-nostr.
//! - [`network_id`]: the identifier of a network, which proves its founder.
//! - [`key`]: what a record is about. [`record`]: what it says, and drafts of new ones.
//! - [`set`]: the records that a node keeps. [`admins`]: the administrators that they make.
//! - [`state`]: members, routes, exits, guests, invites and rules that follow from a set.
//! - [`changes`]: versions of new records, and what falls with an administrator.
//! - [`invite`]: invite codes, their key pairs, and proofs.
//! - [`guest`]: devices with WireGuard behind a member.
//! - [`names`], [`addresses`]: labels and IPv4 addresses of members, and their collisions.
//! - [`rules`]: rules as text, and what they say about a flow.
//! - [`sync`]: how members agree on their records.
//! - [`membership`]: the state as nvpn's event.
//!
//! Two nodes that have the same records have the same state, in whatever order they came: nothing
//! here looks at a clock, and of any two records one takes precedence. Times are arguments, in seconds
//! since 1970, and decide only what the records say that they decide.
//!
//! Never here: sockets, files, clocks, threads, randomness, sessions, and the packet path, which
//! reads tables made from a [`State`](state::State).

pub mod addresses;
pub mod admins;
pub mod changes;
pub mod guest;
pub mod invite;
pub mod key;
pub mod membership;
pub mod names;
pub mod network_id;
pub mod record;
pub mod rules;
pub mod set;
pub mod state;
pub mod sync;

pub use weft_nostr::event;
