#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use weft_transfer::api::{Progress, TRANSFERS, TransferId};

use super::*;

fn status() -> TransferStatus {
    TransferStatus {
        id: TransferId([0x0f; 16]),
        direction: Direction::Send,
        peer: "nas".to_owned(),
        user: None,
        state: TransferState::Running,
        why: None,
        share: None,
        names: vec!["photos".to_owned()],
        into: "2026".to_owned(),
        overwrite: false,
        progress: Progress {
            entries: Amount {
                total: Some(3),
                done: 3,
            },
            bytes: Amount {
                total: Some(45_600_000),
                done: 12_300_000,
            },
            moved: 13_000_000,
            read: 14_000_000,
            ..Progress::default()
        },
        begun: 1,
        ended: None,
        next_try_s: None,
        rate: Some(3_400_000),
        eta_s: Some(9),
        path: Some("direct 192.0.2.2:2121".to_owned()),
        held_up_by: Some("disk-there".to_owned()),
    }
}

fn all(transfers: Vec<TransferStatus>) -> Transfers {
    let receive = ReceiveStatus {
        mode: ReceiveMode::Ask,
        for_s: None,
        folder: Some("/home/a/Downloads".to_owned()),
        why_not: None,
    };
    Transfers {
        version: String::new(),
        schema: TRANSFERS.to_owned(),
        receive,
        transfers,
    }
}

#[test]
fn states_are_words() {
    use TransferState::{Connecting, Done, Failed, Paused, Queued, Rejected, Running, Syncing, Waiting};
    for (state, words) in [
        (
            Running,
            "running: 12.3 MB of 45.6 MB, 26 %, 3.4 MB/s, 9 s left, held up by the disk there, path direct 192.0.2.2:2121",
        ),
        (Connecting, "connecting to nas"),
        (
            Waiting,
            "waits until it is accepted there: `weft accept 0f0f0f0f` on nas",
        ),
        (Syncing, "all has arrived, and is written to the disk there"),
        (Paused, "paused; `weft resume 0f0f0f0f` goes on with it"),
        (
            Done,
            "sent 3 files and folders, 12.3 MB to nas: stored and synced there",
        ),
    ] {
        assert_eq!(doing(&TransferStatus { state, ..status() }), words);
    }
    let why = |state| TransferStatus {
        state,
        why: Some("no space".to_owned()),
        ..status()
    };
    assert_eq!(doing(&why(Failed)), "failed: no space");
    assert_eq!(doing(&why(Rejected)), "rejected by nas: no space");
    let next_try_s = Some(8);
    let queued = TransferStatus {
        next_try_s,
        ..why(Queued)
    };
    assert_eq!(doing(&queued), "queued: no space; next try in 8 s");
    let received = TransferStatus {
        direction: Direction::Receive,
        user: Some("anna".to_owned()),
        progress: Progress {
            entries: Amount {
                total: Some(1),
                done: 1,
            },
            ..status().progress
        },
        state: Done,
        ..status()
    };
    assert_eq!(
        doing(&received),
        "received photos, 12.3 MB from anna@nas into 2026: stored and synced"
    );
}

#[test]
fn lists_have_a_row_each_and_reasons_below() {
    let failed = TransferStatus {
        state: TransferState::Failed,
        why: Some("the peer is not reached".to_owned()),
        ..status()
    };
    let mut both = all(vec![status(), failed]);
    assert_eq!(
        list(&both, 100),
        "ID        WITH                    STATE       DONE                         WHAT\n\
         0f0f0f0f  to nas                  running     12.3 MB of 45.6 MB, 26 %     photos\n\
         0f0f0f0f  to nas                  failed      12.3 MB of 45.6 MB, 26 %     photos\n          \
         the peer is not reached\n"
    );
    let text = list(&both, usize::MAX);
    let last = text.lines().last().unwrap();
    assert!(last.ends_with("26 %     photos  (the peer is not reached)"), "{last:?}");
    assert_eq!(text.lines().count(), 3, "a line for each");
    both.receive.why_not = Some("no daemon runs".to_owned());
    assert!(list(&both, 100).ends_with("\nNothing can come at present: no daemon runs\n"));
    assert!(list(&all(Vec::new()), 100).starts_with("No transfer is under way"));
    let names = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    let offer = TransferStatus {
        names,
        direction: Direction::Receive,
        ..status()
    };
    assert_eq!(
        inbox(&all(vec![offer]), 100),
        "ID        FROM                          SIZE  WHAT\n\
         0f0f0f0f  nas                        45.6 MB  a, b, c and 2 more\n"
    );
}

