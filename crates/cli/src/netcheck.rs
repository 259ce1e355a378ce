//! `weft netcheck`: what the network of this host lets through, and what each line rests on.

use weft_control::ControlCommand;
use weft_control::status::{ConclusionStatus, FamilyStatus, KeepaliveStatus, NeighbourStatus, NetcheckStatus};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.netcheck/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    let command = ControlCommand::Netcheck {};
    let mut out = Out::new();
    if args.json {
        return out.json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let status: NetcheckStatus = weft_control::call(&paths.control(), &command)?;
    out.text(&human::columns(&lines(&status), human::width()))
}

fn lines(status: &NetcheckStatus) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("UDP", finding(&status.udp)),
        ("captive portal", finding(&status.captive_portal)),
    ];
    lines.extend(family("IPv4", &status.ipv4));
    lines.extend(family("IPv6", &status.ipv6));
    lines.extend(status.stun.iter().map(|server| ("STUN server", human::stun(server))));
    let relays = status.nostr_relays.iter();
    lines.extend(relays.map(|relay| ("Nostr relay", human::nostr_relay(relay))));
    lines.push(("port mapping", human::plain(&status.port_mapping.why)));
    let has = |each: &&KeepaliveStatus| match each.scope.as_str() {
        "ipv4" => status.ipv4.available,
        "ipv6" => status.ipv6.available,
        _ => true,
    };
    let keepalives = status.keepalives.iter().filter(has);
    lines.extend(keepalives.map(|each| ("keepalive", keepalive(each))));
    lines.extend(status.neighbours.iter().map(|each| ("neighbour", neighbour(each))));
    if status.neighbours.is_empty() {
        lines.push(("neighbour", "none, so that nothing can be relayed".to_owned()));
    }
    lines
}

fn family(name: &'static str, family: &FamilyStatus) -> Vec<(&'static str, String)> {
    let all = |addresses: &[std::net::SocketAddr]| match addresses {
        [] => "none".to_owned(),
        all => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    if !family.available && family.outer.is_empty() {
        return vec![(name, "this host has no address of it".to_owned())];
    }
    vec![
        (name, format!("public addresses of this host: {}", all(&family.public))),
        ("  seen as", all(&family.outer)),
        ("  mapping", finding(&family.mapping)),
        ("  filtering", finding(&family.filtering)),
        ("  hairpin", finding(&family.hairpin)),
    ]
}

/// How often idle links send something.
fn keepalive(status: &KeepaliveStatus) -> String {
    let to = match status.scope.as_str() {
        "local" => "local addresses".to_owned(),
        "ipv4" => "other addresses of IPv4".to_owned(),
        "ipv6" => "other addresses of IPv6".to_owned(),
        other => human::plain(other),
    };
    let often = match status.interval_s {
        0 => "never".to_owned(),
        seconds => format!("every {seconds} s"),
    };
    format!("to {to}: {often}: {}", human::plain(&status.because))
}

fn finding(finding: &ConclusionStatus) -> String {
    let because = human::plain(&finding.because);
    match finding.state.as_str() {
        // The reason names what is missing.
        "no-network" | "no-route" => because,
        "probably-blocked" => format!("probably blocked: {because}"),
        state => format!("{}: {because}", human::plain(state)),
    }
}

fn neighbour(neighbour: &NeighbourStatus) -> String {
    let name = human::name(neighbour.name.as_deref(), &neighbour.npub);
    let rtt = neighbour
        .rtt_ms
        .map_or("not measured yet".to_owned(), |rtt| format!("{rtt:.0} ms"));
    format!("{name} at {}, round trip {rtt}", neighbour.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_version_of_ip_that_the_host_lacks_takes_one_line() {
        let unknown = ConclusionStatus {
            state: "unknown".to_owned(),
            because: "nothing".to_owned(),
        };
        let none = FamilyStatus {
            available: false,
            public: Vec::new(),
            outer: Vec::new(),
            mapping: unknown.clone(),
            filtering: unknown.clone(),
            hairpin: unknown,
        };
        assert_eq!(
            family("IPv6", &none),
            [("IPv6", "this host has no address of it".to_owned())]
        );
        let some = FamilyStatus {
            available: true,
            ..none
        };
        assert_eq!(family("IPv6", &some).len(), 5);
    }

    #[test]
    fn each_line_says_what_it_rests_on() {
        let unknown = json!({"state": "unknown", "because": "a server would tell"});
        let family = json!({
            "public": [], "outer": ["11.0.0.1:2121"], "filtering": unknown, "hairpin": unknown,
            "mapping": {"state": "endpoint-independent", "because": "observers that see the same address: 2"}
        });
        let status: NetcheckStatus = serde_json::from_value(json!({
            "schema": "weft.netcheck/1", "udp": {"state": "works", "because": "links with neighbours: 1"},
            "captive_portal": {"state": "no-sign", "because": "UDP works"}, "ipv4": family, "ipv6": family,
            "port_mapping": {"gateway": null, "mapped": null, "protocol": null, "why": "no\u{1b} gateway"},
            "nostr_relays": [
                {"url": "wss://a.example/", "state": "open", "since_s": 65, "rtt_ms": 12.3, "trouble": null, "trouble_s": null},
                {"url": "wss://b.example/", "state": "waiting", "since_s": 65, "rtt_ms": null,
                 "trouble": "closed\u{1b}[2J", "trouble_s": 3}
            ],
            "keepalives": [
                {"scope": "ipv4", "interval_s": 75, "because": "an answer of nas arrived after 90 s of silence"},
                {"scope": "local", "interval_s": 0, "because": "what n\u{1b}s sends from any port arrives"}
            ],
            "neighbours": [{"npub": "npub1x", "name": "nas", "address": "192.0.2.1:2121", "rtt_ms": 12.3}]
        }))
        .unwrap();
        let text = human::columns(&lines(&status), 200);
        for line in [
            "UDP             works: links with neighbours: 1",
            "captive portal  no-sign: UDP works",
            "IPv4            public addresses of this host: none",
            "  seen as       11.0.0.1:2121",
            "  mapping       endpoint-independent: observers that see the same address: 2",
            "  filtering     unknown: a server would tell",
            "port mapping    no? gateway",
            "keepalive       to other addresses of IPv4: every 75 s: an answer of nas arrived after 90 s of silence",
            "keepalive       to local addresses: never: what n?s sends from any port arrives",
            "at 192.0.2.1:2121, round trip 12 ms",
            "Nostr relay     wss://a.example/: open for 1 min, round trip 12 ms",
            "Nostr relay     wss://b.example/: not connected for 1 min; 3 s ago: closed?[2J",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }
}
