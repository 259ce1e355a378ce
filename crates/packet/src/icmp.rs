//! ICMP errors that the node sends to its own host: ICMPv6 (RFC 4443), and ICMP for IPv4 packets.
//!
//! An error is never built for an ICMPv6 error, nor for a sender without a unicast address (section
//! 2.4 e). It quotes as much of the offending packet as fits into 1,280 octets.

use core::net::Ipv6Addr;

use weft_wire::checksum::{checksum_add, checksum_finish, pseudo_header_sum_v6};
use weft_wire::ip::{Ipv6Header, PROTOCOL_ICMPV6};

use crate::inner::{Inner, Version, put_be16};

mod v4;

/// The largest error packet in octets: the smallest MTU of IPv6 (RFC 4443 section 2.4 c).
pub const MAX_ERROR_PACKET: usize = 1280;

const ICMP_HEADER: usize = 8;
const ICMP_CHECKSUM: usize = 2;
const HOP_LIMIT: u8 = 64;
const REDIRECT: u8 = 137;
const FIRST_INFORMATIONAL: u8 = 128;

/// The error that a packet's sender receives, with type and code of ICMPv6, and of ICMP in
/// brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// Type 1 code 0 (ICMP: 3, 0): no route to the destination.
    NoRoute,
    /// Type 1 code 1 (ICMP: 3, 13): the destination is known, and packets to it are not allowed.
    AdminProhibited,
    /// Type 1 code 3 (ICMP: 3, 1): the destination is known, and is unreachable now.
    AddressUnreachable,
    /// Type 2 (ICMP: 3, 4): the packet exceeds `mtu` octets, IP header included. In IPv6, Linux
    /// learns no path MTU below 1,280 from it; below that, TCP needs the [`mss`](crate::mss) clamp.
    PacketTooBig {
        /// The largest packet that would pass, in octets.
        mtu: u32,
    },
    /// Type 3 code 0 (ICMP: 11, 0): the hop limit was exceeded in transit.
    TimeExceeded,
}

impl IcmpError {
    fn kind_and_code(self) -> [u8; 2] {
        match self {
            Self::NoRoute => [1, 0],
            Self::AdminProhibited => [1, 1],
            Self::AddressUnreachable => [1, 3],
            Self::PacketTooBig { .. } => [2, 0],
            Self::TimeExceeded => [3, 0],
        }
    }

    /// Builds the whole IP packet that reports this error about `offending` at the front of `out`,
    /// and returns its length in octets. Its source address is `source`, and for an IPv4 packet the
    /// destination of that packet.
    ///
    /// Returns `None` if RFC 4443 or RFC 1122 forbids an error, if `offending` is not a well-formed
    /// IP packet, or if `out` has less than [`MAX_ERROR_PACKET`] octets and the error needs more.
    /// The caller asks an [`ErrorLimiter`] first.
    pub fn build(self, source: Ipv6Addr, offending: &[u8], out: &mut [u8]) -> Option<usize> {
        let inner = Inner::parse(offending).ok()?;
        if inner.version() == Version::V4 {
            return self.build_v4(&inner, out);
        }
        let offended = Ipv6Header::parse(inner.packet()).ok()?;
        if !self.may_answer(&offended, &inner) {
            return None;
        }
        let quoted = inner.packet();
        let quoted = &quoted[..quoted.len().min(MAX_ERROR_PACKET - Ipv6Header::LEN - ICMP_HEADER)];
        let len = Ipv6Header::LEN + ICMP_HEADER + quoted.len();
        let out = out.get_mut(..len)?;

        let (ip, icmp) = out.split_at_mut(Ipv6Header::LEN);
        ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, PROTOCOL_ICMPV6, HOP_LIMIT]);
        put_be16(ip, Ipv6Header::PAYLOAD_LEN_AT, icmp.len() as u16);
        ip[8..24].copy_from_slice(&source.octets());
        ip[24..40].copy_from_slice(&offended.src().octets());

        let mtu = if let Self::PacketTooBig { mtu } = self { mtu } else { 0 };
        icmp[..2].copy_from_slice(&self.kind_and_code());
        icmp[2..4].fill(0);
        icmp[4..8].copy_from_slice(&mtu.to_be_bytes());
        icmp[ICMP_HEADER..].copy_from_slice(quoted);
        let pseudo = pseudo_header_sum_v6(source, offended.src(), PROTOCOL_ICMPV6, icmp.len() as u32);
        put_be16(icmp, ICMP_CHECKSUM, checksum_finish(checksum_add(pseudo, icmp)));
        Some(len)
    }

    /// RFC 4443 section 2.4 (e). Path MTU discovery works for multicast, so Packet Too Big may
    /// answer it.
    fn may_answer(self, ip: &Ipv6Header<'_>, inner: &Inner<'_>) -> bool {
        let source = ip.src();
        let unicast_source = !source.is_multicast() && !source.is_unspecified();
        let too_big = matches!(self, Self::PacketTooBig { .. });
        let to_multicast = ip.dst().is_multicast() && !too_big;
        unicast_source && !to_multicast && !is_icmp_error(inner)
    }
}

/// Returns whether this is an ICMPv6 error or a redirect, or may be one as far as the packet shows.
fn is_icmp_error(inner: &Inner<'_>) -> bool {
    if inner.protocol() != PROTOCOL_ICMPV6 {
        return false;
    }
    match inner.transport().first() {
        Some(&kind) if !inner.is_later_fragment() => kind < FIRST_INFORMATIONAL || kind == REDIRECT,
        _ => true,
    }
}

/// A token bucket that bounds the rate of a node's errors (RFC 4443 section 2.4 f).
#[derive(Debug, Clone)]
pub struct ErrorLimiter {
    /// Thousandths of an error, so that one millisecond adds `per_second` of them.
    tokens: u64,
    burst: u64,
    per_second: u64,
    updated_ms: u64,
}

/// One error, in the unit of [`ErrorLimiter`]'s tokens.
const ONE: u64 = 1000;

/// A burst of 50 and 100 per second, from time zero.
impl Default for ErrorLimiter {
    fn default() -> Self {
        Self::new(50, 100, 0)
    }
}

impl ErrorLimiter {
    /// Makes a full bucket at `now_ms`: `burst` errors at once, `per_second` in the long run.
    pub fn new(burst: u32, per_second: u32, now_ms: u64) -> Self {
        let burst = u64::from(burst) * ONE;
        Self {
            tokens: burst,
            burst,
            per_second: u64::from(per_second),
            updated_ms: now_ms,
        }
    }

    /// Returns whether one more error may be sent at `now_ms` (milliseconds of a monotonic clock),
    /// and counts it if so. A clock that went back adds nothing.
    pub fn allow(&mut self, now_ms: u64) -> bool {
        let elapsed = now_ms.saturating_sub(self.updated_ms);
        self.updated_ms = self.updated_ms.max(now_ms);
        self.tokens = self
            .tokens
            .saturating_add(elapsed.saturating_mul(self.per_second))
            .min(self.burst);
        let allowed = self.tokens >= ONE;
        if allowed {
            self.tokens -= ONE;
        }
        allowed
    }
}
