//! What the rules of nftables do with a packet, as far as they can be followed. Pure.
//!
//! A rule whose conditions are not known here is one that may apply: then nothing is said, so that a
//! finding is never a guess.

use serde_json::Value;

/// Jumps from chain to chain that are followed.
const DEPTH: usize = 16;

/// A packet that begins something new.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    interface: Option<String>,
    protocol: &'static str,
    port: Option<u16>,
}

impl Packet {
    /// A datagram to a port of this host.
    pub(super) fn udp(port: u16) -> Self {
        Self {
            interface: None,
            protocol: "udp",
            port: Some(port),
        }
    }

    /// An echo request over IPv6 that comes in on an interface.
    pub(super) fn echo(interface: &str) -> Self {
        Self {
            interface: Some(interface.to_owned()),
            protocol: "ipv6-icmp",
            port: None,
        }
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    /// A rule that is not understood may decide.
    Unknown,
}

/// The output of `nft -j list ruleset`.
#[derive(Clone, Debug, Default)]
pub(super) struct Ruleset {
    chains: Vec<Chain>,
}

#[derive(Clone, Debug)]
struct Chain {
    /// Family and table.
    table: (String, String),
    name: String,
    /// Whether packets to this host begin here, and whether those that no rule decides are dropped.
    input: bool,
    drops: bool,
    rules: Vec<Vec<Value>>,
}

impl Ruleset {
    pub(super) fn parse(document: &Value) -> Self {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let mut chains: Vec<Chain> = Vec::new();
        for item in document["nftables"].as_array().into_iter().flatten() {
            if let Some(chain) = item.get("chain") {
                chains.push(Chain {
                    table: (text(chain, "family"), text(chain, "table")),
                    name: text(chain, "name"),
                    input: chain["hook"] == "input" && chain["type"] == "filter",
                    drops: chain["policy"] == "drop",
                    rules: Vec::new(),
                });
            }
            if let Some(rule) = item.get("rule") {
                let (table, name) = ((text(rule, "family"), text(rule, "table")), text(rule, "chain"));
                let chain = chains
                    .iter_mut()
                    .find(|chain| chain.table == table && chain.name == name);
                if let (Some(chain), Some(expressions)) = (chain, rule["expr"].as_array()) {
                    chain.rules.push(expressions.clone());
                }
            }
        }
        Self { chains }
    }

    /// The chain that surely drops the packet, as nft names it: `inet filter input`.
    pub(super) fn dropped_by(&self, packet: &Packet) -> Option<String> {
        let mut starts = self.starts(packet);
        let chain = starts.find(|chain| self.follow(chain, packet, 0).unwrap_or(policy(chain)) == Verdict::Drop)?;
        Some(format!("{} {} {}", chain.table.0, chain.table.1, chain.name))
    }

    /// What all chains together do: each can drop.
    #[cfg(test)]
    pub(super) fn verdict(&self, packet: &Packet) -> Verdict {
        let verdicts = self
            .starts(packet)
            .map(|chain| self.follow(chain, packet, 0).unwrap_or(policy(chain)));
        verdicts.fold(Verdict::Accept, |all, one| match (all, one) {
            (Verdict::Drop, _) | (_, Verdict::Drop) => Verdict::Drop,
            (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
            _ => Verdict::Accept,
        })
    }

    /// The chains in which the packet begins. The family of a datagram of the underlay is not known.
    fn starts<'a>(&'a self, packet: &Packet) -> impl Iterator<Item = &'a Chain> + use<'a> {
        let only_ipv6 = packet.interface.is_some();
        self.chains.iter().filter(move |chain| {
            let family = chain.table.0.as_str();
            chain.input && (matches!(family, "inet" | "ip6") || family == "ip" && !only_ipv6)
        })
    }

