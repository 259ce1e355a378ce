//! A receiver that ends between the names of what has come and the record that it is done: the next try changes nothing,
//! and does what is left.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use weft_transfer::hash::GROUP;
use weft_transfer::wire::{FromSender, Verdict, WireEntry};

use crate::sender::{Folder, Sender, content, file, folder, link};

/// The permissions and the time of a folder of the sender.
const THEIRS: (u32, i64) = (0o750, 1_600_000_000);

fn theirs(path: &str) -> WireEntry {
    WireEntry {
        mode: THEIRS.0 as u16,
        ..folder(path)
    }
}

fn state(root: &Folder, name: &str) -> (u32, i64) {
    let metadata = fs::metadata(root.path(name)).unwrap();
    (metadata.permissions().mode() & 0o777, metadata.mtime())
}

/// What comes, where each name at its top but one is taken.
fn entries() -> Vec<WireEntry> {
    vec![
        file("a.txt", 5),
        theirs("c"),
        file("c/x", 1),
        theirs("d"),
        file("d/b", 5),
        theirs("d/new"),
        file("d/new/y", 1),
        link("e", "a.txt"),
        theirs("f"),
        theirs("f/g"),
    ]
}

/// Plays a try in which everything gets its name, and that is not kept. Returns the names then.
fn unkept(root: &Folder) -> Vec<String> {
    for name in ["a.txt", "c", "e"] {
        fs::write(root.path(name), "mine").unwrap();
    }
    fs::create_dir(root.path("d")).unwrap();
    fs::write(root.path("d/b"), "mine").unwrap();
    fs::set_permissions(root.path("d"), Permissions::from_mode(0o711)).unwrap();
    let mut sender = Sender::start_unkept(root.0.path());
    sender.announce(0, &entries());
    for (entry, bytes) in [(0, &b"yours"[..]), (2, b"x"), (4, b"yours"), (6, b"y")] {
        sender.group(entry, 0, bytes);
    }
    sender.say(&FromSender::End(10, 12));
    let failure = sender.ended();
    assert!(failure.words().contains("cannot be kept"), "{failure:?}");
    names(root)
}

/// The names without those of what is staged.
fn names(root: &Folder) -> Vec<String> {
    let mut names = root.names();
    names.retain(|name| !name.starts_with(".weft-part-"));
    names
}

fn again(root: &Folder) -> Vec<String> {
    let mut sender = Sender::start(root.0.path());
    let verdicts = sender.announce(0, &entries());
    for (entry, verdict) in entries().iter().zip(verdicts) {
        let expected = match entry.path.name() {
            b"c" | b"d" | b"new" | b"f" | b"g" => Verdict::Made,
            _ => Verdict::Have,
        };
        assert_eq!(verdict, expected, "{}", entry.path.display());
    }
    sender.finish(10, 12)
}

#[test]
fn a_file_under_another_name_does_not_come_once_more() {
    let root = Folder::new();
    let before = unkept(&root);
    for name in ["a (2).txt", "c (2)/x", "d/b (2)", "d/new/y", "e (2)"] {
        assert!(before.iter().any(|one| one == name), "{name}: {before:?}");
    }
    assert_eq!(again(&root), [""; 0]);
    assert_eq!(root.names(), before);
}

#[test]
fn new_folders_get_their_modes_and_times_in_the_next_try() {
    let root = Folder::new();
    unkept(&root);
    let new = ["c (2)", "d/new", "f", "f/g"];
    for name in new {
        assert_eq!(state(&root, name), THEIRS, "{name}");
        // As it is when it has its name and nothing else.
        fs::set_permissions(root.path(name), Permissions::from_mode(0o700)).unwrap();
        fs::File::open(root.path(name))
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
    }
    let mine = fs::metadata(root.path("d")).unwrap().mtime();
    again(&root);
    for name in new {
        assert_eq!(state(&root, name), THEIRS, "{name}");
    }
    assert_eq!(state(&root, "d"), (0o711, mine));
}

