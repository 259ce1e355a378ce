//! IP networks: an address and a prefix length.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A network of either IP version (RFC 4632, RFC 4291 section 2.3). All bits behind the prefix are
/// zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

/// The reason why a text or an address with prefix is not a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNetwork {
    /// Not of the form address, slash, number.
    Form,
    /// The prefix is longer than the address.
    PrefixLen,
    /// Bits are set behind the prefix; the value is the network with these cleared.
    HostBits(Network),
}

impl Network {
    /// The network with this address and prefix.
    ///
    /// # Errors
    /// [`BadNetwork::PrefixLen`], [`BadNetwork::HostBits`].
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<Self, BadNetwork> {
        let network = Self::around(address, prefix_len).ok_or(BadNetwork::PrefixLen)?;
        if network.address == address {
            Ok(network)
        } else {
            Err(BadNetwork::HostBits(network))
        }
    }

    /// The network of this prefix length that contains an address; `None` if the prefix is longer
    /// than the address.
    #[must_use]
    pub fn around(address: IpAddr, prefix_len: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(ip) if prefix_len <= 32 => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) if prefix_len <= 128 => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
            _ => return None,
        };
        Some(Self { address, prefix_len })
    }

    /// The network of one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let prefix_len = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix_len }
    }

    /// The first address of the network.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let around = Self::around(address, self.prefix_len);
        around.is_some_and(|around| around == *self)
    }

    /// Whether two networks have an address in common: one contains the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl FromStr for Network {
    type Err = BadNetwork;

    /// Parses `10.1.0.0/16` or `2001:db8::/32`; the slash is required.
    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let (address, prefix_len) = split(text)?;
        Self::new(address, prefix_len)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Splits a text into address and prefix length, without a check that they go together.
///
/// # Errors
/// [`BadNetwork::Form`], [`BadNetwork::PrefixLen`].
pub fn split(text: &str) -> Result<(IpAddr, u8), BadNetwork> {
    let (address, prefix_len) = text.split_once('/').ok_or(BadNetwork::Form)?;
    let address: IpAddr = address.parse().map_err(|_| BadNetwork::Form)?;
    if prefix_len.is_empty() || !prefix_len.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadNetwork::Form);
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix_len: Option<u8> = prefix_len.parse().ok().filter(|len| *len <= most);
    Ok((address, prefix_len.ok_or(BadNetwork::PrefixLen)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::string::ToString as _;

    use super::*;

    /// A model that compares bit by bit.
    fn inside(address: u128, network: u128, prefix_len: u8, bits: u32) -> bool {
        (0..u32::from(prefix_len)).all(|i| {
            let bit = 1 << (bits - 1 - i);
            address & bit == network & bit
        })
    }

    proptest! {
        #[test]
        fn contains_is_bit_by_bit(a: u32, b: u32, near in 0_u32..33, prefix_len in 0_u8..33) {
            // Addresses that agree in their first bits test more than random ones.
            let b = if near == 32 { a } else { a ^ (b >> near) };
            let network = Network::around(IpAddr::V4(a.into()), prefix_len).unwrap();
            prop_assert_eq!(network.contains(IpAddr::V4(b.into())), inside(b.into(), a.into(), prefix_len, 32));
            prop_assert!(!network.contains(IpAddr::V6(u128::from(a).into())));
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }

        #[test]
        fn contains_is_bit_by_bit_in_ipv6(a: u128, b: u128, near in 0_u32..128, prefix_len in 0_u8..129) {
            let b = a ^ (b >> near);
            let network = Network::around(IpAddr::V6(a.into()), prefix_len).unwrap();
            prop_assert_eq!(network.contains(IpAddr::V6(b.into())), inside(b, a, prefix_len, 128));
            prop_assert_eq!(network.to_string().parse(), Ok(network));
        }
    }

    #[test]
    fn what_is_a_network() {
        let of = |text: &str| text.parse::<Network>();
        let n = of("10.1.0.0/16").unwrap();
        assert!(n.contains("10.1.255.1".parse().unwrap()) && !n.contains("10.2.0.0".parse().unwrap()));
        assert_eq!(of("10.1.0.1/16"), Err(BadNetwork::HostBits(n)));
        assert_eq!(of("10.1.0.0/33"), Err(BadNetwork::PrefixLen));
        assert_eq!(of("::/129"), Err(BadNetwork::PrefixLen));
        for text in [
            "10.1.0.0",
            "10.1.0.0/",
            "10.1.0.0/+8",
            "10.1/16",
            "/8",
            "x/8",
            "::1/8/8",
        ] {
            assert_eq!(of(text), Err(BadNetwork::Form), "{text}");
        }
        assert!(of("0.0.0.0/0").unwrap().contains(Ipv4Addr::BROADCAST.into()));
        assert!(n.overlaps(&of("10.0.0.0/8").unwrap()) && of("10.0.0.0/8").unwrap().overlaps(&n));
        assert!(!n.overlaps(&of("10.2.0.0/16").unwrap()) && !n.overlaps(&of("::/0").unwrap()));
        assert_eq!(Network::host("::1".parse().unwrap()), of("::1/128").unwrap());
    }
}
