//! The bounds of every queue that others can fill, in one place.
//!
//! A bound has a number and bytes, because datagrams and packets have up to 64 KiB. A store that
//! several parties fill is shared by [`Shares`](crate::shares::Shares), so that each of them leaves
//! room for the others. docs/protocol/behaviour.md, "What may wait", lists the worst case of each.

use crate::shares::Load;

/// Reports that wait for the core, in a lane and once more between the lanes and the core: 4 MiB
/// each. Shared among the links and peers that cause them.
pub const REPORTS: Load = Load {
    count: 4_096,
    bytes: 4 << 20,
};
/// Handshake datagrams that wait for the core, in a lane and once more between the lanes and the
/// core. The gate admits fewer at once, so that a flood leaves room for those of known nodes.
pub const HANDSHAKES: usize = 1_024;
/// Tokens of datagrams outside of links that a lane recognises at a time.
pub const AWAITED: usize = 4_096;
/// Proofs that wait between the lanes and the core. Others stay in their lane, which has at most
/// three for each set of keys that the core has installed.
pub const PROOFS: usize = 4_096;
/// Frames of all sessions together that arrived before their keys: 256 KiB. Shared among the links
/// that they arrived over.
pub const EARLY: Load = Load {
    count: 256,
    bytes: 256 << 10,
};
/// The number of those frames for one session over one link.
pub const EARLY_OF_SESSION: usize = 16;
/// The longest of those frames in bytes, unless the node's own `mtu` is larger: a link of 1,500
/// bytes over IPv4.
pub const EARLY_LONGEST: usize = 1_472;
/// Packets of this host that wait for keys, of all sessions together: 8 MiB. Shared among their
/// destinations.
pub const QUEUED: Load = Load {
    count: 4_096,
    bytes: 8 << 20,
};
/// The number of those packets for one session (FIPS: 16 packets per destination).
pub const QUEUED_OF_SESSION: usize = 16;
/// Later fragments of all peers together that wait for the first one of their packet, in all lanes: 1 MiB.
/// Shared among the peers, so that the longest packet in fragments of 1,400 bytes finds room.
pub const FRAGMENTS: Load = Load {
    count: 512,
    bytes: 1 << 20,
};
/// Packets for the TUN that wait in the lane: ICMP errors, packets of frames that arrived before
/// their keys, and packets reassembled from pieces. One round of receiving may bring some hundred
/// of them.
pub const REPLIES: Load = Load {
    count: 512,
    bytes: 2 << 20,
};
/// TUN packets of up to 64 KiB that other lanes left to a lane, and that wait for it: 2 MiB, 2 ms
/// at 8 Gbit/s.
pub const HANDED_PACKETS: usize = 32;
/// Like [`HANDED_PACKETS`], for the datagrams of one receive. Nothing about them is verified, so
/// they have a bound of their own.
pub const HANDED_DATAGRAMS: usize = 32;
/// The bytes of messages that wait for a lane and may be dropped as datagrams may: handshakes,
/// messages that the core forwards, and answers. Commands that change a lane's tables always have
/// room.
pub const COMMANDS: usize = 4 << 20;
