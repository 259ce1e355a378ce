//! Offers and answers: the documents by which two nodes agree to punch (FIPS; nvpn sends the same ones
//! in session messages 0x16 and 0x17).
//!
//! An offer has the addresses of its sender; the answer has those of the other node, or says that it
//! has none. Both then send punch packets with the key of the session id. Times are milliseconds
//! since 1970, by the clock of the sender.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;
use weft_noise::PublicKey;
use weft_reach::nat::is_private;

use crate::address::Address;
use crate::json::{self, OverLimit};

/// How long an offer or answer holds, in ms.
pub const TTL: u64 = 120_000;
/// By how much the clocks of two nodes may differ, in ms.
pub const SKEW: u64 = 60_000;
/// Addresses of a document that are looked at, at most.
pub const MAX_ADDRESSES: usize = 16;
/// Targets that follow from a document, at most.
pub const MAX_TARGETS: usize = 8;
/// Bytes of a document in a session: with its frame it fits into 1,200 bytes of UDP payload, which
/// every usable path has.
pub const MAX_IN_SESSION: usize = 1_094;
/// Bytes of a session id or nonce.
pub const MAX_ID: usize = 64;
/// Milliseconds from an answer to the first punch packet, between two, and in which they are sent: what
/// FIPS says in its answers, and does whatever an answer says.
pub const PUNCH: Punch = Punch {
    start_at_ms: 2_000,
    interval_ms: 200,
    duration_ms: 10_000,
};
/// The reason of an answer that accepts nothing since its sender has no address to name.
pub const NO_ADDRESSES: &str = "no-usable-addresses";

/// When punch packets are sent, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Punch {
    /// From the answer to the first one.
    pub start_at_ms: u64,
    /// Between two.
    pub interval_ms: u64,
    /// From the first one to the last.
    pub duration_ms: u64,
}

/// An offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// What the punch packets are recognised by: another one for each offer.
    pub session_id: String,
    /// When it was made.
    pub issued_at: u64,
    /// Until when it holds; at most [`TTL`] later.
    pub expires_at: u64,
    /// What the answer repeats; the same as the session id.
    pub nonce: String,
    /// The sender as `npub1...`.
    pub sender_npub: String,
    /// The recipient as `npub1...`.
    pub recipient_npub: String,
    /// The address under which a STUN server sees the sender.
    pub reflexive_address: Option<Address>,
    /// Addresses of the sender's host.
    pub local_addresses: Vec<Address>,
    /// The server that said so, for information.
    pub stun_server: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The session id of the offer.
    pub session_id: String,
    /// When it was made.
    pub issued_at: u64,
    /// Until when it holds; at most [`TTL`] later.
    pub expires_at: u64,
    /// Another one for each answer.
    pub nonce: String,
    /// The sender as `npub1...`.
    pub sender_npub: String,
    /// The recipient as `npub1...`.
    pub recipient_npub: String,
    /// The nonce of the offer. (FIPS's text says: the id of its event.)
    pub in_reply_to: String,
    /// Whether the sender punches.
    pub accepted: bool,
    /// The address under which a STUN server sees the sender.
    pub reflexive_address: Option<Address>,
    /// Addresses of the sender's host.
    pub local_addresses: Vec<Address>,
    /// The server that said so, for information.
    pub stun_server: Option<String>,
    /// When the sender punches, for information.
    pub punch: Option<Punch>,
    /// Why it does not.
    pub reason: Option<String>,
    /// When the offer came, by the clock of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_received_at: Option<u64>,
}

/// An offer or an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Signal {
    /// An offer.
    Offer(Offer),
    /// An answer.
    Answer(Answer),
}

/// The reason why a document does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SignalError {
    /// The text exceeds [`json::DOCUMENT`].
    #[error("{0}")]
    OverLimit(#[from] OverLimit),
    /// Another form.
    #[error("the text is neither an offer nor an answer")]
    Form,
    /// A session id or nonce that is empty, longer than [`MAX_ID`] bytes or not printable ASCII.
    #[error("the session id or nonce has a wrong length or character")]
    Id,
    /// Another sender or recipient than those of the message.
    #[error("sender or recipient are others than those of the message")]
    Identity,
    /// Older than [`TTL`] and [`SKEW`], or over by its own word.
    #[error("it is too old; do both clocks agree?")]
    Old,
    /// More than [`SKEW`] ahead of the clock of this node.
    #[error("it comes from the future; do both clocks agree?")]
    Future,
    /// An answer to something else.
    #[error("the answer belongs to another offer")]
    Session,
    /// An answer that accepts and names no address.
    #[error("the answer accepts and names no address")]
    NoAddress,
    /// An answer that does not accept and gives no reason.
    #[error("the answer does not accept and gives no reason")]
    NoReason,
}

