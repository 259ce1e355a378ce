use serde_json::json;

use super::*;

fn ruleset(hook: &str, policy: &str, rules: &Value) -> Ruleset {
    let mut items = vec![
        json!({"chain": {"family": "inet", "table": "filter", "name": hook, "hook": hook, "type": "filter", "policy": policy}}),
        json!({"chain": {"family": "inet", "table": "filter", "name": "more"}}),
    ];
    let mut text = "table inet filter { # handle 1\n".to_owned();
    for (number, rule) in rules.as_array().unwrap().iter().enumerate() {
        let (chain, expr) = match rule.get("more") {
            Some(expr) => ("more", expr),
            None => (hook, rule),
        };
        let handle = number + 10;
        let words = rule.as_array().and_then(|all| all.last()?["words"].as_str());
        text.extend(words.map(|words| format!("\t\t{words} accept # handle {handle}\n")));
        items.push(
            json!({"rule": {"family": "inet", "table": "filter", "chain": chain, "handle": handle, "expr": expr}}),
        );
    }
    Ruleset::parse(&json!({"nftables": items}), &text)
}

fn matches(left: &Value, right: &Value) -> Value {
    json!({"match": {"op": "==", "left": left, "right": right}})
}

fn iif(right: &str) -> Value {
    matches(&json!({"meta": {"key": "iifname"}}), &json!(right))
}

fn oif(right: &str) -> Value {
    matches(&json!({"meta": {"key": "oifname"}}), &json!(right))
}

fn destination(right: &Value) -> Value {
    matches(&json!({"payload": {"protocol": "ip", "field": "daddr"}}), right)
}

fn established() -> Value {
    json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}})
}

#[test]
fn rules_for_this_host_are_followed_in_order() {
    let port = |right: Value| matches(&json!({"payload": {"protocol": "udp", "field": "dport"}}), &right);
    let saddr = matches(
        &json!({"payload": {"protocol": "ip", "field": "saddr"}}),
        &json!("192.0.2.1"),
    );
    let accept = json!({"accept": null});
    let jump = json!({"jump": {"target": "more"}});
    // Whether a datagram to port 2121 is surely dropped, and an echo request on weft0.
    for (policy, rules, datagram, echo) in [
        ("accept", json!([]), false, false),
        ("drop", json!([]), true, true),
        (
            "drop",
            json!([[iif("lo"), accept], [established(), accept]]),
            true,
            true,
        ),
        ("drop", json!([[port(json!(2121)), accept]]), false, true),
        ("drop", json!([[port(json!(2122)), accept]]), true, true),
        (
            "drop",
            json!([[port(json!({"set": [53, {"range": [2000, 3000]}]})), {"counter": {}}, accept]]),
            false,
            true,
        ),
        ("drop", json!([[port(json!("@open")), accept]]), false, true),
        ("drop", json!([[iif("weft0"), accept]]), false, false),
        ("drop", json!([[iif("we*"), accept]]), false, false),
        ("drop", json!([[saddr, accept]]), false, true),
        ("drop", json!([[saddr, {"drop": null}]]), true, true),
        ("drop", json!([[{"limit": {"rate": 5}}, accept]]), false, false),
        (
            "drop",
            json!([[jump], {"more": [port(json!(2121)), accept]}]),
            false,
            true,
        ),
        ("drop", json!([[{"return": null}], [accept]]), true, true),
        (
            "drop",
            json!([[jump], [accept], {"more": [{"return": null}]}]),
            false,
            false,
        ),
        (
            "drop",
            json!([[{"goto": {"target": "more"}}], [accept], {"more": [iif("x"), accept]}]),
            false,
            true,
        ),
        ("accept", json!([[port(json!(2121)), {"drop": null}]]), true, false),
        ("accept", json!([[jump], {"more": [{"reject": {}}]}]), true, true),
        ("drop", json!([[jump], {"more": [jump]}]), false, false),
        ("drop", json!([[{"xt": null}, accept]]), false, false),
        (
            "accept",
            json!([[{"xt": {"type": "target", "name": "LOG"}}], [{"xt": {"type": "target", "name": "REJECT"}}]]),
            true,
            true,
        ),
        (
            "drop",
            json!([[{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["new", accept], ["invalid", {"drop": null}]]}}}]]),
            false,
            false,
        ),
        (
            "drop",
            json!([[{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["lo", accept], ["eth0", jump]]}}}]]),
            true,
            true,
        ),
    ] {
        let set = ruleset("input", policy, &rules);
        let dropped = |packet| set.dropped_by(&packet, &[]).is_some();
        assert_eq!(dropped(Packet::udp(2121)), datagram, "{rules}");
        assert_eq!(dropped(Packet::echo("weft0")), echo, "{rules}");
    }
    let dropped = ruleset("input", "drop", &json!([])).dropped_by(&Packet::udp(1), &[]);
    assert_eq!(dropped.as_deref(), Some("inet filter input"));
}

