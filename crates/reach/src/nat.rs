//! What the observations of one socket say about the NATs in front of it, in the terms of RFC 4787.
//!
//! Filtering is not among it: an observation shows which address a datagram came from, and not
//! which datagrams would be let in.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// How a NAT gives outer ports to a socket behind it (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mapping {
    /// Too little was seen.
    #[default]
    Unknown,
    /// The same outer address for all destinations: peers can be told it.
    EndpointIndependent,
    /// Another one for each destination, or for each address of one.
    EndpointDependent,
    /// The socket is seen under an address of its host: no NAT translates it.
    Public,
}

impl Mapping {
    const fn bits(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::EndpointIndependent => 1,
            Self::EndpointDependent => 2,
            Self::Public => 3,
        }
    }

    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Unknown,
            1 => Self::EndpointIndependent,
            2 => Self::EndpointDependent,
            _ => Self::Public,
        }
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::EndpointIndependent => "endpoint-independent",
            Self::EndpointDependent => "endpoint-dependent",
            Self::Public => "public",
        })
    }
}

/// The mappings of a node by version of IP, as a message has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Of IPv4.
    pub v4: Mapping,
    /// Of IPv6.
    pub v6: Mapping,
    /// What is likely of IPv4 while that is unknown ([`Behaviour::likely`]). A search goes by it, and
    /// nothing else.
    pub likely: Mapping,
}

impl Mappings {
    /// Bits 0 and 1 are IPv4, 2 and 3 IPv6, 4 and 5 what is likely of IPv4; the others are reserved.
    pub(crate) const fn to_byte(self) -> u8 {
        self.v4.bits() | self.v6.bits() << 2 | self.likely.bits() << 4
    }

    pub(crate) const fn from_byte(byte: u8) -> Self {
        Self {
            v4: Mapping::from_bits(byte),
            v6: Mapping::from_bits(byte >> 2),
            likely: Mapping::from_bits(byte >> 4),
        }
    }

    /// Returns what a search goes by: the mapping of IPv4, or what it probably is.
    pub(crate) const fn of_search(self) -> Mapping {
        match self.v4 {
            Mapping::Unknown => self.likely,
            known => known,
        }
    }
}

/// What is known about the NATs of one version of IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// How outer ports are given.
    pub mapping: Mapping,
    /// What it probably is while it is unknown: of one observation of another port than the socket's,
    /// endpoint-dependent; of the same port, endpoint-independent.
    pub likely: Mapping,
    /// The outer addresses that were seen, each once, in the order in which they were seen first.
    pub outer: Vec<SocketAddr>,
    /// How far each outer port is from the one that was seen before it. Equal steps let a peer
    /// predict the next port.
    pub deltas: Vec<i32>,
}

/// Concludes from observations of one socket and one version of IP. `observed` are addresses under
/// which the socket was seen, from different observers, in the order of time; `host` are the
/// addresses of the host with the port of the socket.
///
/// Observations of private addresses do not count: such an observer is behind the same NAT, or behind
/// the outer one of two. The two kinds of NAT need two observers to be told apart. What more than half
/// of the observers see is right, as is an address of the host that half of them see: some may lie, or
/// be behind a box that translates sources.
#[must_use]
pub fn behaviour(observed: &[SocketAddr], host: &[SocketAddr]) -> Behaviour {
    let counted: Vec<SocketAddr> = observed.iter().copied().filter(|at| !is_private(at.ip())).collect();
    let mut outer: Vec<SocketAddr> = Vec::new();
    for at in &counted {
        if !outer.contains(at) {
            outer.push(*at);
        }
    }
    let observers = |seen: &dyn Fn(&SocketAddr) -> bool| counted.iter().filter(|at| seen(at)).count();
    let of_host = observers(&|at| host.contains(at));
    let most = outer
        .iter()
        .map(|outer| observers(&|at| at == outer))
        .max()
        .unwrap_or(0);
    let mapping = match counted.len() {
        0 => Mapping::Unknown,
        all if 2 * of_host >= all => Mapping::Public,
        1 => Mapping::Unknown,
        all if 2 * most > all => Mapping::EndpointIndependent,
        _ => Mapping::EndpointDependent,
    };
    let likely = match (mapping, counted.first()) {
        (Mapping::Unknown, Some(at)) if host.iter().any(|own| own.port() == at.port()) => Mapping::EndpointIndependent,
        (Mapping::Unknown, Some(_)) => Mapping::EndpointDependent,
        _ => Mapping::Unknown,
    };
    let ports = counted.windows(2).filter_map(|pair| match pair {
        [before, after] if before.ip() == after.ip() => Some(i32::from(after.port()) - i32::from(before.port())),
        _ => None,
    });
    let deltas = match mapping {
        Mapping::EndpointDependent => ports.collect(),
        _ => Vec::new(),
    };
    Behaviour {
        mapping,
        likely,
        outer,
        deltas,
    }
}

