use std::cmp::Ordering;

use proptest::prelude::*;
use weft_noise::SecretKey;

use super::*;
use crate::place::tests::{AT, filled, place};

fn identity() -> Identity {
    Identity::new(SecretKey::from_bytes(&[3; 32]).unwrap())
}

fn network() -> NetworkId {
    NetworkId::from_bytes([7; 16])
}

fn sign(version: u64, places: &[u8]) -> Presence {
    Presence::sign(&identity(), &network(), version, Places::read(places).unwrap())
}

fn bytes(presence: &Presence) -> Vec<u8> {
    let mut bytes = Vec::new();
    presence.emit(5, &mut bytes);
    bytes
}

/// A presence with any bytes for places.
fn raw(places: &[u8]) -> Vec<u8> {
    let empty = bytes(&sign(9, &[]));
    let length = (places.len() as u16).to_be_bytes();
    [&empty[..HEAD - 2], &length, places, &empty[HEAD..]].concat()
}

/// All that a later version may add: other carriers and parts, a URL and a pin.
fn of_later_version() -> Vec<u8> {
    [
        place(0, &[(1, &AT), (200, b"new")]),
        place(2, &[(2, b"wss://example.org/weft"), (3, &[9; 32])]),
        place(99, &[(1, &AT)]),
    ]
    .concat()
}

#[test]
fn places_of_a_later_version_keep_their_signature() {
    let places = of_later_version();
    let sent = bytes(&sign(9, &places));
    let (read, age) = Presence::read(&sent).unwrap();
    assert!(read.is_genuine(&network()) && age == 5);
    assert_eq!((bytes(&read), read.places.as_bytes()), (sent, &places[..]));
    assert_eq!(read.places.addresses().count(), 1, "the others are not dialled");
}

#[test]
fn each_byte_but_those_of_the_age_is_signed() {
    let sent = bytes(&sign(9, &of_later_version()));
    for at in 0..sent.len() {
        let mut other = sent.clone();
        other[at] ^= 1;
        let genuine = Presence::read(&other).is_ok_and(|(read, _)| read.is_genuine(&network()));
        assert_eq!(genuine, (40..44).contains(&at), "{at}");
    }
}

#[test]
fn places_in_another_order_are_another_statement() {
    let (one, two) = (place(0, &[(1, &AT)]), place(1, &[(1, &AT)]));
    let here = sign(9, &[&one[..], &two].concat());
    let mut swapped = bytes(&here);
    swapped[HEAD..HEAD + one.len() + two.len()].copy_from_slice(&[&two[..], &one].concat());
    let (swapped, _) = Presence::read(&swapped).unwrap();
    assert!(!swapped.is_genuine(&network()));
    assert_ne!(sign(9, &[&two[..], &one].concat()).signature, here.signature);
    assert!(swapped.is_newer(&here) && !here.is_newer(&swapped));
}

#[test]
fn one_has_exactly_the_length_that_it_says() {
    let whole = bytes(&sign(9, &of_later_version()));
    assert!(Presence::read(&whole).is_ok());
    for end in 0..whole.len() {
        assert!(Presence::read(&whole[..end]).is_err(), "{end}");
        assert_eq!(Presence::split(&whole[..end]), Err(DocumentError::Length), "{end}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(Presence::read(&longer), Err(DocumentError::Length));
    assert_eq!(Presence::split(&longer), Ok((&whole[..], &[0][..])));
}

#[test]
fn places_have_at_most_1024_bytes() {
    let most = raw(&filled(1_024));
    assert_eq!(Presence::split(&most), Ok((&most[..], &[][..])));
    assert!(Presence::read(&most).is_ok());
    for length in [1_025, 65_535] {
        let more = raw(&vec![0; length]);
        let error = DocumentError::Field("length of places");
        assert_eq!(Presence::split(&more), Err(error));
        assert_eq!(Presence::read(&more).map(drop), Err(error));
    }
}

#[test]
fn a_statement_without_places_is_one() {
    let (read, _) = Presence::read(&bytes(&sign(9, &[]))).unwrap();
    assert!(read.is_genuine(&network()) && read.places.iter().next().is_none());
}

#[test]
fn the_version_is_at_most_2_to_the_53_less_one() {
    assert!(Presence::read(&bytes(&sign(MAX_VERSION, &[]))).is_ok());
    let above = Presence::read(&bytes(&sign(MAX_VERSION + 1, &[])));
    assert_eq!(above.map(drop), Err(DocumentError::Field("version")));
}

/// Places of one to three carriers with unknown parts.
fn any_places() -> impl Strategy<Value = Vec<u8>> {
    let one = (1_u8..4, proptest::collection::vec(any::<u8>(), 0..3));
    let places = proptest::collection::vec(one, 0..3);
    places.prop_map(|places| {
        places
            .iter()
            .flat_map(|(carrier, value)| place(*carrier, &[(50, value)]))
            .collect()
    })
}

proptest! {
    #[test]
    fn presences_round_trip(version in 0..=MAX_VERSION, age: u32, places in any_places()) {
        let presence = sign(version, &places);
        let mut sent = Vec::new();
        presence.emit(age, &mut sent);
        let read = Presence::read(&sent);
        prop_assert_eq!(&read, &Ok((presence, age)));
        let mut again = Vec::new();
        read.unwrap().0.emit(age, &mut again);
        prop_assert_eq!(again, sent);
    }

    #[test]
    fn a_readable_presence_is_written_unchanged(places: Vec<u8>, cut in 0_usize..200) {
        let mut sent = raw(&places);
        sent.truncate(sent.len().saturating_sub(cut));
        if let Ok((read, age)) = Presence::read(&sent) {
            let mut again = Vec::new();
            read.emit(age, &mut again);
            prop_assert_eq!(again, sent);
        }
    }

    #[test]
    fn newer_is_a_strict_order(all in proptest::collection::vec((0_u64..3, any_places()), 3)) {
        let all: Vec<Presence> = all.iter().map(|(version, places)| sign(*version, places)).collect();
        for one in &all {
            prop_assert!(!one.is_newer(one));
            for other in &all {
                let statement = |presence: &Presence| (presence.version, presence.places.as_bytes().to_vec());
                let order = statement(one).cmp(&statement(other));
                prop_assert_eq!(one.is_newer(other), order == Ordering::Greater);
                for third in &all {
                    prop_assert!(!one.is_newer(other) || !other.is_newer(third) || one.is_newer(third));
                }
            }
        }
    }
}