impl Signal {
    /// Reads a document. Fields of a later version are passed over.
    ///
    /// # Errors
    /// [`SignalError::OverLimit`], [`SignalError::Form`], [`SignalError::Id`].
    pub fn read(text: &str) -> Result<Self, SignalError> {
        json::check(text.as_bytes(), json::DOCUMENT)?;
        let signal: Self = serde_json::from_str(text).map_err(|_| SignalError::Form)?;
        let ids = match &signal {
            Self::Offer(offer) => vec![&offer.session_id, &offer.nonce],
            Self::Answer(answer) => vec![&answer.session_id, &answer.nonce, &answer.in_reply_to],
        };
        let good = |id: &&String| (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        match ids.iter().all(good) {
            true => Ok(signal),
            false => Err(SignalError::Id),
        }
    }

    /// The document, in the order of fields that FIPS has.
    #[must_use]
    pub fn to_json(&self) -> String {
        // There is nothing in it that JSON lacks.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The document with as many local addresses as fit into so many bytes, the first ones.
    #[must_use]
    pub fn to_json_within(&self, most: usize) -> String {
        let mut signal = self.clone();
        loop {
            let text = signal.to_json();
            let local = match &mut signal {
                Self::Offer(offer) => &mut offer.local_addresses,
                Self::Answer(answer) => &mut answer.local_addresses,
            };
            if text.len() <= most || local.pop().is_none() {
                return text;
            }
        }
    }
}

/// What both documents have, apart from their fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Own {
    /// The address that others see.
    pub reflexive: Option<SocketAddr>,
    /// Addresses of the host.
    pub local: Vec<SocketAddr>,
}

impl Own {
    /// Whether there is an address to name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reflexive.is_none() && self.local.is_empty()
    }

    /// Whether others see the node at an address that its host does not have.
    #[must_use]
    pub fn is_behind_nat(&self) -> bool {
        self.reflexive.is_some_and(|at| !self.local.contains(&at))
    }

    fn local(&self) -> Vec<Address> {
        self.local
            .iter()
            .take(MAX_ADDRESSES)
            .map(|at| Address::from(*at))
            .collect()
    }
}

/// A session id as FIPS has them: the time in ms, and 16 hexadecimal digits.
#[must_use]
pub fn session_id(now: u64, random: u64) -> String {
    format!("{now}-{random:016x}")
}

/// The key by which punch packets of a session are recognised: the first 16 bytes of SHA-256 of its id.
#[must_use]
pub fn punch_key(session_id: &str) -> [u8; 16] {
    let hash: [u8; 32] = Sha256::digest(session_id).into();
    let mut key = [0; 16];
    key.copy_from_slice(&hash[..16]);
    key
}

impl Offer {
    /// Makes an offer of `sender` for `recipient`.
    #[must_use]
    pub fn new(session_id: String, sender: &PublicKey, recipient: &PublicKey, own: &Own, now: u64) -> Self {
        Self {
            nonce: session_id.clone(),
            session_id,
            issued_at: now,
            expires_at: now + TTL,
            sender_npub: sender.to_string(),
            recipient_npub: recipient.to_string(),
            reflexive_address: own.reflexive.map(Address::from),
            local_addresses: own.local(),
            stun_server: None,
        }
    }

    /// Checks an offer that came from `sender` to this node, `own`, at `now`.
    ///
    /// # Errors
    /// [`SignalError::Identity`], [`SignalError::Old`], [`SignalError::Future`].
    pub fn check(&self, sender: &PublicKey, own: &PublicKey, now: u64) -> Result<(), SignalError> {
        fresh(self.issued_at, self.expires_at, now)?;
        same(sender, &self.sender_npub)?;
        same(own, &self.recipient_npub)
    }

