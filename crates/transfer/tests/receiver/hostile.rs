//! A sending end that lies: one clear line, nothing outside of the folder, nothing under its final name.

use weft_transfer::hash::{GROUP, Hash};
use weft_transfer::wire::{Form, Frame, FromSender};

use crate::sender::{Folder, Sender, content, file, folder, frame, groups, hello};

/// Plays a lie, and returns the words with which it is refused. Nothing has got a name.
fn lie(play: impl FnOnce(&mut Sender)) -> String {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    play(&mut sender);
    let words = sender.refused();
    let named: Vec<_> = root
        .names()
        .into_iter()
        .filter(|name| !name.starts_with(".weft-part-"))
        .collect();
    assert!(named.is_empty(), "{named:?}");
    words
}

/// As [`lie`], where the same may be right the next time.
fn lie_again(play: impl FnOnce(&mut Sender)) -> String {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    play(&mut sender);
    let failure = sender.ended();
    assert!(matches!(failure, weft_transfer::live::Failure::Retry(_)), "{failure:?}");
    failure.words().to_owned()
}

#[test]
fn lies_about_data_are_refused() {
    let words = lie(|sender| {
        sender.announce(0, &[file("a", 5)]);
        let wrong = Frame {
            hash: Hash::of(b"jello"),
            ..frame(0, 0, b"hello")
        };
        sender.send(&wrong, b"hello").unwrap();
    });
    assert!(words.contains("a do not have the hash"), "{words}");
    let words = lie(|sender| {
        sender.announce(0, &[file("a", 5)]);
        sender.group(0, 0, b"hello, and more");
    });
    assert!(words.contains("more or less of a than it announced"), "{words}");
    let words = lie(|sender| {
        sender.announce(0, &[file("a", 2 * GROUP)]);
        sender.group(0, 2, &content(GROUP, 1));
    });
    assert!(words.contains("more or less of a"), "{words}");
    let words = lie_again(|sender| {
        sender.announce(0, &[file("a", 2 * GROUP)]);
        let bytes = content(2 * GROUP, 1);
        for (group, bytes) in groups(&bytes).0 {
            sender.group(0, group, &bytes);
        }
        sender.say(&FromSender::Finished(0, 2, Hash([9; 32])));
    });
    assert!(
        words.contains("a does not have the hash that the other end says"),
        "{words}"
    );
}

#[test]
fn unrequested_data_is_refused() {
    let words = lie(|sender| sender.group(0, 0, b"hello"));
    assert!(words.contains("nobody asked for"), "{words}");
    let words = lie(|sender| {
        sender.announce(0, &[folder("d")]);
        // A few may be too late for a file that has changed.
        (0..65).for_each(|_| sender.group(0, 0, b"hello"));
    });
    assert!(words.contains("nobody asked for"), "{words}");
    let words = lie(|sender| {
        let frame = Frame {
            form: Form::Zero,
            len: 0,
            ..frame(0, 0, b"")
        };
        sender.announce(0, &[file("a", 5)]);
        sender.send(&frame, b"").unwrap();
    });
    assert!(words.contains("more or less of a"), "{words}");
}

#[test]
fn lies_about_the_list_are_refused() {
    let words = lie(|sender| {
        sender.announce(0, &[folder("d")]);
        sender.say(&FromSender::Entries(7, vec![folder("e")]));
    });
    assert!(words.contains("out of turn"), "{words}");
    let words = lie(|sender| {
        sender.announce(0, &[folder("d")]);
        sender.say(&FromSender::End(2, 0));
    });
    assert!(words.contains("another number of entries"), "{words}");
    let words = lie(|sender| {
        sender.announce(0, &[file("d", 1)]);
        sender.say(&FromSender::End(1, 0));
        sender.say(&FromSender::Entries(1, vec![folder("e")]));
    });
    assert!(words.contains("out of turn"), "{words}");
    let words = lie(|sender| sender.say(&FromSender::Hello(hello(false))));
    assert!(words.contains("a second greeting"), "{words}");
    let words = lie(|sender| sender.say_raw(b"\xffabc"));
    assert!(words.contains("a message of kind 255"), "{words}");
    let words = lie(|sender| sender.send_raw(&[0xff; Frame::LEN]));
    assert!(words.contains("a frame that this version does not know"), "{words}");
}

