//! Sealing: IP packets and session messages into fast frames.
//!
//! A payload is not copied. The headers of a packet are written to the buffer that is sent, and the
//! cipher reads what follows them from the buffer of the TUN's read.

use weft_wire::NodeAddr;
use weft_wire::fast::{self, FULL_AT, HEADROOM, Kind, UPPER_AT};

use super::{FastEpoch, Way};
use crate::counters::DropReason;
use crate::egress::Egress;
use crate::lane::Lane;
use crate::mss;
use crate::split::Splitter;
use crate::train::{Train, Transmit};

/// The offset of the body of a message in its frame.
const BODY_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN + 1;

impl Lane {
    /// Sends the splitter's packets in fast frames, of the kind and over the path that `room`
    /// specifies.
    pub(crate) fn seal_fast<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        mut splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        let (Some(way), Some(session)) = (room.fast, self.sessions.get_mut(&peer)) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let (link, inner_at) = way.link();
        let (Some(link), Some(epoch)) = (self.links.get_mut(&link), session.fast.current_mut()) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        splitter.elide_checksums();
        if inner_at == 0 && room.is_large(splitter.segment_len()) {
            session.last_large_tx = now;
        }
        let (max_frame, max_tcp) = (usize::from(room.payload()), room.max_tcp());
        let (mut frames, mut bytes, mut carried) = (0, 0, 0);
        loop {
            let began = T::clock();
            let slot = train.reserve_with_headroom(max_frame);
            let Some(inner) = slot.get_mut(inner_at..) else { break };
            let Some(packet) = place(&mut splitter, inner, room.is_full(), max_tcp) else {
                break;
            };
            let split = T::clock();
            let sealed = epoch.seal_packet(now, &packet, inner).map(|len| inner_at + len);
            let sealed = sealed.filter(|len| match way {
                Way::Direct(_) => true,
                Way::Relayed(relay) => {
                    let frame = slot.get_mut(HEADROOM..);
                    frame.is_some_and(|frame| link.seal_relayed(relay, self.whole, frame, *len).is_some())
                }
            });
            let Some(len) = sealed else {
                self.counters.drops.count(DropReason::EpochSpent);
                break;
            };
            train.out_mut().sealed(split - began, T::clock() - split);
            (frames, bytes, carried) = (frames + 1, bytes + len, carried + packet.len);
            link.paths.commit(train, &mut self.counters, len);
        }
        self.counters.fast_tx += frames;
        self.counters.full_tx += if room.is_full() { frames } else { 0 };
        self.counters.relayed_tx += if inner_at != 0 { frames } else { 0 };
        link.sent(now, frames, bytes, true);
        let spent = epoch.is_spent() || inner_at != 0 && link.hop_is_spent();
        session.sent_packets(now, frames, carried);
        self.note_spent(spent);
    }
}

/// A packet in its frame, before sealing.
struct Placed<'a> {
    kind: Kind,
    flags: u8,
    /// The length of the packet with its IP header, in bytes.
    len: usize,
    /// The end of the content in the frame.
    end: usize,
    /// The last bytes of the content, which are not in the frame.
    rest: &'a [u8],
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
        let kind = Kind::Full;
        return Some(Placed {
            kind,
            flags,
            len,
            end,
            rest,
        });
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
    let (kind, end) = (Kind::Ipv6, len - HEADROOM);
    Some(Placed {
        kind,
        flags,
        len,
        end,
        rest,
    })
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
    /// Seals the content behind [`HEADROOM`] bytes of `room`, and returns the length of the frame,
    /// or `None` if nothing more may be sealed under these keys.
    fn seal_packet(&mut self, now: u64, packet: &Placed<'_>, room: &mut [u8]) -> Option<usize> {
        let frame = room.get_mut(HEADROOM..)?;
        self.seal_stamped(now, packet.kind, packet.flags, frame, (packet.end, packet.rest))
    }

    /// Seals a session message into `frame` and returns the length of the frame.
    pub(super) fn seal_message(&mut self, now: u64, msg_type: u8, body: &[u8], frame: &mut [u8]) -> Option<usize> {
        let end = BODY_AT + body.len();
        *frame.get_mut(BODY_AT - 1)? = msg_type;
        frame.get_mut(BODY_AT..end)?.copy_from_slice(body);
        self.seal_stamped(now, Kind::Message, 0, frame, (end, &[]))
    }

    /// Writes the clock in front of a frame's content, and seals both; see [`FastEpoch::seal`].
    pub(super) fn seal_stamped(
        &mut self,
        now: u64,
        kind: Kind,
        flags: u8,
        frame: &mut [u8],
        content: (usize, &[u8]),
    ) -> Option<usize> {
        let clock = self.timestamp(now).to_le_bytes();
        *frame.get_mut(fast::Header::LEN..)?.first_chunk_mut()? = clock;
        let ticket = self.ticket()?;
        self.seal(ticket, kind, flags, frame, content)
    }
}
