//! A secret key under a passphrase: the text `ncryptsec1...` of NIP-49.
//!
//! In bech32: a version (2), the cost of scrypt as log2 N, a salt of 16 bytes, a nonce of 24 bytes, a
//! byte about the history of the key, and the key sealed with XChaCha20-Poly1305, whose associated data
//! is that byte. The passphrase is normalised (NFKC) before scrypt with r = 8 and p = 1.

use std::fmt;

use bech32::primitives::decode::CheckedHrpstring;
use bech32::{Bech32, Hrp};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use scrypt::Params;
use unicode_normalization::UnicodeNormalization as _;
use weft_noise::SecretKey;
use zeroize::Zeroizing;

/// The cost of scrypt for a new text, as log2 N: 64 MiB of memory.
pub const LOG_N: u8 = 16;
/// The highest cost that is accepted: 1 GiB of memory.
pub const MAX_LOG_N: u8 = 20;
/// The shortest passphrase for a new text, in characters.
pub const MIN_PASSPHRASE: usize = 8;
/// The longest passphrase, in bytes.
pub const MAX_PASSPHRASE: usize = 1_024;

const PREFIX: Hrp = Hrp::parse_unchecked("ncryptsec");
const VERSION: u8 = 2;
/// "The client does not track whether the key was handled insecurely."
const HISTORY: u8 = 2;
const SALT: usize = 16;
const NONCE: usize = 24;
/// The key and its tag.
const SEALED: usize = 48;
const LEN: usize = 3 + SALT + NONCE + SEALED;
/// The most bytes that NFKC makes of one.
const EXPANSION: usize = 18;

/// A passphrase, normalised. It is wiped when it is dropped.
pub struct Passphrase(Zeroizing<String>);

impl Passphrase {
    /// A passphrase as it was typed, without its newline.
    ///
    /// # Errors
    /// [`EncryptedKeyError::EmptyPassphrase`], [`EncryptedKeyError::LongPassphrase`]
    pub fn new(text: &str) -> Result<Self, EncryptedKeyError> {
        if text.is_empty() {
            return Err(EncryptedKeyError::EmptyPassphrase);
        }
        if text.len() > MAX_PASSPHRASE {
            return Err(EncryptedKeyError::LongPassphrase);
        }
        // A string that grows would leave copies in memory.
        let mut normalised = Zeroizing::new(String::with_capacity(text.len() * EXPANSION));
        normalised.extend(text.nfkc());
        Ok(Self(normalised))
    }

    /// Whether it is long enough for a new text.
    ///
    /// # Errors
    /// [`EncryptedKeyError::ShortPassphrase`]
    pub fn check_new(&self) -> Result<(), EncryptedKeyError> {
        match self.0.chars().count() {
            MIN_PASSPHRASE.. => Ok(()),
            _ => Err(EncryptedKeyError::ShortPassphrase),
        }
    }
}

