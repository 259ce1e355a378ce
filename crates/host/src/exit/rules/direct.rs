//! The table of nft(8) of a host whose exit is not used for now, since it is not reached: packets leave directly, but
//! for those under an address of the mesh.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::{REFUSED, USE, begin, elements, family, quoted, version};
use crate::exit::around::Around;
use crate::exit::saved::Saved;

/// The table: it replaces the former one at once. `refuses`: programs with a connection by the exit learn at its next
/// packet that it has ended. Otherwise its packets are lost, and it goes on if the exit comes.
#[must_use]
pub fn direct(tun: &str, around: &Around, refuses: bool) -> String {
    let mut text = begin(USE, &Saved::default());
    own_sets(&mut text, around);
    entry(&mut text, tun, around);
    let inside = quoted(inside(tun, around));
    for (chain, hook, refused) in [
        ("output", "output priority filter", refusals(refuses)),
        ("wall", "postrouting priority srcnat + 50", &DROPPED),
    ] {
        let _ = writeln!(
            text,
            "  chain {chain} {{\n    type filter hook {hook}; policy accept;\n    oifname {{ {inside} }} accept"
        );
        inner(&mut text, refused);
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

/// What programs get for a packet of a connection that has ended.
pub(super) const REFUSALS: [&str; 2] = ["meta l4proto tcp reject with tcp reset", REFUSED];

/// [`REFUSALS`], or nothing.
pub(super) const fn refusals(refuses: bool) -> &'static [&'static str] {
    if refuses { &REFUSALS } else { &[] }
}

/// What becomes of a packet whose program cannot be told any more.
pub(super) const DROPPED: [&str; 1] = ["counter drop"];

/// What comes in by another interface for an address of this node in the mesh is refused before the kernel finds its
/// connection: a host of the LAN could answer in the place of a server by the exit, or of a member.
pub(super) fn entry(text: &mut String, tun: &str, around: &Around) {
    let inside = quoted(inside(tun, around));
    text.push_str("  chain entry {\n    type filter hook prerouting priority raw; policy accept;\n");
    for ipv6 in [false, true] {
        let _ = writeln!(
            text,
            "    iifname != {{ {inside} }} {} daddr @{} counter drop",
            family(ipv6),
            own(ipv6)
        );
    }
    text.push_str("  }\n");
}

/// The interfaces that a packet may leave by: within this host, and that of weft.
pub(super) fn inside<'a>(tun: &'a str, around: &'a Around) -> impl Iterator<Item = &'a str> {
    let bridges = around.bridges.keys().map(|name| &**name);
    ["lo", tun].into_iter().chain(bridges)
}

/// Packets of this host with an address of the mesh as their source leave by no other interface.
pub(super) fn inner(text: &mut String, refused: &[&str]) {
    for ipv6 in [false, true] {
        for refused in refused {
            let _ = writeln!(text, "    {} saddr @{} {refused}", family(ipv6), own(ipv6));
        }
    }
}

/// The sets of the addresses of this node in the mesh.
pub(super) fn own_sets(text: &mut String, around: &Around) {
    for ipv6 in [false, true] {
        let of_version = around.own.iter().filter(|own| own.is_ipv6() == ipv6);
        let _ = writeln!(
            text,
            "  set {} {{ type ipv{}_addr;{} }}",
            own(ipv6),
            version(ipv6),
            elements(of_version)
        );
    }
}

/// The addresses in these sets, in a table as nft(8) prints it.
#[must_use]
pub fn own_addresses(table: &str) -> BTreeSet<IpAddr> {
    let of_set = |ipv6: bool| {
        let (_, rest) = table.split_once(&format!("set {} {{", own(ipv6)))?;
        let (set, _) = rest.split_once("chain").unwrap_or((rest, ""));
        let (set, _) = set.split_once("set ").unwrap_or((set, ""));
        let (_, elements) = set.split_once("elements = {")?;
        elements.split_once('}').map(|(elements, _)| elements)
    };
    let elements = [false, true].into_iter().filter_map(of_set);
    let texts = elements.flat_map(|elements| elements.split(','));
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

const fn own(ipv6: bool) -> &'static str {
    if ipv6 { "own6" } else { "own4" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_printed_table_are_found() {
        let table = "table inet weft {\n\tset mesh4 {\n\t\ttype ipv4_addr\n\t\telements = { 10.44.0.9 }\n\t}\n\n\
                     \tset own4 {\n\t\ttype ipv4_addr\n\t\telements = { 10.44.0.7,\n\t\t\t     10.45.0.7 }\n\t}\n\n\
                     \tset own6 {\n\t\ttype ipv6_addr\n\t}\n\n\tset was_0 {\n\t\telements = { fd00::9 }\n\t}\n\n\
                     \tchain output {\n\t\tip6 daddr { fd00::1 }\n\t}\n}\n";
        let found: Vec<String> = own_addresses(table).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.44.0.7", "10.45.0.7"]);
        assert!(own_addresses("").is_empty());
        assert!(own_addresses("set own4 {").is_empty());
    }
}
