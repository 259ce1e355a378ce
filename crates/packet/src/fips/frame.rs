//! Sealing FIPS frames in place, in the buffer that is sent.
//!
//! A data frame nests link header, session datagram, session header and the IPv6 shim. Their
//! lengths are fixed, so the IPv6 packet is written once at [`IP_OFFSET`] of its slot and wrapped
//! in place.

use weft_contract::LaneConfig;
use weft_noise::aead::TAG_LEN;
use weft_wire::fast::HEADROOM;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session::{DataPorts, SessionMessageType, WHOLE_PACKET};
use weft_wire::shim::{self, ShimHeader};
use weft_wire::{CoordsPair, NodeAddr, fmp, fsp};

use super::epoch::{Epoch, Epochs};
use crate::encapsulate::{Encapsulate, Placed};
use crate::mss;
use crate::split::Splitter;

/// The offset of the FSP message in a frame: behind link header, inner header and session datagram
/// header.
const FSP_OFFSET: usize = fmp::EstablishedHeader::LEN + fmp::InnerHeader::LEN + SessionDatagram::HEADER_LEN;
/// The offset of a session message's body in a frame.
const BODY_OFFSET: usize = FSP_OFFSET + MESSAGE_BODY_OFFSET;
/// The offset of the upper-layer payload of an IPv6 packet in a frame.
const UPPER_OFFSET: usize = BODY_OFFSET + DataPorts::LEN + ShimHeader::LEN;
/// The offset at which an IPv6 packet is written in its slot, so that its payload is at its place
/// in the frame.
const IP_OFFSET: usize = UPPER_OFFSET - IPV6_HEADER;
const IPV6_HEADER: usize = 40;

/// The bytes that a frame adds to an IPv6 packet: 77 (FIPS wire-formats, "Overhead Budget").
pub const IPV6_OVERHEAD: usize = IP_OFFSET + 2 * TAG_LEN;
const _: () = assert!(IPV6_OVERHEAD == shim::IPV6_OVERHEAD);
/// The bytes that a frame adds to the body of a session message.
pub(crate) const SESSION_OVERHEAD: usize = BODY_OFFSET + 2 * TAG_LEN;

/// The two nodes of a session, as its frames name them.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) src: NodeAddr,
    pub(crate) dest: NodeAddr,
    /// The UDP payload limit of the first hop, in bytes.
    pub(crate) path_mtu: u16,
}

impl Ends {
    /// Returns the addresses and the size for frames of this node to `dest`.
    pub(crate) fn of(config: &LaneConfig, dest: NodeAddr) -> Self {
        Self {
            src: config.me,
            dest,
            path_mtu: config.mtu,
        }
    }
}

/// Makes FIPS frames of the packets of one session. `WHOLE`: the frames have the packets with their whole
/// header, as nodes of nvpn read them.
pub(crate) struct FipsFrames<'a, const WHOLE: bool> {
    pub(crate) layers: Layers<'a>,
    pub(crate) ends: Ends,
    /// The size of the largest TCP packet that the hosts shall agree on, in bytes.
    pub(crate) max_tcp: usize,
}

impl<const WHOLE: bool> FipsFrames<'_, WHOLE> {
    /// The offset at which a packet is written in its slot.
    const PACKET_OFFSET: usize = if WHOLE { BODY_OFFSET } else { IP_OFFSET };
    /// The bytes that a frame adds to a packet.
    pub(crate) const OVERHEAD: usize = if WHOLE { SESSION_OVERHEAD } else { IPV6_OVERHEAD };
}

impl<const WHOLE: bool> Encapsulate for FipsFrames<'_, WHOLE> {
    #[inline]
    fn place<'s>(&self, splitter: &mut Splitter<'s>, slot: &mut [u8]) -> Option<Placed<'s>> {
        let room = slot.get_mut(HEADROOM + Self::PACKET_OFFSET..)?;
        let len = splitter.next_into(room)?;
        let packet = room.get_mut(..len)?;
        let opens = if WHOLE {
            mss::opens_connection_full
        } else {
            mss::opens_connection
        };
        if opens(packet) {
            mss::clamp(packet, self.max_tcp);
        }
        Some(Placed {
            len,
            end: Self::PACKET_OFFSET + len,
            rest: &[],
            flags: 0,
        })
    }

    #[inline]
    fn seal(&mut self, now: u64, packet: &Placed<'_>, slot: &mut [u8]) -> Option<usize> {
        let slot = slot.get_mut(HEADROOM..)?;
        match WHOLE {
            true => self.layers.seal(now, self.ends, WHOLE_PACKET, slot, packet.end),
            false => self.layers.seal_ip(now, self.ends, slot, packet.len),
        }
    }
}

