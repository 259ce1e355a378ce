//! The bytes of look-ups, and the proof in the answer of a target.

use weft_noise::{Identity, PublicKey};
use weft_wire::lookup::{LookupRequest, LookupResponse, emit_proof_message, proof_message_len};
use weft_wire::{Coords, NodeAddr, WireError};

use super::MAX_COORDS;

/// Whether coordinates begin with this node, and have a possible depth.
pub(super) fn coords_fit(node: NodeAddr, coords: Coords<'_>) -> bool {
    coords.len() <= MAX_COORDS && coords.at(0) == Some(node)
}

/// Returns the body of a request.
pub(super) fn request_body(request: &LookupRequest<'_>) -> Result<Vec<u8>, WireError> {
    let mut body = vec![0; request.wire_len()];
    request.emit(&mut body)?;
    Ok(body)
}

/// Returns the body of a response.
pub(super) fn response_body(response: &LookupResponse<'_>) -> Result<Vec<u8>, WireError> {
    let mut body = vec![0; response.wire_len()];
    response.emit(&mut body)?;
    Ok(body)
}

/// Returns this node's signature that it is the target of this request, at these coordinates.
pub(super) fn prove(
    identity: &Identity,
    request_id: u64,
    target: NodeAddr,
    coords: Coords<'_>,
) -> Result<[u8; 64], WireError> {
    let mut message = vec![0; proof_message_len(coords)];
    emit_proof_message(request_id, target, coords, &mut message)?;
    Ok(identity.sign(&message))
}

/// Whether the holder of this key, which is the target's, made this response.
pub(super) fn is_proven(key: &PublicKey, response: &LookupResponse<'_>) -> bool {
    let mut message = vec![0; response.proof_message_len()];
    response.emit_proof_message(&mut message).is_ok() && key.verify(&message, response.proof).is_ok()
}
