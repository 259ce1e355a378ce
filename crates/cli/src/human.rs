//! Documents as text for people, at most 100 columns wide.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use weft_node::status::{
    ClonesStatus, FramesKind, FramesStatus, LanesStatus, LinkStatus, MeshStatus, Offload, OffloadStatus,
    PathSizeStatus, PeerStatus, QualityStatus, RightsStatus, SessionStatus, SizeKnown, Status, Traffic,
};

/// No line is wider, in characters.
const WIDTH: usize = 100;

/// The node, a table of its peers, and the counters that are not zero.
pub(crate) fn status(status: &Status) -> String {
    let node = &status.node;
    let listen: Vec<_> = node.listen.iter().map(ToString::to_string).collect();
    // Where they are answered, how they are reached, what failed.
    let names = node.dns.iter().flat_map(|dns| dns.why.split("; ").enumerate());
    let names = names.map(|(i, part)| format!("{}{part}", if i == 0 { "names: " } else { "       " }));
    let lines = [
        format!(
            "weft {} ({}), up {}, memory {}, processor {:.1} s",
            node.version,
            node.commit,
            duration(node.uptime_s),
            bytes(node.rss_bytes),
            node.cpu_s
        ),
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
        format!("listening on {}", listen.join(", ")),
    ];
    let offload = node.offload.as_ref().and_then(unused_offloads);
    let lanes = node.lanes.as_ref().and_then(lanes);
    let mesh = node.mesh.as_ref().map(mesh);
    let tests = node.perf.iter().map(|perf| format!("tests: {}", perf.why));
    let rights = node.rights.as_ref().and_then(missing_guards);
    let clones = node.clones.as_ref().map(clones);
    let mut text = String::new();
    for line in lines
        .into_iter()
        .chain(clones)
        .chain(lanes)
        .chain(offload)
        .chain(mesh)
        .chain(names)
        .chain(tests)
        .chain(rights)
    {
        push_clipped(&mut text, &line);
    }
    text.push('\n');
    text.push_str(&peer_list(&status.peers));
    let counters: Vec<_> = status.counters.iter().filter(|(_, value)| **value > 0).collect();
    if !counters.is_empty() {
        text.push_str("\nCounters:\n");
        let mut line = String::new();
        for (name, value) in counters {
            let entry = format!("  {name} {value}");
            if line.len() + entry.len() > WIDTH {
                push_clipped(&mut text, &line);
                line.clear();
            }
            line.push_str(&entry);
        }
        push_clipped(&mut text, &line);
    }
    text
}

/// One line about the threads that move packets; none if one does as it is meant to.
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

/// One line about what the kernel does not do; none if it does all.
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

/// One line about the node's part in the mesh.
/// What does not guard the system against a daemon that was taken over.
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

fn mesh(mesh: &MeshStatus) -> String {
    let count = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
    let strangers = match mesh.strangers {
        0 => String::new(),
        n => format!(" ({n} not configured)"),
    };
    let root = match mesh.depth {
        0 => "the root of the tree".to_owned(),
        depth => format!("{} from the root", count(depth, "hop")),
    };
    let transit = if mesh.transit { "carries" } else { "does not carry" };
    let lookups = mesh.lookups_found.saturating_add(mesh.lookups_failed);
    format!(
        "mesh: {}{strangers}, {root}; {transit} for others; look-ups {} of {lookups}",
        count(mesh.neighbours, "neighbour"),
        mesh.lookups_found,
    )
}

/// Another machine has this node's key.
fn clones(clones: &ClonesStatus) -> String {
    let seen: Vec<_> = clones.seen.iter().map(ToString::to_string).collect();
    let by = clones.told_by.as_ref().map(|peer| format!(", says {peer}"));
    format!(
        "ANOTHER MACHINE RUNS WITH THIS KEY: seen at {} {} ago{}",
        seen.join(", "),
        duration(clones.ago_s),
        by.unwrap_or_default()
    )
}

