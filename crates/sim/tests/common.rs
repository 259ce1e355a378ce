//! Shared parts of the tests with two hosts.

pub(crate) mod fleet;
pub(crate) mod reaching;
pub(crate) mod sizes;
pub(crate) mod two_networks;

use weft_sim::{HostId, World};

/// Sends probes in both directions, one every 20 ms. Returns how many arrived at each end.
pub(crate) fn stream(world: &mut World, a: HostId, b: HostId, count: u32) -> (usize, usize) {
    let before = (world.host(b).received.len(), world.host(a).received.len());
    for seq in 0..count {
        world.send(a, b, seq, 200);
        world.send(b, a, seq, 200);
        world.run(20);
    }
    world.run(1_000);
    assert_eq!((world.host(a).garbled, world.host(b).garbled), (0, 0));
    (
        world.host(b).received.len() - before.0,
        world.host(a).received.len() - before.1,
    )
}
