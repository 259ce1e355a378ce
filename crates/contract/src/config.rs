//! What a lane is made with.

use weft_wire::NodeAddr;
use weft_wire::fast::LARGEST_PROBED;

/// The settings of a lane, fixed when it is made.
#[derive(Clone, Copy, Debug)]
pub struct LaneConfig {
    /// The address of this node.
    pub me: NodeAddr,
    /// The largest UDP payload that the lane sends, in bytes (FIPS's `mtu`).
    pub mtu: u16,
    /// Whether probes determine the size of fast frames
    /// ([`SessionCommand::SizePath`](crate::SessionCommand::SizePath)). `mtu` then applies to FIPS frames
    /// only.
    pub probe: bool,
    /// Whether the lane forwards session datagrams of other nodes.
    pub transit: bool,
    /// The limits on link handshake messages that prove nothing.
    pub handshakes: HandshakeLimits,
}

/// Returns the largest relayed frame that a node forwards, in bytes of UDP payload, by `probe` and `mtu`
/// of its [`LaneConfig`]. Where probes determine the size of a path, its ends find what its links take.
#[must_use]
pub const fn relayed_payload(probe: bool, mtu: u16) -> u16 {
    if probe { LARGEST_PROBED } else { mtu }
}

/// The limits on what link handshake messages that prove nothing may cost.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeLimits {
    /// Diffie-Hellmans a second for first messages. The reserve for hosts where peers are expected
    /// may cost half as many in addition, and answers to messages of this node half as many again.
    pub per_second: u64,
    /// The key of the hashes and of the random draws, so that no sender can predict these. It is
    /// needed only while the process runs, and protects nothing else.
    pub key: [u8; 16],
}

impl Default for HandshakeLimits {
    /// 400 Diffie-Hellmans a second, which is 2 % of a core at 50 us each, and a key that is not
    /// secret: for tests and simulations.
    fn default() -> Self {
        Self {
            per_second: 400,
            key: [0; 16],
        }
    }
}
