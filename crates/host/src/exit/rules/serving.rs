//! The table of nft(8) of an exit: what it forwards for other nodes.

use std::fmt::Write as _;

use weft_wire::Subnet;
use weft_wire::internet::{GLOBAL_IPV6, LOCAL_IPV4};

use super::{SERVE, begin};
use crate::exit::ServeExit;
use crate::exit::saved::Saved;

/// The table while this host is an exit for what comes in by the interface `tun`: it replaces the
/// former one at once. `closed`: for IPv4 and IPv6, whether this host forwarded nothing before.
#[must_use]
pub fn serving(exit: &ServeExit, tun: &str, closed: [bool; 2], saved: &Saved) -> String {
    let mut text = begin(SERVE, saved);
    let out = format!("iifname \"{tun}\" oifname != \"{tun}\"");
    let internet = [exit.ipv4.then(internet_ipv4), exit.ipv6.then(internet_ipv6)];
    text.push_str("  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n");
    for global in internet.iter().flatten() {
        let _ = writeln!(text, "    {out} {global} masquerade");
    }
    // The packet path asks the rules about addresses that it knows. What it does not know is refused here:
    // an address that has just come, loopback, broadcasts.
    text.push_str("  }\n  chain input {\n    type filter hook input priority filter; policy accept;\n");
    for lan in &exit.lans {
        let family = family(lan);
        let _ = writeln!(
            text,
            "    iifname \"{tun}\" fib daddr type local {family} daddr {lan} accept"
        );
    }
    let _ = writeln!(
        text,
        "    iifname \"{tun}\" counter reject with icmpx type admin-prohibited\n  }}\n  chain forward {{\n    \
         type filter hook forward priority filter; policy accept;\n    \
         iifname \"{tun}\" oifname \"{tun}\" accept\n    \
         iifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu\n    \
         oifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu\n    \
         ct state established,related accept"
    );
    for lan in &exit.lans {
        let family = family(lan);
        // The rules were asked about the address that the packet had first: a port that another program
        // publishes is a port of this host.
        let _ = writeln!(
            text,
            "    {out} {family} daddr {lan} accept\n    \
             {out} ct status dnat ct original {family} daddr {lan} accept"
        );
    }
    for global in internet.iter().flatten() {
        let _ = writeln!(text, "    {out} {global} accept");
    }
    let _ = writeln!(text, "    {out} counter reject with icmpx type admin-prohibited");
    for (closed, version) in closed.into_iter().zip([4, 6]) {
        if closed {
            let _ = writeln!(text, "    meta nfproto ipv{version} drop");
        }
    }
    text.push_str("  }\n}\n");
    text
}

/// IPv4 packets to the Internet.
fn internet_ipv4() -> String {
    let local = LOCAL_IPV4.map(|(address, len)| format!("{address}/{len}"));
    format!("ip daddr != {{ {} }}", local.join(", "))
}

/// IPv6 packets to the Internet.
fn internet_ipv6() -> String {
    let (address, len) = GLOBAL_IPV6;
    format!("ip6 daddr {address}/{len}")
}

fn family(subnet: &Subnet) -> &'static str {
    if subnet.address().is_ipv4() { "ip" } else { "ip6" }
}
