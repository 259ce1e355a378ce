//! The fuzz target of weft-roster: its parsers on any bytes, and records in any order.

use std::sync::Arc;

use weft_noise::{Identity, PublicKey, SecretKey};
use weft_roster::event::{Event, Unverified};
use weft_roster::invite::Code;
use weft_roster::key::RecordKey;
use weft_roster::network_id::NetworkId;
use weft_roster::record::{Body, Draft, Exit, Member, Network, Record, Secret};
use weft_roster::rules::{Policy, Rule};
use weft_roster::set::RecordSet;
use weft_roster::state::State;
use weft_roster::sync::Message;

use crate::input::Input;

/// Signers of records; the first founds the network.
const SIGNERS: usize = 4;

/// Records of one history.
const RECORDS: usize = 24;

/// The nonce of the network.
const NONCE: [u8; 16] = [7; 16];

/// Reads the bytes behind the first one as what that one says.
///
/// # Panics
/// If a value is written differently from the bytes that it was read from, or if two orders of
/// arrival give different states.
pub fn roster(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        0 => event(rest),
        1 => code(rest),
        2 => rule(rest),
        3 => message(rest),
        4 => key(rest),
        _ => orders(rest),
    }
}

fn identity(n: usize) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n as u8 + 1; 32]).unwrap())
}

/// Bytes as an event: what can be read can be signed by another key, and is read again.
fn event(bytes: &[u8]) {
    let _ = Event::parse(bytes);
    let _ = Record::parse(bytes);
    let Ok(read) = Unverified::read(bytes) else { return };
    let Ok(signed) = Event::sign(&identity(0), read.body().clone()) else {
        return;
    };
    let json = signed.to_json();
    assert_eq!(signed.body(), read.body());
    assert_eq!(Event::parse(json.as_bytes()).as_ref(), Ok(&signed));
    let Ok(record) = Record::parse(json.as_bytes()) else {
        return;
    };
    assert_eq!(record.event(), &signed);
    assert_eq!(record.key().to_string().parse().as_ref(), Ok(record.key()));
    let Ok(again) = Draft::again(&record, 9).sign(&identity(1), 0) else {
        return;
    };
    assert_eq!((again.key(), again.removed()), (record.key(), record.removed()));
    if !record.founds() {
        assert_eq!(again.body(), record.body());
    }
}

fn code(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(code) = Code::parse(text) else { return };
    let canonical: String = text.chars().filter(|c| !c.is_ascii_whitespace() && *c != '-').collect();
    assert_eq!(*code.encode(), canonical.to_ascii_uppercase());
}

fn rule(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(rule) = text.parse::<Rule>() else { return };
    assert_eq!(rule.to_string().parse(), Ok(rule));
}

fn message(bytes: &[u8]) {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(message.encode(), bytes);
    }
}

fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = text.parse::<RecordKey>() {
        assert_eq!(key.to_string(), text);
    }
}

/// Records that the bytes choose, forwards and backwards.
fn orders(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let network = NetworkId::new(&identity(0).public(), &NONCE);
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < RECORDS {
        records.extend(chosen(&mut input, network));
    }
    let state = |records: &mut dyn Iterator<Item = &Arc<Record>>| {
        let mut set = RecordSet::new(network);
        for record in records {
            set.insert(record);
        }
        State::of(&set)
    };
    let forwards = state(&mut records.iter());
    assert_eq!(forwards, state(&mut records.iter().rev()));
    let rank = |key: &PublicKey| forwards.admins.rank(key);
    for (key, admin) in &forwards.admins.of {
        let granter = admin.grant.as_ref().map(|grant| rank(grant.signer()));
        assert_eq!(granter, (admin.rank > 0).then(|| admin.rank.checked_sub(1)), "{key}");
    }
}

fn chosen(input: &mut Input<'_>, network: NetworkId) -> Option<Arc<Record>> {
    let (by, subject) = (input.below(SIGNERS), identity(input.below(SIGNERS)).public());
    let version = match input.below(4) {
        3 => u64::MAX,
        version => version as u64,
    };
    let (key, body) = match input.below(5) {
        0 => (RecordKey::Admin(subject), Body::Plain),
        1 => (RecordKey::Member(subject), Body::Member(Member::default())),
        2 => (RecordKey::Exit(subject), Body::Exit(Exit::default())),
        3 => {
            let secret = Secret {
                bytes: [input.below(3) as u8; 32],
                exclusions: [0; 8],
            };
            (RecordKey::Secret, Body::Secret(secret))
        }
        _ => {
            let content = Network {
                name: None,
                inside: if input.flag() { Policy::Deny } else { Policy::Allow },
                founder: (by == 0).then_some(NONCE),
                successor: input.flag().then_some(subject),
            };
            (RecordKey::Network, Body::Network(content))
        }
    };
    let draft = Draft::new(network, key, version, &body);
    let draft = if input.flag() { draft.removal() } else { draft };
    // The record of a network cannot be removed.
    draft.sign(&identity(by), 0).ok().map(Arc::new)
}
