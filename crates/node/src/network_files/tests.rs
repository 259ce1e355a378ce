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

#[test]
fn networks_are_loaded_as_they_were_saved() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    let kept = load(directory.path(), networks.own());
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].id(), kept[0].state()), (id, network.state()));
}

#[test]
fn an_unusable_file_is_kept_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    save(directory.path(), networks.iter().next().unwrap()).unwrap();
    let path = files(directory.path()).pop().unwrap();
    fs::write(&path, "{").unwrap();
    assert!(load(directory.path(), networks.own()).is_empty());
    assert!(files(directory.path()).is_empty() && !path.exists());
    assert_eq!(fs::read_to_string(statefile::with_suffix(&path, ".bad")).unwrap(), "{");
    remove(directory.path(), id).unwrap();
}

#[test]
fn unusable_presences_count_as_none_and_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (networks, id) = founded();
    let network = networks.iter().next().unwrap();
    save(directory.path(), network).unwrap();
    save_presences(directory.path(), network, (5, 1_700_000_000)).unwrap();
    fs::write(presence_files(directory.path()).pop().unwrap(), "{").unwrap();
    let mut kept = load(directory.path(), networks.own());
    load_presences(directory.path(), &mut kept[0], (5, 1_700_000_000));
    assert_eq!(kept[0].presences(5).count(), 0);
    remove(directory.path(), id).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}
