use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;

const NOW: u64 = 1_700_000_000;

fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(1)
}

fn read(event: &Event) -> Unverified {
    Unverified::read(event.to_json().as_bytes()).unwrap()
}

fn wrapped(text: &str) -> Event {
    wrap(&identity(1), &identity(2).public(), text, NOW, NOW + 120, &mut rng()).unwrap()
}

/// A message with this seal in it, by a key that is used once.
fn around(seal: &str) -> Unverified {
    let once = identity(9);
    let outer = Unsigned {
        created_at: NOW,
        kind: KIND,
        tags: vec![vec!["p".into(), hex(&identity(2).public())]],
        content: encrypted(once.secret(), &identity(2).public(), seal, &mut rng()).unwrap(),
    };
    read(&Event::sign(&once, outer).unwrap())
}

/// A seal by `signer` with this rumor in it.
fn sealed(signer: u8, kind: u16, rumor: &str) -> Event {
    let body = Unsigned {
        created_at: NOW,
        kind,
        tags: Vec::new(),
        content: encrypted(identity(signer).secret(), &identity(2).public(), rumor, &mut rng()).unwrap(),
    };
    Event::sign(&identity(signer), body).unwrap()
}

fn rumor(author: u8, kind: u16) -> String {
    let body = Unsigned {
        created_at: NOW,
        kind,
        tags: Vec::new(),
        content: "text".into(),
    };
    let author = *identity(author).public().as_bytes();
    Rumor::new(author, body).unwrap().to_json()
}

fn open(outer: &Unverified) -> Result<Opened, WrapError> {
    Seal::unwrap(&identity(2), outer)?.open(&identity(2))
}

#[test]
fn a_message_names_its_sender_to_the_recipient_alone() {
    let event = wrapped("offer");
    let outer = read(&event);
    assert_eq!(outer.clone().verify(), Ok(event.clone()));
    assert_eq!(outer.body().tag_value("expiration"), Some("1700000120"));
    assert_eq!((outer.body().created_at, outer.body().kind), (NOW, 21_059));
    let seal = Seal::unwrap(&identity(2), &outer).unwrap();
    assert_eq!(seal.sender(), identity(1).public().as_bytes());
    assert!(seal.0.body().created_at <= NOW && seal.0.body().created_at > NOW - BLUR);
    let opened = Opened {
        sender: identity(1).public(),
        text: "offer".into(),
    };
    assert_eq!(open(&outer), Ok(opened));
    let json = event.to_json();
    assert!(!json.contains(&hex(&identity(1).public())));
    assert_eq!(Seal::unwrap(&identity(3), &outer), Err(WrapError::NotForUs));
}

#[test]
fn two_messages_have_nothing_in_common() {
    let mut rng = rng();
    let mut wrapped = || read(&wrap(&identity(1), &identity(2).public(), "x", NOW, NOW, &mut rng).unwrap());
    let (one, two) = (wrapped(), wrapped());
    assert_ne!(one.pubkey(), two.pubkey());
    assert_ne!(one.body().content[..60], two.body().content[..60]);
}

#[test]
fn events_that_are_not_messages_have_their_error() {
    let of = |content: &str, kind, p: u8| {
        let body = Unsigned {
            created_at: NOW,
            kind,
            tags: vec![vec!["p".into(), hex(&identity(p).public())]],
            content: content.into(),
        };
        read(&Event::sign(&identity(9), body).unwrap())
    };
    let unwrap = |outer| Seal::unwrap(&identity(2), &outer).unwrap_err();
    assert_eq!(unwrap(of("x", KIND + 1, 2)), WrapError::NotForUs);
    assert_eq!(unwrap(of("x", KIND, 3)), WrapError::NotForUs);
    let long = "x".repeat(MAX_CONTENT + 1);
    assert_eq!(unwrap(of(&long, KIND, 2)), WrapError::TooLong(MAX_CONTENT + 1));
    let payload = wrapped("x").body().content.clone();
    assert_eq!(
        unwrap(of(&payload, KIND, 2)),
        WrapError::Encryption("message", Nip44Error::Mac)
    );
    assert_eq!(unwrap(around("{}")), WrapError::Seal(EventError::Missing("id")));
    assert_eq!(unwrap(around(&sealed(1, 14, "x").to_json())), WrapError::SealKind(14));
}

#[test]
fn forgeries_of_a_sender_have_their_error() {
    let good = around(&sealed(1, SEAL, &rumor(1, RUMOR)).to_json());
    assert_eq!(open(&good).unwrap().text, "text");
    // A seal in the name of another key: its signature fails.
    let forged = sealed(1, SEAL, &rumor(1, RUMOR)).to_json();
    let forged = forged.replace(&hex(&identity(1).public()), &hex(&identity(3).public()));
    assert_eq!(open(&around(&forged)), Err(WrapError::Seal(EventError::Id)));
    // A rumor in the name of another key.
    let passed_on = around(&sealed(3, SEAL, &rumor(1, RUMOR)).to_json());
    assert_eq!(open(&passed_on), Err(WrapError::Author));
    let other = around(&sealed(1, SEAL, &rumor(1, 15)).to_json());
    assert_eq!(open(&other), Err(WrapError::RumorKind(15)));
    let signed = around(&sealed(1, SEAL, &sealed(1, RUMOR, "x").to_json()).to_json());
    assert_eq!(open(&signed), Err(WrapError::Rumor(EventError::UnknownField)));
    // A seal that was made for another recipient.
    let body = Unsigned {
        created_at: NOW,
        kind: SEAL,
        tags: Vec::new(),
        content: encrypted(
            identity(1).secret(),
            &identity(4).public(),
            &rumor(1, RUMOR),
            &mut rng(),
        )
        .unwrap(),
    };
    let stolen = around(&Event::sign(&identity(1), body).unwrap().to_json());
    assert_eq!(open(&stolen), Err(WrapError::Encryption("seal", Nip44Error::Mac)));
}

#[test]
fn lengths_of_texts() {
    for length in [1, 8_192] {
        let event = wrapped(&"x".repeat(length));
        assert_eq!(open(&read(&event)).unwrap().text.len(), length);
    }
    let wrap = |text: &str| wrap(&identity(1), &identity(2).public(), text, NOW, NOW, &mut rng());
    assert!(wrap("").is_ok(), "an empty text is in a rumor that is not");
    assert!(matches!(wrap(&"x".repeat(40_000)), Err(EventError::TooLong(_))));
}
