#![allow(clippy::unwrap_used, reason = "tests fail by panic")]

use std::net::TcpListener;

use super::*;
use crate::wire::message::Ended;

fn listed_name(name: &[u8]) -> Listed {
    Listed {
        kind: EntryKind::File,
        size: 1,
        mtime_s: 0,
        name: name.to_vec(),
    }
}

const END: Answer = Answer::End {
    more: false,
    user: String::new(),
};

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
        Answer::Listed(vec![listed_name(b"a"), listed_name(b"\xff")]),
        Answer::Listed(vec![listed_name(b"b")]),
        Answer::End {
            more: true,
            user: "anna".to_owned(),
        },
    ];
    let names = answered(&right).unwrap();
    assert_eq!((names.all.len(), names.more, &*names.user), (3, true, "anna"));
    for name in [&b"a/b"[..], b"..", b".", b"", b"/", b"a\0", &[b'x'; 256]] {
        let failure = answered(&[Answer::Listed(vec![listed_name(name)]), END]).unwrap_err();
        assert!(failure.words().contains("names that no folder has"), "{failure:?}");
    }
    let many = Answer::Listed(vec![listed_name(b"a"); 500]);
    assert_eq!(
        answered(&[vec![many.clone(); 20], vec![END]].concat())
            .unwrap()
            .all
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
    let some = |user: &str, names: &[&str], more| {
        Ok(Names {
            all: names.iter().map(|name| listed_name(name.as_bytes())).collect(),
            more,
            user: user.to_owned(),
        })
    };
    let bob = some("bob\n", &["b", "c"], true);
    let all = vec![
        (0, bob),
        (1, away()),
        (2, some("anna", &["a", "b"], false)),
        (3, some("", &["b"], false)),
    ];
    let (found, missing) = join(all).unwrap();
    let names = listed(&found);
    let names: Vec<_> = names.iter().map(|one| (&*one.name, one.user.as_deref())).collect();
    let of_b = [("b", None), ("b", Some("anna")), ("b", Some("bob\\x0a"))];
    assert_eq!(names, [&[("a", None)][..], &of_b, &[("c", None)]].concat());
    assert_eq!(missing.as_deref(), Some("away"));
    assert_eq!(join(vec![(0, away())]).unwrap_err().words(), "away");
}