/// As [`lie`], with a greeting.
fn lie_behind(hello: &weft_transfer::wire::Hello, play: impl FnOnce(&mut Sender)) -> String {
    let root = Folder::new();
    let mut sender = Sender::start_with(root.0.path(), hello);
    play(&mut sender);
    sender.refused()
}

#[test]
fn only_what_was_offered_may_come() {
    let offer = weft_transfer::wire::Hello {
        names: vec![b"photos".to_vec()],
        bytes: Some(GROUP),
        ..hello(false)
    };
    let words = lie_behind(&offer, |sender| {
        sender.announce(0, &[folder("photos"), file("photos/a", 1)]);
        sender.say(&FromSender::Entries(2, vec![file("other", 1)]));
    });
    assert!(words.contains("sends other, which it did not offer"), "{words}");
    let words = lie_behind(&offer, |sender| {
        sender.say(&FromSender::Entries(0, vec![file("photos", 66 * GROUP)]));
    });
    assert!(words.contains("more than it offered"), "{words}");
}

#[test]
fn waiting_entries_have_a_bound() {
    let words = lie(|sender| {
        for batch in 0..17 {
            let entries = (0..512).map(|at| file(&format!("d/{batch}-{at}"), 1)).collect();
            sender.say(&FromSender::Entries(batch * 512, entries));
        }
    });
    assert!(words.contains("more entries at once than are taken"), "{words}");
}

#[test]
fn a_name_that_is_staged_twice_is_refused_alone() {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[folder("a"), file("a/b", 0)]);
    // A file where a folder is, a folder where a file is, and the same file once more.
    let verdicts = sender.announce(2, &[file("a", 5), folder("a/b"), file("a/b", 0)]);
    let refused = |verdict: &weft_transfer::wire::Verdict| matches!(verdict, weft_transfer::wire::Verdict::Refused(_));
    assert!(verdicts.iter().all(refused), "{verdicts:?}");
    sender.finish(5, 0);
    assert_eq!(root.names(), ["a", "a/b"]);
}

#[test]
fn no_link_in_the_folder_leads_out_of_it() {
    let outside = Folder::new();
    let root = Folder::new();
    std::os::unix::fs::symlink(outside.0.path(), root.path("d")).unwrap();
    std::os::unix::fs::symlink(outside.path("x"), root.path("f")).unwrap();
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[folder("d"), file("d/x", 5), file("f", 5)]);
    sender.group(1, 0, b"hello");
    sender.group(2, 0, b"hello");
    let notes = sender.finish(3, 10);
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert_eq!(outside.names(), [""; 0]);
    assert_eq!(root.names(), ["d", "d (2)", "d (2)/x", "f", "f (2)"]);
}

#[test]
fn a_link_that_is_swapped_in_while_it_runs_leads_nowhere() {
    let outside = Folder::new();
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[folder("d"), file("d/x", 5)]);
    // Another program of the user moves what is staged out of the way.
    let staged = root
        .names()
        .into_iter()
        .find(|name| name.contains("/tree-") && name.ends_with("/d"))
        .unwrap();
    std::fs::rename(root.path(&staged), root.path("away")).unwrap();
    std::os::unix::fs::symlink(outside.0.path(), root.path(&staged)).unwrap();
    sender.group(1, 0, b"hello");
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sender.finish(2, 5)));
    assert!(failed.is_err(), "it cannot be stored");
    assert_eq!(outside.names(), [""; 0]);
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    let root = Folder::new();
    let mut sender = Sender::start(root.0.path());
    sender.announce(0, &[file("a", 5), file("b", 5)]);
    // Its own connection counts first.
    sender.group(0, 0, b"hello");
    let patience = std::time::Duration::from_secs(60);
    weft_os::test_support::wait_until(patience, "its own connection is served", || {
        sender.live.entries.value() == 1
    });
    let further: Vec<_> = (0..20).map(|_| sender.further()).collect();
    let is_closed = |stream: &std::net::TcpStream| {
        stream
            .set_read_timeout(Some(std::time::Duration::from_millis(50)))
            .unwrap();
        matches!(std::io::Read::read(&mut &*stream, &mut [0; 1]), Ok(0))
    };
    weft_os::test_support::wait_until(patience, "12 or more are closed", || {
        further.iter().filter(|stream| is_closed(stream)).count() >= 12
    });
    sender.group(1, 0, b"hello");
    sender.finish(2, 10);
}

