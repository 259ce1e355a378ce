//! Direct paths in a large mesh: nodes, half of them behind NAT boxes, each of which dials
//! two of ten public nodes and has traffic with two others. All of these pairs that may be direct are,
//! and no node sends more than a bounded number of probes a minute.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_core::Config;
use weft_sim::{Fate, HostId, NatKind, World};

use crate::common::reaching::Net;

pub(crate) const PUBLIC: usize = 10;
/// Every second of the others is behind a NAT box.
const KINDS: [NatKind; 4] = [
    NatKind::FullCone,
    NatKind::Restricted,
    NatKind::PortRestricted,
    NatKind::Symmetric,
];
/// Until all nodes have their links, ms.
pub(crate) const CALM: u64 = 20_000;
/// For which the pairs have traffic, ms: until the attempts of all pairs are over.
pub(crate) const TRAFFIC: u64 = 60_000;
/// Between two packets of a pair, ms.
pub(crate) const PACE: u64 = 500;
/// Until links without traffic are idle, ms, and how long they are watched then.
const CALMED: u64 = 300_000;
const IDLE: u64 = 600_000;
/// Probes and answers to probes of a node in a minute, at most.
const MOST: u64 = 400;

/// The kind of NAT box in front of a node.
fn kind(node: HostId) -> Option<NatKind> {
    (node >= PUBLIC && node.is_multiple_of(2)).then(|| KINDS[node / 2 % KINDS.len()])
}

/// So many nodes, each of which dials two public ones.
pub(crate) fn mesh(seed: u64, nodes: usize) -> Net {
    let mut world = World::new(seed);
    world.check_every = 500;
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    for node in 0..nodes {
        let id = world.add_host(config);
        if let Some(kind) = kind(node) {
            world.put_behind(id, kind);
        }
    }
    for n in PUBLIC..nodes {
        for public in [n % PUBLIC, (n + 3) % PUBLIC] {
            world.add_peer(n, public, true);
            world.add_peer(public, n, false);
        }
    }
    Net::new(seed, world)
}

/// Each node with two others, in an order by chance; each knows the other's key alone.
pub(crate) fn pairs(net: &mut Net, seed: u64) -> Vec<(HostId, HostId)> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut order: Vec<HostId> = (PUBLIC..net.searches.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, rng.next_u32() as usize % (last + 1));
    }
    let pairs: Vec<_> = order
        .iter()
        .copied()
        .zip(order.iter().copied().cycle().skip(1))
        .collect();
    for (a, b) in &pairs {
        net.world.add_peer(*a, *b, false);
        net.world.add_peer(*b, *a, false);
    }
    pairs
}

/// Whether each end can be told where the other one will be seen, as far as it is let in. The next of
/// ports that come one after the other is foretold in vain if another peer takes it first, and nodes
/// without a common neighbour do not search.
fn may_be_direct((a, b): (HostId, HostId)) -> bool {
    let guessed = |one: HostId, other: HostId| {
        kind(one) == Some(NatKind::Symmetric)
            && matches!(kind(other), Some(NatKind::PortRestricted | NatKind::Symmetric))
    };
    !guessed(a, b) && !guessed(b, a)
}

#[test]
fn all_pairs_with_traffic_that_may_be_direct_are() {
    pairs_with_traffic(200);
}

#[test]
#[ignore = "takes a minute: .ci/long sim"]
fn all_pairs_of_a_thousand_nodes_become_direct_if_they_may() {
    pairs_with_traffic(1_000);
}

fn pairs_with_traffic(nodes: usize) {
    let mut net = mesh(19, nodes);
    net.run(CALM);
    let pairs = pairs(&mut net, 7);
    for seq in 0..(TRAFFIC / PACE) as u32 {
        for (a, b) in &pairs {
            net.world.send(*a, *b, seq, 200);
            net.world.send(*b, *a, seq, 200);
        }
        net.run(PACE);
    }
    let (may, others): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(|pair| may_be_direct(*pair));
    let relayed: Vec<_> = may.iter().filter(|pair| !net.is_direct(**pair)).collect();
    let direct = others.iter().filter(|pair| net.is_direct(**pair)).count();
    let most = net.searches.iter().flat_map(|search| search.sent.values()).max();
    let all: u64 = net.searches.iter().flat_map(|search| search.sent.values()).sum();
    println!(
        "of {} pairs that may be direct {} are, of {} others {direct}; probes and answers: {all}, and at most {} of a \
         node in a minute",
        may.len(),
        may.len() - relayed.len(),
        others.len(),
        most.unwrap(),
    );
    assert!(
        may.len() > nodes * 8 / 10 && others.len() > nodes / 50,
        "the sample has both kinds"
    );
    assert_eq!(relayed, Vec::<&(HostId, HostId)>::new());
    assert!(most.unwrap() <= &MOST, "{most:?}");
    idles(&mut net);
}

/// Without traffic no node probes, and each sends every neighbour one datagram in 20 s at most.
fn idles(net: &mut Net) {
    net.run(CALMED);
    let sent = Rc::new(RefCell::new(BTreeMap::<HostId, u64>::new()));
    let count = Rc::clone(&sent);
    net.world.set_rule(move |_, datagram| {
        *count.borrow_mut().entry(datagram.from).or_default() += 1;
        Fate::Pass
    });
    let probes = |net: &Net| net.searches.iter().flat_map(|search| search.sent.values()).sum::<u64>();
    let before = probes(net);
    net.run(IDLE);
    let of_link = |id: HostId| {
        let peers = net.world.host(id).node.peer_status(net.world.now());
        let links = peers.filter(|peer| peer.link.is_some()).count();
        sent.borrow()[&id] as f64 / links as f64
    };
    let most = (0..net.searches.len()).map(of_link).fold(0.0, f64::max);
    println!("idle: at most {most} datagrams to a neighbour in {} s", IDLE / 1_000);
    assert_eq!(probes(net), before);
    assert!(most <= (IDLE / 20_000) as f64, "{most}");
}
