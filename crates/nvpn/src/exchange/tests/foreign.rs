//! Networks that were founded with nvpn.

use super::*;
use crate::join::{JoinRefusal, Pending};

const SECRET: &str = "c2VjcmV0";

/// The exchange of node 1, whose request waits for 60 s.
fn asking() -> Exchange {
    let mut exchange = with(&[]);
    exchange.await_answer(0, pending(), 60_000);
    exchange
}

fn pending() -> Pending {
    Pending {
        device: key(1),
        secret: Secret::new(SECRET.to_owned()),
        admin: None,
        network: None,
        requested_at: UNIX - 10,
    }
}

/// A list of an administrator that is number 2.
fn answer(at: u64, members: &[u8]) -> Event {
    event(&network(), 2, at, members)
}

fn invited(outputs: &[Output]) -> Option<(PublicKey, [u8; 32])> {
    let of = |output: &Output| match output {
        Output::Invited { by, event } => Some((*by, *event.id())),
        _ => None,
    };
    outputs.iter().find_map(of)
}

/// Holds a list as the daemon does once it is stored.
fn hold_foreign(exchange: &mut Exchange, event: &Event) {
    exchange.hold_foreign(event, &SharedRoster::read(event).unwrap());
}

fn acks(outputs: &[Output], to: u8) -> usize {
    let is_ack = |frame: &&Frame| matches!(frame, Frame::JoinRosterAck { .. });
    frames(outputs, to).iter().filter(is_ack).count()
}

#[test]
fn an_answer_with_the_secret_is_taken_once_and_confirmed_again() {
    let mut exchange = asking();
    let list = answer(UNIX, &[1, 2]);
    let bytes = control::join_roster(&list, SECRET);
    // The node is not known: an administrator sends it through another one.
    let told = document(&mut exchange, 0, 9, &bytes).unwrap();
    assert_eq!((invited(&told), told.len()), (Some((key(9), *list.id())), 1));
    assert!(exchange.request(0).is_none());
    let second = control::join_roster(&answer(UNIX + 1, &[1, 2]), SECRET);
    assert_eq!(document(&mut exchange, 2_000, 9, &second), Ok(vec![]));
    hold_foreign(&mut exchange, &list);
    exchange.confirm(key(9), list.id());
    assert_eq!(acks(&outputs(&mut exchange), 9), 1);
    let again = document(&mut exchange, 3_000, 9, &bytes).unwrap();
    assert_eq!((acks(&again, 9), again.len()), (1, 1));
}

#[test]
fn answers_of_no_use_change_nothing() {
    let mut forged: serde_json::Value = serde_json::from_str(&answer(UNIX, &[1, 2]).to_json()).unwrap();
    forged["created_at"] = (UNIX + 1).into();
    let forged = format!(
        r#"{{"v":1,"frame":{{"kind":"join_roster","control":{{"signed_roster":{{"event":{forged}}},"request_secret":"{SECRET}"}}}}}}"#
    );
    let forged = [&control::MAGIC[..], forged.as_bytes()].concat();
    let refused = |bytes: &[u8]| {
        let mut exchange = asking();
        let error = document(&mut exchange, 0, 9, bytes).unwrap_err();
        assert!(exchange.request(0).is_some() && outputs(&mut exchange).is_empty());
        error
    };
    assert!(matches!(refused(&forged), ListError::Event(_)));
    let of = |event: &Event, secret| refused(&control::join_roster(event, secret));
    assert_eq!(of(&answer(UNIX, &[1, 2]), "b3RoZXI"), JoinRefusal::Secret.into());
    for (at, members, refusal) in [
        (UNIX - 11, &[1, 2][..], JoinRefusal::Early),
        (UNIX + 601, &[1, 2], JoinRefusal::Future),
        (UNIX, &[2, 3], JoinRefusal::NotNamed),
    ] {
        // Key 1 is an administrator of all lists of `event`, so another one asks.
        let mut exchange = with(&[]);
        let device = key(7);
        exchange.await_answer(0, Pending { device, ..pending() }, 60_000);
        let members: Vec<u8> = members.iter().map(|n| if *n == 1 { 7 } else { *n }).collect();
        let bytes = control::join_roster(&answer(at, &members), SECRET);
        assert_eq!(document(&mut exchange, 0, 9, &bytes), Err(refusal.into()), "{at}");
    }
    assert_eq!(
        of(&event(&network(), 5, UNIX, &[1, 2]), SECRET),
        JoinRefusal::Signer.into()
    );
}

#[test]
fn an_answer_by_hand_counts_of_that_administrator_alone() {
    let mut exchange = with(&[]);
    let token = manual_token(&network(), &key(2), &key(1));
    let by_hand = Pending {
        secret: Secret::new(token.clone()),
        admin: Some(key(2)),
        network: Some(network()),
        requested_at: 0,
        ..pending()
    };
    exchange.await_answer(0, by_hand, 60_000);
    // Any node can compute the token, and be an administrator of a list of its own.
    let other = control::join_roster(&event(&network(), 1, UNIX, &[1, 2]), &token);
    assert_eq!(document(&mut exchange, 0, 9, &other), Err(JoinRefusal::Signer.into()));
    let elsewhere = event(&NetworkId::new("ab12").unwrap(), 2, UNIX, &[1, 2]);
    let elsewhere = control::join_roster(&elsewhere, &token);
    assert_eq!(
        document(&mut exchange, 1_000, 9, &elsewhere),
        Err(JoinRefusal::Network.into())
    );
    let own = control::join_roster(&answer(UNIX - 1_000, &[1, 2]), &token);
    assert!(invited(&document(&mut exchange, 2_000, 8, &own).unwrap()).is_some());
}

