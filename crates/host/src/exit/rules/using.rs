//! The table of nft(8) and the rules for routes of a host that uses an exit.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use weft_os::netlink::{MAIN, Rule};
use weft_os::udp::MARK;

use super::{NAMES, PRIORITY, TABLE, USE, begin};
use crate::exit::UseExit;
use crate::exit::saved::Saved;

/// The networks that `lan` means if the exit is strict, and that hosts there are reached by.
const LAN_IPV4: [(Ipv4Addr, u8); 6] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];
const LAN_IPV6: &str = "{ fc00::/7, fe80::/10, ff00::/8 }";

/// The rules that lead packets to the table of the exit. Those of this node's own sockets, which are
/// marked, never go there.
#[must_use]
pub fn routes(exit: &UseExit) -> Vec<Rule> {
    let mut rules = Vec::new();
    for ipv6 in [false, true] {
        let carried = if ipv6 { exit.ipv6 } else { exit.ipv4 };
        let main = Rule {
            ipv6,
            priority: PRIORITY,
            destination: None,
            unless_marked: None,
            table: MAIN,
            no_default: true,
        };
        // What the exit does not carry leads nowhere but into this node's networks, whose routes are
        // in the main table. nft keeps the rest in.
        if !carried || exit.lan && !exit.strict {
            rules.push(main);
        } else if !ipv6 {
            // The system looks a gateway up as it does any address, so it needs the routes to local
            // networks; nft decides whether packets go there. Another route, as a router may set it
            // by DHCP (RFC 3442), takes no packet to the Internet away from the exit.
            rules.extend(LAN_IPV4.map(|(address, len)| Rule {
                destination: Some((IpAddr::V4(address), len)),
                ..main
            }));
        } else {
            let local = [(0xfc00_u16, 7), (0xfe80, 10), (0xff00, 8)];
            rules.extend(local.map(|(first, len)| Rule {
                destination: Some((IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0]), len)),
                ..main
            }));
        }
        rules.push(Rule {
            priority: PRIORITY + 1,
            unless_marked: Some(MARK),
            table: TABLE,
            no_default: false,
            ..main
        });
    }
    // Rules of one number and IP version are asked in the order in which they were added.
    rules
}

/// The table while this host uses an exit by the interface `tun`: it replaces the former one at
/// once.
#[must_use]
pub fn using(exit: &UseExit, tun: &str, saved: &Saved) -> String {
    let mut text = begin(USE, saved);
    // An answer to a marked socket is looked up with the mark, too, so that the check of its source
    // (rp_filter) asks the route that it came by.
    let _ = writeln!(
        text,
        "  chain prerouting {{\n    type filter hook prerouting priority mangle; policy accept;\n    \
         iifname != \"{tun}\" socket mark & {MARK} == {MARK} meta mark set meta mark | {MARK}\n  }}"
    );
    names(&mut text, exit, tun);
    let refused = "counter reject with icmpx type admin-prohibited";
    if !exit.strict && !exit.lan {
        let _ = writeln!(
            text,
            "  chain output {{\n    type filter hook output priority filter; policy accept;\n{}    \
             ip daddr {{ {} }} {refused}\n    ip6 daddr {LAN_IPV6} {refused}\n  }}",
            needed(exit, tun),
            lan_ipv4()
        );
    }
    if exit.strict {
        let _ = writeln!(
            text,
            "  chain output {{\n    type filter hook output priority filter; policy drop;\n{}",
            needed(exit, tun)
        );
        text.pop();
        lan(&mut text, exit);
        let _ = writeln!(
            text,
            "    {refused}\n  }}\n  chain forward {{\n    type filter hook forward priority filter; policy accept;\n    \
             iifname \"{tun}\" accept\n    oifname \"{tun}\" accept"
        );
        lan(&mut text, exit);
        let _ = writeln!(text, "    {refused}\n  }}");
    }
    text.push_str("}\n");
    text
}

/// Queries for names to other servers than those behind the exit go to the exit: the resolver of a
/// local network would see them, or is not reached.
fn names(text: &mut String, exit: &UseExit, tun: &str) {
    if let (Some(source), Some(dns)) = (exit.source, exit.dns) {
        let _ = writeln!(
            text,
            "  chain names {{\n    type nat hook output priority -100; policy accept;\n    \
             oifname != {{ \"lo\", \"{tun}\" }} meta mark & {MARK} == 0 meta nfproto ipv4 \
             meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {dns}:{NAMES}\n  }}\n  \
             chain postrouting {{\n    type nat hook postrouting priority srcnat; policy accept;\n    \
             oifname \"{tun}\" ip daddr {dns} ct status dnat snat ip to {source}\n  }}"
        );
    }
}

/// What passes in any case: packets of this node, within this host, and those by which it has
/// addresses and neighbours.
fn needed(exit: &UseExit, tun: &str) -> String {
    // The interface that such a packet leaves by is not known yet.
    let names = exit
        .dns
        .map(|dns| format!("    ip daddr {dns} meta l4proto {{ tcp, udp }} th dport {NAMES} accept\n"));
    let mut text = names.unwrap_or_default();
    let _ = write!(
        text,
        "    oifname {{ \"lo\", \"{tun}\" }} accept\n    meta mark & {MARK} == {MARK} accept\n    \
         udp sport 68 udp dport 67 accept\n    udp sport 546 udp dport 547 accept\n    \
         icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept\n    \
         icmpv6 type {{ mld-listener-report, mld-listener-done, mld2-listener-report }} ip6 hoplimit 1 accept\n"
    );
    text
}

fn lan_ipv4() -> String {
    let ranges: Vec<_> = LAN_IPV4
        .iter()
        .map(|(address, len)| format!("{address}/{len}"))
        .collect();
    ranges.join(", ")
}

/// What may pass to local networks. Names are not asked for there: that would show them.
fn lan(text: &mut String, exit: &UseExit) {
    if exit.lan {
        let _ = writeln!(
            text,
            "    meta l4proto {{ tcp, udp }} th dport {{ 53, 853 }} counter reject with icmpx type admin-prohibited\n    \
             ip daddr {{ {} }} accept\n    ip6 daddr {LAN_IPV6} accept",
            lan_ipv4()
        );
    }
}
