//! The daemon: combines core, plane and os, and provides everything that the user sees of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | the running node |
//! | [`hops`] | the nodes of a path, from an echo and from what they say |
//! | [`netcheck`] | conclusions about the network of the host |
//! | [`port_mapping`] | the UDP port that the gateway of the host's network maps to the node |
//! | `lan` | mDNS: services of the LAN |
//! | [`logging`] | logs on standard error |
//!
//! Never here: byte layouts (weft-wire), decisions of the protocol (weft-core), packets
//! (weft-packet, weft-plane), records and rules of private networks (weft-roster,
//! weft-networks), system calls (weft-os), the command line (weft).

pub mod checks;
pub mod daemon;
pub mod hops;
mod lan;
pub mod logging;
pub mod netcheck;
pub mod port_mapping;
pub mod relay;

