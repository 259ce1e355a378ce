//! Flows that the host had before there was a table of them, as its kernel knows them.
//!
//! A packet says nothing about who began its flow. The kernel does: which sockets are connected, and which
//! end of a tracked connection it saw first.

use std::net::SocketAddr;

use weft_wire::{NodeAddr, Subnet};

/// A flow that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFlow {
    /// Its protocol, by its number.
    pub protocol: u8,
    /// Its end on this side; the port is 0 if the protocol has none.
    pub local: SocketAddr,
    /// Its other end.
    pub remote: SocketAddr,
    /// Whether the other end began it.
    pub by_peer: bool,
}

/// All that is known, with the addresses on both sides.
#[derive(Clone, Debug, Default)]
pub struct KnownFlows {
    /// The flows. Of two with the same ends the first counts.
    pub flows: Vec<KnownFlow>,
    /// The addresses of this node but that of its key, and the subnets behind it.
    pub ours: Vec<Subnet>,
    /// The subnets behind peers.
    pub theirs: Vec<(Subnet, NodeAddr)>,
}

/// What a table of flows begins with, where there was no policy before.
#[derive(Clone, Debug, Default)]
pub struct FirstFlows {
    /// A random number, so that no peer can choose the place of its flows in the table.
    pub hash_key: u64,
    /// The flows that the host has.
    pub known: KnownFlows,
}
