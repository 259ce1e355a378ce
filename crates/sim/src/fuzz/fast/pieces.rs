//! Packets in pieces, of a peer that has the keys and cuts as it likes.

use weft_wire::fast::{self, Fragment, Kind};

use super::content::{assert_packet, expanded, may_enter, packet_content};
use super::{HOSTILE, Input, ME, Trio, model};

/// Pieces of one packet that a receiver takes (docs/protocol/sizes.md).
const MAX_PIECES: usize = 8;

impl Trio {
    /// A packet in pieces, in any order, as it should be or with one flaw. Nothing comes out but that packet, and it does if
    /// nothing is wrong with it.
    pub(super) fn pieces(&mut self, input: &mut Input<'_>) {
        let mut content = packet_content(input);
        let more = content[fast::IPV6_REST..].repeat(input.below(48));
        content.extend(more);
        let each = content.len().div_ceil(1 + input.below(10));
        self.cut += 1;
        let mut pieces: Vec<(usize, u16, &[u8])> = content
            .chunks(each)
            .enumerate()
            .map(|(n, piece)| (n * each, content.len() as u16, piece))
            .collect();
        let order = input.u8();
        let first = usize::from(order & 0x7f) % pieces.len();
        pieces.rotate_left(first);
        if order & 0x80 != 0 {
            pieces.reverse();
        }
        let (flaw, at) = (input.below(10), input.below(pieces.len()));
        let whole = match flaw {
            5 => {
                pieces.remove(at);
                false
            }
            // The second comes too late if the first made the packet whole.
            6 => {
                pieces.insert(at, pieces[at]);
                false
            }
            7 => {
                pieces[at].0 = pieces[at].0.saturating_sub(1);
                false
            }
            8 => {
                pieces[at].1 = input.u16();
                false
            }
            _ => pieces.len() <= MAX_PIECES,
        };
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
        let expected = expanded(&content);
        for packet in std::mem::take(&mut self.whole) {
            assert_packet(&packet, &expected, false);
        }
        let opened = (after.fast_rx - before.fast_rx) as usize == crafted.len();
        let refused = after.not_allowed > before.not_allowed || after.malformed > before.malformed;
        if whole && opened && !refused {
            assert_eq!(
                after.fast_reassembled,
                before.fast_reassembled + 1,
                "an honest packet in pieces is lost"
            );
        }
        if pieces.len() > MAX_PIECES && flaw != 7 && flaw != 8 {
            assert_eq!(after.fast_reassembled, before.fast_reassembled);
        }
    }

    /// A packet that came in pieces is one that the peer may send, and no longer than it may be.
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