/// Two lines for each peer: figures, then path and reason.
pub(crate) fn peer_list(peers: &[PeerStatus]) -> String {
    if peers.is_empty() {
        return "No peers. Add one under [[peer]] in the configuration.\n".to_owned();
    }
    let mut text = String::new();
    push_clipped(&mut text, &row(["PEER", "STATE", "SINCE", "RTT", "IN", "OUT"]));
    for peer in peers {
        let rtt = peer.link.as_ref().and_then(|link| link.rtt_ms);
        let traffic = |link: fn(&LinkStatus) -> Traffic, session: fn(&SessionStatus) -> Traffic| {
            let both = peer.link.as_ref().map(link).or(peer.session.as_ref().map(session));
            both.map_or_else(|| "-".to_owned(), |traffic| bytes(traffic.bytes))
        };
        let columns = row([
            &name(peer.name.as_deref(), &peer.npub),
            peer.state.as_str(),
            &duration(peer.since_s),
            &rtt.map_or_else(|| "-".to_owned(), milliseconds),
            &traffic(|link| link.rx, |session| session.rx),
            &traffic(|link| link.tx, |session| session.tx),
        ]);
        push_clipped(&mut text, &columns);
        let path = peer
            .path
            .as_ref()
            .map_or_else(|| "no path".to_owned(), ToString::to_string);
        push_clipped(&mut text, &format!("    {path}; {}", peer.why));
    }
    text
}

/// Everything about one peer.
pub(crate) fn peer(peer: &PeerStatus) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| push_clipped(&mut text, &format!("{name:<9}{value}"));
    line("name", peer.name.clone().unwrap_or_else(|| "-".to_owned()));
    line("npub", peer.npub.clone());
    line("address", peer.address.to_string());
    line(
        "state",
        format!("{} for {}", peer.state.as_str(), duration(peer.since_s)),
    );
    line("why", peer.why.clone());
    line(
        "path",
        peer.path.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
    );
    for (i, change) in peer.path_changes.iter().enumerate() {
        let path = change
            .path
            .as_ref()
            .map_or_else(|| "none".to_owned(), ToString::to_string);
        let name = if i == 0 { "changes" } else { "" };
        line(name, format!("{} ago: {path}; {}", duration(change.ago_s), change.why));
    }
    if let Some(link) = &peer.link {
        let last = link.last_rx_s.map(|age| format!(", last heard {} ago", duration(age)));
        line(
            "link",
            format!(
                "keys {} old, {} rekeys{}",
                duration(link.epoch_age_s),
                link.rekeys,
                last.unwrap_or_default()
            ),
        );
        line("", both_ways(link.rx, link.tx));
        line("", quality(&link.quality));
    }
    if let Some(session) = &peer.session {
        line(
            "session",
            format!(
                "{} old, {} rekeys, {} packets waiting, largest packet {} bytes",
                duration(session.age_s),
                session.rekeys,
                session.queued,
                session.max_inner
            ),
        );
        if let Some(frames) = &session.frames {
            line("frames", self::frames(frames, session.path_size));
        }
        line("", both_ways(session.rx, session.tx));
        line("", quality(&session.quality));
    }
    if let Some(networks) = &peer.networks {
        line("networks", format!("{}: {}", networks.list.join(", "), networks.why));
    }
    text
}

