//! Agreement among many nodes: graphs, lines, rings, loss, partitions, deaths, flapping links,
//! churn.

use std::collections::BTreeSet;

use super::net::Net;
use super::*;

#[test]
fn random_graphs_agree_on_one_tree() {
    for (count, chords, seed) in [(2, 0, 1), (10, 5, 2), (60, 60, 3), (200, 300, 4)] {
        let mut net = Net::random(count, chords, seed, 0);
        net.run(15_000);
        net.assert_settled();
    }
}

#[test]
fn a_line_and_a_ring_agree_on_one_tree() {
    let (mut net, order) = Net::line(30, 5, 0);
    net.run(30_000);
    net.assert_settled();
    net.link(order[0], order[29]);
    net.run(200_000);
    net.assert_settled();
    net.assert_at_rest();
    let deepest = net.trees.iter().map(Tree::depth).max().unwrap();
    assert!(
        (15..=18).contains(&deepest),
        "{deepest} deep, after improvements of a fifth"
    );
}

#[test]
fn loss_delays_agreement_and_does_not_prevent_it() {
    for seed in 0..3 {
        for mut net in [Net::random(80, 80, seed, 30), Net::line(25, seed, 30).0] {
            net.run(120_000);
            assert!(net.trees.iter().all(|tree| tree.root() == net.addr(0)));
            net.run(600_000);
            net.assert_settled();
            net.assert_at_rest();
        }
    }
}

#[test]
fn a_line_too_long_for_a_datagram_settles_in_several_trees() {
    let (mut net, order) = Net::line(200, 6, 0);
    net.run(120_000);
    let before: Vec<_> = net.trees.iter().map(|tree| tree.coords().to_vec()).collect();
    let switches = net.switches;
    net.run(600_000);
    assert_eq!(net.switches, switches);
    assert!(net.trees.iter().map(Tree::coords).eq(before.iter().map(Vec::as_slice)));
    assert!(net.trees.iter().all(|tree| tree.coords().len() <= LONGEST));
    let root = order.iter().position(|node| *node == 0).unwrap();
    for (at, node) in order.iter().enumerate() {
        let near = at.abs_diff(root) < LONGEST;
        assert_eq!(net.trees[*node].root() == net.addr(0), near, "{at} of {root}");
    }
}

#[test]
fn a_partition_makes_two_trees_and_healing_makes_one() {
    let mut net = Net::random(60, 60, 7, 0);
    net.run(30_000);
    let across: Vec<_> = net
        .links
        .keys()
        .copied()
        .filter(|(a, b)| (*a < 30) != (*b < 30))
        .collect();
    across.iter().for_each(|(a, b)| net.cut(*a, *b));
    net.run(60_000);
    net.assert_settled();
    assert!(net.parts().iter().collect::<BTreeSet<_>>().len() > 1);
    across.iter().for_each(|(a, b)| net.link(*a, *b));
    net.run(30_000);
    net.assert_settled();
}

#[test]
fn a_dead_root_is_forgotten_by_all_nodes() {
    for seed in 0..4 {
        let mut net = Net::random(50, 60, seed, 0);
        net.run(30_000);
        net.cut_all(0);
        // Stale paths to the lost root are tried, each one longer than the last.
        net.run(60_000);
        net.assert_settled();
    }
    let (mut net, order) = Net::line(30, 8, 0);
    net.link(order[0], order[29]);
    net.run(60_000);
    net.cut_all(0);
    net.run(60_000);
    net.assert_settled();
}

#[test]
fn a_node_that_loses_its_parent_takes_the_other_at_once() {
    let mut net = Net::new(4, 9, 0);
    for (a, b) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        net.link(a, b);
    }
    net.run(10_000);
    let parent = net.index[&net.trees[3].parent().unwrap()];
    let other = 3 - parent;
    let (at, lost) = (net.now, net.addr(parent));
    net.links.remove(&(parent, 3));
    let change = net.trees[3].peer_down(at, lost);
    net.settle(3, change);
    assert_eq!(net.trees[3].coords(), [net.addr(3), net.addr(other), net.addr(0)]);
    let lost = net.addr(3);
    let _ = net.trees[parent].peer_down(at, lost);
    net.run(1_000);
    net.assert_settled();
}

