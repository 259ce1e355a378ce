//! The daemon: combines core, plane and os, and provides everything that the user sees of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | the running node |
//! | [`state`] | the state directory: its lock, its files |
//! | [`fast_peers`] | the peers that have ever used fast frames, kept between runs |
//! | [`last_addresses`] | the peers' last addresses, kept between runs |
//! | [`hops`] | the nodes of a path, from an echo and from what they say |
//! | [`netcheck`] | conclusions about the network of the host |
//! | [`port_mapping`] | the UDP port that the gateway of the host's network maps to the node |
//! | [`keyfile`] | the secret key on disk |
//! | [`backup`] | the networks beside the encrypted key |
//! | [`network_files`] | the files of private networks in the state directory |
//! | `lan` | mDNS: services of the LAN |
//! | [`logging`] | logs on standard error |
//!
//! Never here: byte layouts (weft-wire), decisions of the protocol (weft-core), packets
//! (weft-packet, weft-plane), records and rules of private networks (weft-roster,
//! weft-networks), system calls (weft-os), the command line (weft).

pub mod backup;
pub mod checks;
pub mod daemon;
pub mod fast_peers;
pub mod hops;
pub mod keyfile;
mod lan;
pub mod last_addresses;
pub mod logging;
pub mod netcheck;
pub mod network_files;
pub mod port_mapping;
pub mod relay;
pub mod state;
mod statefile;

pub use weft_noise::Identity;
