//! Documents as text for the user, at the width of the terminal.

mod own;
mod peer;
mod public;
mod words;

use std::collections::BTreeMap;

use weft_control::status::{
    ClonesStatus, ExitStatus, LanesStatus, MeshStatus, NetworkList, NostrRelayStatus, Offload, OffloadStatus,
    PathStatus, PeerStatus, Peers, PublicNode, PublicPeer, RightsStatus, ServesStatus, Status, StrangerStatus,
    StunStatus, TurnedAwayStatus,
};

pub(crate) use peer::peer;
pub(crate) use public::{public_peers, public_status};

use words::{Page, milliseconds};
pub(crate) use words::{bytes, clip, duration, row_width, width};

/// Columns of indent below a line about a peer.
const BELOW: usize = 4;

/// This machine in its networks, the node, a table of its peers, and the nodes that were refused.
pub(crate) fn status(status: &Status, networks: &NetworkList, width: usize) -> String {
    let mut page = Page::new(width);
    let any = own::put_networks(&mut page, networks);
    for line in node_lines(status) {
        page.line(7, &line);
    }
    if !status.peers.is_empty() {
        page.empty_line();
        put_peers(&mut page, &status.peers, &[]);
    } else if !any {
        page.empty_line();
        page.line(0, NOBODY);
    }
    put_turned_away(&mut page, status, networks);
    page.into_text()
}

/// What to do on a machine that knows no other one.
const NOBODY: &str = "No network and no peers: `weft create NAME` makes a network, `weft join` joins one, and `weft peer add` adds a single peer.";

