//! The register of session messages: every type that this node knows, of FIPS, of its forks and of weft.

use super::{ALIVE, RELAY_PROBE, RELAY_PROBE_ANSWER, SessionMessageType, TraversalType, WHOLE_PACKET};
use crate::fast::{CAPABILITIES, CAPABILITIES_ACK, CONFIRM, PHASE, PROBE, PROBE_ANSWER};

/// A kind of sealed session message. A new one is a variant here; the packet path and the core then
/// do not compile until each says what it does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionKind {
    /// [`SessionMessageType::Data`].
    Data,
    /// [`SessionMessageType::SenderReport`].
    SenderReport,
    /// [`SessionMessageType::ReceiverReport`].
    ReceiverReport,
    /// [`SessionMessageType::PathMtuNotification`].
    PathMtuNotification,
    /// [`SessionMessageType::CoordsWarmup`].
    CoordsWarmup,
    /// [`WHOLE_PACKET`].
    WholePacket,
    /// [`TraversalType`].
    Traversal(TraversalType),
    /// [`ALIVE`].
    Alive,
    /// [`CAPABILITIES`].
    Capabilities,
    /// [`CAPABILITIES_ACK`].
    CapabilitiesAck,
    /// [`CONFIRM`].
    Confirm,
    /// [`PHASE`].
    Phase,
    /// [`PROBE`].
    Probe,
    /// [`PROBE_ANSWER`].
    ProbeAnswer,
    /// [`RELAY_PROBE`].
    RelayProbe,
    /// [`RELAY_PROBE_ANSWER`].
    RelayProbeAnswer,
}

impl SessionKind {
    /// Returns the kind of a message with this type, or `None` for one that this node does not know.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if let Some(kind) = TraversalType::from_byte(byte) {
            return Some(Self::Traversal(kind));
        }
        if let Some(kind) = SessionMessageType::from_byte(byte) {
            return Some(match kind {
                SessionMessageType::Data => Self::Data,
                SessionMessageType::SenderReport => Self::SenderReport,
                SessionMessageType::ReceiverReport => Self::ReceiverReport,
                SessionMessageType::PathMtuNotification => Self::PathMtuNotification,
                SessionMessageType::CoordsWarmup => Self::CoordsWarmup,
            });
        }
        Some(match byte {
            WHOLE_PACKET => Self::WholePacket,
            ALIVE => Self::Alive,
            CAPABILITIES => Self::Capabilities,
            CAPABILITIES_ACK => Self::CapabilitiesAck,
            CONFIRM => Self::Confirm,
            PHASE => Self::Phase,
            PROBE => Self::Probe,
            PROBE_ANSWER => Self::ProbeAnswer,
            RELAY_PROBE => Self::RelayProbe,
            RELAY_PROBE_ANSWER => Self::RelayProbeAnswer,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn each_type_has_one_kind_and_no_other_byte_has_any() {
        let known: Vec<u8> = (0..=u8::MAX)
            .filter(|byte| SessionKind::from_byte(*byte).is_some())
            .collect();
        let expected: Vec<u8> = (0x10..=0x17).chain(0xf0..=0xf8).collect();
        assert_eq!(known, expected);
        let mut kinds: Vec<_> = known.iter().filter_map(|byte| SessionKind::from_byte(*byte)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), known.len());
    }
}
