//! The IPv6 shim: an IPv6 header as 7 bytes, since both ends know the rest.
//!
//! Source: FIPS wire-formats, "IPv6 Shim Payload Format", and `upper/ipv6_shim.rs`. The shim is the
//! service payload on port [`IPV6_SHIM_PORT`](crate::session::IPV6_SHIM_PORT). FIPS's text gives
//! format 0 as traffic class (1 byte) and flow label (3 bytes, big-endian). The FIPS daemon copies
//! the first four bytes of the IPv6 header unchanged, including the version nibble; it writes the
//! version 6 and reads any, so the traffic class straddles two bytes. The upper layer runs to the
//! end of the payload, whatever the length field of the IPv6 header was.

use core::net::Ipv6Addr;

use crate::WireError;
use crate::cursor::{Reader, len_u16, put};
use crate::fmp::{LINK_OVERHEAD, TAG_LEN};
use crate::fsp::{EncryptedHeader, FspInner};
use crate::ip::Ipv6Header;
use crate::link::SessionDatagram;
use crate::session::DataPorts;

/// The one format in use: compressed, without addresses and length.
pub const FORMAT_COMPRESSED: u8 = 0;
/// Bytes that compression removes from a packet.
pub const SAVED: usize = Ipv6Header::LEN - ShimHeader::LEN;

/// Bytes that a link and a session add to a session body: FIPS's `FIPS_OVERHEAD`, 106.
pub const SESSION_OVERHEAD: usize =
    LINK_OVERHEAD + SessionDatagram::HEADER_LEN + EncryptedHeader::LEN + FspInner::LEN + TAG_LEN;
/// Bytes that the mesh adds to an IPv6 packet: FIPS's `FIPS_IPV6_OVERHEAD`, 77. With a transport
/// MTU of 1,280 an IPv6 packet may have 1,203 bytes.
pub const IPV6_OVERHEAD: usize = SESSION_OVERHEAD + DataPorts::LEN - SAVED;

/// The fields of an IPv6 header that the shim keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShimHeader {
    /// Differentiated services and ECN.
    pub traffic_class: u8,
    /// The flow label, 20 bits; higher ones are not written.
    pub flow_label: u32,
    /// The protocol of the upper layer.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
}

impl ShimHeader {
    /// Bytes on the wire, the format byte included.
    pub const LEN: usize = 7;

    /// Splits a service payload into this header and the upper layer. Like the FIPS daemon, it
    /// accepts any version nibble; [`ShimHeader::to_bytes`] writes 6.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::UnknownShimFormat`].
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut r = Reader::new(payload);
        let [format, a, b, c, d, next_header, hop_limit] = *r.array_ref()?;
        if format != FORMAT_COMPRESSED {
            return Err(WireError::UnknownShimFormat(format));
        }
        let first = u32::from_be_bytes([a, b, c, d]);
        let [traffic_class, ..] = (first << 4).to_be_bytes();
        let flow_label = first & 0x000f_ffff;
        let header = Self {
            traffic_class,
            flow_label,
            next_header,
            hop_limit,
        };
        Ok((header, r.rest()))
    }

    /// Returns the header in wire format.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; Self::LEN] {
        let class = (self.traffic_class as u32) << 20;
        let [a, b, c, d] = (6 << 28 | class | self.flow_label & 0x000f_ffff).to_be_bytes();
        [FORMAT_COMPRESSED, a, b, c, d, self.next_header, self.hop_limit]
    }

    /// Writes the header and returns [`ShimHeader::LEN`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        put(out, &self.to_bytes())
    }
}

/// Turns the IPv6 header at `buf[at..at + 40]` into a shim right before the upper layer, which
/// stays in place. Returns the offset of the shim: `at + 33`. The bytes between become free.
///
/// # Errors
/// [`WireError::TooShort`] if there are less than 40 bytes from `at`,
/// [`WireError::WrongIpVersion`]. The buffer is then unchanged.
pub fn compress_in_place(buf: &mut [u8], at: usize) -> Result<usize, WireError> {
    let got = buf.len().saturating_sub(at);
    let header = buf
        .get_mut(at..)
        .and_then(|packet| packet.first_chunk_mut::<{ Ipv6Header::LEN }>())
        .ok_or(WireError::TooShort {
            needed: Ipv6Header::LEN,
            got,
        })?;
    let [a, b, c, d, _, _, next_header, hop_limit, ..] = *header;
    if a >> 4 != 6 {
        return Err(WireError::WrongIpVersion(a >> 4));
    }
    let shim = [FORMAT_COMPRESSED, a, b, c, d, next_header, hop_limit];
    header[SAVED..].copy_from_slice(&shim);
    Ok(at + SAVED)
}

/// Turns the shim at `buf[at..at + 7]` into an IPv6 header that ends where the shim ended; the
/// upper layer, which runs to the end of `buf`, stays in place. Returns the offset of the packet:
/// `at - 33`.
///
/// # Errors
/// [`WireError::TooShort`] if there are less than 7 bytes from `at`,
/// [`WireError::UnknownShimFormat`], [`WireError::NoHeadroom`] if `at` is below 33, and
/// [`WireError::TooLong`] for an upper layer above 65,535 bytes, whose length the FIPS daemon would
/// cut to 16 bits. The buffer is then unchanged.
pub fn expand_in_place(buf: &mut [u8], at: usize, src: Ipv6Addr, dst: Ipv6Addr) -> Result<usize, WireError> {
    let payload = buf.get(at..).unwrap_or_default();
    let Some((shim, upper)) = payload.split_first_chunk::<{ ShimHeader::LEN }>() else {
        return Err(WireError::TooShort {
            needed: ShimHeader::LEN,
            got: payload.len(),
        });
    };
    let [format, a, b, c, d, next_header, hop_limit] = *shim;
    if format != FORMAT_COMPRESSED {
        return Err(WireError::UnknownShimFormat(format));
    }
    let [high, low] = len_u16(upper.len())?.to_be_bytes();
    let no_headroom = WireError::NoHeadroom { needed: SAVED, got: at };
    let start = at.checked_sub(SAVED).ok_or(no_headroom)?;
    let header = buf
        .get_mut(start..)
        .and_then(|packet| packet.first_chunk_mut::<{ Ipv6Header::LEN }>())
        .ok_or(no_headroom)?;
    header[..8].copy_from_slice(&[0x60 | a & 0x0f, b, c, d, high, low, next_header, hop_limit]);
    header[8..24].copy_from_slice(&src.octets());
    header[24..].copy_from_slice(&dst.octets());
    Ok(start)
}
