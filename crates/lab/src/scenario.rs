//! `weft lab run`, `up`, `exec` and `down`: topologies and steps as TOML files.
//!
//! | module | what it is |
//! |---|---|
//! | [`source`] | a scenario's text: a file, or a built-in one |
//! | [`file`](mod@file), [`link`], [`nat`], [`steps`], [`expected`], [`flaws`] | the file format, read by weft-scenario |
//! | `matrix` | the compact form of two nodes behind NAT boxes with relays |
//! | [`tries`] | many runs of each cell by itself, and their table |
//! | `check` | validation |
//! | [`topology`], [`middlebox`], [`wire`], `node_config` | machines, networks, NAT boxes and links, built; the configurations of nodes |
//! | [`load`] | traffic that a step starts |
//! | `settled` | the path that two nodes have in the end, and the time until it is direct |
//! | [`command`] | commands of the real program at a node |
//! | [`mod@expect`], `resolve` | checking of expectations; names |
//! | [`run`], `execute`, `observe`, [`results`] | a run from the first step to the last, and its results |
//! | [`story`] | how a run is printed |
//! | [`hold`] | a topology that persists, and commands in it |
//! | [`pcap`] | captures of links |
//!
//! docs/guides/lab.md explains how to write one.

mod check;
pub mod command;
mod execute;
pub mod expect;
pub mod expected;
pub mod file;
pub mod flaws;
pub mod hold;
pub mod link;
pub mod load;
mod matrix;
pub mod middlebox;
pub mod nat;
mod node_config;
mod observe;
pub mod pcap;
mod resolve;
pub mod results;
pub mod run;
mod send;
mod settled;
pub mod source;
pub mod steps;
pub mod story;
pub mod topology;
pub mod tries;
pub mod wire;
