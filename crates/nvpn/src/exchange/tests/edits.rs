//! Lists that administrators have changed with devices.

use super::*;

#[test]
fn a_list_that_the_records_may_follow_is_not_replaced_at_once() {
    let (network, state) = state(&[5]);
    let mut exchange = with(&[]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), BTreeSet::from([network.clone()]))]));
    assert_eq!(exchange.sign(&network, (&state, 1), &identity(1), (0, UNIX)), Ok(true));
    let rival = |at, other| roster(&event(&network, 1, UNIX + at, &[1, 5, other]));
    let told = document(&mut exchange, 0, 5, &rival(9, 7)).unwrap();
    assert!(told.iter().any(|output| edit_in(output).is_some()), "{told:?}");
    let sign = |exchange: &mut Exchange, now| exchange.sign(&network, (&state, 1), &identity(1), (now, UNIX));
    assert_eq!(
        (sign(&mut exchange, RIVAL - 1), sign(&mut exchange, RIVAL)),
        (Ok(false), Ok(true))
    );
    assert_eq!(exchange.held(&network).unwrap().list.signed_at, UNIX + 10);
    // They have followed.
    document(&mut exchange, RIVAL, 5, &rival(20, 8)).unwrap();
    assert_eq!(sign(&mut exchange, RIVAL + 1), Ok(false));
    exchange.end_rivalry(&network);
    assert_eq!(sign(&mut exchange, RIVAL + 1), Ok(true));
}

fn edit_in(output: &Output) -> Option<&Edit> {
    match output {
        Output::Edited { edit, .. } => Some(edit),
        _ => None,
    }
}

/// A list of an administrator with more tags.
fn edited(by: u8, at: u64, members: &[u8], tags: &[[&str; 3]]) -> Event {
    let mut body = event(&network(), by, UNIX + at, members).body().clone();
    let texts = tags
        .iter()
        .map(|tag| tag.iter().filter(|text| !text.is_empty()).copied().map(str::to_owned));
    body.tags.extend(texts.map(Iterator::collect));
    Event::sign(&identity(by), body).unwrap()
}

/// An exchange that holds this list, which the device of the second administrator has shown.
fn shown(members: &[u8]) -> Exchange {
    let mut exchange = with(&[2, 5]);
    let list = event(&network(), 1, UNIX, members);
    hold(&mut exchange, list.clone());
    assert!(document(&mut exchange, 0, 2, &roster(&list)).is_ok());
    exchange
}

/// What becomes of a list that a device shows.
fn edit(exchange: &mut Exchange, now: u64, from: u8, list: &Event) -> Edit {
    let told = document(exchange, now, from, &roster(list)).unwrap();
    told.iter().find_map(edit_in).unwrap().clone()
}

#[test]
fn an_edit_is_the_difference_to_the_list_that_it_replaced() {
    let hex = |n| data_encoding::HEXLOWER.encode(key(n).as_bytes());
    let (five, seven) = (hex(5), hex(7));
    let mut exchange = shown(&[1, 2, 5, 6]);
    let names = [["alias", &five, "phone"], ["alias", &seven, "tablet"]];
    let expected = Edit {
        signer: key(2),
        since: UNIX,
        added: BTreeMap::from([(key(7), Some("tablet".to_owned()))]),
        removed: BTreeSet::from([key(6)]),
        renamed: BTreeMap::from([(key(5), "phone".to_owned())]),
        left: None,
    };
    // Another device brings it.
    assert_eq!(
        edit(&mut exchange, 0, 5, &edited(2, 1, &[1, 2, 5, 7], &names)),
        expected
    );
    let next = edited(2, 2, &[1, 2, 5, 7], &[names[0], names[1], ["admin", &five, ""]]);
    let next = edit(&mut exchange, VERIFY, 5, &next);
    assert!(next.is_empty() && next.left == Some(Left::Others), "{next:?}");
}

/// Others have removed 6 and added 8 while the device was away.
#[test]
fn an_edit_of_an_old_list_undoes_no_change_of_others() {
    let mut exchange = shown(&[1, 2, 5, 6]);
    hold(&mut exchange, event(&network(), 1, UNIX + 9, &[1, 2, 5, 8]));
    let late = edit(&mut exchange, VERIFY, 2, &edited(2, 20, &[1, 2, 6, 7], &[]));
    assert_eq!(late.added.keys().collect::<Vec<_>>(), [&key(7)]);
    assert_eq!(late.removed, BTreeSet::from([key(5)]));
    assert_eq!(late.left, None);
    // The same of a device that shows its old list at first.
    let mut exchange = with(&[2]);
    hold(&mut exchange, event(&network(), 1, UNIX + 9, &[1, 2, 5, 8]));
    let old = roster(&event(&network(), 1, UNIX, &[1, 2, 5, 6]));
    assert!(document(&mut exchange, 0, 2, &old).is_err());
    assert_eq!(edit(&mut exchange, VERIFY, 2, &edited(2, 20, &[1, 2, 6, 7], &[])), late);
}

#[test]
fn an_edit_of_an_unknown_list_is_not_followed() {
    let mut exchange = with(&[2, 5]);
    hold(&mut exchange, event(&network(), 1, UNIX, &[1, 2, 5, 6]));
    let unseen = edit(&mut exchange, 0, 2, &edited(2, 1, &[1, 2, 7], &[]));
    assert!(unseen.is_empty() && unseen.left == Some(Left::Unseen), "{unseen:?}");
}

