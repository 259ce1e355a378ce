//! Packets that do not fit one frame: cut here, put together at the other end.

use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::fast::{self, Fragment, HEADROOM, Kind};
use weft_wire::ip::Ipv6Header;

use super::open::CONTENT_AT;
use super::reassembly::Taken;
use super::{FastEpoch, Way};
use crate::ecn::Seen;
use crate::lane::{Lane, Room};
use crate::split::Splitter;
use crate::train::{Train, Transmit};

/// What a content lacks of the packet in it: the IPv6 header less what is left of it.
pub(crate) const ELIDED: usize = Ipv6Header::LEN - fast::IPV6_REST;
/// The longest packet that can be cut, bytes.
pub(crate) const MAX_FRAGMENTED: usize = Fragment::MAX_TOTAL + ELIDED;
/// Where a piece starts in its frame.
const PIECE_AT: usize = CONTENT_AT + Fragment::LEN;

impl FastEpoch {
    /// Seals one piece into `frame` and returns its length.
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
    /// Sends the splitter's packets, of at most [`MAX_FRAGMENTED`] bytes each, in pieces of equal size: at most
    /// [`Fragment::MAX_PIECES`] of each packet.
    pub(crate) fn seal_fragments<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Room),
        mut splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        let mut packet = std::mem::take(&mut self.scratch);
        packet.resize(splitter.segment_len(), 0);
        while let Some(len) = splitter.next_into(&mut packet) {
            let sent = packet
                .get_mut(..len)
                .and_then(|packet| self.seal_pieces(now, (peer, room), packet, train));
            if sent.is_none() {
                self.counters.epoch_spent += 1;
                break;
            }
        }
        self.scratch = packet;
    }

    /// `None` if not all of it could be sealed.
    fn seal_pieces<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Room),
        packet: &mut [u8],
        train: &mut Train<T>,
    ) -> Option<()> {
        let session = self.sessions.get_mut(&peer)?;
        let way = room.fast?;
        let (link, inner_at) = way.link();
        let link = self.links.get_mut(&link)?;
        let epoch = session.fast.current_mut()?;
        let len = packet.len();
        // What the frame would have had.
        let (kind, content) = if room.is_full() {
            (Kind::Full, packet)
        } else {
            // The rest of the header right in front of the upper layer.
            let rest = fast::compress(packet)?;
            let content = packet.get_mut(ELIDED..)?;
            content.get_mut(..fast::IPV6_REST)?.copy_from_slice(&rest);
            (Kind::Ipv6, content)
        };
        let overhead = inner_at + Fragment::OVERHEAD;
        let count = content.len().div_ceil(room.max_piece().max(1));
        if count > Fragment::MAX_PIECES {
            // The other end would not put it together.
            self.counters.too_big += 1;
            return Some(());
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
            let inner = slot.get_mut(inner_at..)?;
            let sealed = inner_at + epoch.seal_piece(now, fragment, piece, inner)?;
            if let Way::Relayed(relay) = way {
                link.seal_relayed(relay, self.whole, slot, sealed)?;
            }
            link.totals.sent(now, sealed);
            link.paths.commit(train, &mut self.counters, sealed);
        }
        self.counters.fast_fragmented += 1;
        session.totals.sent(now, len);
        link.totals.last_payload_tx = now;
        session.last_data = now;
        session.last_data_tx = now;
        Some(())
    }

    /// Takes the piece in an opened frame behind the headroom of `room`. A packet that it makes whole goes to the TUN.
    pub(super) fn fast_piece(&mut self, now: u64, peer: NodeAddr, id: u32, room: &[u8], seen: Seen) -> Option<()> {
        if !self.allowed.contains_key(&peer.to_ipv6().octets()) {
            self.counters.not_allowed += 1;
            return None;
        }
        let content = room.get(HEADROOM + CONTENT_AT..room.len() - TAG_LEN)?;
        let Ok((fragment, piece)) = Fragment::parse(content) else {
            self.counters.malformed += 1;
            return None;
        };
        let session = self.sessions.get_mut(&peer)?;
        let headroom = if fragment.kind == Kind::Full { 0 } else { ELIDED };
        let taken = session.reassembly.take(now, id, fragment, piece, headroom);
        self.counters.fragments_expired += session.reassembly.take_given_up();
        match taken {
            Taken::Kept => {}
            Taken::Conflict => self.counters.fragments_refused += 1,
            Taken::Whole(packet) if fragment.kind == Kind::Full => self.full_whole(now, peer, packet, seen)?,
            Taken::Whole(packet) => self.fast_whole(now, peer, packet, seen)?,
        }
        Some(())
    }

    fn fast_whole(&mut self, now: u64, peer: NodeAddr, mut packet: Vec<u8>, seen: Seen) -> Option<()> {
        let ends = (peer.to_ipv6(), self.config.me.to_ipv6());
        if fast::expand_in_place(&mut packet, Ipv6Header::LEN, ends.0, ends.1).is_err() {
            self.counters.malformed += 1;
            return None;
        }
        let session = self.sessions.get_mut(&peer)?;
        session.totals.received(now, 1, packet.len());
        session.totals.rx_payload += 1;
        session.last_data = now;
        self.counters.fast_reassembled += 1;
        self.hand_over(peer, &mut packet);
        if !Self::tell_congestion(&mut self.counters, seen, &mut packet) {
            return None;
        }
        self.counters.tun_tx += 1;
        self.push_reply(packet);
        Some(())
    }
}
