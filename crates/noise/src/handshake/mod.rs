//! The two handshakes, one file each, and their errors.

use secp256k1::PublicKey as Point;
use thiserror::Error;

use crate::memo::recalled;
use crate::symmetric::{POINT_LEN, SEALED_EPOCH_LEN, SealedEpoch};

pub mod ik;
pub mod xk;

/// Why a handshake message is refused. The state that refused it stays unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoiseError {
    /// The message has another length than its kind always has.
    #[error("the handshake message has {got} bytes where {expected} belong")]
    Length {
        /// The length of this kind of message, in bytes.
        expected: usize,
        /// The length of the input, in bytes.
        got: usize,
    },
    /// The ephemeral key, sent in the clear, is not a compressed point of the curve.
    #[error("the ephemeral key of the handshake message is not a point on the curve")]
    EphemeralKey,
    /// The static key does not authenticate: the message was made for another node, or altered.
    #[error("the static key of the handshake message does not decrypt: it is meant for another node, or altered")]
    StaticSealed,
    /// The static key authenticates but is not a compressed point of the curve.
    #[error("the static key of the handshake message is not a point on the curve")]
    StaticKey,
    /// The epoch does not authenticate: the sender lacks the secret key that it claims, the message
    /// answers another one, or it was altered.
    #[error("the handshake message does not authenticate: its sender is not who it claims to be, or it is altered")]
    EpochSealed,
}

/// The second message has one form in both patterns: ephemeral key, sealed epoch.
const MSG2_LEN: usize = POINT_LEN + SEALED_EPOCH_LEN;

fn parse_msg2(message: &[u8]) -> Result<(&[u8; POINT_LEN], &SealedEpoch), NoiseError> {
    let parts = || {
        let (e, rest) = message.split_first_chunk()?;
        Some((e, rest.try_into().ok()?))
    };
    parts().ok_or(NoiseError::Length {
        expected: MSG2_LEN,
        got: message.len(),
    })
}

fn ephemeral_point(bytes: &[u8; POINT_LEN]) -> Result<Point, NoiseError> {
    point(bytes).ok_or(NoiseError::EphemeralKey)
}

fn static_point(bytes: &[u8; POINT_LEN]) -> Result<Point, NoiseError> {
    point(bytes).ok_or(NoiseError::StaticKey)
}

fn point(bytes: &[u8; POINT_LEN]) -> Option<Point> {
    recalled!(
        *bytes,
        [u8; POINT_LEN] => Option<Point>,
        Point::from_byte_array_compressed(*bytes).ok()
    )
}
