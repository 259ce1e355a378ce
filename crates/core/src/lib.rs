//! The node as a pure state machine: it makes every decision and forwards no packets.
//!
//! - [`Node`]: the entry point. Reports of lanes and the time go in, [`Output`]s come out.
//! - `link`: FMP with one neighbour: dialling, simultaneous opens, rekey, roaming, liveness, loss.
//! - `session`: FSP with one node: handshake, rekey, confirmation, idleness.
//! - `agreement`: the agreement on keys for fast frames, of a session or of a hop. `labels`: labels
//!   of relayed fast frames.
//! - [`Path`]: the paths to a peer, and why each was left. `path_mtu`, `pmtu_search`: the path MTU
//!   and the search for it.
//! - `mesh`: the spanning tree, filters, look-ups and next hops.
//! - `liveness`: whether the peer of a link or session is alive. `metrics`: how good the path is;
//!   `reports`: when to report it.
//! - `lanes`: the reports of several lanes, merged.
//! - [`Hint`]: an address at which a node may be, with its source.
//! - [`Uplink`]: the further networks through which this host reaches others.
//! - [`TurnedAway`]: nodes that asked to link and are not configured.
//! - `context`: what links and sessions receive with each call; [`Config`], [`Event`],
//!   [`PeerStatus`]: the interface to the daemon.
//!
//! Never here: sockets, threads, clocks, logging, randomness of its own, and the sealing or opening
//! of frames. The core hands plaintext to the lane that owns the link, which seals it in order with
//! the data (`weft-packet`), because FIPS has one counter per link and per session for data and
//! control together.
//!
//! All times are milliseconds on the caller's clock.

mod agreement;
mod config;
mod context;
mod event;
pub mod hint;
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
mod pmtu_search;
mod progress;
mod relay_choice;
mod reports;
mod rounds;
mod session;
mod status;
mod thousandths;
mod turned_away;
mod unconfirmed;
mod unproven;
mod uplinks;

pub use self::hint::{Hint, HintSource};
pub use config::{Admit, Config, KeepaliveIntervals, PeerConfig, ReportMode, SuiteCosts};
pub use context::Output;
pub use event::{Event, LinkDown, SessionDown};
pub use metrics::Quality;
pub use node::{HopSaid, MAX_TRAVERSAL, Node, NodeCounters, Onward, ServiceError, TRAVERSALS, TraversalError, Twin};
pub use path::{Path, PathChange, PathReason};
pub use progress::Trouble;
pub use status::{
    Frames, KnownPath, KnownSize, LinkStatus, MeshStatus, PeerState, PeerStatus, SessionStatus, SizeSource, Standing,
    Stranger, Traffic,
};
pub use turned_away::TurnedAway;
pub use uplinks::Uplink;
