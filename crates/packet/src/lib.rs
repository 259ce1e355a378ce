//! The packet path as pure code: everything between the TUN and the wire, without threads, sockets
//! or a clock. The daemon's lanes and the simulator run the same code.
//!
//! - [`Lane`]: the tables of one thread's links and sessions, and its three entry points:
//!   `outbound` (TUN to wire), `inbound` (wire to TUN, or to the next hop), `apply` (a command of
//!   the core). [`Command`] and [`Report`] are the only messages between a lane and the core.
//! - `link`, `session`: the keys and accounts of one link, and of one session. `egress`: the frames
//!   that packets to a node go in.
//! - `lanes`: several lanes in one node, and which lane owns a link or session.
//! - `received`: the datagrams of one receive. [`SocketId`]: the underlay socket as a part of a path.
//! - `epoch`, `frame`: keys that overlap during a rekey; sealing in place, in the buffer that is
//!   sent.
//! - `fast`: fast frames, sealed once, under keys that advance phase by phase.
//! - [`split`], [`coalesce`]: TUN super-packets to segments, and segments to super-packets.
//! - `routed`: subnets behind nodes, and the routes to them.
//! - [`firewall`]: which packets of peers go to the TUN, by rules and known flows.
//! - [`mss`], [`icmp`]: sizes and reachability, as an endpoint announces them to TCP and to its own
//!   host.
//! - [`Train`]: datagrams of equal length one behind the other, for one system call.
//! - `meter`, `measure`: measurements of what is received, and the reports on them.
//! - [`checksum`]: transport checksums that are left to the kernel.
//! - `ecn`: congestion marks of frames and packets.
//! - [`bounds`]: bounds of every queue and store. [`Shares`], [`ReportQueue`]: the share of each
//!   party, and the order of reports to the core.
//! - [`Bucket`]: a token bucket.
//! - `service`: messages of sessions for services of the node.
//! - `echo`: echo requests that the node itself sends. `gate`: how many handshakes a second reach
//!   the core. [`Counters`]: every other outcome.
//!
//! This crate has no handshakes, timers and decisions (weft-core), and no IO (weft-os, weft-plane).

mod admit;
mod awaited;
pub mod checksum;
mod clear;
pub mod coalesce;
mod counters;
mod early;
mod echo;
mod ecn;
mod encapsulate;
mod fast;
mod fips;
pub mod firewall;
pub mod flow;
mod foreign;
mod gate;
pub mod icmp;
mod inbound;
mod inner;
mod interval;
mod kinds;
mod lane;
mod link;
mod measure;
mod meter;
pub mod mss;
mod outbound;
mod outbox;
mod paths;
mod queue;
mod received;
mod routed;
mod sender;
mod service;
mod session;
pub mod split;
mod tables;
mod train;
mod tun;

pub use counters::{Counters, DropReason, Drops};
pub use fips::IPV6_OVERHEAD;
pub use lane::{Inspection, Lane};
pub use received::Inbound;
pub use train::{MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Train, Transmit};
pub use tun::Outbound;
/// Bytes of room that a datagram needs before its start when it is passed to [`Lane::inbound`].
pub use weft_wire::fast::HEADROOM;
