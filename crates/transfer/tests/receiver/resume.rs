//! An interrupted transfer goes on where it was.

use weft_transfer::hash::GROUP;
use weft_transfer::wire::{FromSender, Verdict};

use crate::sender::{Folder, Sender, content, file, folder, groups};

/// The first groups are there.
fn held(end: u64) -> Verdict {
    Verdict::Resume(std::iter::once(0..end).collect())
}

#[test]
fn groups_that_are_there_are_not_asked_for_again() {
    let root = Folder::new();
    let bytes = content(5 * GROUP + 1, 1);
    let (all, hash) = groups(&bytes);
    let entries = [
        folder("d"),
        file("d/big", bytes.len() as u64),
        file("d/small", 5),
        file("d/late", 4),
    ];
    let mut first = Sender::start(root.0.path());
    first.announce(0, &entries);
    for at in [0, 1, 4] {
        first.group(1, all[at].0, &all[at].1);
    }
    first.group(2, 0, b"hello");
    let live = std::sync::Arc::clone(&first.live);
    weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "all is stored", || {
        live.bytes.value() == 3 * GROUP + 5
    });
    first.vanish();
    assert!(root.has_rest());

    let mut second = Sender::start(root.0.path());
    let verdicts = second.announce(0, &entries);
    let some = Verdict::Resume(vec![0..2, 4..5]);
    assert_eq!(verdicts, [Verdict::Made, some, Verdict::Have, Verdict::Send]);
    for at in [2, 3, 5] {
        second.group(1, all[at].0, &all[at].1);
    }
    second.say(&FromSender::Finished(1, 3, hash));
    second.group(3, 0, b"late");
    second.finish(4, bytes.len() as u64 + 9);
    assert_eq!(std::fs::read(root.path("d/big")).unwrap(), bytes);
    assert!(!root.has_rest());
}

#[test]
fn of_a_file_that_changed_the_same_groups_stay() {
    let root = Folder::new();
    let mut bytes = content(4 * GROUP + 9, 1);
    let (all, _) = groups(&bytes);
    let mut first = Sender::start(root.0.path());
    first.announce(0, &[file("big", bytes.len() as u64)]);
    for (group, bytes) in &all[..5] {
        first.group(0, *group, bytes);
    }
    let live = std::sync::Arc::clone(&first.live);
    let stored = bytes.len() as u64;
    weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "all is stored", || {
        live.bytes.value() == stored
    });
    first.vanish();
    // It is shorter now, with another group and a hole.
    bytes.truncate(3 * GROUP as usize + 5);
    bytes[GROUP as usize] ^= 1;
    bytes[2 * GROUP as usize..3 * GROUP as usize].fill(0);
    let mut entry = file("big", bytes.len() as u64);
    entry.mtime_ns += 1;
    let mut second = Sender::start(root.0.path());
    assert_eq!(second.announce(0, &[entry]), [held(3)]);
    let (all, hash) = groups(&bytes);
    second.group(0, 1, &all[1].1);
    second.group(0, 3, &all[2].1);
    let zero = weft_transfer::wire::Frame {
        len: 0,
        form: weft_transfer::wire::Form::Zero,
        hash: weft_transfer::hash::Hash([0; 32]),
        ..crate::sender::frame(0, 2, b"")
    };
    second.send(&zero, b"").unwrap();
    second.say(&FromSender::Finished(0, 3, hash));
    second.finish(1, bytes.len() as u64);
    assert_eq!(std::fs::read(root.path("big")).unwrap(), bytes);
}

#[test]
fn a_file_may_change_while_it_is_sent() {
    let root = Folder::new();
    let before = content(2 * GROUP, 1);
    let after = content(3 * GROUP, 1);
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[file("big", before.len() as u64)]);
    let (all, _) = groups(&before);
    sender.group(0, 0, &all[0].1);
    let live = std::sync::Arc::clone(&sender.live);
    weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "a group is stored", || {
        live.bytes.value() == GROUP
    });
    sender.say(&FromSender::Changed(0, file("big", after.len() as u64)));
    let verdict = sender.hear();
    let held = weft_transfer::wire::FromReceiver::Verdicts(0, vec![held(1)]);
    assert_eq!(verdict, held);
    let (all, hash) = groups(&after);
    // One that was under way comes too late.
    sender.group(0, 1, &all[0].1);
    for at in [1, 2] {
        let frame = weft_transfer::wire::Frame {
            changes: 1,
            ..crate::sender::frame(0, at, &all[at as usize].1)
        };
        sender.send(&frame, &all[at as usize].1).unwrap();
    }
    sender.say(&FromSender::Finished(0, 2, hash));
    sender.finish(1, after.len() as u64);
    assert_eq!(std::fs::read(root.path("big")).unwrap(), after);
}

