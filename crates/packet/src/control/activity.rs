//! What lanes measure of links and sessions, and report to the core.

use weft_wire::NodeAddr;
use weft_wire::mmp::ReceiverReport;

use super::LinkId;

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
    /// This node's epoch (index or number) under which the report was sealed.
    pub epoch: u32,
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
    /// The epoch (index or number) whose counters are followed.
    pub epoch: u32,
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
    /// When a fast frame above [`SURE_PAYLOAD`](weft_wire::fast::SURE_PAYLOAD) was last sent, in
    /// ms; 0 if never.
    pub last_large_tx: u64,
    /// The path MTU of the last frame from the peer, in bytes of UDP payload, as the nodes on its
    /// path reported it in the frame.
    pub path_mtu: Option<u16>,
}
