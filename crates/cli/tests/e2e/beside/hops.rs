//! `weft why PEER --hops`: the nodes of relayed paths, and of a direct one.

use std::time::Duration;

use serde_json::Value;

use super::relays::in_a_row;
use crate::common::beside;
use crate::common::net::{Net, PINGS};

const START: Duration = Duration::from_secs(30);

/// What `weft why PEER --hops --json` prints.
fn hops(net: &Net, from: &str, to: &str) -> Value {
    let output = net.node(from).command(&["why", to, "--hops", "--json"]).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The nodes of a path by their keys.
fn keys(hops: &Value) -> Vec<String> {
    let nodes = hops["hops"].as_array().unwrap().iter();
    nodes.map(|node| node["npub"].as_str().unwrap().to_owned()).collect()
}

/// A and B have three relays between them, each of which knows only its neighbours. A learns the key
/// of each and the round trip to it, and B the same in the other direction. C says of itself what it
/// is, and a path without a relay has one hop.
#[test]
fn three_relays_in_a_row_are_listed_with_their_round_trips() {
    beside(|| {
        let mut net = Net::new(&["a", "c", "d", "e", "b"]);
        net.start("c", &net.knowing(&[], &["a"]));
        net.start("d", &net.knowing(&["c"], &[]));
        net.start("e", &net.knowing(&["d"], &[]));
        net.start("a", &net.knowing(&["c"], &["b"]));
        net.start("b", &net.knowing(&["e"], &["a"]));
        net.reached_within(START, "a", "b");
        net.reached_within(START, "b", "a");
        for report in net.ping_both(["a", "b"], PINGS, Duration::from_secs(5)) {
            assert!(report.lost.is_empty(), "{report:?}");
        }
        for (from, to, path) in [("a", "b", ["c", "d", "e", "b"]), ("b", "a", ["e", "d", "c", "a"])] {
            let found = hops(&net, from, to);
            assert_eq!(keys(&found), path.map(|name| net.npub(name)), "{found}");
            assert_eq!(found["complete"], true, "{found}");
            assert_eq!(found["path"]["via"], net.npub(path[0]), "{found}");
            for (node, name) in found["hops"].as_array().unwrap().iter().zip(path) {
                assert!(node["rtt_ms"].as_f64().unwrap() > 0.0, "{found}");
                assert!(node["link_rtt_ms"].as_f64().unwrap() >= 0.0, "{found}");
                // The others are in no configuration of the node that asks.
                let known = [path[0], path[3]].contains(&name);
                let expected = if known { Value::from(name) } else { Value::Null };
                assert_eq!((&node["name"], &node["why"]), (&expected, &Value::Null), "{found}");
            }
        }
        let output = net.node("a").command(&["why", "b", "--hops"]).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        eprintln!("{text}");
        assert!(text.contains(" hop         rtt    link rtt  node\n"), "{text}");
        assert!(text.contains(&format!("  {}\n", net.npub("d"))), "{text}");

        net.reached_within(START, "a", "c");
        let direct = hops(&net, "a", "c");
        assert_eq!(
            (keys(&direct), &direct["complete"]),
            (vec![net.npub("c")], &Value::Bool(true)),
            "{direct}"
        );
        assert_eq!(direct["path"]["kind"], "direct", "{direct}");
        assert!(direct["hops"][0]["rtt_ms"].as_f64().unwrap() > 0.0, "{direct}");
        net.finish();
    });
}

/// D is stopped while it is on the path: the list has C, a gap for what is behind it, and B without an
/// answer, and comes in time.
#[test]
fn a_relay_that_has_stopped_leaves_a_gap() {
    beside(|| {
        let mut net = in_a_row();
        assert_eq!(keys(&hops(&net, "a", "b")), ["c", "d", "b"].map(|name| net.npub(name)));
        net.node_mut("d").kill().unwrap();
        let found = hops(&net, "a", "b");
        assert_eq!(found["complete"], false, "{found}");
        let last = found["hops"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["npub"], &last["rtt_ms"]),
            (&Value::from(net.npub("b")), &Value::Null),
            "{found}"
        );
        assert_eq!(last["why"], "does not say", "{found}");
        let first = &found["hops"][0];
        assert_eq!(
            (&first["npub"], &first["name"]),
            (&Value::from(net.npub("c")), &Value::from("c")),
            "{found}"
        );
        let gap = &found["hops"][1];
        assert_eq!(
            (&gap["npub"], &gap["why"]),
            (&Value::Null, &Value::from("one or more nodes do not say")),
            "{found}"
        );
        net.node_mut("d").restart().unwrap();
        net.node_mut("d").wait_ready(START).unwrap();
        net.finish();
    });
}