/// What the receiver says of a frame of compressed data for a file of this size.
fn packed(size: u64, packed: &[u8], hash: Hash) -> String {
    lie(|sender| {
        sender.announce(0, &[file("a", size)]);
        let frame = Frame {
            form: Form::Packed,
            hash,
            ..frame(0, 0, packed)
        };
        sender.send(&frame, packed).unwrap();
    })
}

#[test]
fn compressed_data_have_no_more_than_their_group() {
    let pack = |bytes: &[u8]| zstd::bulk::compress(bytes, 19).unwrap();
    let bomb = pack(&vec![0; 512 << 20]);
    assert!(bomb.len() < 64 << 10);
    let hello = pack(b"hello");
    let cut = &hello[..hello.len() - 1];
    for (size, bytes) in [
        (5 << 20, &bomb[..]),
        (6, &hello),
        (4, &hello),
        (5, cut),
        (5, b"hello"),
        (5, b""),
    ] {
        let words = packed(size, bytes, Hash::of(b"hello"));
        assert!(words.contains("compressed data that are damaged"), "{size}: {words}");
    }
    let words = packed(5, &hello, Hash::of(b"jello"));
    assert!(words.contains("do not have the hash"), "{words}");
}

#[test]
fn groups_that_come_again_and_again_end_the_transfer() {
    let words = lie(|sender| {
        let bytes = content(GROUP, 1);
        sender.announce(0, &[file("big", 2 * GROUP)]);
        // Without what the first group holds up to here, zeros change nothing.
        let zero = Frame {
            form: Form::Zero,
            len: 0,
            hash: Hash([0; 32]),
            ..frame(0, 1, b"")
        };
        (0..40).for_each(|_| sender.send(&zero, b"").unwrap());
        // The connection may end before the last one.
        for _ in 0..40 {
            let _ = sender.send(&frame(0, 0, &bytes), &bytes);
        }
    });
    assert!(words.contains("big again and again"), "{words}");
}

#[test]
fn hashes_that_nothing_asked_for_say_nothing_of_a_file() {
    let root = Folder::new();
    std::fs::write(root.path("a"), "secret").unwrap();
    for (size, guess) in [(1, &b"s"[..]), (6, b"secret")] {
        let mut sender = Sender::start(root.0.path());
        let verdicts = sender.announce(0, &[file("a", size)]);
        let hashes = || FromSender::Hashes(0, true, vec![(0, Hash::of(guess))]);
        sender.say(&hashes());
        if verdicts == [weft_transfer::wire::Verdict::Compare] {
            // Once, and of the whole.
            assert_eq!(size, 6);
            sender.vanish();
            continue;
        }
        let words = sender.refused();
        assert!(words.contains("hashes that nothing asked for"), "{words}");
    }
}

#[test]
fn comparisons_that_are_not_finished_are_few() {
    let root = Folder::new();
    std::fs::create_dir(root.path("d")).unwrap();
    let names: Vec<_> = (0..100).map(|number| format!("d/{number}")).collect();
    for name in &names {
        std::fs::write(root.path(name), "mine!").unwrap();
    }
    let mut sender = Sender::start(root.0.path());
    let all: Vec<_> = names.iter().map(|name| file(name, 5)).collect();
    sender.announce(0, &[vec![folder("d")], all].concat());
    for number in 1..=100 {
        sender.say(&FromSender::Hashes(number, false, Vec::new()));
    }
    let words = sender.refused();
    assert!(words.contains("compares more files at once"), "{words}");
}
