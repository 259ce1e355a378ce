//! The result of a simulated mesh, as text and as a document.

use std::fmt::Write as _;

use serde_json::{Value, json};
use weft_sim::Kind;

use super::Done;

/// The document weft.sim/1; docs/guides/simulation.md describes its fields.
pub(super) fn document(done: &Done<'_>) -> Value {
    let f = &done.figures;
    let latency = f
        .latency
        .map(|l| json!({ "p50_ms": l.p50, "p90_ms": l.p90, "max_ms": l.max }));
    let kinds: serde_json::Map<_, _> = f
        .by_kind
        .iter()
        .map(|(kind, (datagrams, bytes))| {
            let counts = json!({ "datagrams": datagrams, "bytes": bytes });
            (name(*kind).to_owned(), counts)
        })
        .collect();
    json!({
        "schema": "weft.sim/1",
        "seed": done.scenario.seed,
        "topology": done.scenario.shape.to_string(),
        "nodes": f.nodes,
        "links": f.links,
        "duration_ms": f.duration,
        "converged_ms": f.converged,
        "settled_ms": f.settled,
        "depth": f.depth,
        "pairs": f.pairs,
        "pairs_reached": f.pairs_reached,
        "probes": f.sent,
        "probes_arrived": f.reached,
        "latency": latency,
        "hops_mean": f.hops,
        "shortest_mean": f.shortest,
        "stretch": f.stretch(),
        "datagrams_per_node_second": f.datagrams_per_node_second,
        "bytes_per_node_second": f.bytes_per_node_second,
        "traffic": kinds,
        "state_bytes_mean": f.state_mean,
        "state_bytes_max": f.state_max,
        "lookups": f.lookups,
        "loops": f.loops,
        "steps": f.steps,
        "trace": format!("{:016x}", f.trace),
        "wall_s": done.wall,
        "memory_peak_bytes": done.memory,
        "failure": done.failure.as_ref().map(ToString::to_string),
    })
}

/// The result as text.
pub(super) fn text(done: &Done<'_>) -> String {
    let f = &done.figures;
    let seconds = |ms: Option<u64>| ms.map_or("never".to_owned(), |ms| format!("{:.2} s", ms as f64 / 1_000.0));
    let mut rows = vec![
        (
            "mesh",
            format!(
                "{} of {} hosts, {} links, seed {}",
                done.scenario.shape, f.nodes, f.links, done.scenario.seed
            ),
        ),
        ("ran for", seconds(Some(f.duration))),
        ("one tree after", format!("{}, depth {}", seconds(f.converged), f.depth)),
    ];
    if f.settled != f.converged {
        rows.push(("settled after", seconds(f.settled)));
    }
    rows.push(("pairs reached", format!("{} of {}", f.pairs_reached, f.pairs)));
    rows.push(("packets arrived", format!("{} of {}", f.reached, f.sent)));
    if let Some(l) = f.latency {
        rows.push((
            "latency",
            format!("median {} ms, P90 {} ms, maximum {} ms", l.p50, l.p90, l.max),
        ));
        let hops = format!("{:.2}, shortest {:.2}, stretch {:.2}", f.hops, f.shortest, f.stretch());
        rows.push(("path length", hops));
    }
    let rate = format!(
        "{:.2} datagrams, {:.0} bytes per host and second",
        f.datagrams_per_node_second, f.bytes_per_node_second
    );
    rows.push(("traffic", rate));
    rows.push((
        "state",
        format!("{} bytes per host, {} at most", f.state_mean, f.state_max),
    ));
    let count = |name: &str| f.lookups.get(name).copied().unwrap_or_default();
    let lookups = format!(
        "{} started, {} found, {} failed, {} forwarded",
        count("started"),
        count("found"),
        count("failed"),
        count("forwarded")
    );
    rows.push(("look-ups", lookups));
    rows.push(("loops", format!("{} times", f.loops)));
    rows.push(("trace", format!("{:016x}, {} steps", f.trace, f.steps)));
    let memory = done
        .memory
        .map_or(String::new(), |bytes| format!(", {} MiB", bytes >> 20));
    rows.push(("cost", format!("{:.1} s{memory}", done.wall)));
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<17}{value}");
    }
    if let Some(failure) = &done.failure {
        let _ = writeln!(text, "{:<17}{failure}", "failed");
    }
    text
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Data => "data",
        Kind::LinkMsg1 => "link_msg1",
        Kind::LinkMsg2 => "link_msg2",
        Kind::Setup => "session_setup",
        Kind::Ack => "session_ack",
        Kind::Msg3 => "session_msg3",
        Kind::SessionControl => "session_control",
        Kind::Tree => "tree_announce",
        Kind::Filter => "filter_announce",
        Kind::Lookup => "lookup",
        Kind::LinkControl => "link_control",
    }
}
