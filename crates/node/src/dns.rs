//! Names: a DNS responder for `NAME.fips` and `npub1....fips`, and the way from the system's resolver to it.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | DNS messages: one question in, at most one record out |
//! | [`zone`] | which names there are, and what is said about others |
//! | [`Responder`] | the thread that answers, over UDP and TCP |
//! | `resolved` | telling systemd-resolved, and no other resolver, where `.fips` is answered |
//!
//! Never here: asking other servers. A name outside `.fips` is refused, so this is no way to reach them, and nothing of
//! the system's own set-up is edited: other names go where they went before.

#[doc(hidden)]
pub mod fuzz;
pub mod message;
mod resolved;
mod responder;
mod server;
pub mod zone;

pub use resolved::{RegisterError, Resolved};
pub use responder::{Responder, Setup, off};
pub use server::{Endpoint, MAX_CONNECTIONS, MAX_REQUEST};
pub use zone::Zone;