#[test]
fn columns_stay_with_long_sizes_and_names() {
    let most = Amount {
        total: Some(999_900_000_000),
        done: 999_900_000_000,
    };
    let long = TransferStatus {
        peer: "a-machine-with-a-long-name".to_owned(),
        user: Some("anna".to_owned()),
        names: vec!["a folder with a name that is long".to_owned(), "x".repeat(60)],
        state: TransferState::Connecting,
        progress: Progress {
            bytes: most,
            ..status().progress
        },
        ..status()
    };
    let both = all(vec![long, status()]);
    assert_eq!(
        list(&both, 100),
        "ID        WITH                    STATE       DONE                         WHAT\n\
         0f0f0f0f  to anna@a-machine-wit\u{2026}  connecting  999.9 GB of 999.9 GB, 100 %  a folder with a name that\n  \
         is long, xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
         0f0f0f0f  to nas                  running     12.3 MB of 45.6 MB, 26 %     photos\n"
    );
    assert_eq!(list(&both, usize::MAX).lines().count(), 3);
    assert!(inbox(&both, 100).contains("0f0f0f0f  anna@a-machine-with-a\u{2026}    999.9 GB  a folder"));
}

#[test]
fn notes_are_bounded() {
    let note = Note {
        name: "fifo".to_owned(),
        what: "left out: no file".to_owned(),
    };
    let few = TransferStatus {
        progress: Progress {
            notes: vec![note.clone(); 2],
            ..Progress::default()
        },
        ..status()
    };
    assert_eq!(notes(&few, 100), "  fifo: left out: no file\n".repeat(2));
    let many = TransferStatus {
        progress: Progress {
            notes: vec![note; 25],
            more_notes: 7,
            ..Progress::default()
        },
        ..status()
    };
    let text = notes(&many, 100);
    assert_eq!(
        (text.lines().count(), text.lines().last().unwrap()),
        (21, "  and 12 more")
    );
    assert!(one(&many, 100).contains("fifo"));
}

#[test]
fn text_of_others_moves_no_cursor() {
    let bad = "a\x1b[2Jb\u{202e}c\nd\u{9b}e";
    let one_of = TransferStatus {
        peer: bad.to_owned(),
        user: Some(bad.to_owned()),
        why: Some(bad.to_owned()),
        names: vec![bad.to_owned()],
        into: bad.to_owned(),
        overwrite: false,
        path: Some(bad.to_owned()),
        held_up_by: Some(bad.to_owned()),
        progress: Progress {
            notes: vec![Note {
                name: bad.to_owned(),
                what: bad.to_owned(),
            }],
            ..status().progress
        },
        ..status()
    };
    let mut texts = Vec::new();
    for direction in [Direction::Send, Direction::Receive] {
        for state in [
            TransferState::Queued,
            TransferState::Connecting,
            TransferState::Waiting,
            TransferState::Running,
            TransferState::Syncing,
            TransferState::Paused,
            TransferState::Done,
            TransferState::Failed,
            TransferState::Cancelled,
            TransferState::Rejected,
        ] {
            let status = TransferStatus {
                state,
                direction,
                ..one_of.clone()
            };
            texts.extend([
                doing(&status),
                one(&status, 100),
                begun(&status, 100),
                changed(&status, 100),
            ]);
            let mut all = all(vec![status]);
            all.receive.why_not = Some(bad.to_owned());
            all.receive.folder = Some(bad.to_owned());
            all.receive.mode = ReceiveMode::Tag(bad.to_owned());
            texts.extend([inbox(&all, 100), list(&all, 100), receive(&all.receive, 100)]);
        }
    }
    for text in texts {
        let is_bad = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(is_bad) && !text.contains("c\nd"), "{text:?}");
    }
}

#[test]
fn receiving_is_said_in_words() {
    let mut now = all(Vec::new()).receive;
    assert_eq!(
        receive(&now, 100),
        "mode    ask: each offer waits for `weft accept`\nfolder  /home/a/Downloads\n"
    );
    now.for_s = Some(7_200);
    now.mode = ReceiveMode::Members;
    now.folder = None;
    let text = receive(&now, 200);
    assert!(
        text.contains("wait; 2 h 0 min more") && text.contains("`weft receive --to DIR`"),
        "{text}"
    );
}

#[test]
fn clean_lists_all_that_it_removed_and_left() {
    let nothing = Cleaned {
        schema: String::new(),
        transfers: 0,
        staged: 0,
        hashes: 0,
        damaged: 0,
        bytes: 0,
        left: Vec::new(),
    };
    assert_eq!(cleaned(&nothing, 100), "nothing was left to be removed\n");
    let some = Cleaned {
        transfers: 2,
        damaged: 1,
        bytes: 5_000,
        left: vec![Note {
            name: "/in/\u{1b}x".to_owned(),
            what: "it cannot be removed (no)".to_owned(),
        }],
        ..nothing
    };
    assert_eq!(
        cleaned(&some, 100),
        "removed 2 of the history, 1 of damaged state: 5.0 kB\n  /in/?x: it cannot be removed (no)\n"
    );
}
