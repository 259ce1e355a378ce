//! The fuzz target of weft-nostr: what relays and other nodes send, on each level of a message.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_noise::{Identity, SecretKey};
use weft_nostr::advert::Advert;
use weft_nostr::event::{Event, Rumor, Unsigned, Unverified};
use weft_nostr::json::{MESSAGE, check};
use weft_nostr::message::{RelayMessage, publish};
use weft_nostr::nip44::ConversationKey;
use weft_nostr::rendezvous::{Now, Output, Rendezvous};
use weft_nostr::signal::{MAX_IN_SESSION, MAX_TARGETS, Own, Signal};
use weft_nostr::wrap::{self, Seal, wrap};
use weft_nostr::{advert, inbox};

/// Seconds since 1970 of all inputs.
const NOW: u64 = 1_700_000_000;

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a value is written differently from what it was read from, or exceeds its bounds.
pub fn nostr(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 7 {
        0 => message(text),
        1 => advert(text),
        2 => signal(text),
        3 => seal(text),
        4 => rumor(text),
        5 => payload(text),
        _ => texts(text),
    }
}

fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

fn signed(signer: u8, kind: u16, tags: Vec<Vec<String>>, content: String) -> Option<Event> {
    let body = Unsigned {
        created_at: NOW,
        kind,
        tags,
        content,
    };
    Event::sign(&identity(signer), body).ok()
}

fn unverified(event: &Event) -> Unverified {
    Unverified::read(event.to_json().as_bytes()).unwrap()
}

/// Text as a message of a relay. An event in it can be published by another key, and is read again.
fn message(text: &str) {
    let Ok(read) = RelayMessage::parse(text) else { return };
    assert_eq!(check(text.as_bytes(), MESSAGE), Ok(()));
    let RelayMessage::Event { event, .. } = read else {
        return;
    };
    let _ = inbox::read(event.body());
    let _ = Advert::read(event.body(), NOW);
    let _ = Seal::unwrap(&identity(2), &event);
    let Ok(again) = Event::sign(&identity(1), event.body().clone()) else {
        return;
    };
    let back = publish(&again).replacen("[\"EVENT\",", "[\"EVENT\",\"s\",", 1);
    if let Ok(RelayMessage::Event { event, .. }) = RelayMessage::parse(&back) {
        assert_eq!(*event, unverified(&again));
    }
}

/// Text as the content of an advert: what is read can be published, and says the same.
fn advert(text: &str) {
    let tag = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let tags = vec![tag("d", advert::IDENTIFIER), tag("protocol", advert::APP)];
    let body = Unsigned {
        created_at: NOW,
        kind: advert::KIND,
        tags,
        content: text.to_owned(),
    };
    let Ok(read) = Advert::read(&body, NOW) else { return };
    assert!(!read.endpoints.is_empty() && read.endpoints.len() <= advert::MAX_ENDPOINTS);
    assert!(read.signal_relays.len() <= advert::MAX_URLS && read.stun_servers.len() <= advert::MAX_URLS);
    // Control characters in URLs cannot be signed.
    if let Ok(event) = read.sign(&identity(1), NOW) {
        assert_eq!(Advert::read(event.body(), NOW), Ok(read));
    }
}

/// Text as an offer or an answer.
fn signal(text: &str) {
    in_session(text);
    let Ok(read) = Signal::read(text) else { return };
    assert_eq!(Signal::read(&read.to_json()).as_ref(), Ok(&read));
    let own = Own {
        reflexive: "11.0.0.1:2121".parse().ok(),
        local: vec!["192.168.1.2:2121".parse().unwrap()],
    };
    let (one, two) = (identity(1).public(), identity(2).public());
    let now = NOW * 1_000;
    let targets = match &read {
        Signal::Offer(offer) => {
            let answer = offer.answer("n".into(), &own, now, now);
            if offer.check(&one, &two, now).is_ok() {
                assert_eq!(answer.check(offer, &two, now), Ok(()));
            }
            offer.targets(&own)
        }
        Signal::Answer(answer) => answer.targets(&own),
    };
    assert!(targets.len() <= MAX_TARGETS);
}

