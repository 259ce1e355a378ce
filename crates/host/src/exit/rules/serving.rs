//! The table of nft(8) of an exit: what it forwards for other nodes.

use std::fmt::Write as _;

use super::{GLOBAL_IPV6, LOCAL_IPV4, SERVE, begin};
use crate::exit::ServeExit;
use crate::exit::saved::Saved;

/// The table while this host is an exit for what comes in by the interface `tun`: it replaces the
/// former one at once. `closed`: for IPv4 and IPv6, whether this host forwarded nothing before.
#[must_use]
pub fn serving(exit: &ServeExit, tun: &str, closed: [bool; 2], saved: &Saved) -> String {
    let mut text = begin(SERVE, saved);
    let out = format!("iifname \"{tun}\" oifname != \"{tun}\"");
    text.push_str("  chain postrouting {\n    type nat hook postrouting priority srcnat; policy accept;\n");
    let _ = writeln!(text, "    {out} ct status dnat masquerade");
    if exit.ipv4 {
        let _ = writeln!(text, "    {out} ip daddr != {LOCAL_IPV4} masquerade");
    }
    if exit.ipv6 {
        let _ = writeln!(text, "    {out} ip6 daddr {GLOBAL_IPV6} masquerade");
    }
    text.push_str("  }\n");
    text.push_str("  chain forward {\n    type filter hook forward priority filter; policy accept;\n");
    let _ = writeln!(
        text,
        "    iifname \"{tun}\" oifname \"{tun}\" accept\n    \
         iifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu\n    \
         oifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu\n    \
         ct state established,related accept\n    {out} ct status dnat accept"
    );
    for lan in &exit.lans {
        let family = if lan.address().is_ipv4() { "ip" } else { "ip6" };
        let _ = writeln!(text, "    {out} {family} daddr {lan} accept");
    }
    for (carried, global) in [
        (exit.ipv4, format!("ip daddr != {LOCAL_IPV4}")),
        (exit.ipv6, format!("ip6 daddr {GLOBAL_IPV6}")),
    ] {
        if carried {
            let _ = writeln!(text, "    {out} {global} accept");
        }
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
