//! The table of nft(8) of a host that uses an exit: it looks at the interface by which a packet leaves. With the rules
//! of [`routes`](super::routes()) it is one of two layers, each of which alone keeps packets in if the exit is strict.

use std::fmt::Write as _;
use std::net::IpAddr;

use weft_os::udp::MARK;
use weft_wire::Subnet;

use super::direct::{DROPPED, REFUSALS, entry, inner, inside, own_sets, refusals};
use super::routes::{DHCP, DNS, FORWARDED, lan_networks};
use super::{NAMES, REFUSED, USE, begin, elements, family, list, quoted, version};
use crate::exit::around::Around;
use crate::exit::saved::Saved;
use crate::exit::sessions::Session;
use crate::exit::{Ends, UseExit};

/// The bit in the mark of connections (`ct mark`) that came in by another interface. It differs from that of
/// packets: some programs copy the one mark to the other.
const CAME_IN: u32 = 0x0400_0000;

/// The port of queries for names by TLS (RFC 7858) and by QUIC (RFC 9250).
const DNS_BY_TLS: u16 = 853;

/// The table while this host uses an exit by the interface `tun`: it replaces the former one at
/// once. `sessions`: the connections that were open before and came in by another interface. `refuses` is that of
/// [`direct`](super::direct()): before routes lead to the exit, what leaves by another interface is lost.
#[must_use]
pub fn using(exit: &UseExit, tun: &str, around: &Around, sessions: &[Session], saved: &Saved, refuses: bool) -> String {
    let mut text = begin(USE, saved);
    let using = Using {
        exit,
        tun,
        around,
        sessions,
        refuses,
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
    refuses: bool,
}

impl Using<'_> {
    fn write(&self, text: &mut String) {
        self.sets(text);
        entry(text, self.tun, self.around);
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
                 set {} {{ type inet_proto . {address} . inet_service . {address} . inet_service;{} }}",
                mesh(ipv6),
                elements(self.around.mesh(ipv6)),
                sessions(ipv6),
                elements(self.sessions.iter().filter(|session| session.is_ipv6() == ipv6)),
            );
        }
        own_sets(text, self.around);
    }

    /// The interfaces that a packet may leave by: within this host, and to the exit.
    fn inside(&self) -> String {
        quoted(inside(self.tun, self.around))
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
                "    iifname != {{ \"lo\", \"{tun}\" }} fib daddr type local ct direction original \
                 ct mark & {CAME_IN} == 0 ct mark set ct mark | {CAME_IN}\n    \
                 ct direction original {came_in} fib daddr type local {mark}\n    \
                 iifname != \"{tun}\" ct direction reply {came_in} {mark}"
            );
            // An answer of a container has the container's address there.
            of_sessions(text, &format!("iifname != \"{tun}\" "), &mark);
            let _ = writeln!(
                text,
                "  }}\n  chain answer {{\n    type route hook output priority mangle; policy accept;\n    \
                 ct direction reply {came_in} {mark}"
            );
            of_sessions(text, "", &mark);
        }
        // This hook sees packets after NAT: the destination of an answer to a container is the container.
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
        let (inside, tun) = (self.inside(), self.tun);
        text.push_str(&begin("names", "output"));
        for (ipv6, exit) in self.exits() {
            let to_exit = to_exit(exit);
            let _ = writeln!(
                text,
                "    oifname != {{ {inside} }} meta nfproto ipv{} {to_exit}",
                version(ipv6)
            );
            for to_lan in self.local(ipv6) {
                let _ = writeln!(text, "    oifname \"{tun}\" {to_lan} {to_exit}");
            }
        }
        let _ = writeln!(text, "  }}\n{}", begin("names_of_others", "prerouting"));
        let uplinks = self.around.uplinks.iter().map(|name| &**name);
        let outside = quoted(["lo", tun].into_iter().chain(uplinks));
        for (ipv6, exit) in self.exits() {
            let contained = list(self.around.contained(ipv6));
            let elsewhere = match contained.is_empty() {
                true => contained,
                false => format!("{} daddr != {{ {contained} }} ", family(ipv6)),
            };
            let to_exit = to_exit(exit);
            for to_lan in self.local(ipv6) {
                let _ = writeln!(
                    text,
                    "    iifname != {{ {outside} }} fib daddr type != local {elsewhere}{to_lan} {to_exit}"
                );
            }
        }
        text.push_str("  }\n");
    }

    /// Conditions, one of which holds for the destinations in local networks.
    fn local(&self, ipv6: bool) -> impl Iterator<Item = String> {
        let family = family(ipv6);
        let all = format!("{family} daddr {} {family} daddr != @{}", lan(ipv6), mesh(ipv6));
        let of_version = |network: &&Subnet| network.address().is_ipv6() == ipv6;
        let beside = list(self.around.beside.iter().filter(of_version));
        let beside = (!beside.is_empty()).then(|| format!("{family} daddr {{ {beside} }}"));
        [all].into_iter().chain(beside)
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
        let bridges = quoted(self.around.bridges.keys().map(|name| &**name));
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
                    "    iifname {{ {bridges} }} oifname \"{tun}\" {family} saddr {{ {contained} }} {family} daddr != @{mesh} snat {family} to {own}"
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
                for local in self.local(ipv6) {
                    let _ = writeln!(text, "    oifname \"{tun}\" {local} {REFUSED}");
                }
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
            for ipv6 in [false, true] {
                let _ = writeln!(text, "    {} {REFUSED}", self.direct_to_lan(ipv6));
            }
            inner(text, refusals(self.refuses));
        }
        text.push_str("  }\n");
    }

    /// What this host forwards, as for containers.
    fn forward(&self, text: &mut String) {
        let tun = self.tun;
        text.push_str("  chain forward {\n    type filter hook forward priority filter; policy accept;\n");
        self.not_taken(text);
        self.forged(text);
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
        } else if !self.around.bridges.is_empty() {
            // What holds for programs of this host holds for its containers.
            let bridges = quoted(self.around.bridges.keys().map(|name| &**name));
            for ipv6 in [false, true] {
                let _ = writeln!(
                    text,
                    "    iifname {{ {bridges} }} oifname != {{ {} }} meta mark & {MARK} == 0 {} {REFUSED}",
                    self.inside(),
                    self.direct_to_lan(ipv6)
                );
            }
        }
        text.push_str("  }\n");
    }

    /// Refuses what others send by the exit under the address of a container.
    fn forged(&self, text: &mut String) {
        let (inside, tun) = (self.inside(), self.tun);
        for ipv6 in [false, true] {
            let contained = list(self.around.contained(ipv6));
            if !contained.is_empty() {
                let family = family(ipv6);
                let _ = writeln!(
                    text,
                    "    iifname != {{ {inside} }} oifname \"{tun}\" {family} saddr {{ {contained} }} counter drop"
                );
            }
        }
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
        inner(text, &DROPPED);
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

    /// The exit forwards for one address alone. A connection that began under another one, before the exit was
    /// used, ends with an error.
    fn other_sources(&self, text: &mut String) {
        let tun = self.tun;
        for (ipv6, Ends { own, .. }) in self.ends() {
            let (family, mesh) = (family(ipv6), mesh(ipv6));
            for refused in REFUSALS {
                let _ = writeln!(
                    text,
                    "    oifname \"{tun}\" {family} daddr != @{mesh} {family} saddr != {own} {refused}"
                );
            }
        }
    }

    /// What does not go to local networks directly although the exit is not strict: all, or queries for names by TLS
    /// and QUIC, which no server of the exit answers.
    fn direct_to_lan(&self, ipv6: bool) -> String {
        let names = if self.exit.lan {
            format!(" meta l4proto {{ tcp, udp }} th dport {DNS_BY_TLS}")
        } else {
            String::new()
        };
        format!("{} daddr {}{names}", family(ipv6), lan(ipv6))
    }

    /// What may pass to local networks. Names are not asked for there: that would show them.
    fn lan(&self, text: &mut String, refused: &str) {
        if self.exit.lan {
            let _ = writeln!(
                text,
                "    meta l4proto {{ tcp, udp }} th dport {{ {DNS}, {DNS_BY_TLS} }} {refused}"
            );
            for ipv6 in [false, true] {
                let _ = writeln!(text, "    {} daddr {} accept", family(ipv6), lan(ipv6));
            }
        }
    }
}