/// The largest step between two ports that prediction takes for one of the NAT's own.
const STEP: i32 = 16;

/// Returns the outer addresses that a NAT is expected to give next, at most `most`: if its ports
/// went up or down in steps of at most 16, they go on with the smallest of these steps. Connections
/// of other hosts in between make steps larger, never smaller. Observations may overtake each other,
/// and few NATs count down, so ports that went down go on in both directions in turn.
#[must_use]
pub fn predict(behaviour: &Behaviour, most: usize) -> Vec<SocketAddr> {
    let up = behaviour.deltas.iter().all(|delta| (1..=STEP).contains(delta));
    let down = behaviour.deltas.iter().all(|delta| (-STEP..=-1).contains(delta));
    let step = behaviour.deltas.iter().map(|delta| delta.abs()).min();
    let (Some(step), Some(last)) = (step.filter(|_| up || down), behaviour.outer.last()) else {
        return Vec::new();
    };
    let outer = behaviour.outer.iter().filter(|at| at.ip() == last.ip());
    let highest = outer.map(SocketAddr::port).max().unwrap_or(last.port());
    let ports = (1..=i32::from(u16::MAX)).flat_map(|n| {
        let above = i32::from(highest) + n * step;
        let below = i32::from(last.port()) - n * step;
        [Some(above), Some(below).filter(|_| down)]
    });
    let ports = ports.flatten().filter_map(|port| u16::try_from(port).ok());
    let ports = ports.filter(|port| *port > 0).take(most);
    ports.map(|port| SocketAddr::new(last.ip(), port)).collect()
}

