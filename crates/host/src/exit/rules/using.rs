//! The table of nft(8) of a host that uses an exit: it looks at the interface by which a packet leaves. With the rules
//! of [`routes`](super::routes()) it is one of two layers, each of which alone keeps packets in if the exit is strict.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use weft_os::udp::MARK;

use super::routes::{DHCP, DNS, FORWARDED, lan_networks};
use super::{NAMES, USE, begin, family};
use crate::exit::around::Around;
use crate::exit::saved::Saved;
use crate::exit::sessions::Session;
use crate::exit::{Ends, UseExit};

/// The bit in the mark of connections (`ct mark`) that came in by another interface. It differs from that of
/// packets: some programs copy the one mark to the other.
const CAME_IN: u32 = 0x0400_0000;

/// What programs get for a packet that may not leave.
const REFUSED: &str = "counter reject with icmpx type admin-prohibited";

/// The table while this host uses an exit by the interface `tun`: it replaces the former one at
/// once. `sessions`: the connections that were open before and came in by another interface.
#[must_use]
pub fn using(exit: &UseExit, tun: &str, around: &Around, sessions: &[Session], saved: &Saved) -> String {
    let mut text = begin(USE, saved);
    let using = Using {
        exit,
        tun,
        around,
        sessions,
    };
    using.write(&mut text);
    text.push_str("}\n");
    text
}

/// What the table is made of.
struct Using<'a> {
    exit: &'a UseExit,
    tun: &'a str,
    around: &'a Around,
    sessions: &'a [Session],
}

