//! The rules for routes of a host that uses an exit: they lead packets to the interface of weft, and without it nowhere
//! if the exit is strict.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

use weft_os::netlink::{LookUp, MAIN, Rule, Then};
use weft_os::udp::MARK;
use weft_wire::Subnet;

use super::{PRIORITY, TABLE};
use crate::exit::UseExit;

/// The group of the interface of weft. Routes through interfaces of group 0, the default, are not looked at
/// before those of the exit.
pub const GROUP: u32 = TABLE;
/// The number of the last rule, to which marked packets go: the system's rules are behind it.
const PAST: u32 = PRIORITY + 99;
/// The numbers of all of them.
pub const PRIORITIES: RangeInclusive<u32> = PRIORITY..=PAST;
/// The bit in the mark of packets that this host forwards. Their destination may be in a network of the main
/// table, as a container is, or that behind a member.
pub(super) const FORWARDED: u32 = 0x0100_0000;
/// The server's ports of DHCP (RFC 2131 section 4.1) and DHCPv6 (RFC 8415 section 7.2).
pub(super) const DHCP: [u16; 2] = [67, 547];
/// The port of queries for names.
pub(in crate::exit) const DNS: u16 = 53;

/// The networks that `lan` means if the exit is strict, and that hosts there are reached by.
const LAN_IPV4: [(Ipv4Addr, u8); 6] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];
const LAN_IPV6: [(u16, u8); 3] = [(0xfc00, 7), (0xfe80, 10), (0xff00, 8)];

/// The rules that lead packets to the table of the exit. Those of this node's own sockets, which are
/// marked, never go there.
#[must_use]
pub fn routes(exit: &UseExit) -> Vec<Rule> {
    [false, true]
        .into_iter()
        .flat_map(|ipv6| of_version(exit, ipv6))
        .collect()
}

fn of_version(exit: &UseExit, ipv6: bool) -> Vec<Rule> {
    let rule = |priority, then| Rule::new(ipv6, priority, then);
    let main = LookUp {
        table: MAIN,
        no_default: true,
        not_through: None,
    };
    let behind_tun = LookUp {
        not_through: Some(0),
        ..main
    };
    let by_exit = Then::LookUp(LookUp {
        table: TABLE,
        no_default: false,
        not_through: None,
    });
    let mut rules = vec![
        Rule {
            marked: Some(MARK),
            ..rule(PRIORITY, Then::GoTo(PAST))
        },
        // The networks of this node go first: their routes say which source packets have.
        rule(PRIORITY + 1, Then::LookUp(behind_tun)),
    ];
    // A longer route, as a router may set it by DHCP (RFC 3442), takes no packet to the Internet away from the exit.
    let networks = || lan_networks(ipv6).into_iter();
    rules.extend(networks().map(|network| Rule {
        destination: Some(network),
        marked: Some(FORWARDED),
        ..rule(PRIORITY + 2, Then::LookUp(main))
    }));
    rules.push(Rule {
        port: Some(DHCP[usize::from(ipv6)]),
        ..rule(PRIORITY + 2, Then::LookUp(main))
    });
    if exit.lan {
        // Queries for names stay with the exit: the resolver of a local network would see them.
        rules.push(Rule {
            port: Some(DNS),
            ..rule(PRIORITY + 3, by_exit)
        });
        let local = Then::LookUp(main);
        if exit.strict {
            rules.extend(networks().map(|network| Rule {
                destination: Some(network),
                ..rule(PRIORITY + 4, local)
            }));
        } else {
            rules.push(rule(PRIORITY + 4, local));
        }
    }
    rules.push(rule(PRIORITY + 5, by_exit));
    rules.push(rule(PAST, Then::Nothing));
    rules
}

/// The networks that `lan` means, of an IP version, with the lengths of their prefixes.
pub(super) fn lan_networks(ipv6: bool) -> Vec<(IpAddr, u8)> {
    match ipv6 {
        false => LAN_IPV4.map(|(address, len)| (IpAddr::V4(address), len)).to_vec(),
        true => {
            let network = |(first, len)| (IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0]), len);
            LAN_IPV6.map(network).to_vec()
        }
    }
}

/// Whether an address is in one of the networks that are reached directly by choice.
#[must_use]
pub fn is_lan(address: IpAddr) -> bool {
    let networks = lan_networks(address.is_ipv6());
    let contains = |(network, len): (IpAddr, u8)| Subnet::around(address, len) == Subnet::around(network, len);
    networks.into_iter().any(contains)
}
