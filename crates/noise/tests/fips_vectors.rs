//! A byte-for-byte comparison with messages that the reference implementation of FIPS sent and
//! accepted.
#![allow(clippy::unwrap_used, reason = "the vectors are ours")]

mod common;

use std::collections::BTreeMap;

use common::{Ephemeral, bytes, identity, open, seal, vectors};
use weft_noise::{Established, PublicKey, ik, parse_public, xk};

type Case = BTreeMap<&'static str, &'static str>;

fn cases(kind: &str) -> Vec<Case> {
    let cases = vectors(kind);
    assert_eq!(cases.len(), 4, "{kind}");
    cases
}

fn field(case: &Case, name: &str) -> Vec<u8> {
    hex::decode(case[name]).unwrap()
}

fn their_public(case: &Case) -> PublicKey {
    parse_public(case["their_public"]).unwrap()
}

fn ephemeral(case: &Case) -> Ephemeral {
    Ephemeral(bytes(case["our_ephemeral"]))
}

fn check_end(case: &Case, established: &Established) {
    assert_eq!(established.remote, their_public(case));
    assert_eq!(established.remote_epoch, bytes(case["their_epoch"]));
    assert_eq!(established.handshake_hash, bytes(case["handshake_hash"]));
    assert_eq!(open(established, case["their_frame"]), b"from fips");
    assert_eq!(seal(established, b"from weft"), case["our_frame"]);
    assert_eq!(*established.exporter(b"weft fast 1"), bytes(case["exporter"]));
}

#[test]
fn ik_initiator() {
    for case in cases("weft-ik-initiator") {
        let us = identity(case["our_secret"]);
        let epoch = bytes(case["our_epoch"]);
        let (pending, msg1) = ik::Initiator::start(&us, their_public(&case), epoch, &mut ephemeral(&case));
        assert_eq!(hex::encode(msg1), case["msg1"]);
        check_end(&case, &pending.finish(&field(&case, "msg2")).unwrap());
    }
}

#[test]
fn ik_responder() {
    for case in cases("weft-ik-responder") {
        let us = identity(case["our_secret"]);
        let received = ik::Responder::read(&us, &field(&case, "msg1")).unwrap();
        assert_eq!(received.remote, their_public(&case));
        assert_eq!(received.remote_epoch, bytes(case["their_epoch"]));
        let (msg2, established) = received.accept(bytes(case["our_epoch"]), &mut ephemeral(&case));
        assert_eq!(hex::encode(msg2), case["msg2"]);
        check_end(&case, &established);
    }
}

#[test]
fn xk_initiator() {
    for case in cases("weft-xk-initiator") {
        let us = identity(case["our_secret"]);
        let (pending, msg1) = xk::Initiator::start(their_public(&case), &mut ephemeral(&case));
        assert_eq!(hex::encode(msg1), case["msg1"]);
        let (msg3, established) = pending
            .finish(&us, &field(&case, "msg2"), bytes(case["our_epoch"]))
            .unwrap();
        assert_eq!(hex::encode(msg3), case["msg3"]);
        check_end(&case, &established);
    }
}

#[test]
fn xk_responder() {
    for case in cases("weft-xk-responder") {
        let us = identity(case["our_secret"]);
        let (pending, msg2) = xk::Responder::read(
            &us,
            &field(&case, "msg1"),
            bytes(case["our_epoch"]),
            &mut ephemeral(&case),
        )
        .unwrap();
        assert_eq!(hex::encode(msg2), case["msg2"]);
        check_end(&case, &pending.finish(&field(&case, "msg3")).unwrap());
    }
}

#[test]
fn identities_and_signatures() {
    let cases = vectors("signature");
    assert_eq!(cases.len(), 2);
    for case in cases {
        let us = identity(case["our_secret"]);
        assert_eq!(us.public().to_string(), case["public"]);
        assert_eq!(hex::encode(us.node_addr()), case["node_addr"]);
        let message = field(&case, "message");
        assert_eq!(hex::encode(us.sign(&message)), case["our_signature"]);
        let theirs = bytes(case["their_signature"]);
        assert_eq!(us.public().verify(&message, &theirs), Ok(()));
    }
}
