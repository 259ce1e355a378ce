//! A comparison of everything with aws-lc, at every length that a datagram can have, and known
//! answers.

#![allow(clippy::unwrap_used, reason = "a test ends when something is wrong")]

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use proptest::prelude::*;
use weft_gcm::{Aes256Gcm, Forged, KEY_LEN, NONCE_LEN, TAG_LEN};
use weft_os::test_support::skip;

/// Returns the cipher. On a processor without the instructions, only the detection can be tested.
fn cipher(key: &[u8; KEY_LEN]) -> Option<Aes256Gcm> {
    let cipher = Aes256Gcm::new(key);
    #[cfg(target_arch = "x86_64")]
    let able = is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    let able = false;
    assert_eq!(cipher.is_some(), able, "the instructions were not looked for rightly");
    if !able {
        skip("this processor has no AES in vectors of 512 bits");
    }
    cipher
}

fn reference(key: &[u8; KEY_LEN], nonce: [u8; NONCE_LEN], aad: &[u8], data: &mut [u8]) -> [u8; TAG_LEN] {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).unwrap());
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), data).unwrap();
    tag.as_ref().try_into().unwrap()
}

/// Bytes that differ by position and by `seed`.
fn bytes<const N: usize>(seed: usize) -> [u8; N] {
    std::array::from_fn(|at| (at * 89 + seed * 57 + at * at * 13) as u8)
}

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + len * 7 + (at >> 8)) as u8).collect()
}

#[test]
fn every_length_of_a_datagram() {
    let key = bytes(1);
    let Some(cipher) = cipher(&key) else { return };
    for len in (0..=4_200).chain([8_999, 9_000, 16_384, 65_507, 65_535]) {
        let (nonce, aad, plain) = (bytes(len), bytes::<16>(len + 1), data(len));
        let (mut ours, mut theirs) = (plain.clone(), plain.clone());
        let tag = cipher.seal(&nonce, &aad, &mut ours);
        assert_eq!(tag, reference(&key, nonce, &aad, &mut theirs), "{len} bytes");
        assert!(ours == theirs, "{len} bytes");
        assert_eq!(cipher.open(&nonce, &aad, &mut ours, &tag), Ok(()), "{len} bytes");
        assert!(ours == plain, "{len} bytes");
    }
}

/// The end of the message is in another buffer: from none of it to all of it.
#[test]
fn a_message_in_two_places_is_the_same_message() {
    let key = bytes(3);
    let Some(cipher) = cipher(&key) else { return };
    let lens = (0..=600).chain([1_024, 1_100, 1_400, 1_440, 9_000]);
    for len in lens {
        let fronts = (0..=len.min(200)).step_by(1 + len / 64).chain([len / 2, len]);
        for front in fronts {
            let (nonce, aad, plain) = (bytes(len), bytes::<16>(front), data(len));
            let mut whole = plain.clone();
            let tag = cipher.seal(&nonce, &aad, &mut whole);
            let mut parts = [&plain[..front], &vec![0xee; len - front]].concat();
            assert_eq!(
                cipher.seal_from(&nonce, &aad, &mut parts, &plain[front..]),
                tag,
                "{front} of {len} bytes"
            );
            assert!(parts == whole, "{front} of {len} bytes");
        }
    }
}

#[test]
fn a_part_longer_than_the_whole() {
    let Some(cipher) = cipher(&bytes(4)) else { return };
    let refused = std::panic::catch_unwind(|| cipher.seal_from(&bytes(0), &[], &mut [0; 10], &[0; 11]));
    assert!(refused.is_err());
}

/// Stores are masked at the end: the memory before and behind belongs to other data.
#[test]
fn nothing_is_written_around_the_data() {
    let Some(cipher) = cipher(&bytes(2)) else { return };
    for len in 0..1_200 {
        let mut memory = vec![0xee; len + 256];
        let tag = cipher.seal(&bytes(0), &[], &mut memory[100..100 + len]);
        let around = |memory: &[u8]| memory[..100].iter().chain(&memory[100 + len..]).all(|b| *b == 0xee);
        assert!(around(&memory), "sealing {len} bytes");
        assert_eq!(cipher.open(&bytes(0), &[], &mut memory[100..100 + len], &tag), Ok(()));
        assert!(memory.iter().all(|b| *b == 0xee), "opening {len} bytes");
        assert_eq!(
            cipher.open(&bytes(0), &[1], &mut memory[100..100 + len], &tag),
            Err(Forged)
        );
        assert!(around(&memory), "a forgery of {len} bytes");
    }
}

/// McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 13 to 16.
#[test]
fn known_answers() {
    let key: [u8; KEY_LEN] = hex::decode("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308")
        .unwrap()
        .try_into()
        .unwrap();
    let nonce: [u8; NONCE_LEN] = hex::decode("cafebabefacedbaddecaf888").unwrap().try_into().unwrap();
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let sealed = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                  8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad";
    let aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let cases = [
        (
            [0; KEY_LEN],
            [0; NONCE_LEN],
            "",
            "",
            "",
            "530f8afbc74536b9a963b4f1c4cb738b",
        ),
        (
            [0; KEY_LEN],
            [0; NONCE_LEN],
            "00000000000000000000000000000000",
            "",
            "cea7403d4d606b6e074ec5d3baf39d18",
            "d0d1c8a799996bf0265b98b5d48ab919",
        ),
        (key, nonce, plain, "", sealed, "b094dac5d93471bdec1a502270e3cc6c"),
        (
            key,
            nonce,
            &plain[..120],
            aad,
            &sealed[..120],
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ];
    for (key, nonce, plain, aad, sealed, tag) in cases {
        let Some(cipher) = cipher(&key) else { return };
        let mut data = hex::decode(plain).unwrap();
        let aad = hex::decode(aad).unwrap();
        let made = cipher.seal(&nonce, &aad, &mut data);
        assert_eq!(
            (hex::encode(&data), hex::encode(made)),
            (sealed.to_owned(), tag.to_owned())
        );
    }
}

proptest! {
    #[test]
    fn any_key_nonce_and_associated_data(
        key: [u8; KEY_LEN],
        nonce: [u8; NONCE_LEN],
        aad in prop::collection::vec(any::<u8>(), 0..100),
        plain in prop::collection::vec(any::<u8>(), 0..3_000),
        flip: prop::sample::Index,
    ) {
        let Some(cipher) = cipher(&key) else { return Ok(()) };
        let (mut ours, mut theirs) = (plain.clone(), plain.clone());
        let tag = cipher.seal(&nonce, &aad, &mut ours);
        prop_assert_eq!(tag, reference(&key, nonce, &aad, &mut theirs));
        prop_assert_eq!(&ours, &theirs);

        // Flips a bit of the data, of the tag, or of the associated data.
        let bit = flip.index(8 * (ours.len() + TAG_LEN + aad.len()));
        let (mut forged, mut forged_tag, mut forged_aad) = (ours.clone(), tag, aad.clone());
        let mut all: Vec<&mut u8> = forged.iter_mut().chain(&mut forged_tag).chain(&mut forged_aad).collect();
        *all[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(cipher.open(&nonce, &forged_aad, &mut forged, &forged_tag), Err(Forged));
        prop_assert!(forged.iter().all(|byte| *byte == 0), "what was forged is not given away");

        prop_assert_eq!(cipher.open(&nonce, &aad, &mut ours, &tag), Ok(()));
        prop_assert_eq!(ours, plain);
    }
}
