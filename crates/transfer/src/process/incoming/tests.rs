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
        npub: "npub".to_owned(),
        names: names(&hello()),
        into: "in".to_owned(),
        offer: identity(&hello()),
        offered: Some(1_000),
        ..Incoming::new(hello().id, "peer".to_owned(), RawPath::Text("/".to_owned()), 0)
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
