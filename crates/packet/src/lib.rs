//! The packet path as pure code: everything between the TUN and the wire, without threads, sockets
//! or a clock. The daemon's lanes and the simulator run the same code.
//!
//! From what knows nothing of the others to what uses all of them:
//!
//! | modules | what is there |
//! |---|---|
//! | [`split`], [`coalesce`], [`mss`], [`icmp`], [`checksum`], `inner`, [`flow`], `ecn`, `echo` | IP packets: super-packets to segments and back, sizes, errors, marks, echoes of the node itself |
//! | [`Train`], `received`, `tun`, `foreign` | datagrams for one system call, those of one receive, one read of the TUN, those for other lanes |
//! | `epoch`, `keys`, `frame`, `encapsulate` | keys that overlap during a rekey; sealing in place, in the buffer that is sent |
//! | `meter`, `interval`, `paths`, `awaited`, `gate`, `clear`, `early` | what is measured and what is bounded: addresses, handshakes, messages in the clear, frames before their keys |
//! | [`firewall`], `tables` | which packets of peers pass; links and sessions, and what leads to them; subnets behind nodes |
//! | `outbox`, `sender`, `outbound`, `queue` | reports and replies; from the TUN to the wire |
//! | `admit`, `kinds` | the door to the TUN; what becomes of each kind of session message |
//! | [`Lane`] | the tables of one thread's links and sessions, and its three entry points: `outbound` (TUN to wire), `inbound` (wire to TUN, or to the next hop), `apply` (a command of the core) |
//! | `fast`, `fips`, `wireguard`, `inbound` | what arrives: fast frames, FIPS frames, data messages of WireGuard, and the owner of each datagram |
//!
//! No files import each other in a circle (`tests/layers.rs`). [`Command`](weft_contract::Command) and
//! [`Report`](weft_contract::Report) are the only messages between a lane and the core. [`Counters`] have
//! every other outcome.
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
mod fragments;
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
mod wireguard;

pub use counters::{Counters, DropReason, Drops};
pub use fips::IPV6_OVERHEAD;
pub use lane::{Inspection, Lane};
pub use received::Inbound;
pub use train::{MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Train, Transmit};
pub use tun::Outbound;
/// Bytes of room that a datagram needs before its start when it is passed to [`Lane::inbound`].
pub use weft_wire::fast::HEADROOM;
