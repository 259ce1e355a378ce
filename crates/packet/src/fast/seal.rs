//! Sealing: IP packets and session messages into fast frames.

use weft_wire::fast::{self, HEADROOM, Kind, UPPER_AT};

use super::FastEpoch;
use crate::split::Splitter;

/// Where the body of a message starts in its frame.
const BODY_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN + 1;

impl FastEpoch {
    /// Seals the splitter's next packet into `room`, whose first [`HEADROOM`] bytes are another frame's and come out as
    /// they were; `prepare` may change the packet. Returns the length of the packet and of the frame: none when there is
    /// no further packet, an error when nothing may be sealed.
    pub(crate) fn seal_next(
        &mut self,
        now: u64,
        splitter: &mut Splitter<'_>,
        room: &mut [u8],
        prepare: impl FnOnce(&mut [u8]),
    ) -> Option<Result<(usize, usize), Spent>> {
        let kept = *room.first_chunk::<HEADROOM>()?;
        // The packet is written so that its upper layer is where the frame has it.
        let len = splitter.next_into(room)?;
        let packet = room.get_mut(..len)?;
        prepare(packet);
        let rest = fast::compress(packet);
        let flags = if splitter.leave_checksum(packet) {
            fast::FLAG_PARTIAL
        } else {
            0
        };
        *room.first_chunk_mut()? = kept;
        let frame = room.get_mut(HEADROOM..)?;
        frame
            .get_mut(UPPER_AT - fast::IPV6_REST..UPPER_AT)?
            .copy_from_slice(&rest?);
        let sealed = self.seal_stamped(now, Kind::Ipv6, flags, frame, len - HEADROOM);
        Some(sealed.map(|frame| (len, frame)).ok_or(Spent))
    }

    /// Seals a session message into `frame` and returns its length.
    pub(super) fn seal_message(&mut self, now: u64, msg_type: u8, body: &[u8], frame: &mut [u8]) -> Option<usize> {
        let end = BODY_AT + body.len();
        *frame.get_mut(BODY_AT - 1)? = msg_type;
        frame.get_mut(BODY_AT..end)?.copy_from_slice(body);
        self.seal_stamped(now, Kind::Message, 0, frame, end)
    }

    pub(super) fn seal_stamped(
        &mut self,
        now: u64,
        kind: Kind,
        flags: u8,
        frame: &mut [u8],
        end: usize,
    ) -> Option<usize> {
        let clock = self.timestamp(now).to_le_bytes();
        *frame.get_mut(fast::Header::LEN..)?.first_chunk_mut()? = clock;
        let ticket = self.ticket()?;
        self.seal(ticket, kind, flags, frame, end)
    }
}

/// Nothing more may be sealed under these keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent;
