//! Noise IK as FIPS uses it: two messages authenticate a link between neighbours.
//!
//! ```text
//!   <- s                           known beforehand
//!   -> e, es, s, ss, {epoch}       106 bytes
//!   <- e, ee, se, {epoch}           57 bytes
//! ```
//!
//! Formats: FIPS `docs/reference/wire-formats.md`, link handshake; meaning:
//! `src/noise/handshake.rs`. Any host that recorded the first message can replay it; only a frame
//! under the new keys proves that its sender is present.

use std::fmt;

use rand_core::CryptoRng;
use secp256k1::PublicKey as Point;

use super::{NoiseError, ephemeral_point, parse_msg2, static_point};
use crate::{
    Established, Identity, Key, PublicKey, SecretKey,
    keys::wipe_stack,
    symmetric::{EPOCH_LEN, POINT_LEN, Role, SEALED_EPOCH_LEN, SEALED_POINT_LEN, SealedEpoch, SealedPoint, Symmetric},
};

/// Length of the first message: ephemeral key, sealed static key, sealed epoch.
pub const MSG1_LEN: usize = POINT_LEN + SEALED_POINT_LEN + SEALED_EPOCH_LEN;
/// Length of the second message: ephemeral key, sealed epoch.
pub const MSG2_LEN: usize = super::MSG2_LEN;

const PROTOCOL: &[u8] = b"Noise_IK_secp256k1_ChaChaPoly_SHA256";

/// The side that sent the first message and waits for the second.
pub struct Initiator {
    ephemeral: SecretKey,
    remote: PublicKey,
    /// Diffie-Hellman of this node's ephemeral and the peer's static key: FIPS mixes it in as `es`,
    /// and again as `se`.
    es: Key,
    symmetric: Symmetric,
}

