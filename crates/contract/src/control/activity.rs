//! What lanes measure of links and sessions, and report to the core.

use weft_wire::NodeAddr;
use weft_wire::mmp::ReceiverReport;

use super::LinkId;

/// The epoch that frames are counted for. The fast frames of a session are counted apart from its
/// FIPS frames, as each has counters of its own. Two of one link or session are only ever compared
/// for equality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedEpoch(u32);

impl CountedEpoch {
    /// Set for fast frames: epochs of a session are numbered from 0, so none reaches it.
    const FAST: u32 = 1 << 31;

    /// FIPS frames of the epoch with this index (links) or number (sessions).
    #[must_use]
    #[inline]
    pub const fn fips(id: u32) -> Self {
        Self(id)
    }

    /// Fast frames of the session epoch with this number.
    #[must_use]
    #[inline]
    pub const fn fast(id: u32) -> Self {
        Self(id | Self::FAST)
    }

    /// The epochs of the lanes with these numbers, as one. It changes if one of them changes.
    pub fn of_lanes(lanes: impl IntoIterator<Item = (u8, Self)>) -> Self {
        const ODD: u32 = 0x9e37_79b1;
        let sum = lanes.into_iter().fold(0, |sum: u32, (lane, Self(epoch))| {
            let weight = ODD.wrapping_mul(u32::from(lane) * 2 + 1);
            sum.wrapping_add(epoch.wrapping_add(1).wrapping_mul(weight))
        });
        Self(sum)
    }
}

/// A link or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The link with this number.
    Link(LinkId),
    /// The session with this node.
    Session(NodeAddr),
}

/// What the peer of a link or session reported to have received from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// This node's epoch under which the report was sealed.
    pub epoch: CountedEpoch,
    /// The number of frames that this node has sealed under that epoch.
    pub sent: u64,
    /// The clock of this node in that epoch when the report arrived, in ms. The timestamp that the
    /// report echoes is compared with it.
    pub clock: u32,
    /// The report of the peer.
    pub report: ReceiverReport,
}

/// What was received on a link or in a session, by the counters of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The epoch whose counters are followed.
    pub epoch: CountedEpoch,
    /// The highest counter of that epoch.
    pub highest: u64,
    /// The number of frames counted, over all epochs.
    pub frames: u64,
    /// The number of frames that arrived behind a later one.
    pub reordered: u64,
    /// The number of frames marked as having experienced congestion.
    pub ce: u64,
    /// The interarrival jitter (RFC 3550), in microseconds. The clocks that it is computed from
    /// count milliseconds.
    pub jitter_us: u32,
}

/// The running totals of a link or a session. Times are on the lane's clock; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames sealed.
    pub tx_frames: u64,
    /// Frames opened.
    pub rx_frames: u64,
    /// UDP payload bytes sent (links) or IP bytes sent (sessions).
    pub tx_bytes: u64,
    /// UDP payload bytes received (links) or IP bytes received (sessions).
    pub rx_bytes: u64,
    /// Frames opened that may call for an answer. Heartbeats and reports, among others, do not.
    pub rx_payload: u64,
    /// When the last frame was sealed, in ms.
    pub last_tx: u64,
    /// When the last frame that may call for an answer was sealed for a link, in ms.
    pub last_payload_tx: u64,
    /// When the last frame was opened, in ms.
    pub last_rx: u64,
}

/// The activity of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkActivity {
    /// The number of the link.
    pub link: LinkId,
    /// The totals over all epochs.
    pub totals: Totals,
    /// The measurements of what was received.
    pub received: Received,
}

/// The activity of a session. `totals` counts all frames, but the bytes of IP packets only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    /// The peer of the session.
    pub peer: NodeAddr,
    /// The totals over all epochs.
    pub totals: Totals,
    /// The measurements of what was received.
    pub received: Received,
    /// When an IP packet was last sent or received, in ms; 0 if never.
    pub last_data: u64,
    /// When an IP packet was last sent, in ms; 0 if never.
    pub last_data_tx: u64,
    /// When a fast frame above [`SMALL_PAYLOAD`](weft_wire::fast::SMALL_PAYLOAD) was last sent, in
    /// ms; 0 if never.
    pub last_large_tx: u64,
    /// The path MTU of the last frame from the peer, in bytes of UDP payload, as the nodes on its
    /// path reported it in the frame.
    pub path_mtu: Option<u16>,
}
