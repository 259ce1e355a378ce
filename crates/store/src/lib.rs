//! The state directory: what a node keeps on disk between runs.
//!
//! | module | what it is |
//! |---|---|
//! | [`state`] | the directory: its lock, its owner, its files |
//! | [`keyfile`] | the secret key |
//! | [`backup`] | the networks beside the encrypted key |
//! | [`network_files`] | private networks, each in a file |
//! | [`fast_peers`] | the peers that have ever used fast frames |
//! | [`last_addresses`] | the peers' last addresses |
//! | [`wireguard`] | the key for devices with WireGuard |
//! | `statefile` | files that are written as a whole or not at all |
//!
//! Never here: the configuration file (weft-config), what networks contain (weft-networks).

pub mod backup;
pub mod fast_peers;
pub mod keyfile;
pub mod last_addresses;
pub mod network_files;
pub mod state;
mod statefile;
pub mod wireguard;
