//! `weft why PEER --hops`: the nodes of the path to a peer.

use weft_config::peer::NodeRef;
use weft_control::ControlCommand;
use weft_control::status::{HopStatus, HopsStatus};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

pub(crate) fn why(paths: &StatePaths, peer: NodeRef, json: bool) -> Result<(), Failure> {
    let command = ControlCommand::Hops { peer };
    let mut out = Out::new();
    if json {
        return out.json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let status: HopsStatus = weft_control::call(&paths.control(), &command)?;
    out.text(&text(&status, human::width()))
}

/// The peer, its path, and a line for each node: its number, the round trip to it, that of the link
/// in front of it, and which node it is.
fn text(status: &HopsStatus, width: usize) -> String {
    let mut text = human::columns(
        &[
            ("peer", human::name(status.name.as_deref(), &status.npub)),
            ("path", human::path(status.path.as_ref())),
        ],
        width,
    );
    if !status.hops.is_empty() {
        text.push_str("\n hop         rtt    link rtt  node\n");
    }
    for (hop, number) in status.hops.iter().zip(1..) {
        let number = match &hop.npub {
            Some(_) => number.to_string(),
            None => "?".to_owned(),
        };
        let (rtt, link) = (milliseconds(hop.rtt_ms), milliseconds(hop.link_rtt_ms));
        text.push_str(&format!("{number:>4}  {rtt:>10}  {link:>10}  {}\n", node(hop)));
    }
    text
}

fn node(hop: &HopStatus) -> String {
    let why = hop.why.as_deref().map(human::plain);
    let Some(npub) = &hop.npub else {
        return why.unwrap_or_else(|| "not known".to_owned());
    };
    let npub = human::plain(npub);
    let name = hop.name.as_deref().map(|name| format!("{} ", human::plain(name)));
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}{npub}{why}", name.unwrap_or_default())
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_node_has_a_line_and_gaps_are_named() {
        let status: HopsStatus = serde_json::from_value(json!({
            "schema": "weft.hops/1", "npub": "npub1d", "name": "dave", "complete": false,
            "path": {"kind": "relayed", "via": "npub1b", "name": "bob"},
            "hops": [
                {"npub": "npub1b", "name": "bo\u{1b}b", "rtt_ms": 1.26, "link_rtt_ms": 1.0, "why": null},
                {"npub": null, "name": null, "rtt_ms": null, "link_rtt_ms": 20.0, "why": "does not\u{7} say"},
                {"npub": "npub1d", "name": "dave", "rtt_ms": 123.45, "link_rtt_ms": null, "why": null}
            ]
        }))
        .unwrap();
        let text = text(&status, 100);
        for line in [
            "\n   1      1.3 ms      1.0 ms  bo?b npub1b\n",
            "\n   ?           -     20.0 ms  does not? say\n",
            "\n   3    123.5 ms           -  dave npub1d\n",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }
}
