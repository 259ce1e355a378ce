//! What nostr-vpn-core 4.1.19 has written: `tests/vectors.txt`, whose lines begin with what they are.
//! Secret keys are 32 equal bytes, but for those of the link, which are random.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

use std::collections::{BTreeMap, BTreeSet};

use weft_noise::{PublicKey, SecretKey};
use weft_nvpn::control::{self, Capabilities, Frame, MAGIC};
use weft_nvpn::hint::Hint;
use weft_nvpn::join::{JoinLink, Pending, manual_token};
use weft_nvpn::network_id::NetworkId;
use weft_nvpn::secret::Secret;
use weft_nvpn::shared_roster::SharedRoster;

const VECTORS: &str = include_str!("vectors.txt");
const SIGNED_AT: u64 = 1_700_000_000;

fn key(n: u8) -> PublicKey {
    SecretKey::from_bytes(&[n; 32]).unwrap().public()
}

/// The lines of this kind, without it.
fn lines(kind: &str) -> Vec<Vec<&'static str>> {
    let all = VECTORS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let of_kind = all.filter(|fields| fields[0] == kind);
    let found: Vec<_> = of_kind.map(|fields| fields[1..].to_vec()).collect();
    assert!(!found.is_empty(), "no vector of {kind}");
    found
}

fn bytes(kind: &str) -> Vec<u8> {
    [&MAGIC[..], lines(kind)[0][0].as_bytes()].concat()
}

fn network() -> NetworkId {
    NetworkId::new("ab12cd34").unwrap()
}

fn list() -> (SharedRoster, weft_nostr::event::Event) {
    let Ok(Frame::Roster(event)) = Frame::read(&bytes("roster")) else {
        panic!("no roster");
    };
    let event = event.verify().unwrap();
    (SharedRoster::read(&event).unwrap(), event)
}

#[test]
fn frames_are_written_byte_for_byte() {
    let (list, event) = list();
    let offered = Capabilities {
        routes: ["0.0.0.0/0", "::/0", "10.7.0.0/16"]
            .map(|text| text.parse().unwrap())
            .to_vec(),
        hints: ["11.0.0.7:51820", "home.example.net:51820"]
            .map(|text| Hint::read(text).unwrap())
            .to_vec(),
        features: vec!["f".to_owned()],
        signed_at: SIGNED_AT + 4,
    };
    let theirs = NetworkId::new("Home").unwrap();
    for (kind, written) in [
        ("ping", control::ping(&network(), SIGNED_AT + 1)),
        ("pong", control::pong("ab12cd34", SIGNED_AT + 1, SIGNED_AT + 2)),
        ("roster", control::roster(&list, &event)),
        ("join_roster", control::join_roster(&event, "secret")),
        ("join_roster_ack", control::join_roster_ack(event.id())),
        ("join_request", control::join_request(&network(), SIGNED_AT + 3, "nas")),
        ("capabilities", control::capabilities(&theirs, &offered)),
        (
            "capabilities_empty",
            control::capabilities(&theirs, &Capabilities::default()),
        ),
    ] {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // Pings and pongs of weft have one field more.
        let written_as_theirs = text(&written).replace(",\"weft\":true", "");
        assert_eq!(written_as_theirs, text(&bytes(kind)), "{kind}");
        assert!(Frame::read(&written).is_ok(), "{kind}");
    }
}

#[test]
fn the_list_says_what_was_signed() {
    let (list, event) = list();
    assert_eq!((list.id, list.signer, list.signed_at), (*event.id(), key(1), SIGNED_AT));
    assert_eq!((list.network.clone(), list.name.as_str()), (network(), "home"));
    assert_eq!(list.members, BTreeSet::from([key(1), key(2), key(20)]));
    assert_eq!(list.admins, BTreeSet::from([key(1), key(2)]));
    assert_eq!(list.aliases, BTreeMap::from([(key(20), "phone".to_owned())]));
}

#[test]
fn a_device_joins_by_it() {
    let Ok(Frame::JoinRoster { event, secret }) = Frame::read(&bytes("join_roster")) else {
        panic!("no roster");
    };
    let list = SharedRoster::read(&event.verify().unwrap()).unwrap();
    let pending = Pending {
        device: key(20),
        secret: Secret::new("secret".to_owned()),
        admin: None,
        network: None,
        requested_at: SIGNED_AT - 60,
    };
    assert_eq!(pending.accepts(&list, &secret, SIGNED_AT + 5), Ok(()));
}

#[test]
fn a_link_is_read_and_written() {
    let text = lines("link")[0][0];
    let link = JoinLink::read(text).unwrap();
    assert_eq!(link.label.as_deref(), Some("phone"));
    assert_eq!(link.to_text().as_str(), text);
}

#[test]
fn texts_have_the_same_meaning() {
    for pair in lines("network") {
        let normal = NetworkId::new(pair[0]).map(|id| id.to_string());
        assert_eq!(normal.unwrap_or_default(), pair[1], "{}", pair[0]);
    }
    for pair in lines("hint") {
        let hint = Hint::read(pair[0]).map(|hint| hint.to_string());
        assert_eq!(hint.unwrap_or_default(), pair[1], "{}", pair[0]);
    }
    let token = manual_token(&network(), &key(1), &key(20));
    assert_eq!(token, lines("manual_token")[0][0]);
}
