//! `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` in two messages (paper, sections 5.4.2 to 5.4.5).
//!
//! The initiator has [`begin`] and [`Initiating::finish`]. The responder has three steps, so that each costs only
//! senders that have passed the one before: [`Opening::read`] (one Diffie-Hellman) says who the sender claims to be,
//! [`Opening::prove`] (no further one) shows that it is, and [`Proven::answer`] (two) makes the keys.

use rand_core::CryptoRng;
use thiserror::Error;
use weft_noise::{Key, wipe_stack};

use crate::keys::{KEY_LEN, PresharedKey, PrivateKey, PublicKey, WeakKey};
use crate::message::{Initiation, Response, TIMESTAMP_LEN};
use crate::noise::Transcript;
use crate::transport::Keys;

/// A message of a handshake is forged, damaged, or for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// It does not open.
    #[error("the message does not authenticate")]
    Forged,
    /// A public key in it gives no secret.
    #[error("{0}")]
    Weak(#[from] WeakKey),
}

/// The private key of a node, with its public key.
#[derive(Debug, Clone)]
pub struct Own {
    private: PrivateKey,
    public: PublicKey,
}

impl Own {
    /// Computes the public key once.
    #[must_use]
    pub fn new(private: PrivateKey) -> Self {
        let public = private.public();
        Self { private, public }
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }
}

/// What a node knows of a peer before any handshake.
pub struct Remote {
    public: PublicKey,
    /// The Diffie-Hellman of the two static keys.
    shared: Key,
    preshared: PresharedKey,
}

impl Remote {
    /// Computes what all handshakes with the owner of `public` have in common.
    ///
    /// # Errors
    /// [`WeakKey`]: no handshake with such a peer is secret.
    pub fn new(own: &Own, public: PublicKey, preshared: Option<PresharedKey>) -> Result<Self, WeakKey> {
        Ok(Self {
            public,
            shared: own.private.agree(&public)?,
            preshared: preshared.unwrap_or_else(PresharedKey::none),
        })
    }

    /// Returns the public key of the peer.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Whether the other one has the same keys.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let [own, theirs] = [self, other].map(|remote| remote.preshared.as_bytes());
        let differing = own.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b));
        self.public == other.public && std::hint::black_box(differing) == 0
    }
}

/// State of an initiator between the two messages.
pub struct Initiating {
    ephemeral: PrivateKey,
    transcript: Transcript,
    local: u32,
}

/// Begins a handshake. `local` is the index by which the peer shall address this end, `timestamp` is later than that
/// of each earlier handshake with the peer.
///
/// # Errors
/// [`WeakKey`]: the ephemeral key is unlucky, with a probability of 2^-250.
pub fn begin(
    own: &Own,
    remote: &Remote,
    (local, timestamp): (u32, [u8; TIMESTAMP_LEN]),
    rng: &mut (impl CryptoRng + ?Sized),
) -> Result<(Initiating, Initiation), WeakKey> {
    let begun = begun(own, remote, (local, timestamp), rng);
    wipe_stack();
    begun
}

#[inline(never)]
fn begun(
    own: &Own,
    remote: &Remote,
    (local, timestamp): (u32, [u8; TIMESTAMP_LEN]),
    rng: &mut (impl CryptoRng + ?Sized),
) -> Result<(Initiating, Initiation), WeakKey> {
    let ephemeral = PrivateKey::generate(rng);
    let public = *ephemeral.public().as_bytes();
    let mut transcript = Transcript::new(&remote.public);
    transcript.mix_ephemeral(&public);
    let cipher = transcript.mix_for_cipher(ephemeral.agree(&remote.public)?.as_bytes());
    let sealed_static = transcript.seal(&cipher, *own.public.as_bytes());
    let cipher = transcript.mix_for_cipher(remote.shared.as_bytes());
    let sealed_timestamp = transcript.seal(&cipher, timestamp);
    let initiating = Initiating {
        ephemeral,
        transcript,
        local,
    };
    let message = Initiation {
        sender: local,
        ephemeral: public,
        sealed_static,
        sealed_timestamp,
    };
    Ok((initiating, message))
}

impl Initiating {
    /// Handles the response. A forged one changes nothing: the true one can follow.
    ///
    /// # Errors
    /// [`HandshakeError`]: the response is not that of the peer.
    pub fn finish(&self, own: &Own, remote: &Remote, response: &Response) -> Result<Keys, HandshakeError> {
        let keys = self.finished(own, remote, response);
        wipe_stack();
        keys
    }

