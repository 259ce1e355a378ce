//! Commands to the tables of a whole lane.

use std::net::IpAddr;
use std::sync::Arc;

use weft_noise::tag::TagKey;
use weft_wire::outside::Token;
use weft_wire::{NodeAddr, Subnet};

use super::LinkId;
use crate::endpoint::SocketId;
use crate::known::FirstFlows;
use crate::place::Audience;
use crate::rules::Policy;

/// What identifies the handshake messages of a node before anything of them is authenticated.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The address of the node.
    pub peer: NodeAddr,
    /// The hosts where the node is expected.
    pub hosts: Vec<IpAddr>,
    /// The key of the tags on the node's messages, or `None` if it sends no tags.
    pub tag: Option<TagKey>,
}

/// A change of a table that all links and sessions of a lane share.
#[derive(Clone, Debug)]
pub enum TableCommand {
    /// Allows IP packets between this node and a peer.
    AllowPeer {
        /// The peer. Its address in `fd00::/8` follows from it.
        peer: NodeAddr,
    },
    /// Ends what [`TableCommand::AllowPeer`] allowed, and the session with the peer.
    DenyPeer {
        /// The address of the peer.
        peer: NodeAddr,
    },
    /// Replaces the subnets behind nodes, including this one. Packets to or from them go in fast
    /// frames with their whole header. The lists need not contain the nodes' own addresses.
    SetSubnets {
        /// The subnets behind this node that peers may send to, including further addresses of the
        /// node.
        ours: Vec<Subnet>,
        /// The subnets behind each peer: packets to them go to the peer, and the peer may send
        /// from them. The longest prefix wins.
        theirs: Vec<(Subnet, NodeAddr)>,
    },
    /// Applies rules to the IP packets of peers from now on, or none.
    SetPolicy {
        /// The rules.
        policy: Option<Arc<Policy>>,
        /// What the lanes' table of flows begins with. `None` if there was a policy before: the flows
        /// that it knows go on if these rules allow them.
        first: Option<Arc<FirstFlows>>,
    },
    /// Sets the route of datagrams that this node forwards to a destination.
    SetRoute {
        /// The address of the destination.
        dest: NodeAddr,
        /// The link of the next hop.
        link: LinkId,
    },
    /// Removes a route: the lane again asks the core about datagrams to this node
    /// ([`LinkReport::Transit`](super::LinkReport::Transit)).
    RemoveRoute {
        /// The address of the destination.
        dest: NodeAddr,
    },
    /// From now on seals relayed frames whole for each hop, those of this node and those that it
    /// forwards, so that an observer of two hops does not see the same bytes on both.
    SealWhole,
    /// Sets the hosts and the tag key of the handshakes that are expected from a node, so that a
    /// flood of others does not keep them out. Replaces what an earlier command set for the node.
    Expect(Expected),
    /// Ends what [`TableCommand::Expect`] set: no handshakes of this node are expected.
    Unexpect {
        /// The address of the node.
        peer: NodeAddr,
    },
    /// Passes datagrams outside of links with this token on to the core
    /// ([`Report::Outside`](super::Report::Outside)), at a bounded rate.
    Await {
        /// The token.
        token: Token,
    },
    /// Ends what [`TableCommand::Await`] began.
    Forget {
        /// The token.
        token: Token,
    },
    /// Sets the service ports at which messages of sessions go to the core from now on
    /// ([`SessionReport::Service`](super::SessionReport::Service)). Replaces earlier ones.
    Listen {
        /// The ports.
        ports: Vec<u16>,
    },
    /// Decides whether packets with their whole header pass in FIPS frames, as nodes of nvpn send them. At
    /// first they do not. They go to peers alone that have sent such a message.
    TakeWhole {
        /// `false`: such messages are unknown ones.
        on: bool,
    },
    /// Sets the UDP ports of the sockets for datagrams between nodes, so that those are told from
    /// other packets where a route leads them to the TUN. Replaces earlier ones.
    SetUnderlayPorts {
        /// The ports.
        ports: Vec<u16>,
    },
    /// Sets the socket whose datagrams are messages of WireGuard, or none. Replaces an earlier one.
    TakeWireGuard {
        /// The number of the socket.
        socket: Option<SocketId>,
        /// The largest packet in a data message, in bytes: the MTU of the tunnels.
        mtu: u16,
    },
    /// Announces that any lane may receive the answer to a
    /// [`SendCommand::Echo`](super::SendCommand::Echo) with this token.
    ExpectEcho {
        /// The token of that command.
        token: u64,
    },
}

impl TableCommand {
    /// Returns the lanes that the command is for.
    pub(super) fn audience(&self) -> Audience {
        match self {
            Self::ExpectEcho { .. } => Audience::Others,
            Self::AllowPeer { .. }
            | Self::DenyPeer { .. }
            | Self::SetSubnets { .. }
            | Self::SetPolicy { .. }
            | Self::SetUnderlayPorts { .. } => Audience::All,
            Self::SetRoute { .. }
            | Self::RemoveRoute { .. }
            | Self::SealWhole
            | Self::Await { .. }
            | Self::Forget { .. }
            | Self::Listen { .. }
            | Self::TakeWhole { .. }
            | Self::TakeWireGuard { .. }
            | Self::Expect(_)
            | Self::Unexpect { .. } => Audience::First,
        }
    }
}
