//! Sealing: IP packets and session messages into fast frames.
//!
//! A payload is not copied. The headers of a packet are written to the buffer that is sent, and the
//! cipher reads what follows them from the buffer of the TUN's read.

use weft_wire::fast::{self, FULL_AT, HEADROOM, INNER_AT, Kind, LABEL_AT, MAX_HOPS, RelayHeader, UPPER_AT};

use super::FastEpoch;
use super::keys::Content;
use crate::counters::DropReason;
use crate::encapsulate::{Encapsulate, Placed, Sealing};
use crate::link::Link;
use crate::mss;
use crate::sender::Sender;
use crate::split::Splitter;
use crate::tables::{Egress, Encapsulation};
use crate::train::Transmit;

/// The offset of the body of a message in its frame.
const BODY_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN + 1;

/// Makes fast frames of packets.
struct FastFrames<'a> {
    keys: &'a mut FastEpoch,
    /// What the next hop needs, if it relays the frames.
    hop: Option<HopSeal<'a>>,
    /// The offset of the frame to the peer in what is sent, in bytes.
    inner_at: usize,
    /// Whether the packets keep their whole header.
    full: bool,
    /// The size of the largest TCP packet that the hosts shall agree on, in bytes.
    max_tcp: usize,
}

/// Seals for the next hop the frames of this node that are relayed.
pub(super) struct HopSeal<'a> {
    keys: &'a mut FastEpoch,
    label: u32,
    /// Whether all of a frame is sealed, and not only the part that the hop reads.
    whole: bool,
}

impl<T: Transmit> Sender<'_, T> {
    pub(crate) fn fast_packets(&mut self, egress: Egress, mut splitter: Splitter<'_>) -> Result<(), DropReason> {
        let whole = self.tables.whole;
        let (session, link) = self.tables.pair(egress).ok_or(DropReason::NoKeys)?;
        let Link { hop, paths, .. } = link;
        let mut frames = FastFrames {
            keys: session.fast.current_mut().ok_or(DropReason::NoKeys)?,
            hop: HopSeal::of(egress.frames, hop.current_mut(), whole)?,
            inner_at: egress.frames.inner_at(),
            full: egress.is_full(),
            max_tcp: egress.max_tcp(),
        };
        splitter.elide_checksums();
        let is_large = egress.is_large(splitter.segment_len());
        let sealing = Sealing {
            now: self.now,
            paths,
            counters: &mut self.out.counters,
            train: self.train,
        };
        let sent = sealing.all(&mut frames, splitter, usize::from(egress.payload()));
        let spent = frames.are_spent();
        if is_large {
            session.last_large_tx = self.now;
        }
        self.out.counters.fast_tx += sent.frames;
        self.out.counters.full_tx += if egress.is_full() { sent.frames } else { 0 };
        self.out.counters.relayed_tx += if egress.frames == Encapsulation::Fast {
            0
        } else {
            sent.frames
        };
        link.sent(self.now, sent.frames, sent.bytes, true);
        session.sent_packets(self.now, sent.frames, sent.carried);
        if spent {
            self.tables.changed();
        }
        Ok(())
    }
}

impl Encapsulate for FastFrames<'_> {
    #[inline]
    fn place<'s>(&self, splitter: &mut Splitter<'s>, slot: &mut [u8]) -> Option<Placed<'s>> {
        place(splitter, slot.get_mut(self.inner_at..)?, self.full, self.max_tcp)
    }

    #[inline]
    fn seal(&mut self, now: u64, packet: &Placed<'_>, slot: &mut [u8]) -> Option<usize> {
        let kind = if self.full { Kind::Full } else { Kind::Ipv6 };
        let frame = slot.get_mut(HEADROOM..)?;
        let inner = frame.get_mut(self.inner_at..)?;
        let content = Content {
            end: packet.end,
            rest: packet.rest,
        };
        let len = self.inner_at + self.keys.seal_stamped(now, kind, packet.flags, inner, content)?;
        if let Some(hop) = &mut self.hop {
            hop.seal(frame.get_mut(..len)?)?;
        }
        Some(len)
    }
}

impl FastFrames<'_> {
    fn are_spent(&self) -> bool {
        self.keys.is_spent() || self.hop.as_ref().is_some_and(HopSeal::is_spent)
    }
}

