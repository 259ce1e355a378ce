//! Faults of a host: what keeps packets from passing although the node has set up all that is its own.
//!
//! [`Facts::read`] looks at the kernel, and [`find`] says what is wrong. No setting is changed: a fault
//! names the command that does it. A fault is never a guess; [`Skipped`] names what cannot be looked at.
//!
//! To add a check: a field of [`Facts`], and a function in [`find`].

pub mod facts;
pub mod masquerade;
pub mod packet_filter;
pub mod site;

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weft_wire::Subnet;
use weft_wire::internet::EXIT_NAMES;

use self::facts::setting;
pub use self::facts::{Facts, Wanted, Way, examine, host};
use self::packet_filter::{Packet, Ruleset};
use crate::exit::rules::OWN;

/// The check of what leads to the exit of a node ([`Fault::check`]).
pub const EXIT: &str = "exit";
/// The check of the names that members get by an exit.
pub const RESOLVER: &str = "resolver";
/// The share of the table of connections in percent from which on it counts as full.
const FULL: u64 = 95;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The check, in one word: `forwarding`, `firewall`, `route`, `masquerade`, `exit`, `alarm`, `rp_filter`,
    /// `connections`, `resolver`; of the daemon itself `resolver`, `dns` and `flows`.
    pub check: String,
    /// What is so.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// The command that puts it right, or what to do.
    pub fix: Option<String>,
    /// The subnet behind this host that is not reached, as `192.168.7.0/24`, or all addresses of a version of IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Something that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    /// The check, as in [`Fault::check`].
    pub check: String,
    /// The reason.
    pub why: String,
}

/// The result of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Examined {
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// What was not looked at.
    pub skipped: Vec<Skipped>,
}

impl Fault {
    pub(crate) fn new(check: &str, what: String, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            what,
            why: why.into(),
            fix: Some(fix.into()),
            to: None,
        }
    }

    fn towards(self, to: Subnet) -> Self {
        Self {
            to: Some(to.to_string()),
            ..self
        }
    }

    /// What is so, and the command that puts it right: half a line for the user.
    #[must_use]
    pub fn in_brief(&self) -> String {
        let fix = self.fix.as_ref().map(|fix| format!("; {fix}"));
        format!("{}{}", self.what, fix.unwrap_or_default())
    }
}

/// Says what is wrong.
#[must_use]
pub fn find(facts: &Facts) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(dropped_here(facts));
    for way in &facts.ways {
        faults.extend(forwarding(facts, way));
        faults.extend(dropped_on_the_way(facts, way));
    }
    faults.extend(astray(facts));
    faults.extend(facts.sites.iter().map(|site| site::fault(site, &facts.interface)));
    faults.extend(masquerade::find(&facts.forwarded, &facts.interface, &facts.ruleset));
    faults.extend(connections(facts));
    faults
}

/// Datagrams to these ports of this host that its rules drop.
#[must_use]
pub fn dropped_ports(ruleset: &Ruleset, ports: &[u16]) -> Vec<Fault> {
    let fault = |port: &u16| {
        let chain = ruleset.dropped_by(&Packet::udp(*port), &OWN)?;
        Some(Fault::new(
            "firewall",
            format!("the chain {chain} drops UDP to port {port}"),
            "nodes that dial this one get no answer; only those that it dials itself are reached",
            format!("sudo nft insert rule {chain} udp dport {port} accept"),
        ))
    };
    ports.iter().filter_map(fault).collect()
}

