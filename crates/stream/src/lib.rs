//! Documents that arrive whole or not at all, inside a session that loses, repeats and reorders.
//!
//! | module | what is there |
//! |---|---|
//! | [`Documents`] | all transfers of one service of a node, and what they may cost |
//! | [`segment`] | the layout of a TCP/FIPS segment |
//! | `sender`, `receiver` | one connection, seen by the end that sends, and by the other |
//! | `assembly` | bytes that arrive in any order |
//! | `congestion`, `rtt` | how much may be on its way, and how long an answer may take |
//! | `budget` | memory that peers share |
//!
//! A document is one connection of TCP/FIPS v1: the sender connects, writes the document, and ends
//! its stream. The receiver has the document when it has all bytes and the end. It sends no data.
//! `docs/protocol/stream.md` has every byte, `docs/decisions/0034-streams.md` says why the state
//! machine is our own.
//!
//! Never here: sockets, clocks, randomness, keys. Segments come from a session, which has
//! authenticated the peer, and go into one; `now` is an argument, in milliseconds; sequence numbers
//! follow from a seed. What a document says is the business of its service.

mod assembly;
mod budget;
mod congestion;
mod documents;
mod limits;
mod receiver;
mod rtt;
pub mod segment;
mod sender;
mod seq;

pub use documents::{Cause, Counts, DocumentId, Documents, Output, SendError};
pub use limits::Limits;

/// The service port of Weft's own documents, at both ends. nvpn uses 7370 for its control frames.
pub const PORT: u16 = 7371;

/// The number of a service port, in host order.
pub type Port = u16;