impl<'a> HopSeal<'a> {
    /// Returns what the next hop needs of frames in this encapsulation, under the keys of the hop.
    pub(super) fn of(
        frames: Encapsulation,
        keys: Option<&'a mut FastEpoch>,
        whole: bool,
    ) -> Result<Option<Self>, DropReason> {
        let Encapsulation::Relayed { label } = frames else {
            return Ok(None);
        };
        let keys = keys.ok_or(DropReason::NoKeys)?;
        Ok(Some(Self { keys, label, whole }))
    }

    /// Seals a frame whose inner frame is at [`INNER_AT`].
    #[inline]
    pub(super) fn seal(&mut self, frame: &mut [u8]) -> Option<()> {
        let header = RelayHeader {
            label: self.label,
            ttl: MAX_HOPS,
            marks: 0,
        };
        frame.get_mut(LABEL_AT..INNER_AT)?.copy_from_slice(&header.to_bytes());
        self.keys.seal_hop(frame, self.whole)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.keys.is_spent()
    }
}

/// Writes the part of the splitter's next packet that has to be written to its place in the frame.
/// `room` is the frame behind [`HEADROOM`] bytes, which belong to another frame and keep their
/// value. Returns `None` if there is no further packet.
#[inline]
fn place<'a>(splitter: &mut Splitter<'a>, room: &mut [u8], full: bool, max_tcp: usize) -> Option<Placed<'a>> {
    if full {
        let room = room.get_mut(HEADROOM + FULL_AT..)?;
        let (len, flags, rest) = next_packet(splitter, room, max_tcp, mss::opens_connection_full)?;
        let end = FULL_AT + len;
        return Some(Placed { len, end, rest, flags });
    }
    // The packet is written so that its upper layer is at its place in the frame. Its header is
    // longer than the frame's form of it, so it begins in the headroom.
    let kept = *room.first_chunk::<HEADROOM>()?;
    let packet = next_packet(splitter, room, max_tcp, mss::opens_connection);
    let header = fast::compress(room);
    *room.first_chunk_mut()? = kept;
    let (len, flags, rest) = packet?;
    room.get_mut(HEADROOM + UPPER_AT - fast::IPV6_REST..HEADROOM + UPPER_AT)?
        .copy_from_slice(&header?);
    let end = len - HEADROOM;
    Some(Placed { len, end, rest, flags })
}

/// Writes the splitter's next packet to the front of `room`. Returns its length, the flag that
/// describes its checksum to the peer, and the part of it that was not copied. The MSS of a packet
/// that opens a connection is clamped to `max_tcp`.
#[inline]
fn next_packet<'a>(
    splitter: &mut Splitter<'a>,
    room: &mut [u8],
    max_tcp: usize,
    opens_connection: impl FnOnce(&[u8]) -> bool,
) -> Option<(usize, u8, &'a [u8])> {
    let (front, mut rest) = splitter.next_front(room)?;
    let len = front + rest.len();
    let mut packet = room.get_mut(..front)?;
    if opens_connection(packet) {
        packet = room.get_mut(..len)?;
        packet.get_mut(front..)?.copy_from_slice(rest);
        rest = &[];
        mss::clamp(packet, max_tcp);
    }
    let partial = splitter.leave_checksum(packet);
    Some((len, if partial { fast::FLAG_PARTIAL } else { 0 }, rest))
}

impl FastEpoch {
    /// Seals a session message into `frame` and returns the length of the frame.
    pub(super) fn seal_message(&mut self, now: u64, msg_type: u8, body: &[u8], frame: &mut [u8]) -> Option<usize> {
        let end = BODY_AT + body.len();
        *frame.get_mut(BODY_AT - 1)? = msg_type;
        frame.get_mut(BODY_AT..end)?.copy_from_slice(body);
        self.seal_stamped(now, Kind::Message, 0, frame, Content { end, rest: &[] })
    }

    /// Writes the clock in front of a frame's content, and seals both; see [`FastEpoch::seal`].
    pub(super) fn seal_stamped(
        &mut self,
        now: u64,
        kind: Kind,
        flags: u8,
        frame: &mut [u8],
        content: Content<'_>,
    ) -> Option<usize> {
        let clock = self.timestamp(now).to_le_bytes();
        *frame.get_mut(fast::Header::LEN..)?.first_chunk_mut()? = clock;
        let ticket = self.ticket()?;
        self.seal(ticket, kind, flags, frame, content)
    }
}
