//! The daemon's reports about itself: the documents behind `--json`, and behind every control
//! answer.
//!
//! Each begins with `schema`, a name and a number. Within one number fields are added, never
//! changed or removed; a reader ignores fields that it does not know. Times are seconds, sizes
//! bytes, unless the name says otherwise. Ages and totals count from the start of what they
//! describe and are whole numbers.

mod event;
mod hops;
mod netcheck;
mod networks;
mod node;
mod peer;
mod public;
mod reach;
mod rights;
mod schema;
mod transfer;
mod whois;
mod wireguard;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::event::{Event, EventKind, PublicEvent};
pub use self::hops::{HopStatus, HopsStatus};
pub use self::netcheck::{ConclusionStatus, FamilyStatus, KeepaliveStatus, NeighbourStatus, NetcheckStatus};
pub use self::networks::{
    AskedAtState, AskedAtStatus, AskedStatus, InviteStatus, Invited, MemberRouteStatus, MemberStatus, NetworkList,
    NetworkState, NetworkStatus, NumberedStatus, NvpnRequestStatus, RequestList, RequestStatus, ShadowedStatus,
    ShadowingNode, SignedList, SignedStatus, SoughtStatus, Why,
};
pub use self::node::{
    ExitStatus, FaultsStatus, LanesStatus, NodeStatus, Offload, OffloadStatus, PerfState, PerfStatus, ServesStatus,
    TunStatus,
};
pub use self::peer::{
    ClonesStatus, FramesKind, FramesStatus, HostStatus, KnownPathStatus, PathChangeStatus, PathSizeStatus, PathStatus,
    PeerStatus, RoutesStatus, SessionStatus, StrangerStatus, TroubleStatus, TurnedAwayStatus,
};
pub use self::public::{PublicNode, PublicPath, PublicPeer, PublicPeers, PublicStatus, is_public};
pub use self::reach::{
    AttemptStatus, CandidateStatus, MappingStatus, MappingTried, NatStatus, NostrRelayStatus, ReachStatus, StunStatus,
    TriedStatus,
};
pub use self::rights::{GuardStatus, RightsStatus};
pub use self::schema::schema_of;
pub use self::transfer::{TransferEvent, TransferEventKind, TransferOpened, TransferPlace};
pub use self::whois::{Whois, WhoisNetwork, WhoisNode};
pub use self::wireguard::{GuestAdded, GuestHere, GuestList, GuestStatus, WireGuardDrops, WireGuardStatus};
pub use weft_core::{LinkStatus, MeshStatus, PeerState, Quality, SizeSource, Standing, Traffic, Trouble};
pub use weft_host::dns::{DnsState, DnsStatus};
pub use weft_networks::SignedKind;

/// A document with a schema.
pub trait Document: Serialize + DeserializeOwned {
    /// Its `schema` field, such as `weft.status/1`.
    const SCHEMA: &'static str;

    /// The document in the form that all users of the host may read; `None` if it is for owners of
    /// the daemon only.
    fn for_all_users(&self) -> Option<Value> {
        None
    }
}

/// A word of a list that later versions may extend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word<T> {
    /// A word that this version knows.
    Known(T),
    /// Another word.
    Other(String),
}

/// Each document, its schema, and its form for all users if it has one.
macro_rules! documents {
    ($($document:ty => $schema:literal $(, public: $public:expr)?;)*) => {
        $(impl Document for $document {
            const SCHEMA: &'static str = $schema;
            $(fn for_all_users(&self) -> Option<Value> {
                serde_json::to_value($public(self)).ok()
            })?
        })*

        /// Returns each document that a daemon answers with: its name, and its JSON Schema.
        #[must_use]
        pub fn schemas() -> Vec<(&'static str, Schema)> {
            vec![$(($schema, schema_of::<$document>($schema))),*]
        }
    };
}

