//! Direct paths between two nodes behind NATs: where a node may be reached, and how two nodes make
//! their NATs let datagrams of the other one in.
//!
//! | module | what is there |
//! |---|---|
//! | [`Reach`] | the state machine of one node: messages and probes in, messages and probes out |
//! | [`message`] | the message in which two nodes tell each other their candidates |
//! | [`probe`] | the datagrams that open NATs |
//! | [`candidate`] | which addresses are probed, and in which order |
//! | [`budget`] | how many bytes go to addresses that have not answered |
//! | [`nat`] | what several observers of one socket say about its NATs |
//! | [`nat64`] | addresses of IPv4 for a node that has IPv6 alone |
//! | [`lifetime`] | how long NATs and firewalls let a peer in while this node is silent |
//! | [`lan`] | what members announce in a LAN, and when peers are dialled that were seen there |
//! | [`stun`] | STUN: Binding messages, and transactions with servers |
//! | `own` | the candidates of this node |
//! | `peer`, `attempt`, `round` | what is known about a peer, an attempt to reach it, its targets |
//! | `search` | many sockets and many ports, where a NAT's mappings depend on the endpoint |
//! | `history` | what was tried |
//! | [`rate`] | how often something may happen |
//!
//! Two nodes that have a session through a relay tell each other their candidates in it, and then
//! send probes to each other's candidates at the same time, each from its ordinary UDP socket. A
//! probe that arrives is answered; the node whose probe was answered reports the address
//! ([`Output::Found`]), and its caller dials it. Only the handshake of the link proves the peer:
//! nothing here moves traffic, or takes a path away.
//!
//! `docs/protocol/reach.md` has every byte and rule, `docs/protocol/security.md` (P27) what others
//! can make it cost.
//!
//! Never here: sockets, clocks, threads, keys, the carriage of messages, links and their paths.

mod attempt;
pub mod budget;
pub mod candidate;
mod history;
pub mod lan;
pub mod lifetime;
pub mod message;
pub mod nat;
pub mod nat64;
pub mod other_port;
mod own;
mod peer;
pub mod probe;
pub mod rate;
mod reach;
mod round;
mod search;
pub mod stun;

pub use history::{End, Outcome, Record, Source, Tried, Why};
pub use message::BadMessage;
pub use own::Observer;
pub use peer::Standing;
pub use reach::{Config, Counts, Output, Reach};
pub use search::SOCKETS;

/// The service port of sessions at which nodes tell each other their candidates. It follows that of
/// documents.
pub const PORT: u16 = 7_372;
