mod race;
mod remove;

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::Ordering;

use rustix::fs::{CWD, FileType, mknodat};
use tempfile::TempDir;

use super::rename::{rename_by_links, rename_if_free};
use super::*;

/// A root, and a folder beside it to which nothing of the root leads.
struct Case {
    root: Root,
    base: TempDir,
}

impl Case {
    fn inside(&self, rel: &str) -> PathBuf {
        self.base.path().join("root").join(rel)
    }

    fn outside(&self, rel: &str) -> PathBuf {
        self.base.path().join("outside").join(rel)
    }
}

/// Runs a test with openat2(2), and as without it.
fn both_ways(test: impl Fn(&Case)) {
    for steps in [false, true] {
        // In memory, where there is such a place: many thousand files are made and removed.
        let base = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        fs::create_dir(base.path().join("outside")).unwrap();
        fs::write(base.path().join("outside/kept"), "kept").unwrap();
        let root = Root::create(&base.path().join("root")).unwrap();
        root.steps.store(steps, Ordering::Relaxed);
        let case = Case { root, base };
        test(&case);
        assert_eq!(case.root.goes_by_steps(), steps);
        let left: Vec<_> = fs::read_dir(case.outside("")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(fs::read(case.outside("kept")).unwrap(), b"kept");
    }
}

fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    RelPath::own(bytes.as_ref()).unwrap()
}

#[test]
fn files_are_made_and_read_below_the_root() {
    both_ways(|Case { root, .. }| {
        root.make_dirs(&path("a/b/c")).unwrap();
        root.make_dirs(&path("a/b/c")).unwrap();
        assert!(root.make_dir(&path("a/d"), 0o700).unwrap());
        assert!(!root.make_dir(&path("a/d"), 0o700).unwrap());
        let mut file = root.create_new(&path("a/b/c/file")).unwrap();
        file.write_all(b"text").unwrap();
        assert_eq!(
            root.create_new(&path("a/b/c/file")).unwrap_err().kind(),
            ErrorKind::AlreadyExists
        );
        let inner = root.enter(&path("a/b")).unwrap();
        let mut text = String::new();
        inner
            .open_read(&path("c/file"))
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "text");
        inner.open_rw(&path("c/file")).unwrap().write_all(b"TE").unwrap();
        assert_eq!(fs::read(inner.path().join("c/file")).unwrap(), b"TExt");
        assert_eq!(root.enter(&path("a")).unwrap().names().unwrap(), [b"b", b"d"]);
        assert!(root.free_bytes().unwrap() > 0);
        inner.sync().and_then(|()| inner.sync_fs()).unwrap();
    });
}

#[test]
fn names_of_any_bytes_are_names() {
    both_ways(|Case { root, .. }| {
        let names = [&[0xff; 255][..], b"\x01\n", "ü".as_bytes()];
        for name in names {
            root.make_dir(&path(name), 0o700).unwrap();
            let below = path(name).join(name).unwrap();
            root.create_new(&below).unwrap();
            assert_eq!(root.stat(&below).unwrap().unwrap().kind, Kind::File);
        }
        assert_eq!(root.names().unwrap(), [names[1], names[2], names[0]]);
        // The longest path that the system takes.
        let mut deep = path([b'n'; 255]);
        root.make_dir(&deep, 0o700).unwrap();
        for _ in 0..14 {
            deep = deep.join(&[b'n'; 255]).unwrap();
            root.make_dir(&deep, 0o700).unwrap();
        }
        let file = deep.join(&[0xfe; 255]).unwrap();
        assert_eq!(file.as_bytes().len(), crate::names::MAX_PATH);
        root.create_new(&file).unwrap();
        root.remove_all(&path([b'n'; 255])).unwrap();
    });
}

