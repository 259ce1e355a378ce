//! Datagrams on the simulated network, with their kind as the sender knows it.

use std::net::SocketAddr;

use weft_contract::{Command, SendCommand};
use weft_wire::NodeAddr;
use weft_wire::fsp::{FspPhase, FspPrefix};
use weft_wire::link::{LinkMessageType, SessionDatagram};

use crate::HostId;

/// The content of a datagram, as its sender knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// IP packets, and everything that a lane forwards by itself.
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

/// A datagram that is about to be sent.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// The sender; [`Datagram::NOBODY`] if it was injected.
    pub from: HostId,
    /// Source address.
    pub src: SocketAddr,
    /// Destination address.
    pub dst: SocketAddr,
    /// Its content.
    pub kind: Kind,
    /// UDP payload.
    pub bytes: Vec<u8>,
    /// The hosts that have forwarded the session datagram inside so far, in order. Empty if only
    /// its source has sent it, and for all other datagrams.
    pub trail: Vec<HostId>,
}

impl Datagram {
    /// The sender of datagrams from [`World::inject`](crate::World::inject).
    pub const NOBODY: HostId = HostId::MAX;
}

/// A rule's decision about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Treated by the network's conditions.
    Pass,
    /// Dropped.
    Drop,
}

impl Kind {
    /// The datagram that a command sends, and whether the node `me` forwards it for others.
    pub(crate) fn of(command: &Command, me: NodeAddr) -> (Self, bool) {
        match command {
            Command::Send(SendCommand::Transmit { datagram, .. })
                if datagram.first().is_some_and(|b| b & 0x0f == 1) =>
            {
                (Self::LinkMsg1, false)
            }
            Command::Send(SendCommand::Transmit { .. }) => (Self::LinkMsg2, false),
            Command::Send(
                SendCommand::OnSession { .. }
                | SendCommand::Service { .. }
                | SendCommand::Warm { .. }
                | SendCommand::ProbeRelay { .. },
            ) => (Self::SessionControl, false),
            Command::Send(SendCommand::OnLink { msg_type, body, .. }) => match LinkMessageType::from_byte(*msg_type) {
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
