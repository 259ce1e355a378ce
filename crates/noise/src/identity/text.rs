//! Keys as text: `nsec1...` and `npub1...` (NIP-19, in bech32), or 64 hexadecimal digits.

use bech32::{
    Bech32, ByteIterExt, Fe32IterExt, Hrp,
    primitives::decode::{CheckedHrpstring, CheckedHrpstringError},
};
use thiserror::Error;
use zeroize::Zeroizing;

use super::{PublicKey, SecretKey};

const NPUB: Hrp = Hrp::parse_unchecked("npub");
const NSEC: Hrp = Hrp::parse_unchecked("nsec");

/// Why a text or a number is not the expected key. No variant contains any of the input, which may
/// be (most of) a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The text is empty.
    #[error("the key is empty")]
    Empty,
    /// An `nsec` where an `npub` was expected.
    #[error(
        "this is a secret key (nsec1...) where a public key (npub1...) is expected; if it has been shown to anybody, make a new one"
    )]
    SecretForPublic,
    /// An `npub` where an `nsec` was expected.
    #[error("this is a public key (npub1...) where a secret key (nsec1...) is expected")]
    PublicForSecret,
    /// Neither `npub1...` nor hexadecimal digits.
    #[error("this is not a public key: expected npub1... or 64 hexadecimal digits")]
    NotAPublicKey,
    /// Neither `nsec1...` nor hexadecimal digits.
    #[error("this is not a secret key: expected nsec1... or 64 hexadecimal digits")]
    NotASecretKey,
    /// Hexadecimal digits, but not 64.
    #[error("a key in hexadecimal has 64 digits, this one has {got}")]
    HexLength {
        /// The number of digits.
        got: usize,
    },
    /// A character that `npub` and `nsec` never contain, or upper and lower case mixed.
    #[error("the key contains a character that does not belong there, or mixes upper and lower case")]
    Character,
    /// The checksum of an `npub` or `nsec` does not match.
    #[error("the key is mistyped or incomplete: its checksum does not match")]
    Checksum,
    /// An `npub` or `nsec` with a matching checksum, whose content is not 32 bytes long.
    #[error("the key holds {got} bytes instead of 32")]
    Length {
        /// The length of the content in bytes.
        got: usize,
    },
    /// A number that is not the x coordinate of any point.
    #[error("this is not a public key: no point of the curve has this number")]
    NotOnCurve,
    /// Zero, or not below the order of the curve.
    #[error("this is not a secret key: the number is out of range")]
    OutOfRange,
}

/// Reads a public key from `npub1...` or 64 hexadecimal digits. Space around it is ignored.
///
/// # Errors
///
/// The reason, as a [`KeyError`].
pub fn parse_public(text: &str) -> Result<PublicKey, KeyError> {
    let text = text.trim();
    if has_prefix(text, "nsec1") {
        return Err(KeyError::SecretForPublic);
    }
    let bytes = if has_prefix(text, "npub1") {
        from_bech32(text)?
    } else {
        from_hex(text, KeyError::NotAPublicKey)?
    };
    PublicKey::from_bytes(&bytes)
}

/// Reads a secret key from `nsec1...` or 64 hexadecimal digits. Space around it is ignored.
///
/// Wiping the text is the caller's task.
///
/// # Errors
///
/// The reason, as a [`KeyError`].
pub fn parse_secret(text: &str) -> Result<SecretKey, KeyError> {
    let text = text.trim();
    if has_prefix(text, "npub1") {
        return Err(KeyError::PublicForSecret);
    }
    let bytes = if has_prefix(text, "nsec1") {
        from_bech32(text)?
    } else {
        from_hex(text, KeyError::NotASecretKey)?
    };
    SecretKey::from_bytes(&bytes)
}

pub(super) fn npub_chars(bytes: &[u8; 32]) -> impl Iterator<Item = char> {
    chars(&NPUB, bytes)
}

pub(super) fn nsec_chars(bytes: &[u8; 32]) -> impl Iterator<Item = char> {
    chars(&NSEC, bytes)
}

fn chars<'a>(prefix: &'a Hrp, bytes: &'a [u8; 32]) -> impl Iterator<Item = char> + 'a {
    let fes = bytes.iter().copied().bytes_to_fes();
    fes.with_checksum::<Bech32>(prefix).chars()
}

/// Bech32 may be upper or lower case.
fn has_prefix(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn from_bech32(text: &str) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let checked = CheckedHrpstring::new::<Bech32>(text).map_err(|error| match error {
        CheckedHrpstringError::Parse(_) => KeyError::Character,
        _ => KeyError::Checksum,
    })?;
    let got = checked.byte_iter().len();
    if got != 32 {
        return Err(KeyError::Length { got });
    }
    let mut bytes = Zeroizing::new([0; 32]);
    for (to, from) in bytes.iter_mut().zip(checked.byte_iter()) {
        *to = from;
    }
    Ok(bytes)
}

