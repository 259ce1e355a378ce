//! Meshes of many nodes: every node reaches every other through relays.

use weft_core::{Admit, Config, Path, PathReason};
use weft_sim::{Fate, HostId, Kind, World};

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// Hosts in a row, each dialling the one before it.
fn line(seed: u64, n: usize) -> (World, Vec<HostId>) {
    let mut world = World::new(seed);
    let hosts: Vec<HostId> = (0..n).map(|_| world.add_host(meshed())).collect();
    for pair in hosts.windows(2) {
        world.add_peer(pair[1], pair[0], true);
    }
    (world, hosts)
}

/// Makes two hosts configured peers without addresses of each other.
fn acquaint(world: &mut World, a: HostId, b: HostId) {
    world.add_peer(a, b, false);
    world.add_peer(b, a, false);
}

/// Sends `count` probes in each direction and returns how many arrived.
fn exchange(world: &mut World, a: HostId, b: HostId, count: u32, every: u64) -> (usize, usize) {
    let before = (world.host(b).received.len(), world.host(a).received.len());
    for seq in 0..count {
        world.send(a, b, seq, 200);
        world.send(b, a, seq, 200);
        world.run(every);
    }
    world.run(2_000);
    (
        world.host(b).received.len() - before.0,
        world.host(a).received.len() - before.1,
    )
}

#[test]
fn two_nodes_reach_each_other_through_a_third() {
    for seed in 0..5 {
        let (mut world, hosts) = line(seed, 3);
        acquaint(&mut world, hosts[0], hosts[2]);
        world.run(5_000);
        assert_eq!(
            exchange(&mut world, hosts[0], hosts[2], 50, 100),
            (50, 50),
            "seed {seed}"
        );
        assert_eq!(world.host(hosts[1]).received.len(), 0);
    }
}

#[test]
fn the_ends_of_a_line_reach_each_other() {
    for (seed, n) in [(1, 5), (2, 10), (3, 30)] {
        let (mut world, hosts) = line(seed, n);
        let (a, b) = (hosts[0], hosts[n - 1]);
        acquaint(&mut world, a, b);
        world.run(60_000);
        world.send(a, b, 1_000, 100);
        world.run(5_000);
        assert_eq!(exchange(&mut world, a, b, 20, 200), (20, 20), "line of {n}");
    }
}

#[test]
fn a_session_goes_round_a_cut_and_back() {
    let (mut world, hosts) = line(7, 3);
    let (a, b) = (hosts[0], hosts[2]);
    world.add_peer(a, b, true);
    world.add_peer(b, a, true);
    world.run(3_000);
    assert_eq!(exchange(&mut world, a, b, 20, 100), (20, 20));
    let (addr_a, addr_b) = (world.host(a).addr, world.host(b).addr);
    world.set_rule(move |_, d| {
        let cut = [d.src, d.dst].contains(&addr_a) && [d.src, d.dst].contains(&addr_b);
        if cut { Fate::Drop } else { Fate::Pass }
    });
    exchange(&mut world, a, b, 300, 200);
    assert_eq!(exchange(&mut world, a, b, 100, 200), (100, 100), "relayed");
    world.set_rule(|_, _| Fate::Pass);
    // The change back to the direct path costs nothing: the relay forwards until the link is
    // proven.
    assert_eq!(
        exchange(&mut world, a, b, 1_000, 25),
        (1_000, 1_000),
        "while it returns"
    );
    let status = world.host(a).node.peer_status(world.now());
    let status = status.into_iter().find(|p| p.key == world.host(b).key).unwrap();
    let last = status.path_changes.iter().map(|change| change.reason);
    assert_eq!(status.path, Some(Path::Direct(addr_b)), "direct again");
    assert_eq!(
        last.take(3).collect::<Vec<_>>(),
        // The link ended long after the session had left it.
        [PathReason::LinkUp, PathReason::Silent, PathReason::LinkUp]
    );
    assert_eq!(exchange(&mut world, a, b, 50, 100), (50, 50));
}