/// The epochs of both layers for one frame. The counters are taken when the frame is sealed.
pub(crate) struct Layers<'a> {
    pub(crate) link: &'a mut Epoch,
    pub(crate) session: &'a mut Epoch,
}

impl<'a> Layers<'a> {
    /// Returns the epochs that seal: of the session the one with this number, or the present one.
    pub(crate) fn of(link: &'a mut Epochs, session: &'a mut Epochs, id: Option<u32>) -> Option<Self> {
        Some(Self {
            link: link.current_mut()?,
            session: session.pick_mut(id)?,
        })
    }

    /// Wraps the IPv6 packet of `ip_len` bytes at [`IP_OFFSET`] of `slot` and returns the length of
    /// the frame, or `None` if an epoch has no counter left.
    pub(crate) fn seal_ip(&mut self, now: u64, ends: Ends, slot: &mut [u8], ip_len: usize) -> Option<usize> {
        let shim_at = shim::compress_in_place(slot, IP_OFFSET).ok()?;
        slot[BODY_OFFSET..shim_at].copy_from_slice(&DataPorts::IPV6_SHIM.to_bytes());
        self.seal(now, ends, SessionMessageType::Data.to_byte(), slot, IP_OFFSET + ip_len)
    }

    /// Writes and seals a session message and returns the length of the frame.
    pub(crate) fn seal_message(
        &mut self,
        now: u64,
        ends: Ends,
        msg_type: u8,
        body: &[u8],
        slot: &mut [u8],
    ) -> Option<usize> {
        let end = BODY_OFFSET + body.len();
        slot.get_mut(BODY_OFFSET..end)?.copy_from_slice(body);
        self.seal(now, ends, msg_type, slot, end)
    }

    /// Seals both layers around the body that ends at `end`.
    fn seal(&mut self, now: u64, ends: Ends, msg_type: u8, slot: &mut [u8], end: usize) -> Option<usize> {
        let message = slot.get_mut(FSP_OFFSET..)?;
        let len = seal_session(self.session, now, 0, msg_type, message, end - FSP_OFFSET)?;
        self.seal_datagram(now, ends, slot, FSP_OFFSET + len)
    }

    /// Writes a session message with coordinates in the clear between the session header and what is
    /// sealed.
    pub(crate) fn seal_with_coords(
        &mut self,
        now: u64,
        ends: Ends,
        coords: CoordsPair<'_>,
        (msg_type, body): (u8, &[u8]),
        slot: &mut [u8],
    ) -> Option<usize> {
        let counter = self.session.next_counter()?;
        let key_bit = if self.session.key_bit { fsp::FLAG_KEY_EPOCH } else { 0 };
        let header = fsp::EncryptedHeader {
            flags: key_bit | fsp::FLAG_COORDS,
            payload_len: (fsp::FspInner::LEN + body.len()) as u16,
            counter,
        }
        .to_bytes();
        let coords_at = FSP_OFFSET + fsp::EncryptedHeader::LEN;
        let plain_at = coords_at + coords.emit(slot.get_mut(coords_at..)?).ok()?;
        let body_at = plain_at + fsp::FspInner::LEN;
        let end = body_at + body.len();
        let inner = fsp::FspInner {
            timestamp: self.session.timestamp(now),
            msg_type,
            inner_flags: spin(self.session.spin),
        };
        slot.get_mut(body_at..end)?.copy_from_slice(body);
        slot.get_mut(plain_at..body_at)?.copy_from_slice(&inner.to_bytes());
        let tag = self.session.seal(counter, &header, &mut slot[plain_at..end])?;
        slot.get_mut(end..end + TAG_LEN)?.copy_from_slice(&tag);
        slot[FSP_OFFSET..coords_at].copy_from_slice(&header);
        self.seal_datagram(now, ends, slot, end + TAG_LEN)
    }

