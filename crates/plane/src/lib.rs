//! Threads and IO around the packet path: they drive a pure [`Lane`](weft_packet::Lane).
//!
//! - [`Lanes`]: the handle of all lanes: commands, counters, stop. `handle`: the handle of one
//!   lane's thread.
//! - `handover`: packets and datagrams that one lane reads and another owns.
//! - [`Trace`]: the time of each stage of a lane, while a client watches.
//! - `worker`: the thread's loop, from readiness to batches.
//! - `underlay`: the UDP sockets, and what happens when their buffers are full.
//! - `tunnel`: the TUN queue: reads super-packets, writes coalesced ones.
//!
//! Never here: protocol, tables, crypto (weft-packet); decisions (weft-core); system calls of its
//! own (weft-os).

mod counters;
mod handle;
mod handover;
mod lanes;
mod priority;
mod trace;
mod tunnel;
mod underlay;
mod worker;

pub use counters::{PlaneCounters, Snapshot};
pub use handle::{LaneSetup, ReportSink, StartError};
pub use lanes::Lanes;
pub use priority::LANE_NICE;
pub use trace::{Queue, Sizes, Stage, Trace, Work};