/// A FIPS node routes by coordinates alone and never asks for lost ones, so each end of a session
/// announces them again whenever the other one's change.
#[test]
fn both_ends_and_the_relays_follow_a_move() {
    for seed in 0..5 {
        let mut world = World::new(seed);
        let mut hosts: Vec<HostId> = (0..5).map(|_| world.add_host(meshed())).collect();
        hosts.sort_by_key(|host| world.host(*host).node_addr());
        // The node with the smallest address becomes the root when it joins last.
        let root = hosts.remove(0);
        for pair in hosts.windows(2) {
            world.add_peer(pair[1], pair[0], true);
        }
        let (a, b) = (hosts[0], hosts[3]);
        acquaint(&mut world, a, b);
        world.run(5_000);
        assert_eq!(exchange(&mut world, a, b, 5, 100), (5, 5), "seed {seed}");
        let places = |world: &World, of: HostId| {
            let (now, addr) = (world.now(), world.host(of).node_addr());
            let known = hosts.iter().map(|host| world.host(*host).node.coords_of(now, addr));
            known.map(|path| path.map(<[_]>::to_vec)).collect::<Vec<_>>()
        };
        let before = [a, b].map(|end| {
            world
                .host(end)
                .node
                .coords_of(world.now(), world.host(end).node_addr())
                .unwrap()
                .to_vec()
        });
        world.add_peer(root, hosts[1], true);
        world.run(10_000);
        for (end, before) in [a, b].into_iter().zip(before) {
            let own = world
                .host(end)
                .node
                .coords_of(world.now(), world.host(end).node_addr())
                .unwrap()
                .to_vec();
            assert_ne!(own, before, "seed {seed}: it has not moved");
            assert_eq!(own.last(), Some(&world.host(root).node_addr()), "seed {seed}");
            assert_eq!(places(&world, end), vec![Some(own); 4], "seed {seed}");
        }
    }
}

#[test]
fn the_admission_of_strangers_is_a_setting() {
    for (admit, listed, may) in [
        (Admit::Everyone, false, true),
        (Admit::Everyone, true, false),
        (Admit::Configured, false, false),
        (Admit::Configured, true, true),
    ] {
        let mesh = Config {
            mesh: true,
            admit,
            ..Config::default()
        };
        let mut world = World::new(11);
        let (host, stranger) = (world.add_host(mesh), world.add_host(mesh));
        let named = listed.then(|| world.host(stranger).node_addr());
        let (allowed, denied) = match admit {
            Admit::Everyone => (None, named),
            Admit::Configured => (named, None),
        };
        let node = &mut world.host_mut(host).node;
        node.set_admission(admit, allowed.into_iter().collect(), denied.into_iter().collect());
        world.add_peer(stranger, host, true);
        world.run(3_000);
        let status = world.host(stranger).node.peer_status(world.now()).next().unwrap();
        assert_eq!(status.link.is_some(), may, "{admit:?}, listed: {listed}");
        assert_eq!(world.host(host).node.counters().strangers > 0, !may);
        // A denied node is no news to the user who wrote its key.
        let told = world.host(host).node.turned_away(world.now()).map(|node| node.key);
        let news = (!may && !listed).then(|| world.host(stranger).key);
        assert_eq!(told.collect::<Vec<_>>(), Vec::from_iter(news));
    }
}

#[test]
fn a_stranger_that_goes_while_dialled_leaves_nothing_behind() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        let (host, stranger) = (world.add_host(meshed()), world.add_host(meshed()));
        world.add_peer(stranger, host, true);
        world.run(5_000);
        world.kill(stranger);
        // Every turn is followed by a check of the holders of all indices.
        world.run(120_000);
        assert_eq!(world.host(host).node.link_with(&world.host(stranger).node_addr()), None);
    }
}

/// Its handshakes begin one after the other, as its answers may not be more than can wait.
#[test]
fn a_node_with_a_thousand_peers_dials_them_in_turn() {
    const PEERS: u64 = 1_000;
    let mut world = World::new(1);
    world.check_every = 1_000;
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    let hub = world.add_host(config);
    for _ in 0..PEERS {
        let peer = world.add_host(config);
        world.add_peer(hub, peer, true);
        world.add_peer(peer, hub, false);
    }
    let begun = |world: &World| world.by_kind().get(&Kind::LinkMsg1).map_or(0, |(count, _)| *count);
    world.run(200);
    assert!((256..256 + 150).contains(&begun(&world)), "{}", begun(&world));
    world.run(2_800);
    let linked = world.host(hub).node.peer_status(world.now());
    assert_eq!(linked.filter(|peer| peer.link.is_some()).count() as u64, PEERS);
    assert_eq!(begun(&world), PEERS, "none had to be repeated");
    world.run(5_000);
    // Each of a thousand changes concerns a thousand filters. They are announced in rounds.
    let (filters, _) = world.by_kind()[&Kind::Filter];
    assert!(filters < 40 * PEERS, "{filters}");
    world.check_all().unwrap();
}
