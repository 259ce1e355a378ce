//! Threads and IO around the packet path: what turns a pure [`Lane`](weft_packet::Lane) into moving packets.
//!
//! - [`Lanes`]: the handle of all lanes: commands in, counters out, stop. `handle`: that of one lane's thread.
//! - `handover`: what one lane reads and another owns.
//! - [`Trace`]: where a lane's time goes, while it is watched.
//! - `worker`: the thread's loop, from readiness to batches.
//! - `underlay`: the UDP sockets, and what happens when they are full.
//! - `tunnel`: the TUN queue: reading super-packets, writing coalesced ones.
//!
//! What never is: protocol, tables, crypto (weft-packet); decisions (weft-core); system calls of its own (weft-os).

mod counters;
mod handle;
mod handover;
mod lanes;
mod trace;
mod tunnel;
mod turns;
mod underlay;
mod worker;

pub use counters::{PlaneCounters, Snapshot};
pub use handle::{LaneSetup, ReportSink, StartError};
pub use lanes::Lanes;
pub use trace::{Queue, Sizes, Stage, Trace, Work};
pub use turns::LANE_NICE;
