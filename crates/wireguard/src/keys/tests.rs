use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;

fn bytes(hex: &str) -> [u8; KEY_LEN] {
    let mut bytes = [0; KEY_LEN];
    data_encoding::HEXLOWER
        .decode_mut(hex.as_bytes(), &mut bytes)
        .map(drop)
        .unwrap();
    bytes
}

/// RFC 7748, section 6.1.
#[test]
fn two_keys_agree_as_in_the_rfc() {
    let a = PrivateKey::from_bytes(bytes(
        "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    ));
    let b = PrivateKey::from_bytes(bytes(
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    ));
    let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    assert_eq!(a.agree(&b.public()).unwrap().as_bytes(), &shared);
    assert_eq!(b.agree(&a.public()).unwrap().as_bytes(), &shared);
}

#[test]
fn the_text_of_a_key_reads_back_and_nothing_else_does() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let private = PrivateKey::generate(&mut rng);
    let text = private.to_text();
    assert_eq!(text.parse::<PrivateKey>().unwrap().public(), private.public());
    let public = private.public().to_string();
    assert_eq!(public.parse::<PublicKey>().unwrap(), private.public());
    let mut bad = vec![
        String::new(),
        public[..43].to_owned(),
        format!("{public}="),
        "é".repeat(22),
    ];
    bad.push(public.replace('=', "A"));
    bad.push(format!(" {}", &public[..43]));
    for text in bad {
        assert_eq!(text.parse::<PublicKey>(), Err(KeyError), "{text}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    assert_eq!(format!("{:?}", PrivateKey::generate(&mut rng)), "PrivateKey(..)");
    assert_eq!(format!("{:?}", PresharedKey::generate(&mut rng)), "PresharedKey(..)");
}

/// Points of small order (RFC 7748, section 6.1).
#[test]
fn a_key_of_small_order_agrees_with_none() {
    let private = PrivateKey::from_bytes([7; KEY_LEN]);
    let mut one = [0; KEY_LEN];
    one[0] = 1;
    for weak in [[0; KEY_LEN], one] {
        assert_eq!(private.agree(&PublicKey::from_bytes(weak)).err(), Some(WeakKey));
    }
}
