//! Encryption of texts for one key (NIP-44, version 2).
//!
//! ```text
//! payload = base64(0x02 || nonce (32) || ciphertext || MAC (32))
//! ```
//!
//! Both ends compute the same conversation key from their own secret and the other's public key. It
//! gives keys for each nonce. A payload proves its sender to its receiver alone, and each holder of
//! one of both secrets can make it: what it contains is signed.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use data_encoding::BASE64;
use hkdf::Hkdf;
use hkdf::hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;
use weft_noise::{PublicKey, SecretKey};
use zeroize::Zeroizing;

/// The longest plaintext in bytes.
pub const MAX_PLAINTEXT: usize = 65_535;
/// The shortest and the longest payload in characters.
pub const PAYLOAD: std::ops::RangeInclusive<usize> = 132..=87_472;

const SALT: &[u8] = b"nip44-v2";
const VERSION: u8 = 2;
const NONCE: usize = 32;
const MAC: usize = 32;
/// The length of a plaintext goes before it.
const LENGTH: usize = 2;
const LEAST_PADDED: usize = 32;

/// The reason why a text is not encrypted, or a payload not decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Nip44Error {
    /// A plaintext of 0 or of more than [`MAX_PLAINTEXT`] bytes.
    #[error("a plaintext has 1 to 65,535 bytes, this one has {0}")]
    Length(usize),
    /// A payload of another length than [`PAYLOAD`].
    #[error("a payload has 132 to 87,472 characters, this one has {0}")]
    PayloadLength(usize),
    /// A payload of another version.
    #[error("the payload has another version than 2")]
    Version,
    /// Not base64 with padding, or with more than one spelling.
    #[error("the payload is not base64")]
    Base64,
    /// The payload was altered, or is for another key or of another one.
    #[error("the payload does not belong to these two keys")]
    Mac,
    /// The length does not belong to the padding.
    #[error("the padding of the plaintext is wrong")]
    Padding,
    /// The plaintext is not UTF-8.
    #[error("the plaintext is not UTF-8")]
    Utf8,
}

/// What two keys have in common. It is wiped when dropped.
pub struct ConversationKey(Zeroizing<[u8; 32]>);

struct MessageKeys {
    cipher: ChaCha20,
    mac: Hmac<Sha256>,
}

impl ConversationKey {
    /// The key of `own` and `other`. It costs a Diffie-Hellman.
    #[must_use]
    pub fn new(own: &SecretKey, other: &PublicKey) -> Self {
        let shared = own.shared_x(other);
        let (mut prk, _) = Hkdf::<Sha256>::extract(Some(SALT), &*shared);
        let mut key = Zeroizing::new([0; 32]);
        key.copy_from_slice(&prk);
        zeroize::Zeroize::zeroize(prk.as_mut_slice());
        Self(key)
    }

    /// Encrypts a text. A nonce is random, and never used twice.
    ///
    /// # Errors
    /// [`Nip44Error::Length`].
    pub fn encrypt(&self, nonce: &[u8; NONCE], plaintext: &str) -> Result<String, Nip44Error> {
        let length = plaintext.len();
        let padded = match u16::try_from(length) {
            Ok(1..) => padded(length),
            _ => return Err(Nip44Error::Length(length)),
        };
        let mut out = Vec::with_capacity(1 + NONCE + LENGTH + padded + MAC);
        out.push(VERSION);
        out.extend_from_slice(nonce);
        out.extend_from_slice(&(length as u16).to_be_bytes());
        out.extend_from_slice(plaintext.as_bytes());
        out.resize(1 + NONCE + LENGTH + padded, 0);
        let mut keys = self.message_keys(nonce);
        keys.cipher.apply_keystream(&mut out[1 + NONCE..]);
        keys.mac.update(&out[1..]);
        let mac = keys.mac.finalize().into_bytes();
        out.extend_from_slice(&mac);
        Ok(BASE64.encode(&out))
    }

    /// Decrypts a payload. Nothing is decrypted before the MAC was verified.
    ///
    /// # Errors
    /// [`Nip44Error`], other than `Length`.
    pub fn decrypt(&self, payload: &str) -> Result<String, Nip44Error> {
        if payload.starts_with('#') {
            return Err(Nip44Error::Version);
        }
        if !PAYLOAD.contains(&payload.len()) {
            return Err(Nip44Error::PayloadLength(payload.len()));
        }
        let mut bytes = BASE64.decode(payload.as_bytes()).map_err(|_| Nip44Error::Base64)?;
        let (version, rest) = bytes.split_first_mut().ok_or(Nip44Error::Base64)?;
        if *version != VERSION {
            return Err(Nip44Error::Version);
        }
        let short = Nip44Error::PayloadLength(payload.len());
        let at = rest.len().checked_sub(MAC).ok_or(short)?;
        let (sealed, mac) = rest.split_at_mut(at);
        let nonce = *sealed.first_chunk::<NONCE>().ok_or(short)?;
        let mut keys = self.message_keys(&nonce);
        keys.mac.update(sealed);
        keys.mac.verify_slice(mac).map_err(|_| Nip44Error::Mac)?;
        let plain = &mut sealed[NONCE..];
        keys.cipher.apply_keystream(plain);
        let text = unpadded(plain).ok_or(Nip44Error::Padding)?;
        std::str::from_utf8(text)
            .map(str::to_owned)
            .map_err(|_| Nip44Error::Utf8)
    }

    fn message_keys(&self, nonce: &[u8; NONCE]) -> MessageKeys {
        let mut bytes = Zeroizing::new([0; 76]);
        // Neither can fail: 32 bytes are a key of HKDF, and 76 less than it gives.
        if let Ok(hkdf) = Hkdf::<Sha256>::from_prk(&*self.0) {
            let _ = hkdf.expand(nonce, &mut *bytes);
        }
        let (key, iv) = (bytes[..32].as_ref(), bytes[32..44].as_ref());
        let (mut cipher_key, mut cipher_iv) = (chacha20::Key::default(), chacha20::cipher::Iv::<ChaCha20>::default());
        cipher_key.copy_from_slice(key);
        cipher_iv.copy_from_slice(iv);
        let mut mac_key = hkdf::hmac::digest::Key::<Hmac<Sha256>>::default();
        mac_key[..32].copy_from_slice(&bytes[44..]);
        let keys = MessageKeys {
            cipher: ChaCha20::new(&cipher_key, &cipher_iv),
            mac: Hmac::new(&mac_key),
        };
        zeroize::Zeroize::zeroize(cipher_key.as_mut_slice());
        zeroize::Zeroize::zeroize(mac_key.as_mut_slice());
        keys
    }
}

impl std::fmt::Debug for ConversationKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConversationKey(..)")
    }
}

/// The length to which a plaintext of 1 to 65,535 bytes is padded: a multiple of 32 bytes, or of an
/// eighth of the next power of two.
const fn padded(length: usize) -> usize {
    if length <= LEAST_PADDED {
        return LEAST_PADDED;
    }
    let next_power = length.next_power_of_two();
    let chunk = if next_power <= 256 {
        LEAST_PADDED
    } else {
        next_power / 8
    };
    length.div_ceil(chunk) * chunk
}

fn unpadded(plain: &[u8]) -> Option<&[u8]> {
    let (length, rest) = plain.split_first_chunk::<LENGTH>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    (length > 0 && rest.len() == padded(length)).then(|| rest.get(..length))?
}

#[cfg(test)]
mod tests;
