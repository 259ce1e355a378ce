//! The packet path as pure code: what happens to a packet between the TUN and the wire, without threads, sockets or a
//! clock. The daemon's lanes and the simulator run the same.
//!
//! - [`Lane`]: the tables of one thread's links and sessions, and its three doors: `outbound` (TUN to wire),
//!   `inbound` (wire to TUN, or to the next hop), `apply` (what the core decided). [`Command`] and [`Report`] are all that passes between
//!   a lane and the core.
//! - `link`, `session`: one peer relation each, with its keys and accounts.
//! - `lanes`: several of them in one node, and what belongs to which.
//! - `epoch`, `frame`: keys that overlap during a rekey; sealing in place, where the frame is sent from.
//! - `fast`: weft's own frames, sealed once and under keys that move on in place.
//! - [`split`], [`coalesce`]: TUN super-packets to segments, and back.
//! - `networks`, `routed`: what lies behind nodes, and how packets go there.
//! - [`mss`], [`icmp`]: what an endpoint tells TCP and its own host about sizes and reachability.
//! - [`Train`]: equal datagrams one behind the other, for one system call.
//! - `meter`, `measure`: what came and how, and the reports about it.
//! - [`checksum`]: transport checksums that are left to the kernel.
//! - `ecn`: congestion marks of frames and packets.
//! - [`bounds`]: how much may wait, everywhere. [`Shares`], [`ReportQueue`]: who may fill it, and what goes to the core first.
//! - [`Bucket`]: how often something may happen.
//! - `echo`: echo requests of the node's own. `gate`: how many handshakes a second reach the core. [`Counters`]: what became of everything else.
//!
//! What never is: handshakes, timers and decisions (weft-core); IO (weft-os, weft-plane).

pub mod bounds;
mod bucket;
pub mod checksum;
mod clear;
pub mod coalesce;
mod control;
mod counters;
mod echo;
mod ecn;
mod egress;
mod epoch;
mod fast;
pub mod flow;
mod frame;
mod gate;
pub mod icmp;
mod inbound;
mod inner;
mod lane;
mod lanes;
mod link;
mod measure;
mod meter;
pub mod mss;
mod networks;
mod outbound;
mod paths;
mod received;
mod reports;
mod routed;
mod session;
mod shares;
pub mod split;
mod train;
mod transit;

pub use bucket::{Bucket, Rate};
pub use control::{
    Carry, Command, EpochId, EpochUse, Expected, FastKeys, HandshakeLimits, Layer, LinkActivity, LinkId, LinkKeys,
    PathSize, Received, Relay, Report, ReportKind, SessionActivity, SessionKeys, Totals,
};
pub use counters::{Counters, DropReason, Drops};
pub use frame::IPV6_OVERHEAD;
pub use inbound::Inbound;
pub use lane::{Lane, LaneConfig};
pub use lanes::{Audience, LANE_MASK, MAX_LANES, Outbound, Place, lane_of};
pub use paths::PATH_PROBE_LEN;
pub use reports::{Cause, ReportQueue};
pub use shares::{Load, Shares};
pub use train::{MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Train, Transmit};
/// Bytes that a datagram has in front of it when it is given to [`Lane::inbound`].
pub use weft_wire::fast::HEADROOM;
