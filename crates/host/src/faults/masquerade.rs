//! Packets of others that this host sends into the node's interface with the address of another network:
//! a masquerade takes the first address of the interface, and a node has one in each of its networks.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use weft_wire::Subnet;

use super::packet_filter::{Packet, Ruleset};
use super::{Fault, others};
use crate::exit::rules::OWN;

/// The table of the command that mends it, which is the user's.
const TABLE: &str = "to_weft";
/// The most destinations that the command names.
const NAMED: usize = 64;
/// The most destinations and subnets that are followed through the rules.
const FOLLOWED: (usize, usize) = (256, 16);

/// What this host forwards into the node's interface by IPv4.
#[derive(Clone, Debug, Default)]
pub struct Forwarded {
    /// The addresses of the node's interface in the order of the kernel, with the bits of their prefixes.
    pub own: Vec<(Ipv4Addr, u8)>,
    /// What is behind the interface, with the address of this node that packets come from.
    pub sources: Vec<(Subnet, Ipv4Addr)>,
    /// Where packets come from that are forwarded: the interface, the subnet there, and a host in it.
    pub from: Vec<(String, Subnet, IpAddr)>,
}

impl Forwarded {
    /// The source that a masquerade gives packets to an address: as `inet_select_addr` of the kernel
    /// chooses, that with the prefix of the destination, or else the first one.
    fn chosen(&self, to: Subnet) -> Option<Ipv4Addr> {
        let is_near = |(own, len): &&(Ipv4Addr, u8)| {
            Subnet::around(IpAddr::V4(*own), *len).is_some_and(|around| around.contains(to.address()))
        };
        let near = self.own.iter().find(is_near).or(self.own.first());
        near.map(|(own, _)| *own)
    }
}

/// Names the packets that leave with an address that is not that of this node in their network.
pub(super) fn find(facts: &Forwarded, interface: &str, ruleset: &Ruleset) -> Option<Fault> {
    let differs = |(to, source): &&(Subnet, Ipv4Addr)| facts.chosen(*to).is_some_and(|chosen| chosen != *source);
    let wanted: Vec<&(Subnet, Ipv4Addr)> = facts.sources.iter().filter(differs).collect();
    let mut lost = BTreeSet::new();
    let mut from = BTreeSet::new();
    let mut before = i64::MAX;
    for (incoming, subnet, host) in facts.from.iter().take(FOLLOWED.1) {
        for (to, source) in wanted.iter().take(FOLLOWED.0) {
            let packet = Packet::forwarded(incoming, interface, to.address()).from(*host);
            let passes = ruleset.dropped_by(&packet, &OWN).is_none();
            if passes && ruleset.masquerades(&packet, &OWN) {
                lost.insert((*to, *source));
                from.insert(*subnet);
                before = before.min(ruleset.before_sources(&packet, &[&OWN[..], &[TABLE]].concat()));
            }
        }
    }
    let (to, source) = lost.first()?;
    let from: Vec<String> = from.iter().map(ToString::to_string).collect();
    let chosen = facts.chosen(*to)?;
    let what = format!(
        "a masquerade gives packets from {} to {}{} the address {chosen}, and not {source}, which this node has in \
         that network",
        from.join(" and "),
        plain(*to),
        others(lost.len() - 1),
    );
    let why = "weft drops packets with an address of another network, so containers do not reach these members";
    let fix = match wanted.len() {
        0..=NAMED => command(interface, &from, &wanted, before),
        _ => format!(
            "have a rule of nftables before the masquerade give packets to each member the address that `ip route show \
             dev {interface} proto 119` shows behind src"
        ),
    };
    Some(Fault::new("masquerade", what, why, fix))
}

/// A host without the bits of its prefix.
fn plain(subnet: Subnet) -> String {
    match subnet.prefix_len() {
        32 => subnet.address().to_string(),
        _ => subnet.to_string(),
    }
}

