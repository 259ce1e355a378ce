//! `weft why PEER`: why packets take their path, and what was tried to reach the peer directly.

use weft_config::peer::NodeRef;
use weft_control::ControlCommand;
use weft_control::status::{AttemptStatus, ReachStatus};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

pub(crate) fn why(paths: &StatePaths, peer: NodeRef, json: bool) -> Result<(), Failure> {
    let command = ControlCommand::Reach { peer };
    let mut out = Out::new();
    if json {
        return out.json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let status: ReachStatus = weft_control::call(&paths.control(), &command)?;
    out.text(&human::columns(&lines(&status), human::width()))
}

fn lines(status: &ReachStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("peer", human::name(status.name.as_deref(), &status.npub)),
        ("path", human::path(status.path.as_ref())),
        ("why", status.why.clone()),
    ];
    lines.extend(status.advice.clone().map(|advice| ("helps", advice)));
    let nat = |ipv4: &str, ipv6: &str| format!("IPv4 {ipv4}, IPv6 {ipv6}");
    lines.push(("own NAT", nat(&status.nat.ipv4, &status.nat.ipv6)));
    if let Some(theirs) = &status.peer_nat {
        lines.push(("peer's NAT", nat(&theirs.ipv4, &theirs.ipv6)));
    }
    for own in &status.own {
        lines.push(("own address", format!("{} ({})", own.address, own.source)));
    }
    lines.extend(status.stun.iter().map(|server| ("STUN server", human::stun(server))));
    let mapping = status.port_mapping.iter().map(|mapping| human::plain(&mapping.why));
    lines.extend(mapping.map(|why| ("port mapping", why)));
    lines.extend(status.attempts.iter().flat_map(attempt));
    lines
}

fn attempt(attempt: &AttemptStatus) -> Vec<(&'static str, String)> {
    let ago = human::duration(attempt.ago_ms / 1_000);
    let took = attempt
        .took_ms
        .map_or_else(String::new, |took| format!(" after {:.1} s", took as f64 / 1e3));
    let mut lines = vec![(
        "attempt",
        format!("{ago} ago, because {}: it {}{took}", attempt.because, attempt.outcome),
    )];
    for tried in &attempt.tried {
        let address = match tried.address.port() {
            0 => format!("{} at random ports", tried.address.ip()),
            _ => tried.address.to_string(),
        };
        lines.push((
            "  tried",
            format!(
                "{address} ({}) {}; probes: {}",
                tried.source, tried.outcome, tried.probes
            ),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn says_what_was_tried_and_what_helps() {
        let status: ReachStatus = serde_json::from_value(json!({
            "schema": "weft.reach/1", "npub": "npub1x", "name": "a\u{1b}[2Jb", "path": null,
            "why": "the path goes through other nodes", "advice": "a forwarded UDP port helps",
            "own": [{"address": "11.0.0.1:2121", "source": "observed"}],
            "stun": [
                {"server": "192.0.2.7:3478", "address": "192.0.2.7:3478", "seen": "11.0.0.1:2121", "ago_s": 12,
                 "rtt_ms": 20, "why": null},
                {"server": "a.example:3478", "address": "192.0.2.8:3478", "seen": null, "ago_s": null, "rtt_ms": null,
                 "why": "the server did not answer"}
            ],
            "port_mapping": {"gateway": "192.168.1.1", "mapped": null, "protocol": null, "why": "no\u{7}"},
            "nat": {"ipv4": "endpoint-independent", "ipv6": "unknown"},
            "peer_nat": {"ipv4": "endpoint-dependent", "ipv6": "unknown"},
            "attempts": [{
                "ago_ms": 65_000, "because": "the peer began it", "took_ms": 10_000,
                "outcome": "found no address that answers",
                "tried": [{"address": "11.0.0.2:40001", "source": "observed", "probes": 26,
                           "outcome": "does not answer"},
                          {"address": "11.0.2.2:0", "source": "search", "probes": 9, "outcome": "led to 11.0.2.2:7"}]
            }]
        }))
        .unwrap();
        let text = human::columns(&lines(&status), 200);
        assert!(text.contains("a?[2Jb"), "{text}");
        for line in [
            "helps         a forwarded UDP port helps",
            "own address   11.0.0.1:2121 (observed)",
            "port mapping  no?",
            "STUN server   192.0.2.7:3478 sees 11.0.0.1:2121, 12 s ago",
            "STUN server   a.example:3478 (192.0.2.8:3478): the server did not answer",
            "1 min",
            "it found no address that answers after 10.0 s",
            "  tried       11.0.2.2 at random ports (search) led to 11.0.2.2:7; probes: 9",
            "  tried       11.0.0.2:40001 (observed) does not answer; probes: 26",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }
}
