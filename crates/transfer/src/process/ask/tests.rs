#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::net::TcpListener;

use super::*;
use crate::wire::message::Ended;

fn listed(name: &[u8]) -> Listed {
    Listed {
        kind: EntryKind::File,
        size: 1,
        mtime_s: 0,
        name: name.to_vec(),
    }
}

/// Plays a peer that answers so, and goes.
fn answered(answers: &[Answer]) -> Result<Names, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for answer in answers {
                // The test may have heard enough.
                let _ = message::write(&mut &peer, &answer.to_bytes());
            }
        });
        names(&stream, Instant::now() + ALL)
    })
}

#[test]
fn names_that_no_folder_has_are_refused() {
    let right = [
        Answer::Alive,
        Answer::Listed(vec![listed(b"a"), listed(b"\xff")]),
        Answer::Listed(vec![listed(b"b")]),
        Answer::End(true),
    ];
    let (names, more) = answered(&right).unwrap();
    assert_eq!((names.len(), more), (3, true));
    for name in [&b"a/b"[..], b"..", b".", b"", b"/", b"a\0", &[b'x'; 256]] {
        let failure = answered(&[Answer::Listed(vec![listed(name)]), Answer::End(false)]).unwrap_err();
        assert!(failure.words().contains("names that no folder has"), "{failure:?}");
    }
    let many = Answer::Listed(vec![listed(b"a"); 500]);
    assert_eq!(
        answered(&[vec![many.clone(); 20], vec![Answer::End(false)]].concat())
            .unwrap()
            .0
            .len(),
        MAX_NAMES
    );
    let failure = answered(&vec![many; 21]).unwrap_err();
    assert!(failure.words().contains("names that no folder has"), "{failure:?}");
    let failure = answered(&[Answer::Granted]).unwrap_err();
    assert!(failure.words().contains("another question"), "{failure:?}");
    let why = "no\n\x1b[2J".to_owned();
    let failure = answered(&[Answer::Refused(Ended::Fault, why)]).unwrap_err();
    assert_eq!(failure, Failure::Fatal("no\\x0a\\x1b[2J".to_owned()));
    assert!(matches!(answered(&[]), Err(Failure::Retry(_))));
}

#[test]
fn a_share_of_one_user_is_found_among_those_of_others() {
    let none = || Err(Failure::Fatal(NO_SHARE.to_owned()));
    let away = || Err(Failure::Retry("away".to_owned()));
    let lacks = || Err(Failure::Fatal("no such file".to_owned()));
    let choose = |all: Vec<Result<u8, Failure>>| {
        let all = all.into_iter().enumerate().collect();
        choose("photos", "nas", all).map(|(user, _)| user)
    };
    assert_eq!(choose(vec![none(), Ok(1), away()]), Ok(1));
    let several = choose(vec![Ok(1), none(), Ok(2)]).unwrap_err();
    assert!(several.words().contains("write USER@nas:photos"), "{several:?}");
    for (all, words) in [
        (vec![none(), none()], NO_SHARE),
        (vec![none(), lacks(), none()], "no such file"),
        (vec![lacks(), away(), none(), lacks()], "away"),
        (vec![], "no user of the peer answers"),
    ] {
        assert_eq!(choose(all).unwrap_err().words(), words);
    }
}

#[test]
fn the_shares_of_all_users_are_joined() {
    let away = || Err(Failure::Retry("away".to_owned()));
    let some = |name: &[u8], more| Ok((vec![listed(name)], more));
    let joined = join(vec![(0, some(b"a", false)), (1, away()), (2, some(b"b", true))]).unwrap();
    let names: Vec<_> = joined.0.0.iter().map(|one| one.name.clone()).collect();
    assert_eq!((names, joined.0.1), (vec![b"a".to_vec(), b"b".to_vec()], true));
    assert_eq!(joined.1.as_deref(), Some("away"));
    assert_eq!(join(vec![(0, away())]).unwrap_err().words(), "away");
}
