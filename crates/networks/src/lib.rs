//! The private networks of a node: their records, the documents that bring them to members, and their rules.
//!
//! All of it is computed from arguments: commands, documents and the time in, documents and rows out. Files, clocks and
//! sessions are those of the caller.
//!
//! | module | what it is |
//! |---|---|
//! | [`Networks`] | all networks of a node: labels, addresses, requests for membership, secrets |
//! | [`Network`] | one network: its records, its members, the request to join it, what its administrators sign |
//! | [`kept`] | a network as the text of a file |
//! | [`document`] | the documents on the service port of Weft, as bytes |
//! | [`offers`] | the routes that members offer to administrators |
//! | [`place`], [`presence`], [`presences`] | where members are at present: a place, one statement, and all of a network |
//! | [`rules`] | which flows pass between members, for the packet path and for people |
//! | [`reserved`] | ranges of addresses that lie behind no node |
//! | [`utc`] | times in texts for the user |
//! | [`NetworkError`] | the reasons why a command is not carried out |
//!
//! Never here: the format of records and their precedence (weft-roster), files (weft-store), sessions
//! (weft-core), the packet path (weft-packet).

pub mod document;
mod error;
pub mod kept;
mod network;
mod networks;
pub mod offers;
pub mod place;
pub mod presence;
pub mod presences;
pub mod reserved;
pub mod rules;
mod time;

pub use self::document::{Ask, Document, DocumentError, Refusal, Verdict};
pub use self::error::NetworkError;
pub use self::network::{Joining, Network, Numbered, Signed, SignedKind, SignedMembers, Wish};
pub use self::networks::{
    AddGuest, Approval, Asked, Before, Changed, GuestAdded, HostUse, MAX_ASKED, MAX_NETWORKS, MAX_REQUESTS, Mark,
    MemberChange, Networks, NewInvite, Owner, Owners, Request, RouteChange, Row, RuleChange, Shadowed, Unused,
    UsedGuest, fingerprint, used_ipv4,
};
pub use self::offers::{MAX_OFFERED, exit_of, of_exit};
pub use self::presence::Presence;
pub use self::presences::PresenceDigest;
pub use self::time::utc;