documents! {
    Status => "weft.status/1", public: PublicStatus::from;
    Peers => "weft.peers/1", public: PublicPeers::from;
    PublicStatus => "weft.public-status/1";
    PublicPeers => "weft.public-peers/1";
    Pong => "weft.ping/1", public: public::pong;
    Version => "weft.version/1", public: public::version;
    Event => "weft.event/1", public: PublicEvent::from;
    PublicEvent => "weft.public-event/1";
    Whois => "weft.whois/1", public: Whois::clone;
    TransferPlace => "weft.transfer-place/1", public: TransferPlace::clone;
    TransferOpened => "weft.transfer-open/1", public: TransferOpened::clone;
    TransferEvent => "weft.transfer-event/1", public: TransferEvent::clone;
    Stopping => "weft.down/1";
    Reloaded => "weft.reload/1";
    NetworkList => "weft.networks/1", public: public::networks;
    Why => "weft.why/1", public: Why::clone;
    ReachStatus => "weft.reach/1";
    HopsStatus => "weft.hops/1";
    NetcheckStatus => "weft.netcheck/1";
    Invited => "weft.invite/1";
    GuestList => "weft.guests/1";
    GuestAdded => "weft.guest-added/1";
    RequestList => "weft.requests/1";
    SignedList => "weft.signed/1";
    crate::trace::TraceDocument => "weft.trace/1";
}

/// The answer to `status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The node itself.
    pub node: NodeStatus,
    /// Every configured peer, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Nodes that are not configured and whose handshake was refused within the last 10 minutes,
    /// the last one first; 16 at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turned_away: Vec<TurnedAwayStatus>,
    /// Totals since the start, by name: drops and their reasons, back-pressure, offloads in use and
    /// fallbacks from them.
    pub counters: BTreeMap<String, u64>,
}

/// The answer to `peers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peers {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// All configured peers, or the requested one.
    pub peers: Vec<PeerStatus>,
    /// Neighbours that are not configured, if all peers were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<StrangerStatus>,
}

/// The answer to `ping`: one echo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pong {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The peer's public key.
    pub npub: String,
    /// The peer's configured name.
    pub name: Option<String>,
    /// The peer's IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Round-trip time in milliseconds; `None` if no answer arrived in time.
    pub rtt_ms: Option<f64>,
    /// The path of the echo; `None` for users that do not own the daemon.
    pub path: Option<PathStatus>,
    /// The reason why no answer arrived, as text for the user; `None` for users that do not own the
    /// daemon.
    pub why: Option<String>,
    /// The number of the echo, from 1; of the command only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// The answer to `version`, from the daemon or from the command itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// Version of the package.
    pub version: String,
    /// The commit it was built from, or `unknown`.
    pub commit: String,
    /// The operating system, such as `linux`.
    pub os: String,
    /// The processor architecture, such as `x86_64`.
    pub arch: String,
}

impl Version {
    /// Version and commit of this build.
    #[must_use]
    pub fn of_this_build() -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            version: crate::VERSION.to_owned(),
            commit: crate::COMMIT.to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

/// The answer to `down`: the daemon has begun to stop. The connection closes when it has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopping {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The process ID of the daemon; `None` from the command if no daemon was running.
    pub pid: Option<u32>,
    /// A strict exit has kept packets in, and they leave this host directly from now on.
    #[serde(default)]
    pub opens: bool,
}

impl Stopping {
    /// The document of this process. `opens`: a strict exit has kept packets in until now.
    #[must_use]
    pub fn this_process(opens: bool) -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            pid: Some(std::process::id()),
            opens,
        }
    }
}