    /// Makes the answer of the recipient, which got the offer at `received` and has these addresses:
    /// one that accepts if there is an address.
    #[must_use]
    pub fn answer(&self, nonce: String, own: &Own, received: u64, now: u64) -> Answer {
        let accepted = !own.is_empty();
        Answer {
            session_id: self.session_id.clone(),
            issued_at: now,
            expires_at: now + TTL,
            nonce,
            sender_npub: self.recipient_npub.clone(),
            recipient_npub: self.sender_npub.clone(),
            in_reply_to: self.nonce.clone(),
            accepted,
            reflexive_address: own.reflexive.map(Address::from),
            local_addresses: own.local(),
            stun_server: None,
            punch: accepted.then_some(PUNCH),
            reason: (!accepted).then(|| NO_ADDRESSES.to_owned()),
            offer_received_at: Some(received),
        }
    }

    /// Where its sender may be, for a node with these addresses.
    #[must_use]
    pub fn targets(&self, own: &Own) -> Vec<SocketAddr> {
        targets(self.reflexive_address.as_ref(), &self.local_addresses, own)
    }
}

impl Answer {
    /// Checks an answer that came from `sender` at `now`, against the offer of this node.
    ///
    /// # Errors
    /// [`SignalError`].
    pub fn check(&self, offer: &Offer, sender: &PublicKey, now: u64) -> Result<(), SignalError> {
        fresh(offer.issued_at, offer.expires_at, now)?;
        fresh(self.issued_at, self.expires_at, now)?;
        if self.session_id != offer.session_id || self.in_reply_to != offer.nonce {
            return Err(SignalError::Session);
        }
        same(sender, &offer.recipient_npub)?;
        same(sender, &self.sender_npub)?;
        if self.recipient_npub != offer.sender_npub {
            return Err(SignalError::Identity);
        }
        if self.accepted && self.reflexive_address.is_none() && self.local_addresses.is_empty() {
            return Err(SignalError::NoAddress);
        }
        if !self.accepted && self.reason.as_deref().unwrap_or_default().is_empty() {
            return Err(SignalError::NoReason);
        }
        Ok(())
    }

    /// By how many ms the clock of its sender is ahead, if offer and answer took as long; `None` without
    /// the time at which the offer came.
    #[must_use]
    pub fn skew(&self, offer: &Offer, now: u64) -> Option<i64> {
        let difference = |one: u64, two: u64| i128::from(one) - i128::from(two);
        let sum = difference(self.offer_received_at?, offer.issued_at) + difference(self.issued_at, now);
        i64::try_from(sum / 2).ok()
    }

    /// Where its sender may be, for a node with these addresses.
    #[must_use]
    pub fn targets(&self, own: &Own) -> Vec<SocketAddr> {
        targets(self.reflexive_address.as_ref(), &self.local_addresses, own)
    }
}

fn same(key: &PublicKey, npub: &str) -> Result<(), SignalError> {
    match key.to_string() == npub {
        true => Ok(()),
        false => Err(SignalError::Identity),
    }
}

/// FIPS's rule: a document holds from when it was made until it is over, or [`TTL`] has passed, with
/// [`SKEW`] more in both directions.
fn fresh(issued_at: u64, expires_at: u64, now: u64) -> Result<(), SignalError> {
    if issued_at.saturating_sub(now) > SKEW {
        return Err(SignalError::Future);
    }
    let over = expires_at.min(issued_at.saturating_add(TTL)).saturating_add(SKEW) <= now;
    match over || now.saturating_sub(issued_at) > TTL + SKEW {
        true => Err(SignalError::Old),
        false => Ok(()),
    }
}

/// The address that others see first, then those of the host: public ones, and private ones that
/// may be in a network of this node.
fn targets(reflexive: Option<&Address>, local: &[Address], own: &Own) -> Vec<SocketAddr> {
    let near = |at: &SocketAddr| {
        let ours = own.local.iter().chain(&own.reflexive);
        !is_private(at.ip()) || ours.map(SocketAddr::ip).any(|ip| shares_prefix(ip, at.ip()))
    };
    let local = local
        .iter()
        .take(MAX_ADDRESSES)
        .filter_map(Address::socket)
        .filter(near);
    let mut targets: Vec<SocketAddr> = Vec::new();
    for at in reflexive.and_then(Address::socket).into_iter().chain(local) {
        let own = own.local.contains(&at) || own.reflexive == Some(at);
        if targets.len() < MAX_TARGETS && !own && !targets.contains(&at) {
            targets.push(at);
        }
    }
    targets
}

/// Whether two addresses have the first 24 bits of IPv4, or 64 of IPv6, in common.
fn shares_prefix(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(one), IpAddr::V6(other)) => one.octets()[..8] == other.octets()[..8],
        _ => false,
    }
}

#[cfg(test)]
mod tests;
