//! Packets in pieces, from a hostile peer with keys that cuts them anywhere.

use weft_wire::fast::{self, Fragment, Kind};

use super::content::{assert_packet, expanded, may_enter, packet_content};
use super::{HOSTILE, Input, MAX_PIECES, ME, Trio, model};
use weft_packet::DropReason;

/// The flaw in the pieces of a packet.
#[derive(Clone, Copy)]
enum Flaw {
    /// Nothing.
    None,
    /// This piece is missing.
    Missing(usize),
    /// This piece is sent twice.
    Twice(usize),
    /// This piece begins a byte too early.
    Early(usize),
    /// This piece has this total.
    Total(usize, u16),
}

impl Trio {
    /// Sends a packet in pieces, in any order, without a flaw or with one.
    pub(super) fn pieces(&mut self, input: &mut Input<'_>) {
        let mut content = packet_content(input);
        let more = content[fast::IPV6_REST..].repeat(input.below(48));
        content.extend(more);
        let pieces = 1 + input.below(10);
        let each = content.len().div_ceil(pieces);
        let order = input.u8();
        let (flaw, at) = (input.below(10), input.below(content.len().div_ceil(each)));
        let flaw = match flaw {
            5 => Flaw::Missing(at),
            6 => Flaw::Twice(at),
            7 => Flaw::Early(at),
            8 => Flaw::Total(at, input.u16()),
            _ => Flaw::None,
        };
        self.in_pieces(&content, each, order, flaw);
    }

    /// Sends a packet of this content in pieces of `each` bytes. The lane delivers only that
    /// packet, and does so if it can.
    fn in_pieces(&mut self, content: &[u8], each: usize, order: u8, flaw: Flaw) {
        self.cut += 1;
        let mut pieces: Vec<(usize, u16, &[u8])> = content
            .chunks(each)
            .enumerate()
            .map(|(n, piece)| (n * each, content.len() as u16, piece))
            .collect();
        let first = usize::from(order & 0x7f) % pieces.len();
        pieces.rotate_left(first);
        if order & 0x80 != 0 {
            pieces.reverse();
        }
        let few = pieces.len() <= MAX_PIECES;
        // How often the packet is delivered; `None` if it depends on the bytes whether the flaw is
        // one.
        let comes = match flaw {
            Flaw::None => Some(u64::from(few)),
            Flaw::Missing(at) => {
                pieces.remove(at);
                Some(0)
            }
            // A copy after all other pieces arrives when the packet is whole; any other contradicts
            // its original. A single piece is a packet each time.
            Flaw::Twice(at) => {
                let (last, single) = (at + 1 == pieces.len(), pieces.len() == 1);
                pieces.insert(at, pieces[at]);
                Some(u64::from(few && last) + u64::from(single))
            }
            Flaw::Early(at) => {
                pieces[at].0 = pieces[at].0.saturating_sub(1);
                None
            }
            Flaw::Total(at, total) => {
                pieces[at].1 = total;
                None
            }
        };
        // A first piece with its own length as total is a packet by itself.
        let lone = pieces.iter().find(|(offset, total, piece)| {
            *offset == 0 && usize::from(*total) == piece.len() && piece.len() >= fast::IPV6_REST
        });
        let lone = lone.map(|(.., piece)| expanded(piece));
        let phase = self.hostile.secrets.len().saturating_sub(2);
        let crafted: Vec<_> = pieces
            .iter()
            .map(|(offset, total, piece)| {
                let fragment = Fragment {
                    packet: self.cut,
                    kind: Kind::Ipv6,
                    offset: *offset as u16,
                    total: *total,
                };
                let plain = [&[0; fast::TIMESTAMP_LEN][..], &fragment.to_bytes(), piece].concat();
                self.hostile.seal(Kind::Fragment as u8, 0, &plain, phase, None)
            })
            .collect();
        self.whole.clear();
        let before = *self.me.counters();
        self.deliver(&crafted);
        let after = *self.me.counters();
        let expected = expanded(content);
        for packet in std::mem::take(&mut self.whole) {
            let lone = lone.as_ref().filter(|lone| lone.len() == packet.len());
            assert_packet(&packet, lone.unwrap_or(&expected), false);
        }
        let opened = (after.fast_rx - before.fast_rx) as usize == crafted.len();
        let refused = after.drops[DropReason::NotAllowed] > before.drops[DropReason::NotAllowed]
            || after.drops[DropReason::Malformed] > before.drops[DropReason::Malformed];
        let reassembled = after.fast_reassembled - before.fast_reassembled;
        match comes {
            Some(0) => assert_eq!(reassembled, 0, "a packet is made of too few pieces, or too many"),
            Some(times) if opened && !refused => assert_eq!(reassembled, times, "an honest packet in pieces is lost"),
            _ => assert!(reassembled <= 2),
        }
    }

    /// Checks that a packet from pieces is one that the peer may send, and not too long.
    pub(super) fn came_in_pieces(&mut self, packet: Vec<u8>) {
        if model::is_v4(&packet) || packet[8..24] != HOSTILE.to_ipv6().octets() {
            assert!(may_enter(&packet) && packet.len() <= Fragment::MAX_TOTAL);
            return;
        }
        assert_eq!(packet[24..40], ME.to_ipv6().octets());
        assert!(packet.len() <= Fragment::MAX_TOTAL + model::IPV6_HEADER - fast::IPV6_REST);
        let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        assert_eq!(packet.len(), model::IPV6_HEADER + length);
        self.whole.push(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fresh;
    use super::*;

    /// Returns the reassembled packets for pieces of `each` bytes, eight of 10 bytes, one of which
    /// is sent twice.
    fn and_a_copy(each: usize, of: usize) -> u64 {
        let mut trio = fresh();
        let mut content = vec![0x60, 0, 0, 0, model::UDP, 64];
        content.resize(80, 0);
        let before = trio.me.counters().fast_reassembled;
        trio.in_pieces(&content, each, 0, Flaw::Twice(of));
        trio.me.counters().fast_reassembled - before
    }

    #[test]
    fn a_copy_after_the_last_of_eight_pieces_changes_nothing() {
        assert_eq!(and_a_copy(10, 7), 1);
        assert_eq!(and_a_copy(10, 6), 0);
        assert_eq!(and_a_copy(80, 0), 2);
    }
}
