use std::sync::Arc;

use weft_networks::Networks;
use weft_noise::{Identity, SecretKey};
use weft_os::random::SystemRng;
use weft_roster::names::Name;

use super::*;

/// The networks of a node that has founded one.
fn founded() -> (Networks, NetworkId) {
    let identity = Arc::new(Identity::new(SecretKey::from_bytes(&[7; 32]).unwrap()));
    let mut networks = Networks::new(identity, Vec::new(), Box::new(SystemRng));
    let id = networks
        .create(Name::network("home").unwrap(), None, [7; 16], 1_700_000_000)
        .unwrap();
    (networks, id)
}

/// What is loaded, without the files.
fn load(directory: &Path, own: &PublicKey) -> Vec<Network> {
    NetworkFiles::load(directory, own).1
}

#[test]
fn networks_are_loaded_as_they_were_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    let kept = load(directory.path(), networks.own());
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].id(), kept[0].state()), (id, network.state()));
    assert!(!kept[0].is_lost());
}

/// Damages of a file, each with what is said of it and whether the file is of a later version.
const DAMAGES: [(&str, &str, bool); 6] = [
    (r#"{"schema":"weft.network/3","members":[]}"#, "weft.network/3", true),
    (r#"{"schema":"weft.network/1"}"#, "missing field", false),
    (
        r#"{"schema":"weft.other/2"}"#,
        "its schema is not weft.network/1",
        false,
    ),
    ("{", "EOF", false),
    ("", "EOF", false),
    ("\u{0}\u{0}\u{0}\u{0}", "expected value", false),
];

#[test]
fn an_unusable_file_stays_until_the_records_are_back() {
    for (damage, said, newer) in DAMAGES {
        let directory = tempfile::tempdir().unwrap();
        let (networks, id) = founded();
        let network = networks.iter().next().unwrap();
        save(directory.path(), network).unwrap();
        let path = files(directory.path()).pop().unwrap();
        fs::write(&path, damage).unwrap();
        // As often as the daemon starts.
        for _ in 0..2 {
            let (loaded, kept) = NetworkFiles::load(directory.path(), networks.own());
            assert_eq!((kept.len(), kept[0].id(), kept[0].is_lost()), (1, id, true));
            let unusable = loaded.unusable(&id).unwrap();
            assert_eq!((&unusable.path, unusable.newer), (&path, newer));
            assert!(unusable.why.contains(said), "{}", unusable.why);
            assert_eq!(fs::read_to_string(&path).unwrap(), damage);
        }
        // The records are back.
        let (mut loaded, _) = NetworkFiles::load(directory.path(), networks.own());
        let saved = loaded.save(network);
        assert_eq!(saved.is_err(), newer, "{saved:?}");
        let aside = with_suffix(&path, ".bad");
        if newer {
            let error = saved.unwrap_err().to_string();
            assert!(
                error.contains("weft.network/3") && error.contains("update weft"),
                "{error}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), damage);
            assert!(!aside.exists() && loaded.unusable(&id).is_some());
            // The later version finds it as it was.
            continue;
        }
        assert_eq!(fs::read_to_string(&aside).unwrap(), damage);
        assert!(loaded.unusable(&id).is_none());
        assert!(!load(directory.path(), networks.own())[0].is_lost());
        loaded.save(network).unwrap();
        assert_eq!(fs::read_to_string(&aside).unwrap(), damage, "it is put aside once");
    }
}

#[test]
fn networks_of_another_key_are_set_aside_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, _) = founded();
    save(directory.path(), networks.iter().next().unwrap()).unwrap();
    let path = files(directory.path()).pop().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let aside = set_aside(directory.path(), ".old-npub1abc").unwrap();
    assert_eq!(aside, [with_suffix(&path, ".old-npub1abc")]);
    assert!(files(directory.path()).is_empty() && load(directory.path(), networks.own()).is_empty());
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), text);
    assert!(set_aside(directory.path(), ".old-npub1abc").unwrap().is_empty());
}

#[test]
fn files_kept_aside_are_not_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, _) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    let path = files(directory.path()).pop().unwrap();
    for damage in ["first", "second", "first", "third"] {
        fs::write(&path, damage).unwrap();
        let (mut loaded, _) = NetworkFiles::load(directory.path(), networks.own());
        loaded.save(network).unwrap();
    }
    for (suffix, damage) in [(".bad", "first"), (".bad2", "second"), (".bad3", "third")] {
        let aside = with_suffix(&path, suffix);
        assert_eq!(fs::read_to_string(aside).unwrap(), damage);
    }
    assert!(!with_suffix(&path, ".bad4").exists());
}

#[test]
fn a_file_under_the_name_of_another_network_is_none_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    save(directory.path(), networks.iter().next().unwrap()).unwrap();
    let other = NetworkId::from_bytes([9; 16]);
    fs::rename(path(directory.path(), id), path(directory.path(), other)).unwrap();
    let (loaded, kept) = NetworkFiles::load(directory.path(), networks.own());
    assert!(kept[0].is_lost() && kept[0].id() == other);
    let why = &loaded.unusable(&other).unwrap().why;
    assert!(why.contains(&id.to_string()), "{why}");
}

/// As a build before places had carriers has written it.
#[test]
fn presences_of_the_first_format_are_no_fault_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, _) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    // Key; version, age, one address; signature.
    let key = hex::encode(networks.own().as_bytes());
    let rest = "0000018bcfe56800000000050100000000000000000000ffffc00002010849";
    let signature = "07".repeat(64);
    let first = format!(r#"{{"schema":"weft.presence/1","unix":1700000000,"presences":["{key}{rest}{signature}"]}}"#);
    let path = presence_path(directory.path(), network.id());
    fs::write(&path, &first).unwrap();
    let (loaded, mut kept) = NetworkFiles::load(directory.path(), networks.own());
    load_presences(directory.path(), &mut kept[0], (5, 1_700_000_000));
    assert_eq!(kept[0].presences(5).count(), 0);
    assert!(loaded.all_unusable().is_empty() && !kept[0].is_lost());
    save_presences(directory.path(), &kept[0], (5, 1_700_000_000)).unwrap();
    assert!(fs::read_to_string(&path).unwrap().contains("weft.presence/2"));
    assert_eq!(presence_files(directory.path()), [path], "and no other file");
}

#[test]
fn unusable_presences_count_as_none_and_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    save_presences(directory.path(), network, (5, 1_700_000_000)).unwrap();
    fs::write(presence_files(directory.path()).pop().unwrap(), "{").unwrap();
    let (mut files, mut kept) = NetworkFiles::load(directory.path(), networks.own());
    load_presences(directory.path(), &mut kept[0], (5, 1_700_000_000));
    assert_eq!(kept[0].presences(5).count(), 0);
    files.remove(id).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}