/// What data goes in, and why where that is not the best there is.
fn frames(frames: &FramesStatus, size: Option<PathSizeStatus>) -> String {
    let size = size.map(|size| {
        let known = match size.known {
            SizeKnown::Assumed => "assumed",
            SizeKnown::Probed => "probed",
            SizeKnown::Set => "set",
            SizeKnown::Other => "known",
        };
        let more = if size.searching { ", looking for more" } else { "" };
        if size.narrow {
            return format!(", but the path takes less than {} bytes", size.bytes);
        }
        format!(", up to {} bytes ({known}{more})", size.bytes)
    });
    let size = size.unwrap_or_default();
    let suite = frames.suite.as_deref().unwrap_or("unknown cipher");
    let since = frames
        .downgraded_unix
        .map(|at| format!(" {} ago", duration(unix_now().saturating_sub(at))));
    let since = since.unwrap_or_default();
    match frames.kind {
        FramesKind::Fast => format!("fast, {suite}{size}"),
        FramesKind::Relayed => format!("fast through others, {suite}"),
        FramesKind::Fips if frames.required => format!("none, as only fast ones may be used: {}", frames.why),
        FramesKind::Downgraded if frames.required => {
            format!("none, downgraded from fast{since}, which are required: {}", frames.why)
        }
        FramesKind::Fips => format!("FIPS: {}", frames.why),
        FramesKind::Downgraded => format!("FIPS, downgraded from fast{since}: {}", frames.why),
    }
}

/// Seconds since 1970 (UTC).
fn unix_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// What to call a peer: its name, or both ends of its key.
pub(crate) fn name(name: Option<&str>, npub: &str) -> String {
    if let Some(name) = name {
        return name.to_owned();
    }
    match (npub.get(..10), npub.get(npub.len().saturating_sub(6)..)) {
        (Some(start), Some(end)) if npub.len() > 20 => format!("{start}\u{2026}{end}"),
        _ => npub.to_owned(),
    }
}

fn both_ways(rx: Traffic, tx: Traffic) -> String {
    let one = |traffic: Traffic| format!("{} packets, {}", traffic.packets, bytes(traffic.bytes));
    format!("in {}; out {}", one(rx), one(tx))
}

/// What was measured, and nothing about the rest.
fn quality(quality: &QualityStatus) -> String {
    let ways = |name: &str, way_in: Option<String>, way_out: Option<String>| match (way_in, way_out) {
        (None, None) => None,
        (Some(one), Some(other)) if one == other => Some(format!("{name} {one}")),
        (way_in, way_out) => {
            let side = |name: &str, value: Option<String>| value.map(|value| format!("{value} {name}"));
            let sides: Vec<_> = [side("in", way_in), side("out", way_out)]
                .into_iter()
                .flatten()
                .collect();
            Some(format!("{name} {}", sides.join(" / ")))
        }
    };
    let loss = |share: Option<f64>| share.map(|share| format!("{:.1} %", share * 100.0));
    let jitter = |ms: Option<f64>| ms.map(milliseconds);
    let marks = quality.ce_in + quality.ce_out.unwrap_or(0);
    let parts = [
        quality.rtt_ms.map(|ms| format!("round trip {}", milliseconds(ms))),
        ways("loss", loss(quality.loss_in), loss(quality.loss_out)),
        ways("jitter", jitter(quality.jitter_in_ms), jitter(quality.jitter_out_ms)),
        quality.cost.map(|cost| format!("cost {cost:.2}")),
        (marks > 0).then(|| format!("{marks} congestion marks")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "not measured yet".to_owned();
    }
    parts.join(", ")
}

/// The clocks behind it know whole milliseconds.
fn milliseconds(ms: f64) -> String {
    if ms < 1.0 {
        return "<1 ms".to_owned();
    }
    format!("{ms:.1} ms")
}

fn row(cells: [&str; 6]) -> String {
    let [peer, state, since, rtt, rx, tx] = cells;
    let peer = clip(peer, 30);
    let row = format!("{peer:<30}  {state:<8}  {since:<12}  {rtt:>10}  {rx:>10}  {tx:>10}");
    row.trim_end().to_owned()
}

/// At most `width` characters, the last one an ellipsis if something is cut off.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).collect()
}

fn push_clipped(text: &mut String, line: &str) {
    // Writing to a String cannot fail. Control characters would move the cursor.
    let line: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let _ = writeln!(text, "{}", clip(&line, WIDTH));
}

