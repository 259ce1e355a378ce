//! Names: a DNS responder for `NAME.fips` and `npub1....fips`, and its registration with the
//! system's resolver.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | DNS messages: one question in, at most one record out |
//! | [`zone`] | which names exist, and the answers for others |
//! | [`Responder`] | the thread that answers, over UDP and TCP |
//! | `resolved` | tells systemd-resolved, and no other resolver, where `.fips` is answered |
//!
//! Never here: queries to other servers. A name outside `.fips` is refused, so the responder is not
//! a path to other servers. The system's own configuration is not edited: queries for other names
//! go to the same servers as before.

pub mod message;
mod resolved;
mod responder;
mod server;
pub mod zone;

pub use resolved::{RegisterError, Resolved};
pub use responder::{Responder, Setup, off};
pub use server::{Endpoint, MAX_CONNECTIONS, MAX_REQUEST};
pub use zone::Zone;
