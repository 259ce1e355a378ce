//! Direct records of nvpn: sealed session messages that are datagrams of their own, between two nodes that
//! have a link with each other. The link's layer is left out, and with it one of two seals.
//!
//! A node sends records to a peer from which one has come, and between them frames of the link, which show the
//! peer where this node is ([`LINK_FRAME_EVERY`]). docs/protocol/session.md, "Direct records".

use weft_noise::aead::TAG_LEN;
use weft_wire::fast::HEADROOM;
use weft_wire::fsp;
use weft_wire::session::WHOLE_PACKET;

use super::epoch::Epoch;
use super::frame::{MESSAGE_BODY_OFFSET, seal_session};
use crate::encapsulate::{Encapsulate, Placed};
use crate::mss;
use crate::split::Splitter;

/// The bytes that a record adds to a packet.
pub(crate) const RECORD_OVERHEAD: usize = MESSAGE_BODY_OFFSET + TAG_LEN;
/// The longest time for which packets go in records alone, in ms. A peer finds a record by its source address,
/// and learns of a new one from frames of the link.
pub(crate) const LINK_FRAME_EVERY: u64 = 200;

/// Makes direct records of the packets of one session.
pub(crate) struct Records<'a> {
    pub(crate) session: &'a mut Epoch,
    /// The size of the largest TCP packet that the hosts shall agree on, in bytes.
    pub(crate) max_tcp: usize,
}

impl Encapsulate for Records<'_> {
    #[inline]
    fn place<'s>(&self, splitter: &mut Splitter<'s>, slot: &mut [u8]) -> Option<Placed<'s>> {
        let room = slot.get_mut(HEADROOM + MESSAGE_BODY_OFFSET..)?;
        let len = splitter.next_into(room)?;
        let packet = room.get_mut(..len)?;
        if mss::opens_connection_full(packet) {
            mss::clamp(packet, self.max_tcp);
        }
        Some(Placed {
            len,
            end: MESSAGE_BODY_OFFSET + len,
            rest: &[],
            flags: fsp::FLAG_DIRECT,
        })
    }

    #[inline]
    fn seal(&mut self, now: u64, packet: &Placed<'_>, slot: &mut [u8]) -> Option<usize> {
        let slot = slot.get_mut(HEADROOM..)?;
        seal_session(self.session, now, packet.flags, WHOLE_PACKET, slot, packet.end)
    }
}
