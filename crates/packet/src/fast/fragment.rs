//! Packets that do not fit one frame: cut into pieces here, reassembled at the peer.

use weft_wire::NodeAddr;
use weft_wire::fast::{self, Fragment, Kind};
use weft_wire::ip::Ipv6Header;

use super::border::Border;
use super::ingress::{CONTENT_AT, frame_content};
use super::reassembly::Taken;
use super::{FastEpoch, Way};
use crate::counters::DropReason;
use crate::ecn::{self, Seen};
use crate::egress::Egress;
use crate::lane::Lane;
use crate::networks::Borders;
use crate::split::Splitter;
use crate::train::{Train, Transmit};

/// How many bytes the content of a packet's frame is shorter than the packet: the IPv6 header less
/// the part of it that remains.
pub(crate) const ELIDED: usize = Ipv6Header::LEN - fast::IPV6_REST;
/// The longest packet that can be cut, in bytes.
pub(crate) const MAX_FRAGMENTED: usize = Fragment::MAX_TOTAL + ELIDED;
/// The offset of a piece in its frame.
const PIECE_AT: usize = CONTENT_AT + Fragment::LEN;

impl FastEpoch {
    /// Seals one piece into `frame` and returns the length of the frame.
    fn seal_piece(&mut self, now: u64, fragment: Fragment, piece: &[u8], frame: &mut [u8]) -> Option<usize> {
        let end = PIECE_AT + piece.len();
        frame
            .get_mut(CONTENT_AT..PIECE_AT)?
            .copy_from_slice(&fragment.to_bytes());
        frame.get_mut(PIECE_AT..end)?.copy_from_slice(piece);
        self.seal_stamped(now, Kind::Fragment, 0, frame, (end, &[]))
    }
}

impl Lane {
    /// Sends the splitter's packets, of at most [`MAX_FRAGMENTED`] bytes each, in pieces of equal
    /// size: at most [`Fragment::MAX_PIECES`] of each packet.
    pub(crate) fn seal_fragments<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        mut splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        let mut packet = std::mem::take(&mut self.scratch);
        packet.resize(splitter.segment_len(), 0);
        while let Some(len) = splitter.next_into(&mut packet) {
            let packet = packet.get_mut(..len).unwrap_or_default();
            if let Err(reason) = self.seal_pieces(now, (peer, room), packet, train) {
                self.counters.drops.count(reason);
            }
        }
        self.scratch = packet;
    }

    fn seal_pieces<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        packet: &mut [u8],
        train: &mut Train<T>,
    ) -> Result<(), DropReason> {
        let session = self.sessions.get_mut(&peer).ok_or(DropReason::NoKeys)?;
        let way = room.fast.ok_or(DropReason::NoKeys)?;
        let (link, inner_at) = way.link();
        let link = self.links.get_mut(&link).ok_or(DropReason::NoKeys)?;
        let epoch = session.fast.current_mut().ok_or(DropReason::NoKeys)?;
        let len = packet.len();
        // The content that one frame would have.
        let (kind, content) = if room.is_full() {
            (Kind::Full, packet)
        } else {
            // The remaining part of the header is right in front of the upper layer.
            (Kind::Ipv6, elide(packet).ok_or(DropReason::MalformedTun)?)
        };
        let overhead = inner_at + Fragment::OVERHEAD;
        let count = content.len().div_ceil(room.max_piece().max(1));
        if count > Fragment::MAX_PIECES {
            // The peer does not reassemble so many.
            return Err(DropReason::TooBig);
        }
        let each = content.len().div_ceil(count);
        let number = epoch.next_fragmented();
        for (n, piece) in content.chunks(each).enumerate() {
            let fragment = Fragment {
                packet: number,
                kind,
                offset: (n * each) as u16,
                total: content.len() as u16,
            };
            let slot = train.reserve(overhead + piece.len());
            let inner = slot.get_mut(inner_at..).unwrap_or_default();
            let sealed = epoch.seal_piece(now, fragment, piece, inner);
            let sealed = inner_at + sealed.ok_or(DropReason::EpochSpent)?;
            if let Way::Relayed(relay) = way {
                let hop = link.seal_relayed(relay, self.whole, slot, sealed);
                hop.ok_or(DropReason::EpochSpent)?;
            }
            link.sent(now, 1, sealed, true);
            link.paths.commit(train, &mut self.counters, sealed);
        }
        self.counters.fast_fragmented += 1;
        let spent = epoch.is_spent() || inner_at != 0 && link.hop_is_spent();
        session.sent_packets(now, 1, len);
        self.note_spent(spent);
        Ok(())
    }

    /// Processes the piece in an opened frame behind the headroom of `room`. If it completes a
    /// packet, the packet goes to the TUN.
    pub(super) fn fast_piece(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: u32,
        room: &[u8],
        seen: Seen,
    ) -> Result<(), DropReason> {
        if !self.allowed.contains_key(&peer.to_ipv6().octets()) {
            return Err(DropReason::NotAllowed);
        }
        let (fragment, piece) = Fragment::parse(frame_content(room)).map_err(|_| DropReason::Malformed)?;
        let session = self.sessions.get_mut(&peer).ok_or(DropReason::NoKeys)?;
        let full = fragment.kind == Kind::Full;
        let headroom = if full { 0 } else { ELIDED };
        let taken = session.reassembly.take(now, id, fragment, piece, headroom);
        let expired = session.reassembly.take_given_up();
        self.counters.drops.count_many(DropReason::FragmentExpired, expired);
        match taken {
            Taken::Kept => Ok(()),
            Taken::Conflict => Err(DropReason::Fragment),
            Taken::Whole(packet) => self.fast_whole(now, peer, packet, full, seen),
        }
    }

    /// Processes a packet reassembled from pieces. `full`: it has its whole header.
    fn fast_whole(
        &mut self,
        now: u64,
        peer: NodeAddr,
        mut packet: Vec<u8>,
        full: bool,
        seen: Seen,
    ) -> Result<(), DropReason> {
        if full {
            let room = self.egress(&peer);
            let borders = Borders {
                me: self.config.me,
                allowed: &self.allowed,
                networks: &self.networks,
            };
            Border::new(borders, peer, room).whole(&mut packet, seen, &mut self.counters)?;
        } else {
            let ends = (peer.to_ipv6(), self.config.me.to_ipv6());
            fast::expand_in_place(&mut packet, Ipv6Header::LEN, ends.0, ends.1).map_err(|_| DropReason::Malformed)?;
            self.hand_over(peer, &mut packet);
            ecn::tell(&mut self.counters, seen, &mut packet)?;
        }
        let session = self.sessions.get_mut(&peer).ok_or(DropReason::NoKeys)?;
        session.received_packets(now, 1, packet.len());
        self.counters.fast_reassembled += 1;
        self.counters.tun_tx += 1;
        self.push_reply(packet);
        Ok(())
    }
}

/// Writes the remaining part of the header right in front of the upper layer, and returns the
/// content that goes in pieces.
fn elide(packet: &mut [u8]) -> Option<&mut [u8]> {
    let rest = fast::compress(packet)?;
    let content = packet.get_mut(ELIDED..)?;
    content.get_mut(..fast::IPV6_REST)?.copy_from_slice(&rest);
    Some(content)
}