#[test]
fn a_link_in_a_path_is_never_followed() {
    both_ways(|case| {
        let root = &case.root;
        symlink(case.outside(""), case.inside("absolute")).unwrap();
        symlink("../outside", case.inside("relative")).unwrap();
        symlink("/proc/self/cwd", case.inside("magic")).unwrap();
        fs::create_dir(case.inside("real")).unwrap();
        symlink("real", case.inside("within")).unwrap();
        root.create_new(&path("mine")).unwrap();
        for link in ["absolute", "relative", "magic", "within"] {
            assert!(root.enter(&path(link)).is_err());
            assert_eq!(
                root.make_dirs(&path(link)).unwrap_err().kind(),
                ErrorKind::AlreadyExists
            );
            for below in [format!("{link}/kept"), format!("{link}/deep/er")] {
                let rel = &path(&below);
                assert!(root.make_dir(rel, 0o700).is_err(), "{below}");
                assert!(root.make_dirs(rel).is_err());
                assert!(root.create_new(rel).is_err());
                assert!(root.open_rw(rel).is_err() && root.open_read(rel).is_err());
                assert!(root.symlink(rel, b"x").is_err() && root.read_link(rel).is_err());
                assert!(root.stat(rel).is_err() && root.enter(rel).is_err());
                assert!(root.rename_to(&path("mine"), root, rel, true).is_err());
                assert!(root.rename_to(rel, root, &path("got"), false).is_err());
                assert!(root.remove_file(rel).is_err() && root.remove_dir(rel).is_err());
                assert!(root.remove_all(rel).is_err());
                assert!(root.set_mode(rel, 0).is_err() && root.set_times(rel, 0, 0).is_err());
            }
        }
        assert_eq!(fs::read_dir(case.inside("real")).unwrap().count(), 0);
    });
}

