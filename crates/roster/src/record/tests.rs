use std::collections::BTreeSet;

use weft_noise::SecretKey;

use crate::invite::Seed;
use crate::names::Name;
use crate::rules::Policy;

use super::*;

fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

fn id() -> NetworkId {
    NetworkId::new(&identity(1).public(), &[9; 16])
}

fn key(n: u8) -> PublicKey {
    identity(n).public()
}

fn name(text: &str) -> Name {
    Name::label(text).unwrap()
}

fn member() -> Member {
    Member {
        name: Some(name("laptop")),
        tags: BTreeSet::from([name("family"), name("work")]),
        ipv4: Some([10, 44, 1, 2].into()),
        proof: Some(Seed::new([7; 16]).prove(&key(2), id())),
    }
}

/// A record about `key` with tags of its own.
fn tagged(key: &RecordKey, tags: &[&[&str]]) -> Result<Record, RecordError> {
    let mut draft = Draft::new(id(), key.clone(), 1, &Body::Plain);
    let texts = |tag: &&[&str]| tag.iter().map(|text| (*text).to_owned()).collect();
    draft.tags = tags.iter().map(texts).collect();
    draft.sign(&identity(1), 0)
}

#[test]
fn each_kind_round_trips() {
    let npub = key(2);
    let rules = vec!["allow from any to any tcp/22".parse().unwrap()];
    let network = Network {
        name: Some(name("home")),
        inside: Policy::Deny,
        founder: Some([9; 16]),
        successor: Some(npub),
    };
    let invite = Invite {
        uses: 3,
        tags: BTreeSet::from([name("family")]),
        name: Some(name("phone")),
        expires: Some(1_800_000_000),
    };
    let secret = Secret {
        bytes: [7; 32],
        exclusions: [8; 8],
    };
    for (key, body) in [
        (RecordKey::Network, Body::Network(network)),
        (RecordKey::Member(npub), Body::Member(member())),
        (RecordKey::Member(npub), Body::Member(Member::default())),
        (RecordKey::Admin(npub), Body::Plain),
        (RecordKey::Route(npub, "10.9.0.0/16".parse().unwrap()), Body::Plain),
        (RecordKey::Exit(npub), Body::Exit(Exit::default())),
        (RecordKey::Exit(npub), Body::Exit(Exit { ipv4: true, ipv6: true })),
        (RecordKey::Guest([5; 32]), Body::Guest(Guest::default())),
        (RecordKey::Invite([6; 32]), Body::Invite(invite)),
        (RecordKey::Rules, Body::Rules(RuleList::Understood(rules))),
        (RecordKey::Secret, Body::Secret(secret)),
        (RecordKey::Unknown("later/x".to_owned()), Body::Plain),
    ] {
        let record = Draft::new(id(), key.clone(), u64::MAX, &body)
            .sign(&identity(1), 5)
            .unwrap();
        assert_eq!((record.key(), record.body()), (&key, &body));
        assert_eq!((record.version(), record.removed()), (u64::MAX, false));
        let json = record.event().to_json();
        assert_eq!(record.len(), json.len());
        assert_eq!(Record::parse(json.as_bytes()), Ok(record.clone()));
        assert_eq!(Record::parse_of(id(), json.as_bytes()), Ok(record));
    }
}

#[test]
fn a_record_is_of_one_network_and_kind() {
    let record = tagged(&RecordKey::Admin(key(2)), &[]).unwrap();
    let other = NetworkId::from_bytes([0; 16]);
    assert_eq!(
        Record::parse_of(other, record.event().to_json().as_bytes()),
        Err(RecordError::OtherNetwork(id()))
    );
    let mut note = record.event().body().clone();
    note.kind = 1;
    let note = Event::sign(&identity(1), note).unwrap();
    assert_eq!(Record::parse(note.to_json().as_bytes()), Err(RecordError::Kind(1)));
}

