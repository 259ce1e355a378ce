//! Look-ups among many nodes.

use proptest::prelude::*;

use super::net::{Filters, Net, line, random, ring, star};
use super::*;

/// Checks the invariants of every request that was ever sent over a link.
fn check_requests(net: &Net) {
    let window = Limits::default().window;
    let mut sent_by = BTreeMap::new();
    for message in &net.log {
        let Some(request) = message.request() else { continue };
        assert_ne!(net.name(message.to), request.origin, "to the originator");
        let hops = usize::from(LookupRequest::DEFAULT_TTL - request.ttl);
        assert!(hops <= usize::from(LookupRequest::DEFAULT_TTL));
        let sends: &mut Vec<(u64, usize)> = sent_by.entry((message.from, request.id)).or_default();
        assert!(!sends.iter().any(|(_, to)| *to == message.to), "twice over one link");
        let first = sends.first().map_or(message.at, |(at, _)| *at);
        assert_eq!(first, message.at, "a request passes through a node at one moment");
        assert!(message.at - first < window);
        sends.push((message.at, message.to));
    }
}

/// Follows the routes that nodes have learned, from one node to another.
fn walk(net: &Net, from: usize, to: usize) -> Vec<usize> {
    let mut way = vec![from];
    while *way.last().unwrap() != to {
        let here = *way.last().unwrap();
        let next = net.learned(here, to).expect("a way");
        assert!(net.neighbours(here).contains(&next) && !way.contains(&next));
        way.push(next);
    }
    way
}

#[test]
fn converged_filters_find_each_node_at_first_without_waste() {
    for seed in 0..4 {
        let mut net = Net::new(seed, 40, &random(seed, 40), Filters::Perfect);
        for (from, to) in (0..40).map(|i| (i, (i * 7 + 3) % 40)).filter(|(a, b)| a != b) {
            let (before, started) = (net.log.len(), net.now);
            net.want(from, to);
            net.run_until(started + 900);
            let (via, path_mtu) = net.found(from, to).expect("an answer to the first attempt");
            let way = walk(&net, from, to);
            assert_eq!(way[1], via);
            let narrowest = way.windows(2).map(|hop| net.mtu(hop[0], hop[1])).min();
            assert_eq!(Some(path_mtu), narrowest);
            if !net.neighbours(from).contains(&to) {
                assert_eq!(
                    net.log.len() - before,
                    2 * (way.len() - 1),
                    "one for each hop there and back"
                );
            }
            net.run_until(started + 20_000);
            net.members.iter_mut().for_each(|m| m.said.clear());
        }
        assert!(net.members.iter().all(|m| m.lookups.counters().undirected == 0));
        check_requests(&net);
    }
}

#[test]
fn every_node_is_found_without_filters() {
    for (size, links) in [(30, line(30)), (30, ring(30)), (17, star(17)), (40, random(5, 40))] {
        let mut net = Net::new(7, size, &links, Filters::Empty);
        for (from, to) in [(0, size - 1), (size - 1, 0), (1, size / 2)] {
            net.want(from, to);
            net.run_until(net.now + 20_000);
            assert!(net.found(from, to).is_some());
            assert_eq!(walk(&net, from, to).last(), Some(&to));
            assert_eq!(
                walk(&net, to, from).last(),
                Some(&from),
                "and the way back is known as well"
            );
            net.members.iter_mut().for_each(|m| m.said.clear());
        }
        check_requests(&net);
    }
}

#[test]
fn a_hub_finds_the_way_among_more_leaves_than_it_may_ask() {
    // Leaf 1 has node 60 behind it, the hub has 59 leaves.
    let mut links = star(60);
    links.push((1, 60));
    let mut net = Net::new(3, 61, &links, Filters::Perfect);
    net.want(30, 60);
    net.run_until(20_000);
    assert!(net.found(30, 60).is_some());
}

#[test]
fn a_silent_neighbour_that_claims_all_stops_no_lookup() {
    // The attacker, 0, is linked to all nodes of a line, and all filters but its own are empty.
    let size = 6;
    let mut links: Vec<_> = (2..size).map(|i| (i - 1, i)).collect();
    links.extend((1..size).map(|i| (0, i)));
    for seed in 0..8 {
        let mut net = Net::new(seed, size, &links, Filters::Empty);
        net.members[0].silent = true;
        (1..size).for_each(|i| net.lie(i, 0, 4));
        net.want(1, 4);
        net.run_until(20_000);
        assert!(net.found(1, 4).is_some(), "seed {seed}");
        check_requests(&net);
    }
}

#[test]
fn a_neighbour_that_claims_all_is_one_of_several_that_are_asked() {
    for seed in 0..8 {
        let mut net = Net::new(seed, 30, &random(seed, 30), Filters::Perfect);
        let liar = net.neighbours(3)[0];
        let target = (0..30).rev().find(|i| *i != liar && *i != 3).unwrap();
        let cut: BTreeSet<_> = net.neighbours(liar).into_iter().collect();
        cut.iter().for_each(|i| net.lie(*i, liar, target));
        let needed = walk_tree(&net, 3, target).contains(&liar);
        net.members[liar].silent = true;
        net.want(3, target);
        net.run_until(900);
        net.run_until(net.now + 900);
        assert_eq!(net.found(3, target).is_some(), !needed, "seed {seed}");
    }
}

