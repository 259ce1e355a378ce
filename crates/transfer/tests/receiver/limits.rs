//! What the user has set and chosen holds, whatever the sending end does.

use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weft_os::clock::unix_s;
use weft_os::test_support::wait_until;
use weft_transfer::api::TransferState;
use weft_transfer::least::Least;
use weft_transfer::limits::{Keeper, Limits};
use weft_transfer::link::Far;
use weft_transfer::live::{Failure, Live};
use weft_transfer::pace::{Pace, Paces};
use weft_transfer::receive::{Only, Terms};
use weft_transfer::send::{self, Order};
use weft_transfer::walk::Source;
use weft_transfer::wire::{FromReceiver, FromSender, Verdict, message};

use crate::sender::{Folder, ID, Sender, content, file, folder, pair};

const PATIENCE: Duration = Duration::from_secs(60);

fn retried(failure: &Failure, words: &str) {
    assert!(
        matches!(failure, Failure::Retry(why) if why.starts_with(words)),
        "{failure:?}"
    );
}

#[test]
fn a_sender_that_says_only_that_it_lives_loses_its_turn() {
    let root = Folder::new();
    let least = Least {
        idle: Duration::from_millis(20),
        end: Duration::from_secs(3_600),
    };
    let terms = Terms {
        least,
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    sender.announce(0, &[file("a", 5)]);
    sender.live.set(TransferState::Running, None);
    sender.say(&FromSender::Alive);
    wait_until(PATIENCE, "it has no turn", || !sender.live.takes_turn());
    sender.group(0, 0, b"hello");
    sender.finish(1, 5);
}

#[test]
fn a_transfer_on_which_nothing_moves_ends() {
    let root = Folder::new();
    let least = Least {
        idle: Duration::from_millis(10),
        end: Duration::from_millis(50),
    };
    let terms = Terms {
        least,
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    sender.announce(0, &[file("a", 5)]);
    sender.live.set(TransferState::Running, None);
    retried(&sender.ended(), "nothing has come for");
}

#[test]
fn a_frame_beyond_the_quota_is_not_stored() {
    let root = Folder::new();
    let limits = Limits {
        peer_quota: Some(6),
        floor: 0,
        ..Limits::default()
    };
    let keeper = Arc::new(Keeper::open(&root.path("usage.json"), limits));
    let terms = Terms {
        keeper: Some((Arc::clone(&keeper), "npub".to_owned())),
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    sender.announce(0, &[file("a", 5), file("b", 5)]);
    sender.group(0, 0, b"hello");
    let live = Arc::clone(&sender.live);
    wait_until(PATIENCE, "one is stored", || live.bytes.value() == 5);
    sender.group(1, 0, b"hello");
    retried(&sender.ended(), "the quota of 24 hours is used up at the receiving end");
    assert_eq!(live.bytes.value(), 5);
    assert_eq!(keeper.usage().by_peer(unix_s()).map(|(_, used)| used).sum::<u64>(), 5);
}

#[test]
fn a_disk_with_too_little_room_ends_a_transfer() {
    let root = Folder::new();
    let limits = Limits {
        floor: u64::MAX,
        ..Limits::default()
    };
    let keeper = Arc::new(Keeper::open(&root.path("usage.json"), limits));
    let terms = Terms {
        keeper: Some((keeper, "npub".to_owned())),
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    sender.announce(0, &[file("a", 5)]);
    retried(&sender.ended(), "less than");
}

#[test]
fn bytes_come_as_the_limit_lets_them() {
    let root = Folder::new();
    let pace = Arc::new(Pace::new(Some(1), Instant::now()));
    let terms = Terms {
        paces: Paces {
            always: vec![Arc::clone(&pace)],
            relayed: Vec::new(),
        },
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    let bytes = content(9_000, 1);
    sender.announce(0, &[file("a", 9_000)]);
    sender.group(0, 0, &bytes);
    let live = Arc::clone(&sender.live);
    wait_until(PATIENCE, "the first piece has come", || live.moved.value() == 4_096);
    wait_until(PATIENCE, "the limit holds it up", || {
        live.state().held_up_by == Some("limit")
    });
    assert_eq!(live.moved.value(), 4_096);
    pace.set_rate(None, Instant::now());
    sender.finish(1, 9_000);
    assert_eq!(std::fs::read(root.path("a")).unwrap(), bytes);
}

#[test]
fn names_that_are_not_wanted_are_refused_and_count_no_more() {
    let root = Folder::new();
    let terms = Terms {
        only: Some(Only::new(&["d".to_owned(), "a*".to_owned()]).unwrap()),
        ..Terms::default()
    };
    let mut sender = Sender::start_with_terms(root.0.path(), terms);
    let entries = [folder("d"), file("d/b", 5), file("b", 7), file("a.txt", 0), folder("e")];
    let verdicts = sender.announce(0, &entries);
    let refused = Verdict::Refused("not wanted at the receiving end".to_owned());
    assert_eq!(
        verdicts,
        [Verdict::Made, Verdict::Send, refused.clone(), Verdict::Made, refused]
    );
    sender.group(1, 0, b"hello");
    let live = Arc::clone(&sender.live);
    sender.finish(5, 12);
    let [entries, bytes] = live.amounts();
    assert_eq!((entries.total, entries.done), (Some(3), 3));
    assert_eq!((bytes.total, bytes.done), (Some(5), 5));
    assert!(!root.path("b").exists() && !root.path("e").exists());
}

/// A receiver that has no data connection.
struct Mute;

impl Far for Mute {
    fn npub(&self) -> &str {
        "npub1x"
    }

    fn name(&self) -> &str {
        "nas"
    }

    fn data(&self) -> Result<Arc<TcpStream>, Failure> {
        Err(Failure::Fatal("it is not asked for one".to_owned()))
    }
}

#[test]
fn a_receiver_that_says_only_that_it_lives_ends_the_try() {
    let root = Folder::new();
    std::fs::write(root.path("a"), "hello").unwrap();
    let order = Order {
        id: ID,
        paths: vec![root.path("a")],
        exclude: Vec::new(),
        into: String::new(),
        overwrite: false,
        is_fetched: false,
        paces: Paces::default(),
        least: Least {
            idle: Duration::from_millis(10),
            end: Duration::from_millis(50),
        },
        connections: [1; 2],
        outboard: root.path("outboard"),
    };
    let (own, mut theirs) = pair();
    let peer = thread::spawn(move || {
        let alive = FromReceiver::Alive.to_bytes();
        while message::write(&mut theirs, &alive).is_ok() {
            thread::yield_now();
        }
    });
    let source = Source::new(&order.paths, &[]).unwrap();
    let live = Live::default();
    live.set(TransferState::Connecting, None);
    let result = send::deliver(&order, source, &root.path("none"), &live, &Arc::new(own), &Mute);
    retried(&result.unwrap_err(), "nothing has come for");
    assert!(!live.takes_turn());
    peer.join().unwrap();
}
