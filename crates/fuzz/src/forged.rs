//! Forged bodies of link messages: well formed, signed with the sender's own key if the format
//! needs it, and untrue. Tests of several crates send them as a hostile neighbour.

use weft_noise::Identity;
use weft_wire::filter::{FILTER_LEN, FilterAnnounce};
use weft_wire::link::SessionDatagram;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::session::SessionSetup;
use weft_wire::signal::{CoordsRequired, PathBroken, Signal};
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce, declaration_bytes};
use weft_wire::{Coords, NodeAddr};

/// A TreeAnnounce: the sender claims to be below `above`, whose first is its parent; if `above` is
/// empty, it claims to be a root.
pub fn tree(sender: &Identity, sequence: u64, unix: u64, above: &[NodeAddr]) -> Vec<u8> {
    let me = sender.node_addr();
    let parent = above.first().copied().unwrap_or(me);
    let path: Vec<_> = std::iter::once(me)
        .chain(above.iter().copied())
        .map(|addr| AncestryEntry {
            addr,
            sequence,
            timestamp: unix,
        })
        .collect();
    let announce = TreeAnnounce {
        sequence,
        timestamp: unix,
        parent,
        ancestry: Ancestry::new(&path),
        signature: &sender.sign(&declaration_bytes(me, parent, sequence, unix)),
    };
    written(announce.wire_len(), |out| announce.emit(out).is_ok())
}

/// A FilterAnnounce in which the first `ones` bits are set.
pub fn filter(sequence: u64, ones: usize) -> Vec<u8> {
    let mut bits = [0; FILTER_LEN];
    for bit in 0..ones.min(8 * FILTER_LEN) {
        bits[bit / 8] |= 1 << (bit % 8);
    }
    let announce = FilterAnnounce {
        sequence,
        hash_count: 5,
        bits: &bits,
    };
    written(FilterAnnounce::LEN, |out| announce.emit(out).is_ok())
}

/// A LookupRequest of any origin for any target.
pub fn request(id: u64, origin: &[NodeAddr], target: NodeAddr) -> Vec<u8> {
    let request = LookupRequest {
        request_id: id,
        target,
        origin: origin.first().copied().unwrap_or(target),
        ttl: LookupRequest::DEFAULT_TTL,
        min_mtu: 0,
        origin_coords: Coords::new(origin),
    };
    written(request.wire_len(), |out| request.emit(out).is_ok())
}

/// A LookupResponse of any target at any coordinates, with an invalid proof.
pub fn response(id: u64, target: &[NodeAddr]) -> Vec<u8> {
    let Some(node) = target.first() else { return Vec::new() };
    let response = LookupResponse {
        request_id: id,
        target: *node,
        path_mtu: 1_280,
        target_coords: Coords::new(target),
        proof: &[7; 64],
    };
    written(response.wire_len(), |out| response.emit(out).is_ok())
}

/// A SessionDatagram between any two nodes.
pub fn datagram(src: NodeAddr, dest: NodeAddr, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let datagram = SessionDatagram {
        ttl,
        path_mtu: 1_280,
        src,
        dest,
        payload,
    };
    written(datagram.wire_len(), |out| datagram.emit(out).is_ok())
}

/// The payload of a SessionDatagram that announces the coordinates of both ends, like a
/// SessionSetup, with keys of no node.
pub fn setup(src: &[NodeAddr], dest: &[NodeAddr]) -> Vec<u8> {
    let setup = SessionSetup {
        flags: 0,
        src: Coords::new(src),
        dest: Coords::new(dest),
        noise: &[2; 33],
    };
    written(setup.wire_len(), |out| setup.emit(out).is_ok())
}

/// The payload by which `reporter` reports that it has no coordinates of `about`, or with
/// coordinates that the path is broken.
pub fn signal(reporter: NodeAddr, about: NodeAddr, coords: &[NodeAddr]) -> Vec<u8> {
    let dest = about;
    let signal = match coords {
        [] => Signal::CoordsRequired(CoordsRequired { dest, reporter }),
        coords => Signal::PathBroken(PathBroken {
            dest,
            reporter,
            last_coords: Coords::new(coords),
        }),
    };
    let mut payload = vec![0; 64 + NodeAddr::LEN * coords.len()];
    let len = signal.emit(&mut payload).unwrap_or_default();
    payload.truncate(len);
    payload
}

/// The bytes that `emit` writes; empty if the format cannot express the message.
fn written(len: usize, emit: impl FnOnce(&mut [u8]) -> bool) -> Vec<u8> {
    let mut body = vec![0; len];
    if emit(&mut body) { body } else { Vec::new() }
}
