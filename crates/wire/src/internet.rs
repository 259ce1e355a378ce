//! Which addresses are of the Internet: those that an exit forwards to. And where it answers for their names.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The networks of IPv4 that are not of the Internet (RFC 6890), with the lengths of their prefixes.
/// Those for documentation are not among them.
pub const LOCAL_IPV4: [(Ipv4Addr, u8); 9] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The network of IPv6 that is the Internet (RFC 4291 section 2.4), with the length of its prefix.
pub const GLOBAL_IPV6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// The port of an exit's addresses in the mesh at which members ask for names. Port 53 stays free for a DNS
/// server of its own.
pub const EXIT_NAMES: u16 = 7_353;

/// Returns whether an address is one of a single host of the Internet.
#[must_use]
pub fn is_of_internet(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => !LOCAL_IPV4
            .iter()
            .any(|(network, len)| (ip.to_bits() ^ network.to_bits()) >> (32 - len) == 0),
        IpAddr::V6(ip) => (ip.to_bits() ^ GLOBAL_IPV6.0.to_bits()) >> (128 - GLOBAL_IPV6.1) == 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subnet;

    #[test]
    fn local_and_group_addresses_are_not_of_the_internet() {
        for (of_internet, addresses) in [
            (
                true,
                "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 126.0.0.1 172.32.0.1 192.0.1.1 198.51.100.7 \
                 223.255.255.255 2000:: 2001:db8::1 3fff:ffff::1",
            ),
            (
                false,
                "0.0.0.0 0.1.2.3 10.44.0.1 100.64.0.1 127.0.0.1 127.0.0.53 169.254.169.254 172.17.0.1 192.0.0.1 \
                 192.168.9.1 192.168.9.255 224.0.0.251 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::ffff:1.1.1.1 \
                 64:ff9b::101:101 1fff:: 4000:: fc00::1 fd00::1 fe80::1 ff02::1",
            ),
        ] {
            for address in addresses.split_whitespace() {
                assert_eq!(is_of_internet(address.parse().unwrap()), of_internet, "{address}");
            }
        }
    }

    #[test]
    fn all_networks_are_subnets() {
        for (network, len) in LOCAL_IPV4 {
            assert!(Subnet::new(IpAddr::V4(network), len).is_ok(), "{network}/{len}");
        }
        assert!(Subnet::new(IpAddr::V6(GLOBAL_IPV6.0), GLOBAL_IPV6.1).is_ok());
    }
}
