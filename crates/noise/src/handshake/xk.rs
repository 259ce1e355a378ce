//! Noise XK as FIPS uses it: three messages authenticate a session end to end. The initiator
//! reveals its identity in the last one, and only to the responder.
//!
//! ```text
//!   <- s                    known beforehand
//!   -> e, es                33 bytes
//!   <- e, ee, {epoch}       57 bytes
//!   -> s, se, {epoch}       73 bytes
//! ```
//!
//! Formats: FIPS `docs/reference/wire-formats.md`, session handshake; meaning:
//! `src/noise/handshake.rs`. Nothing in the first message authenticates: any 33 bytes that are a
//! point of the curve get an answer.

use std::fmt;

use rand_core::CryptoRng;
use secp256k1::PublicKey as Point;

use super::{NoiseError, ephemeral_point, parse_msg2, static_point};
use crate::{
    Established, Identity, PublicKey, SecretKey,
    keys::wipe_stack,
    symmetric::{EPOCH_LEN, POINT_LEN, Role, SEALED_EPOCH_LEN, SEALED_POINT_LEN, SealedEpoch, SealedPoint, Symmetric},
};

/// Length of the first message: an ephemeral key.
pub const MSG1_LEN: usize = POINT_LEN;
/// Length of the second message: ephemeral key, sealed epoch.
pub const MSG2_LEN: usize = super::MSG2_LEN;
/// Length of the third message: sealed static key, sealed epoch.
pub const MSG3_LEN: usize = SEALED_POINT_LEN + SEALED_EPOCH_LEN;

const PROTOCOL: &[u8] = b"Noise_XK_secp256k1_ChaChaPoly_SHA256";

/// The side that opens a session.
#[derive(Debug, Clone, Copy)]
pub struct Initiator;

impl Initiator {
    /// Writes the first message, for the node that holds the secret key of `remote`.
    ///
    /// This step does not need the node's own identity. The ephemeral key comes from `rng`.
    pub fn start(remote: PublicKey, rng: &mut (impl CryptoRng + ?Sized)) -> (AwaitingMsg2, [u8; MSG1_LEN]) {
        let started = Self::computed_start(remote, rng);
        wipe_stack();
        started
    }

    #[inline(never)]
    fn computed_start(remote: PublicKey, rng: &mut (impl CryptoRng + ?Sized)) -> (AwaitingMsg2, [u8; MSG1_LEN]) {
        let ephemeral = SecretKey::generate(rng);
        let mut symmetric = Symmetric::start(PROTOCOL, &remote);
        let e = ephemeral.public_point();
        symmetric.mix_hash(&e);
        symmetric.mix_key(&ephemeral.dh(&remote.point()));
        let pending = AwaitingMsg2 {
            ephemeral,
            remote,
            symmetric,
        };
        (pending, e)
    }
}

/// An initiator that waits for the second message.
pub struct AwaitingMsg2 {
    ephemeral: SecretKey,
    remote: PublicKey,
    symmetric: Symmetric,
}

impl AwaitingMsg2 {
    /// Reads the second message and writes the third, which completes the handshake on this side.
    ///
    /// `epoch` is the random number of this node's start. A message that fails leaves the state
    /// unchanged: the genuine one can still arrive. The same second message gives the same third,
    /// byte for byte.
    ///
    /// # Errors
    ///
    /// [`NoiseError::Length`], [`NoiseError::EphemeralKey`] or [`NoiseError::EpochSealed`].
    pub fn finish(
        &self,
        identity: &Identity,
        msg2: &[u8],
        epoch: [u8; EPOCH_LEN],
    ) -> Result<([u8; MSG3_LEN], Established), NoiseError> {
        let established = self.computed_finish(identity, msg2, epoch);
        wipe_stack();
        established
    }

    #[inline(never)]
    fn computed_finish(
        &self,
        identity: &Identity,
        msg2: &[u8],
        epoch: [u8; EPOCH_LEN],
    ) -> Result<([u8; MSG3_LEN], Established), NoiseError> {
        let (e, sealed_epoch) = parse_msg2(msg2)?;
        let remote_ephemeral = ephemeral_point(e)?;
        let mut symmetric = self.symmetric.clone();
        symmetric.mix_hash(e);
        symmetric.mix_key(&self.ephemeral.dh(&remote_ephemeral));
        let remote_epoch = symmetric.decrypt(sealed_epoch).ok_or(NoiseError::EpochSealed)?;

        let sealed_static: SealedPoint = symmetric.encrypt(&identity.secret().public_point());
        symmetric.mix_key(&identity.secret().dh(&remote_ephemeral));
        let sealed_epoch: SealedEpoch = symmetric.encrypt(&epoch);

        let mut message = [0; MSG3_LEN];
        message[..SEALED_POINT_LEN].copy_from_slice(&sealed_static);
        message[SEALED_POINT_LEN..].copy_from_slice(&sealed_epoch);
        let established = symmetric.split(Role::Initiator, self.remote, remote_epoch);
        Ok((message, established))
    }
}

