//! weft-wireguard with the real wireguard-go at the other end, in namespaces.
//!
//! The program is not part of this project: its path comes from the environment variable `WEFT_WIREGUARD_GO`, and
//! without it every test here reports that it is skipped. `.ci/wireguard-go` prints the path, and builds it if need
//! be:
//!
//! ```text
//! WEFT_WIREGUARD_GO=$(.ci/wireguard-go) cargo test -p weft-wireguard --test wireguard_go
//! ```
//!
//! - `device`: a running wireguard-go
//! - `node`: weft-wireguard with a socket
//! - `packets`: what passes through the tunnel
//! - `pair`: one of each on a switch
//! - `begins`: a handshake that either end begins, with and without preshared keys
//! - `keepalives`: empty messages
//! - `load`: cookies
//! - `moves`: either end changes its port
//! - `renewals`: keys that are renewed while packets pass
//! - `restarts`: either end forgets its keys
//! - `traffic`: many packets
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod begins;
mod device;
mod keepalives;
mod load;
mod moves;
mod node;
mod packets;
mod pair;
mod renewals;
mod restarts;
mod traffic;
