//! The fuzz target of the documents of weft-networks.

use weft_networks::place::{MAX_BYTES, MAX_PLACES, Places};
use weft_networks::{Document, Presence};
use weft_noise::{Identity, SecretKey};
use weft_roster::network_id::NetworkId;

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a value is written differently from what it was read from, or exceeds its bounds.
pub fn document(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 3 {
        0 => whole(rest),
        1 => presence(rest),
        _ => places(rest),
    }
}

/// A document of any kind. What it says can be said again.
fn whole(bytes: &[u8]) {
    let Ok(read) = Document::decode(bytes) else { return };
    let again = read.encode();
    assert_eq!(Document::decode(&again).as_ref(), Ok(&read));
    assert!(again.len() <= bytes.len());
    if let Document::Presences { presences, .. } = &read {
        for (one, _) in presences {
            let newer = presences.iter().filter(|(other, _)| other.is_newer(one));
            newer.for_each(|(other, _)| assert!(!one.is_newer(other)));
        }
    }
}

fn presence(bytes: &[u8]) {
    let _ = Presence::split(bytes);
    let Ok((read, age)) = Presence::read(bytes) else { return };
    let mut again = Vec::new();
    read.emit(age, &mut again);
    assert_eq!(again, bytes);
    assert_eq!(Presence::split(bytes), Ok((bytes, &[][..])));
}

/// Places are signed and passed on as they came.
fn places(bytes: &[u8]) {
    let Ok(places) = Places::read(bytes) else { return };
    assert!(places.as_bytes() == bytes && bytes.len() <= MAX_BYTES);
    assert!(places.iter().count() <= MAX_PLACES && places.addresses().count() <= MAX_PLACES);
    let network = NetworkId::from_bytes([7; 16]);
    let identity = Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap());
    let presence = Presence::sign(&identity, &network, 1, places);
    let mut passed_on = Vec::new();
    presence.emit(0, &mut passed_on);
    let (arrived, _) = Presence::read(&passed_on).unwrap();
    assert!(arrived == presence && arrived.is_genuine(&network));
}
