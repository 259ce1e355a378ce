//! Weft and the reference daemon (`fips` of jmcorgan/fips) as neighbours, in namespaces.
//!
//! The daemon's binary is not part of this project: its path comes from the environment variable
//! `WEFT_FIPS`, and without it every test here reports that it is skipped. `docs/interoperation.md`
//! describes what each case shows, and has the figures of the last run. The tests print what they
//! measure, so run them with `--nocapture`:
//!
//! ```text
//! WEFT_FIPS=.../fips cargo test --release -p weft --test interop_fips -- --nocapture --test-threads=12
//! ```
//!
//! Most of them wait for timers, so many threads help even with few processors. Those that need the
//! whole machine wait until no other test runs.
//!
//! With `WEFT_FIPS_LOG=debug` the daemons of a mesh log more.
//!
//! - `mixed`: a weft node and a daemon on one cable, and which of them dials
//! - `traffic`: pings and verified TCP in both directions
//! - `rekey`: both layers are rekeyed during two minutes of traffic
//! - `restart`: one side is killed and comes back
//! - `attacked`: one side restarts while forged handshakes flood weft
//! - `silence`: the first packet after a session has ended for lack of traffic
//! - `metrics`: round trip and loss as each side computes them from the other's reports
//! - `messages`: messages of one side that the other does not know
//! - `lossy`: a relay drops, duplicates and corrupts datagrams
//! - `net`: a mesh of weft nodes and daemons on any cables
//! - `chain`: pings and verified TCP through other nodes
//! - `lookup`: a node three hops away is found
//! - `relayed`: keys change, relays and ends are killed while other nodes forward the packets
//! - `heal`: eight nodes, one of which is killed
//! - `nat`: both behind NATs become direct by a relay of Nostr and a STUN server
//! - `lan`: both find each other by mDNS
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod attacked;
mod chain;
#[path = "../common/mod.rs"]
mod common;
mod heal;
mod lan;
mod lookup;
mod lossy;
mod messages;
mod metrics;
mod mixed;
mod nat;
mod net;
mod rekey;
mod relayed;
mod restart;
mod silence;
mod traffic;
