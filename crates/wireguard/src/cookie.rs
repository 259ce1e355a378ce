//! MAC1, MAC2 and cookies (paper, sections 5.3, 5.4.4 and 5.4.7).
//!
//! Each handshake message ends with two MACs. MAC1 shows that its sender knows the public key of the receiver: without
//! that a node is silent. MAC2 is under a cookie, which a node under load sends to the address that a message names as its
//! source. So it shows that the sender receives at that address.

use std::net::{IpAddr, SocketAddr};

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use rand_core::CryptoRng;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

use crate::keys::{KEY_LEN, PublicKey};
use crate::message::{CookieReply, MAC_LEN, NONCE_LEN, TAG_LEN};
use crate::noise::{hash, mac};

/// How long a cookie is of use, and how long a node keeps the secret behind its cookies, in ms (paper, section 5.4.7).
pub const COOKIE_LIFE: u64 = 120_000;

const LABEL_MAC1: &[u8] = b"mac1----";
const LABEL_COOKIE: &[u8] = b"cookie--";

/// What follows from the public key of a receiver.
#[derive(Clone)]
pub struct Labels {
    mac1: [u8; KEY_LEN],
    cookie: [u8; KEY_LEN],
}

impl Labels {
    /// Computes them for messages to the owner of `receiver`.
    #[must_use]
    pub fn new(receiver: &PublicKey) -> Self {
        let of = |label| hash(&[label, receiver.as_bytes()]);
        Self {
            mac1: of(LABEL_MAC1),
            cookie: of(LABEL_COOKIE),
        }
    }

    /// Whether MAC1 of a handshake message is right.
    #[must_use]
    pub fn is_for_us(&self, message: &[u8]) -> bool {
        let Some((signed, mac1, _)) = parts(message) else {
            return false;
        };
        equal(&mac(&self.mac1, &[signed]), mac1)
    }
}

/// Splits a handshake message into what MAC1 covers, MAC1, and MAC2.
fn parts(message: &[u8]) -> Option<(&[u8], &[u8; MAC_LEN], &[u8; MAC_LEN])> {
    let (rest, mac2) = message.split_last_chunk()?;
    let (signed, mac1) = rest.split_last_chunk()?;
    Some((signed, mac1, mac2))
}

/// Compares in constant time.
fn equal(a: &[u8; MAC_LEN], b: &[u8; MAC_LEN]) -> bool {
    let differing = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differing) == 0
}

/// Makes and checks the cookies of one node.
pub struct Oven {
    secret: [u8; KEY_LEN],
    /// When the secret is replaced.
    ends: u64,
}

impl Oven {
    /// Begins without a secret.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            secret: [0; KEY_LEN],
            ends: 0,
        }
    }

    /// Returns the cookie of an address: 16 bytes that only this node can compute, for [`COOKIE_LIFE`] at most.
    fn cookie(&mut self, now: u64, from: SocketAddr, rng: &mut (impl CryptoRng + ?Sized)) -> [u8; MAC_LEN] {
        if now >= self.ends {
            rng.fill_bytes(&mut self.secret);
            self.ends = now + COOKIE_LIFE;
        }
        let port = from.port().to_be_bytes();
        match from.ip() {
            IpAddr::V4(ip) => mac(&self.secret, &[&ip.octets(), &port]),
            IpAddr::V6(ip) => mac(&self.secret, &[&ip.octets(), &port]),
        }
    }

    /// Whether MAC2 of a handshake message shows that its sender receives at `from`.
    pub fn proves(&mut self, now: u64, from: SocketAddr, message: &[u8], rng: &mut (impl CryptoRng + ?Sized)) -> bool {
        let Some((signed, mac1, mac2)) = parts(message) else {
            return false;
        };
        let cookie = self.cookie(now, from, rng);
        equal(&mac(&cookie, &[signed, mac1]), mac2)
    }

    /// Returns the answer to a handshake message from `from`: its cookie, sealed under the public key of this node and
    /// bound to the message, so that an attacker that does not see the message can forge no answer.
    pub fn reply(
        &mut self,
        now: u64,
        (from, receiver): (SocketAddr, u32),
        message: &[u8],
        labels: &Labels,
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Option<CookieReply> {
        let (_, mac1, _) = parts(message)?;
        let mut nonce = [0; NONCE_LEN];
        rng.fill_bytes(&mut nonce);
        let mut sealed = [0; MAC_LEN + TAG_LEN];
        let (cookie, tag) = sealed.split_at_mut(MAC_LEN);
        cookie.copy_from_slice(&self.cookie(now, from, rng));
        let cipher = XChaCha20Poly1305::new(&labels.cookie.into());
        let made = cipher.encrypt_inout_detached(&XNonce::from(nonce), mac1, cookie.into());
        tag.copy_from_slice(&made.ok()?);
        Some(CookieReply {
            receiver,
            nonce,
            sealed_cookie: sealed,
        })
    }
}

impl Default for Oven {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Oven {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl ZeroizeOnDrop for Oven {}

/// Puts MACs on messages to one peer, and keeps the cookie that it has sent.
pub struct Jar {
    labels: Labels,
    /// The cookie, and when it came.
    cookie: Option<(Zeroizing<[u8; MAC_LEN]>, u64)>,
    /// MAC1 of the last message, to which a cookie reply is bound.
    last: Option<[u8; MAC_LEN]>,
}

impl Jar {
    /// Begins without a cookie.
    #[must_use]
    pub fn new(peer: &PublicKey) -> Self {
        Self {
            labels: Labels::new(peer),
            cookie: None,
            last: None,
        }
    }

    /// Appends both MACs to a message. MAC2 is zero without a cookie.
    pub fn sign(&mut self, now: u64, message: &mut Vec<u8>) {
        let mac1 = mac(&self.labels.mac1, &[message]);
        message.extend_from_slice(&mac1);
        self.last = Some(mac1);
        self.cookie.take_if(|(_, at)| now.saturating_sub(*at) >= COOKIE_LIFE);
        let mac2 = match &self.cookie {
            Some((cookie, _)) => mac(&cookie[..], &[message]),
            None => [0; MAC_LEN],
        };
        message.extend_from_slice(&mac2);
    }

    /// Handles a cookie reply to the last message. Returns whether it is authentic. One cookie is taken for each
    /// message.
    pub fn take(&mut self, now: u64, reply: &CookieReply) -> bool {
        let Some(mac1) = self.last else { return false };
        let (mut cookie, mut tag) = (Zeroizing::new([0; MAC_LEN]), Tag::default());
        cookie.copy_from_slice(&reply.sealed_cookie[..MAC_LEN]);
        tag.copy_from_slice(&reply.sealed_cookie[MAC_LEN..]);
        let cipher = XChaCha20Poly1305::new(&self.labels.cookie.into());
        let opened = cipher.decrypt_inout_detached(&XNonce::from(reply.nonce), &mac1, cookie[..].as_mut().into(), &tag);
        if opened.is_ok() {
            self.cookie = Some((cookie, now));
            self.last = None;
        }
        opened.is_ok()
    }
}

#[cfg(test)]
mod tests;