impl PartialEq for Passphrase {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Encrypts a key. `random` is for the salt and the nonce, and must never be the same twice.
///
/// # Errors
/// [`EncryptedKeyError`]
pub fn encrypt(
    secret: &SecretKey,
    passphrase: &Passphrase,
    random: &[u8; SALT + NONCE],
) -> Result<String, EncryptedKeyError> {
    let (salt, nonce) = random.split_at(SALT);
    let key = stretch(passphrase, LOG_N, salt)?;
    let secret = secret.to_bytes();
    let sealed = XChaCha20Poly1305::new(key.as_slice().try_into().map_err(|_| EncryptedKeyError::Length)?)
        .encrypt(
            &xnonce(nonce)?,
            Payload {
                msg: secret.as_slice(),
                aad: &[HISTORY],
            },
        )
        .map_err(|_| EncryptedKeyError::Wrong)?;
    let mut bytes = vec![VERSION, LOG_N];
    bytes.extend([salt, nonce, &[HISTORY], &sealed].concat());
    bech32::encode::<Bech32>(PREFIX, &bytes).map_err(|_| EncryptedKeyError::Length)
}

/// Decrypts the text of a key.
///
/// # Errors
/// [`EncryptedKeyError`]
pub fn decrypt(text: &str, passphrase: &Passphrase) -> Result<SecretKey, EncryptedKeyError> {
    let checked = CheckedHrpstring::new::<Bech32>(text.trim()).map_err(|_| EncryptedKeyError::Text)?;
    if checked.hrp() != PREFIX {
        return Err(EncryptedKeyError::Text);
    }
    let bytes: Vec<u8> = checked.byte_iter().take(LEN + 1).collect();
    let &[version, log_n, ref rest @ ..] = &bytes[..] else {
        return Err(EncryptedKeyError::Length);
    };
    if version != VERSION {
        return Err(EncryptedKeyError::Version(version));
    }
    if bytes.len() != LEN {
        return Err(EncryptedKeyError::Length);
    }
    if log_n > MAX_LOG_N {
        return Err(EncryptedKeyError::Cost(log_n));
    }
    let (salt, rest) = rest.split_at(SALT);
    let (nonce, rest) = rest.split_at(NONCE);
    let (history, sealed) = rest.split_at(1);
    let key = stretch(passphrase, log_n, salt)?;
    let opened = XChaCha20Poly1305::new(key.as_slice().try_into().map_err(|_| EncryptedKeyError::Length)?)
        .decrypt(
            &xnonce(nonce)?,
            Payload {
                msg: sealed,
                aad: history,
            },
        )
        .map_err(|_| EncryptedKeyError::Wrong)?;
    let opened = Zeroizing::new(opened);
    let secret = opened.as_slice().try_into().map_err(|_| EncryptedKeyError::Length)?;
    SecretKey::from_bytes(secret).map_err(|_| EncryptedKeyError::NoKey)
}

fn xnonce(bytes: &[u8]) -> Result<XNonce, EncryptedKeyError> {
    bytes.try_into().map_err(|_| EncryptedKeyError::Length)
}

fn stretch(passphrase: &Passphrase, log_n: u8, salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, EncryptedKeyError> {
    let cost = Params::new(log_n, 8, 1).map_err(|_| EncryptedKeyError::Cost(log_n))?;
    let mut key = Zeroizing::new([0; 32]);
    scrypt::scrypt(passphrase.0.as_bytes(), salt, &cost, &mut *key).map_err(|_| EncryptedKeyError::Cost(log_n))?;
    Ok(key)
}

/// The reason why a key is not encrypted or decrypted. The texts never show any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncryptedKeyError {
    /// Not bech32 with the prefix `ncryptsec`, or mistyped.
    #[error("this is no encrypted key (ncryptsec1...), or it is not complete")]
    Text,
    /// It has another length than NIP-49 says.
    #[error("the encrypted key has a wrong length")]
    Length,
    /// Another version of the format.
    #[error("the encrypted key has version {0} of its format; this weft reads version {VERSION}")]
    Version(u8),
    /// Scrypt would take too much memory, or 2^0 rounds.
    #[error("the encrypted key asks for scrypt with N = 2^{0}; this weft computes up to 2^{MAX_LOG_N} (1 GiB)")]
    Cost(u8),
    /// The passphrase is wrong, or the text was changed.
    #[error("the passphrase is wrong, or the encrypted key was changed")]
    Wrong,
    /// What was encrypted is no secret key.
    #[error("what is encrypted is no secret key")]
    NoKey,
    /// The passphrase is empty.
    #[error("the passphrase is empty")]
    EmptyPassphrase,
    /// The passphrase is too short.
    #[error(
        "the passphrase has less than {MIN_PASSPHRASE} characters; choose a longer one, for instance of several words"
    )]
    ShortPassphrase,
    /// The passphrase is too long.
    #[error("the passphrase has more than {MAX_PASSPHRASE} bytes")]
    LongPassphrase,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of NIP-49.
    const TEXT: &str = "ncryptsec1qgg9947rlpvqu76pj5ecreduf9jxhselq2nae2kghhvd5g7dgjtcxfqtd67p9m0w57lspw8gsq6yphnm8623nsl8xn9j4jdzz84zm3frztj3z7s35vpzmqf6ksu8r89qk5z2zxfmu5gv8th8wclt0h4p";
    const KEY: &str = "3501454135014541350145413501453fefb02227e449e57cf4d3a3ce05378683";

    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text).unwrap()
    }

    #[test]
    fn the_example_of_nip_49() {
        let secret = decrypt(TEXT, &passphrase("nostr")).unwrap();
        assert_eq!(hex::encode(secret.to_bytes()), KEY);
        let upper = TEXT.to_uppercase();
        assert!(decrypt(&format!(" {upper}\n"), &passphrase("nostr")).is_ok());
        for wrong in ["Nostr", "nostr "] {
            assert_eq!(decrypt(TEXT, &passphrase(wrong)).unwrap_err(), EncryptedKeyError::Wrong);
        }
    }

    /// The second example: one passphrase in two forms.
    #[test]
    fn passphrases_are_normalised() {
        let normalised = passphrase("\u{212B}\u{2126}\u{1E9B}\u{0323}");
        assert_eq!(normalised.0.as_bytes(), [0xC3, 0x85, 0xCE, 0xA9, 0xE1, 0xB9, 0xA9]);
        assert_eq!(normalised, passphrase("\u{C5}\u{3A9}\u{1E69}"));
        assert_eq!(format!("{normalised:?}"), "Passphrase(..)");
        let longest = passphrase(&"\u{FDFA}".repeat(MAX_PASSPHRASE / 3));
        assert!(longest.0.len() <= longest.0.capacity());
    }

    #[test]
    fn round_trip() {
        let secret = SecretKey::from_bytes(&[7; 32]).unwrap();
        let text = encrypt(&secret, &passphrase("correct horse"), &[9; 40]).unwrap();
        assert!(text.starts_with("ncryptsec1qg") && text.len() == TEXT.len(), "{text}");
        let back = decrypt(&text, &passphrase("correct horse")).unwrap();
        assert_eq!(*back.to_bytes(), *secret.to_bytes());
        let other = encrypt(&secret, &passphrase("correct horse"), &[8; 40]).unwrap();
        assert_ne!(text, other);
    }

    #[test]
    fn each_fault_has_its_reason() {
        let bytes: Vec<u8> = CheckedHrpstring::new::<Bech32>(TEXT).unwrap().byte_iter().collect();
        let of = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            let text = bech32::encode::<Bech32>(PREFIX, &bytes).unwrap();
            decrypt(&text, &passphrase("nostr")).unwrap_err()
        };
        assert_eq!(of(&|bytes| bytes[0] = 1), EncryptedKeyError::Version(1));
        assert_eq!(of(&|bytes| bytes[1] = 21), EncryptedKeyError::Cost(21));
        assert_eq!(of(&|bytes| bytes[1] = 255), EncryptedKeyError::Cost(255));
        assert_eq!(of(&|bytes| bytes[50] ^= 1), EncryptedKeyError::Wrong);
        assert_eq!(
            of(&|bytes| bytes[43 - 1] ^= 1),
            EncryptedKeyError::Wrong,
            "the history is authentic"
        );
        assert_eq!(of(&|bytes| bytes.truncate(90)), EncryptedKeyError::Length);
        assert_eq!(of(&|bytes| bytes.push(0)), EncryptedKeyError::Length);
        assert_eq!(of(&|bytes| bytes.clear()), EncryptedKeyError::Length);
        let nsec = SecretKey::from_bytes(&[7; 32]).unwrap().to_nsec();
        for text in ["", "ncryptsec1", &nsec, &TEXT[..TEXT.len() - 1]] {
            assert_eq!(
                decrypt(text, &passphrase("nostr")).unwrap_err(),
                EncryptedKeyError::Text
            );
        }
        assert_eq!(Passphrase::new("").unwrap_err(), EncryptedKeyError::EmptyPassphrase);
        let long = "x".repeat(MAX_PASSPHRASE + 1);
        assert_eq!(Passphrase::new(&long).unwrap_err(), EncryptedKeyError::LongPassphrase);
        let short = passphrase("1234567").check_new().unwrap_err();
        assert_eq!(short, EncryptedKeyError::ShortPassphrase);
        assert_eq!(passphrase("12345678").check_new(), Ok(()));
    }
}
