use weft_noise::{Identity, SecretKey};
use weft_nostr::event::Unsigned;

use super::*;

pub(crate) fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

fn hex_of(n: u8) -> String {
    data_encoding::HEXLOWER.encode(identity(n).public().as_bytes())
}

fn tags(tags: &[&[&str]]) -> Vec<Vec<String>> {
    let owned = |tag: &&[&str]| tag.iter().map(|text| (*text).to_owned()).collect();
    tags.iter().map(owned).collect()
}

fn signed(by: u8, at: u64, tags: Vec<Vec<String>>) -> Event {
    let body = Unsigned {
        created_at: at,
        kind: KIND,
        tags,
        content: String::new(),
    };
    Event::sign(&identity(by), body).unwrap()
}

/// A list of the network `ab12` with these members, all of which are administrators up to 9.
pub(crate) fn list(by: u8, at: u64, members: &[u8]) -> Event {
    let mut all = tags(&[&["d", "ab12"], &["app", APP], &["v", "1"], &["name", "home"]]);
    for n in members {
        all.extend(tags(&[&["member", &hex_of(*n)]]));
        if *n < 10 {
            all.extend(tags(&[&["admin", &hex_of(*n)]]));
        }
        all.extend(tags(&[&["alias", &hex_of(*n), &format!("host-{n}")]]));
    }
    signed(by, at, all)
}

fn read(event: &Event) -> SharedRoster {
    SharedRoster::read(event).unwrap()
}

#[test]
fn the_event_that_weft_makes_is_read() {
    let document = include_str!("../../../../docs/protocol/networks.md");
    let line = document.lines().find(|line| line.contains("\"kind\":30388")).unwrap();
    let event = Event::parse(line.as_bytes()).unwrap();
    let roster = read(&event);
    let keys = |of: &[u8]| of.iter().map(|n| identity(*n).public()).collect::<BTreeSet<_>>();
    assert_eq!(roster.name, "home");
    assert_eq!((roster.signer, roster.signed_at), (identity(1).public(), 1_700_000_000));
    assert_eq!(roster.members, keys(&[1, 7]));
    assert_eq!(roster.admins, keys(&[1, 2]));
    assert!(
        roster
            .aliases
            .values()
            .all(|alias| alias == "n1-1" || alias.starts_with("n1-1-"))
    );
    assert!(roster.names(&identity(2).public()) && !roster.names(&identity(8).public()));
}

#[test]
fn unknown_tags_keys_as_npub_and_repeats_are_taken() {
    let npub = identity(3).public().to_string();
    let event = signed(
        3,
        5,
        tags(&[
            &[],
            &["later", "x", "y"],
            &["d", " nostr-vpn:AB-12 "],
            &["app", "other"],
            &["app", APP],
            &["v", "0"],
            &["v", "1"],
            &["member", &npub],
            &["member", &hex_of(3).to_uppercase()],
            &["member"],
            &["admin", &format!(" {npub} ")],
            &["alias", &npub, " laptop "],
            &["alias", &npub, "  "],
            &["alias", &npub],
        ]),
    );
    let roster = read(&event);
    assert_eq!(roster.network.as_str(), "ab12");
    assert_eq!((roster.members.len(), roster.admins.len()), (1, 1));
    assert_eq!(roster.aliases.values().collect::<Vec<_>>(), ["laptop"]);
    assert_eq!(roster.name, "");
}

#[test]
fn each_cause_has_its_error() {
    let good = tags(&[&["d", "ab12"], &["app", APP], &["v", "1"]]);
    let with = |kind, content: &str, tags| {
        let body = Unsigned {
            created_at: 1,
            kind,
            tags,
            content: content.to_owned(),
        };
        SharedRoster::read(&Event::sign(&identity(1), body).unwrap()).map(|_| ())
    };
    let without = |n: usize| {
        good.iter()
            .enumerate()
            .filter(|(at, _)| *at != n)
            .map(|(_, tag)| tag.clone())
            .collect()
    };
    let and = |more: &[&str]| good.iter().cloned().chain(tags(&[more])).collect();
    assert_eq!(with(KIND, "", good.clone()), Ok(()));
    assert_eq!(with(1, "", good.clone()), Err(RosterError::Kind(1)));
    assert_eq!(with(KIND, "x", good.clone()), Err(RosterError::Content));
    assert_eq!(with(KIND, "", without(0)), Err(RosterError::Network));
    assert_eq!(with(KIND, "", without(1)), Err(RosterError::App));
    assert_eq!(with(KIND, "", without(2)), Err(RosterError::Version));
    assert_eq!(with(KIND, "", and(&["d", " - "])), Err(RosterError::Network));
    for (tag, name) in [("member", "member"), ("admin", "admin"), ("alias", "alias")] {
        assert_eq!(with(KIND, "", and(&[tag, "ab", "x"])), Err(RosterError::Key(name)));
        assert_eq!(
            with(KIND, "", and(&[tag, &"f".repeat(64), "x"])),
            Err(RosterError::Key(name))
        );
    }
}

#[test]
fn a_newer_list_of_an_administrator_replaces_the_one_before() {
    let held = read(&list(1, 100, &[1, 2, 20]));
    let verdict = |event: &Event, now| read(event).supersedes(&held, now);
    assert_eq!(verdict(&list(1, 101, &[1, 20]), 101), Ok(()));
    assert_eq!(verdict(&list(2, 101, &[2]), 101), Ok(()));
    // An administrator by the new list alone, a member, and a stranger.
    for signer in [3, 20, 30] {
        assert_eq!(verdict(&list(signer, 101, &[1, 3, 20, 30]), 101), Err(Refusal::Signer));
    }
    assert_eq!(verdict(&list(1, 100, &[1]), 101), Err(Refusal::Old));
    assert_eq!(verdict(&list(1, 99, &[1]), 101), Err(Refusal::Old));
    assert_eq!(verdict(&list(1, 701, &[1]), 101), Ok(()));
    assert_eq!(verdict(&list(1, 702, &[1]), 101), Err(Refusal::Future));
    assert_eq!(verdict(&list(1, 101, &[20]), 101), Err(Refusal::NoAdmin));
    let other = signed(
        1,
        101,
        tags(&[&["d", "ab13"], &["app", APP], &["v", "1"], &["admin", &hex_of(1)]]),
    );
    assert_eq!(verdict(&other, 101), Err(Refusal::Network));
}