/// The answer to `reload` and `confirm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// [`Document::SCHEMA`]
    pub schema: String,
    /// The settings that differed and are in effect now, by name.
    pub live: Vec<String>,
    /// The settings of the file that take effect when the daemon starts again.
    pub at_start: Vec<String>,
    /// What the system refused, as text for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// What became of the exit if a setting of it has changed, and what else the user should know, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Seconds until the change is taken back unless it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_s: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use serde_json::json;

    fn quality() -> serde_json::Value {
        json!({
            "rtt_ms": 0.4, "rtt_variation_ms": 0.2, "loss_out": 0.01, "loss_in": 0.0, "jitter_out_ms": 0.3,
            "jitter_in_ms": null, "burst_out": 2, "delay_trend_out_us_s": -5, "reordered_out": 1,
            "reordered_in": 0, "ce_out": 0, "ce_in": 3, "etx": 1.01, "cost": 1.015, "report_age_s": 1
        })
    }

    fn bob() -> serde_json::Value {
        json!({
            "npub": "npub1x", "name": "bob", "address": "fd00::1", "state": "payload",
            "why": "payload 2 s ago", "since_s": 7, "standing": "active", "standing_s": 7,
            "trouble": {"kind": "nothing-arrives", "for_s": 3},
            "path": {"kind": "direct", "addr": "192.0.2.2:2121"},
            "path_changes": [
                {"ago_s": 3, "ago_ms": 3200, "path": {"kind": "direct", "addr": "192.0.2.2:2121"}, "why": "the link came up"},
                {"ago_s": 5, "ago_ms": 5100, "path": {"kind": "relayed", "via": "npub1z", "name": null}, "why": "a path was found"}
            ],
            "link": {
                "epoch_age_s": 1, "rekeys": 2, "rtt_ms": 0.4, "quality": quality(),
                "rx": {"packets": 1, "bytes": 2}, "tx": {"packets": 3, "bytes": 4}, "last_rx_s": 0
            },
            "session": {
                "age_s": 9, "rekeys": 1, "version": "0.1.0", "quality": quality(), "rx": {"packets": 1, "bytes": 2},
                "tx": {"packets": 3, "bytes": 4}, "packet_in_s": 1, "packet_out_s": 0, "told_s": null,
                "queued": 0, "max_inner": 1203, "frames": {"kind": "fast", "suite": "AES-256-GCM", "why": "both ends agreed",
                    "required": false, "downgraded_unix": null},
                "path_size": {"bytes": 1472, "known": "probed", "searching": false, "narrow": false},
                "path_mtu_out": 1280, "path_mtu_in": null
            },
        })
    }

    fn everything() -> serde_json::Value {
        json!({
            "schema": "weft.status/1",
            "node": {
                "npub": "npub1x", "node_addr": "00", "address": "fd00::2", "version": "0.1.0",
                "commit": "abc", "pid": 7, "started_unix": 1, "uptime_s": 2,
                "tun": {"name": "weft0", "mtu": 1280, "offloads": ["tso4"]},
                "offload": {"tun": "on", "gso": "refused", "gro": "off", "senders": "on", "batch": 64},
                "mesh": {
                    "root": "00", "parent": "npub1z", "depth": 2, "neighbours": 3, "strangers": 1,
                    "transit": true, "known": 5, "lookups_found": 7, "lookups_failed": 1, "state_bytes": 9000
                },
                "lanes": {
                    "wanted": 2, "auto": true, "preferred": "on", "refused": null,
                    "each": [{"fast_tx": 5, "handed_in": 0}, {"fast_tx": 6, "handed_in": 0}]
                },
                "listen": ["[::]:2121"],
                "dns": {"state": "local", "why": "answered on [::1]:5354", "listen": ["[::1]:5354"], "lost": false},
                "perf": {"state": "listening", "why": "open to configured peers", "listen": "[fd00::2]:2125"},
                "stun": [{
                    "server": "a.example:3478", "address": "192.0.2.7:3478", "seen": "192.0.2.1:2121", "ago_s": 3,
                    "rtt_ms": 20, "why": null
                }],
                "nostr_relays": [{
                    "url": "wss://relay.example/", "state": "waiting", "since_s": 9, "rtt_ms": null,
                    "trouble": "it does not answer", "trouble_s": 3
                }],
                "port_mapping": {
                    "gateway": "192.168.1.1", "mapped": "203.0.113.5:2121", "protocol": "PCP",
                    "tried": [{"protocol": "NAT-PMP", "outcome": "no answer"}],
                    "why": "the gateway maps 203.0.113.5:2121 by PCP"
                },
                "rights": {
                    "uid": 65530, "root": null, "landlock": {"on": true, "why": null},
                    "seccomp": {"on": true, "why": null}, "memory_locked": {"on": false, "why": "a limit"},
                    "broker": {"on": true, "why": null}
                },
                "config": "/var/lib/weft/weft.toml", "traced": false, "rss_bytes": 3, "cpu_s": 0.5
            },
            "peers": [
                bob(),
                {
                    "npub": "npub1y", "name": null, "address": "fd00::3", "state": "known",
                    "why": "no address known; waiting for it to dial", "since_s": 7, "standing": "offline",
                    "standing_s": 7, "trouble": null,
                    "path": null, "path_changes": [], "link": null, "session": null
                }
            ],
            "turned_away": [{"npub": "npub1w", "from": "192.0.2.9:2121", "ago_s": 3, "times": 4}],
            "counters": {"rx_unknown": 5}
        })
    }

    /// Scripts rely on the names and forms in the JSON: this test fails if one changes.
    #[test]
    fn status_as_documented() {
        let document = everything();
        let status: Status = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(serde_json::to_value(&status).unwrap(), document);
    }

    /// The keys of a document with all that contain them, an index as `[]`.
    fn keys(document: &Value, at: &str, into: &mut BTreeSet<String>) {
        match document {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let at = format!("{at}.{name}");
                    keys(value, &at, into);
                    into.insert(at);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, &format!("{at}[]"), into)),
            _ => {}
        }
    }

    /// Every local user reads these: a key that is not in this list must be considered first.
    #[test]
    fn all_users_read_only_the_listed_keys() {
        let peer = "npub name address state since_s standing standing_s path frames rtt_ms rx tx \
                    rx.packets rx.bytes tx.packets tx.bytes";
        let node = "npub address version commit started_unix uptime_s interface mtu neighbours rss_bytes cpu_s";
        let below =
            |at: &'static str, names: &'static str| names.split_whitespace().map(move |name| format!("{at}.{name}"));
        let peers: BTreeSet<String> = below("", "schema peers").chain(below(".peers[]", peer)).collect();
        let mut all = peers.clone();
        all.extend(below("", "node counters counters.rx_unknown").chain(below(".node", node)));
        let status: Status = serde_json::from_value(everything()).unwrap();
        let full = Peers {
            schema: Peers::SCHEMA.to_owned(),
            peers: status.peers.clone(),
            strangers: Vec::new(),
        };
        let pong = Pong {
            schema: Pong::SCHEMA.to_owned(),
            npub: "npub1x".to_owned(),
            name: None,
            address: Ipv6Addr::LOCALHOST,
            rtt_ms: None,
            path: status.peers[0].path.clone(),
            why: Some("no answer from 192.0.2.2:2121".to_owned()),
            seq: None,
        };
        for (document, wanted) in [
            (status.for_all_users(), all),
            (full.for_all_users(), peers),
            (
                pong.for_all_users(),
                below("", "schema npub name address rtt_ms path why").collect(),
            ),
            (
                Event {
                    npub: Some("npub1x".to_owned()),
                    path: status.peers[0].path.clone(),
                    why: Some("no answer from 192.0.2.2:2121".to_owned()),
                    ..Event::of_daemon(EventKind::PeerUp, 1)
                }
                .for_all_users(),
                below("", "schema event unix_ms npub name address standing path").collect(),
            ),
            (
                Version::of_this_build().for_all_users(),
                below("", "schema version commit os arch").collect(),
            ),
        ] {
            let document = document.unwrap();
            let mut found = BTreeSet::new();
            keys(&document, "", &mut found);
            assert_eq!(found, wanted);
            let text = document.to_string();
            for secret in ["192.0.2", "2121", "npub1z", "npub1w", "/var/lib", "payload 2 s ago"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
        assert_eq!(Stopping::this_process(false).for_all_users(), None);
    }

    #[test]
    fn documents_for_all_users_are_read_back() {
        let status: Status = serde_json::from_value(everything()).unwrap();
        let public: PublicStatus = serde_json::from_value(status.for_all_users().unwrap()).unwrap();
        assert_eq!(public, PublicStatus::from(&status));
        assert!(is_public(PublicStatus::SCHEMA) && is_public(PublicPeers::SCHEMA) && !is_public(Status::SCHEMA));
    }

    #[test]
    fn readers_ignore_fields_of_later_versions() {
        let mut later = bob();
        later["colour"] = json!("red");
        later["trouble"]["kind"] = json!("nothing-fits");
        later["session"]["path_size"]["known"] = json!("guessed");
        assert!(serde_json::from_value::<PeerStatus>(later).is_ok());
    }

    #[test]
    fn standings_are_spelled_one_way() {
        for standing in [
            Standing::Offline,
            Standing::Connecting,
            Standing::Connected,
            Standing::Active,
        ] {
            assert_eq!(serde_json::to_value(standing).unwrap(), json!(standing.name()));
        }
    }

    #[test]
    fn fields_that_earlier_daemons_omit_read_as_unmeasured() {
        let mut earlier = bob();
        earlier["link"].as_object_mut().unwrap().remove("quality");
        let peer: PeerStatus = serde_json::from_value(earlier).unwrap();
        assert_eq!(peer.link.unwrap().quality, Quality::default());
    }

    #[test]
    fn states_are_spelled_one_way() {
        for state in [
            PeerState::Known,
            PeerState::Linking,
            PeerState::Linked,
            PeerState::Session,
            PeerState::Payload,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), json!(state.name()));
        }
    }
}
