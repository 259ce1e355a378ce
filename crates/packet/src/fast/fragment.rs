//! Packets that do not fit one frame: cut into pieces here, reassembled at the peer.

use weft_wire::fast::{self, Fragment, Kind};
use weft_wire::ip::Ipv6Header;

use super::FastEpoch;
use super::ingress::{CONTENT_AT, SessionIngress, frame_content};
use super::keys::Content;
use super::reassembly::Taken;
use super::seal::HopSeal;
use crate::admit::Form;
use crate::counters::DropReason;
use crate::sender::Sender;
use crate::split::Splitter;
use crate::tables::{ELIDED, Egress};
use crate::train::Transmit;

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
        self.seal_stamped(now, Kind::Fragment, 0, frame, Content { end, rest: &[] })
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends the splitter's packets, of at most [`MAX_FRAGMENTED`] bytes each, in pieces of equal
    /// size: at most [`Fragment::MAX_PIECES`] of each packet.
    pub(crate) fn in_pieces(&mut self, egress: Egress, mut splitter: Splitter<'_>) {
        let mut packet = std::mem::take(self.scratch);
        packet.resize(splitter.segment_len(), 0);
        while let Some(len) = splitter.next_into(&mut packet) {
            let done = self.pieces(egress, packet.get_mut(..len).unwrap_or_default());
            self.out.counters.note(done);
        }
        *self.scratch = packet;
    }

    fn pieces(&mut self, egress: Egress, packet: &mut [u8]) -> Result<(), DropReason> {
        let done = self.seal_pieces(egress, packet);
        // The pieces before one that could not be sealed may have used up the keys.
        self.tables.note_spent(egress);
        done
    }

    fn seal_pieces(&mut self, egress: Egress, packet: &mut [u8]) -> Result<(), DropReason> {
        let whole = self.tables.whole;
        let (session, link) = self.tables.pair(egress).ok_or(DropReason::NoKeys)?;
        let epoch = session.fast.current_mut().filter(|_| egress.frames.is_fast());
        let epoch = epoch.ok_or(DropReason::NoKeys)?;
        let len = packet.len();
        // The content that one frame would have.
        let (kind, content) = if egress.is_full() {
            (Kind::Full, packet)
        } else {
            // The remaining part of the header is right in front of the upper layer.
            (Kind::Ipv6, elide(packet).ok_or(DropReason::MalformedTun)?)
        };
        let inner_at = egress.frames.inner_at();
        let count = content.len().div_ceil(egress.max_piece().max(1));
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
            let slot = self.train.reserve(inner_at + Fragment::OVERHEAD + piece.len());
            let inner = slot.get_mut(inner_at..).unwrap_or_default();
            let sealed = epoch.seal_piece(self.now, fragment, piece, inner);
            let sealed = inner_at + sealed.ok_or(DropReason::EpochSpent)?;
            if let Some(mut hop) = HopSeal::of(egress.frames, link.hop.current_mut(), whole)? {
                let frame = slot.get_mut(..sealed).ok_or(DropReason::EpochSpent)?;
                hop.seal(frame).ok_or(DropReason::EpochSpent)?;
            }
            link.sent(self.now, 1, sealed, true);
            link.paths.commit(self.train, &mut self.out.counters, sealed);
        }
        self.out.counters.fast_fragmented += 1;
        session.sent_packets(self.now, 1, len);
        Ok(())
    }
}

impl<T: Transmit> SessionIngress<'_, T> {
    /// Processes the piece in an opened frame behind the headroom of `room`. If it completes a
    /// packet, the packet goes to the TUN.
    pub(super) fn piece(&mut self, id: u32, room: &[u8]) -> Result<(), DropReason> {
        let tables = &mut self.lane.tables;
        let session = tables.sessions.get_mut(self.key).ok_or(DropReason::NoKeys)?;
        if !session.allowed {
            return Err(DropReason::NotAllowed);
        }
        let (fragment, piece) = Fragment::parse(frame_content(room)).map_err(|_| DropReason::Malformed)?;
        let full = fragment.kind == Kind::Full;
        let headroom = if full { 0 } else { ELIDED };
        let taken = session.reassembly.take(self.now, id, fragment, piece, headroom);
        let expired = session.reassembly.take_given_up();
        self.lane.out.count_many(DropReason::FragmentExpired, expired);
        match taken {
            Taken::Kept => Ok(()),
            Taken::Conflict => Err(DropReason::Fragment),
            Taken::Whole(packet) => self.reassembled(packet, full),
        }
    }

    /// Processes a packet reassembled from pieces. `full`: it has its whole header.
    fn reassembled(&mut self, mut packet: Vec<u8>, full: bool) -> Result<(), DropReason> {
        let lane = &mut *self.lane;
        let seen = self.source.seen(lane.outer);
        let mut door = lane.tables.door(self.now, self.key, lane.echo_token, seen)?;
        let (source, dest) = door.ends()?;
        let form = if full { Form::Whole } else { Form::Between };
        if !full {
            fast::expand_in_place(&mut packet, Ipv6Header::LEN, source, dest).map_err(|_| DropReason::Malformed)?;
        }
        let admitted = door.admit(form, false, &mut packet, &mut lane.out.counters);
        let tally = door.close();
        let session = lane.tables.sessions.get_mut(self.key).ok_or(DropReason::NoKeys)?;
        tally.account(self.now, session);
        lane.out.counters.fast_reassembled += u64::from(admitted.is_ok());
        if let Ok(Some(_)) = admitted {
            lane.out.reply(packet);
        }
        // Fragments that waited follow the first one.
        lane.sender(self.now, self.train).settle(self.key, tally);
        admitted.map(drop)
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
