//! Files between members of a network: offers, consent, verified groups, resume.
//!
//! The daemon never opens the files of users. Each user has one process, `weft transferd`, which has the rights of
//! that user; the verbs of `weft` ask it through a socket, and two such processes speak with each other in TCP
//! connections to mesh addresses. The daemons of both ends agree on the token with which each connection begins
//! (docs/protocol/transfer.md).
//!
//! | module | what it is |
//! |---|---|
//! | [`api`] | what the verbs ask, and the documents that they get |
//! | [`client`], [`server`] | the socket between them |
//! | [`process`] | the process of a user: listener, queue, what is under way |
//! | [`wire`] | connections: prelude, messages, frames |
//! | [`send`], [`receive`] | the two ends of a transfer |
//! | [`pack`] | compression of groups |
//! | [`serve`], [`forward`] | the two ends of a service |
//! | [`pipe`], [`keep`] | bytes that are passed on, connections that stay |
//! | [`live`], [`pace`], [`least`] | how far a transfer is, how it ends, its limits |
//! | [`limits`] | the limits of all transfers, and what is used of them |
//! | [`link`] | TCP connections by the interface of the node |
//! | [`walk`] | the list of what is sent, while it is made |
//! | [`root`], [`names`] | files below one folder, and nowhere else |
//! | [`journal`] | which groups of a file are verified, kept for a resume |
//! | [`hash`] | hashes of groups and files |
//! | [`queue`], [`settings`], [`shares`], [`services`] | what outlives the process |
//! | [`audience`] | which nodes may use what a user offers |
//! | `document` | files of it, written as a whole or not at all |
//!
//! Never here: what members and rules are (weft-networks), the terminal (the command).

pub mod api;
pub mod audience;
pub mod client;
mod document;
pub mod forward;
pub mod hash;
pub mod journal;
pub mod keep;
pub mod least;
pub mod limits;
pub mod link;
pub mod live;
pub mod names;
pub mod pace;
pub mod pack;
pub mod pipe;
pub mod process;
pub mod queue;
pub mod receive;
pub mod root;
pub mod send;
pub mod serve;
pub mod server;
pub mod services;
pub mod settings;
pub mod shares;
pub mod walk;
pub mod wire;
