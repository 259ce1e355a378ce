//! Sealing: IP packets and session messages into fast frames.
//!
//! A payload is not copied: the headers of a packet are written where it is sent from, and the cipher reads what follows
//! them where the TUN's read has put it.

use weft_wire::NodeAddr;
use weft_wire::fast::{self, FULL_AT, HEADROOM, Kind, UPPER_AT};

use super::{FastEpoch, Way};
use crate::counters::DropReason;
use crate::egress::Egress;
use crate::lane::Lane;
use crate::mss;
use crate::split::Splitter;
use crate::train::{Train, Transmit};

/// Where the body of a message starts in its frame.
const BODY_AT: usize = fast::Header::LEN + fast::TIMESTAMP_LEN + 1;

impl Lane {
    /// Sends the splitter's packets in fast frames of the kind, and by the way, that `room` tells.
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

/// A packet in its frame, to be sealed.
struct Placed<'a> {
    kind: Kind,
    flags: u8,
    /// Bytes of the packet, its IP header included.
    len: usize,
    /// Where the content ends in the frame.
    end: usize,
    /// The last bytes of the content, which lie elsewhere.
    rest: &'a [u8],
}

/// Writes the splitter's next packet, as much of it as has to be written, to where its frame has it: `room` is the frame's,
/// behind [`HEADROOM`] bytes that are another frame's and come out as they were. `None` if there is no further packet.
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
    // It is written so that its upper layer is where the frame has it; there is less of the header in a frame.
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

/// The splitter's next packet in front of `room`: its length, what to tell the other side of its checksum, and what of it
/// lies elsewhere. Where a connection opens, both ends are told what the path takes.
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
    /// Seals what lies behind [`HEADROOM`] bytes of `room`; returns the length of the frame. `None` once nothing more may
    /// be sealed under these keys.
    fn seal_packet(&mut self, now: u64, packet: &Placed<'_>, room: &mut [u8]) -> Option<usize> {
        let frame = room.get_mut(HEADROOM..)?;
        self.seal_stamped(now, packet.kind, packet.flags, frame, (packet.end, packet.rest))
    }

    /// Seals a session message into `frame` and returns its length.
    pub(super) fn seal_message(&mut self, now: u64, msg_type: u8, body: &[u8], frame: &mut [u8]) -> Option<usize> {
        let end = BODY_AT + body.len();
        *frame.get_mut(BODY_AT - 1)? = msg_type;
        frame.get_mut(BODY_AT..end)?.copy_from_slice(body);
        self.seal_stamped(now, Kind::Message, 0, frame, (end, &[]))
    }

    /// Seals a frame's content, all but the clock in front of it; see [`FastEpoch::seal`].
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
