//! Transport checksums that are left to the kernel: fast frames authenticate the packet, so the sum
//! is completed only when a packet leaves for another host.
//!
//! This applies only to a TCP or UDP header right behind an IP header without options. Any other
//! packet has a full sum.

use weft_wire::checksum::{checksum_add, checksum_finish, checksum_fold};
use weft_wire::ip::{Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use weft_wire::transport::{TcpHeader, UdpHeader};

use crate::inner::{ADDRESSES, Inner, put_be16};

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum is complete, or the packet has none.
    Full,
    /// The field has the sum of the pseudo-header. The kernel completes it if the packet is passed
    /// on.
    Partial,
}

/// Returns the offset of the checksum in the header of this protocol, or `None` for another
/// protocol.
pub(crate) fn field_of(protocol: u8) -> Option<usize> {
    match protocol {
        PROTOCOL_TCP => Some(TcpHeader::CHECKSUM_AT),
        PROTOCOL_UDP => Some(UdpHeader::CHECKSUM_AT),
        _ => None,
    }
}

/// Returns the offset in the packet of a checksum that may be left out, or `None` for a packet that
/// must have a full one.
pub(crate) fn elidable(inner: &Inner<'_>) -> Option<usize> {
    if !inner.is_plain() || inner.is_fragment() {
        return None;
    }
    let whole = match inner.protocol() {
        PROTOCOL_TCP => inner.tcp().is_some(),
        _ => inner.transport().len() >= UdpHeader::LEN,
    };
    field_of(inner.protocol())
        .filter(|_| whole)
        .map(|at| inner.transport_start() + at)
}

/// Writes the sum of the pseudo-header to the checksum field, as the kernel expects it in a packet
/// that is [`Checksum::Partial`]. `packet` has an IPv6 header whose length is correct. Returns
/// false for a packet that cannot be partial, which is then unchanged.
pub(crate) fn start(packet: &mut [u8]) -> bool {
    let Some((header, transport)) = packet.split_first_chunk_mut::<{ Ipv6Header::LEN }>() else {
        return false;
    };
    let protocol = header[Ipv6Header::NEXT_HEADER_AT];
    let whole = match protocol {
        PROTOCOL_TCP => TcpHeader::parse(transport).is_ok(),
        _ => transport.len() >= UdpHeader::LEN,
    };
    let Some(at) = field_of(protocol).filter(|_| whole) else {
        return false;
    };
    let sum = begun(&header[ADDRESSES], protocol, transport.len());
    put_be16(transport, at, sum);
    true
}

/// Like [`start`], for an unchecked packet of either IP version. Also returns false if its lengths
/// are not those of its headers.
pub(crate) fn start_full(packet: &mut [u8]) -> bool {
    let found = Inner::parse(packet).ok().and_then(|inner| {
        let at = elidable(&inner)?;
        Some((at, begun(inner.addresses(), inner.protocol(), inner.transport().len())))
    });
    if let Some((at, sum)) = found {
        put_be16(packet, at, sum);
    }
    found.is_some()
}

/// Returns the sum of a pseudo-header: both addresses, the protocol, and the length in bytes of
/// what follows the headers. The kernel expects it in the field of a checksum that it has to
/// complete.
pub(crate) fn begun(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    checksum_fold(checksum_add(0, addresses) + u64::from(protocol) + length as u64)
}

/// Completes the checksum of a packet that is [`Checksum::Partial`], as the kernel would. Packets
/// that cannot be partial stay unchanged.
pub fn complete(packet: &mut [u8]) {
    let found = Inner::parse(packet).ok().and_then(|inner| {
        let (at, protocol) = (elidable(&inner)?, inner.protocol());
        let sum = checksum_finish(checksum_add(0, inner.transport()));
        // Zero would mean that there is no checksum (RFC 8200 section 8.1).
        let sum = if sum == 0 && protocol == PROTOCOL_UDP {
            0xffff
        } else {
            sum
        };
        Some((at, sum))
    });
    if let Some((at, sum)) = found {
        put_be16(packet, at, sum);
    }
}
