//! What arrives is stored as it was, and never over something.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use weft_transfer::hash::{GROUP, Hash};
use weft_transfer::wire::{Form, Frame, FromReceiver, FromSender, Verdict};

use crate::sender::{Folder, Sender, content, file, folder, frame, groups, hello, link};

#[test]
fn files_folders_and_links_arrive_as_they_were() {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    let big = content(2 * GROUP + 5, 1);
    let entries = [
        folder("d"),
        file("d/small", 5),
        file("d/empty", 0),
        file("d/big", big.len() as u64),
        link("d/link", "small"),
        folder("d/e"),
    ];
    let verdicts = sender.announce(0, &entries);
    let expected = [
        Verdict::Made,
        Verdict::Send,
        Verdict::Made,
        Verdict::Send,
        Verdict::Made,
        Verdict::Made,
    ];
    assert_eq!(verdicts, expected);
    sender.group(1, 0, b"hello");
    let (all, hash) = groups(&big);
    for (group, bytes) in all.iter().rev() {
        sender.group(3, *group, bytes);
    }
    sender.say(&FromSender::Finished(3, all.len() as u64, hash));
    assert!(!root.path("d").exists(), "nothing has its name before the end");
    assert_eq!(sender.finish(6, 0), [""; 0]);
    assert_eq!(root.names(), ["d", "d/big", "d/e", "d/empty", "d/link", "d/small"]);
    assert_eq!(std::fs::read(root.path("d/small")).unwrap(), b"hello");
    assert_eq!(std::fs::read(root.path("d/big")).unwrap(), big);
    assert_eq!(std::fs::read_link(root.path("d/link")).unwrap().to_str(), Some("small"));
    for (name, mode) in [
        ("d", 0o755),
        ("d/e", 0o755),
        ("d/small", 0o640),
        ("d/big", 0o640),
        ("d/empty", 0o640),
    ] {
        let metadata = std::fs::metadata(root.path(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{name}");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_600_000_000, 5), "{name}");
    }
}

#[test]
fn an_existing_file_is_not_requested_again() {
    let root = Folder::new();
    let entries = [folder("d"), file("d/small", 5)];
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &entries);
    sender.group(1, 0, b"hello");
    sender.finish(2, 5);
    let mut again = Sender::start(root.0.path());
    assert_eq!(again.announce(0, &entries), [Verdict::Made, Verdict::Have]);
    again.finish(2, 5);
    assert_eq!(root.names(), ["d", "d/small"]);
}

#[test]
fn a_name_that_is_taken_gets_a_number() {
    let root = Folder::new();
    std::fs::write(root.path("a.txt"), "mine").unwrap();
    std::fs::create_dir(root.path("d")).unwrap();
    std::fs::write(root.path("d/b"), "mine").unwrap();
    std::fs::write(root.path("c"), "mine").unwrap();
    let mut sender = Sender::start(root.0.path());
    // A file where a folder is to come, and a file of another size.
    let entries = [
        file("a.txt", 5),
        folder("c"),
        file("c/x", 1),
        folder("d"),
        file("d/b", 5),
    ];
    sender.announce(0, &entries);
    sender.group(0, 0, b"yours");
    sender.group(2, 0, b"x");
    sender.group(4, 0, b"yours");
    let notes = sender.finish(5, 11);
    assert_eq!(notes.len(), 3, "{notes:?}");
    let names = ["a (2).txt", "a.txt", "c", "c (2)", "c (2)/x", "d", "d/b", "d/b (2)"];
    assert_eq!(root.names(), names);
    for name in ["a.txt", "c", "d/b"] {
        assert_eq!(std::fs::read(root.path(name)).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn files_are_replaced_only_where_that_is_asked_for() {
    let root = Folder::new();
    std::fs::write(root.path("a"), "mine").unwrap();
    let mut sender = Sender::start_with(root.0.path(), &hello(true));
    sender.announce(0, &[file("a", 5)]);
    sender.group(0, 0, b"yours");
    sender.finish(1, 5);
    assert_eq!(root.names(), ["a"]);
    assert_eq!(std::fs::read(root.path("a")).unwrap(), b"yours");
}

#[test]
fn a_file_of_equal_size_is_compared_by_its_hashes() {
    for (theirs, verdict) in [(&b"hello"[..], Verdict::Have), (b"jello", Verdict::Send)] {
        let root = Folder::new();
        std::fs::write(root.path("a"), "hello").unwrap();
        let mut sender = Sender::start(root.0.path());
        assert_eq!(sender.announce(0, &[file("a", 5)]), [Verdict::Compare]);
        sender.say(&FromSender::Hashes(0, true, vec![(0, Hash::of(theirs))]));
        assert_eq!(sender.hear(), FromReceiver::Verdicts(0, vec![verdict.clone()]));
        if verdict == Verdict::Send {
            sender.group(0, 0, theirs);
        }
        sender.finish(1, 5);
        let number = if verdict == Verdict::Send { 2 } else { 1 };
        assert_eq!(root.names().len(), number, "{:?}", root.names());
    }
}

#[test]
fn holes_stay_holes() {
    let root = Folder::new();
    let size = 1 << 40;
    let mut sender = Sender::start(root.0.path());
    assert_eq!(sender.announce(0, &[file("sparse", size)]), [Verdict::Send]);
    let group = content(GROUP, 3);
    let at = (1 << 19) + 7;
    sender.group(0, at, &group);
    let mut hasher = weft_transfer::hash::FileHasher::new(size);
    hasher.add(at, &Hash::of(&group));
    sender.say(&FromSender::Finished(0, 1, hasher.finish()));
    sender.finish(1, size);
    let metadata = std::fs::metadata(root.path("sparse")).unwrap();
    assert_eq!(metadata.len(), size);
    assert!(metadata.blocks() * 512 < 4 * GROUP, "{} blocks", metadata.blocks());
}

#[test]
fn the_largest_size_takes_no_time() {
    let root = Folder::new();
    let size = 1 << 60;
    let mut sender = Sender::start(root.0.path());
    let verdicts = sender.announce(0, &[file("huge", size), file("small", 5)]);
    if verdicts[0] == Verdict::Send {
        let at = (1 << 40) - 1;
        let group = content(GROUP, 3);
        sender.group(0, at, &group);
        let mut hasher = weft_transfer::hash::FileHasher::new(size);
        hasher.add(at, &Hash::of(&group));
        sender.say(&FromSender::Finished(0, 1, hasher.finish()));
    } else {
        // A file system that has no such files.
        assert!(matches!(verdicts[0], Verdict::Refused(_)), "{verdicts:?}");
    }
    sender.group(1, 0, b"hello");
    sender.finish(2, size + 5);
    assert!(root.names().contains(&"small".to_owned()));
}

#[test]
fn compressed_groups_are_stored_as_they_were() {
    let folder = Folder::new();
    let mut sender = Sender::start(folder.0.path());
    let bytes = b"line of a log\n".repeat(200_000);
    let (all, hash) = groups(&bytes);
    sender.announce(0, &[file("big", bytes.len() as u64), file("small", 800)]);
    for (index, group) in &all {
        let packed = zstd::bulk::compress(group, 1).unwrap();
        let head = Frame {
            form: Form::Packed,
            len: packed.len() as u32,
            ..frame(0, *index, group)
        };
        sender.send(&head, &packed).unwrap();
    }
    sender.say(&FromSender::Finished(0, all.len() as u64, hash));
    let small = b"less ".repeat(160);
    let packed = zstd::bulk::compress(&small, 1).unwrap();
    let head = Frame {
        form: Form::Packed,
        len: packed.len() as u32,
        ..frame(1, 0, &small)
    };
    sender.send(&head, &packed).unwrap();
    let live = std::sync::Arc::clone(&sender.live);
    sender.finish(2, bytes.len() as u64 + 800);
    assert_eq!(std::fs::read(folder.path("big")).unwrap(), bytes);
    assert_eq!(std::fs::read(folder.path("small")).unwrap(), small);
    assert_eq!(live.moved.value(), bytes.len() as u64 + 800);
    assert!(live.saved.value() > bytes.len() as u64 / 2);
}
