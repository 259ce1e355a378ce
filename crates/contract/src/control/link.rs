//! Commands to a link, and its reports.

use crate::endpoint::Endpoint;

use weft_wire::NodeAddr;
use weft_wire::fast::SURE_PAYLOAD;
use weft_wire::link::{BONDED, NARROW, SPARE};

use super::{EpochId, EpochUse, FastKeys, LinkKeys, ReceiverIndex};
use crate::place::Audience;

/// The length of a probe of a path in its frame, in bytes: header, inner header, a number of 8
/// bytes, tag. That of a spare path is a byte longer.
pub const PATH_PROBE_LEN: usize = 16 + 5 + 8 + 16;

/// The number of a link. The core assigns it, and never reuses it in the life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A label: a number that two neighbours agree on for relayed frames to one destination. The node
/// that receives the frames has an entry for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// Where relayed frames with a label go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelRoute {
    /// This node is their last hop.
    Here,
    /// To the next hop, over this link and with this label.
    On {
        /// The link to the next hop.
        link: LinkId,
        /// The label by which the next hop knows the destination.
        label: Label,
    },
}

/// A change of a link.
#[derive(Clone, Debug)]
pub enum LinkCommand {
    /// Reserves a receiver index for a handshake in flight, so that the lane notices frames that
    /// arrive under it before the answer does ([`LinkReport::EarlyFrame`]).
    ArmIndex {
        /// The address of the responder.
        peer: NodeAddr,
        /// The index of this node, as sent in msg1.
        index: ReceiverIndex,
    },
    /// Releases an index that [`LinkCommand::ArmIndex`] reserved.
    DisarmIndex {
        /// The receiver index at this node.
        index: ReceiverIndex,
    },
    /// Adds the link, or adds an epoch to it.
    Install {
        /// The address of the neighbour.
        peer: NodeAddr,
        /// The address of the peer in the handshake: the destination of this node's answer, or the
        /// source of the peer's answer.
        path: Endpoint,
        /// Whether the handshake shows that the peer receives what is sent to `path`, once the
        /// epoch is proven.
        proven: bool,
        /// The keys of the epoch.
        keys: LinkKeys,
        /// What the keys are used for.
        usage: EpochUse,
    },
    /// The peer has proven that it is at this address: frames of the link go to it from now on. It
    /// also announces the link to lanes that do not own it.
    Place {
        /// The address of the neighbour.
        peer: NodeAddr,
        /// The address to send to from now on.
        path: Endpoint,
        /// The address that the link has left, if a copy of every frame still goes to it.
        left: Option<Endpoint>,
    },
    /// The answer to the handshake of this candidate was also sent to another address, so its proof
    /// does not show where the peer is.
    SuspectPath {
        /// The receiver index of the epoch at this node.
        index: ReceiverIndex,
    },
    /// Asks the peer whether it is at this address, in a link message of type
    /// [`PROBE`](weft_wire::link::PROBE). [`LinkReport::Roamed`] grants the bytes that may go to an
    /// unproven address.
    Probe {
        /// The address that the probe goes to.
        to: Endpoint,
        /// A number that the answer returns; unpredictable.
        number: u64,
        /// What the probe says about the path.
        kind: ProbeKind,
    },
    /// Answers the probe with this number in a link message of type
    /// [`PROBE_ANSWER`](weft_wire::link::PROBE_ANSWER), to the address that the probe came from.
    AnswerProbe {
        /// The address that the answer goes to.
        to: Endpoint,
        /// The number of the probe.
        number: u64,
    },
    /// Sends the data of each flow on one of these paths, which the peer has proven, and takes frames from
    /// them for no sign of roaming. An empty list ends that.
    Bond {
        /// The paths, at most four.
        paths: Vec<Endpoint>,
    },
    /// Ends an epoch: its drain is over, or its candidate was never proven.
    RetireEpoch {
        /// The receiver index of the epoch at this node.
        index: ReceiverIndex,
    },
    /// Seals with this epoch from now on. A lane promotes a candidate by itself on proof. This
    /// command settles which epoch seals if the core installed another one while the report of that
    /// proof was on its way.
    SelectEpoch {
        /// The receiver index of the epoch at this node.
        index: ReceiverIndex,
    },
    /// A candidate epoch lost a simultaneous open: it only opens from now on.
    Demote {
        /// The receiver index of the epoch at this node.
        index: ReceiverIndex,
    },
    /// Ends the link. Sessions that are bound to it keep their keys and their queue.
    Remove,
    /// Opens the fast frames of the hop under these keys from now on, and seals with them once a
    /// frame has proven them ([`LinkReport::HopProven`]). Their numbers count up within the link.
    InstallHop {
        /// The keys of the first lane.
        keys: FastKeys,
    },
    /// Sends the neighbour a fast frame under these keys, which shows that this node holds them,
    /// and asks for one in return.
    ConfirmHop {
        /// The number of the keys within the link.
        id: EpochId,
    },
    /// Ends keys of the hop.
    RetireHop {
        /// The number of the keys within the link.
        id: EpochId,
    },
    /// Sets where relayed frames with this label, from the neighbour of this link, go from now on.
    SetLabel {
        /// The label in the neighbour's frames.
        label: Label,
        /// Where the frames go.
        to: LabelRoute,
    },
    /// Removes a label: frames with it are no longer forwarded.
    RemoveLabel {
        /// The label in the neighbour's frames.
        label: Label,
    },
    /// Sets whether datagrams and frames that are forwarded over this link are marked as having
    /// experienced congestion.
    MarkCongestion {
        /// Whether they are marked from now on.
        on: bool,
    },
}

