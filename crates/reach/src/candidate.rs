//! Which addresses are probed: what is refused, and in which order the others come.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;
use weft_wire::FIPS_PREFIX;

use crate::message::{Candidate, Kind};
use crate::nat64;

/// Why an address is not probed, and not told to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum Refused {
    /// Port 0.
    #[error("its port is 0")]
    PortZero,
    /// An address of the mesh, `fd00::/8`: the tunnel would carry the datagrams that make it up.
    #[error("it is an address of the mesh")]
    Mesh,
    /// An address of this node.
    #[error("it is an address of this node")]
    Own,
    /// `0.0.0.0/8` (RFC 791: "this network") or `::`.
    #[error("it is unspecified")]
    Unspecified,
    /// `127.0.0.0/8` or `::1`.
    #[error("it is a loopback address")]
    Loopback,
    /// `255.255.255.255`. Broadcast addresses of subnets are not known here; sockets refuse those.
    #[error("it is the broadcast address")]
    Broadcast,
    /// A group of hosts.
    #[error("it is a multicast address")]
    Multicast,
    /// `169.254.0.0/16` or `fe80::/10`: the interface that it belongs to is not known.
    #[error("it is a link-local address")]
    LinkLocal,
    /// An IPv4 address as an IPv6 one: mapped, compatible (`::/96`), or of NAT64 (`64:ff9b::/96`,
    /// `64:ff9b:1::/48`), so that it has one budget in all its forms.
    #[error("it is an IPv4 address in IPv6 form")]
    Mapped,
    /// 6to4 (`2002::/16`) or Teredo (`2001::/32`), where an IPv4 host gets what is sent: it would have a second
    /// budget.
    #[error("it is an address of a tunnel through IPv4")]
    Tunnel,
    /// A candidate of a kind that this version does not know.
    #[error("its kind is not known")]
    UnknownKind,
}

/// Checks an address, apart from whether it is one of this node.
///
/// # Errors
/// [`Refused`]: the address is not probed.
pub fn check(at: SocketAddr) -> Result<(), Refused> {
    if at.port() == 0 {
        return Err(Refused::PortZero);
    }
    match at.ip() {
        IpAddr::V4(ip) => match ip.octets() {
            [0, ..] => Err(Refused::Unspecified),
            _ if ip.is_loopback() => Err(Refused::Loopback),
            _ if ip.is_broadcast() => Err(Refused::Broadcast),
            _ if ip.is_multicast() => Err(Refused::Multicast),
            _ if ip.is_link_local() => Err(Refused::LinkLocal),
            _ => Ok(()),
        },
        IpAddr::V6(ip) => match ip.octets() {
            [FIPS_PREFIX, ..] => Err(Refused::Mesh),
            _ if ip.to_ipv4_mapped().is_some() || nat64::contained(at).is_some() => Err(Refused::Mapped),
            _ if ip.is_unspecified() => Err(Refused::Unspecified),
            _ if ip.is_loopback() => Err(Refused::Loopback),
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ..] | [0, 0x64, 0xff, 0x9b, 0, 1, ..] => Err(Refused::Mapped),
            [0x20, 0x02, ..] | [0x20, 0x01, 0, 0, ..] => Err(Refused::Tunnel),
            _ if ip.is_multicast() => Err(Refused::Multicast),
            _ if ip.is_unicast_link_local() => Err(Refused::LinkLocal),
            _ => Ok(()),
        },
    }
}

/// Removes what of an IPv6 socket address never crosses the network: flow label and zone.
pub(crate) fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip(), at.port())
}

/// The unit in which the cost of an address is counted: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Prefix {
    V4(Ipv4Addr),
    V6([u8; 8]),
}

impl Prefix {
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => {
                let mut first = [0; 8];
                first.copy_from_slice(&ip.octets()[..8]);
                Self::V6(first)
            }
        }
    }
}

/// Whether two hosts may be in one subnet. Lengths of prefixes are not known here; those of most
/// local networks are 24 and 64.
fn shares_prefix(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(_), IpAddr::V6(_)) => Prefix::of(one) == Prefix::of(other),
        _ => false,
    }
}

