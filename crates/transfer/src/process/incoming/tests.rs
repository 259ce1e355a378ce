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
        names: names(&hello().names),
        into: "in".to_owned(),
        offer: identity(&hello()),
        offered: Some(1_000),
        ..Incoming::new(hello().id, "peer".to_owned(), RawPath::Text("/".to_owned()), 0)
    }
}

#[test]
fn an_offer_has_the_names_that_the_user_wants() {
    let tops = ["a.txt", "b.jpg", "c.txt"].map(|name| RawPath::Text(name.to_owned()));
    let mut offer = Incoming {
        names: vec!["a.txt".to_owned(), "b.jpg".to_owned(), "c.txt".to_owned()],
        tops: tops.to_vec(),
        ..offer()
    };
    assert_eq!(offer.wanted(), offer.names);
    offer.only = vec!["*.txt".to_owned()];
    assert_eq!(offer.wanted(), ["a.txt", "c.txt"]);
    // An earlier version has kept no names in bytes.
    offer.tops.clear();
    offer.only.clear();
    assert_eq!(offer.wanted(), offer.names);
}

#[test]
fn an_accepted_offer_stays_what_was_accepted() {
    assert_eq!(names(&hello().names), ["a", "\\xff"]);
    let many = Hello {
        names: vec![b"n".to_vec(); 25],
        ..hello()
    };
    assert_eq!(names(&many.names)[20..], ["and 5 more"]);
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
