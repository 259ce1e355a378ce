//! Weft nodes and devices with the real daemon of nvpn in one network, in namespaces.
//!
//! The daemon's binary is not part of this project: its path comes from the environment variable
//! `WEFT_NVPN`, and without it every test here reports that it is skipped. `docs/interoperation.md`
//! has what the last run has shown. Run it with
//!
//! ```text
//! WEFT_NVPN=.../nvpn cargo test --release -p weft --test interop_nvpn -- --nocapture --test-threads=1
//! ```
//!
//! - `device`: a running daemon of nvpn
//! - `network`: a network of two weft nodes and two devices
//! - `joins`: a device joins by its link, and by hand; one that is removed forgets the network
//! - `foreign`: a weft node in a network that a device has founded
//! - `traffic`: all pairs, also through a relay of either kind, through new keys and after faults
//! - `speed`: one stream between a weft node and a device, against two devices
//! - `exits`: a device uses a weft node as exit, and the reverse
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../common/mod.rs"]
mod common;
mod device;
mod exits;
mod foreign;
mod joins;
mod network;
mod speed;
mod traffic;