/// Two units at most.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// Three significant digits at least, in powers of 1000.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    // 999.95 would round to 1000.0.
    while value >= 999.95 {
        value /= 1000.0;
        unit = units.next();
    }
    format!("{value:.1} {}", unit.unwrap_or(&"EB"))
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
                "state": "payload", "why": times("payload 2 s ago"), "since_s": 200_000,
                "path": {"kind": "direct", "addr": "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"},
                "path_changes": [
                    {"ago_s": 3, "path": {"kind": "direct", "addr": "192.0.2.2:2121"}, "why": "the link came up"},
                    {"ago_s": 70, "path": {"kind": "relayed", "via": "npub1", "name": times("carol")}, "why": "a way was found"}
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
                "commit": times("0123456789ab"), "started_unix": 1, "uptime_s": 3700,
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
            "counters": counters
        }))
        .unwrap()
    }

    #[test]
    fn fits_the_screen() {
        for long in [false, true] {
            let sample = sample(long);
            let all = status(&sample) + &peer(&sample.peers[0]);
            for line in all.lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }

    #[test]
    fn says_who_how_far_why_and_how() {
        let text = status(&sample(false));
        for part in [
            "weft 0.1.0 (0123456789ab), up 1 h 1 min, memory 12.3 MB",
            "listening on [::]:2121\nwithout offload: gso (switched off), gro (refused by the kernel)\nmesh: 3 neighbours (1 not configured), 2 hops from the root; carries for others; look-ups 7 of 8\nnames: answered on [::1]:5354\n       set up in nothing\n\n",
            "\nbob  ",
            "\nnpub1qqqqq\u{2026}qqqqqq  ",
            "payload   2 d 7 h       10000.4 ms      1.0 GB     18.4 EB\n",
            "    direct [2001:db8:1234:5678:9abc:def0:1234:5678]:65535; payload 2 s ago\n",
            "counter_number_7 7000000",
        ] {
            assert!(text.contains(part), "{part:?} is missing in:\n{text}");
        }
        assert!(!text.contains("counter_number_0 "), "zero is not shown");
    }

    #[test]
    fn one_peer_with_the_ways_it_took() {
        let text = peer(&sample(false).peers[0]);
        assert!(
            text.contains("changes  3 s ago: direct 192.0.2.2:2121; the link came up\n"),
            "{text}"
        );
        assert!(
            text.contains("\n         1 min ago: relayed by carol; a way was found\n"),
            "{text}"
        );
    }

    #[test]
    fn tells_what_was_measured_and_no_more() {
        let all = QualityStatus {
            rtt_ms: Some(40.26),
            loss_in: Some(0.0),
            loss_out: Some(0.301),
            jitter_in_ms: Some(0.3),
            jitter_out_ms: Some(0.4),
            cost: Some(2.004),
            ce_in: 2,
            ..QualityStatus::default()
        };
        assert_eq!(
            quality(&all),
            "round trip 40.3 ms, loss 0.0 % in / 30.1 % out, jitter <1 ms, cost 2.00, 2 congestion marks"
        );
        let one = QualityStatus {
            loss_in: Some(0.5),
            ..QualityStatus::default()
        };
        assert_eq!(quality(&one), "loss 50.0 % in");
        assert_eq!(quality(&QualityStatus::default()), "not measured yet");
    }

    #[test]
    fn foreign_text_does_not_move_the_cursor() {
        let mut sample = sample(false);
        sample.peers[0].why = "a\x1b[2Jb\nc".to_owned();
        assert!(status(&sample).contains("a?[2Jb?c"));
    }

    #[test]
    fn quantities() {
        assert_eq!([0, 59, 60, 3599].map(duration), ["0 s", "59 s", "1 min", "59 min"]);
        assert_eq!(
            [3600, 86_399, 86_400].map(duration),
            ["1 h 0 min", "23 h 59 min", "1 d 0 h"]
        );
        assert_eq!([0, 999, 1000].map(bytes), ["0 B", "999 B", "1.0 kB"]);
        assert_eq!([999_949, 999_950].map(bytes), ["999.9 kB", "1.0 MB"]);
    }
}