/// The command that gives packets the right source before the masquerade gives them another one.
fn command(interface: &str, from: &[String], wanted: &[&(Subnet, Ipv4Addr)], priority: i64) -> String {
    let sources: Vec<String> = wanted
        .iter()
        .map(|(to, source)| format!("{} : {source}", plain(*to)))
        .collect();
    format!(
        "sudo nft 'table ip {TABLE}; delete table ip {TABLE}; table ip {TABLE} {{ chain postrouting {{ type nat hook \
         postrouting priority {priority}; iifname != \"{interface}\" oifname \"{interface}\" ip saddr {{ {} }} \
         snat to ip daddr map {{ {} }}; }}; }}'",
        from.join(", "),
        sources.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A node in two networks, behind which a bridge has containers.
    fn facts() -> Forwarded {
        let own = ["10.44.0.9", "10.44.7.1"].map(|own| (own.parse().unwrap(), 32));
        let source = |to: &str, source: &str| (to.parse().unwrap(), source.parse().unwrap());
        Forwarded {
            own: own.into(),
            sources: vec![
                source("10.44.0.2/32", "10.44.0.9"),
                source("10.44.7.2/32", "10.44.7.1"),
                source("192.168.9.0/24", "10.44.7.1"),
            ],
            from: vec![(
                "docker0".to_owned(),
                "172.17.0.0/16".parse().unwrap(),
                "172.17.0.2".parse().unwrap(),
            )],
        }
    }

    fn matches(left: &Value, op: &str, right: &Value) -> Value {
        json!({"match": {"op": op, "left": left, "right": right}})
    }

    /// The rules of a table, with chains of this priority.
    fn table(name: &str, priority: i64, rules: &[Value]) -> Vec<Value> {
        let mut items = vec![
            json!({"chain": {"family": "ip", "table": name, "name": "post", "type": "nat",
            "hook": "postrouting", "prio": priority, "policy": "accept"}}),
        ];
        for expr in rules {
            items.push(json!({"rule": {"family": "ip", "table": name, "chain": "post", "expr": expr}}));
        }
        items
    }

    /// The rule of Docker, with this condition on the interface by which packets leave.
    fn masquerade(op: &str, interface: &str, target: &Value) -> Value {
        let subnet = json!({"prefix": {"addr": "172.17.0.0", "len": 16}});
        json!([
            matches(&json!({"meta": {"key": "oifname"}}), op, &json!(interface)),
            matches(&json!({"payload": {"protocol": "ip", "field": "saddr"}}), "==", &subnet),
            {"counter": {"packets": 0, "bytes": 0}},
            target
        ])
    }

    fn found(facts: &Forwarded, items: &[Vec<Value>]) -> Option<Fault> {
        let ruleset = Ruleset::parse(&json!({"nftables": items.concat()}), "");
        find(facts, "weft0", &ruleset)
    }

    #[test]
    fn the_second_network_behind_a_masquerade_is_named() {
        for target in [
            json!({"xt": {"type": "target", "name": "MASQUERADE"}}),
            json!({"masquerade": null}),
        ] {
            let docker = table("nat", 100, &[masquerade("!=", "docker0", &target)]);
            let fault = found(&facts(), std::slice::from_ref(&docker)).unwrap();
            assert_eq!(
                fault.what,
                "a masquerade gives packets from 172.17.0.0/16 to 10.44.7.2 and 1 other the address 10.44.0.9, and not \
                 10.44.7.1, which this node has in that network"
            );
            let fix = fault.fix.unwrap();
            let map =
                "ip saddr { 172.17.0.0/16 } snat to ip daddr map { 10.44.7.2 : 10.44.7.1, 192.168.9.0/24 : 10.44.7.1 }";
            assert!(fix.contains(map) && fix.contains("priority 99;"), "{fix}");
            // One network, or nothing that is forwarded.
            for change in [
                |facts: &mut Forwarded| facts.sources.truncate(1),
                |facts: &mut Forwarded| facts.from.clear(),
            ] {
                let mut facts = facts();
                change(&mut facts);
                assert_eq!(found(&facts, std::slice::from_ref(&docker)), None);
            }
        }
    }

    #[test]
    fn a_masquerade_that_may_not_apply_is_no_fault() {
        let target = json!({"masquerade": null});
        let elsewhere = table("nat", 100, &[masquerade("==", "eth0", &target)]);
        assert_eq!(found(&facts(), &[elsewhere]), None);
        let accepted = json!([matches(&json!({"meta": {"key": "oifname"}}), "==", &json!("weft0")), {"accept": null}]);
        let docker = masquerade("!=", "docker0", &target);
        assert_eq!(found(&facts(), &[table("nat", 100, &[accepted, docker.clone()])]), None);
        let mut marked = docker.clone();
        let mark = matches(&json!({"meta": {"key": "mark"}}), "==", &json!(1));
        marked.as_array_mut().unwrap().insert(0, mark);
        assert_eq!(
            found(&facts(), &[table("nat", 100, std::slice::from_ref(&marked))]),
            None
        );
        // An earlier rule that may hold has the same outcome here.
        assert!(found(&facts(), &[table("nat", 100, &[marked, docker])]).is_some());
    }

    #[test]
    fn a_rule_that_names_the_source_of_all_ends_the_fault() {
        let docker = table("nat", 100, &[masquerade("!=", "docker0", &json!({"masquerade": null}))]);
        let mapped = |pairs: Value| {
            let key = json!({"payload": {"protocol": "ip", "field": "daddr"}});
            let saddr = json!({"set": [{"range": ["172.17.0.0", "172.18.255.255"]}]});
            let rule = json!([
                matches(&json!({"meta": {"key": "iifname"}}), "!=", &json!("weft0")),
                matches(&json!({"payload": {"protocol": "ip", "field": "saddr"}}), "==", &saddr),
                {"snat": {"addr": {"map": {"key": key, "data": {"set": pairs}}}}}
            ]);
            table("to_weft", 99, &[rule])
        };
        let one = json!(["10.44.7.2", "10.44.7.1"]);
        let other = json!([{"prefix": {"addr": "192.168.9.0", "len": 24}}, "10.44.7.1"]);
        assert_eq!(found(&facts(), &[docker.clone(), mapped(json!([one, other]))]), None);
        // The command for a new member has the others, too.
        let fault = found(&facts(), &[docker, mapped(json!([one]))]).unwrap();
        assert!(fault.what.contains("to 192.168.9.0/24 the address"), "{}", fault.what);
        let fix = fault.fix.unwrap();
        assert!(
            fix.contains("10.44.7.2 : 10.44.7.1") && fix.contains("priority 99;"),
            "{fix}"
        );
    }

    #[test]
    fn an_address_with_the_prefix_of_the_destination_is_chosen() {
        let mut facts = facts();
        let to = |to: &str| to.parse().unwrap();
        assert_eq!(facts.chosen(to("10.44.7.2/32")), Some("10.44.0.9".parse().unwrap()));
        facts.own[1].1 = 24;
        assert_eq!(facts.chosen(to("10.44.7.2/32")), Some("10.44.7.1".parse().unwrap()));
    }
}