/// Puts candidates into the order in which they are probed: first host candidates that share a
/// prefix with an address of this node in `host`, then the others, IPv6 and IPv4 in turn, each in
/// the order of the sender.
pub(crate) fn order(candidates: &mut Vec<Candidate>, host: &[SocketAddr]) {
    let near = |candidate: &Candidate| {
        candidate.kind == Kind::Host && host.iter().any(|own| shares_prefix(own.ip(), candidate.at.ip()))
    };
    let (mut ordered, far): (Vec<_>, Vec<_>) = candidates.drain(..).partition(near);
    let (v6, v4): (Vec<_>, Vec<_>) = far.into_iter().partition(|candidate| candidate.at.is_ipv6());
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    loop {
        let before = ordered.len();
        ordered.extend(v6.next());
        ordered.extend(v4.next());
        if ordered.len() == before {
            break;
        }
    }
    *candidates = ordered;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_refusal_has_its_addresses() {
        for (text, refused) in [
            ("203.0.113.9:0", Refused::PortZero),
            ("[fd12:3456::1]:2121", Refused::Mesh),
            ("0.0.0.0:2121", Refused::Unspecified),
            ("0.1.2.3:2121", Refused::Unspecified),
            ("[::]:2121", Refused::Unspecified),
            ("127.8.8.8:2121", Refused::Loopback),
            ("[::1]:2121", Refused::Loopback),
            ("255.255.255.255:2121", Refused::Broadcast),
            ("224.0.0.251:2121", Refused::Multicast),
            ("239.255.255.255:2121", Refused::Multicast),
            ("[ff02::1]:2121", Refused::Multicast),
            ("169.254.0.1:2121", Refused::LinkLocal),
            ("[fe80::1]:2121", Refused::LinkLocal),
            ("[febf::1]:2121", Refused::LinkLocal),
            ("[::ffff:192.0.2.1]:2121", Refused::Mapped),
            ("[::ffff:127.0.0.1]:2121", Refused::Mapped),
            ("[64:ff9b::c000:201]:2121", Refused::Mapped),
            ("[64:ff9b:1:2:3:4:c000:201]:2121", Refused::Mapped),
            ("[::192.0.2.1]:2121", Refused::Mapped),
            ("[::2]:2121", Refused::Mapped),
            ("[2002:c000:201::1]:2121", Refused::Tunnel),
            ("[2001:0:4136:e378::1]:2121", Refused::Tunnel),
        ] {
            assert_eq!(check(at(text)), Err(refused), "{text}");
        }
    }

    #[test]
    fn the_addresses_of_documentation_and_of_private_networks_pass() {
        for text in [
            "192.0.2.1:1",
            "198.51.100.7:2121",
            "203.0.113.9:65535",
            "[2001:db8::1]:2121",
            "10.0.0.1:2121",
            "100.64.0.1:2121",
            "192.168.1.1:2121",
            "[fc00::1]:2121",
            "223.255.255.255:2121",
            "[fec0::1]:2121",
            "[2001:db8::fd00]:2121",
            "[64:ff9b:2::1]:2121",
            "[2001:1::1]:2121",
        ] {
            assert_eq!(check(at(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn near_hosts_come_first_and_the_versions_of_ip_in_turn() {
        let of = |kind, text| Candidate { kind, at: at(text) };
        let mut candidates = vec![
            of(Kind::Observed, "203.0.113.1:1"),
            of(Kind::Observed, "192.168.7.200:2"),
            of(Kind::Host, "203.0.113.2:3"),
            of(Kind::Host, "192.168.7.9:4"),
            of(Kind::Host, "[2001:db8:1::9]:5"),
            of(Kind::Host, "[2001:db8:2::1]:6"),
            of(Kind::Mapped, "[2001:db8:1::9]:7"),
        ];
        order(&mut candidates, &[at("192.168.7.4:2121"), at("[2001:db8:1::4]:2121")]);
        let ports: Vec<_> = candidates.iter().map(|candidate| candidate.at.port()).collect();
        assert_eq!(ports, [4, 5, 6, 1, 7, 2, 3]);
    }

    #[test]
    fn a_prefix_is_an_address_of_ipv4_and_64_bits_of_ipv6() {
        let of = |text: &str| Prefix::of(text.parse().unwrap());
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }
}
