//! A host with several addresses: from which of them it answers, and what forged and lost ones do.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use weft_core::{Config, Event, Path};
use weft_sim::{Fate, HostId, NatKind, World};

use crate::common::stream;

/// A host with two addresses, and a peer that dials the second one.
struct Net {
    world: World,
    host: HostId,
    peer: HostId,
    first: SocketAddr,
    second: SocketAddr,
    /// Datagrams of the host that left from its first address.
    from_first: Rc<Cell<usize>>,
}

impl Net {
    fn new(seed: u64, nat: Option<NatKind>) -> Self {
        let mut world = World::new(seed);
        let [host, peer] = [0; 2].map(|_| world.add_host(Config::default()));
        let (first, second) = (world.host(host).addr, world.add_alias(host));
        if let Some(kind) = nat {
            world.put_behind(peer, kind);
        }
        let from_first = Rc::new(Cell::new(0));
        let count = from_first.clone();
        world.set_rule(move |_, d| {
            count.set(count.get() + usize::from(d.from == host && d.src == first));
            Fate::Pass
        });
        world.add_peer_at(host, peer, Vec::new());
        world.add_peer_at(peer, host, vec![second]);
        Self {
            world,
            host,
            peer,
            first,
            second,
            from_first,
        }
    }

    /// Passes packets both ways, and asserts that none is lost.
    fn assert_passes(&mut self, count: u32) {
        let passed = stream(&mut self.world, self.host, self.peer, count);
        assert_eq!(passed, (count as usize, count as usize));
    }

    /// The path of the peer to the host.
    fn path(&self) -> Option<Path> {
        let now = self.world.now();
        self.world.host(self.peer).node.peer_status(now).next().unwrap().path
    }
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    for seed in 0..100 {
        for nat in [None, Some(NatKind::PortRestricted), Some(NatKind::Symmetric)] {
            let mut net = Net::new(seed, nat);
            net.world.run(1_000);
            net.assert_passes(100);
            // Rekeys, idle hours and probes, too.
            net.world.run(600_000);
            net.assert_passes(100);
            assert_eq!(net.path(), Some(Path::Direct(net.second)), "seed {seed}, {nat:?}");
            assert_eq!(net.from_first.get(), 0, "seed {seed}, {nat:?}");
        }
    }
}

#[test]
fn a_link_outlives_the_address_that_was_asked() {
    for seed in 0..100 {
        let mut net = Net::new(seed, None);
        net.world.run(1_000);
        net.assert_passes(50);
        net.world.remove_alias(net.host, net.second);
        let (gone, now) = (net.second.ip(), net.world.now());
        let node = &mut net.world.host_mut(net.host).node;
        node.forget_local_ends(now, |local| local.ip == gone);
        node.handle_network_change(now);
        net.world.run(1_000);
        net.assert_passes(100);
        assert_eq!(net.path(), Some(Path::Direct(net.first)), "seed {seed}");
        // The host takes frames at its first address for those of the link, and asks nothing.
        let before = net.world.host(net.host).lane.counters().path_copies;
        net.assert_passes(100);
        assert_eq!(net.world.host(net.host).lane.counters().path_copies, before);
    }
}

/// A bystander sends a copy of each frame of the peer to the other address of the host, so that it
/// arrives first. A firewall in front of the peer would drop what left from there.
#[test]
fn copies_to_another_address_move_no_link() {
    for seed in 0..20 {
        let mut net = Net::new(seed, Some(NatKind::PortRestricted));
        net.world.run(1_000);
        net.assert_passes(50);
        let heard = Rc::new(RefCell::new(Vec::new()));
        let (tap, [host, peer], count) = (heard.clone(), [net.host, net.peer], net.from_first.clone());
        let first = net.first;
        net.world.set_rule(move |_, d| {
            count.set(count.get() + usize::from(d.from == host && d.src == first));
            if d.from != peer {
                return Fate::Pass;
            }
            tap.borrow_mut().push((d.src, d.dst, d.bytes.clone()));
            Fate::Drop
        });
        for step in 0..10_000_u32 {
            if step % 20 == 0 {
                net.world.send(net.host, net.peer, step, 300);
                net.world.send(net.peer, net.host, step, 300);
            }
            net.world.run(1);
            for (src, dst, bytes) in heard.take() {
                net.world.inject(src, first, bytes.clone());
                net.world.inject(src, dst, bytes);
            }
        }
        net.world.set_rule(|_, _| Fate::Pass);
        assert!(net.from_first.get() > 3, "it asked there");
        net.world.run(1_000);
        net.assert_passes(100);
        assert_eq!(net.path(), Some(Path::Direct(net.second)), "seed {seed}");
    }
}

/// A laptop leaves the LAN of its peer, and a relay is in reach from its other address.
#[test]
fn a_relay_takes_over_when_the_address_of_a_link_is_gone() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        let [host, peer, relay] = [0; 3].map(|_| world.add_host(config));
        let second = world.add_alias(host);
        let (at, of_relay) = (world.host(peer).addr, world.host(relay).addr);
        let left = Rc::new(Cell::new(false));
        let has_left = left.clone();
        world.set_rule(move |_, d| {
            let between = d.from == host && d.dst == at || d.from == peer && d.dst != of_relay;
            if has_left.get() && between {
                Fate::Drop
            } else {
                Fate::Pass
            }
        });
        world.add_peer_at(host, peer, Vec::new());
        world.add_peer_at(peer, host, vec![second]);
        for end in [host, peer] {
            world.add_peer(end, relay, true);
            world.add_peer(relay, end, false);
        }
        world.run(3_000);
        stream(&mut world, host, peer, 300);
        left.set(true);
        world.remove_alias(host, second);
        let now = world.now();
        let node = &mut world.host_mut(host).node;
        node.forget_local_ends(now, |local| local.ip == second.ip());
        node.handle_network_change(now);
        let before = world.host(peer).received.len();
        while world.host(peer).received.len() == before {
            assert!(world.now() < now + 400, "seed {seed}: nothing passes");
            world.send(host, peer, 0, 200);
            world.run(10);
        }
        let silent = |(at, event): &(u64, Event)| {
            *at >= now && matches!(event, Event::LinkSilent { peer } if *peer == world.host(relay).key)
        };
        assert!(
            !world.host(host).events.iter().any(silent),
            "the link with the relay is not affected"
        );
    }
}