/// Text without control characters, which would move the cursor.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A number of things, in words.
pub(crate) fn count(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// A paragraph: lines below the first one are indented.
pub(crate) fn paragraph(text: &str, width: usize) -> String {
    let mut page = Page::new(width);
    page.line(2, text);
    page.into_text()
}

/// Labels, each with its text beside it. An empty label and an empty text make an empty line.
pub(crate) fn columns(lines: &[(&str, String)], width: usize) -> String {
    let mut page = Page::new(width);
    let names = lines.iter().map(|(name, _)| name.len() + 2).max().unwrap_or(0);
    for (name, text) in lines {
        page.line(names, &format!("{name:<names$}{text}"));
    }
    page.into_text()
}

/// The counters that are not zero.
pub(crate) fn counters(counters: &BTreeMap<String, u64>, width: usize) -> String {
    let mut page = Page::new(width);
    page.empty_line();
    page.line(0, "Counters:");
    let counters = counters.iter().filter(|(_, value)| **value > 0);
    let all: String = counters.map(|(name, value)| format!("  {name}\u{a0}{value}")).collect();
    page.line(2, if all.is_empty() { "  all are zero" } else { &all });
    page.into_text().replace('\u{a0}', " ")
}

/// The lines about the node itself.
fn node_lines(status: &Status) -> Vec<String> {
    let node = &status.node;
    let listen: Vec<_> = node.listen.iter().map(ToString::to_string).collect();
    // The addresses of the responder, the system's configuration, the failures.
    let names = node.dns.iter().flat_map(|dns| dns.why.split("; ").enumerate());
    let names = names.map(|(i, part)| format!("{}{part}", if i == 0 { "names: " } else { "       " }));
    let lines = [
        node.npub.clone(),
        format!(
            "{} on {}, MTU {}, offloads: {}",
            node.address,
            node.tun.name,
            node.tun.mtu,
            if node.tun.offloads.is_empty() {
                "none".to_owned()
            } else {
                node.tun.offloads.join(" ")
            }
        ),
        public::program(&PublicNode::from(node)),
        format!("listening on {}", listen.join(", ")),
    ];
    let offload = node.offload.as_ref().and_then(unused_offloads);
    let lanes = node.lanes.as_ref().and_then(lanes);
    let mesh = node.mesh.as_ref().map(mesh);
    let exit = node.exit.as_ref().map(exit);
    let serves = node.serves.as_ref().map(serves);
    let stun = node.stun.iter().map(|server| format!("STUN: {}", stun(server)));
    let relays = node.nostr_relays.iter();
    let relays = relays.map(|relay| format!("Nostr relay: {}", nostr_relay(relay)));
    let mapping = node.port_mapping.iter().filter(|mapping| mapping.gateway.is_some());
    let mapping = mapping.map(|mapping| format!("port mapping: {}", plain(&mapping.why)));
    let tests = node.perf.iter().map(|perf| format!("perf: {}", perf.why));
    let rights = node.rights.as_ref().and_then(missing_guards);
    let clones = node.clones.as_ref().map(clones);
    let config = node
        .config
        .as_ref()
        .map(|path| format!("configuration: {}", path.display()));
    let at_start = (!node.at_start.is_empty())
        .then(|| format!("               waits for the next start: {}", node.at_start.join(", ")));
    let confirm = node.confirm_s.map(|seconds| {
        let left = duration(seconds);
        format!("               the last change is taken back in {left} unless `weft confirm` comes")
    });
    let waits = at_start.iter().chain(&confirm).next().is_some();
    let config = config.filter(|_| waits).into_iter().chain(at_start).chain(confirm);
    let lacks = (!node.tun.lacks.is_empty()).then(|| format!("{} lacks {}", node.tun.name, node.tun.lacks.join(", ")));
    let alarm = node
        .tun
        .alarm
        .as_ref()
        .map(|alarm| format!("{}: {alarm}", node.tun.name));
    let faults = node.faults.iter().flat_map(|faults| &faults.found);
    let faults = faults.map(|fault| format!("{}: {}", fault.check, plain(&fault.in_brief())));
    let lines = lines.into_iter().chain(lacks).chain(alarm).chain(faults);
    let all = lines.chain(exit).chain(serves).chain(clones);
    let all = all
        .chain(lanes)
        .chain(offload)
        .chain(mesh)
        .chain(stun)
        .chain(relays)
        .chain(mapping);
    all.chain(names).chain(tests).chain(rights).chain(config).collect()
}

/// One line about the exit of this node.
fn exit(exit: &ExitStatus) -> String {
    let settings = [
        (exit.strict, "strict"),
        (exit.lan, "with the LAN"),
        (exit.strict && exit.inbound, "answers who comes in"),
    ];
    let settings: Vec<&str> = settings.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    let settings = match settings.is_empty() {
        true => String::new(),
        false => format!(" ({})", settings.join(", ")),
    };
    format!("exit: {}{settings}: {}", exit.exit, exit.why)
}

/// One line about this node as exit of others.
fn serves(serves: &ServesStatus) -> String {
    let versions = match (serves.ipv4, serves.ipv6) {
        (true, true) => "IPv4 and IPv6",
        (true, false) => "IPv4",
        (false, true) => "IPv6",
        (false, false) => "no traffic yet",
    };
    format!("serves as exit: {versions}: {}", serves.why)
}

/// One line about the threads that move packets; `None` if one runs as configured.
fn lanes(lanes: &LanesStatus) -> Option<String> {
    let running = lanes.each.len();
    match (&lanes.refused, lanes.preferred) {
        (Some(why), _) => Some(format!("lanes: {running} of {}: {why}", lanes.wanted)),
        (None, Some(Offload::Refused)) => Some(format!(
            "lanes: {running}, in turn with other programs (a lower nice value is refused, or another was given)"
        )),
        (None, _) => (running > 1).then(|| format!("lanes: {running}")),
    }
}

/// One line about the offloads that are not in use; `None` if all are.
fn unused_offloads(offload: &OffloadStatus) -> Option<String> {
    let senders = offload.senders.map(|state| ("senders", state));
    let all = [("tun", offload.tun), ("gso", offload.gso), ("gro", offload.gro)];
    let unused = all.into_iter().chain(senders).filter_map(|(name, state)| match state {
        Offload::On | Offload::Other => None,
        Offload::Off => Some(format!("{name} (switched off)")),
        Offload::Refused => Some(format!("{name} (refused by the kernel)")),
    });
    let unused: Vec<_> = unused.collect();
    (!unused.is_empty()).then(|| format!("without offload: {}", unused.join(", ")))
}

/// One line about the guards that are missing, which protect the system from a compromised daemon;
/// `None` if all are in force.
fn missing_guards(rights: &RightsStatus) -> Option<String> {
    let root = rights.root.iter().map(|why| format!("still uid 0 ({why})"));
    let guards = [
        ("no Landlock", &rights.landlock),
        ("no seccomp", &rights.seccomp),
        ("no broker", &rights.broker),
    ];
    let guards = guards
        .into_iter()
        .filter_map(|(what, guard)| Some(format!("{what} ({})", guard.why.as_ref()?)));
    let missing: Vec<String> = root.chain(guards).collect();
    (!missing.is_empty()).then(|| format!("rights: {}", missing.join(", ")))
}

/// One line about the node's part in the mesh.
fn mesh(mesh: &MeshStatus) -> String {
    let strangers = match mesh.strangers {
        0 => String::new(),
        n => format!(" ({n} not configured; `weft peers` lists them)"),
    };
    let root = match mesh.depth {
        0 => "the root of the tree".to_owned(),
        depth => format!("{} from the root", count(depth, "hop")),
    };
    let transit = if mesh.transit { "relays" } else { "does not relay" };
    let lookups = match mesh.lookups_found.saturating_add(mesh.lookups_failed) {
        0 => String::new(),
        all => format!("; look-ups {} of {all}", mesh.lookups_found),
    };
    let neighbours = count(mesh.neighbours, "neighbour");
    format!("mesh: {neighbours}{strangers}, {root}; {transit} for others{lookups}")
}

/// What a STUN server says.
pub(crate) fn stun(server: &StunStatus) -> String {
    let at = server.address.filter(|at| at.to_string() != server.server);
    let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
    match (server.seen, server.ago_s) {
        (Some(seen), Some(ago)) => format!("{}{at} sees {seen}, {} ago", server.server, duration(ago)),
        _ => format!("{}{at}: {}", server.server, server.why.as_deref().unwrap_or("nothing")),
    }
}

/// How the node is connected to a Nostr relay.
pub(crate) fn nostr_relay(relay: &NostrRelayStatus) -> String {
    let state = if relay.state == "open" { "open" } else { "not connected" };
    let rtt = relay.rtt_ms.map(|rtt| format!(", round trip {rtt:.0} ms"));
    let trouble = relay.trouble.as_ref().zip(relay.trouble_s);
    let trouble = trouble.map(|(why, ago)| format!("; {} ago: {}", duration(ago), plain(why)));
    format!(
        "{}: {state} for {}{}{}",
        plain(&relay.url),
        duration(relay.since_s),
        rtt.unwrap_or_default(),
        trouble.unwrap_or_default()
    )
}

/// The line about another host with this node's key.
fn clones(clones: &ClonesStatus) -> String {
    let seen: Vec<_> = clones.seen.iter().map(ToString::to_string).collect();
    let by = clones.told_by.as_ref().map(|peer| format!(", says {peer}"));
    format!(
        "TWO MACHINES RUN WITH THIS KEY: one was seen at {} {} ago{}",
        seen.join(", "),
        duration(clones.ago_s),
        by.unwrap_or_default()
    )
}

/// All peers, and the neighbours that are not configured.
pub(crate) fn peers(peers: &Peers, width: usize) -> String {
    let mut page = Page::new(width);
    put_peers(&mut page, &peers.peers, &peers.strangers);
    page.into_text()
}

/// Two lines for each peer: figures, then path and reason.
fn put_peers(page: &mut Page, peers: &[PeerStatus], strangers: &[StrangerStatus]) {
    if peers.is_empty() {
        page.line(0, "No peers.");
    }
    if !peers.is_empty() || !strangers.is_empty() {
        page.line(0, &row(["PEER", "STATE", "SINCE", "RTT", "IN", "OUT"]));
    }
    let mut peers: Vec<&PeerStatus> = peers.iter().collect();
    peers.sort_by_key(|peer| (peer.name.is_none(), peer.name.as_deref()));
    for peer in peers {
        let columns = public::row(&PublicPeer::from(peer));
        page.line(BELOW, &columns);
        page.line(BELOW, &format!("    {}; {}", path(peer.path.as_ref()), peer.why));
    }
    for stranger in strangers {
        let columns = row([
            &name(None, &stranger.npub),
            "neighbour",
            &duration(stranger.since_s),
            &stranger.rtt_ms.map_or_else(|| "-".to_owned(), milliseconds),
            &bytes(stranger.rx.bytes),
            &bytes(stranger.tx.bytes),
        ]);
        page.line(BELOW, &columns);
        let path = path(stranger.path.as_ref());
        page.line(
            BELOW,
            &format!("    {path}; not configured here, so no IP packet passes; this node relays for it"),
        );
        page.line(BELOW, &format!("    {}", stranger.npub));
    }
}

pub(crate) fn path(path: Option<&PathStatus>) -> String {
    path.map_or_else(|| "no path".to_owned(), ToString::to_string)
}

/// Nodes whose handshakes were refused, and how to admit one.
fn put_turned_away(page: &mut Page, status: &Status, networks: &NetworkList) {
    if status.turned_away.is_empty() {
        return;
    }
    page.empty_line();
    page.line(0, "Turned away, because not configured here:");
    for node in &status.turned_away {
        let TurnedAwayStatus {
            npub,
            from,
            ago_s,
            times,
        } = node;
        let ago = duration(*ago_s);
        let of = own::former_network(networks, node);
        let of = of.map(|network| format!(", of {network}, which has removed this machine"));
        page.line(BELOW, &format!("  {npub}{}", of.unwrap_or_default()));
        let plural = if *times == 1 { "handshake" } else { "handshakes" };
        page.line(
            BELOW,
            &format!("    at {from} asked to link {ago} ago ({times} {plural})"),
        );
    }
    let mut strange = status.turned_away.iter();
    if strange.any(|node| own::former_network(networks, node).is_none()) {
        let hint = "`weft peer add` with its npub lets one in; `weft join` brings a machine back into a network of which it was a member.";
        page.line(2, hint);
    }
}

/// The label of a peer: its name, or both ends of its key.
pub(crate) fn name(name: Option<&str>, npub: &str) -> String {
    if let Some(name) = name {
        return name.to_owned();
    }
    match (npub.get(..10), npub.get(npub.len().saturating_sub(6)..)) {
        (Some(start), Some(end)) if npub.len() > 20 => format!("{start}\u{2026}{end}"),
        _ => npub.to_owned(),
    }
}

fn row(cells: [&str; 6]) -> String {
    let [peer, state, since, rtt, rx, tx] = cells;
    let peer = clip(peer, 30);
    let row = format!("{peer:<30}  {state:<10}  {since:<10}  {rtt:>10}  {rx:>10}  {tx:>10}");
    row.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(long: bool) -> Status {
        let times = |text: &str| text.repeat(if long { 20 } else { 1 });
        let peer = |name: Option<&str>| {
            json!({
                "npub": format!("npub1{}", "q".repeat(58)), "name": name.map(times), "address": "fd00::1",
                "state": "payload", "why": times("packets 2 s ago "), "since_s": 3, "standing": "active", "standing_s": 200_000,
                "path": {"kind": "direct", "addr": "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"},
                "hint": "lan",
                "paths": [
                    {"addr": "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", "source": "lan", "named_s": 70, "proven_s": 1,
                     "used": true, "works": true, "rtt_ms": 12, "loss": 0.25, "payload": 1452},
                    {"addr": "192.0.2.2:2121", "device": times("wlan0"), "source": times("\u{1b}new"), "named_s": 3,
                     "used": false, "works": false, "rtt_ms": null}
                ],
                "path_changes": [
                    {"ago_s": 3, "path": {"kind": "direct", "addr": "192.0.2.2:2121"}, "why": "the link came up"},
                    {"ago_s": 70, "path": {"kind": "relayed", "via": "npub1", "name": times("carol")}, "why": "a path was found"}
                ],
                "link": {
                    "epoch_age_s": 1, "rekeys": 2, "rtt_ms": 10_000.4,
                    "rx": {"packets": 1, "bytes": 999_999_999}, "tx": {"packets": 3, "bytes": u64::MAX},
                    "last_rx_s": 0
                },
                "session": {
                    "age_s": 9, "rekeys": 1, "rx": {"packets": 1, "bytes": 2},
                    "tx": {"packets": 3, "bytes": 4}, "queued": 0, "max_inner": 1203
                },
            })
        };
        let counters: serde_json::Map<_, _> = (0..30)
            .map(|i| (format!("counter_number_{i}"), json!(i * 1_000_000)))
            .collect();
        serde_json::from_value(json!({
            "schema": "weft.status/1",
            "node": {
                "npub": "npub1x", "node_addr": "00", "address": "fd00::2", "version": "0.1.0",
                "config": "/etc/weft.toml", "commit": times("0123456789ab"), "started_unix": 1, "uptime_s": 3700,
                "tun": {"name": "weft0", "mtu": 1280, "offloads": [times("tso4")]},
                "offload": {"tun": "on", "gso": "off", "gro": "refused", "batch": 1},
                "listen": vec!["[::]:2121"; if long { 20 } else { 1 }],
                "mesh": {
                    "root": "00", "parent": null, "depth": if long { usize::MAX } else { 2 },
                    "neighbours": 3, "strangers": 1, "transit": true, "known": 5, "lookups_found": if long { u64::MAX / 2 } else { 7 },
                    "lookups_failed": 1, "state_bytes": 9000
                },
                "dns": {"state": "local", "listen": [], "why": times("answered on [::1]:5354; set up in nothing")},
                "rss_bytes": 12_300_000, "cpu_s": 0.5
            },
            "peers": [peer(Some("bob")), peer(None)],
            "turned_away": [{"npub": "npub1w", "from": "192.0.2.9:2121", "ago_s": 3, "times": 4}],
            "counters": counters
        }))
        .unwrap()
    }

    fn no_network() -> NetworkList {
        serde_json::from_value(json!({"schema": "weft.networks/1", "networks": []})).unwrap()
    }

    #[test]
    fn a_machine_that_knows_no_other_is_told_what_to_do() {
        let mut alone = sample(false);
        alone.peers.clear();
        let text = status(&alone, &no_network(), 200);
        assert!(
            text.contains("`weft create NAME` makes a network, `weft join` joins one"),
            "{text}"
        );
    }

    #[test]
    fn fits_the_screen() {
        for long in [false, true] {
            let sample = sample(long);
            for width in [60, 100, 200] {
                let all = status(&sample, &no_network(), width)
                    + &counters(&sample.counters, width)
                    + &peer(&sample.peers[0], width);
                for line in all.lines() {
                    assert!(line.chars().count() <= width, "{line}");
                    assert_eq!(line, line.trim_end());
                }
                let reason = "packets 2 s ago ".repeat(if long { 20 } else { 1 });
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(words(&all).contains(reason.trim_end()), "nothing is cut off");
            }
        }
    }

    #[test]
    fn says_who_how_far_why_and_how() {
        let text = status(&sample(false), &no_network(), 200);
        for part in [
            "weft 0.1.0 (0123456789ab), up 1 h 1 min, memory 12.3 MB, processor 0.5 s\nlistening on [::]:2121\nwithout offload: gso (switched off), gro (refused by the kernel)\nmesh: 3 neighbours (1 not configured; `weft peers` lists them), 2 hops from the root; relays for others; look-ups 7 of 8\nnames: answered on [::1]:5354\n       set up in nothing\n\n",
            "\nbob  ",
            "\nnpub1qqqqq\u{2026}qqqqqq  ",
            "active      2 d 7 h     10000.4 ms      1.0 GB     18.4 EB\n",
            "    direct [2001:db8:1234:5678:9abc:def0:1234:5678]:65535; packets 2 s ago\n",
            "\nTurned away, because not configured here:\n  npub1w\n    at 192.0.2.9:2121 asked to link 3 s ago (4 handshakes)\n",
            "`weft peer add` with its npub lets one in; `weft join` brings",
        ] {
            assert!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
        assert!(!text.contains("counter_number"), "only on request");
        let text = counters(&sample(false).counters, 100);
        assert!(text.contains("counter_number_7 7000000"), "{text}");
        assert!(!text.contains("counter_number_0 "), "zero is not shown");
    }

    #[test]
    fn one_peer_with_the_ways_it_took() {
        let text = peer(&sample(false).peers[0], 100);
        assert!(
            text.contains("changes  3 s ago: direct 192.0.2.2:2121; the link came up\n"),
            "{text}"
        );
        assert!(
            text.contains("\n         1 min ago: relayed by carol; a path was found\n"),
            "{text}"
        );
    }

    #[test]
    fn foreign_text_does_not_move_the_cursor() {
        let mut sample = sample(false);
        sample.peers[0].why = "a\x1b[2Jb\nc".to_owned();
        assert!(status(&sample, &no_network(), 100).contains("a?[2Jb?c"));
    }

    #[test]
    fn a_relayed_peer_shows_its_session_rtt_and_a_stranger_its_mark() {
        let mut relayed = sample(false).peers.remove(0);
        relayed.link = None;
        relayed.session.as_mut().unwrap().core.quality.rtt_us = Some(230);
        let strangers = json!([{
            "npub": format!("npub1{}", "s".repeat(58)), "address": "fd00::3", "since_s": 61, "rtt_ms": null,
            "path": {"kind": "direct", "addr": "192.0.2.3:2121"},
            "rx": {"packets": 1, "bytes": 2}, "tx": {"packets": 3, "bytes": 4}
        }]);
        let text = peers(
            &Peers {
                schema: String::new(),
                peers: vec![relayed],
                strangers: serde_json::from_value(strangers).unwrap(),
            },
            100,
        );
        assert!(text.contains("active      2 d 7 h         0.2 ms"), "{text}");
        assert!(text.contains("neighbour   1 min                -"), "{text}");
        assert!(text.contains("direct 192.0.2.3:2121; not configured here"), "{text}");
    }
}
