//! Whether the conditions of a rule hold for a packet: `None` if that is not known.

use std::net::IpAddr;

use serde_json::Value;
use weft_wire::Subnet;

use super::{Hook, Packet, Rule};

/// Statements without which a rule does the same to each packet.
const LIMITS: [&str; 6] = ["limit", "quota", "ct count", "meter", "set", "map"];

/// Whether all conditions of a rule hold.
pub(super) fn all_hold(rule: &Rule, packet: &Packet) -> Option<bool> {
    let mut known = Vec::new();
    let mut of_iptables = 0;
    for expression in &rule.expressions {
        if let Some(condition) = expression.get("match") {
            known.push(holds(condition, packet));
        } else if expression.get("xt").is_some_and(|xt| xt["type"] != "target") {
            of_iptables += 1;
        } else if LIMITS.iter().any(|name| expression.get(name).is_some()) {
            known.push(None);
        }
    }
    if of_iptables > 0 {
        let words = in_words(rule.text.as_deref().unwrap_or_default(), packet);
        known.extend((words.len() < of_iptables).then_some(None));
        known.extend(words);
    }
    match known.contains(&Some(false)) {
        true => Some(false),
        false => (!known.contains(&None)).then_some(true),
    }
}

/// The conditions of iptables that only the text of a rule names.
fn in_words(text: &str, packet: &Packet) -> Vec<Option<bool>> {
    let mut known = Vec::new();
    if let Some((_, rest)) = text.split_once("ct state ") {
        let states = rest.split_whitespace().next().unwrap_or_default();
        known.push(match states.starts_with(['!', '{']) {
            true => None,
            false => Some(states.split(',').any(|state| state == state_of(packet))),
        });
    }
    if text.contains("fib daddr type local") && packet.hook == Hook::Forward {
        known.push(Some(false));
    }
    known
}

const fn state_of(packet: &Packet) -> &'static str {
    if packet.answers { "established" } else { "new" }
}

fn holds(condition: &Value, packet: &Packet) -> Option<bool> {
    let equal = equals(&condition["left"], &condition["right"], packet);
    match condition["op"].as_str() {
        Some("!=") => equal.map(|equal| !equal),
        Some("==" | "in") => equal,
        _ => None,
    }
}

/// Whether a field of the packet is one of these values.
pub(super) fn equals(left: &Value, right: &Value, packet: &Packet) -> Option<bool> {
    match left["meta"]["key"].as_str() {
        Some("iifname" | "iif") => return of_interface(packet.incoming.as_deref(), right),
        Some("oifname" | "oif") => return of_interface(packet.outgoing.as_deref(), right),
        Some("nfproto") => {
            let version = if packet.ipv6? { "ipv6" } else { "ipv4" };
            return contains(right, &|one| Some(one == version));
        }
        Some("l4proto") => {
            let protocol = packet.protocol?;
            return contains(right, &|one| Some(is_protocol(one.as_str()?, protocol)));
        }
        _ => {}
    }
    if left["ct"]["key"] == "state" {
        return contains(right, &|one| Some(one == state_of(packet)));
    }
    if left["fib"]["result"] == "type" && right == "local" && packet.hook == Hook::Forward {
        return Some(false);
    }
    let payload = left.get("payload")?;
    match (payload["protocol"].as_str()?, payload["field"].as_str()) {
        (version @ ("ip" | "ip6"), field) => {
            if packet.ipv6.is_some_and(|ipv6| ipv6 != (version == "ip6")) {
                return Some(false);
            }
            let address = match field {
                Some("saddr") => packet.source?,
                Some("daddr") => packet.destination?,
                _ => return None,
            };
            contains(right, &|one| of_address(one, address))
        }
        (protocol @ ("udp" | "tcp" | "icmp" | "icmpv6"), field) => {
            if !is_protocol(protocol, packet.protocol?) {
                return Some(false);
            }
            match (field, packet.port) {
                (Some("dport"), Some(port)) => contains(right, &|one| Some(one == u64::from(port))),
                (Some("type"), None) => contains(right, &|one| Some(one == "echo-request")),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_protocol(word: &str, protocol: &str) -> bool {
    word == protocol || word == "icmpv6" && protocol == "ipv6-icmp"
}

fn of_interface(interface: Option<&str>, right: &Value) -> Option<bool> {
    contains(right, &|one| match (interface, one.as_str()?) {
        (Some(interface), pattern) => Some(match pattern.strip_suffix('*') {
            Some(start) => interface.starts_with(start),
            None => interface == pattern,
        }),
        // A datagram of another host comes in on any interface, but not on this one.
        (None, "lo") => Some(false),
        (None, _) => None,
    })
}

fn of_address(value: &Value, wanted: IpAddr) -> Option<bool> {
    let parsed = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    if let Some(range) = value.get("range") {
        return Some((parsed(&range[0])?..=parsed(&range[1])?).contains(&wanted));
    }
    let (address, len) = match value.get("prefix") {
        Some(prefix) => (&prefix["addr"], prefix["len"].as_u64()),
        None => (value, None),
    };
    let address = parsed(address)?;
    let len = len.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
    let subnet = Subnet::new(address, u8::try_from(len).ok()?).ok()?;
    Some(subnet.contains(wanted))
}

/// Whether a value, a set, a list or a range has what is wanted.
fn contains(right: &Value, is: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    if let Some(range) = right["range"].as_array() {
        let [from, to] = &range[..] else { return None };
        // A range of addresses is compared as a whole.
        if from.as_str().is_some_and(|from| from.parse::<IpAddr>().is_ok()) {
            return is(right);
        }
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
        // A named set.
        Value::String(text) if text.starts_with('@') => None,
        Value::String(_) | Value::Number(_) => is(right),
        _ if right.get("prefix").is_some() => is(right),
        _ => None,
    }
}
