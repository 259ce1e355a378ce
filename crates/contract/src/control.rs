//! The messages between the core and a lane.
//!
//! The core decides and never seals. A lane processes packets and never decides. A [`Command`]
//! changes the tables of a lane, or hands it plaintext to seal in order with the data. A [`Report`]
//! gives the core what the lane received and authenticated. Both are plain values: they pass
//! between threads in the daemon, and within one virtual clock in the simulator.
//!
//! Messages about one link begin with its [`LinkId`], messages about one session with the address
//! of its peer.

use crate::endpoint::Endpoint;

use weft_wire::NodeAddr;

use crate::place::Audience;

mod activity;
mod keys;
mod link;
mod send;
mod session;
mod table;
mod wireguard;

pub use activity::{CountedEpoch, Layer, LinkActivity, Measured, Received, SessionActivity, Totals};
pub use keys::{EpochId, EpochUse, FastKeys, LinkKeys, ReceiverIndex, SessionKeys};
pub use link::{Label, LabelRoute, LinkCommand, LinkId, LinkReport, PATH_PROBE_LEN, ProbeKind};
pub use send::{MAX_SERVICE, ReportKind, SendCommand};
pub use session::{PathSize, Relay, SessionCommand, SessionReport};
pub use table::{Expected, TableCommand};
pub use wireguard::{WireGuardCommand, WireGuardKeys, WireGuardTraffic};

/// A message of the core to the lanes that [`Command::audience`] names.
#[derive(Clone, Debug)]
pub enum Command {
    /// Changes a link.
    Link(LinkId, LinkCommand),
    /// Changes the session with a peer.
    Session(NodeAddr, SessionCommand),
    /// Changes a peer that speaks WireGuard.
    WireGuard(NodeAddr, WireGuardCommand),
    /// Changes a table of the whole lane.
    Table(TableCommand),
    /// Sends a message.
    Send(SendCommand),
}

impl From<TableCommand> for Command {
    fn from(command: TableCommand) -> Self {
        Self::Table(command)
    }
}

impl From<SendCommand> for Command {
    fn from(command: SendCommand) -> Self {
        Self::Send(command)
    }
}

impl Command {
    /// Returns the lanes that the command is for.
    #[must_use]
    pub fn audience(&self) -> Audience {
        match self {
            Self::Link(_, command) => command.audience(),
            Self::Session(_, command) => command.audience(),
            Self::WireGuard(_, command) => command.audience(),
            Self::Table(command) => command.audience(),
            Self::Send(command) => command.audience(),
        }
    }

    /// Returns the size of a command in bytes if it is a message that may be dropped. Such a
    /// message becomes a datagram, which may be lost on its path too, and changes no table. Returns
    /// `None` for any other command.
    #[must_use]
    pub fn loss_tolerant_bytes(&self) -> Option<usize> {
        let Self::Send(command) = self else { return None };
        Some(size_of::<Self>() + command.loss_tolerant_bytes()?)
    }
}

/// A message of a lane to the core.
#[derive(Debug)]
pub enum Report {
    /// A handshake datagram (FMP phase 1 or 2). Nothing of it is authenticated.
    Handshake {
        /// The source of the datagram.
        from: Endpoint,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// A datagram outside of links with a token that the node awaits. Nothing of it is authenticated.
    Outside {
        /// The source of the datagram.
        from: Endpoint,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// A message of WireGuard other than a data message. Nothing of it is authenticated.
    WireGuard {
        /// The source of the datagram.
        from: Endpoint,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// What has passed between this node and a peer that speaks WireGuard.
    WireGuardTraffic(NodeAddr, WireGuardTraffic),
    /// What a link received, or learned of its peer.
    Link(LinkId, LinkReport),
    /// What the session with a peer received, or needs.
    Session(NodeAddr, SessionReport),
    /// The peer of a link or session reported what it has received from this node.
    Measured(Layer, Measured),
    /// The activity of links and sessions since the last sample. Only those that changed are
    /// listed.
    Activity {
        /// The links that changed.
        links: Vec<LinkActivity>,
        /// The sessions that changed.
        sessions: Vec<SessionActivity>,
    },
}