/// Returns the path over the tree: up to the common ancestor, and down.
fn walk_tree(net: &Net, from: usize, to: usize) -> BTreeSet<usize> {
    let coords = |i: usize| net.members[i].around.coords.clone();
    let (up, down) = (coords(from), coords(to));
    let shared = up
        .iter()
        .rev()
        .zip(down.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let way = up[..up.len() - shared + 1].iter().chain(&down[..down.len() - shared]);
    let index = |name: &NodeAddr| (0..net.members.len()).find(|i| net.name(*i) == *name).unwrap();
    way.map(index).collect()
}

#[test]
fn a_dead_node_on_the_tree_is_passed_by() {
    // All filters of the ring point in one direction; the node in that direction is dead but not
    // yet known to be.
    for seed in 0..4 {
        let mut net = Net::new(seed, 6, &ring(6), Filters::Empty);
        for i in 0..3 {
            net.lie(i, i + 1, 3);
        }
        net.members[2].silent = true;
        net.want(0, 3);
        net.run_until(20_000);
        assert!(net.found(0, 3).is_some(), "seed {seed}");
    }
}

#[test]
fn requests_lost_on_the_way_are_made_up_for() {
    let mut found = 0;
    for seed in 0..40 {
        let mut net = Net::new(seed, 20, &random(seed, 20), Filters::Perfect);
        net.loss = 26;
        net.want(2, 17);
        net.run_until(20_000);
        found += usize::from(net.found(2, 17).is_some());
    }
    assert!(found >= 39, "{found} of 40 with a message in ten lost");
}

#[test]
fn a_request_goes_no_further_than_its_ttl() {
    let mut net = Net::new(1, 80, &line(80), Filters::Empty);
    net.members.iter_mut().for_each(|m| m.around.coords.truncate(1));
    net.want(0, 65);
    net.want(0, 66);
    net.run_until(40_000);
    assert!(net.found(0, 65).is_some());
    assert!(net.found(0, 66).is_none());
    assert_eq!(net.log.iter().map(|m| m.to).max(), Some(65));
    check_requests(&net);
}

#[test]
fn a_lookup_of_an_absent_node_fails_and_is_forgotten() {
    let mut links = random(2, 20);
    links.retain(|(a, b)| *a != 19 && *b != 19);
    let mut net = Net::new(2, 20, &links, Filters::Empty);
    net.want(0, 19);
    net.run_until(60_000);
    let gone = net.name(19);
    assert_eq!(net.members[0].said, [LookupOutput::Failed { target: gone }]);
    let attempts = 4;
    assert!(
        net.log.len() <= attempts * 2 * links.len(),
        "each link once a way and attempt"
    );
    assert!(net.members.iter().all(|m| m.lookups.deadline().0 == u64::MAX));
    assert!(net.members.iter().all(|m| m.lookups.bytes() < 8_192));
    check_requests(&net);
}

#[test]
fn all_look_for_one_at_once_and_all_find_it() {
    let mut net = Net::new(4, 40, &random(4, 40), Filters::Perfect);
    (1..40).for_each(|i| net.want(i, 0));
    net.run_until(20_000);
    assert_eq!((1..40).filter(|i| net.found(*i, 0).is_none()).count(), 0);
    check_requests(&net);
}

#[test]
fn the_same_seed_gives_the_same_messages() {
    let run = |seed| {
        let mut net = Net::new(seed, 25, &random(9, 25), Filters::Random(40));
        net.loss = 20;
        (0..25).for_each(|i| net.want(i, (i + 11) % 25));
        net.run_until(30_000);
        let log: Vec<_> = net.log.iter().map(|m| (m.at, m.from, m.to)).collect();
        (
            log,
            net.members
                .into_iter()
                .map(|m| m.lookups.counters())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(run(6), run(6));
    assert_ne!(run(6).0, run(7).0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For all filters, losses and sets of silent nodes.
    #[test]
    fn no_request_circulates_beyond_its_ttl_or_twice_through_a_node(
        seed in any::<u64>(),
        size in 2..24usize,
        share in any::<u8>(),
        loss in 0..64u8,
        silent in any::<prop::sample::Index>(),
        wants in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let mut net = Net::new(seed, size, &random(seed, size), Filters::Random(share));
        net.loss = loss;
        net.transit_knows_keys = seed % 2 == 0;
        let silent = silent.index(size);
        net.members[silent].silent = true;
        for (from, to) in wants {
            net.want(from.index(size), to.index(size));
            net.run_until(net.now + 300);
        }
        net.run_until(net.now + 60_000);
        check_requests(&net);
        for (i, m) in net.members.iter().enumerate() {
            prop_assert!(i == silent || m.lookups.deadline().0 == u64::MAX);
            let counters = m.lookups.counters();
            prop_assert!(i == silent || counters.started == counters.found + counters.failed);
            prop_assert_eq!(counters.echoes + counters.malformed + counters.forged, 0);
        }
    }

    /// Filters that are merely out of date, in a mesh without loss.
    #[test]
    fn any_linked_node_is_found_without_filters(seed in any::<u64>(), size in 2..24usize, to in any::<prop::sample::Index>()) {
        let mut net = Net::new(seed, size, &random(seed, size), Filters::Empty);
        let to = 1 + to.index(size - 1);
        net.want(0, to);
        net.run_until(20_000);
        prop_assert!(net.found(0, to).is_some());
        let way = walk(&net, 0, to);
        prop_assert_eq!(way.last(), Some(&to));
    }
}
