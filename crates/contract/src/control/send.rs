//! Commands that send a message, in order with the data.

use crate::endpoint::Endpoint;

use weft_wire::NodeAddr;
use weft_wire::session::DataPorts;

use super::{EpochId, LinkId, ReceiverIndex};
use crate::place::Audience;

/// The longest message behind its ports, in bytes. It fits into 1,200 bytes of UDP payload, which
/// every usable path has ([`LEAST_PAYLOAD`](weft_wire::fast::LEAST_PAYLOAD)).
pub const MAX_SERVICE: usize = 1_090;

/// One of the two reports of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// SenderReport: what this node has sent.
    Sender,
    /// ReceiverReport: what this node has received.
    Receiver,
}

/// A message for a lane to send.
#[derive(Clone, Debug)]
pub enum SendCommand {
    /// Seals one link message in order with the data.
    OnLink {
        /// The link to the receiver of the message.
        link: LinkId,
        /// The epoch that seals, by the receiver index at this node; the current one if `None`.
        epoch: Option<ReceiverIndex>,
        /// The FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Seals one session message in order with the data.
    OnSession {
        /// The receiver of the message.
        peer: NodeAddr,
        /// The epoch that seals; the current one if `None`. A candidate may be named to prove this
        /// node's keys to the peer.
        epoch: Option<EpochId>,
        /// The FSP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Seals one message of a service, in order with the data. It goes in a FIPS frame, whatever
    /// frames data goes in, under the present epoch.
    Service {
        /// The receiver of the message.
        peer: NodeAddr,
        /// The ports of sender and service.
        ports: DataPorts,
        /// What is behind the ports.
        bytes: Vec<u8>,
    },
    /// Sends a neighbour the report on what was sent to it, or on what was received from it. If
    /// nothing was received, a heartbeat takes the place of the latter.
    ReportOnLink {
        /// The link that the report is about.
        link: LinkId,
        /// Which of the two reports to send.
        kind: ReportKind,
    },
    /// Like [`SendCommand::ReportOnLink`], for the peer of a session. If there is nothing to
    /// report, nothing is sent.
    ReportOnSession {
        /// The peer of the session that the report is about.
        peer: NodeAddr,
        /// Which of the two reports to send.
        kind: ReportKind,
    },
    /// Sends the coordinates of a session's ends in the clear, for the nodes on the path, in front
    /// of an empty sealed message (FIPS wire-formats, "CoordsWarmup").
    Warm {
        /// The peer of the session.
        peer: NodeAddr,
        /// The coordinates of this node, its own address first.
        src: Vec<NodeAddr>,
        /// The coordinates of the peer.
        dest: Vec<NodeAddr>,
    },
    /// Sends the peer of a session a probe over this link, whichever link the session uses. Nothing
    /// that the session counts or measures changes. The answer arrives as
    /// [`SessionReport::Message`](super::SessionReport::Message).
    ProbeRelay {
        /// The peer of the session.
        peer: NodeAddr,
        /// The link to the first node of the path.
        link: LinkId,
        /// A number that the answer returns.
        number: u32,
        /// The coordinates of this node and of the peer, for the nodes on the path.
        coords: Option<(Vec<NodeAddr>, Vec<NodeAddr>)>,
    },
    /// Sends an ICMPv6 echo request to a peer, as if the TUN had supplied its packet. The answer
    /// arrives as [`SessionReport::EchoReply`](super::SessionReport::EchoReply).
    Echo {
        /// The destination of the request.
        peer: NodeAddr,
        /// A number that distinguishes the node's own echoes from those of other programs. The
        /// latest one is in force.
        token: u64,
        /// The sequence number, which the answer returns.
        seq: u16,
    },
    /// Sends bytes as they are: handshake messages, and datagrams outside of links.
    Transmit {
        /// The destination address.
        to: Endpoint,
        /// One datagram.
        datagram: Vec<u8>,
    },
}

impl SendCommand {
    /// Returns the lanes that the command is for.
    pub(super) fn audience(&self) -> Audience {
        match self {
            Self::ReportOnSession { .. } => Audience::All,
            Self::OnLink { .. }
            | Self::OnSession { .. }
            | Self::Service { .. }
            | Self::ReportOnLink { .. }
            | Self::Warm { .. }
            | Self::ProbeRelay { .. }
            | Self::Echo { .. }
            | Self::Transmit { .. } => Audience::First,
        }
    }

    /// Returns the bytes behind the command's own if it may be dropped.
    pub(super) fn loss_tolerant_bytes(&self) -> Option<usize> {
        match self {
            Self::OnLink { body, .. } | Self::OnSession { body, .. } => Some(body.len()),
            Self::Service { bytes, .. } => Some(bytes.len()),
            Self::Transmit { datagram, .. } => Some(datagram.len()),
            Self::Warm { src, dest, .. } => Some((src.len() + dest.len()) * size_of::<NodeAddr>()),
            Self::ProbeRelay { coords, .. } => {
                let ends = coords.as_ref().map_or(0, |(src, dest)| src.len() + dest.len());
                Some(ends * size_of::<NodeAddr>())
            }
            Self::ReportOnLink { .. } | Self::ReportOnSession { .. } | Self::Echo { .. } => None,
        }
    }
}