/// Leads a query for names to this exit.
fn to_exit(exit: IpAddr) -> String {
    let (family, exit) = match exit {
        IpAddr::V4(exit) => ("ip", exit.to_string()),
        IpAddr::V6(exit) => ("ip6", format!("[{exit}]")),
    };
    format!("meta mark & {MARK} == 0 meta l4proto {{ tcp, udp }} th dport {DNS} dnat {family} to {exit}:{NAMES}")
}

/// What passes in any case: that by which this host has addresses and neighbours.
fn needed(text: &mut String) {
    text.push_str(
        "    udp sport 68 udp dport 67 accept\n    udp sport 546 udp dport 547 accept\n    \
         icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept\n    \
         icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } ip6 hoplimit 1 accept\n",
    );
}

/// What happens to answers of the connections that came in before the exit was used. `from`: a condition for them.
fn of_sessions(text: &mut String, from: &str, then: &str) {
    for ipv6 in [false, true] {
        let (family, sessions) = (family(ipv6), sessions(ipv6));
        let _ = writeln!(
            text,
            "    {from}meta l4proto . {family} saddr . th sport . {family} daddr . th dport @{sessions} {then}"
        );
    }
}

/// The set of the networks behind the interface of weft.
const fn mesh(ipv6: bool) -> &'static str {
    if ipv6 { "mesh6" } else { "mesh4" }
}

/// The set of the connections that came in before the exit was used.
const fn sessions(ipv6: bool) -> &'static str {
    if ipv6 { "sessions6" } else { "sessions4" }
}

/// All local networks of an IP version, for a rule.
fn lan(ipv6: bool) -> String {
    let networks = lan_networks(ipv6);
    format!(
        "{{ {} }}",
        list(networks.iter().map(|(address, len)| format!("{address}/{len}")))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reset_before_routes_lead_to_the_exit() {
        let around = Around {
            own: ["10.44.0.7".parse().unwrap()].into(),
            ..Around::default()
        };
        let exit = UseExit {
            ipv4: true,
            ..UseExit::default()
        };
        let [first, rest] =
            [false, true].map(|refuses| using(&exit, "weft0", &around, &[], &Saved::default(), refuses));
        assert!(
            rest.contains("saddr @own4 meta l4proto tcp reject with tcp reset"),
            "{rest}"
        );
        assert!(!first.contains("reset"), "{first}");
        let walls = [&first, &rest].map(|text| text.split_once("chain wall").unwrap().1);
        assert!(
            walls[0] == walls[1] && walls[0].contains("saddr @own4 counter drop"),
            "{}",
            walls[0]
        );
    }
}
