//! What a lane does with a message of a session, by its kind and the frame that it came in.
//!
//! [`SessionKind`] is the register of the types. Every kind states here what becomes of it.

use weft_contract::{EpochId, Report, SessionReport};
use weft_wire::NodeAddr;
use weft_wire::session::SessionKind;

use crate::counters::DropReason;

/// The largest link or session message that is passed to the core, in bytes. The largest in FIPS is
/// FilterAnnounce, 1,035 bytes; a TreeAnnounce is bounded by the datagram.
pub(crate) const MAX_CONTROL: usize = 4096;

/// What becomes of a message of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Data behind ports: an IP packet, or a message for a service of this node.
    Data,
    /// Data in a frame that has none for services: the lane drops it.
    NoService,
    /// An IP packet with its whole header, or a control frame of nvpn, for the core.
    WholePacket,
    /// A report on what this node has sent, compared with its accounts on the way to the core.
    Measured,
    /// A probe of the link that it came by, which the lane answers over that link. Nothing that the
    /// session measures counts it.
    RelayProbe,
    /// The answer to such a probe, for the core. Nothing that the session measures counts it.
    RelayProbeAnswer,
    /// A confirm of fast keys, which the lane answers.
    Confirm,
    /// A probe of the path, which the lane answers.
    Probe,
    /// The phase that the peer opens with, which lets the lane advance.
    Phase,
    /// A message for the core, which counts those that it does not know.
    Core,
}

impl Duty {
    /// Returns what becomes of a message of this type in a FIPS frame.
    #[inline]
    pub(crate) fn in_fips(msg_type: u8) -> Self {
        static DUTIES: [Duty; 256] = table(false);
        DUTIES[usize::from(msg_type)]
    }

    /// Returns what becomes of a message of this type in a fast frame.
    #[inline]
    pub(crate) fn in_fast(msg_type: u8) -> Self {
        static DUTIES: [Duty; 256] = table(true);
        DUTIES[usize::from(msg_type)]
    }

    /// Returns whether the message is about the link that it came by, so that the session does not
    /// count it.
    #[inline]
    pub(crate) const fn is_aside(self) -> bool {
        matches!(self, Self::RelayProbe | Self::RelayProbeAnswer)
    }
}

/// Returns the duties of all types, in FIPS frames or in fast frames.
const fn table(fast: bool) -> [Duty; 256] {
    let mut duties = [Duty::Core; 256];
    let mut byte = 0;
    while byte < duties.len() {
        if let Some(kind) = SessionKind::from_byte(byte as u8) {
            duties[byte] = duty(kind, fast);
        }
        byte += 1;
    }
    duties
}

const fn duty(kind: SessionKind, fast: bool) -> Duty {
    match (kind, fast) {
        (SessionKind::Data, false) => Duty::Data,
        // Packets have kinds of their own in fast frames, and services FIPS frames.
        (SessionKind::Data, true) => Duty::NoService,
        (SessionKind::WholePacket, false) => Duty::WholePacket,
        (SessionKind::ReceiverReport, _) => Duty::Measured,
        (SessionKind::RelayProbe, false) => Duty::RelayProbe,
        (SessionKind::RelayProbeAnswer, false) => Duty::RelayProbeAnswer,
        (SessionKind::Confirm, true) => Duty::Confirm,
        (SessionKind::Probe, true) => Duty::Probe,
        (SessionKind::Phase, true) => Duty::Phase,
        (
            SessionKind::SenderReport
            | SessionKind::PathMtuNotification
            | SessionKind::CoordsWarmup
            | SessionKind::Traversal(_)
            | SessionKind::Alive
            | SessionKind::Capabilities
            | SessionKind::CapabilitiesAck
            | SessionKind::ProbeAnswer,
            _,
        )
        | (SessionKind::WholePacket | SessionKind::RelayProbe | SessionKind::RelayProbeAnswer, true)
        | (SessionKind::Confirm | SessionKind::Probe | SessionKind::Phase, false) => Duty::Core,
    }
}

/// Returns the report to the core on a message of a session that is not an IP packet. `id` is the
/// epoch that opened it.
pub(crate) fn core_message(peer: NodeAddr, id: EpochId, msg_type: u8, body: &[u8]) -> Result<Report, DropReason> {
    if body.len() > MAX_CONTROL {
        return Err(DropReason::ControlTooLong);
    }
    let body = body.to_vec();
    Ok(Report::Session(peer, SessionReport::Message { id, msg_type, body }))
}

#[cfg(test)]
mod tests {
    use weft_wire::{fast, session};

    use super::*;

    #[test]
    fn each_kind_has_its_duty_in_each_frame() {
        let duties = |byte| (Duty::in_fips(byte), Duty::in_fast(byte));
        let known = [
            (0x10, (Duty::Data, Duty::NoService)),
            (session::WHOLE_PACKET, (Duty::WholePacket, Duty::Core)),
            (0x12, (Duty::Measured, Duty::Measured)),
            (fast::CONFIRM, (Duty::Core, Duty::Confirm)),
            (fast::PHASE, (Duty::Core, Duty::Phase)),
            (fast::PROBE, (Duty::Core, Duty::Probe)),
            (session::RELAY_PROBE, (Duty::RelayProbe, Duty::Core)),
            (session::RELAY_PROBE_ANSWER, (Duty::RelayProbeAnswer, Duty::Core)),
        ];
        for byte in 0..=u8::MAX {
            let known = known.iter().find(|(of, _)| *of == byte);
            let expected = known.map_or((Duty::Core, Duty::Core), |(_, duties)| *duties);
            assert_eq!(duties(byte), expected, "{byte:#x}");
            let aside = matches!(byte, session::RELAY_PROBE | session::RELAY_PROBE_ANSWER);
            assert_eq!(Duty::in_fips(byte).is_aside(), aside, "{byte:#x}");
        }
    }

    #[test]
    fn no_message_above_the_bound_reaches_the_core() {
        let message = |len| core_message(NodeAddr::new([1; 16]), EpochId(0), 0x13, &vec![0; len]);
        assert!(message(MAX_CONTROL).is_ok());
        assert_eq!(message(MAX_CONTROL + 1).unwrap_err(), DropReason::ControlTooLong);
    }
}