    #[inline(never)]
    fn finished(&self, own: &Own, remote: &Remote, response: &Response) -> Result<Keys, HandshakeError> {
        let mut transcript = self.transcript.clone();
        let theirs = PublicKey::from_bytes(response.ephemeral);
        transcript.mix_ephemeral(&response.ephemeral);
        transcript.mix(self.ephemeral.agree(&theirs)?.as_bytes());
        transcript.mix(own.private.agree(&theirs)?.as_bytes());
        let cipher = transcript.mix_preshared(remote.preshared.as_bytes());
        let empty: Option<[u8; 0]> = transcript.open(&cipher, response.sealed_empty);
        empty.ok_or(HandshakeError::Forged)?;
        let [send, receive] = transcript.split();
        Ok(Keys {
            local: self.local,
            remote: response.sender,
            send,
            receive,
        })
    }
}

/// A first message whose sender has said who it is, which is not proven.
pub struct Opening {
    message: Initiation,
    transcript: Transcript,
    claimed: PublicKey,
}

impl Opening {
    /// Opens the static key in a first message.
    ///
    /// # Errors
    /// [`HandshakeError`]: the message is not for this node, or damaged.
    pub fn read(own: &Own, message: &Initiation) -> Result<Self, HandshakeError> {
        let opening = Self::opened(own, message);
        wipe_stack();
        opening
    }

    #[inline(never)]
    fn opened(own: &Own, message: &Initiation) -> Result<Self, HandshakeError> {
        let mut transcript = Transcript::new(&own.public);
        transcript.mix_ephemeral(&message.ephemeral);
        let theirs = PublicKey::from_bytes(message.ephemeral);
        let cipher = transcript.mix_for_cipher(own.private.agree(&theirs)?.as_bytes());
        let claimed: [u8; KEY_LEN] = transcript
            .open(&cipher, message.sealed_static)
            .ok_or(HandshakeError::Forged)?;
        Ok(Self {
            message: *message,
            transcript,
            claimed: PublicKey::from_bytes(claimed),
        })
    }

    /// Returns who the sender claims to be.
    #[must_use]
    pub const fn claimed(&self) -> &PublicKey {
        &self.claimed
    }

    /// Shows that the sender is `remote`, and opens the timestamp. An attacker can repeat an old message, so only a
    /// timestamp later than all others counts.
    ///
    /// # Errors
    /// [`HandshakeError::Forged`]: the sender does not have the private key.
    pub fn prove(self, remote: &Remote) -> Result<Proven, HandshakeError> {
        let proven = self.proven(remote);
        wipe_stack();
        proven
    }

    #[inline(never)]
    fn proven(mut self, remote: &Remote) -> Result<Proven, HandshakeError> {
        let cipher = self.transcript.mix_for_cipher(remote.shared.as_bytes());
        let timestamp = self
            .transcript
            .open(&cipher, self.message.sealed_timestamp)
            .ok_or(HandshakeError::Forged)?;
        Ok(Proven {
            opening: self,
            timestamp,
        })
    }
}

/// A first message whose sender is proven, and which may be a repeated one.
pub struct Proven {
    opening: Opening,
    timestamp: [u8; TIMESTAMP_LEN],
}

impl Proven {
    /// Returns the timestamp. Its order is that of its bytes.
    #[must_use]
    pub const fn timestamp(&self) -> &[u8; TIMESTAMP_LEN] {
        &self.timestamp
    }

    /// Answers, and returns the keys. `local` is the index by which the peer shall address this end.
    ///
    /// # Errors
    /// [`WeakKey`]: a public key of the message gives no secret.
    pub fn answer(
        self,
        remote: &Remote,
        local: u32,
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Result<(Keys, Response), WeakKey> {
        let answered = self.answered(remote, local, rng);
        wipe_stack();
        answered
    }

    #[inline(never)]
    fn answered(
        self,
        remote: &Remote,
        local: u32,
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Result<(Keys, Response), WeakKey> {
        let Opening {
            message,
            mut transcript,
            claimed,
        } = self.opening;
        let ephemeral = PrivateKey::generate(rng);
        let public = *ephemeral.public().as_bytes();
        transcript.mix_ephemeral(&public);
        transcript.mix(ephemeral.agree(&PublicKey::from_bytes(message.ephemeral))?.as_bytes());
        transcript.mix(ephemeral.agree(&claimed)?.as_bytes());
        let cipher = transcript.mix_preshared(remote.preshared.as_bytes());
        let sealed_empty = transcript.seal(&cipher, []);
        let [receive, send] = transcript.split();
        let keys = Keys {
            local,
            remote: message.sender,
            send,
            receive,
        };
        let response = Response {
            sender: local,
            receiver: message.sender,
            ephemeral: public,
            sealed_empty,
        };
        Ok((keys, response))
    }
}

#[cfg(test)]
mod tests;
