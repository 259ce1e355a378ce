//! What the core and the packet path tell each other, and the names that both use.
//!
//! The core decides and never seals; a lane processes packets and never decides. Neither crate uses
//! the other: both use this one. All values here are plain: they pass between threads in the daemon,
//! and within one virtual clock in the simulator.
//!
//! | module | what is there |
//! |---|---|
//! | `control` | [`Command`] and [`Report`], the only messages between the core and a lane |
//! | `place` | several lanes in one node, and which of them a command is for |
//! | `config` | the settings of a lane |
//! | `endpoint` | [`Endpoint`], one way to a host, and [`SocketId`], the socket as a part of it |
//! | [`rules`] | which packets of peers pass, with tags and keys resolved |
//! | `known` | flows that the host had before there were rules |
//! | [`bounds`], `shares`, `bucket` | what others may fill, share by share, and at which rate |
//! | `reports` | reports on their way to the core, proofs first |
//!
//! Never here: packets, frames, handshakes, timers, IO.

pub mod bounds;
mod bucket;
mod config;
mod control;
mod endpoint;
mod known;
mod place;
mod reports;
pub mod rules;
mod shares;

pub use bucket::{Bucket, Rate};
pub use config::{HandshakeLimits, LaneConfig, relayed_payload};
pub use control::{
    Command, CountedEpoch, EpochId, EpochUse, Expected, FastKeys, Label, LabelRoute, Layer, LinkActivity, LinkCommand,
    LinkId, LinkKeys, LinkReport, MAX_SERVICE, Measured, PATH_PROBE_LEN, PathSize, ProbeKind, Received, ReceiverIndex,
    Relay, Report, ReportKind, SendCommand, SessionActivity, SessionCommand, SessionKeys, SessionReport, TableCommand,
    Totals, WireGuardCommand, WireGuardKeys, WireGuardTraffic,
};
pub use endpoint::{Endpoint, LocalEnd, SocketId};
pub use known::{FirstFlows, KnownFlow, KnownFlows};
pub use place::{Audience, LANE_MASK, MAX_LANES, Place, lane_of};
pub use reports::{Cause, ReportQueue};
pub use shares::{Load, Shares};
