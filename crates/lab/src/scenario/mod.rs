//! `weft lab run`, `up`, `exec` and `down`: topologies, and what happens in them, as TOML files.
//!
//! | module | what it is |
//! |---|---|
//! | [`source`] | a scenario's text: a file, or one of those that are ready |
//! | [`file`](mod@file), [`steps`], [`expected`], [`flaws`], [`units`] | what a file says |
//! | `check` | whether that makes sense |
//! | [`topology`], [`wire`], `told` | machines, networks and links, built; what nodes are told |
//! | [`load`] | traffic that a step starts |
//! | [`mod@expect`] | what must be so, and what is |
//! | [`run`], `act`, [`results`] | from the first step to the last, and what is kept of it |
//! | [`hold`] | a topology that stays, and commands in it |
//! | [`pcap`] | captures of links |
//!
//! How to write one is in docs/guides/lab.md.

mod act;
mod check;
pub mod expect;
pub mod expected;
pub mod file;
pub mod flaws;
pub mod hold;
pub mod load;
pub mod pcap;
pub mod results;
pub mod run;
pub mod source;
pub mod steps;
mod told;
pub mod topology;
pub mod units;
pub mod wire;
