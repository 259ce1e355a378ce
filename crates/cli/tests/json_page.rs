//! docs/json.md and the documents of the program name the same fields.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

#[path = "json_page/tracer.rs"]
mod tracer;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use weft_control::status::{
    Document, Event, HopsStatus, Invited, NetcheckStatus, NetworkList, PathStatus, Peers, Pong, PublicEvent,
    PublicPeers, PublicStatus, ReachStatus, Reloaded, RequestList, SignedList, Status, Stopping, Version, Whois, Why,
};
use weft_control::trace::{LaneTrace, TraceDocument};

use tracer::structs;

const PAGE: &str = include_str!("../../../docs/json.md");
const WEFT: &str = env!("CARGO_BIN_EXE_weft");

type Fields = BTreeSet<String>;

/// The sections of the page that have a table of fields, by title.
fn documented() -> BTreeMap<String, Fields> {
    let mut sections: BTreeMap<String, Fields> = BTreeMap::new();
    let mut title = "";
    let mut is_table = false;
    for line in PAGE.lines() {
        if let Some(text) = line
            .trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
        {
            title = text;
        }
        match line {
            "| field | type | meaning |" => is_table = true,
            "" => is_table = false,
            _ => {}
        }
        let field = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
        if let Some(field) = field.filter(|_| is_table) {
            assert!(
                sections.entry(title.to_owned()).or_default().insert(field.to_owned()),
                "{title}: {field} twice"
            );
            let cells = line.trim_matches('|').replace("\\|", "");
            let cells: Vec<_> = cells.split('|').map(str::trim).collect();
            assert!(cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty()), "{line}");
        }
    }
    sections
}

