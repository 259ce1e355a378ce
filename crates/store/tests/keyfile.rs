//! The secret key on disk, and each possible fault of its file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use weft_noise::KeyError;
use weft_store::keyfile::{self, BadSecret, KeyFileError};

/// A directory with a valid key in it.
fn with_key() -> (tempfile::TempDir, PathBuf, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("identity.key");
    let identity = keyfile::generate().unwrap();
    keyfile::create(&path, &identity).unwrap();
    (directory, path, identity.public().to_string())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn error(path: &Path) -> KeyFileError {
    keyfile::load(path).map(|_| ()).unwrap_err()
}

#[test]
fn a_written_key_is_read() {
    let (_directory, path, npub) = with_key();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(keyfile::load(&path).unwrap().public().to_string(), npub);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], format!("# {npub}"));
    assert!(lines[1].starts_with("nsec1") && lines.len() == 2 && text.ends_with('\n'));
}

#[test]
fn a_key_is_never_overwritten_by_creating() {
    let (_directory, path, npub) = with_key();
    let other = keyfile::generate().unwrap();
    assert!(matches!(keyfile::create(&path, &other), Err(KeyFileError::Exists(_))));
    assert_eq!(keyfile::load(&path).unwrap().public().to_string(), npub);
}

/// There is no interval between the check whether the file exists and its creation.
#[test]
fn of_creators_at_once_one_wins() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity.key");
        let start = std::sync::Barrier::new(8);
        let create = || {
            let identity = keyfile::generate().unwrap();
            start.wait();
            keyfile::create(&path, &identity).map(|()| identity.public().to_string())
        };
        let created: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(create));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let won: Vec<_> = created.iter().flatten().collect();
        assert_eq!(won.len(), 1, "{created:?}");
        let lost = created.iter().filter_map(|result| result.as_ref().err());
        assert!(
            lost.into_iter().all(|error| matches!(error, KeyFileError::Exists(_))),
            "{created:?}"
        );
        assert_eq!(keyfile::load(&path).unwrap().public().to_string(), *won[0]);
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            1,
            "nothing else is left"
        );
    }
}

#[test]
fn replacing_leaves_one_file() {
    let (directory, path, npub) = with_key();
    set_mode(&path, 0o644);
    let other = keyfile::generate().unwrap();
    keyfile::replace(&path, &other).unwrap();
    assert_eq!(keyfile::load(&path).unwrap().public(), other.public());
    assert_ne!(other.public().to_string(), npub);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
}

#[test]
fn two_keys_differ() {
    let (a, b) = (keyfile::generate().unwrap(), keyfile::generate().unwrap());
    assert_ne!(a.public(), b.public());
}

#[test]
fn modes() {
    let (_directory, path, _) = with_key();
    for good in [0o600, 0o400] {
        set_mode(&path, good);
        assert!(keyfile::load(&path).is_ok(), "{good:o}");
    }
    for bad in [0o640, 0o604, 0o620, 0o700, 0o644, 0o4600] {
        set_mode(&path, bad);
        let error = error(&path);
        assert!(matches!(error, KeyFileError::Mode { mode, .. } if mode == bad));
        let text = error.to_string();
        assert!(text.ends_with(&format!("; chmod 600 {}", path.display())), "{text}");
    }
}

#[test]
fn files_that_are_no_key_files() {
    let (directory, path, _) = with_key();
    assert!(matches!(
        error(&directory.path().join("none")),
        KeyFileError::Missing(_)
    ));
    assert!(matches!(error(directory.path()), KeyFileError::NotAFile(_)));
    assert!(matches!(error(Path::new("/dev/zero")), KeyFileError::NotAFile(_)));
    assert!(matches!(error(&path.join("below")), KeyFileError::Unreadable { .. }));
}

#[test]
fn another_users_key() {
    let (_directory, path, _) = with_key();
    // Only root can change the owner of a file; other users find one that is not theirs.
    let foreign = match std::os::unix::fs::chown(&path, Some(12345), None) {
        Ok(()) => path,
        Err(_) => PathBuf::from("/etc/passwd"),
    };
    assert!(matches!(error(&foreign), KeyFileError::Owner { .. }));
}

#[test]
fn contents() {
    let read = |text: &str| keyfile::read_secret(Cursor::new(text.to_owned()));
    let nsec = keyfile::generate().unwrap().secret().to_nsec();
    let nsec = nsec.as_str();
    assert!(read(&format!("\n# x\r\n  {nsec}  \r\n\n")).is_ok());
    assert!(read(nsec).is_ok());
    assert!(read(&"01".repeat(32)).is_ok());
    assert!(matches!(read(""), Err(BadSecret::Empty)));
    assert!(matches!(read("# only this\n\n"), Err(BadSecret::Empty)));
    assert!(matches!(read(&format!("{nsec}\n{nsec}")), Err(BadSecret::SeveralLines)));
    assert!(matches!(read(&"#\n".repeat(3000)), Err(BadSecret::TooLong)));
    assert!(matches!(read("garbage"), Err(BadSecret::Key(KeyError::NotASecretKey))));
    let npub = keyfile::generate().unwrap().public().to_string();
    assert!(matches!(read(&npub), Err(BadSecret::Key(KeyError::PublicForSecret))));
    let bytes = keyfile::read_secret(Cursor::new(vec![0xff; 63]));
    assert!(matches!(bytes, Err(BadSecret::NotText)));
}

#[test]
fn no_error_shows_the_secret() {
    let (_directory, path, _) = with_key();
    let nsec = keyfile::generate().unwrap().secret().to_nsec();
    let (start, last) = nsec.as_str().split_at(62);
    let wrong = format!("{start}{}", if last == "q" { "p" } else { "q" });
    fs::write(&path, &wrong).unwrap();
    let error = error(&path);
    assert!(matches!(error, KeyFileError::Content { .. }));
    assert!(!format!("{error} {error:?}").contains(&wrong[5..20]));
}