impl LinkCommand {
    /// Returns the lanes that the command is for.
    pub(super) fn audience(&self) -> Audience {
        match self {
            Self::Place { .. } | Self::Bond { .. } | Self::Remove => Audience::All,
            Self::ArmIndex { .. }
            | Self::DisarmIndex { .. }
            | Self::Install { .. }
            | Self::SuspectPath { .. }
            | Self::Probe { .. }
            | Self::AnswerProbe { .. }
            | Self::RetireEpoch { .. }
            | Self::SelectEpoch { .. }
            | Self::Demote { .. }
            | Self::InstallHop { .. }
            | Self::ConfirmHop { .. }
            | Self::RetireHop { .. }
            | Self::SetLabel { .. }
            | Self::RemoveLabel { .. }
            | Self::MarkCongestion { .. } => Audience::First,
        }
    }
}

/// What the sender of a probe says about its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeKind {
    /// Nothing.
    #[default]
    Plain,
    /// It uses the path only while no other works ([`SPARE`](weft_wire::link::SPARE)).
    Spare,
    /// Its frames of [`SURE_PAYLOAD`] bytes do not arrive there ([`NARROW`]).
    Narrow,
    /// It asks whether such a frame arrives, and is one.
    Full,
    /// It would send data there beside other paths ([`BONDED`](weft_wire::link::BONDED)). The probe is as
    /// large as a frame of data.
    Bonded,
}

impl ProbeKind {
    /// The length of a probe of this kind in its frame, in bytes. A bonded one is as long as a frame of
    /// data, this at the least.
    #[must_use]
    pub const fn probe_len(self) -> usize {
        match self {
            Self::Plain => PATH_PROBE_LEN,
            Self::Spare | Self::Narrow | Self::Bonded => PATH_PROBE_LEN + 1,
            Self::Full => SURE_PAYLOAD as usize,
        }
    }

    /// Returns the number and the kind of a probe of a path with this body; `None` if it is another
    /// probe.
    pub fn parse(body: &[u8]) -> Option<(u64, Self)> {
        let (number, rest) = body.split_first_chunk()?;
        let kind = match rest {
            [SPARE] => Self::Spare,
            [NARROW] => Self::Narrow,
            [NARROW, ..] => Self::Full,
            [BONDED, ..] => Self::Bonded,
            [] | [_] => Self::Plain,
            _ => return None,
        };
        Some((u64::from_le_bytes(*number), kind))
    }

    /// Returns the body of a probe, which has `longest` bytes if the kind makes it as large as a frame of data.
    pub fn body(self, number: u64, longest: usize) -> Vec<u8> {
        let sure = usize::from(SURE_PAYLOAD) - (PATH_PROBE_LEN - size_of::<u64>());
        let (byte, len) = match self {
            Self::Plain => (None, 0),
            Self::Spare => (Some(SPARE), 0),
            Self::Narrow => (Some(NARROW), 0),
            Self::Full => (Some(NARROW), longest.min(sure)),
            Self::Bonded => (Some(BONDED), longest),
        };
        let mut body = number.to_le_bytes().to_vec();
        body.extend(byte);
        body.resize(len.max(body.len()), 0);
        body
    }
}

