//! The membership event of nvpn: its vector, and who signs it.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::*;
use weft_roster::event::Event;
use weft_roster::membership::{self, MembershipError};

/// docs/protocol/networks.md has it, too; made by a program of its own.
const DOCUMENT: &str = include_str!("../../../docs/protocol/networks.md");

#[test]
fn the_event_is_that_of_the_document() {
    let state = state(&[
        founding(1, None),
        grant(1, 2, 1),
        member(1, 1, 1),
        member(1, 7, 1),
        unmember(1, 8, 1),
    ]);
    let event = membership::event(&state, &identity(1), 1_700_000_000, None).unwrap();
    let json = event.to_json();
    assert!(DOCUMENT.lines().any(|line| line == json), "{json}");
    assert_eq!(Event::parse(event.to_json().as_bytes()), Ok(event));
}

#[test]
fn a_later_event_has_a_later_time() {
    let state = state(&[founding(1, None)]);
    let time = |now, last| {
        membership::event(&state, &identity(1), now, last)
            .unwrap()
            .body()
            .created_at
    };
    assert_eq!(
        (time(5, None), time(5, Some(4)), time(5, Some(5)), time(5, Some(90))),
        (5, 5, 6, 91)
    );
    let by_other = membership::event(&state, &identity(2), 5, None);
    assert_eq!(by_other, Err(MembershipError::NotAdmin));
}

#[test]
fn the_most_senior_admin_that_is_up_signs() {
    let state = state(&[founding(1, None), grant(1, 2, 1), grant(1, 3, 1)]);
    assert_eq!(membership::signer(&state, |_| true), Some(key(1)));
    let second = key(2).min(key(3));
    assert_eq!(membership::signer(&state, |key| *key != common::key(1)), Some(second));
    assert_eq!(membership::signer(&state, |_| false), None);
}