#[test]
fn leftovers_of_a_source_that_is_gone_get_no_name() {
    let root = Folder::new();
    let mut first = Sender::start(root.0.path());
    let entries = [
        folder("d"),
        file("d/part", 3 * GROUP),
        file("d/whole", 5),
        folder("gone"),
        file("gone/x", 1),
        file("kept", 4),
    ];
    first.announce(0, &entries);
    first.group(1, 0, &content(GROUP, 1));
    first.group(2, 0, b"hello");
    first.group(4, 0, b"x");
    first.group(5, 0, b"kept");
    let live = std::sync::Arc::clone(&first.live);
    weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "all is stored", || {
        live.bytes.value() == GROUP + 10
    });
    first.vanish();
    let mut second = Sender::start(root.0.path());
    let verdicts = second.announce(0, &[folder("d"), file("kept", 4)]);
    assert_eq!(verdicts, [Verdict::Made, Verdict::Have]);
    second.finish(2, 4);
    assert_eq!(root.names(), ["d", "kept"]);
}

/// Plays two tries: in the first one a file comes whole, with a hole, and in the second one it has become another one
/// with data there. Then the journal loses what the second one has written, as a loss of power may leave it. Returns
/// both contents.
fn second_try_without_records(root: &Folder) -> [Vec<u8>; 2] {
    let mut before = content(3 * GROUP, 1);
    before[GROUP as usize..2 * GROUP as usize].fill(0);
    let after = content(3 * GROUP, 1);
    let journal = || {
        let name = root.names().into_iter().find(|name| name.ends_with("/journal"));
        root.path(&name.unwrap())
    };
    let mut kept = Vec::new();
    for (number, bytes) in [&before, &after].into_iter().enumerate() {
        let mut entry = file("big", bytes.len() as u64);
        entry.mtime_ns += number as u32;
        let mut sender = Sender::start(root.0.path());
        sender.announce(0, &[entry, file("small", 4)]);
        let (all, hash) = groups(bytes);
        let wanted: Vec<_> = all.iter().filter(|(group, _)| number == 0 || *group == 1).collect();
        wanted.iter().for_each(|(group, bytes)| sender.group(0, *group, bytes));
        sender.say(&FromSender::Finished(0, wanted.len() as u64, hash));
        let live = std::sync::Arc::clone(&sender.live);
        weft_os::test_support::wait_until(std::time::Duration::from_secs(60), "the file is whole", || {
            live.entries.value() == 1
        });
        sender.vanish();
        if number == 0 {
            kept = std::fs::read(journal()).unwrap();
        }
    }
    std::fs::write(journal(), kept).unwrap();
    [before, after]
}

#[test]
fn a_file_whose_records_are_lost_is_not_taken_for_whole() {
    let root = Folder::new();
    let [_, after] = second_try_without_records(&root);
    // Its data are lost, too, and its time is not.
    let staged = root.names().into_iter().rfind(|name| name.ends_with("/big")).unwrap();
    let staged = std::fs::File::options().write(true).open(root.path(&staged)).unwrap();
    let time = staged.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&staged, &vec![0; GROUP as usize], GROUP).unwrap();
    staged.set_modified(time).unwrap();
    let mut entry = file("big", after.len() as u64);
    entry.mtime_ns += 1;
    let mut third = Sender::start(root.0.path());
    assert_eq!(third.announce(0, &[entry]), [Verdict::Resume(vec![0..1, 2..3])]);
    let (all, hash) = groups(&after);
    third.group(0, 1, &all[1].1);
    third.say(&FromSender::Finished(0, 1, hash));
    third.finish(1, after.len() as u64);
    assert_eq!(std::fs::read(root.path("big")).unwrap(), after);
}

#[test]
fn data_without_records_do_not_stay_where_zeros_are() {
    let root = Folder::new();
    let [before, _] = second_try_without_records(&root);
    let mut entry = file("big", before.len() as u64);
    entry.mtime_ns += 2;
    let mut third = Sender::start(root.0.path());
    assert_eq!(third.announce(0, &[entry]), [Verdict::Resume(vec![0..1, 2..3])]);
    let (_, hash) = groups(&before);
    third.say(&FromSender::Finished(0, 0, hash));
    third.finish(1, before.len() as u64);
    assert_eq!(std::fs::read(root.path("big")).unwrap(), before);
}
