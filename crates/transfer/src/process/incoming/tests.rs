use super::*;

fn hello() -> Hello {
    Hello {
        id: TransferId([1; 16]),
        overwrite: false,
        entries: None,
        bytes: Some(1_000),
        disk: None,
        into: b"in".to_vec(),
        names: vec![b"a".to_vec(), b"\xff".to_vec()],
    }
}

pub(in crate::process) fn offer() -> Incoming {
    Incoming {
        id: hello().id,
        fetch: None,
        npub: "npub".to_owned(),
        peer: "peer".to_owned(),
        user: None,
        names: names(&hello()),
        into: "in".to_owned(),
        overwrite: false,
        offer: identity(&hello()),
        offered: Some(1_000),
        tops: Vec::new(),
        only: Vec::new(),
        folder: RawPath::Text("/".to_owned()),
        entries: Amount::default(),
        bytes: Amount {
            total: Some(1_000),
            done: 0,
        },
        state: TransferState::Running,
        why: None,
        begun: 0,
        ended: None,
        moved: 0,
        saved: 0,
        read: 0,
        had: 0,
        notes: Vec::new(),
        more_notes: 0,
    }
}

#[test]
fn an_accepted_offer_stays_what_was_accepted() {
    assert_eq!(names(&hello()), ["a", "\\xff"]);
    let many = Hello {
        names: vec![b"n".to_vec(); 25],
        ..hello()
    };
    assert_eq!(names(&many)[20..], ["and 5 more"]);
    assert!(offer().is_of(&hello()));
    let changes: [&dyn Fn(&mut Hello); 5] = [
        &|hello| hello.overwrite = true,
        &|hello| hello.into = b"elsewhere".to_vec(),
        &|hello| hello.names = vec![b"b".to_vec()],
        &|hello| hello.names.push(b"c".to_vec()),
        &|hello| hello.bytes = Some(1 << 40),
    ];
    for change in changes {
        let mut other = hello();
        change(&mut other);
        assert!(!offer().is_of(&other), "{other:?}");
    }
    let grown = Hello {
        bytes: Some(1_100),
        ..hello()
    };
    assert!(offer().is_of(&grown), "a file may grow");
}
