//! Ranges of addresses that lie behind no node.

use std::net::{IpAddr, Ipv6Addr};

use weft_wire::{FIPS_PREFIX, Subnet};

/// The range of the addresses of nodes, with its name in messages.
fn nodes() -> (Option<Subnet>, &'static str) {
    let nodes = Subnet::around(IpAddr::V6(Ipv6Addr::from([FIPS_PREFIX; 16])), 8);
    (nodes, "in fd00::/8, where the addresses of nodes are")
}

/// The range of the addresses of members, with its name in messages.
const MEMBERS: (&str, &str) = ("10.44.0.0/16", "in 10.44.0.0/16, where the addresses of members are");

/// Returns the ranges of the addresses of nodes and of members.
pub fn of_mesh() -> impl Iterator<Item = Subnet> {
    let all = std::iter::once(nodes()).chain(ranges([MEMBERS]));
    all.filter_map(|(range, _)| range)
}

/// Returns why a subnet cannot be behind a node: it overlaps a range with a special meaning. `None`
/// if it can be.
#[must_use]
pub fn reserved(subnet: &Subnet) -> Option<&'static str> {
    const SPECIAL: [(&str, &str); 9] = [
        ("0.0.0.0/8", "no address of a host"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "no address of a host"),
        ("::/96", "no address of a host"),
        ("::ffff:0.0.0.0/96", "no address of a host"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    ];
    overlapped(subnet, std::iter::once(nodes()).chain(ranges(SPECIAL)))
}

/// Returns why a member of a network cannot offer a subnet; `None` if it can.
#[must_use]
pub fn not_offered(subnet: &Subnet) -> Option<&'static str> {
    if subnet.prefix_len() == 0 {
        return Some("a default route, which is an exit and no route");
    }
    reserved(subnet).or_else(|| overlapped(subnet, ranges([MEMBERS])))
}

fn ranges<const N: usize>(
    of: [(&'static str, &'static str); N],
) -> impl Iterator<Item = (Option<Subnet>, &'static str)> {
    of.into_iter().map(|(range, what)| (range.parse().ok(), what))
}

fn overlapped(
    subnet: &Subnet,
    mut ranges: impl Iterator<Item = (Option<Subnet>, &'static str)>,
) -> Option<&'static str> {
    let overlaps = |range: Option<Subnet>| range.is_some_and(|range| subnet.overlaps(&range));
    ranges.find(|(range, _)| overlaps(*range)).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_subnets_cannot_be_offered() {
        let of = |text: &str| not_offered(&text.parse().unwrap());
        for text in [
            "192.168.7.0/24",
            "10.45.0.0/16",
            "10.1.2.3/32",
            "2001:db8::/48",
            "172.16.0.0/12",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
        for (text, words) in [
            ("0.0.0.0/0", "exit"),
            ("::/0", "exit"),
            ("10.0.0.0/8", "members"),
            ("10.44.7.0/24", "members"),
            ("fd12::/16", "nodes"),
            ("fc00::/7", "nodes"),
            ("127.0.0.0/24", "loopback"),
            ("169.254.1.0/24", "link-local"),
            ("fe80::/64", "link-local"),
            ("224.1.0.0/16", "multicast"),
            ("ff02::/16", "multicast"),
        ] {
            assert!(
                of(text).is_some_and(|why| why.contains(words)),
                "{text}: {:?}",
                of(text)
            );
        }
    }
}
