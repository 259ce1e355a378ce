//! Addresses of IPv4 for a node that has IPv6 alone, in a network with NAT64 (RFC 6146): each has an
//! IPv6 address that contains it.
//!
//! Only the well-known prefix counts (RFC 6052, section 2.1). No neighbour or server can name another
//! one, so that none can lead probes for addresses of IPv4 into a network of its own.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The first 96 bits of the addresses: `64:ff9b::/96`. The other 32 are the IPv4 address.
const WELL_KNOWN: u128 = 0x0064_ff9b << 96;
/// The bits of the IPv4 address.
const V4: u128 = 0xffff_ffff;

/// What a node knows about NAT64 in its network.
#[derive(Debug, Default)]
pub struct Nat64 {
    /// A link went through it.
    works: bool,
    /// The host has an address of IPv4, which goes before.
    has_ipv4: bool,
}

impl Nat64 {
    /// Notes the address of a link that is up. A link to an address that contains one of IPv4 shows
    /// that the network has NAT64.
    pub fn note_link(&mut self, at: SocketAddr) {
        self.works |= contained(at).is_some();
    }

    /// Notes whether the host has an address of IPv4 that other hosts may reach.
    pub fn set_ipv4(&mut self, has_ipv4: bool) {
        self.has_ipv4 = has_ipv4;
    }

    /// Returns where a datagram for this address is sent to.
    #[must_use]
    pub fn outward(&self, at: SocketAddr) -> SocketAddr {
        match at.ip() {
            IpAddr::V4(ip) if self.is_used() => {
                let bits = WELL_KNOWN | u128::from(ip.to_bits());
                SocketAddr::from((Ipv6Addr::from_bits(bits), at.port()))
            }
            _ => at,
        }
    }

    /// Returns the address of the sender of a datagram from this one, as other nodes name it.
    #[must_use]
    pub fn inward(&self, at: SocketAddr) -> SocketAddr {
        contained(at).filter(|_| self.is_used()).unwrap_or(at)
    }

    fn is_used(&self) -> bool {
        self.works && !self.has_ipv4
    }
}

/// The address of IPv4 that is contained in this one.
pub(crate) fn contained(at: SocketAddr) -> Option<SocketAddr> {
    let SocketAddr::V6(v6) = at else { return None };
    let bits = v6.ip().to_bits();
    // With a flow label it is no address of the network (`weft_contract::SocketId`).
    let is_contained = bits & !V4 == WELL_KNOWN && v6.flowinfo() == 0;
    is_contained.then(|| SocketAddr::from(((bits as u32).to_be_bytes(), v6.port())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_translated_only_for_ipv6_only_nodes_with_nat64() {
        let [v4, v6] = [at("11.0.0.7:2121"), at("[64:ff9b::b00:7]:2121")];
        let mut nat64 = Nat64::default();
        nat64.note_link(at("[2d00:11::7]:2121"));
        nat64.note_link(v4);
        assert_eq!((nat64.outward(v4), nat64.inward(v6)), (v4, v6), "no sign of NAT64");
        nat64.note_link(v6);
        assert_eq!((nat64.outward(v4), nat64.inward(v6)), (v6, v4));
        for other in ["[2d00:11::7]:1", "[64:ff9b:1::b00:7]:1", "[64:ff9b::1:b00:7]:1"] {
            assert_eq!(
                (nat64.outward(at(other)), nat64.inward(at(other))),
                (at(other), at(other))
            );
        }
        nat64.set_ipv4(true);
        assert_eq!((nat64.outward(v4), nat64.inward(v6)), (v4, v6), "IPv4 goes before");
    }

    #[test]
    fn a_contained_address_is_judged_as_itself() {
        let mut nat64 = Nat64::default();
        nat64.note_link(at("[64:ff9b::b00:7]:2121"));
        let loopback = nat64.inward(at("[64:ff9b::7f00:1]:2121"));
        assert_eq!(loopback, at("127.0.0.1:2121"));
        assert!(crate::candidate::check(loopback).is_err());
    }
}
