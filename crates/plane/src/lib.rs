//! Threads and IO around the packet path: they drive a pure [`Lane`](weft_packet::Lane).
//!
//! - [`Lanes`]: the handle of all lanes: commands, counters, stop. `handle`: the handle of one
//!   lane's thread; `shared`: what both ends of it share; [`LaneSetup`]: what the thread owns.
//! - [`Device`] and [`Bind`]: where inner packets and datagrams come from and go to: a TUN and UDP
//!   sockets, or what a test or another carrier puts there.
//! - `worker`: the thread's loop, from readiness to batches; `worker::handover`: packets and
//!   datagrams that one lane reads and another owns; `inbox`: their queue.
//! - `priority`: the priority of the thread.
//! - [`Trace`]: the time of each stage of a lane, while a client watches.
//! - `underlay`: the UDP sockets, and what happens when their buffers are full.
//!   `further`: those beside the ordinary ones, which come and go.
//! - `tunnel`: the TUN queue: reads super-packets, writes coalesced ones.
//!
//! Never here: protocol, tables, crypto (weft-packet); decisions (weft-core); system calls of its
//! own (weft-os).

mod bind;
mod counters;
mod device;
mod further;
mod handle;
mod inbox;
mod lanes;
mod priority;
mod setup;
mod shared;
mod trace;
mod tunnel;
mod underlay;
mod worker;

pub use bind::{Arrival, Bind, BindCounters};
pub use counters::{PlaneCounters, Snapshot};
pub use device::Device;
pub use handle::StartError;
pub use lanes::Lanes;
pub use priority::LANE_NICE;
pub use setup::{LaneSetup, ReportSink};
pub use trace::{Queue, Sizes, Stage, Trace, Waits, Work};
