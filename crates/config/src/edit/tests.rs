use std::path::Path;

use proptest::prelude::*;

use super::super::Config;
use super::*;

fn key(byte: u8) -> PublicKey {
    weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
}

fn read(text: &str) -> Config {
    Config::parse(text, Path::new("weft.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn change(byte: u8, name: Option<&str>, addresses: &[&str]) -> PeerChange {
    PeerChange {
        key: key(byte),
        name: name.map(|name| name.parse().unwrap()),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

fn comments(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('#')).collect()
}

#[test]
fn a_number_of_a_user_is_written_as_text() {
    let set = |value| set("", "control.operator", Some(value)).unwrap();
    for value in ["1000", "\"1000\""] {
        assert_eq!(set(value), "[control]\noperator = \"1000\"\n");
    }
    assert_eq!(set("alice"), "[control]\noperator = \"alice\"\n");
}

/// A value that reads as another type of TOML is what the setting wants.
#[test]
fn a_value_of_a_text_is_written_as_text() {
    for (key, value) in [("tun.exit", "12"), ("log.level", "true"), ("log.level", "1979-05-27")] {
        let (table, setting) = key.split_once('.').unwrap();
        let written = format!("[{table}]\n{setting} = \"{value}\"\n");
        assert_eq!(set("", key, Some(value)).unwrap(), written);
    }
    assert_eq!(set("", "lanes", Some("2")).unwrap(), "lanes = 2\n");
    assert_eq!(set("", "nonsense.key", Some("2")).unwrap(), "[nonsense]\nkey = 2\n");
}

#[test]
fn the_value_of_a_setting_is_found_as_it_is_written() {
    let text = "lanes = 1 # one\n[mesh]\nopen = true\n[networks]\nadvertise_routes = [ \"10.1.0.0/16\" ] # all\n";
    let of = |key| value_of(text, key);
    assert_eq!(of("lanes").as_deref(), Some("1"));
    assert_eq!(of("mesh.open").as_deref(), Some("true"));
    assert_eq!(of("networks.advertise_routes").as_deref(), Some("[\"10.1.0.0/16\"]"));
    for key in ["mesh.allow", "mesh", "tun.exit", "", "lanes.x"] {
        assert_eq!(of(key), None, "{key}");
    }
    assert_eq!(value_of("lanes =", "lanes"), None);
}

#[test]
fn the_starter_keeps_its_comments_through_all_changes() {
    let starter = Config::starter_text();
    let mut text = starter.to_owned();
    text = set(&text, "mesh.open", Some("true")).unwrap();
    text = add_peer(&text, &change(1, Some("bob"), &["192.0.2.2:2121"])).unwrap();
    text = set(&text, "lanes", Some("2")).unwrap();
    text = add_peer(&text, &change(2, None, &[])).unwrap();
    text = add_peer(&text, &change(1, Some("robert"), &[])).unwrap();
    text = set(&text, "log.level", Some("debug")).unwrap();
    let config = read(&text);
    assert!(config.mesh.open);
    assert_eq!((config.lanes, config.log.filter.as_str()), (Some(2), "debug"));
    let [bob, other] = &config.peers[..] else {
        panic!("{text}")
    };
    assert_eq!(bob.name.as_ref().unwrap().as_str(), "robert");
    assert_eq!((bob.key, bob.addresses.len(), other.key), (key(1), 1, key(2)));
    assert_eq!(comments(&text), comments(starter));
    text = remove_peer(&text, &key(1)).unwrap();
    text = remove_peer(&text, &key(2)).unwrap();
    for setting in ["mesh.open", "lanes", "log.level"] {
        text = set(&text, setting, None).unwrap();
    }
    assert_eq!(comments(&text), comments(starter));
    let (config, default) = (read(&text), read(starter));
    assert_eq!(config, default);
}

#[test]
fn a_change_leaves_the_rest_as_it_is() {
    let text = "# mine\nlanes = 1 # one\n\n[mesh] # the mesh\nopen = false # closed\ntransit = true\n\n# a friend\n[[peer]]\n\
                npub = \"NPUB\"\n# where it is\naddresses = [\"192.0.2.1:1\"]\n\n# the end\n";
    let text = &text.replace("NPUB", &key(1).to_string());
    let opened = set(text, "mesh.open", Some("true")).unwrap();
    assert_eq!(opened, text.replace("open = false", "open = true"));
    let moved = add_peer(text, &change(1, None, &["192.0.2.9:9"])).unwrap();
    assert_eq!(moved, text.replace("192.0.2.1:1", "192.0.2.9:9"));
    let added = add_peer(text, &change(2, Some("bob"), &[])).unwrap();
    assert_eq!(
        added,
        text.replace(
            "\n# the end",
            &format!("\n[[peer]]\nnpub = \"{}\"\nname = \"bob\"\n\n# the end", key(2))
        )
    );
    assert_eq!(remove_peer(&added, &key(2)).unwrap(), *text);
}

#[test]
fn settings_without_a_place_are_refused() {
    for (setting, error) in [
        ("", EditError::BadKey(String::new())),
        ("mesh.", EditError::BadKey("mesh.".to_owned())),
        ("a.b.c", EditError::BadKey("a.b.c".to_owned())),
        ("mesh open", EditError::BadKey("mesh open".to_owned())),
        ("peer.name", EditError::Peers),
        ("peer", EditError::Peers),
        ("lanes.x", EditError::Misplaced("lanes".to_owned())),
    ] {
        assert_eq!(set("lanes = 1\n", setting, Some("1")), Err(error), "{setting}");
    }
    assert_eq!(set("lanes =", "lanes", Some("1")), Err(EditError::NotToml));
    assert_eq!(remove_peer("", &key(1)), Err(EditError::NoPeer(key(1).to_string())));
    let inline = format!("peer = [{{ npub = \"{}\" }}]", key(1));
    assert_eq!(
        add_peer(&inline, &change(2, None, &[])),
        Err(EditError::Misplaced("peer".to_owned()))
    );
}

proptest! {
    /// Whatever is set is one value: it never becomes another setting.
    #[test]
    fn any_value_stays_one_value(text in any::<String>()) {
        let written = set("", "log.level", Some(&text)).unwrap();
        let document: DocumentMut = written.parse().unwrap();
        let keys: Vec<_> = document.iter().map(|(key, _)| key.to_owned()).collect();
        prop_assert_eq!(keys, ["log"]);
        prop_assert_eq!(document["log"].as_table().unwrap().len(), 1);
    }
}
