//! The same errors about IPv4 packets (RFC 792, RFC 1122 section 3.2.2, RFC 1812 section 4.3.2).

use core::net::Ipv4Addr;

use weft_wire::checksum::{checksum_add, checksum_finish};
use weft_wire::ip::{Ipv4Header, PROTOCOL_ICMP};

use super::{HOP_LIMIT, ICMP_CHECKSUM, ICMP_HEADER, IcmpError};
use crate::inner::{Inner, finish_header_v4, put_be16};

/// The largest error packet in octets (RFC 1812 section 4.3.2.3).
const MAX_ERROR_PACKET: usize = 576;
/// The precedence of internetwork control (RFC 1812 section 4.3.2.5).
const CONTROL: u8 = 0xc0;
/// The packet may not be fragmented, so it needs no identification (RFC 6864 section 4.1).
const DONT_FRAGMENT: u16 = 0x4000;

impl IcmpError {
    fn kind_and_code_v4(self) -> [u8; 2] {
        match self {
            Self::NoRoute => [3, 0],
            Self::AdminProhibited => [3, 13],
            Self::AddressUnreachable => [3, 1],
            Self::PacketTooBig { .. } => [3, 4],
            Self::TimeExceeded => [11, 0],
        }
    }

    /// Builds the packet at the front of `out` and returns its length in octets.
    ///
    /// Its source is the destination of the offending packet: the host itself may have no IPv4
    /// address, and Linux drops what it receives from an address of its own (`accept_local`).
    pub(super) fn build_v4(self, inner: &Inner<'_>, out: &mut [u8]) -> Option<usize> {
        let ip = Ipv4Header::parse(inner.packet()).ok()?;
        if !may_answer(&ip, inner) {
            return None;
        }
        let most = MAX_ERROR_PACKET - Ipv4Header::MIN_LEN - ICMP_HEADER;
        let quoted = &inner.packet()[..inner.packet().len().min(most)];
        let len = Ipv4Header::MIN_LEN + ICMP_HEADER + quoted.len();
        let (header, icmp) = out.get_mut(..len)?.split_at_mut(Ipv4Header::MIN_LEN);
        header.fill(0);
        header[..2].copy_from_slice(&[0x45, CONTROL]);
        put_be16(header, Ipv4Header::TOTAL_LEN_AT, len as u16);
        put_be16(header, Ipv4Header::FLAGS_AT, DONT_FRAGMENT);
        header[Ipv4Header::TTL_AT] = HOP_LIMIT;
        header[Ipv4Header::PROTOCOL_AT] = PROTOCOL_ICMP;
        header[Ipv4Header::SRC_AT..][..4].copy_from_slice(&ip.dst().octets());
        header[Ipv4Header::SRC_AT + 4..].copy_from_slice(&ip.src().octets());
        finish_header_v4(header);

        let mtu = if let Self::PacketTooBig { mtu } = self { mtu } else { 0 };
        icmp[..ICMP_HEADER].fill(0);
        icmp[..2].copy_from_slice(&self.kind_and_code_v4());
        // RFC 1191 section 4.
        put_be16(icmp, 6, u16::try_from(mtu).unwrap_or(u16::MAX));
        icmp[ICMP_HEADER..].copy_from_slice(quoted);
        put_be16(icmp, ICMP_CHECKSUM, checksum_finish(checksum_add(0, icmp)));
        Some(len)
    }
}

fn may_answer(ip: &Ipv4Header<'_>, inner: &Inner<'_>) -> bool {
    let group = |address: Ipv4Addr| address.is_multicast() || address.is_broadcast();
    // Addresses of class E and of "this network" belong to no host, and loopback addresses are not
    // on any wire.
    let source = ip.src();
    let nobody = source.octets()[0] == 0 || source.octets()[0] >= 240 || source.is_loopback();
    !nobody && !group(source) && !group(ip.dst()) && !inner.is_later_fragment() && !is_icmp_error(inner)
}

/// Returns whether this is an ICMP error, a redirect, or of a type that is not known as a request
/// or an answer.
fn is_icmp_error(inner: &Inner<'_>) -> bool {
    let asks_or_answers = |kind: &u8| matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43);
    inner.protocol() == PROTOCOL_ICMP && !inner.transport().first().is_some_and(asks_or_answers)
}
