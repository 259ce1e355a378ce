//! Nodes (core and packet path, the code that the daemon runs) on one virtual clock and one seed.
//!
//! - [`World`]: hosts, the network between them, and time. Only [`World::run`] advances time.
//! - [`Host`]: one node with its lanes, its address, and the IP packets that reached it.
//! - [`scenario`]: whole runs as data, their figures, and the reduction of a failure to a short
//!   one.
//! - [`Shape`], [`Topology`]: which node dials which. [`Conditions`], [`NatKind`]: the network
//!   between them.
//! - [`Datagram`], [`Kind`]: what is in flight and what it contains, so that a rule can drop "the
//!   first msg3".
//!
//! The same seed and the same calls give the same run, packet for packet.
//!
//! Never here: sockets, threads, the system's clock, and protocol knowledge of its own.

mod datagram;
mod host;
mod lanes;
mod nat;
mod network;
mod packet;
pub mod scenario;
mod schedule;
mod topology;
mod trace;
mod world;

pub use datagram::{Datagram, Fate, Kind};
pub use host::{Hand, Host, Sent};
pub use nat::{MAPPING_LIFE, NatKind};
pub use network::Conditions;
pub use packet::{Probe, probe};
pub use topology::{Shape, Topology};
pub use world::{Broken, HostId, Traffic, World};
