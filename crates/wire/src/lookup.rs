//! Look-ups: questions for a node's coordinates in the tree.
//!
//! Source: FIPS wire-formats, "LookupRequest" and "LookupResponse", and `proto/lookup/wire.rs`.

use crate::cursor::{Reader, Writer};
use crate::tree::SIGNATURE_LEN;
use crate::{Coords, NodeAddr, WireError};

/// Asks for a node's coordinates (FIPS wire-formats, "LookupRequest").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupRequest<'a> {
    /// Random; nodes recognise duplicates by it and return the answer along the path of the
    /// request.
    pub request_id: u64,
    /// The node whose coordinates are wanted.
    pub target: NodeAddr,
    /// The node that asks.
    pub origin: NodeAddr,
    /// Hops left.
    pub ttl: u8,
    /// Smallest transport MTU that the origin can use, in bytes; 0 if any.
    pub min_mtu: u16,
    /// The coordinates of the node that asks, never empty.
    pub origin_coords: Coords<'a>,
}

impl<'a> LookupRequest<'a> {
    /// The TTL with which a request starts.
    pub const DEFAULT_TTL: u8 = 64;

    /// Reads a body; bytes behind the coordinates are ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::EmptyCoords`].
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        Ok(Self {
            request_id: r.u64()?,
            target: r.addr()?,
            origin: r.addr()?,
            ttl: r.u8()?,
            min_mtu: r.u16()?,
            origin_coords: Coords::read_some(&mut r)?,
        })
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        8 + NodeAddr::LEN + NodeAddr::LEN + 1 + 2 + self.origin_coords.wire_len()
    }

    /// Writes the body and returns [`LookupRequest::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::EmptyCoords`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = Writer::new(out);
        w.u64(self.request_id).addr(&self.target).addr(&self.origin);
        w.u8(self.ttl).u16(self.min_mtu);
        self.origin_coords.some()?.write(&mut w)?;
        w.finish()
    }
}

/// Answers a [`LookupRequest`], along its path in reverse (FIPS wire-formats, "LookupResponse").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupResponse<'a> {
    /// The request that this answers.
    pub request_id: u64,
    /// The node whose coordinates were wanted.
    pub target: NodeAddr,
    /// Smallest link MTU on the return path, in bytes; lowered by each hop and not proven.
    pub path_mtu: u16,
    /// The coordinates of the target, never empty.
    pub target_coords: Coords<'a>,
    /// Signature of the target over [`LookupResponse::emit_proof_message`].
    pub proof: &'a [u8; SIGNATURE_LEN],
}

impl<'a> LookupResponse<'a> {
    /// The path MTU with which a response starts: unknown.
    pub const INITIAL_PATH_MTU: u16 = u16::MAX;

    /// Reads a body; bytes behind the proof are ignored, as the FIPS daemon does.
    ///
    /// # Errors
    /// [`WireError::TooShort`], [`WireError::EmptyCoords`].
    pub fn parse(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        Ok(Self {
            request_id: r.u64()?,
            target: r.addr()?,
            path_mtu: r.u16()?,
            target_coords: Coords::read_some(&mut r)?,
            proof: r.array_ref()?,
        })
    }

    /// Bytes of the body.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        8 + NodeAddr::LEN + 2 + self.target_coords.wire_len() + SIGNATURE_LEN
    }

    /// Writes the body and returns [`LookupResponse::wire_len`].
    ///
    /// # Errors
    /// [`WireError::BufferTooSmall`], [`WireError::EmptyCoords`], [`WireError::TooLong`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, WireError> {
        let mut w = Writer::new(out);
        w.u64(self.request_id).addr(&self.target).u16(self.path_mtu);
        self.target_coords.some()?.write(&mut w)?;
        w.bytes(self.proof).finish()
    }

    /// Bytes that [`LookupResponse::emit_proof_message`] writes.
    #[must_use]
    pub const fn proof_message_len(&self) -> usize {
        proof_message_len(self.target_coords)
    }

    /// Writes what the proof signs; see [`emit_proof_message`].
    ///
    /// # Errors
    /// Like [`emit_proof_message`].
    pub fn emit_proof_message(&self, out: &mut [u8]) -> Result<usize, WireError> {
        emit_proof_message(self.request_id, self.target, self.target_coords, out)
    }
}

/// Bytes that [`emit_proof_message`] writes for these coordinates.
#[must_use]
pub const fn proof_message_len(target_coords: Coords<'_>) -> usize {
    8 + NodeAddr::LEN + target_coords.wire_len()
}

/// Writes what a target signs to prove its answer: request, target, and its coordinates *with*
/// their 2-byte count, which FIPS's text does not mention. Returns the length.
///
/// # Errors
/// [`WireError::BufferTooSmall`], [`WireError::TooLong`].
pub fn emit_proof_message(
    request_id: u64,
    target: NodeAddr,
    target_coords: Coords<'_>,
    out: &mut [u8],
) -> Result<usize, WireError> {
    let mut w = Writer::new(out);
    w.u64(request_id).addr(&target);
    target_coords.write(&mut w)?;
    w.finish()
}