    /// Writes the header of the session datagram in front of a sealed session message that ends at
    /// `end`, and seals the link layer.
    fn seal_datagram(&mut self, now: u64, ends: Ends, slot: &mut [u8], end: usize) -> Option<usize> {
        let datagram = SessionDatagram {
            ttl: SessionDatagram::DEFAULT_TTL,
            path_mtu: ends.path_mtu,
            src: ends.src,
            dest: ends.dest,
            payload: &[],
        };
        slot[FSP_OFFSET - SessionDatagram::HEADER_LEN..FSP_OFFSET].copy_from_slice(&datagram.header_bytes());
        seal_link(self.link, now, 0, LinkMessageType::SessionDatagram.to_byte(), slot, end)
    }
}

/// The offset of the body of a session message in its slot, if the message is not in a frame of a link.
pub(super) const MESSAGE_BODY_OFFSET: usize = fsp::EncryptedHeader::LEN + fsp::FspInner::LEN;

/// Seals the session message whose body ends at `end` of `slot`, with these flags in addition to the epoch's
/// own, and returns its length.
#[inline]
pub(super) fn seal_session(
    session: &mut Epoch,
    now: u64,
    flags: u8,
    msg_type: u8,
    slot: &mut [u8],
    end: usize,
) -> Option<usize> {
    let plain_at = fsp::EncryptedHeader::LEN;
    let counter = session.next_counter()?;
    let key_bit = if session.key_bit { fsp::FLAG_KEY_EPOCH } else { 0 };
    let header = fsp::EncryptedHeader {
        flags: flags | key_bit,
        payload_len: (end - plain_at) as u16,
        counter,
    }
    .to_bytes();
    let inner = fsp::FspInner {
        timestamp: session.timestamp(now),
        msg_type,
        inner_flags: spin(session.spin),
    };
    slot[plain_at..MESSAGE_BODY_OFFSET].copy_from_slice(&inner.to_bytes());
    let tag = session.seal(counter, &header, slot.get_mut(plain_at..end)?)?;
    slot.get_mut(end..end + TAG_LEN)?.copy_from_slice(&tag);
    slot[..plain_at].copy_from_slice(&header);
    Some(end + TAG_LEN)
}

/// The offset of the body of a link message in its slot.
pub(crate) const LINK_BODY_OFFSET: usize = fmp::EstablishedHeader::LEN + fmp::InnerHeader::LEN;

fn spin(on: bool) -> u8 {
    if on { fsp::INNER_FLAG_SPIN } else { 0 }
}

/// Seals the link message whose body ends at `end` of `slot`, with these flags in addition to the
/// epoch's own, and returns the length of the frame.
pub(crate) fn seal_link(
    link: &mut Epoch,
    now: u64,
    flags: u8,
    msg_type: u8,
    slot: &mut [u8],
    end: usize,
) -> Option<usize> {
    let plain_at = fmp::EstablishedHeader::LEN;
    let counter = link.next_counter()?;
    let key_bit = if link.key_bit { fmp::FLAG_KEY_EPOCH } else { 0 };
    let spin = if link.spin { fmp::FLAG_SPIN } else { 0 };
    let header = fmp::EstablishedHeader {
        flags: flags | key_bit | spin,
        payload_len: (end - plain_at) as u16,
        receiver_idx: link.their_index,
        counter,
    }
    .to_bytes();
    let inner = fmp::InnerHeader {
        timestamp: link.timestamp(now),
        msg_type,
    };
    slot[plain_at..LINK_BODY_OFFSET].copy_from_slice(&inner.to_bytes());
    let tag = link.seal(counter, &header, slot.get_mut(plain_at..end)?)?;
    slot.get_mut(end..end + TAG_LEN)?.copy_from_slice(&tag);
    slot[..plain_at].copy_from_slice(&header);
    Some(end + TAG_LEN)
}
