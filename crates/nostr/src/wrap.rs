//! Messages of one node for another one, as FIPS wraps them for relays (NIP-59).
//!
//! ```text
//! event of kind 21059, by a key that is used once   for p = recipient
//!   seal of kind 13, signed by the sender           encrypted for the recipient
//!     rumor of kind 14, unsigned                    encrypted for the recipient
//! ```
//!
//! A relay learns for which key a message is, and not from which one. Reading has two steps, each of
//! which costs a Diffie-Hellman: [`Seal::unwrap`] shows which key claims to be the sender, and
//! [`Seal::open`] verifies that. Between the two, a caller refuses strangers.
//!
//! The signature of the outer event is by a key of which nothing is known: it proves nothing that
//! the MAC of the encryption does not, and is not verified.

use rand_core::CryptoRng;
use thiserror::Error;
use weft_noise::{Identity, KeyError, PublicKey, SecretKey};

use crate::event::{Event, EventError, Rumor, Unsigned, Unverified};
use crate::nip44::{ConversationKey, Nip44Error};

/// The kind of the outer event: ephemeral, so that relays do not store it.
pub const KIND: u16 = 21_059;
/// The kind of a seal (NIP-59).
pub const SEAL: u16 = 13;
/// The kind of a rumor: a private message (NIP-17).
pub const RUMOR: u16 = 14;
/// Seconds by which the time of a seal may lie in the past, at random (NIP-59).
pub const BLUR: u64 = 2 * 86_400;
/// The longest content of an outer event in characters: that of a seal with a document of 8 KiB. What
/// is longer is not decrypted.
pub const MAX_CONTENT: usize = 32_768;

/// The reason why an event is not read as a message for this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WrapError {
    /// Not of kind [`KIND`], or without a tag `p` with the key of this node.
    #[error("the event is no message for this node")]
    NotForUs,
    /// A content of more than [`MAX_CONTENT`] characters.
    #[error("the message has {0} characters, which are too many")]
    TooLong(usize),
    /// The outer key is not a point of the curve.
    #[error("the key of the message: {0}")]
    Key(KeyError),
    /// What is encrypted, on which of both levels.
    #[error("the {0} cannot be decrypted: {1}")]
    Encryption(&'static str, Nip44Error),
    /// The seal is not an event, or its signature is wrong.
    #[error("the seal: {0}")]
    Seal(EventError),
    /// The seal has another kind.
    #[error("the seal has kind {0}")]
    SealKind(u16),
    /// The rumor cannot be read.
    #[error("the rumor: {0}")]
    Rumor(EventError),
    /// The rumor has another kind.
    #[error("the rumor has kind {0}")]
    RumorKind(u16),
    /// The rumor is of another key than the seal: the sender passes on what is not its own.
    #[error("the rumor is not by the sender")]
    Author,
}

/// Wraps a text of at most 8 KiB for `recipient`. `now` and `expires` are in seconds since 1970.
///
/// # Errors
/// [`EventError`] of the events: [`EventError::TooLong`] for a text that is too long,
/// [`EventError::Control`] for control characters in it.
pub fn wrap(
    sender: &Identity,
    recipient: &PublicKey,
    text: &str,
    now: u64,
    expires: u64,
    rng: &mut (impl CryptoRng + ?Sized),
) -> Result<Event, EventError> {
    let body = Unsigned {
        created_at: now,
        kind: RUMOR,
        tags: vec![vec!["p".into(), hex(recipient)]],
        content: text.to_owned(),
    };
    let rumor = Rumor::new(*sender.public().as_bytes(), body)?;
    let past = u64::from(rng.next_u32()) % BLUR;
    let seal = Unsigned {
        created_at: now.saturating_sub(past),
        kind: SEAL,
        tags: Vec::new(),
        content: encrypted(sender.secret(), recipient, &rumor.to_json(), rng)?,
    };
    let seal = Event::sign(sender, seal)?;
    let once = Identity::new(SecretKey::generate(rng));
    let outer = Unsigned {
        created_at: now,
        kind: KIND,
        tags: vec![
            vec!["p".into(), hex(recipient)],
            vec!["expiration".into(), expires.to_string()],
        ],
        content: encrypted(once.secret(), recipient, &seal.to_json(), rng)?,
    };
    match outer.content.len() {
        length if length > MAX_CONTENT => Err(EventError::TooLong(length)),
        _ => Event::sign(&once, outer),
    }
}

fn encrypted(
    own: &SecretKey,
    recipient: &PublicKey,
    text: &str,
    rng: &mut (impl CryptoRng + ?Sized),
) -> Result<String, EventError> {
    let mut nonce = [0; 32];
    rng.fill_bytes(&mut nonce);
    let key = ConversationKey::new(own, recipient);
    key.encrypt(&nonce, text).map_err(|_| EventError::TooLong(text.len()))
}

fn hex(key: &PublicKey) -> String {
    data_encoding::HEXLOWER.encode(key.as_bytes())
}

/// Checks whether an event is for `own`, without computing anything: what costs is for those.
///
/// # Errors
/// [`WrapError::NotForUs`], [`WrapError::TooLong`].
pub fn check(own: &PublicKey, outer: &Unverified) -> Result<(), WrapError> {
    let body = outer.body();
    if body.kind != KIND || body.tag_value("p") != Some(hex(own).as_str()) {
        return Err(WrapError::NotForUs);
    }
    match body.content.len() {
        length if length > MAX_CONTENT => Err(WrapError::TooLong(length)),
        _ => Ok(()),
    }
}

/// What a message claims about its sender; nothing is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal(Unverified);

/// A message, and the key that proved to have sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The sender.
    pub sender: PublicKey,
    /// The text.
    pub text: String,
}

impl Seal {
    /// Decrypts the outer event. It costs a Diffie-Hellman, and no signature.
    ///
    /// # Errors
    /// [`WrapError`].
    pub fn unwrap(own: &Identity, outer: &Unverified) -> Result<Self, WrapError> {
        check(&own.public(), outer)?;
        let once = PublicKey::from_bytes(outer.pubkey()).map_err(WrapError::Key)?;
        let json = ConversationKey::new(own.secret(), &once)
            .decrypt(&outer.body().content)
            .map_err(|error| WrapError::Encryption("message", error))?;
        let seal = Unverified::read(json.as_bytes()).map_err(WrapError::Seal)?;
        match seal.body().kind {
            SEAL => Ok(Self(seal)),
            kind => Err(WrapError::SealKind(kind)),
        }
    }

    /// The key that the seal claims to be of.
    #[must_use]
    pub const fn sender(&self) -> &[u8; 32] {
        self.0.pubkey()
    }

    /// Verifies the seal and decrypts what is in it. It costs a signature and a Diffie-Hellman.
    ///
    /// # Errors
    /// [`WrapError`].
    pub fn open(self, own: &Identity) -> Result<Opened, WrapError> {
        let seal = self.0.verify().map_err(WrapError::Seal)?;
        let json = ConversationKey::new(own.secret(), seal.signer())
            .decrypt(&seal.body().content)
            .map_err(|error| WrapError::Encryption("seal", error))?;
        let rumor = Rumor::read(json.as_bytes()).map_err(WrapError::Rumor)?;
        if rumor.body().kind != RUMOR {
            return Err(WrapError::RumorKind(rumor.body().kind));
        }
        if rumor.author() != seal.signer().as_bytes() {
            return Err(WrapError::Author);
        }
        Ok(Opened {
            sender: *seal.signer(),
            text: rumor.body().content.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
