//! The state directory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use weft_node::config::Config;
use weft_node::state::{StateDir, StateError, StatePaths};

#[test]
fn made_private_and_owned_by_one() {
    let base = tempfile::tempdir().unwrap();
    let paths = StatePaths::new(base.path().join("a/b"));
    let state = StateDir::open(paths.clone()).unwrap();
    let mode = fs::metadata(paths.directory()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(matches!(StateDir::open(paths.clone()), Err(StateError::InUse(_))));
    drop(state);
    StateDir::open(paths).unwrap();
}

#[test]
fn a_directory_that_everybody_writes_is_refused() {
    let base = tempfile::tempdir().unwrap();
    for (mode, good) in [(0o755, true), (0o770, true), (0o702, false), (0o1777, false)] {
        fs::set_permissions(base.path(), fs::Permissions::from_mode(mode)).unwrap();
        let opened = StateDir::open(StatePaths::new(base.path()));
        assert_eq!(opened.is_ok(), good, "{mode:o}");
        assert!(good || matches!(opened, Err(StateError::Mode { .. })));
    }
}

#[test]
fn a_file_in_its_place() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("file");
    fs::write(&path, "").unwrap();
    assert!(matches!(
        StateDir::open(StatePaths::new(path)),
        Err(StateError::Directory { .. })
    ));
}

#[test]
fn the_key_is_where_the_configuration_says() {
    let paths = StatePaths::new("/s");
    let mut config = Config::default();
    assert_eq!(paths.key(&config), std::path::Path::new("/s/identity.key"));
    config.key_file = "/etc/weft.key".into();
    assert_eq!(paths.key(&config), std::path::Path::new("/etc/weft.key"));
}
