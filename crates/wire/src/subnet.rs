//! IP subnets: an address and a prefix length.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A subnet of either IP version (RFC 4632, RFC 4291 section 2.3). All bits behind the prefix are
/// zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet {
    address: IpAddr,
    prefix_len: u8,
}

/// The reason why a text or an address with prefix is not a [`Subnet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSubnet {
    /// Not of the form address, slash, number.
    Form,
    /// The prefix is longer than the address.
    PrefixLen,
    /// Bits are set behind the prefix; the value is the subnet with these cleared.
    HostBits(Subnet),
}

impl Subnet {
    /// The subnet with this address and prefix.
    ///
    /// # Errors
    /// [`BadSubnet::PrefixLen`], [`BadSubnet::HostBits`].
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<Self, BadSubnet> {
        let subnet = Self::around(address, prefix_len).ok_or(BadSubnet::PrefixLen)?;
        if subnet.address == address {
            Ok(subnet)
        } else {
            Err(BadSubnet::HostBits(subnet))
        }
    }

    /// The subnet of this prefix length that contains an address; `None` if the prefix is longer
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

    /// The subnet of one address.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        let prefix_len = if address.is_ipv4() { 32 } else { 128 };
        Self { address, prefix_len }
    }

    /// The first address of the subnet.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The prefix length in bits.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// Whether the subnet contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let around = Self::around(address, self.prefix_len);
        around.is_some_and(|around| around == *self)
    }

    /// Whether two subnets have an address in common: one contains the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

impl FromStr for Subnet {
    type Err = BadSubnet;

    /// Parses `10.1.0.0/16` or `2001:db8::/32`; the slash is required.
    fn from_str(text: &str) -> Result<Self, BadSubnet> {
        let (address, prefix_len) = split(text)?;
        Self::new(address, prefix_len)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// Splits a text into address and prefix length, without a check that they go together.
///
/// # Errors
/// [`BadSubnet::Form`], [`BadSubnet::PrefixLen`].
pub fn split(text: &str) -> Result<(IpAddr, u8), BadSubnet> {
    let (address, prefix_len) = text.split_once('/').ok_or(BadSubnet::Form)?;
    let address: IpAddr = address.parse().map_err(|_| BadSubnet::Form)?;
    if prefix_len.is_empty() || !prefix_len.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadSubnet::Form);
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let prefix_len: Option<u8> = prefix_len.parse().ok().filter(|len| *len <= most);
    Ok((address, prefix_len.ok_or(BadSubnet::PrefixLen)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::string::ToString as _;

    use super::*;

    /// A model that compares bit by bit.
    fn inside(address: u128, subnet: u128, prefix_len: u8, bits: u32) -> bool {
        (0..u32::from(prefix_len)).all(|i| {
            let bit = 1 << (bits - 1 - i);
            address & bit == subnet & bit
        })
    }

    proptest! {
        #[test]
        fn contains_is_bit_by_bit(a: u32, b: u32, near in 0_u32..33, prefix_len in 0_u8..33) {
            // Addresses that agree in their first bits test more than random ones.
            let b = if near == 32 { a } else { a ^ (b >> near) };
            let subnet = Subnet::around(IpAddr::V4(a.into()), prefix_len).unwrap();
            prop_assert_eq!(subnet.contains(IpAddr::V4(b.into())), inside(b.into(), a.into(), prefix_len, 32));
            prop_assert!(!subnet.contains(IpAddr::V6(u128::from(a).into())));
            prop_assert_eq!(subnet.to_string().parse(), Ok(subnet));
        }

        #[test]
        fn contains_is_bit_by_bit_in_ipv6(a: u128, b: u128, near in 0_u32..128, prefix_len in 0_u8..129) {
            let b = a ^ (b >> near);
            let subnet = Subnet::around(IpAddr::V6(a.into()), prefix_len).unwrap();
            prop_assert_eq!(subnet.contains(IpAddr::V6(b.into())), inside(b, a, prefix_len, 128));
            prop_assert_eq!(subnet.to_string().parse(), Ok(subnet));
        }
    }

    #[test]
    fn only_valid_subnets_parse() {
        let of = |text: &str| text.parse::<Subnet>();
        let n = of("10.1.0.0/16").unwrap();
        assert!(n.contains("10.1.255.1".parse().unwrap()) && !n.contains("10.2.0.0".parse().unwrap()));
        assert_eq!(of("10.1.0.1/16"), Err(BadSubnet::HostBits(n)));
        assert_eq!(of("10.1.0.0/33"), Err(BadSubnet::PrefixLen));
        assert_eq!(of("::/129"), Err(BadSubnet::PrefixLen));
        for text in [
            "10.1.0.0",
            "10.1.0.0/",
            "10.1.0.0/+8",
            "10.1/16",
            "/8",
            "x/8",
            "::1/8/8",
        ] {
            assert_eq!(of(text), Err(BadSubnet::Form), "{text}");
        }
        assert!(of("0.0.0.0/0").unwrap().contains(Ipv4Addr::BROADCAST.into()));
        assert!(n.overlaps(&of("10.0.0.0/8").unwrap()) && of("10.0.0.0/8").unwrap().overlaps(&n));
        assert!(!n.overlaps(&of("10.2.0.0/16").unwrap()) && !n.overlaps(&of("::/0").unwrap()));
        assert_eq!(Subnet::host("::1".parse().unwrap()), of("::1/128").unwrap());
    }
}