impl fmt::Debug for AwaitingMsg2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("xk::AwaitingMsg2")
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

/// The side that answers. It has no state until a first message arrives.
#[derive(Debug, Clone, Copy)]
pub struct Responder;

impl Responder {
    /// Reads a first message and writes the second.
    ///
    /// `epoch` is the random number of this node's start. The ephemeral key comes from `rng`. The
    /// sender is unknown until the third message.
    ///
    /// # Errors
    ///
    /// [`NoiseError::Length`] or [`NoiseError::EphemeralKey`].
    pub fn read(
        identity: &Identity,
        msg1: &[u8],
        epoch: [u8; EPOCH_LEN],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Result<(AwaitingMsg3, [u8; MSG2_LEN]), NoiseError> {
        let answered = Self::computed_read(identity, msg1, epoch, rng);
        wipe_stack();
        answered
    }

    #[inline(never)]
    fn computed_read(
        identity: &Identity,
        msg1: &[u8],
        epoch: [u8; EPOCH_LEN],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Result<(AwaitingMsg3, [u8; MSG2_LEN]), NoiseError> {
        let e: &[u8; POINT_LEN] = msg1.try_into().map_err(|_| NoiseError::Length {
            expected: MSG1_LEN,
            got: msg1.len(),
        })?;
        let remote_ephemeral = ephemeral_point(e)?;
        let mut symmetric = Symmetric::start(PROTOCOL, &identity.public());
        symmetric.mix_hash(e);
        symmetric.mix_key(&identity.secret().dh(&remote_ephemeral));
        Ok(answer(symmetric, &remote_ephemeral, epoch, rng))
    }
}

fn answer(
    mut symmetric: Symmetric,
    remote_ephemeral: &Point,
    epoch: [u8; EPOCH_LEN],
    rng: &mut (impl CryptoRng + ?Sized),
) -> (AwaitingMsg3, [u8; MSG2_LEN]) {
    let ephemeral = SecretKey::generate(rng);
    let e = ephemeral.public_point();
    symmetric.mix_hash(&e);
    symmetric.mix_key(&ephemeral.dh(remote_ephemeral));
    let sealed_epoch: SealedEpoch = symmetric.encrypt(&epoch);

    let mut message = [0; MSG2_LEN];
    message[..POINT_LEN].copy_from_slice(&e);
    message[POINT_LEN..].copy_from_slice(&sealed_epoch);
    let pending = AwaitingMsg3 { ephemeral, symmetric };
    (pending, message)
}

/// A responder that waits for the third message.
pub struct AwaitingMsg3 {
    ephemeral: SecretKey,
    symmetric: Symmetric,
}

impl AwaitingMsg3 {
    /// Reads the third message and ends the handshake: the initiator is now known.
    ///
    /// A message that fails leaves the state unchanged: the genuine one can still arrive.
    ///
    /// # Errors
    ///
    /// [`NoiseError::Length`], [`NoiseError::StaticSealed`], [`NoiseError::StaticKey`] or
    /// [`NoiseError::EpochSealed`].
    pub fn finish(&self, msg3: &[u8]) -> Result<Established, NoiseError> {
        let established = self.computed_finish(msg3);
        wipe_stack();
        established
    }

    #[inline(never)]
    fn computed_finish(&self, msg3: &[u8]) -> Result<Established, NoiseError> {
        let (sealed_static, sealed_epoch) = parse_msg3(msg3)?;
        let mut symmetric = self.symmetric.clone();
        let remote_static = symmetric.decrypt(sealed_static).ok_or(NoiseError::StaticSealed)?;
        let remote_static = static_point(&remote_static)?;
        symmetric.mix_key(&self.ephemeral.dh(&remote_static));
        let remote_epoch = symmetric.decrypt(sealed_epoch).ok_or(NoiseError::EpochSealed)?;
        let remote = PublicKey::from_point(&remote_static);
        Ok(symmetric.split(Role::Responder, remote, remote_epoch))
    }
}

impl fmt::Debug for AwaitingMsg3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("xk::AwaitingMsg3").finish_non_exhaustive()
    }
}

fn parse_msg3(message: &[u8]) -> Result<(&SealedPoint, &SealedEpoch), NoiseError> {
    let parts = || {
        let (sealed_static, rest) = message.split_first_chunk()?;
        Some((sealed_static, rest.try_into().ok()?))
    };
    parts().ok_or(NoiseError::Length {
        expected: MSG3_LEN,
        got: message.len(),
    })
}