/// A report of a link.
#[derive(Debug)]
pub enum LinkReport {
    /// A frame arrived for an armed index: the peer already uses keys whose handshake answer this
    /// node never received. It is not authenticated, so it is only a hint.
    EarlyFrame {
        /// The index that was armed.
        index: ReceiverIndex,
    },
    /// The first frame under a candidate epoch was authenticated, and the lane now seals with that
    /// epoch.
    Proven {
        /// The receiver index of the epoch at this node.
        index: ReceiverIndex,
        /// The address to which the lane now sends.
        path: Endpoint,
        /// Whether the peer has proven that it is at `path`. If not, no more goes to it than
        /// [`LinkReport::Roamed`] grants.
        proven: bool,
    },
    /// The newest frame came from an address that its peer has not proven. The lane sends a bounded
    /// number of bytes to it, in addition to the proven address. A link reports at most every
    /// 100 ms, and the same address at most every 500 ms.
    Roamed {
        /// The new address.
        path: Endpoint,
        /// How much the core may send to that address until the next report, in bytes.
        room: u32,
    },
    /// An authenticated [`PROBE`](weft_wire::link::PROBE) with a number of 8 bytes: the peer asks
    /// whether this node is reached on the path from `from`.
    Probed {
        /// The source of the datagram.
        from: Endpoint,
        /// The number, which the answer returns.
        number: u64,
        /// What the peer says about the path.
        kind: ProbeKind,
    },
    /// An authenticated link message that is not data of an established session.
    Message {
        /// The receiver index, at this node, of the epoch that opened it.
        index: ReceiverIndex,
        /// The FMP message type.
        msg_type: u8,
        /// The body behind the inner header.
        body: Vec<u8>,
    },
    /// Like [`SessionReport::FastProven`](super::SessionReport::FastProven), for the keys of the
    /// hop: relayed frames may go over it.
    HopProven {
        /// The number of the keys within the link.
        id: EpochId,
    },
    /// The neighbour sends relayed frames with a label that this node does not have, or whose next
    /// hop cannot take them. The rate of this report is bounded.
    LabelFailed {
        /// The label in the neighbour's frames.
        label: Label,
    },
    /// A session datagram between other nodes arrived over the link. The lane has no route for it,
    /// or it announces coordinates.
    Transit {
        /// Its body behind the inner header, as received.
        body: Vec<u8>,
    },
    /// A session datagram between other nodes arrived over the link and is too large for this
    /// node's links. The lane drops it, and reports its source and destination without its content.
    TransitTooLarge {
        /// The source that it names, which is not authenticated.
        src: NodeAddr,
        /// The destination that it names.
        dest: NodeAddr,
        /// The length of its body behind the inner header, in bytes.
        len: usize,
    },
    /// The authenticated neighbour sent an FSP frame that no session of this node opens.
    UnknownSession {
        /// The source that it names, which is not authenticated.
        src: NodeAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_says_what_its_sender_knows_of_the_path() {
        for (kind, longest, frame) in [
            (ProbeKind::Plain, 1_400, PATH_PROBE_LEN),
            (ProbeKind::Spare, 1_400, PATH_PROBE_LEN + 1),
            (ProbeKind::Narrow, 1_400, PATH_PROBE_LEN + 1),
            (ProbeKind::Full, 1_400, usize::from(SURE_PAYLOAD)),
            (ProbeKind::Full, 1_163, 1_200),
            (ProbeKind::Bonded, 1_400, 1_437),
        ] {
            let body = kind.body(7, longest);
            assert_eq!(PATH_PROBE_LEN - size_of::<u64>() + body.len(), frame, "{kind:?}");
            assert_eq!(ProbeKind::parse(&body), Some((7, kind)));
            assert!(kind == ProbeKind::Bonded || frame <= kind.probe_len());
        }
        assert_eq!(ProbeKind::parse(&[0; 7]), None);
        assert_eq!(ProbeKind::parse(&[0; 10]), None, "of a later version");
    }
}
