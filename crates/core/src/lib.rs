//! The node as a pure state machine: everything that decides, and nothing that moves packets.
//!
//! - [`Node`]: the door. Reports of lanes and the time go in, [`Output`]s come out.
//! - `link`: FMP with one neighbour: dialling, simultaneous opens, rekey, roaming, liveness, loss.
//! - `session`: FSP with one node: handshake, rekey, confirmation, idleness.
//! - `hop`, `labels`: keys and labels for fast frames that go through others. `capability`: what agreements on keys share.
//! - [`Path`]: the ways by which a peer was reached, and why each was left. `path_mtu`, `prober`: how much they take.
//! - `mesh`: how nodes find each other through each other.
//! - `liveness`: whether the other end of either is there. `metrics`: how well; `reports`: when to say so.
//! - `lanes`: what several lanes tell, put together.
//! - `context`: what both are handed; [`Config`], [`Event`], [`PeerStatus`]: what others see.
//!
//! What never is: sockets, threads, clocks, logging, randomness of its own, and sealing or opening of frames. The core
//! hands plaintext to the lane that owns the link, which seals it in order with the data (`weft-packet`), because
//! FIPS has one counter per link and per session for data and control together.
//!
//! All times are milliseconds on the caller's clock.

mod capability;
mod config;
mod context;
mod event;
mod hop;
mod labels;
mod lanes;
mod link;
mod liveness;
mod mesh;
mod metrics;
mod node;
mod passing;
mod path;
mod path_mtu;
mod prober;
mod progress;
mod reports;
mod session;
mod status;
mod unproven;

pub use config::{Admit, Config, PeerConfig, ReportMode, SuiteCosts};
pub use context::Output;
pub use event::{Event, LinkDown, SessionDown};
pub use metrics::Quality;
pub use node::{Node, NodeCounters, Twin};
pub use path::{Path, PathChange, PathReason};
pub use progress::Trouble;
pub use status::{Frames, KnownSize, MeshStatus, PeerState, PeerStatus, SizeSource};