/// Text as an offer and as an answer in the session with a peer. At most one of both counts, and gets
/// one answer.
fn in_session(text: &str) {
    let now = Now {
        ms: 0,
        unix_ms: NOW * 1_000,
    };
    let (me, peer) = (Arc::new(identity(2)), identity(1).public());
    let mut node = Rendezvous::new(me, &[], Box::new(ChaCha20Rng::seed_from_u64(0)));
    let local = vec!["192.168.1.2:2121".parse().unwrap()];
    node.set_own(now, Own { reflexive: None, local });
    node.set_peers(now, &[(peer, false)].into());
    for offer in [true, false] {
        node.handle_session_signal(now, &peer, offer, text.as_bytes());
    }
    let mut answers = 0;
    while let Some(output) = node.poll_output() {
        match output {
            Output::Signal { offer, text, .. } => {
                assert!(!offer && text.len() <= MAX_IN_SESSION, "{text}");
                answers += 1;
            }
            Output::Punch { targets, .. } => assert!(targets.len() <= MAX_TARGETS),
            output => panic!("{output:?}"),
        }
    }
    assert!(answers <= 1);
}

/// Text as a seal, encrypted as it should be.
fn seal(text: &str) {
    let recipient = identity(2);
    let key = ConversationKey::new(identity(9).secret(), &recipient.public());
    let Ok(content) = key.encrypt(&[5; 32], text) else {
        return;
    };
    let p = hex(recipient.public().as_bytes());
    let Some(outer) = signed(9, wrap::KIND, vec![vec!["p".into(), p]], content) else {
        return;
    };
    if let Ok(seal) = Seal::unwrap(&recipient, &unverified(&outer)) {
        let _ = seal.open(&recipient);
    }
}

/// Text as a rumor, in a seal as it should be; and as the text of a rumor.
fn rumor(text: &str) {
    let recipient = identity(2);
    if let Ok(rumor) = Rumor::read(text.as_bytes()) {
        assert_eq!(Rumor::read(rumor.to_json().as_bytes()), Ok(rumor));
    }
    let key = ConversationKey::new(identity(1).secret(), &recipient.public());
    if let Ok(content) = key.encrypt(&[5; 32], text)
        && let Some(event) = signed(1, wrap::SEAL, Vec::new(), content)
    {
        seal(&event.to_json());
    }
    let mut rng = ChaCha20Rng::seed_from_u64(0);
    if let Ok(event) = wrap(&identity(1), &recipient.public(), text, NOW, NOW, &mut rng) {
        let opened = Seal::unwrap(&recipient, &unverified(&event)).unwrap().open(&recipient);
        assert_eq!(opened.unwrap().text, text);
    }
}

/// Text as what is encrypted, and as a payload.
fn payload(text: &str) {
    let key = ConversationKey::new(identity(1).secret(), &identity(2).public());
    let _ = key.decrypt(text);
    if let Ok(payload) = key.encrypt(&[5; 32], text) {
        assert_eq!(key.decrypt(&payload).as_deref(), Ok(text));
    }
}

/// Each line as a text of a relay, in the face of a node with a peer. None of them is signed by the
/// peer, so no message leaves because of them.
fn texts(text: &str) {
    let mut now = Now {
        ms: 0,
        unix_ms: NOW * 1_000,
    };
    let urls = ["ws://r.example".to_owned(), "ws://s.example".to_owned()];
    let rng = Box::new(ChaCha20Rng::seed_from_u64(0));
    let mut node = Rendezvous::new(Arc::new(identity(2)), &urls, rng);
    node.set_own(
        now,
        Own {
            reflexive: "11.0.0.1:2121".parse().ok(),
            local: Vec::new(),
        },
    );
    node.set_peers(now, &[(identity(3).public(), false)].into());
    (0..urls.len()).for_each(|relay| node.handle_connected(now, relay));
    for (n, line) in text.lines().enumerate() {
        node.handle_text(now, n % urls.len(), line);
        now = Now {
            ms: now.ms + 500,
            unix_ms: now.unix_ms + 500,
        };
        node.handle_timeout(now);
        assert!(node.poll_timeout().is_none_or(|at| at > now.ms), "stays due");
    }
    while let Some(output) = node.poll_output() {
        match output {
            Output::Connect { .. } => {}
            Output::Send { text, .. } => assert!(!text.starts_with("[\"EVENT\""), "{text}"),
            output => panic!("{output:?}"),
        }
    }
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
