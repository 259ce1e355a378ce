//! What is on the network, and what it carries as its sender knows.

use std::net::SocketAddr;

use weft_packet::Command;
use weft_wire::NodeAddr;
use weft_wire::fsp::{FspPhase, FspPrefix};
use weft_wire::link::{LinkMessageType, SessionDatagram};

use crate::HostId;

/// What a datagram carries, as its sender knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IP packets, and whatever a lane forwards by itself.
    #[default]
    Data,
    /// FMP msg1.
    LinkMsg1,
    /// FMP msg2.
    LinkMsg2,
    /// FSP SessionSetup.
    Setup,
    /// FSP SessionAck.
    Ack,
    /// FSP SessionMsg3.
    Msg3,
    /// Any other session message.
    SessionControl,
    /// A TreeAnnounce.
    Tree,
    /// A FilterAnnounce.
    Filter,
    /// A LookupRequest or a LookupResponse.
    Lookup,
    /// Any other link message.
    LinkControl,
}

/// A datagram about to be put on the network.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// Who sends it; [`Datagram::NOBODY`] if it was injected.
    pub from: HostId,
    /// Source address.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: SocketAddr,
    /// What it carries.
    pub kind: Kind,
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// The hosts that have carried the session datagram inside for others so far, in order. Empty while only its
    /// source has sent it, and for everything else.
    pub trail: Vec<HostId>,
}

impl Datagram {
    /// The sender of what [`World::inject`](crate::World::inject) puts on the network.
    pub const NOBODY: HostId = HostId::MAX;
}

/// What a rule does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As the network's conditions have it.
    Pass,
    /// Never arrives.
    Drop,
}

impl Kind {
    /// What a command puts on the network, and whether the node `me` carries it for others.
    pub(crate) fn of(command: &Command, me: NodeAddr) -> (Self, bool) {
        match command {
            Command::Transmit { datagram, .. } if datagram.first().is_some_and(|b| b & 0x0f == 1) => {
                (Self::LinkMsg1, false)
            }
            Command::Transmit { .. } => (Self::LinkMsg2, false),
            Command::SendOnSession { .. } | Command::Warm { .. } => (Self::SessionControl, false),
            Command::SendOnLink { msg_type, body, .. } => match LinkMessageType::from_byte(*msg_type) {
                Some(LinkMessageType::SessionDatagram) => of_session(body, me),
                Some(LinkMessageType::TreeAnnounce) => (Self::Tree, false),
                Some(LinkMessageType::FilterAnnounce) => (Self::Filter, false),
                Some(LinkMessageType::LookupRequest | LinkMessageType::LookupResponse) => (Self::Lookup, false),
                _ => (Self::LinkControl, false),
            },
            _ => (Self::Data, false),
        }
    }
}

fn of_session(body: &[u8], me: NodeAddr) -> (Kind, bool) {
    let Ok(datagram) = SessionDatagram::parse(body) else {
        return (Kind::SessionControl, false);
    };
    let phase = FspPrefix::parse(datagram.payload).map(|p| p.phase);
    let kind = match phase.ok().and_then(FspPhase::from_nibble) {
        Some(FspPhase::Setup) => Kind::Setup,
        Some(FspPhase::Ack) => Kind::Ack,
        Some(FspPhase::Msg3) => Kind::Msg3,
        _ => Kind::SessionControl,
    };
    (kind, datagram.src != me)
}