fn set(names: &[&str]) -> Fields {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn keys(value: &Value) -> Fields {
    value.as_object().unwrap().keys().cloned().collect()
}

/// The titles of the sections, by the type that they describe.
const OBJECTS: [(&str, &str); 62] = [
    ("NodeStatus", "node"),
    ("ExitStatus", "exit"),
    ("ServesStatus", "exit of others"),
    ("FaultsStatus", "faults"),
    ("Fault", "fault"),
    ("Skipped", "skipped check"),
    ("PeerStatus", "peer"),
    ("StrangerStatus", "stranger"),
    ("TurnedAwayStatus", "turned away"),
    ("LinkStatus", "link"),
    ("SessionStatus", "session"),
    ("QualityStatus", "quality"),
    ("Traffic", "traffic"),
    ("FramesStatus", "frames"),
    ("PathSizeStatus", "path size"),
    ("PathChangeStatus", "path change"),
    ("TroubleStatus", "trouble"),
    ("ClonesStatus", "clones"),
    ("HostStatus", "host name"),
    ("RoutesStatus", "routes of a peer"),
    ("TunStatus", "interface"),
    ("OffloadStatus", "offload"),
    ("LanesStatus", "lanes"),
    ("MeshStatus", "mesh"),
    ("DnsStatus", "names"),
    ("PerfStatus", "tests"),
    ("RightsStatus", "rights"),
    ("GuardStatus", "guard"),
    ("PublicNode", "public node"),
    ("PublicPeer", "public peer"),
    ("NetworkStatus", "network"),
    ("MemberStatus", "member"),
    ("InviteStatus", "open invite"),
    ("MemberRouteStatus", "route of a member"),
    ("ShadowedStatus", "shadowed member"),
    ("NumberedStatus", "numbered member"),
    ("ShadowingNode", "shadowing node"),
    ("RequestStatus", "request"),
    ("AskedStatus", "request of this node"),
    ("AskedAtStatus", "asked address"),
    ("SignedStatus", "signed record"),
    ("WhoisNode", "known node"),
    ("WhoisNetwork", "membership"),
    ("HopStatus", "hop"),
    ("CandidateStatus", "candidate"),
    ("StunStatus", "STUN server"),
    ("NostrRelayStatus", "Nostr relay"),
    ("KeepaliveStatus", "keepalive"),
    ("FamilyStatus", "version of IP"),
    ("ConclusionStatus", "conclusion"),
    ("NeighbourStatus", "neighbour"),
    ("MappingStatus", "port mapping"),
    ("MappingTried", "tried protocol"),
    ("NatStatus", "NAT"),
    ("AttemptStatus", "attempt"),
    ("TriedStatus", "tried address"),
    ("LaneTrace", "lane trace"),
    ("Work", "work"),
    ("Sizes", "sizes"),
    ("Waits", "waits"),
    ("PathStatus", "path"),
    ("KnownPathStatus", "known path"),
];

/// Notes the fields of a document and of everything in it.
fn note<T: Document>(name: &str, into: &mut BTreeMap<String, Fields>) {
    for (found, fields) in structs::<T>() {
        let title = match found == name {
            true => T::SCHEMA.to_owned(),
            false => {
                let known = OBJECTS.iter().find(|(object, _)| *object == found);
                known
                    .unwrap_or_else(|| panic!("{found} of {} has no section", T::SCHEMA))
                    .1
                    .to_owned()
            }
        };
        into.insert(title, set(fields));
    }
}

/// Standard output of a command as JSON.
fn printed(arguments: &[&str]) -> Value {
    let output = Command::new(WEFT).args(arguments).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

/// The fields of every document, by the title of its section.
fn real() -> BTreeMap<String, Fields> {
    let mut all = BTreeMap::new();
    note::<Status>("Status", &mut all);
    note::<PublicStatus>("PublicStatus", &mut all);
    note::<Peers>("Peers", &mut all);
    note::<PublicPeers>("PublicPeers", &mut all);
    note::<Pong>("Pong", &mut all);
    note::<Event>("Event", &mut all);
    note::<PublicEvent>("PublicEvent", &mut all);
    note::<Whois>("Whois", &mut all);
    note::<ReachStatus>("ReachStatus", &mut all);
    note::<HopsStatus>("HopsStatus", &mut all);
    note::<NetcheckStatus>("NetcheckStatus", &mut all);
    note::<NetworkList>("NetworkList", &mut all);
    note::<RequestList>("RequestList", &mut all);
    note::<SignedList>("SignedList", &mut all);
    note::<Invited>("Invited", &mut all);
    note::<Why>("Why", &mut all);
    note::<Version>("Version", &mut all);
    note::<Stopping>("Stopping", &mut all);
    note::<Reloaded>("Reloaded", &mut all);
    // The number is the command's.
    all.get_mut(Pong::SCHEMA).unwrap().insert("seq".to_owned());
    for (found, fields) in structs::<LaneTrace>() {
        let (_, title) = OBJECTS.iter().find(|(object, _)| *object == found).unwrap();
        all.insert((*title).to_owned(), set(fields));
    }
    // Its other fields are those of the sum of all lanes; `lanes` is left out if there is one.
    let trace = keys(&json!(TraceDocument::new(&[], &BTreeMap::new(), &[])));
    let mut trace = &trace - &all["lane trace"];
    trace.insert("lanes".to_owned());
    all.insert(TraceDocument::SCHEMA.to_owned(), trace);
    let paths = [
        json!({"kind": "direct", "addr": "192.0.2.1:1"}),
        json!({"kind": "relayed", "via": "npub1", "name": null}),
    ];
    let paths = paths.map(|path| keys(&json!(serde_json::from_value::<PathStatus>(path).unwrap())));
    all.insert("path".to_owned(), &paths[0] | &paths[1]);

    let state = tempfile::tempdir().unwrap();
    let at = ["--state", state.path().to_str().unwrap()];
    let made = Command::new(WEFT).args(["identity", "new"]).args(at).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    all.insert(
        "weft.identity/1".to_owned(),
        keys(&printed(&[&["identity", "show", "--json"][..], &at].concat())),
    );
    fs::write(state.path().join("weft.toml"), "[mesh]\nopen = true\n").unwrap();
    let passphrase = state.path().join("passphrase");
    fs::write(&passphrase, "correct horse\n").unwrap();
    let export = ["key", "export", "--json", "--passphrase-file"];
    for (title, arguments) in [
        ("weft.error/1", &["status", "--json"][..]),
        ("weft.config/1", &["config", "show", "--json"]),
        (
            "weft.key-export/1",
            &[&export[..], &[passphrase.to_str().unwrap()]].concat(),
        ),
    ] {
        all.insert(title.to_owned(), keys(&printed(&[arguments, &at].concat())));
    }
    // No daemon runs, which is a finding.
    let doctor = printed(&[&["doctor", "--json"][..], &at].concat());
    all.insert("finding".to_owned(), keys(&doctor["findings"][0]));
    all.insert("weft.doctor/1".to_owned(), keys(&doctor));
    all
}

#[test]
fn the_page_and_the_program_name_the_same_fields() {
    let (mut page, mut real) = (documented(), real());
    // These take a daemon, a service or a backup: `ping`, `verify`, `wait`, `service` and `key` have tests of their own.
    for (title, fields) in [
        (
            "weft.ping-summary/1",
            &["schema", "sent", "received", "min_ms", "mean_ms", "max_ms"][..],
        ),
        (
            "weft.verify/1",
            &["schema", "own", "npub", "name", "words", "connected"],
        ),
        (
            "weft.service/1",
            &[
                "schema",
                "installed",
                "enabled",
                "active",
                "program",
                "program_version",
                "running_version",
            ],
        ),
        (
            "weft.wait/1",
            &["schema", "npub", "name", "address", "rtt_ms", "waited_ms"],
        ),
        ("weft.key-import/1", &["schema", "npub", "imported", "kept", "networks"]),
        ("restored network", &["network", "restored"]),
        ("skipped check", &["check", "why"]),
    ] {
        real.insert(title.to_owned(), set(fields));
    }
    for (title, fields) in &real {
        let table = page
            .remove(title)
            .unwrap_or_else(|| panic!("docs/json.md has no section {title}"));
        let missing: Vec<_> = fields.difference(&table).collect();
        let other: Vec<_> = table.difference(fields).collect();
        assert!(
            missing.is_empty() && other.is_empty(),
            "{title}: not in docs/json.md: {missing:?}; only there: {other:?}"
        );
    }
    assert_eq!(page, BTreeMap::new(), "sections of documents that do not exist");
}

#[test]
fn links_lead_to_sections() {
    let anchor = |title: &str| title.to_lowercase().replace(' ', "-").replace(['.', '/'], "");
    let titles: BTreeSet<String> = PAGE
        .lines()
        .filter_map(|line| {
            Some(anchor(
                line.trim_start_matches('#')
                    .strip_prefix(' ')
                    .filter(|_| line.starts_with('#'))?,
            ))
        })
        .collect();
    for link in PAGE.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        assert!(titles.contains(link), "{link}");
    }
}