#[test]
fn malformed_tags_have_their_errors() {
    let member = RecordKey::Member(key(2));
    let bad = |key: &RecordKey, tags: &[&[&str]], error: TagError| {
        assert_eq!(tagged(key, tags), Err(RecordError::Tag(error)), "{tags:?}");
    };
    bad(&member, &[&["d", "x"]], TagError::Duplicate("d"));
    bad(&member, &[&["v", "2"]], TagError::Duplicate("v"));
    bad(&member, &[&["name", "a"], &["name", "b"]], TagError::Duplicate("name"));
    bad(&member, &[&["name"]], TagError::Values("name"));
    bad(&member, &[&["name", "a", "b"]], TagError::Values("name"));
    bad(&member, &[&["name", "localhost"]], TagError::Value("name"));
    bad(&member, &[&["removed", "yes"]], TagError::Values("removed"));
    bad(&member, &[&["tag", "x"], &["tag", "x"]], TagError::Duplicate("tag"));
    bad(&member, &[&["tag", "X"]], TagError::Value("tag"));
    bad(&member, &[&["ipv4", "127.0.0.1"]], TagError::Value("ipv4"));
    bad(&member, &[&["ipv4", "10.44.1.02"]], TagError::Value("ipv4"));
    bad(&member, &[&["invite", "00"]], TagError::Values("invite"));
    bad(&member, &[&["invite", "00", "00"]], TagError::Value("invite"));
    let invite = RecordKey::Invite([6; 32]);
    bad(&invite, &[], TagError::Missing("uses"));
    for uses in ["0", "2001", "01", "+1", "x"] {
        bad(&invite, &[&["uses", uses]], TagError::Value("uses"));
    }
    let bytes = "0f".repeat(32);
    let secret = RecordKey::Secret;
    bad(&secret, &[], TagError::Missing("secret"));
    bad(&secret, &[&["secret", &bytes]], TagError::Missing("after"));
    bad(
        &secret,
        &[&["secret", &bytes], &["after", "0f"]],
        TagError::Value("after"),
    );
    bad(
        &secret,
        &[&["secret", &bytes.to_uppercase()]],
        TagError::Value("secret"),
    );
    bad(&RecordKey::Network, &[&["inside", "maybe"]], TagError::Value("inside"));
    bad(&RecordKey::Network, &[&["name", "local"]], TagError::Value("name"));
    let many: Vec<String> = (0..33).map(|n| format!("t{n}")).collect();
    let many: Vec<[&str; 2]> = many.iter().map(|tag| ["tag", tag.as_str()]).collect();
    let many: Vec<&[&str]> = many.iter().map(|tag| &tag[..]).collect();
    bad(&member, &many, TagError::TooMany("tag"));
}

#[test]
fn versions_have_one_spelling() {
    let record = tagged(&RecordKey::Admin(key(2)), &[]).unwrap();
    for version in ["", "01", "+1", "-1", "1 ", "18446744073709551616"] {
        let mut event = record.event().body().clone();
        event.tags[1][1] = version.to_owned();
        let event = Event::sign(&identity(1), event).unwrap();
        let error = Record::parse(event.to_json().as_bytes());
        assert_eq!(error, Err(RecordError::Tag(TagError::Value("v"))), "{version}");
    }
}

#[test]
fn sizes_are_limited_by_key() {
    let long = "x".repeat(MAX_RECORD);
    let member = tagged(&RecordKey::Member(key(2)), &[&["later", &long]]);
    assert!(matches!(member, Err(RecordError::TooLong { most: MAX_RECORD, .. })));
    assert!(tagged(&RecordKey::Rules, &[&["rule", &long]]).is_ok());
    let longer = "x".repeat(MAX_RULES_RECORD - 100);
    let rules = tagged(&RecordKey::Rules, &[&["rule", &longer]]);
    assert!(matches!(rules, Err(RecordError::Event(EventError::TooLong(_)))));
}