impl Initiator {
    /// Writes the first message, for the node that holds the secret key of `remote`.
    ///
    /// `epoch` is the random number of this node's start. The ephemeral key comes from `rng`.
    pub fn start(
        identity: &Identity,
        remote: PublicKey,
        epoch: [u8; EPOCH_LEN],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> (Self, [u8; MSG1_LEN]) {
        let started = Self::computed_start(identity, remote, epoch, rng);
        wipe_stack();
        started
    }

    #[inline(never)]
    fn computed_start(
        identity: &Identity,
        remote: PublicKey,
        epoch: [u8; EPOCH_LEN],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> (Self, [u8; MSG1_LEN]) {
        let ephemeral = SecretKey::generate(rng);
        let mut symmetric = Symmetric::start(PROTOCOL, &remote);
        let e = ephemeral.public_point();
        symmetric.mix_hash(&e);
        let es = ephemeral.dh(&remote.point());
        symmetric.mix_key(&es);
        let sealed_static: SealedPoint = symmetric.encrypt(&identity.secret().public_point());
        symmetric.mix_key(&identity.secret().dh(&remote.point()));
        let sealed_epoch: SealedEpoch = symmetric.encrypt(&epoch);

        let mut message = [0; MSG1_LEN];
        message[..POINT_LEN].copy_from_slice(&e);
        message[POINT_LEN..MSG1_LEN - SEALED_EPOCH_LEN].copy_from_slice(&sealed_static);
        message[MSG1_LEN - SEALED_EPOCH_LEN..].copy_from_slice(&sealed_epoch);
        let pending = Self {
            ephemeral,
            remote,
            es,
            symmetric,
        };
        (pending, message)
    }

    /// Reads the second message and ends the handshake.
    ///
    /// A message that fails leaves the state unchanged: the genuine one can still arrive.
    ///
    /// # Errors
    ///
    /// [`NoiseError::Length`], [`NoiseError::EphemeralKey`] or [`NoiseError::EpochSealed`].
    pub fn finish(&self, msg2: &[u8]) -> Result<Established, NoiseError> {
        let established = self.computed_finish(msg2);
        wipe_stack();
        established
    }

    #[inline(never)]
    fn computed_finish(&self, msg2: &[u8]) -> Result<Established, NoiseError> {
        let (e, sealed_epoch) = parse_msg2(msg2)?;
        let remote_ephemeral = ephemeral_point(e)?;
        let mut symmetric = self.symmetric.clone();
        symmetric.mix_hash(e);
        symmetric.mix_key(&self.ephemeral.dh(&remote_ephemeral));
        symmetric.mix_key(&self.es);
        let epoch = symmetric.decrypt(sealed_epoch).ok_or(NoiseError::EpochSealed)?;
        Ok(symmetric.split(Role::Initiator, self.remote, epoch))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ik::Initiator")
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// The side that waits for a first message. It has no state until one arrives.
#[derive(Debug, Clone, Copy)]
pub struct Responder;

impl Responder {
    /// Reads a first message: its sender and the sender's epoch.
    ///
    /// The message alone proves little; see the module's note on replay.
    ///
    /// # Errors
    ///
    /// Any [`NoiseError`]; such a message gets no answer.
    pub fn read(identity: &Identity, msg1: &[u8]) -> Result<Received, NoiseError> {
        let received = Self::computed_read(identity, msg1);
        wipe_stack();
        received
    }

    #[inline(never)]
    fn computed_read(identity: &Identity, msg1: &[u8]) -> Result<Received, NoiseError> {
        let (e, sealed_static, sealed_epoch) = parse_msg1(msg1)?;
        let remote_ephemeral = ephemeral_point(e)?;
        let mut symmetric = Symmetric::start(PROTOCOL, &identity.public());
        symmetric.mix_hash(e);
        let es = identity.secret().dh(&remote_ephemeral);
        symmetric.mix_key(&es);
        let remote_static = symmetric.decrypt(sealed_static).ok_or(NoiseError::StaticSealed)?;
        let remote_static = static_point(&remote_static)?;
        symmetric.mix_key(&identity.secret().dh(&remote_static));
        let remote_epoch = symmetric.decrypt(sealed_epoch).ok_or(NoiseError::EpochSealed)?;
        Ok(Received {
            remote: PublicKey::from_point(&remote_static),
            remote_epoch,
            remote_ephemeral,
            es,
            symmetric,
        })
    }
}

/// An authenticated first message. The caller drops it or calls [`accept`](Self::accept).
pub struct Received {
    /// The identity whose secret key the message proves.
    pub remote: PublicKey,
    /// The epoch of the sender's start.
    pub remote_epoch: [u8; EPOCH_LEN],
    remote_ephemeral: Point,
    es: Key,
    symmetric: Symmetric,
}

impl Received {
    /// Writes the second message, which completes the handshake on this side.
    ///
    /// `epoch` is the random number of this node's start. The ephemeral key comes from `rng`.
    pub fn accept(self, epoch: [u8; EPOCH_LEN], rng: &mut (impl CryptoRng + ?Sized)) -> ([u8; MSG2_LEN], Established) {
        let accepted = self.computed_accept(epoch, rng);
        wipe_stack();
        accepted
    }

    #[inline(never)]
    fn computed_accept(
        self,
        epoch: [u8; EPOCH_LEN],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> ([u8; MSG2_LEN], Established) {
        let ephemeral = SecretKey::generate(rng);
        let mut symmetric = self.symmetric;
        let e = ephemeral.public_point();
        symmetric.mix_hash(&e);
        symmetric.mix_key(&ephemeral.dh(&self.remote_ephemeral));
        symmetric.mix_key(&self.es);
        let sealed_epoch: SealedEpoch = symmetric.encrypt(&epoch);

        let mut message = [0; MSG2_LEN];
        message[..POINT_LEN].copy_from_slice(&e);
        message[POINT_LEN..].copy_from_slice(&sealed_epoch);
        let established = symmetric.split(Role::Responder, self.remote, self.remote_epoch);
        (message, established)
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ik::Received")
            .field("remote", &self.remote)
            .field("remote_epoch", &self.remote_epoch)
            .finish_non_exhaustive()
    }
}

type Msg1<'a> = (&'a [u8; POINT_LEN], &'a SealedPoint, &'a SealedEpoch);

fn parse_msg1(message: &[u8]) -> Result<Msg1<'_>, NoiseError> {
    let parts = || {
        let (e, rest) = message.split_first_chunk()?;
        let (sealed_static, rest) = rest.split_first_chunk()?;
        Some((e, sealed_static, rest.try_into().ok()?))
    };
    parts().ok_or(NoiseError::Length {
        expected: MSG1_LEN,
        got: message.len(),
    })
}
