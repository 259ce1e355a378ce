//! The tables of nft(8) of an exit: what it forwards for other nodes, and what a host that weft has made
//! forward refuses to forward for others.

use std::fmt::Write as _;

use weft_wire::internet::{GLOBAL_IPV6, LOCAL_IPV4};

use super::{SERVE, begin, family};
use crate::exit::ServeExit;
use crate::exit::saved::Saved;

/// The table of nft(8) of each IP version that weft has switched forwarding on for: `ip` and `ip6`. It
/// stays as long as the host forwards, so that it routes for none of its neighbours.
pub const CLOSED: &str = "weft_forward";
/// The kinds of interfaces that programs of this host make for containers and virtual machines. Those
/// with another end, such as WireGuard, and those of hardware, which have no kind, are not among them.
const INSIDE: &str = "{ \"bridge\", \"veth\" }";

/// The table while this host is an exit for what comes in by the interface `tun`: it replaces the
/// former one at once.
#[must_use]
pub fn serving(exit: &ServeExit, tun: &str) -> String {
    let mut text = begin(SERVE, &Saved::default());
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
        let family = family(lan.address().is_ipv6());
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
        let family = family(lan.address().is_ipv6());
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
    let _ = writeln!(
        text,
        "    {out} counter reject with icmpx type admin-prohibited\n  }}\n}}"
    );
    text
}

/// The table of an IP version that lets this host forward for other nodes, and for what is inside it:
/// interfaces of bridges, containers and virtual machines that come from now on, and what another program
/// redirects. Between interfaces of before (`outside`) and those that lead to other hosts nothing is
/// forwarded, but within one: a bridge passes its own packets through this chain, too.
#[must_use]
pub fn closed(ipv6: bool, tun: &str, outside: &[String]) -> String {
    let family = family(ipv6);
    let mut names: Vec<String> = outside.iter().map(|name| format!("\"{name}\"")).collect();
    names.push(format!("\"{tun}\""));
    names.sort_unstable();
    names.dedup();
    let within: Vec<String> = names.iter().map(|name| format!("{name} . {name}")).collect();
    let (names, within) = (names.join(", "), within.join(", "));
    format!(
        "{}table {family} {CLOSED} {{
  set outside {{
    type ifname
    elements = {{ {names} }}
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname \"{tun}\" accept
    ct state established,related accept
    ct status dnat accept
    iifname . oifname {{ {within} }} accept
    iifname != @outside meta iifkind {INSIDE} accept
    oifname != @outside meta oifkind {INSIDE} accept
    iifname != @outside meta iifkind \"tun\" meta iiftype ether accept
    oifname != @outside meta oifkind \"tun\" meta oiftype ether accept
    counter drop
  }}
}}
",
        no_table(ipv6)
    )
}

/// The text that puts a table of [`closed`] in its place, as nft(8) has listed it.
#[must_use]
pub fn closed_again(ipv6: bool, listed: &str) -> String {
    no_table(ipv6) + listed
}

/// The text that removes a table of [`closed`], if there is one.
#[must_use]
pub fn no_table(ipv6: bool) -> String {
    let family = family(ipv6);
    format!("add table {family} {CLOSED}\ndelete table {family} {CLOSED}\n")
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
