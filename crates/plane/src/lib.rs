//! Threads and IO around the packet path: what turns a pure [`Lane`](weft_packet::Lane) into moving packets.
//!
//! - [`LaneThread`]: the handle of one lane's thread: commands in, counters out, stop.
//! - [`Trace`]: where a lane's time goes, while somebody watches.
//! - `worker`: the thread's loop, from readiness to batches.
//! - `underlay`: the UDP sockets, and what happens when they are full.
//! - `tunnel`: the TUN queue: reading super-packets, writing coalesced ones.
//!
//! What never is: protocol, tables, crypto (weft-packet); decisions (weft-core); system calls of its own (weft-os).

mod counters;
mod handle;
mod trace;
mod tunnel;
mod underlay;
mod worker;

pub use counters::{PlaneCounters, Snapshot};
pub use handle::{LaneSetup, LaneThread, ReportSink, StartError};
pub use trace::{Sizes, Stage, Trace, Work};