#[test]
fn only_the_founder_founds() {
    let nonce = "09".repeat(16);
    let tags: &[&[&str]] = &[&["founder", &nonce]];
    assert!(tagged(&RecordKey::Network, tags).unwrap().founds());
    let draft = Draft::again(&tagged(&RecordKey::Network, tags).unwrap(), 2);
    assert_eq!(draft.clone().sign(&identity(2), 0), Err(RecordError::Founder));
    assert_eq!(draft.removal().sign(&identity(1), 0), Err(RecordError::NotRemovable));
    // A later record of the founder without the proof stays behind the one that has it.
    let proven = tagged(&RecordKey::Network, tags).unwrap();
    let later = Draft::new(id(), RecordKey::Network, 5, &Body::Plain)
        .sign(&identity(1), 0)
        .unwrap();
    assert!(proven.precedence() > later.precedence());
}

#[test]
fn a_proof_of_another_member_or_network_is_refused() {
    let body = Body::Member(member());
    let for_other = Draft::new(id(), RecordKey::Member(key(3)), 1, &body).sign(&identity(1), 0);
    assert_eq!(for_other, Err(RecordError::Tag(TagError::Value("invite"))));
    let other = NetworkId::from_bytes([0; 16]);
    let elsewhere = Draft::new(other, RecordKey::Member(key(2)), 1, &body).sign(&identity(1), 0);
    assert_eq!(elsewhere, Err(RecordError::Tag(TagError::Value("invite"))));
}

#[test]
fn rules_are_understood_as_a_whole() {
    let rule: &[&str] = &["rule", "deny from any to any"];
    let understood = |tags: &[&[&str]]| tagged(&RecordKey::Rules, tags).unwrap().understood();
    assert!(understood(&[]));
    assert!(understood(&[rule, rule]));
    assert!(!understood(&[rule, &["rule", "deny from any to any on monday"]]));
    assert!(!understood(&[rule, &["default", "deny"]]));
    assert!(!understood(&[rule, &["rule"]]));
    let many = vec![rule; 1_001];
    assert_eq!(
        tagged(&RecordKey::Rules, &many),
        Err(RecordError::Tag(TagError::TooMany("rule")))
    );
    assert!(understood(&many[..1_000]));
}

#[test]
fn a_draft_keeps_what_it_does_not_know() {
    let tags: &[&[&str]] = &[&["name", "old"], &["later", "1", "2"]];
    let first = tagged(&RecordKey::Member(key(2)), tags).unwrap();
    let again = Draft::again(&first, 7).removal().sign(&identity(2), 0).unwrap();
    assert_eq!((again.version(), again.removed()), (7, true));
    assert_eq!(again.body(), first.body());
    let body = Body::Member(member());
    let changed = Draft::changed(&again, 8, &body).sign(&identity(2), 0).unwrap();
    assert_eq!(changed.body(), &body);
    assert!(!changed.removed());
    let last = changed.event().body().tags.last().unwrap();
    assert_eq!(last[..], ["later", "1", "2"]);
}

/// Earlier versions signed such names; the records hold for the rest.
#[test]
fn a_name_that_looks_like_a_key_is_none() {
    let npub = key(3).to_string();
    for text in [npub.as_str(), "0123456789abcdef0123456789abcdef", "3232235777"] {
        let tags: &[&[&str]] = &[&["name", text], &["tag", "family"]];
        let record = tagged(&RecordKey::Member(key(2)), tags).unwrap();
        let expected = Member {
            tags: BTreeSet::from([name("family")]),
            ..Member::default()
        };
        assert_eq!(record.body(), &Body::Member(expected), "{text}");
        // The name of a successor of the record is another one, and what it says stays.
        let again = Draft::again(&record, 2).sign(&identity(1), 0).unwrap();
        assert_eq!(again.body(), record.body());
        let network = tagged(&RecordKey::Network, &[&["name", text]]).unwrap();
        assert!(
            matches!(network.body(), Body::Network(Network { name: None, .. })),
            "{text}"
        );
    }
    for text in ["", "Nas", "localhost"] {
        let refused = tagged(&RecordKey::Member(key(2)), &[&["name", text]]);
        assert_eq!(refused, Err(TagError::Value("name").into()), "{text}");
    }
}