    /// What the rules of a chain decide; `None` if none does.
    fn follow(&self, chain: &Chain, packet: &Packet, depth: usize) -> Option<Verdict> {
        if depth > DEPTH {
            return Some(Verdict::Unknown);
        }
        for rule in &chain.rules {
            let applies = applies(rule, packet);
            if applies == Some(false) {
                continue;
            }
            let decided = rule
                .iter()
                .find_map(|expression| self.decide(chain, expression, packet, depth));
            match (applies, decided) {
                (_, None) => {}
                (_, Some(Some(verdict))) if applies.is_some() => return Some(verdict),
                // A chain that was jumped to and that decided nothing.
                (Some(true), Some(None)) => {}
                _ => return Some(Verdict::Unknown),
            }
        }
        None
    }

    /// What one statement decides; `None` if it is none that decides, `Some(None)` if it leads to a
    /// chain that decides nothing.
    fn decide(&self, chain: &Chain, expression: &Value, packet: &Packet, depth: usize) -> Option<Option<Verdict>> {
        let (name, argument) = expression.as_object()?.iter().next()?;
        match name.as_str() {
            "accept" => Some(Some(Verdict::Accept)),
            "drop" | "reject" => Some(Some(Verdict::Drop)),
            "return" | "vmap" | "queue" | "xt" => Some(Some(Verdict::Unknown)),
            "jump" | "goto" => {
                let target = argument["target"].as_str()?;
                let mut chains = self.chains.iter();
                let target = chains.find(|known| known.table == chain.table && known.name == target);
                Some(target.map_or(Some(Verdict::Unknown), |target| self.follow(target, packet, depth + 1)))
            }
            _ => None,
        }
    }
}

fn policy(chain: &Chain) -> Verdict {
    if chain.drops { Verdict::Drop } else { Verdict::Accept }
}

/// Whether all conditions of a rule hold; `None` if that is not known.
fn applies(rule: &[Value], packet: &Packet) -> Option<bool> {
    let conditions = rule.iter().filter_map(|expression| expression.get("match"));
    let mut all = Some(true);
    for condition in conditions {
        match holds(condition, packet) {
            Some(false) => return Some(false),
            None => all = None,
            Some(true) => {}
        }
    }
    all
}

fn holds(condition: &Value, packet: &Packet) -> Option<bool> {
    let (left, right) = (&condition["left"], &condition["right"]);
    let equal = match (
        left["meta"]["key"].as_str(),
        left["ct"]["key"].as_str(),
        left.get("payload"),
    ) {
        (Some("iifname" | "iif"), ..) => match &packet.interface {
            Some(interface) => contains(right, &|one| Some(one == interface.as_str())),
            // A datagram of the underlay comes in on any interface, but not on this one.
            None => match right.as_str() {
                Some("lo") => Some(false),
                _ => None,
            },
        },
        (Some("l4proto"), ..) => contains(right, &|one| {
            let same = one == packet.protocol || one == "icmpv6" && packet.protocol == "ipv6-icmp";
            Some(same)
        }),
        (_, Some("state"), _) => contains(right, &|one| Some(one == "new")),
        (.., Some(payload)) => match (payload["protocol"].as_str(), payload["field"].as_str()) {
            (Some(protocol @ ("udp" | "tcp" | "icmp" | "icmpv6")), field) => {
                let same = protocol == packet.protocol || protocol == "icmpv6" && packet.protocol == "ipv6-icmp";
                match (same, field, packet.port) {
                    (false, ..) => return Some(false),
                    (true, Some("dport"), Some(port)) => contains(right, &|one| Some(one == u64::from(port))),
                    (true, Some("type"), None) => contains(right, &|one| Some(one == "echo-request")),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    };
    match condition["op"].as_str() {
        Some("!=") => equal.map(|equal| !equal),
        Some("==" | "in") => equal,
        _ => None,
    }
}

/// Whether a value, a set, a list or a range of ports has what is wanted.
fn contains(right: &Value, is: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    if let Some(range) = right["range"].as_array() {
        let [from, to] = &range[..] else { return None };
        let (from, to) = (from.as_u64()?, to.as_u64()?);
        return (from..=to.min(u64::from(u16::MAX)))
            .map(|port| is(&Value::from(port)))
            .find(|found| *found != Some(false))
            .unwrap_or(Some(false));
    }
    if let Some(items) = right.as_array().or_else(|| right["set"].as_array()) {
        let mut all = Some(false);
        for item in items {
            match contains(item, is) {
                Some(true) => return Some(true),
                None => all = None,
                Some(false) => {}
            }
        }
        return all;
    }
    match right {
        // A named set, or a pattern of names.
        Value::String(text) if text.starts_with('@') || text.ends_with('*') => None,
        Value::String(_) | Value::Number(_) => is(right),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ruleset(policy: &str, rules: &Value) -> Ruleset {
        let mut items = vec![
            json!({"chain": {"family": "inet", "table": "filter", "name": "input", "hook": "input", "type": "filter", "policy": policy}}),
            json!({"chain": {"family": "inet", "table": "filter", "name": "more"}}),
        ];
        for rule in rules.as_array().unwrap() {
            let (chain, expr) = match rule.get("more") {
                Some(expr) => ("more", expr),
                None => ("input", rule),
            };
            items.push(json!({"rule": {"family": "inet", "table": "filter", "chain": chain, "expr": expr}}));
        }
        Ruleset::parse(&json!({"nftables": items}))
    }

    fn matches(left: &Value, right: &Value) -> Value {
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    #[test]
    fn rules_are_followed_in_order() {
        use Verdict::{Accept, Drop, Unknown};
        let port = |right: Value| matches(&json!({"payload": {"protocol": "udp", "field": "dport"}}), &right);
        let name = |right: &str| matches(&json!({"meta": {"key": "iifname"}}), &json!(right));
        let state =
            json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}});
        let saddr = matches(
            &json!({"payload": {"protocol": "ip", "field": "saddr"}}),
            &json!("192.0.2.1"),
        );
        let accept = json!({"accept": null});
        let jump = json!({"jump": {"target": "more"}});
        for (policy, rules, datagram, echo) in [
            ("accept", json!([]), Accept, Accept),
            ("drop", json!([]), Drop, Drop),
            ("drop", json!([[name("lo"), accept], [state, accept]]), Drop, Drop),
            ("drop", json!([[port(json!(2121)), accept]]), Accept, Drop),
            ("drop", json!([[port(json!(2122)), accept]]), Drop, Drop),
            (
                "drop",
                json!([[port(json!({"set": [53, {"range": [2000, 3000]}]})), {"counter": {}}, accept]]),
                Accept,
                Drop,
            ),
            ("drop", json!([[port(json!("@open")), accept]]), Unknown, Drop),
            ("drop", json!([[name("weft0"), accept]]), Unknown, Accept),
            ("drop", json!([[saddr, accept]]), Unknown, Unknown),
            (
                "drop",
                json!([[jump], {"more": [port(json!(2121)), accept]}]),
                Accept,
                Drop,
            ),
            ("accept", json!([[port(json!(2121)), {"drop": null}]]), Drop, Accept),
            ("accept", json!([[jump], {"more": [{"reject": {}}]}]), Drop, Drop),
            ("drop", json!([[jump], {"more": [jump]}]), Unknown, Unknown),
            ("drop", json!([[{"xt": null}, accept]]), Unknown, Unknown),
        ] {
            let set = ruleset(policy, &rules.clone());
            assert_eq!(set.verdict(&Packet::udp(2121)), datagram, "{rules}");
            assert_eq!(set.verdict(&Packet::echo("weft0")), echo, "{rules}");
            let dropped = set.dropped_by(&Packet::udp(2121));
            assert_eq!(dropped.is_some(), datagram == Drop, "{rules}");
        }
        let dropped = ruleset("drop", &json!([])).dropped_by(&Packet::udp(1));
        assert_eq!(dropped.as_deref(), Some("inet filter input"));
    }

    #[test]
    fn documents_that_make_no_sense_drop_nothing() {
        for document in [
            json!(null),
            json!({}),
            json!({"nftables": 7}),
            json!({"nftables": [{"chain": 1}, {"rule": 2}]}),
        ] {
            assert_eq!(Ruleset::parse(&document).verdict(&Packet::udp(1)), Verdict::Accept);
        }
    }
}