#[test]
fn long_answers_of_unknown_nodes_are_read_while_one_is_awaited() {
    let members: Vec<u8> = (1..=80).collect();
    let long = control::join_roster(&answer(UNIX, &members), SECRET);
    assert!(long.len() > MAX_OF_OTHERS);
    assert_eq!(document(&mut with(&[]), 0, 9, &long), Err(ListError::TooOften));
    let mut exchange = asking();
    let wrong = control::join_roster(&answer(UNIX, &members), "b3RoZXI");
    assert_eq!(document(&mut exchange, 0, 9, &wrong), Err(ListError::TooOften));
    // Another kind is not read at that length.
    let mut padded = control::join_roster_ack(&[7; 32]);
    padded.resize(MAX_OF_OTHERS + 1, b' ');
    assert_eq!(document(&mut exchange, 0, 8, &padded), Err(ListError::TooOften));
    assert!(invited(&document(&mut exchange, 0, 9, &long).unwrap()).is_some());
    // Of all nodes together, a few a second.
    let mut exchange = asking();
    let mut secret = [&control::MAGIC[..], SECRET.as_bytes()].concat();
    secret.resize(MAX_OF_OTHERS + 1, b' ');
    let read = (10..40).filter(|n| document(&mut exchange, 0, *n, &secret) != Err(ListError::TooOften));
    assert_eq!(read.count(), usize::try_from(ANSWERS.burst).unwrap());
}

#[test]
fn answers_without_the_secret_leave_the_budget_to_the_right_one() {
    let mut exchange = asking();
    let wrong = control::join_roster(&answer(UNIX, &[1, 2]), "b3RoZXI");
    for n in 10..60 {
        assert_eq!(document(&mut exchange, 0, n, &wrong), Err(JoinRefusal::Secret.into()));
    }
    let right = control::join_roster(&answer(UNIX, &[1, 2]), SECRET);
    assert!(invited(&document(&mut exchange, 0, 10, &right).unwrap()).is_some());
}

#[test]
fn lists_of_nvpn_without_end_are_followed_slowly() {
    let devices: Vec<u8> = (10..60).collect();
    let mut exchange = with(&devices);
    hold_foreign(&mut exchange, &answer(UNIX, &[1, 2]));
    let mut follow = |now, at: &mut u64| {
        let lists = devices.iter().filter(|device| {
            *at += 1;
            let list = roster(&answer(UNIX + *at, &[1, 2]));
            document(&mut exchange, now, **device, &list).is_ok()
        });
        lists.count()
    };
    let mut at = 0;
    assert_eq!((follow(0, &mut at), follow(2_000, &mut at)), (8, 2));
}

#[test]
fn a_request_ends_with_its_time() {
    let mut exchange = asking();
    assert_eq!(exchange.poll_timeout(), Some(60_000));
    exchange.await_answer(50_000, pending(), 90_000);
    assert!(exchange.request(89_999).is_some() && exchange.request(90_000).is_none());
    assert_eq!(due(&mut exchange, 90_000), []);
    assert_eq!(exchange.poll_timeout(), None);
    let late = control::join_roster(&answer(UNIX, &[1, 2]), SECRET);
    assert_eq!(document(&mut exchange, 90_000, 9, &late), Ok(vec![]));
}

#[test]
fn a_later_list_of_nvpn_is_followed_and_passed_on() {
    let mut exchange = with(&[5]);
    ping(&mut exchange, 0, 5);
    hold_foreign(&mut exchange, &answer(UNIX, &[1, 2, 5]));
    assert_eq!(lists(&due(&mut exchange, 0), 5), 1);
    for (at, by, refusal) in [
        (UNIX + 1, 5, Refusal::Signer),
        (UNIX, 2, Refusal::Old),
        (UNIX + 601, 2, Refusal::Future),
    ] {
        let bytes = roster(&event(&network(), by, at, &[1, 5, 6]));
        exchange.peers.get_mut(&key(5)).unwrap().verify_at = 0;
        assert_eq!(document(&mut exchange, 1_000, 5, &bytes), Err(refusal.into()), "{at}");
    }
    let later = answer(UNIX + 1, &[1, 5, 6]);
    let told = document(&mut exchange, 3_000, 5, &roster(&later)).unwrap();
    assert_eq!(told, [Output::Replaced { event: later.clone() }], "no edit to undo");
    let held = exchange.held(&network()).unwrap();
    assert_eq!((&held.event, held.until), (&later, 0));
    assert_eq!(lists(&due(&mut exchange, 3_000), 5), 1);
    // The stored one is the same, and the one before does not come back by it.
    hold_foreign(&mut exchange, &later);
    assert_eq!(lists(&due(&mut exchange, 3_001), 5), 0);
}

#[test]
fn no_list_of_nvpn_is_signed_anew() {
    let mut exchange = with(&[5]);
    let (network, state) = state(&[5]);
    let list = event(&network, 2, UNIX, &[1, 2]);
    hold_foreign(&mut exchange, &list);
    let signed = exchange.sign(&network, (&state, 1), &identity(1), (0, UNIX + 10));
    assert_eq!(signed, Ok(false));
    assert_eq!(exchange.held(&network).unwrap().event, list);
}