/// Packets for this host that its own rules drop.
fn dropped_here(facts: &Facts) -> Vec<Fault> {
    let mut faults = dropped_ports(&facts.ruleset, &facts.ports);
    let name = &facts.interface;
    if let Some(chain) = facts.ruleset.dropped_by(&Packet::echo(name), &OWN) {
        faults.push(Fault::new(
            "firewall",
            format!("the chain {chain} drops what comes in on {name}"),
            "peers reach no program of this host, and not even a ping is answered",
            format!("sudo nft insert rule {chain} iifname {name} accept"),
        ));
        return faults;
    }
    let is_exit = facts.ways.iter().any(|way| way.to.prefix_len() == 0);
    let query = Packet::udp(EXIT_NAMES).by(name);
    if let Some(chain) = facts.ruleset.dropped_by(&query, &OWN).filter(|_| is_exit) {
        faults.push(Fault::new(
            RESOLVER,
            format!("the chain {chain} drops queries for names on {name}"),
            "members that use this exit find no names",
            format!(
                "sudo nft insert rule {chain} iifname {name} meta l4proto {{ tcp, udp }} th dport {EXIT_NAMES} accept"
            ),
        ));
    }
    faults
}

/// Why it matters that packets of members are not forwarded there.
fn unreached(to: Subnet) -> String {
    match to.prefix_len() {
        0 => format!("members that use this exit reach nothing by IPv{}", version(to)),
        _ => format!("members do not reach {to} behind this host"),
    }
}

fn version(subnet: Subnet) -> u8 {
    if subnet.address().is_ipv4() { 4 } else { 6 }
}

/// Settings of the kernel that keep packets from being forwarded, and routes that are missing.
fn forwarding(facts: &Facts, way: &Way) -> Option<Fault> {
    let Some(out) = &way.out else {
        let (what, fix) = match way.to.prefix_len() {
            0 => (
                format!("this host has no default route for IPv{}", version(way.to)),
                "connect it to a network that leads to the Internet".to_owned(),
            ),
            _ => (
                format!("this host has no route to {}", way.to),
                format!("sudo ip route add {} via GATEWAY", way.to),
            ),
        };
        return Some(Fault::new("route", what, unreached(way.to), fix).towards(way.to));
    };
    if way.closed.is_empty() {
        return None;
    }
    let what = format!(
        "IPv{} is not forwarded between {} and {out}: {} is 0",
        version(way.to),
        facts.interface,
        way.closed.join(" and ")
    );
    let commands: Vec<String> = way.closed.iter().map(|name| format!("{name}=1")).collect();
    let fix = format!("sudo sysctl -w {}", commands.join(" "));
    Some(Fault::new("forwarding", what, unreached(way.to), fix).towards(way.to))
}

/// The program that a chain of forwarded packets belongs to, if that is iptables(8).
fn of_iptables(facts: &Facts, chain: &str) -> Option<&'static str> {
    match chain {
        "ip filter FORWARD" if facts.iptables => Some("iptables-nft"),
        "ip6 filter FORWARD" if facts.iptables => Some("ip6tables-nft"),
        _ => None,
    }
}