#[test]
fn a_flapping_link_costs_a_bounded_number_of_announcements() {
    for seed in 0..2 {
        let mut net = Net::random(30, 20, seed, 0);
        net.run(60_000);
        let (a, b) = *net.links.keys().find(|(a, _)| *a == 0).unwrap();
        let (before, start) = (net.sent.clone(), net.now);
        while net.now < start + 120_000 {
            net.cut(a, b);
            net.run(2_000);
            net.link(a, b);
            net.run(1_500);
        }
        for (pair, sent) in &net.sent {
            let sent = sent - before.get(pair).copied().unwrap_or(0);
            // Besides the limit, one to each neighbour that comes up.
            let flaps = if [(a, b), (b, a)].contains(pair) { 36 } else { 0 };
            assert!(sent <= 2 * 120 + 1 + flaps, "{sent} from {pair:?}");
        }
        net.run(60_000);
        net.assert_settled();
        net.run(300_000);
        net.assert_at_rest();
        let sent = net.total_sent();
        net.run(600_000);
        let directions = 2 * net.links.len() as u64;
        assert_eq!(
            net.total_sent() - sent,
            directions * 10,
            "a quiet mesh speaks once a minute"
        );
    }
}

#[test]
fn costs_that_waver_do_not_keep_the_tree_moving() {
    for seed in 0..2 {
        let mut net = Net::random(40, 80, seed, 0);
        net.run(5_000);
        waver(&mut net);
        let early = net.switches;
        waver(&mut net);
        let late = net.switches - early;
        assert!(
            late <= 4,
            "{late} changes of parent in ten minutes of five percent up and down"
        );
        net.assert_settled();
    }
}

/// Ten minutes in which the cost of each link varies by up to five percent above its base.
fn waver(net: &mut Net) {
    for _ in 0..60 {
        let links: Vec<_> = net.links.keys().copied().collect();
        for (a, b) in links {
            let base = 1_000 + ((a * 7 + b * 13) % 20) as u32 * 200;
            let cost = base + base * net.below(5) as u32 / 100;
            for (node, peer) in [(a, b), (b, a)] {
                let (now, peer) = (net.now, net.addr(peer));
                net.trees[node].set_cost(now, peer, cost);
                net.settle(node, Change::default());
            }
        }
        net.run(10_000);
    }
}

#[test]
fn restarts_and_churn_end_in_one_tree() {
    for seed in 0..3 {
        let mut net = Net::random(40, 50, seed, 10);
        for _ in 0..40 {
            let node = net.below(40) as usize;
            if net.below(2) == 0 {
                let (now, jitter) = (net.now, net.below(60_000));
                net.trees[node] = Tree::new(net.addr(node), now, jitter, MTU);
                let peers: Vec<_> = net.neighbours(node).collect();
                peers.iter().for_each(|peer| {
                    net.links.remove(&(node.min(*peer), node.max(*peer)));
                    net.link(node, *peer);
                });
            } else {
                let peer = net.neighbours(node).next();
                if let Some(peer) = peer {
                    net.cut(node, peer);
                    let other = net.below(40) as usize;
                    net.link(node, other);
                }
            }
            net.run(1_500);
        }
        net.run(180_000);
        net.assert_settled();
    }
}

#[test]
fn the_same_seed_is_the_same_story() {
    let tell = || {
        let mut net = Net::random(40, 40, 12, 20);
        net.run(70_000);
        (net.sent, net.switches, net.scheduled)
    };
    assert_eq!(tell(), tell());
}
