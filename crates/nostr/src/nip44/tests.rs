//! The vectors of NIP-44, and properties.

use proptest::prelude::*;
use serde_json::Value;
use sha2::Digest;

use super::*;
use crate::hex::decode;

const VECTORS: &str = include_str!("../../tests/nip44.vectors.json");

fn vectors(kind: &str, name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(VECTORS).unwrap();
    let vectors = all["v2"][kind][name].as_array().unwrap().clone();
    assert!(!vectors.is_empty());
    vectors
}

fn bytes(vector: &Value, field: &str) -> [u8; 32] {
    decode(vector[field].as_str().unwrap()).unwrap()
}

fn key(vector: &Value) -> ConversationKey {
    ConversationKey(Zeroizing::new(bytes(vector, "conversation_key")))
}

fn secret(vector: &Value, field: &str) -> SecretKey {
    SecretKey::from_bytes(&bytes(vector, field)).unwrap()
}

#[test]
fn the_vectors_are_those_that_nip_44_names() {
    let hash: [u8; 32] = Sha256::digest(VECTORS).into();
    assert_eq!(
        Some(hash),
        decode("269ed0f69e4c192512cc779e78c555090cebc7c785b609e338a62afc3ce25040")
    );
}

#[test]
fn conversation_keys() {
    for vector in vectors("valid", "get_conversation_key") {
        let other = PublicKey::from_bytes(&bytes(&vector, "pub2")).unwrap();
        let computed = ConversationKey::new(&secret(&vector, "sec1"), &other);
        assert_eq!(*computed.0, bytes(&vector, "conversation_key"), "{vector}");
    }
    for vector in vectors("invalid", "get_conversation_key") {
        let own = SecretKey::from_bytes(&bytes(&vector, "sec1"));
        let other = PublicKey::from_bytes(&bytes(&vector, "pub2"));
        assert!(own.is_err() || other.is_err(), "{vector}");
    }
}

#[test]
fn lengths_of_padding() {
    for vector in vectors("valid", "calc_padded_len") {
        let [length, expected] = [&vector[0], &vector[1]].map(|n| n.as_u64().unwrap() as usize);
        assert_eq!(padded(length), expected, "{length}");
    }
}

#[test]
fn payloads() {
    for vector in vectors("valid", "encrypt_decrypt") {
        let (one, two) = (secret(&vector, "sec1"), secret(&vector, "sec2"));
        let there = ConversationKey::new(&one, &two.public());
        let back = ConversationKey::new(&two, &one.public());
        assert_eq!(*there.0, bytes(&vector, "conversation_key"));
        let (plaintext, payload) = (
            vector["plaintext"].as_str().unwrap(),
            vector["payload"].as_str().unwrap(),
        );
        assert_eq!(
            there.encrypt(&bytes(&vector, "nonce"), plaintext).as_deref(),
            Ok(payload)
        );
        assert_eq!(back.decrypt(payload).as_deref(), Ok(plaintext));
    }
}

#[test]
fn long_payloads() {
    let hash = |text: &str| data_encoding::HEXLOWER.encode(&Sha256::digest(text));
    for vector in vectors("valid", "encrypt_decrypt_long_msg") {
        let times = vector["repeat"].as_u64().unwrap() as usize;
        let plaintext = vector["pattern"].as_str().unwrap().repeat(times);
        assert_eq!(hash(&plaintext), vector["plaintext_sha256"].as_str().unwrap());
        let payload = key(&vector).encrypt(&bytes(&vector, "nonce"), &plaintext).unwrap();
        assert_eq!(hash(&payload), vector["payload_sha256"].as_str().unwrap());
        assert_eq!(key(&vector).decrypt(&payload), Ok(plaintext));
    }
}

#[test]
fn wrong_payloads_and_lengths() {
    for vector in vectors("invalid", "decrypt") {
        let payload = vector["payload"].as_str().unwrap();
        let error = key(&vector).decrypt(payload).unwrap_err();
        let note = vector["note"].as_str().unwrap();
        let expected = match note {
            "unknown encryption version" | "unknown encryption version 0" => error == Nip44Error::Version,
            "invalid base64" => error == Nip44Error::Base64,
            "invalid MAC" => error == Nip44Error::Mac,
            "invalid padding" => error == Nip44Error::Padding,
            _ => matches!(error, Nip44Error::PayloadLength(_)) && note.starts_with("invalid payload length"),
        };
        assert!(expected, "{note}: {error}");
    }
    let key = ConversationKey(Zeroizing::new([7; 32]));
    for length in vectors("invalid", "encrypt_msg_lengths") {
        let length = length.as_u64().unwrap() as usize;
        // The longest of them are four gigabytes, and differ in nothing else.
        if length <= 1 << 20 {
            let text = "x".repeat(length);
            assert_eq!(key.encrypt(&[0; 32], &text), Err(Nip44Error::Length(length)));
        }
    }
}

/// A payload with a valid MAC and these bytes as the padded plaintext.
fn sealed(key: &ConversationKey, plain: &[u8]) -> String {
    let mut out = [&[VERSION][..], &[9; NONCE], plain].concat();
    let mut keys = key.message_keys(&[9; NONCE]);
    keys.cipher.apply_keystream(&mut out[1 + NONCE..]);
    keys.mac.update(&out[1..]);
    let mac = keys.mac.finalize().into_bytes();
    out.extend_from_slice(&mac);
    BASE64.encode(&out)
}

#[test]
fn plaintext_that_is_sealed_wrongly_is_refused() {
    let key = ConversationKey(Zeroizing::new([7; 32]));
    let mut plain = [0; 34];
    plain[1] = 2;
    plain[2..4].copy_from_slice(&[0xff, 0xfe]);
    assert_eq!(key.decrypt(&sealed(&key, &plain)), Err(Nip44Error::Utf8));
    plain[1] = 33;
    assert_eq!(key.decrypt(&sealed(&key, &plain)), Err(Nip44Error::Padding));
    plain[1] = 0;
    assert_eq!(key.decrypt(&sealed(&key, &plain)), Err(Nip44Error::Padding));
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(
        format!("{:?}", ConversationKey(Zeroizing::new([7; 32]))),
        "ConversationKey(..)"
    );
}

proptest! {
    #[test]
    fn texts_round_trip_and_altered_ones_do_not(text in "\\PC{1,600}", nonce: [u8; 32], at in 0..2_000_usize, bit in 0..8_u8) {
        let key = ConversationKey(Zeroizing::new([3; 32]));
        let payload = key.encrypt(&nonce, &text).unwrap();
        prop_assert_eq!(key.decrypt(&payload), Ok(text));
        let mut bytes = BASE64.decode(payload.as_bytes()).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let altered = key.decrypt(&BASE64.encode(&bytes));
        prop_assert_eq!(altered, Err(if at == 0 { Nip44Error::Version } else { Nip44Error::Mac }));
    }

    #[test]
    fn no_text_panics(text in ".{0,300}") {
        let _ = ConversationKey(Zeroizing::new([3; 32])).decrypt(&text);
    }
}