impl Using<'_> {
    fn write(&self, text: &mut String) {
        self.sets(text);
        self.marks(text);
        self.names(text);
        self.sources(text);
        self.input(text);
        self.output(text);
        self.forward(text);
        self.wall(text);
    }

    fn sets(&self, text: &mut String) {
        for ipv6 in [false, true] {
            let address = format!("ipv{}_addr", version(ipv6));
            let _ = writeln!(
                text,
                "  set {} {{ type {address}; flags interval; auto-merge;{} }}\n  \
                 set {} {{ type {address} . inet_service . {address} . inet_service;{} }}",
                mesh(ipv6),
                elements(self.around.mesh(ipv6)),
                sessions(ipv6),
                elements(self.sessions.iter().filter(|session| session.is_ipv6() == ipv6)),
            );
        }
    }

    /// The interfaces that a packet may leave by: within this host, and to the exit.
    fn inside(&self) -> String {
        let all = ["lo", self.tun]
            .into_iter()
            .chain(self.around.bridges.keys().map(|name| &**name));
        quoted(all)
    }

    /// Marks make answers leave where the question came in. The check of sources (rp_filter) looks at them, too:
    /// it asks by which interface an answer would leave.
    fn marks(&self, text: &mut String) {
        let tun = self.tun;
        let mark = format!("meta mark set meta mark | {MARK}");
        let came_in = format!("ct mark & {CAME_IN} == {CAME_IN}");
        let _ = writeln!(
            text,
            "  chain prerouting {{\n    type filter hook prerouting priority mangle; policy accept;\n    \
             iifname != \"{tun}\" fib daddr type local socket mark & {MARK} == {MARK} {mark}\n    \
             iifname != \"{tun}\" fib daddr type {{ local, broadcast }} udp sport {} udp dport 68 {mark}",
            DHCP[0]
        );
        if self.exit.answers() {
            let _ = writeln!(
                text,
                "    iifname != {{ \"lo\", \"{tun}\" }} ct direction original ct mark & {CAME_IN} == 0 \
                 ct mark set ct mark | {CAME_IN}\n    \
                 ct direction original {came_in} fib daddr type local {mark}\n    \
                 iifname != \"{tun}\" ct direction reply {came_in} {mark}\n  }}\n  \
                 chain answer {{\n    type route hook output priority mangle; policy accept;\n    \
                 ct direction reply {came_in} {mark}"
            );
            for ipv6 in [false, true] {
                let (family, sessions) = (family(ipv6), sessions(ipv6));
                let _ = writeln!(
                    text,
                    "    {family} saddr . tcp sport . {family} daddr . tcp dport @{sessions} {mark}"
                );
            }
        }
        // Conntrack has restored the destination of an answer to a container by then: it is no longer this host.
        let _ = writeln!(
            text,
            "  }}\n  chain forwarded {{\n    type filter hook prerouting priority dstnat + 5; policy accept;\n    \
             iifname != \"lo\" fib daddr type != local meta mark set meta mark | {FORWARDED}\n  }}"
        );
    }

    /// Queries for names to servers in local networks go to the exit: these would see them, or are not reached.
    fn names(&self, text: &mut String) {
        let begin = |name: &str, hook: &str| {
            format!("  chain {name} {{\n    type nat hook {hook} priority -100; policy accept;\n")
        };
        let [output, prerouting] = [false, true].map(|forwarded| {
            let mut rules = String::new();
            for (ipv6, exit) in self.exits() {
                let (family, mesh) = (family(ipv6), mesh(ipv6));
                let query = format!("meta mark & {MARK} == 0 meta l4proto {{ tcp, udp }} th dport {DNS}");
                let to_exit = match ipv6 {
                    false => format!("dnat ip to {exit}:{NAMES}"),
                    true => format!("dnat ip6 to [{exit}]:{NAMES}"),
                };
                let to_lan = format!("{family} daddr {} {family} daddr != @{mesh}", lan(ipv6));
                if forwarded {
                    let own = list(self.around.contained(ipv6));
                    let own = if own.is_empty() {
                        own
                    } else {
                        format!("{family} daddr != {{ {own} }} ")
                    };
                    let outside = ["lo", self.tun]
                        .into_iter()
                        .chain(self.around.uplinks.iter().map(|name| &**name));
                    let _ = writeln!(
                        rules,
                        "    iifname != {{ {} }} fib daddr type != local {own}{to_lan} {query} {to_exit}",
                        quoted(outside)
                    );
                } else {
                    let _ = writeln!(
                        rules,
                        "    oifname != {{ {} }} meta nfproto ipv{} {query} {to_exit}\n    \
                         oifname \"{}\" {to_lan} {query} {to_exit}",
                        self.inside(),
                        version(ipv6),
                        self.tun
                    );
                }
            }
            rules
        });
        let _ = writeln!(
            text,
            "{}{output}  }}\n{}{prerouting}  }}",
            begin("names", "output"),
            begin("names_of_others", "prerouting")
        );
    }

    /// The address of the exit at which it takes queries, for each IP version.
    fn exits(&self) -> impl Iterator<Item = (bool, IpAddr)> {
        self.ends().map(|(ipv6, ends)| (ipv6, ends.exit))
    }

    /// The address of this node and that of the exit, for each IP version.
    fn ends(&self) -> impl Iterator<Item = (bool, Ends<IpAddr>)> {
        let ends = |own, exit| Ends { own, exit };
        let ipv4 = self
            .exit
            .ends
            .map(|both| (false, ends(both.own.into(), both.exit.into())));
        let ipv6 = self
            .exit
            .ends6
            .map(|both| (true, ends(both.own.into(), both.exit.into())));
        ipv4.into_iter().chain(ipv6)
    }

    /// Queries that were led to the exit, and packets of containers, have a source that the exit forwards for.
    /// It goes before the masquerade of other programs, which takes any address of the interface.
    fn sources(&self, text: &mut String) {
        let tun = self.tun;
        text.push_str("  chain postrouting {\n    type nat hook postrouting priority srcnat - 5; policy accept;\n");
        for (ipv6, Ends { own, exit }) in self.ends() {
            let (family, mesh) = (family(ipv6), mesh(ipv6));
            let _ = writeln!(
                text,
                "    oifname \"{tun}\" {family} daddr {exit} ct status dnat snat {family} to {own}"
            );
            let contained = list(self.around.contained(ipv6));
            if !contained.is_empty() {
                let _ = writeln!(
                    text,
                    "    oifname \"{tun}\" {family} saddr {{ {contained} }} {family} daddr != @{mesh} snat {family} to {own}"
                );
            }
        }
        text.push_str("  }\n");
    }

    /// What the exit does not take: another IP version, and local networks.
    fn not_taken(&self, text: &mut String) {
        let tun = self.tun;
        for (ipv6, carried) in [(false, self.exit.ipv4), (true, self.exit.ipv6)] {
            let (family, mesh) = (family(ipv6), mesh(ipv6));
            if carried {
                let _ = writeln!(
                    text,
                    "    oifname \"{tun}\" {family} daddr {} {family} daddr != @{mesh} {REFUSED}",
                    lan(ipv6)
                );
            } else {
                let _ = writeln!(text, "    oifname \"{tun}\" {family} daddr != @{mesh} {REFUSED}");
            }
        }
    }

    /// What may come in by another interface: an answer would leave by the exit otherwise, and show to a stranger who
    /// uses it.
    fn input(&self, text: &mut String) {
        if self.exit.answers() {
            return;
        }
        let _ = writeln!(
            text,
            "  chain input {{\n    type filter hook input priority filter; policy accept;\n    \
             iifname {{ {} }} accept\n    meta mark & {MARK} == {MARK} accept\n    udp dport {{ 68, 546 }} accept\n    \
             icmpv6 type {{ nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-query }} accept",
            self.inside()
        );
        for ipv6 in [false, true].into_iter().filter(|_| self.exit.lan) {
            let _ = writeln!(text, "    {} saddr {} accept", family(ipv6), lan(ipv6));
        }
        text.push_str("    ct state established,related accept\n    counter drop\n  }\n");
    }

    /// What this host sends. Programs learn at once what may not leave.
    fn output(&self, text: &mut String) {
        let policy = if self.exit.strict { "drop" } else { "accept" };
        let _ = writeln!(
            text,
            "  chain output {{\n    type filter hook output priority filter; policy {policy};"
        );
        // A packet that was marked here, or whose destination was changed, leaves by another interface than the one
        // that these rules see.
        let _ = writeln!(text, "    meta mark & {MARK} == {MARK} accept");
        for (ipv6, exit) in self.exits() {
            let _ = writeln!(
                text,
                "    {} daddr {exit} meta l4proto {{ tcp, udp }} th dport {NAMES} accept",
                family(ipv6)
            );
        }
        self.not_taken(text);
        self.other_sources(text);
        let _ = writeln!(text, "    oifname {{ {} }} accept", self.inside());
        needed(text);
        if self.exit.strict {
            self.lan(text, REFUSED);
            let _ = writeln!(text, "    {REFUSED}");
        } else {
            for ipv6 in [false, true].into_iter().filter(|_| !self.exit.lan) {
                let _ = writeln!(text, "    {} daddr {} {REFUSED}", family(ipv6), lan(ipv6));
            }
            self.inner(text, &["meta l4proto tcp reject with tcp reset", REFUSED]);
        }
        text.push_str("  }\n");
    }

    /// What this host forwards, as for containers.
    fn forward(&self, text: &mut String) {
        let tun = self.tun;
        text.push_str("  chain forward {\n    type filter hook forward priority filter; policy accept;\n");
        self.not_taken(text);
        if self.exit.strict {
            let _ = writeln!(
                text,
                "    iifname \"{tun}\" accept\n    oifname \"{tun}\" accept\n    meta mark & {MARK} == {MARK} accept"
            );
            if !self.around.bridges.is_empty() {
                let bridges = quoted(self.around.bridges.keys().map(|name| &**name));
                let from = if self.exit.answers() {
                    String::new()
                } else {
                    format!("iifname {{ {bridges} }} ")
                };
                let _ = writeln!(text, "    {from}oifname {{ {bridges} }} accept");
            }
            self.lan(text, REFUSED);
            let _ = writeln!(text, "    {REFUSED}");
        } else if !self.exit.lan && !self.around.bridges.is_empty() {
            // What holds for programs of this host holds for its containers.
            let bridges = quoted(self.around.bridges.keys().map(|name| &**name));
            for ipv6 in [false, true] {
                let _ = writeln!(
                    text,
                    "    iifname {{ {bridges} }} oifname != {{ {} }} meta mark & {MARK} == 0 {} daddr {} {REFUSED}",
                    self.inside(),
                    family(ipv6),
                    lan(ipv6)
                );
            }
        }
        text.push_str("  }\n");
    }

    /// The last look, at what leaves in the end: after the destination and the source have been changed.
    fn wall(&self, text: &mut String) {
        let policy = if self.exit.strict { "drop" } else { "accept" };
        let _ = writeln!(
            text,
            "  chain wall {{\n    type filter hook postrouting priority srcnat + 50; policy {policy};\n    \
             oifname {{ {} }} accept",
            self.inside()
        );
        self.inner(text, &["counter drop"]);
        for (ipv6, exit) in self.exits() {
            let _ = writeln!(
                text,
                "    {} daddr {exit} meta l4proto {{ tcp, udp }} th dport {NAMES} counter drop",
                family(ipv6)
            );
        }
        if self.exit.strict {
            let _ = writeln!(
                text,
                "    meta mark & {MARK} == {MARK} accept\n    iifname \"{}\" accept",
                self.tun
            );
            needed(text);
            self.lan(text, "counter drop");
            text.push_str("    counter drop\n");
        }
        text.push_str("  }\n");
    }

    /// Packets of this host with an address of the mesh as their source leave by no other interface.
    fn inner(&self, text: &mut String, refused: &[&str]) {
        for ipv6 in [false, true] {
            let own = list(self.around.own.iter().filter(|own| own.is_ipv6() == ipv6));
            for refused in refused.iter().filter(|_| !own.is_empty()) {
                let _ = writeln!(text, "    {} saddr {{ {own} }} {refused}", family(ipv6));
            }
        }
    }

    /// The exit forwards for one address alone. A connection that began under another one, before the exit was
    /// used, ends with an error.
    fn other_sources(&self, text: &mut String) {
        let tun = self.tun;
        for (ipv6, Ends { own, .. }) in self.ends() {
            let (family, mesh) = (family(ipv6), mesh(ipv6));
            for refused in ["meta l4proto tcp reject with tcp reset", REFUSED] {
                let _ = writeln!(
                    text,
                    "    oifname \"{tun}\" {family} daddr != @{mesh} {family} saddr != {own} {refused}"
                );
            }
        }
    }

    /// What may pass to local networks. Names are not asked for there: that would show them.
    fn lan(&self, text: &mut String, refused: &str) {
        if self.exit.lan {
            let _ = writeln!(
                text,
                "    meta l4proto {{ tcp, udp }} th dport {{ {DNS}, 853 }} {refused}"
            );
            for ipv6 in [false, true] {
                let _ = writeln!(text, "    {} daddr {} accept", family(ipv6), lan(ipv6));
            }
        }
    }
}

/// What passes in any case: that by which this host has addresses and neighbours.
fn needed(text: &mut String) {
    text.push_str(
        "    udp sport 68 udp dport 67 accept\n    udp sport 546 udp dport 547 accept\n    \
         icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept\n    \
         icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } ip6 hoplimit 1 accept\n",
    );
}

const fn version(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

/// The set of the networks behind the interface of weft.
const fn mesh(ipv6: bool) -> &'static str {
    if ipv6 { "mesh6" } else { "mesh4" }
}

/// The set of the connections that came in before the exit was used.
const fn sessions(ipv6: bool) -> &'static str {
    if ipv6 { "sessions6" } else { "sessions4" }
}

/// The elements of a set, if it has any.
fn elements(items: impl IntoIterator<Item = impl Display>) -> String {
    let items = list(items);
    match items.is_empty() {
        true => items,
        false => format!(" elements = {{ {items} }};"),
    }
}

/// All local networks of an IP version, for a rule.
fn lan(ipv6: bool) -> String {
    let networks = lan_networks(ipv6);
    format!(
        "{{ {} }}",
        list(networks.iter().map(|(address, len)| format!("{address}/{len}")))
    )
}

fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    list(names.map(|name| format!("\"{name}\"")))
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(", ")
}