/// Rules of others that drop what is forwarded, or the answers.
fn dropped_on_the_way(facts: &Facts, way: &Way) -> Vec<Fault> {
    let Some(out) = &way.out else { return Vec::new() };
    let name = &facts.interface;
    let packet = Packet::forwarded(name, out, way.destination);
    let chain = |packet: &Packet| facts.ruleset.dropped_by(packet, &OWN);
    let fault = |chain: &str, what: String, fix: String| {
        let what = format!("the chain {chain} drops {what}");
        Fault::new("firewall", what, unreached(way.to), fix).towards(way.to)
    };
    let there = |chain: &str| match of_iptables(facts, chain) {
        Some(program) => format!("sudo {program} -I FORWARD -i {name} -o {out} -j ACCEPT"),
        None => format!("sudo nft insert rule {chain} iifname {name} oifname {out} accept"),
    };
    let back = |chain: &str| match of_iptables(facts, chain) {
        Some(program) => {
            format!("sudo {program} -I FORWARD -i {out} -o {name} -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
        }
        None => {
            format!("sudo nft insert rule {chain} iifname {out} oifname {name} ct state established,related accept")
        }
    };
    match (chain(&packet), chain(&packet.answer())) {
        (Some(one), Some(other)) if one == other => {
            let what = format!("what is forwarded between {name} and {out}");
            vec![fault(&one, what, format!("{}; {}", there(&one), back(&one)))]
        }
        (one, other) => {
            let one = one.map(|one| fault(&one, format!("what is forwarded from {name} to {out}"), there(&one)));
            let other = other.map(|other| {
                let what = format!("the answers that are forwarded from {out} to {name}");
                fault(&other, what, back(&other))
            });
            one.into_iter().chain(other).collect()
        }
    }
}

/// Packets that do not go to the node, because another route or rule goes first.
fn astray(facts: &Facts) -> Vec<Fault> {
    let name = &facts.interface;
    let why = "another route, or a rule for routes, goes before that of weft";
    let fix = |address: IpAddr| {
        let rules = if address.is_ipv6() { "ip -6 rule" } else { "ip rule" };
        format!("`ip route get {address}` names the route, and `{rules}` the rules; remove that one")
    };
    let mut faults = Vec::new();
    for (by, addresses) in by_way(&facts.astray) {
        let Some(first) = addresses.first() else { continue };
        let others = others(addresses.len() - 1);
        let what = format!("packets to {first}{others} {by}, and not by {name}");
        faults.push(Fault::new("route", what, why, fix(*first)));
    }
    for (by, addresses) in by_way(&facts.past_exit) {
        let Some(first) = addresses.first() else { continue };
        let what = format!("packets that the exit is to carry {by}, as those to {first}");
        faults.push(Fault::new(EXIT, what, why, fix(*first)));
    }
    let leads_away = facts.astray.iter().any(|(address, _)| address.is_ipv4());
    if leads_away && facts.rp_filter == Some(1) {
        faults.push(Fault::new(
            "rp_filter",
            format!("the reverse path filter is strict on {name}"),
            "IPv4 packets of a peer are dropped, because the route back is another one",
            format!("sudo sysctl -w {}=2", setting(4, name, "rp_filter")),
        ));
    }
    faults
}

/// How many more there are than the one that is named, in words.
fn others(number: usize) -> String {
    match number {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        number => format!(" and {number} others"),
    }
}

/// The addresses whose packets take each way, in words.
fn by_way(astray: &[(IpAddr, Option<String>)]) -> BTreeMap<String, Vec<IpAddr>> {
    let mut ways: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (address, by) in astray {
        let by = by
            .as_ref()
            .map_or_else(|| "lead nowhere".to_owned(), |by| format!("leave by {by}"));
        ways.entry(by).or_default().push(*address);
    }
    ways
}

/// The table of connections of the kernel.
fn connections(facts: &Facts) -> Option<Fault> {
    let (used, most) = facts.connections?;
    (most > 0 && used.saturating_mul(100) >= most.saturating_mul(FULL)).then(|| {
        Fault::new(
            "connections",
            format!("the table of connections of this host is full: {used} of {most}"),
            "the kernel drops packets of new connections",
            format!(
                "sudo sysctl -w net.netfilter.nf_conntrack_max={}",
                most.saturating_mul(2)
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::facts::Forwarding;
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    /// A host that is an exit, and has a subnet of each version behind it.
    fn healthy() -> Facts {
        let way = |to: &str, out: &str| Way {
            out: Some(out.to_owned()),
            ..Way::new(subnet(to), &[])
        };
        Facts {
            interface: "weft0".to_owned(),
            ports: vec![2121],
            ways: vec![
                way("0.0.0.0/0", "eth0"),
                way("192.168.9.0/24", "lan"),
                way("fd99:1::/64", "lan"),
            ],
            rp_filter: Some(1),
            connections: Some((94, 100)),
            ..Facts::default()
        }
    }

    fn found(change: impl FnOnce(&mut Facts)) -> Vec<(String, String, String)> {
        let mut facts = healthy();
        change(&mut facts);
        let faults = find(&facts).into_iter();
        faults
            .map(|fault| (fault.check, fault.what, fault.fix.unwrap()))
            .collect()
    }

    fn says(found: &[(String, String, String)], check: &str, words: &[&str]) {
        let [(of, what, fix)] = found else { panic!("{found:?}") };
        assert_eq!(of, check, "{what}");
        for word in words {
            assert!(format!("{what}; {fix}").contains(word), "{word}: {what}; {fix}");
        }
    }

    #[test]
    fn a_healthy_host_has_no_fault() {
        assert_eq!(found(|_| {}), []);
    }

    #[test]
    fn each_fault_is_named_with_the_command_that_mends_it() {
        let closed = |name: &str| vec![name.to_owned()];
        says(
            &found(|facts| facts.ways[1].closed = closed("net.ipv4.conf.lan.forwarding")),
            "forwarding",
            &["IPv4", "weft0 and lan", "sudo sysctl -w net.ipv4.conf.lan.forwarding=1"],
        );
        says(
            &found(|facts| facts.ways[2].closed = closed("net.ipv6.conf.all.forwarding")),
            "forwarding",
            &["IPv6", "sudo sysctl -w net.ipv6.conf.all.forwarding=1"],
        );
        says(
            &found(|facts| facts.ways[0].out = None),
            "route",
            &["no default route for IPv4"],
        );
        says(
            &found(|facts| facts.ways[1].out = None),
            "route",
            &["no route to 192.168.9.0/24"],
        );
        says(
            &found(|facts| {
                facts.rp_filter = Some(2);
                facts.astray = vec![("10.44.1.2".parse().unwrap(), Some("tun9".to_owned()))];
            }),
            "route",
            &["10.44.1.2 leave by tun9, and not by weft0", "ip route get 10.44.1.2"],
        );
        let astray = found(|facts| facts.astray = vec![("10.44.1.2".parse().unwrap(), None)]);
        says(&astray[..1], "route", &["lead nowhere"]);
        says(
            &astray[1..],
            "rp_filter",
            &["sudo sysctl -w net.ipv4.conf.weft0.rp_filter=2"],
        );
        let many = found(|facts| {
            facts.rp_filter = None;
            let by = |address: &str, by: &str| (address.parse().unwrap(), Some(by.to_owned()));
            facts.astray = vec![
                by("10.44.1.2", "tun9"),
                by("10.44.1.3", "eth0"),
                by("10.44.1.4", "tun9"),
            ];
        });
        says(&many[..1], "route", &["10.44.1.3 leave by eth0"]);
        says(&many[1..], "route", &["10.44.1.2 and 1 other leave by tun9"]);
        let past = found(|facts| facts.past_exit = vec![("203.0.113.1".parse().unwrap(), Some("tun9".to_owned()))]);
        says(&past, "exit", &["leave by tun9, as those to 203.0.113.1"]);
        // The filter is for IPv4 alone.
        let ipv6 = found(|facts| facts.astray = vec![("fd00::2".parse().unwrap(), None)]);
        says(&ipv6, "route", &["fd00::2"]);
        says(
            &found(|facts| facts.connections = Some((95, 100))),
            "connections",
            &["95 of 100", "nf_conntrack_max=200"],
        );
    }

    #[test]
    fn a_policy_of_drop_is_named_in_both_directions() {
        let policy = |family: &str, rules: serde_json::Value| {
            let mut items = vec![json!({"chain": {"family": family, "table": "filter", "name": "FORWARD",
                "hook": "forward", "type": "filter", "policy": "drop"}})];
            for expr in rules.as_array().unwrap() {
                items.push(json!({"rule": {"family": family, "table": "filter", "chain": "FORWARD", "expr": expr}}));
            }
            Ruleset::parse(&json!({"nftables": items}), "")
        };
        let all = found(|facts| facts.ruleset = policy("ip", json!([])));
        assert_eq!(all.len(), 2, "{all:?}");
        says(
            &all[1..],
            "firewall",
            &[
                "between weft0 and lan",
                "iifname weft0 oifname lan accept",
                "iifname lan oifname weft0 ct state",
            ],
        );
        let iptables = found(|facts| {
            facts.ruleset = policy("ip", json!([]));
            facts.iptables = true;
        });
        says(
            &iptables[1..],
            "firewall",
            &[
                "sudo iptables-nft -I FORWARD -i weft0 -o lan -j ACCEPT; ",
                "sudo iptables-nft -I FORWARD -i lan -o weft0 -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
            ],
        );
        let established = json!([[{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "established"}},
            {"accept": null}]]);
        let out = found(|facts| {
            facts.ruleset = policy("ip", established.clone());
            facts.ways.remove(0);
        });
        says(
            &out,
            "firewall",
            &[
                "ip filter FORWARD",
                "from weft0 to lan",
                "sudo nft insert rule ip filter FORWARD iifname weft0 oifname lan",
            ],
        );
        says(
            &found(|facts| facts.ruleset = policy("ip6", established)),
            "firewall",
            &["ip6 filter FORWARD"],
        );
    }

    #[test]
    fn an_exit_whose_rules_drop_queries_for_names_has_a_fault() {
        let rule = |handle: u8, left: Value, right: Value| {
            json!({"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": handle,
                "expr": [{"match": {"op": "==", "left": left, "right": right}}, {"accept": null}]}})
        };
        let chain = json!({"chain": {"family": "inet", "table": "filter", "name": "input", "type": "filter",
            "hook": "input", "prio": 0, "policy": "drop"}});
        let ports = rule(
            1,
            json!({"payload": {"protocol": "udp", "field": "dport"}}),
            json!(2121),
        );
        let echoes = rule(2, json!({"meta": {"key": "l4proto"}}), json!("ipv6-icmp"));
        let ruleset = Ruleset::parse(&json!({"nftables": [chain, ports, echoes]}), "");
        says(
            &found(|facts| facts.ruleset = ruleset.clone()),
            RESOLVER,
            &[
                "inet filter input drops queries for names on weft0",
                "iifname weft0 meta l4proto",
                "7353 accept",
            ],
        );
        let no_exit = found(|facts| {
            facts.ruleset = ruleset;
            facts.ways.remove(0);
        });
        assert_eq!(no_exit, []);
    }

    #[test]
    fn forwarding_counts_per_interface() {
        let sysctls = |pairs: &'static [(&'static str, &'static str)]| {
            move |name: &str| {
                pairs
                    .iter()
                    .find(|(of, _)| *of == name)
                    .map(|(_, value)| (*value).to_owned())
            }
        };
        let closed = |ipv6, values| Forwarding { read: &sysctls(values) }.closed(ipv6, "weft0", "lan");
        // The switch for all is off, and both interfaces forward.
        let both = &[
            ("net.ipv4.ip_forward", "0"),
            ("net.ipv4.conf.weft0.forwarding", "1"),
            ("net.ipv4.conf.lan.forwarding", "1"),
        ];
        assert_eq!(closed(false, both), [""; 0]);
        let one = &[
            ("net.ipv4.conf.weft0.forwarding", "1"),
            ("net.ipv4.conf.lan.forwarding", "0"),
        ];
        assert_eq!(closed(false, one), ["net.ipv4.conf.lan.forwarding"]);
        let none = &[
            ("net.ipv4.conf.weft0.forwarding", "0"),
            ("net.ipv4.conf.lan.forwarding", "0"),
        ];
        assert_eq!(closed(false, none), ["net.ipv4.ip_forward"]);
        assert_eq!(
            closed(true, &[("net.ipv6.conf.all.forwarding", "0")]),
            ["net.ipv6.conf.all.forwarding"]
        );
        assert_eq!(closed(true, &[("net.ipv6.conf.all.forwarding", "1")]), [""; 0]);
        let forced = &[
            ("net.ipv6.conf.all.forwarding", "0"),
            ("net.ipv6.conf.weft0.force_forwarding", "1"),
            ("net.ipv6.conf.lan.force_forwarding", "1"),
        ];
        assert_eq!(closed(true, forced), [""; 0]);
        // An unreadable setting is not reported as a fault.
        assert_eq!(closed(false, &[]), [""; 0]);
    }
}