#[test]
fn a_link_itself_is_made_read_and_removed() {
    both_ways(|case| {
        let (root, link) = (&case.root, path("link"));
        root.symlink(&link, b"../outside/kept").unwrap();
        assert_eq!(root.read_link(&link).unwrap(), b"../outside/kept");
        assert_eq!(root.stat(&link).unwrap().unwrap().kind, Kind::Link);
        let before = fs::metadata(case.outside("kept")).unwrap();
        root.set_times(&link, -7, 1).unwrap();
        let meta = root.stat(&link).unwrap().unwrap();
        assert_eq!((meta.mtime_s, meta.mtime_ns), (-7, 1));
        for refused in [
            root.open_read(&link).map(drop),
            root.open_rw(&link).map(drop),
            root.set_mode(&link, 0o600),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(root.create_new(&link).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(root.make_dir(&link, 0).unwrap_err().kind(), ErrorKind::AlreadyExists);
        root.remove_all(&link).unwrap();
        assert_eq!(root.stat(&link).unwrap(), None);
        let after = fs::metadata(case.outside("kept")).unwrap();
        assert_eq!((before.mtime_nsec(), before.mode()), (after.mtime_nsec(), after.mode()));
    });
}

#[test]
fn only_regular_files_are_opened_and_none_waits() {
    both_ways(|case| {
        let root = &case.root;
        mknodat(CWD, case.inside("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(case.inside("socket")).unwrap();
        root.make_dir(&path("folder"), 0o700).unwrap();
        for name in ["fifo", "socket", "folder"] {
            for opened in [root.open_read(&path(name)), root.open_rw(&path(name))] {
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
            }
        }
        assert_eq!(root.stat(&path("fifo")).unwrap().unwrap().kind, Kind::Fifo);
        for name in ["fifo", "socket"] {
            assert_eq!(
                root.set_mode(&path(name), 0).unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
            root.remove_file(&path(name)).unwrap();
        }
    });
}

#[test]
fn modes_are_permissions_alone() {
    both_ways(|case| {
        let root = &case.root;
        let mode = |name: &str| root.stat(&path(name)).unwrap().unwrap().mode;
        root.make_dir(&path("folder"), 0o7700).unwrap();
        assert_eq!(mode("folder"), 0o700);
        root.create_new(&path("file")).unwrap();
        assert_eq!(mode("file"), 0o600);
        for name in ["folder", "file"] {
            root.set_mode(&path(name), 0o6000).unwrap();
            assert_eq!(mode(name), 0);
            // One without permissions gets them again.
            root.set_mode(&path(name), 0o17_777).unwrap();
            assert_eq!(mode(name), 0o777);
        }
        assert_eq!(case.base.path().join("root").metadata().unwrap().mode() & 0o7777, 0o700);
    });
}

#[test]
fn times_are_of_nanoseconds_and_may_precede_1970() {
    both_ways(|Case { root, .. }| {
        root.create_new(&path("file")).unwrap();
        root.set_times(&path("file"), -1, 999_999_999).unwrap();
        let meta = root.stat(&path("file")).unwrap().unwrap();
        assert_eq!((meta.mtime_s, meta.mtime_ns), (-1, 999_999_999));
        // The last one asks utimensat(2) for the present time.
        for wrong in [1_000_000_000, (1 << 30) - 1] {
            let refused = root.set_times(&path("file"), 0, wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        }
    });
}

#[test]
fn a_name_that_is_taken_is_kept() {
    type Rename = fn(&Case, &str, &str) -> io::Result<()>;
    let ways: [Rename; 3] = [
        |case, from, to| case.root.rename_to(&path(from), &case.root, &path(to), false),
        |case, from, to| {
            let (from, to) = (path(from), path(to));
            Ok(rename_by_links(&case.root.place(&from)?, &case.root.place(&to)?)?)
        },
        |case, from, to| {
            let (from, to) = (path(from), path(to));
            Ok(rename_if_free(&case.root.place(&from)?, &case.root.place(&to)?)?)
        },
    ];
    for rename in ways {
        both_ways(|case| {
            let root = &case.root;
            for folder in ["folder", "empty", "in"] {
                root.make_dir(&path(folder), 0o700).unwrap();
            }
            fs::write(case.inside("file"), "file").unwrap();
            fs::write(case.inside("taken"), "taken").unwrap();
            symlink("nowhere", case.inside("link")).unwrap();
            for from in ["file", "folder", "link"] {
                for to in ["taken", "empty", "link"] {
                    let refused = rename(case, from, to).unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{from} to {to}");
                }
                rename(case, from, &format!("in/{from}")).unwrap();
                assert_eq!(root.stat(&path(from)).unwrap(), None);
            }
            assert_eq!(fs::read(case.inside("taken")).unwrap(), b"taken");
            assert_eq!(fs::read(case.inside("in/file")).unwrap(), b"file");
            assert_eq!(
                fs::read_link(case.inside("in/link")).unwrap().as_os_str().as_bytes(),
                b"nowhere"
            );
            let names = root.enter(&path("in")).unwrap().names().unwrap();
            assert_eq!(names, [&b"file"[..], b"folder", b"link"]);
            assert_eq!(rename(case, "missing", "new").unwrap_err().kind(), ErrorKind::NotFound);
        });
    }
}

#[test]
fn a_rename_that_may_replace_takes_the_place_of_a_file() {
    both_ways(|case| {
        let (root, staged) = (&case.root, path(".weft-part-1/tree"));
        root.make_dirs(&staged).unwrap();
        let tree = root.enter(&staged).unwrap();
        fs::write(case.inside(".weft-part-1/tree/file"), "new").unwrap();
        fs::write(case.inside("file"), "old").unwrap();
        let rename = |replace| tree.rename_to(&path("file"), root, &path("file"), replace);
        assert_eq!(rename(false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        rename(true).unwrap();
        assert_eq!(fs::read(case.inside("file")).unwrap(), b"new");
    });
}

#[test]
fn the_folder_of_the_user_may_be_a_link() {
    let base = tempfile::tempdir().unwrap();
    fs::create_dir(base.path().join("real")).unwrap();
    symlink("real", base.path().join("link")).unwrap();
    let root = Root::create(&base.path().join("link")).unwrap();
    root.create_new(&path("file")).unwrap();
    assert!(base.path().join("real/file").exists());
    let made = Root::create(&base.path().join("a/b")).unwrap();
    assert_eq!(made.path(), base.path().join("a/b"));
    assert_eq!(base.path().join("a").metadata().unwrap().mode() & 0o777, 0o700);
    let missing = Root::open(&base.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