#[test]
fn a_folder_that_is_read_only_already_gets_a_further_file() {
    let root = Folder::new();
    let closed = WireEntry {
        mode: 0o500,
        ..folder("d")
    };
    let mut sender = Sender::start_unkept(root.0.path());
    sender.announce(0, &[closed.clone(), file("d/x", 1)]);
    sender.group(1, 0, b"x");
    sender.say(&FromSender::End(2, 1));
    sender.ended();
    assert_eq!(state(&root, "d"), (0o500, THEIRS.1));
    let mut sender = Sender::start(root.0.path());
    let verdicts = sender.announce(0, &[closed, file("d/x", 1), file("d/y", 1)]);
    assert_eq!(verdicts, [Verdict::Made, Verdict::Have, Verdict::Send]);
    sender.group(2, 0, b"y");
    sender.finish(3, 2);
    assert_eq!(root.names(), ["d", "d/x", "d/y"]);
    assert_eq!(state(&root, "d"), (0o500, THEIRS.1));
    // Its owner could not remove it.
    fs::set_permissions(root.path("d"), Permissions::from_mode(0o700)).unwrap();
}

/// The tree of the first try.
fn first_tree(root: &Folder) -> String {
    let is_tree = |name: &&String| name.contains("/tree-00000000") && name.matches('/').count() == 1;
    root.names().iter().find(is_tree).unwrap().clone()
}

#[test]
fn a_name_that_was_chosen_and_not_given_is_the_users() {
    let root = Folder::new();
    unkept(&root);
    // As if the process had ended between the choice of the names and the names.
    let tree = first_tree(&root);
    for (name, path) in [("f", "f"), ("a (2).txt", "a.txt")] {
        fs::rename(root.path(name), root.path(&format!("{tree}/{path}"))).unwrap();
    }
    fs::create_dir(root.path("f")).unwrap();
    fs::set_permissions(root.path("f"), Permissions::from_mode(0o711)).unwrap();
    fs::write(root.path("a (2).txt"), "mine, too").unwrap();
    let mut sender = Sender::start(root.0.path());
    let verdicts = sender.announce(0, &entries());
    for (number, bytes) in [(0, &b"yours"[..]), (2, b"x"), (4, b"yours"), (6, b"y")] {
        if verdicts[number] != Verdict::Have {
            sender.group(number as u64, 0, bytes);
        }
    }
    sender.finish(10, 12);
    assert_eq!(fs::read(root.path("a (2).txt")).unwrap(), b"mine, too");
    assert_eq!(fs::read(root.path("a (3).txt")).unwrap(), b"yours");
    // What was made in it has changed its time, which is that of the change.
    let (mode, modified) = state(&root, "f");
    assert_eq!(mode, 0o711);
    assert_ne!(modified, THEIRS.1);
}

#[test]
fn names_that_are_cut_to_the_same_one_get_a_number_each() {
    let root = Folder::new();
    fs::create_dir(root.path("d")).unwrap();
    let names = ["a", "b", "c"].map(|last| format!("d/{}{last}", "x".repeat(254)));
    for name in &names {
        fs::write(root.path(name), "mine").unwrap();
    }
    let mut sender = Sender::start(root.0.path());
    let files = names.iter().map(|name| file(name, 1));
    sender.announce(0, &std::iter::once(theirs("d")).chain(files).collect::<Vec<_>>());
    for (number, bytes) in [(1, b"1"), (2, b"2"), (3, b"3")] {
        sender.group(number, 0, bytes);
    }
    sender.finish(4, 3);
    let mut all: Vec<_> = names_and_contents(&root, "d");
    all.retain(|(name, _)| !names.iter().any(|one| one.ends_with(name)));
    let mut contents: Vec<_> = all.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    contents.sort_unstable();
    assert_eq!(contents, [b"1", b"2", b"3"]);
    for name in &names {
        assert_eq!(fs::read(root.path(name)).unwrap(), b"mine");
    }
}

fn names_and_contents(root: &Folder, folder: &str) -> Vec<(String, Vec<u8>)> {
    let all = fs::read_dir(root.path(folder)).unwrap();
    all.map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    })
    .collect()
}

#[test]
fn bytes_of_a_file_that_is_given_up_do_not_count() {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[file("big", 2 * GROUP), file("small", 1)]);
    let live = std::sync::Arc::clone(&sender.live);
    sender.group(0, 0, &content(GROUP, 1));
    weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "a group is stored", || {
        live.bytes.value() == GROUP
    });
    sender.say(&FromSender::Gone(0, "it is gone".to_owned()));
    sender.group(1, 0, b"x");
    sender.say(&FromSender::End(2, 2 * GROUP + 1));
    while !matches!(sender.hear(), weft_transfer::wire::FromReceiver::Done) {}
    assert_eq!((live.bytes.value(), root.path("big").exists()), (1, false));
}
