//! What is saved is there after a restart, and nothing is lost.
#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::os::unix::fs::PermissionsExt as _;

use proptest::prelude::*;

use super::*;
use crate::api::{Amount, Note};

fn id(number: u16) -> TransferId {
    let mut bytes = [7; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    TransferId(bytes)
}

fn outgoing(number: u16) -> Outgoing {
    let paths = vec![RawPath::Text("/srv/photos".to_owned())];
    Outgoing::new(id(number), "nas".to_owned(), paths, number.into())
}

fn incoming(number: u16) -> Incoming {
    let folder = RawPath::Text("/home/a/Downloads".to_owned());
    Incoming {
        npub: "npub1x".to_owned(),
        names: vec!["photos".to_owned()],
        state: TransferState::Waiting,
        ..Incoming::new(id(number), "nas".to_owned(), folder, number.into())
    }
}

#[test]
fn pauses_double_up_to_half_a_minute() {
    let pauses = [0, 1, 2, 3, 4, 5, 64, u32::MAX].map(|tries| backoff(tries).as_secs());
    assert_eq!(pauses, [2, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn transfers_outlive_the_process_in_the_state_of_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("transfer");
    let store = Store::open(&path).unwrap();
    for (number, state) in [
        (2, TransferState::Running),
        (1, TransferState::Paused),
        (3, TransferState::Done),
    ] {
        store
            .save_outgoing(&Outgoing {
                state,
                ..outgoing(number)
            })
            .unwrap();
        store
            .save_incoming(&Incoming {
                state,
                ..incoming(number)
            })
            .unwrap();
    }
    store.save_incoming(&incoming(4)).unwrap();
    store
        .save_incoming(&Incoming {
            state: TransferState::Syncing,
            ..incoming(5)
        })
        .unwrap();
    let store = Store::open(&path).unwrap();
    let states: Vec<_> = store.outgoing().iter().map(|one| (one.begun, one.state)).collect();
    use TransferState::{Done, Paused, Queued, Running, Waiting};
    assert_eq!(states, [(1, Paused), (2, Queued), (3, Done)]);
    let states: Vec<_> = store.incoming().iter().map(|one| one.state).collect();
    assert_eq!(states, [Paused, Running, Done, Waiting, Running]);
    assert!(store.damaged().is_empty());
    let file = path.join("queue").join(format!("{}.json", id(1)));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
    store.remove(Direction::Send, id(1)).unwrap();
    store.remove(Direction::Send, id(1)).unwrap();
    assert!(!file.exists());
    assert_eq!((store.outgoing().len(), store.incoming().len()), (2, 5));
}

#[test]
fn files_of_earlier_versions_are_read() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path()).unwrap());
    let counts = r#""entries":{"total":3,"done":1},"bytes":{"total":null,"done":7},"moved":9,"read":8,"had":2,
        "notes":[{"name":"a","what":"left out"}],"more_notes":4"#;
    let write = |folder: &str, fields: &str| {
        let file = directory.path().join(folder).join(format!("{}.json", id(1)));
        fs::write(file, format!("{{{fields},{counts}}}")).unwrap();
    };
    let id = id(1);
    write(
        "queue",
        &format!(
            r#""schema":"weft.transfer-outgoing/1","id":"{id}","paths":["/srv/photos"],"peer":"nas","npub":null,
            "user":null,"into":"","exclude":[],"overwrite":false,"limit":5,"state":"queued","why":null,"begun":1,
            "ended":null,"tries":6"#
        ),
    );
    write(
        "inbox",
        &format!(
            r#""schema":"weft.transfer-incoming/1","id":"{id}","npub":"npub1x","peer":"nas","user":null,
            "names":["photos"],"into":"","folder":"/home/a/Downloads","state":"waiting","why":null,"begun":1,
            "ended":null"#
        ),
    );
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.damaged(), &[] as &[PathBuf]);
    let progress = Progress {
        entries: Amount {
            total: Some(3),
            done: 1,
        },
        bytes: Amount { total: None, done: 7 },
        moved: 9,
        saved: 0,
        read: 8,
        had: 2,
        notes: vec![Note {
            name: "a".to_owned(),
            what: "left out".to_owned(),
        }],
        more_notes: 4,
    };
    let sent = Outgoing {
        limit: Some(5),
        tries: 6,
        progress: progress.clone(),
        ..outgoing(1)
    };
    assert_eq!(store.outgoing(), [sent]);
    let come = Incoming {
        progress,
        ..incoming(1)
    };
    assert_eq!(store.incoming(), [come]);
}

