//! The sizes of paths, as tests set and read them.

use weft_core::{Event, KnownSize, PeerStatus, SizeSource};
use weft_sim::{Conditions, HostId, World};

/// The largest size that probes try over IPv4 and relays, and the one that every path takes.
pub(crate) const CEILING: u16 = 1_472;
pub(crate) const SURE: u16 = 1_232;

/// A path with this MTU, bytes of UDP payload.
pub(crate) fn narrow(mtu: u16) -> Conditions {
    Conditions {
        mtu,
        ..Conditions::default()
    }
}

pub(crate) fn status(world: &World, of: HostId, peer: HostId) -> PeerStatus {
    let key = world.host(peer).key;
    let mut all = world.host(of).node.peer_status(world.now());
    all.find(|p| p.key == key).unwrap()
}

pub(crate) fn size(world: &World, of: HostId, peer: HostId) -> KnownSize {
    status(world, of, peer).path_size.unwrap()
}

pub(crate) fn found(payload: u16) -> KnownSize {
    KnownSize {
        payload,
        source: SizeSource::Probed,
        searching: false,
    }
}

/// Sends one packet of `len` bytes every 20 ms. Returns how many arrived.
pub(crate) fn stream(world: &mut World, a: HostId, b: HostId, count: u32, len: usize) -> usize {
    let before = world.host(b).received.len();
    for seq in 0..count {
        world.send(a, b, seq, len);
        world.run(20);
    }
    world.run(500);
    assert_eq!(world.host(b).garbled, 0);
    world.host(b).received.len() - before
}

/// Sends one packet of `len` bytes every 20 ms for 10 s. Returns the time until the first one arrived, ms.
pub(crate) fn until_one_arrives(world: &mut World, a: HostId, b: HostId, len: usize) -> u64 {
    let (now, before) = (world.now(), world.host(b).received.len());
    for seq in 0..500 {
        world.send(a, b, seq, len);
        world.run(20);
    }
    world.host(b).received.get(before).unwrap().0 - now
}

pub(crate) fn black_holes(world: &World, of: HostId) -> usize {
    let events = world.host(of).events.iter();
    let holes = events.filter(|(_, event)| matches!(event, Event::PathSized { black_hole: true, .. }));
    holes.count()
}
