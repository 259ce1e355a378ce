//! Simulations of many nodes on one virtual clock, in one program: they run beside each other, and
//! link once. What measures the whole process is in a program of its own (`memory.rs`).
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where its ground is missing, and tells what it found"
)]

mod common;

mod attacks;
mod bad_peer;
mod black_holes;
mod carrier;
mod choice;
mod configure;
mod detour;
mod documents;
mod fast;
mod floods;
mod guests;
mod handshakes;
mod hops;
mod hostile;
mod idle;
mod lanes;
mod liars;
mod links;
mod local_ends;
mod mesh;
mod metrics;
mod moves;
mod network_changes;
mod networks;
mod outside;
mod pair;
mod path_mtu;
mod path_size;
mod queues;
mod reach;
mod reach_matrix;
mod relay_choice;
mod relayed;
mod relayed_size;
mod restored;
mod scenarios;
mod states;
mod subnets;
mod traversal;
mod uplinks;
mod whole_packets;
