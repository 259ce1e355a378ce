//! STUN (RFC 8489): what a server says about the outer address of this node's socket.
//!
//! | module | what is there |
//! |---|---|
//! | [`message`] | Binding requests and their responses |
//! | `client` | [`Client`]: transactions with servers, as a state machine |
//! | [`servers`] | [`Servers`]: which servers are asked, and when, as a state machine |
//!
//! There are no credentials: a public server has none, and what it says is believed as little as the
//! word of a neighbour. What protects a transaction is its id of 96 random bits and the address of
//! the server.

mod client;
pub mod message;
pub mod servers;

pub use client::{AskError, Client, Failure, MAX_PENDING, Output};
pub use message::{BadStun, Class, Message, TransactionId};
pub use servers::Servers;
