//! Transport checksums that are left to the kernel: fast frames authenticate the packet, so the sum is completed only
//! where a packet leaves for another host.
//!
//! Only the TCP or UDP header right behind an IP header without options takes part; whatever else there is has a full sum.

use weft_wire::checksum::{checksum_add, checksum_finish, checksum_fold};
use weft_wire::ip::{Ipv6Header, PROTOCOL_TCP, PROTOCOL_UDP};
use weft_wire::transport::{TcpHeader, UdpHeader};

use crate::inner::{ADDRESSES, Inner, put_be16};

/// How much of a packet's transport checksum is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// All of it, or the packet has none.
    Full,
    /// The sum of the pseudo-header: it is completed where the packet is passed on.
    Partial,
}

/// Where the checksum of this protocol is in its header.
pub(crate) fn field_of(protocol: u8) -> Option<usize> {
    match protocol {
        PROTOCOL_TCP => Some(TcpHeader::CHECKSUM_AT),
        PROTOCOL_UDP => Some(UdpHeader::CHECKSUM_AT),
        _ => None,
    }
}

/// Where in the packet the checksum is that may be left out; `None` for a packet that must have a full one.
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

/// Writes the sum of the pseudo-header where the checksum belongs, as the kernel expects it of a packet that is
/// [`Checksum::Partial`]. `packet` has an IPv6 header whose length is right. False for a packet that cannot be partial; it
/// is then as it was.
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

/// The same for a packet of which nothing has been looked at, of either IP version. False also if its lengths are not those
/// of its headers.
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

/// The sum of a pseudo-header: both addresses, the protocol, and the length of what follows the headers in bytes. What the
/// kernel wants to find where it is to complete a checksum.
pub(crate) fn begun(addresses: &[u8], protocol: u8, length: usize) -> u16 {
    checksum_fold(checksum_add(0, addresses) + u64::from(protocol) + length as u64)
}

/// Completes the checksum of a packet that is [`Checksum::Partial`], as the kernel would. Others stay as they are.
pub fn complete(packet: &mut [u8]) {
    let found = Inner::parse(packet).ok().and_then(|inner| {
        let (at, protocol) = (elidable(&inner)?, inner.protocol());
        let sum = checksum_finish(checksum_add(0, inner.transport()));
        // Zero would say that there is none (RFC 8200 section 8.1).
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