/// nvpn applies the removals of its user to each list.
#[test]
fn a_device_that_insists_is_let_alone_until_records_change() {
    let (network, state) = state(&[5]);
    let mut exchange = with(&[]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), BTreeSet::from([network.clone()]))]));
    let sign =
        |exchange: &mut Exchange, revision, now| exchange.sign(&network, (&state, revision), &identity(1), (now, UNIX));
    assert_eq!(sign(&mut exchange, 1, 0), Ok(true));
    let own = exchange.held(&network).unwrap().event.clone();
    let insist = |exchange: &mut Exchange, now, at| edit(exchange, now, 5, &event(&network, 1, UNIX + at, &[1]));
    assert_eq!(insist(&mut exchange, 0, 1).left, Some(Left::Unseen));
    assert_eq!(sign(&mut exchange, 1, RIVAL), Ok(true));
    for (revision, start, at) in [(1, 100 * RIVAL, 20), (2, 200 * RIVAL, 60)] {
        assert_eq!(insist(&mut exchange, start, at).left, Some(Left::Insists));
        assert_eq!(sign(&mut exchange, revision, start + RIVAL), Ok(false));
        assert_eq!(sign(&mut exchange, revision, start + 50 * RIVAL), Ok(false));
        assert_eq!(sign(&mut exchange, revision + 1, start + 50 * RIVAL), Ok(true));
    }
    assert!(exchange.held(&network).unwrap().list.signed_at > own.body().created_at);
}

#[test]
fn a_list_that_takes_the_rights_of_this_node_is_overtaken() {
    let (network, state) = state(&[5]);
    let mut exchange = with(&[]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), BTreeSet::from([network.clone()]))]));
    let sign = |exchange: &mut Exchange, now| exchange.sign(&network, (&state, 1), &identity(1), (now, UNIX));
    assert_eq!(sign(&mut exchange, 0), Ok(true));
    let mut body = event(&network, 1, UNIX + 9, &[1, 5]).body().clone();
    let own = data_encoding::HEXLOWER.encode(key(1).as_bytes());
    body.tags.retain(|tag| tag[0] != "admin" || tag[1] != own);
    let deposing = roster(&Event::sign(&identity(1), body).unwrap());
    assert_eq!(document(&mut exchange, 0, 5, &deposing), Err(Refusal::Deposes.into()));
    assert_eq!(sign(&mut exchange, 1), Ok(true));
    assert_eq!(exchange.held(&network).unwrap().list.signed_at, UNIX + 10);
}

#[test]
fn rival_after_rival_puts_off_no_list() {
    let (network, state) = state(&[5]);
    let mut exchange = with(&[]);
    exchange.set_peers(0, &BTreeMap::from([(key(5), BTreeSet::from([network.clone()]))]));
    let sign = |exchange: &mut Exchange, now| exchange.sign(&network, (&state, 1), &identity(1), (now, UNIX));
    assert_eq!(sign(&mut exchange, 0), Ok(true));
    for second in 1..10 {
        let rival = roster(&event(&network, 1, UNIX + second, &[1, 5, 10 + second as u8]));
        assert!(document(&mut exchange, second * 1_000, 5, &rival).is_ok());
    }
    assert_eq!(
        (sign(&mut exchange, RIVAL + 999), sign(&mut exchange, RIVAL + 1_000)),
        (Ok(false), Ok(true))
    );
}

/// Else they could be shown in turn, each time as a new one.
#[test]
fn of_two_lists_of_one_second_one_stays() {
    let mut exchange = with(&[5]);
    let lists = [7, 8].map(|member| event(&network(), 1, UNIX, &[1, 5, member]));
    hold(&mut exchange, event(&network(), 1, UNIX - 1, &[1, 5]));
    let mut taken = 0;
    for turn in 0..10 {
        let list = roster(&lists[turn % 2]);
        taken +=
            usize::from(document(&mut exchange, VERIFY * turn as u64, 5, &list).is_ok_and(|told| !told.is_empty()));
    }
    assert!(taken <= 2, "{taken}");
}

#[test]
fn a_list_of_weft_is_no_edit() {
    let mut exchange = shown(&[1, 2, 5]);
    let marked = edited(2, 1, &[1, 2, 5, 7], &[[membership::MARK, "1", ""]]);
    let told = document(&mut exchange, 0, 5, &roster(&marked)).unwrap();
    assert_eq!(told.iter().find_map(edit_in), None);
    assert_eq!(exchange.held(&network()).unwrap().list.signed_at, UNIX + 1);
}

#[test]
fn edits_without_end_make_few_records() {
    let mut exchange = shown(&[1, 2, 5]);
    let all: Vec<u8> = (1..=200).collect();
    let count = |exchange: &mut Exchange, second: u64, members: &[u8]| {
        let edit = edit(exchange, second * 1_000, 5, &edited(2, second, members, &[]));
        edit.added.len() + edit.removed.len()
    };
    assert_eq!(count(&mut exchange, 1, &all), 64);
    let members = |second| if second % 2 == 0 { &[1, 2, 5] } else { &all[..100] };
    let later: usize = (2..9).map(|second| count(&mut exchange, second, members(second))).sum();
    assert!(later <= 7, "one a second, not {later}");
}