fn from_hex(text: &str, otherwise: KeyError) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    if text.is_empty() {
        return Err(KeyError::Empty);
    }
    if !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(otherwise);
    }
    let mut bytes = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text, &mut *bytes).map_err(|_| KeyError::HexLength { got: text.len() })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // The two examples of NIP-19.
    const NPUB_TEXT: &str = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
    const NPUB_HEX: &str = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
    const NSEC_TEXT: &str = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
    const NSEC_HEX: &str = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";

    fn secret_error(text: &str) -> KeyError {
        parse_secret(text).unwrap_err()
    }

    #[test]
    fn nip_19_public_key() {
        let key = parse_public(NPUB_TEXT).unwrap();
        assert_eq!(hex::encode(key.as_bytes()), NPUB_HEX);
        assert_eq!(parse_public(NPUB_HEX), Ok(key));
        assert_eq!(key.to_string(), NPUB_TEXT);
        assert_eq!(format!("{key:?}"), NPUB_TEXT);
        for variant in [
            format!(" {NPUB_TEXT}\n"),
            NPUB_TEXT.to_uppercase(),
            NPUB_HEX.to_uppercase(),
        ] {
            assert_eq!(variant.parse(), Ok(key));
        }
    }

    #[test]
    fn nip_19_secret_key() {
        for text in [
            NSEC_TEXT,
            NSEC_HEX,
            &format!("{NSEC_TEXT}\r\n"),
            &NSEC_TEXT.to_uppercase(),
        ] {
            let key = parse_secret(text).unwrap();
            assert_eq!(hex::encode(*key.to_bytes()), NSEC_HEX);
            assert_eq!(*key.to_nsec(), NSEC_TEXT);
        }
    }

    #[test]
    fn one_for_the_other() {
        assert_eq!(parse_public(NSEC_TEXT), Err(KeyError::SecretForPublic));
        assert_eq!(secret_error(NPUB_TEXT), KeyError::PublicForSecret);
        // The two kinds are distinguished even in a mistyped key.
        assert_eq!(parse_public("NSEC1x"), Err(KeyError::SecretForPublic));
    }

    #[test]
    fn a_cause_for_each_mistake() {
        assert_eq!(parse_public("  "), Err(KeyError::Empty));
        assert_eq!(secret_error(""), KeyError::Empty);
        assert_eq!(parse_public("alice"), Err(KeyError::NotAPublicKey));
        assert_eq!(secret_error("note1abc"), KeyError::NotASecretKey);
        assert_eq!(parse_public("npüb1"), Err(KeyError::NotAPublicKey));
        assert_eq!(parse_public(&NPUB_HEX[1..]), Err(KeyError::HexLength { got: 63 }));
        assert_eq!(secret_error(&NSEC_HEX[2..]), KeyError::HexLength { got: 62 });
        assert_eq!(secret_error(&format!("{NSEC_HEX}00")), KeyError::HexLength { got: 66 });
        assert_eq!(parse_public(&NPUB_TEXT.replace('0', "b")), Err(KeyError::Character));
        assert_eq!(parse_public(&NPUB_TEXT.replace('e', "E")), Err(KeyError::Character));
        assert_eq!(parse_public(&NPUB_TEXT[..62]), Err(KeyError::Checksum));
        assert_eq!(parse_public("npub1"), Err(KeyError::Checksum));
        assert_eq!(secret_error(&NSEC_TEXT.replace("vl0", "v0l")), KeyError::Checksum);
        assert_eq!(secret_error(&"0".repeat(64)), KeyError::OutOfRange);
        // BIP-340, vectors 5 and 14: not on the curve; not below the field's size.
        for hex in [
            "eefdea4cdb677750a420fee807eacf21eb9898ae79b9768766e4faa04a2d4a34",
            "fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc30",
        ] {
            assert_eq!(parse_public(hex), Err(KeyError::NotOnCurve));
        }
    }

    #[test]
    fn a_matching_checksum_around_the_wrong_thing() {
        let short = bech32::encode::<Bech32>(NPUB, &[7; 31]).unwrap();
        assert_eq!(parse_public(&short), Err(KeyError::Length { got: 31 }));
        let long = bech32::encode::<Bech32>(NSEC, &[7; 33]).unwrap();
        assert_eq!(secret_error(&long), KeyError::Length { got: 33 });
        let modified = bech32::encode::<bech32::Bech32m>(NPUB, &[7; 32]).unwrap();
        assert_eq!(parse_public(&modified), Err(KeyError::Checksum));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn round_trips(bytes: [u8; 32]) {
            prop_assume!(SecretKey::from_bytes(&bytes).is_ok());
            let secret = SecretKey::from_bytes(&bytes).unwrap();
            prop_assert_eq!(*parse_secret(&secret.to_nsec()).unwrap().to_bytes(), bytes);
            prop_assert_eq!(parse_public(&secret.public().to_string()), Ok(secret.public()));
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in "\\PC{0,80}", tail in "[a-z0-9]{0,70}") {
            prop_assert!(parse_public(&text).is_err());
            let (npub, nsec) = (format!("npub1{tail}"), format!("nsec1{tail}"));
            prop_assert!(parse_public(&npub).is_err());
            prop_assert!(parse_secret(&nsec).is_err());
        }

        #[test]
        fn one_wrong_character_is_noticed(at in 5..63_usize, to in "[qpzry9x8gf2tvdw0s3jn54khce6mua7l]") {
            let mut text = NPUB_TEXT.to_owned();
            prop_assume!(text[at..=at] != to);
            text.replace_range(at..=at, &to);
            prop_assert_eq!(parse_public(&text), Err(KeyError::Checksum));
        }
    }
}
