use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, symlink};

use super::*;
use crate::hash::GROUP;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for folder in ["d/e/deep", "d/empty"] {
            fs::create_dir_all(tree.path(folder)).unwrap();
        }
        for file in ["d/b", "d/a", "d/e/deep/x.o", "d/x.o", "alone"] {
            fs::write(tree.path(file), file).unwrap();
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn source(&self, names: &[&str], exclude: &[&str]) -> Source {
        let paths: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        let exclude: Vec<String> = exclude.iter().map(ToString::to_string).collect();
        Source::new(&paths, &exclude).unwrap()
    }

    fn refused(&self, name: &str) -> String {
        let error = Source::new(&[self.path(name)], &[]).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    }
}

/// The paths that a walk finds, and what it leaves out.
fn found(source: &Source) -> (Vec<String>, Vec<String>) {
    let (mut entries, mut left) = (Vec::new(), Vec::new());
    source.walk(&mut |found| {
        match found {
            Found::Entry(entry) => entries.push(entry.path.display()),
            Found::LeftOut { path, why } => left.push(format!("{path}: {why}")),
        }
        true
    });
    (entries, left)
}

#[test]
fn everything_is_found_in_order() {
    let tree = Tree::new();
    let (entries, left) = found(&tree.source(&["d", "alone"], &[]));
    let expected = [
        "d",
        "d/a",
        "d/b",
        "d/e",
        "d/e/deep",
        "d/e/deep/x.o",
        "d/empty",
        "d/x.o",
        "alone",
    ];
    assert_eq!(entries, expected);
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn patterns_leave_out_what_they_name() {
    let tree = Tree::new();
    for (patterns, expected) in [
        (&["*.o"][..], &["d", "d/a", "d/b", "d/e", "d/e/deep", "d/empty"][..]),
        (
            &["d/*.o", "empty/"],
            &["d", "d/a", "d/b", "d/e", "d/e/deep", "d/e/deep/x.o"],
        ),
        (&["/d/e", "a/"], &["d", "d/a", "d/b", "d/empty", "d/x.o"]),
        (&["d/**/x.o", "[ab]"], &["d", "d/e", "d/e/deep", "d/empty"]),
        (&["d"], &[]),
    ] {
        assert_eq!(found(&tree.source(&["d"], patterns)).0, expected, "{patterns:?}");
    }
    let error = Source::new(&[], &["[".to_owned()]).unwrap_err().to_string();
    assert!(error.starts_with("[ is no pattern: "), "{error}");
}

#[test]
fn special_files_and_links_that_lead_out_are_left_out() {
    let tree = Tree::new();
    let fifo = tree.path("d/fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.path("d/socket")).unwrap();
    symlink("../alone", tree.path("d/out")).unwrap();
    symlink("/etc/passwd", tree.path("d/absolute")).unwrap();
    symlink("../a", tree.path("d/e/in")).unwrap();
    fs::write(tree.path("d").join(std::ffi::OsStr::from_bytes(b"\xff\n")), "").unwrap();
    let (entries, left) = found(&tree.source(&["d"], &[]));
    let expected = [
        "d/absolute: a link that leads out of what is sent",
        "d/fifo: a FIFO",
        "d/out: a link that leads out of what is sent",
        "d/socket: a socket",
    ];
    assert_eq!(left, expected);
    assert!(entries.contains(&"d/e/in".to_owned()), "{entries:?}");
    assert!(entries.contains(&"d/\\xff\\n".to_owned()) || entries.iter().any(|name| name.contains("xff")));
}

#[test]
fn paths_keep_the_names_that_the_user_wrote() {
    let tree = Tree::new();
    symlink("d", tree.path("named")).unwrap();
    symlink("alone", tree.path("one")).unwrap();
    let source = tree.source(&["named", "one", "d/e/.."], &[]);
    assert_eq!(source.names(), [&b"named"[..], b"one", b"d"]);
    let (entries, left) = found(&source);
    assert!(
        entries.contains(&"named/e/deep/x.o".to_owned()) && left.is_empty(),
        "{entries:?} {left:?}"
    );
    let text = |path: &str| {
        let mut file = source.open(&RelPath::new(path.as_bytes()).unwrap()).unwrap();
        std::io::read_to_string(&mut file).unwrap()
    };
    assert_eq!(text("one"), "alone");
    assert_eq!(text("named/e/deep/x.o"), "d/e/deep/x.o");
}

#[test]
fn paths_that_cannot_be_sent_are_named() {
    let tree = Tree::new();
    assert!(
        tree.refused("nowhere")
            .contains("/nowhere cannot be sent (No such file")
    );
    let _socket = std::os::unix::net::UnixListener::bind(tree.path("socket")).unwrap();
    assert!(tree.refused("socket").contains("is no file and no folder"));
    let root = Source::new(&["/".into()], &[]).unwrap_err().to_string();
    assert!(root.contains("has no name"), "{root}");
    let twice = Source::new(&[tree.path("d/x.o"), tree.path("d/e/deep/x.o")], &[]);
    assert!(
        twice
            .unwrap_err()
            .to_string()
            .contains("two of the paths are named x.o")
    );
}

#[test]
fn a_link_swapped_in_for_a_folder_is_not_followed() {
    let tree = Tree::new();
    let source = tree.source(&["d"], &[]);
    let path = RelPath::new(b"d/e/deep/x.o").unwrap();
    let before = source.look(&path).unwrap();
    assert_eq!(before.identity, source.look(&path).unwrap().identity);
    fs::rename(tree.path("d/e"), tree.path("away")).unwrap();
    symlink("../away", tree.path("d/e")).unwrap();
    assert!(source.open(&path).is_err());
}

#[test]
fn holes_of_a_tebibyte_are_passed_over() {
    let file = tempfile::tempfile().unwrap();
    let size = (1 << 40) + 5;
    file.set_len(size).unwrap();
    let groups = |size| DataGroups::new(&file, size).unwrap().collect::<Vec<_>>();
    assert_eq!(groups(size), [0; 0]);
    let at = 77 * GROUP - 3;
    file.write_all_at(b"hello", at).unwrap();
    file.write_all_at(b"end", size - 3).unwrap();
    assert_eq!(groups(size), [76, 77, 1 << 20]);
    assert_eq!(groups(76 * GROUP), [0; 0], "what is beyond the size does not count");
    assert_eq!(DataGroups::none().count(), 0);
}

#[test]
fn a_name_of_a_peer_leads_through_no_link() {
    let tree = Tree::new();
    let below = |path: &str| Some(RelPath::own(path.as_bytes()).unwrap());
    let shared = |path: &str| Source::shared(tree.0.path(), "all", below(path), &[]);
    symlink("d", tree.path("link")).unwrap();
    for path in ["link", "link/a", "none"] {
        assert!(shared(path).is_err(), "{path}");
    }
    let (entries, _) = found(&shared("d/e").unwrap());
    assert_eq!(entries, ["e", "e/deep", "e/deep/x.o"]);
    let whole = Source::shared(&tree.path("link"), "all", None, &["*.o".to_owned()]).unwrap();
    let (entries, _) = found(&whole);
    assert_eq!(entries, ["all", "all/a", "all/b", "all/e", "all/e/deep", "all/empty"]);
    // A link that takes the place of a folder, and of a file, once they were found.
    let [folder, file] = ["d/e", "d/a"].map(|path| shared(path).unwrap());
    let [deep, a] = ["e/deep/x.o", "a"].map(|path| RelPath::own(path.as_bytes()).unwrap());
    assert!(folder.open(&deep).is_ok() && file.open(&a).is_ok());
    fs::rename(tree.path("d/e"), tree.path("d/old")).unwrap();
    symlink("old", tree.path("d/e")).unwrap();
    fs::remove_file(tree.path("d/a")).unwrap();
    symlink("b", tree.path("d/a")).unwrap();
    assert!(folder.open(&deep).is_err() && file.open(&a).is_err() && file.look(&a).is_err());
    let (entries, left) = found(&folder);
    assert_eq!((entries.len(), left.len()), (0, 1), "{left:?}");
}

#[test]
fn holes_are_told_apart_from_data() {
    let tree = Tree::new();
    let file = File::create(tree.path("sparse")).unwrap();
    file.set_len(64 * GROUP).unwrap();
    file.write_all_at(&[1; 10], 32 * GROUP).unwrap();
    file.sync_all().unwrap();
    let mut sizes = Vec::new();
    tree.source(&["sparse"], &[]).walk(&mut |found| {
        if let Found::Entry(entry) = found {
            sizes.push((entry.size, entry.disk > 0 && entry.disk <= GROUP));
        }
        true
    });
    assert_eq!(sizes, [(64 * GROUP, true)]);
}
