//! Weft and the reference daemon (`fips` of jmcorgan/fips) as neighbours, in namespaces.
//!
//! The daemon's binary is not ours: its path comes from the environment variable `WEFT_FIPS`, and without
//! it every test here says that it is skipped. What each case shows, and the figures of the last run, are
//! in `docs/interoperation.md`. The tests print what they measure, so run them with `--nocapture`:
//!
//! ```text
//! WEFT_FIPS=.../fips cargo test --release -p weft --test interop_fips -- --nocapture --test-threads=12
//! ```
//!
//! Most of them wait for timers, so many threads help even where there are few cores. Those that need all of the machine wait
//! until they have it.
//!
//! With `WEFT_FIPS_LOG=debug` the daemons of a mesh say more.
//!
//! - `mixed`: a weft node and a daemon on one cable, and who dials whom
//! - `traffic`: pings and verified TCP both ways
//! - `rekey`: both layers get fresh keys during two minutes of traffic
//! - `restart`: one side is killed and comes back
//! - `attacked`: one side restarts while forged handshakes flood weft
//! - `silence`: the first packet after a session has ended for want of traffic
//! - `metrics`: round trip and loss as each side learns them from the other
//! - `messages`: what one side says and the other does not know
//! - `lossy`: a relay loses, doubles and spoils datagrams
//! - `net`: a mesh of weft nodes and daemons on any cables
//! - `chain`: pings and verified TCP through other nodes
//! - `lookup`: who is three hops away is found
//! - `relayed`: keys change, relays and ends are killed while others carry the packets
//! - `heal`: eight nodes, one of which is killed
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod attacked;
mod chain;
#[path = "../common/mod.rs"]
mod common;
mod heal;
mod lookup;
mod lossy;
mod messages;
mod metrics;
mod mixed;
mod net;
mod rekey;
mod relayed;
mod restart;
mod silence;
mod traffic;
