//! The state directory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use weft_config::Config;
use weft_os::process::UserChange;
use weft_store::state::{StateDir, StateError, StatePaths};

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
fn a_directory_that_others_write_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let modes = [
        (0o755, true),
        (0o750, true),
        (0o770, false),
        (0o1770, false),
        (0o702, false),
        (0o1777, false),
    ];
    for (mode, good) in modes {
        fs::set_permissions(base.path(), fs::Permissions::from_mode(mode)).unwrap();
        let opened = StateDir::open(StatePaths::new(base.path()));
        assert_eq!(opened.is_ok(), good, "{mode:o}");
        assert!(good || matches!(opened, Err(StateError::Mode { .. })));
    }
}

/// Runs if this process may change the owner of files, which root may.
#[test]
fn a_directory_of_another_user_is_refused() {
    let base = tempfile::tempdir().unwrap();
    if let Err(error) = chown(base.path(), Some(4711), None) {
        return weft_os::test_support::skip(format!("other users of the host: {error}"));
    }
    let error = StateDir::open(StatePaths::new(base.path())).unwrap_err();
    assert!(matches!(error, StateError::Owner { owner: 4711, .. }), "{error}");
}

#[test]
fn the_daemons_user_gets_what_the_daemon_writes_and_no_more() {
    let base = tempfile::tempdir().unwrap();
    let ids = match weft_os::process::service_user().unwrap() {
        UserChange::To(ids) => ids,
        other => return weft_os::test_support::skip(format!("other users of the host: {other:?}")),
    };
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let network = format!("network-{}.json", "5a".repeat(16));
    for name in ["peers.json", "fast.json", &network, "identity.key", "weft.toml"] {
        fs::write(base.path().join(name), "").unwrap();
    }
    let state = StateDir::open(StatePaths::new(base.path())).unwrap();
    state.hand_over(ids).unwrap();
    state.hand_over(ids).unwrap();
    let of = |name: &str| fs::metadata(base.path().join(name)).unwrap();
    for name in ["peers.json", "fast.json", &network] {
        assert_eq!((of(name).uid(), of(name).gid()), (ids.uid, ids.gid), "{name}");
    }
    for name in ["identity.key", "weft.toml", "lock", "."] {
        assert_eq!(of(name).uid(), 0, "{name}");
    }
    assert_eq!((of(".").gid(), of(".").mode() & 0o7777), (ids.gid, 0o1770));
    drop(state);
    // The next start accepts what this start has set.
    let state = StateDir::open(StatePaths::new(base.path())).unwrap();
    // A file of the daemon's user that is a hard link to the key stays unchanged.
    fs::remove_file(base.path().join("peers.json")).unwrap();
    fs::hard_link(base.path().join("identity.key"), base.path().join("peers.json")).unwrap();
    assert!(matches!(state.hand_over(ids), Err(StateError::Directory { .. })));
    assert_eq!(of("identity.key").uid(), 0);
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