#[test]
fn damaged_files_are_moved_aside_and_none_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.save_outgoing(&outgoing(1)).unwrap();
    store.save_outgoing(&outgoing(2)).unwrap();
    let file = |number| directory.path().join("queue").join(format!("{}.json", id(number)));
    let whole = fs::read_to_string(file(1)).unwrap();
    for (text, number) in [
        (&whole[..whole.len() / 2], 1),
        (&*whole.replace("outgoing/1", "outgoing/2"), 2),
        (&*whole.replace("\"queued\"", "\"flying\""), 3),
        ("[]", 4),
    ] {
        fs::write(file(1), text).unwrap();
        let store = Store::open(directory.path()).unwrap();
        let aside = match number {
            1 => with_suffix(&file(1), ".damaged"),
            _ => with_suffix(&file(1), &format!(".{number}.damaged")),
        };
        assert_eq!(store.damaged(), std::slice::from_ref(&aside));
        assert_eq!(fs::read_to_string(aside).unwrap(), text);
        assert!(!file(1).exists());
        assert_eq!(store.outgoing(), [outgoing(2)]);
    }
    // One transfer under the name of another would be saved under its own.
    fs::rename(file(2), file(9)).unwrap();
    let store = Store::open(directory.path()).unwrap();
    assert_eq!((store.damaged().len(), store.outgoing().len()), (1, 0));
    // A directory where a file should be is not removed either.
    fs::create_dir(file(5)).unwrap();
    assert_eq!(Store::open(directory.path()).unwrap().damaged().len(), 1);
}

#[test]
fn history_keeps_those_that_ended_last() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let most = u16::try_from(HISTORY).unwrap();
    store.save_outgoing(&outgoing(0)).unwrap();
    {
        // Without the disk, which would be synced a thousand times.
        let mut all = store.all();
        for number in 1..=most {
            let ended = Some(u64::from(number) + 10);
            let transfer = Incoming {
                state: TransferState::Done,
                ended,
                ..incoming(number)
            };
            all.incoming.insert(transfer.id, transfer);
        }
    }
    let failed = Outgoing {
        state: TransferState::Failed,
        ended: Some(12),
        ..outgoing(most + 1)
    };
    store.save_outgoing(&failed).unwrap();
    let incoming: Vec<_> = store.incoming().iter().map(|one| one.begun).collect();
    assert_eq!((incoming.len(), incoming[0]), (HISTORY - 1, 2), "the first one is gone");
    assert_eq!(store.outgoing().len(), 2, "one that has not ended stays");
}

#[test]
fn a_transfer_that_cannot_be_saved_is_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    store.save_outgoing(&outgoing(1)).unwrap();
    fs::create_dir(directory.path().join("queue").join(format!("{}.json.new", id(1)))).unwrap();
    let paused = Outgoing {
        state: TransferState::Paused,
        ..outgoing(1)
    };
    store.save_outgoing(&paused).unwrap_err();
    assert_eq!(store.outgoing(), [outgoing(1)]);
    assert_eq!(Store::open(directory.path()).unwrap().outgoing(), [outgoing(1)]);
}

fn raw_path() -> impl Strategy<Value = RawPath> {
    proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => RawPath::Text(text),
        Err(error) => RawPath::Bytes(error.into_bytes()),
    })
}

fn amount() -> impl Strategy<Value = Amount> {
    (any::<Option<u64>>(), any::<u64>()).prop_map(|(total, done)| Amount { total, done })
}

prop_compose! {
    fn any_outgoing()(
        paths in proptest::collection::vec(raw_path(), 0..3),
        texts in any::<[String; 4]>(),
        user in any::<Option<String>>(),
        bits in any::<(u8, bool, Option<u64>, Option<u64>, u32)>(),
        amounts in (amount(), amount()),
        counts in any::<[u64; 6]>(),
        state in prop_oneof![
            Just(TransferState::Queued), Just(TransferState::Paused), Just(TransferState::Done),
            Just(TransferState::Failed), Just(TransferState::Cancelled), Just(TransferState::Rejected),
        ],
    ) -> Outgoing {
        let [peer, into, name, what] = texts;
        let (number, overwrite, limit, ended, tries) = bits;
        Outgoing {
            paths, peer, npub: user.clone(), user, into, exclude: vec![name.clone()], overwrite, limit, state,
            why: Some(what.clone()), ended, tries, begun: counts[5],
            progress: Progress {
                entries: amounts.0, bytes: amounts.1, moved: counts[0], read: counts[1], had: counts[2],
                more_notes: counts[3], saved: counts[4], notes: vec![Note { name, what }],
            },
            ..outgoing(number.into())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_transfer_is_read_as_it_was_written(transfer in any_outgoing()) {
        let directory = tempfile::tempdir().unwrap();
        Store::open(directory.path()).unwrap().save_outgoing(&transfer).unwrap();
        prop_assert_eq!(Store::open(directory.path()).unwrap().outgoing(), [transfer]);
    }

    #[test]
    fn no_bytes_of_a_file_are_lost(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let directory = tempfile::tempdir().unwrap();
        drop(Store::open(directory.path()).unwrap());
        let file = directory.path().join("inbox").join(format!("{}.json", id(1)));
        fs::write(&file, &bytes).unwrap();
        let store = Store::open(directory.path()).unwrap();
        prop_assert_eq!(fs::read(&store.damaged()[0]).unwrap(), bytes);
    }
}
