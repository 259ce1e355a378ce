//! Names: a DNS responder for `NAME.fips`, `npub1....fips` and `NAME.NETWORK.weft`, and the set-up of
//! the system's resolver.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | DNS messages: one question in, at most one record out |
//! | [`zone`] | which names exist, and the answers for others |
//! | [`Responder`] | the thread that answers, over UDP and TCP |
//! | `system` | keeps the system's resolver set up |
//! | `resolved` | systemd-resolved: which domains are answered here |
//! | [`resolv_conf`] | elsewhere: the file that names this node as the first server |
//! | [`Lookups`] | host names of peers, which the daemon itself asks for |
//! | `probe` | whether servers answer, and none sends queries back here |
//! | `forward` | with that file only: queries for other names go to the servers that it named before |
//! | [`ExitNames`] | while this node is an exit: queries of members that use it go to the servers of this host |
//! | `servers` | which servers that are, as it changes |
//!
//! Without the file, a name outside of the domains is refused: the responder is not a path to other
//! servers, and queries for other names go to the same servers as before.

mod exit_names;
mod forward;
mod lookup;
pub mod message;
mod probe;
pub mod resolv_conf;
mod resolved;
mod responder;
mod reverse;
mod search;
mod server;
mod servers;
mod status;
mod system;
pub mod zone;

pub use exit_names::ExitNames;
pub use forward::{LIMIT, MAX_IN_FLIGHT, MAX_OF_ONE, MAX_SAME, MAX_UDP};
pub use lookup::Lookups;
pub use probe::{LoopProbe, is_answering};
pub use resolved::{RegisterError, Resolved};
pub use responder::{Responder, Setup, off};
pub use search::{BadSearch, Search};
pub use server::{Endpoint, MAX_CONNECTIONS, MAX_CONNECTIONS_OF_ONE, MAX_REQUEST};
pub use status::{DnsState, DnsStatus};
pub use system::System;
pub use zone::Zone;
