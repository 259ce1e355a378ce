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
    /// Data where there are no services: it is dropped.
    NoService,
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
        | (SessionKind::RelayProbe | SessionKind::RelayProbeAnswer, true)
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