#[test]
fn rules_for_forwarded_packets_are_followed() {
    let accept = json!({"accept": null});
    let out = Packet::forwarded("weft0", "lan", "192.168.9.2".parse().unwrap());
    let ipv6 = Packet::forwarded("weft0", "lan", "2001:db8::2".parse().unwrap());
    let xt = json!({"xt": {"type": "match", "name": "conntrack"}});
    let subnet = json!({"prefix": {"addr": "192.168.9.0", "len": 24}});
    // Whether the first packet, its answer, and the first one over IPv6 are surely dropped.
    for (rules, expected) in [
        (json!([]), [true, true, true]),
        (json!([[established(), accept]]), [true, false, true]),
        (json!([[iif("weft0"), accept]]), [false, true, false]),
        (
            json!([[iif("weft0"), oif("lan"), accept], [established(), accept]]),
            [false, false, false],
        ),
        (
            json!([[iif("docker0"), accept], [oif("docker0"), {"limit": {}}, accept]]),
            [true, true, true],
        ),
        (json!([[destination(&subnet), accept]]), [false, false, true]),
        (
            json!([[destination(&json!("192.168.9.3")), accept]]),
            [true, false, true],
        ),
        (
            json!([[destination(&json!({"set": ["10.0.0.1", subnet]})), accept]]),
            [false, false, true],
        ),
        // Some protocols pass, and it is not known which ones are wanted.
        (
            json!([[
                matches(&json!({"payload": {"protocol": "tcp", "field": "dport"}}), &json!(22)),
                accept
            ]]),
            [false; 3],
        ),
        // What iptables has written: the text says which states it means.
        (
            json!([[xt, accept, {"words": "ct state related,established counter packets 0 bytes 0"}]]),
            [true, false, true],
        ),
        (
            json!([[xt, accept, {"words": "counter packets 0 bytes 0"}]]),
            [false; 3],
        ),
        (
            json!([[xt, accept, {"words": "fib daddr type local counter"}]]),
            [true; 3],
        ),
        (
            json!([[xt, xt, accept, {"words": "ct state new counter"}]]),
            [false, true, false],
        ),
    ] {
        let set = ruleset("forward", "drop", &rules);
        let dropped = |packet: &Packet| set.dropped_by(packet, &[]).is_some();
        assert_eq!(
            [dropped(&out), dropped(&out.answer()), dropped(&ipv6)],
            expected,
            "{rules}"
        );
        // Packets for this host do not come by.
        assert!(!dropped(&Packet::echo("weft0")));
    }
    let set = ruleset("forward", "drop", &json!([]));
    assert_eq!(set.dropped_by(&out, &["filter"]), None);
}

#[test]
fn documents_that_make_no_sense_drop_nothing() {
    for document in [
        json!(null),
        json!({}),
        json!({"nftables": 7}),
        json!({"nftables": [{"chain": 1}, {"rule": 2}]}),
    ] {
        for text in ["", "table\n# handle\ntable x # handle y", "# handle 1"] {
            assert_eq!(Ruleset::parse(&document, text).dropped_by(&Packet::udp(1), &[]), None);
        }
    }
}
