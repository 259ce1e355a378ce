//! Checks the reader against the reference implementation, with the handshakes recorded in
//! crates/noise/tests/vectors/fips.txt.

use std::collections::BTreeMap;

use crate::book::Book;
use crate::reader::{self, End, Keys};

type Case = BTreeMap<&'static str, &'static str>;

fn cases(kind: &str) -> Vec<Case> {
    let text = include_str!("../../../noise/tests/vectors/fips.txt");
    let cases: Vec<Case> = text
        .split("\n\n")
        .map(|block| {
            let lines = block.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.split_once(' ').unwrap()).collect()
        })
        .filter(|case: &Case| case.get("case") == Some(&kind))
        .collect();
    assert_eq!(cases.len(), 4, "{kind}");
    cases
}

fn bytes(case: &Case, name: &str) -> Vec<u8> {
    hex::decode(case[name]).unwrap()
}

fn array<const N: usize>(case: &Case, name: &str) -> [u8; N] {
    bytes(case, name).try_into().unwrap()
}

fn us(case: &Case) -> End {
    End {
        s: crate::node::scalar(&array(case, "our_secret")),
        e: crate::node::scalar(&array(case, "our_ephemeral")),
        epoch: array(case, "our_epoch"),
    }
}

/// The transcript equals FIPS's, and so do the keys: FIPS's frame opens under one, and a frame
/// sealed under the other equals the one that FIPS accepted.
fn check(case: &Case, keys: &Keys, send: [u8; 32], recv: [u8; 32]) {
    assert_eq!(keys.h, array(case, "handshake_hash"));
    assert_eq!(
        reader::seal(&send, 0, b"header", b"from weft"),
        bytes(case, "our_frame")
    );
    assert_eq!(
        reader::open(&recv, 0, b"header", &bytes(case, "their_frame")),
        b"from fips"
    );
}

#[test]
fn ik_as_initiator() {
    for case in cases("weft-ik-initiator") {
        let theirs = array(&case, "their_public");
        let (msg1, keys) = reader::ik_initiator(&us(&case), &theirs, &mut Book::default(), |_| bytes(&case, "msg2"));
        assert_eq!(msg1, bytes(&case, "msg1"));
        check(&case, &keys, keys.k1, keys.k2);
    }
}

#[test]
fn ik_as_responder() {
    for case in cases("weft-ik-responder") {
        let (msg2, x, keys) = reader::ik_responder(&us(&case), &bytes(&case, "msg1"), &mut Book::default());
        assert_eq!((msg2, x), (bytes(&case, "msg2"), bytes(&case, "their_public")));
        check(&case, &keys, keys.k2, keys.k1);
    }
}

#[test]
fn xk_as_initiator() {
    for case in cases("weft-xk-initiator") {
        let theirs = array(&case, "their_public");
        let (msg1, msg3, keys) =
            reader::xk_initiator(&us(&case), &theirs, &mut Book::default(), |_| bytes(&case, "msg2"));
        assert_eq!((msg1, msg3), (bytes(&case, "msg1"), bytes(&case, "msg3")));
        check(&case, &keys, keys.k1, keys.k2);
    }
}

#[test]
fn xk_as_responder() {
    for case in cases("weft-xk-responder") {
        let (msg1, us) = (bytes(&case, "msg1"), us(&case));
        let (msg2, x, keys) = reader::xk_responder(&us, &msg1, &mut Book::default(), |_| bytes(&case, "msg3"));
        assert_eq!((msg2, x), (bytes(&case, "msg2"), bytes(&case, "their_public")));
        check(&case, &keys, keys.k2, keys.k1);
    }
}