/// Whether an address means something in a network of its own only: RFC 1918, RFC 6598 (CGNAT), what
/// does not leave a link or a host, and of IPv6 all that is outside of 2000::/3, the part of global
/// unicast that is assigned (RFC 4291, section 2.4; RFC 4193).
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private()
                || ip.is_link_local()
                || ip.is_loopback()
                || ip.is_unspecified()
                || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn seen(observed: &[&str], host: &[&str]) -> Behaviour {
        let all = |texts: &[&str]| texts.iter().map(|text| at(text)).collect::<Vec<_>>();
        behaviour(&all(observed), &all(host))
    }

    const HOST: &[&str] = &["192.168.1.2:2121", "198.51.100.1:2121"];

    #[test]
    fn observers_decide_the_kind_of_mapping() {
        for (observed, mapping) in [
            (&[][..], Mapping::Unknown),
            (&["203.0.113.1:5000"], Mapping::Unknown),
            (&["203.0.113.1:5000", "203.0.113.1:5000"], Mapping::EndpointIndependent),
            (&["203.0.113.1:5000", "203.0.113.1:5001"], Mapping::EndpointDependent),
            // A NAT with several outer addresses (RFC 4787, section 4.1: pooling "arbitrary").
            (&["203.0.113.1:5000", "203.0.113.2:5000"], Mapping::EndpointDependent),
            (&["198.51.100.1:2121"], Mapping::Public),
            (&["198.51.100.1:2121", "198.51.100.1:2121"], Mapping::Public),
            // The port of the host, but another one outside.
            (&["198.51.100.1:2122"], Mapping::Unknown),
            (&["198.51.100.1:2121", "203.0.113.1:5000"], Mapping::Public),
        ] {
            assert_eq!(seen(observed, HOST).mapping, mapping, "{observed:?}");
        }
    }

    #[test]
    fn one_liar_does_not_overrule_other_observers() {
        let lie = "192.0.2.66:666";
        for (honest, mapping) in [
            (
                &["203.0.113.1:5000", "203.0.113.1:5000"][..],
                Mapping::EndpointIndependent,
            ),
            (&["198.51.100.1:2121", "198.51.100.1:2121"], Mapping::Public),
            (&["198.51.100.1:2121"], Mapping::Public),
            (&["203.0.113.1:5000", "203.0.113.1:5001"], Mapping::EndpointDependent),
        ] {
            for at in 0..=honest.len() {
                let mut observed = honest.to_vec();
                observed.insert(at, lie);
                assert_eq!(seen(&observed, HOST).mapping, mapping, "{observed:?}");
            }
        }
    }

    #[test]
    fn one_observation_says_what_is_likely() {
        for (observed, likely) in [
            (&[][..], Mapping::Unknown),
            (&["203.0.113.1:2121"], Mapping::EndpointIndependent),
            (&["203.0.113.1:5000"], Mapping::EndpointDependent),
            (&["198.51.100.1:2121"], Mapping::Unknown),
            (&["203.0.113.1:5000", "203.0.113.1:5001"], Mapping::Unknown),
        ] {
            assert_eq!(seen(observed, HOST).likely, likely, "{observed:?}");
        }
    }

    #[test]
    fn observers_in_a_private_network_do_not_count() {
        for private in [
            "192.168.1.2:2121",
            "10.0.0.1:5",
            "172.16.0.1:5",
            "100.64.0.1:5",
            "100.127.255.255:5",
        ] {
            let one = seen(&[private, "203.0.113.1:5000"], HOST);
            assert_eq!(one.mapping, Mapping::Unknown, "{private}");
            let two = seen(&["203.0.113.1:5000", private, "203.0.113.1:5000"], HOST);
            assert_eq!(two.mapping, Mapping::EndpointIndependent, "{private}");
        }
        assert_eq!(seen(&["[fc00::1]:1"], &["[fc00::1]:1"]).mapping, Mapping::Unknown);
        for public in ["100.128.0.1:5", "100.63.0.1:5", "[2000::1]:5", "[3fff:ffff::1]:5"] {
            assert!(!is_private(at(public).ip()), "{public}");
        }
        for private in ["[fe80::1]:5", "[::1]:5", "[::]:5", "[64:ff9b::1]:5", "[4000::1]:5"] {
            assert!(is_private(at(private).ip()), "{private}");
        }
    }

    #[test]
    fn deltas_are_the_steps_of_the_ports() {
        let ports = [
            "203.0.113.1:5000",
            "203.0.113.1:5002",
            "203.0.113.1:4999",
            "203.0.113.1:5000",
        ];
        let behaviour = seen(&ports, HOST);
        assert_eq!(behaviour.deltas, [2, -3, 1]);
        assert_eq!(behaviour.outer.len(), 3);
        assert_eq!(seen(&["203.0.113.1:5000"; 3], HOST).deltas, [0; 0]);
    }

    #[test]
    fn regular_steps_go_on() {
        let ports = |ports: &[u16], most| {
            let seen: Vec<_> = ports
                .iter()
                .map(|port| SocketAddr::from(([203, 0, 113, 1], *port)))
                .collect();
            predict(&behaviour(&seen, &[]), most)
                .iter()
                .map(SocketAddr::port)
                .collect::<Vec<_>>()
        };
        assert_eq!(ports(&[5_000, 5_002], 3), [5_004, 5_006, 5_008]);
        assert_eq!(ports(&[5_000, 5_003, 5_004], 2), [5_005, 5_006]);
        assert_eq!(ports(&[5_000, 4_999], 4), [5_001, 4_998, 5_002, 4_997]);
        assert_eq!(ports(&[65_533, 65_534], 5), [65_535]);
        assert_eq!(ports(&[3, 2], 4), [4, 1, 5, 6]);
        for random in [
            &[5_000, 5_017][..],
            &[5_000, 5_001, 4_999],
            &[5_000, 5_000],
            &[5_000],
            &[],
        ] {
            assert_eq!(ports(random, 5), [0; 0], "{random:?}");
        }
    }

    #[test]
    fn a_byte_has_both_versions() {
        for byte in 0..64 {
            assert_eq!(Mappings::from_byte(byte).to_byte(), byte);
            assert_eq!(
                Mappings::from_byte(byte | 0xc0).to_byte(),
                byte,
                "reserved bits are not read"
            );
        }
    }
}
