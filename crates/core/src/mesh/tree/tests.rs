//! Each rule with a few neighbours; `model` against a slow reference, `network` among many nodes,
//! `hostile` against hostile neighbours.

mod hostile;
mod model;
mod net;
mod network;

use weft_noise::{Identity, SecretKey};
use weft_wire::NodeAddr;
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce, declaration_bytes};

use super::{AnnounceError, Change, Tree, distance};

const MTU: u16 = 1_280;
/// Maximum number of nodes of a path at that MTU.
const LONGEST: usize = 35;
const UNIX: u64 = 1_750_000_000;
const STAYED: Change = Change {
    coords_changed: false,
    parent_changed: false,
    root_changed: false,
};

/// Returns `count` identities, the smallest address first.
fn fleet(count: u32) -> Vec<Identity> {
    let mut fleet: Vec<_> = (1..=count)
        .map(|n| {
            let mut secret = [0x42; 32];
            secret[..4].copy_from_slice(&n.to_be_bytes());
            Identity::new(SecretKey::from_bytes(&secret).unwrap())
        })
        .collect();
    fleet.sort_by_key(Identity::node_addr);
    fleet
}

/// Returns an address that no node has, small or large by its first byte.
fn addr(first: u8) -> NodeAddr {
    let mut bytes = [0xaa; 16];
    bytes[0] = first;
    NodeAddr::new(bytes)
}

/// Returns the announcement of a path by its first node, with a valid signature.
fn announcement(identity: &Identity, sequence: u64, path: &[NodeAddr]) -> Vec<u8> {
    let parent = path.get(1).copied().unwrap_or(path[0]);
    signed(identity, sequence, parent, path)
}

fn signed(identity: &Identity, sequence: u64, parent: NodeAddr, path: &[NodeAddr]) -> Vec<u8> {
    let entries: Vec<_> = path
        .iter()
        .map(|addr| AncestryEntry {
            addr: *addr,
            sequence,
            timestamp: UNIX,
        })
        .collect();
    let announce = TreeAnnounce {
        sequence,
        timestamp: UNIX,
        parent,
        ancestry: Ancestry::new(&entries),
        signature: &identity.sign(&declaration_bytes(path[0], parent, sequence, UNIX)),
    };
    let mut body = vec![0; announce.wire_len()];
    announce.emit(&mut body).unwrap();
    body
}

fn hear(tree: &mut Tree, now: u64, from: &Identity, body: &[u8]) -> Result<Change, AnnounceError> {
    let announce = TreeAnnounce::parse(body).unwrap();
    let heard = tree.handle_announce(now, from.node_addr(), &from.public(), &announce);
    tree.check_invariants().unwrap();
    heard
}

/// A node with neighbours, the smallest address first; the node itself has the largest.
struct Fixture {
    tree: Tree,
    me: Identity,
    peers: Vec<Identity>,
    sequence: u64,
}

impl Fixture {
    fn new(peers: u32) -> Self {
        let mut peers = fleet(peers + 1);
        let me = peers.pop().unwrap();
        let mut tree = Tree::new(me.node_addr(), 0, 0, MTU);
        peers.iter().for_each(|peer| tree.peer_up(0, peer.node_addr()));
        Self {
            tree,
            me,
            peers,
            sequence: 0,
        }
    }

    fn addr(&self, peer: usize) -> NodeAddr {
        self.peers[peer].node_addr()
    }

    /// Lets `peer` announce its path: itself, then `above`.
    fn says(&mut self, now: u64, peer: usize, above: &[NodeAddr]) -> Change {
        self.sequence += 1;
        let path: Vec<_> = std::iter::once(self.addr(peer)).chain(above.iter().copied()).collect();
        let body = announcement(&self.peers[peer], self.sequence, &path);
        hear(&mut self.tree, now, &self.peers[peer], &body).unwrap()
    }

    fn costs(&mut self, now: u64, peer: usize, cost: u32) {
        let addr = self.addr(peer);
        self.tree.set_cost(now, addr, cost);
    }

    fn follows(&self, peer: usize) -> bool {
        self.tree.parent() == Some(self.addr(peer))
    }

    /// Returns the announcements to each neighbour until none is due.
    fn told(&mut self, now: u64) -> Vec<(NodeAddr, Vec<u8>)> {
        std::iter::from_fn(|| self.tree.poll_announce(now, UNIX + now / 1_000, &self.me)).collect()
    }

    /// Sends the announcements that are due by `until`, and returns their number.
    fn quiet(&mut self, until: u64) -> usize {
        let mut told = 0;
        while self.tree.deadline() <= until {
            let now = self.tree.deadline();
            assert_eq!(self.tree.handle_timeout(now), STAYED);
            told += self.told(now).len();
        }
        told
    }
}

fn moved(parent_changed: bool, root_changed: bool) -> Change {
    Change {
        coords_changed: true,
        parent_changed,
        root_changed,
    }
}

#[test]
fn alone_we_are_the_root_and_have_nothing_to_do() {
    let f = Fixture::new(0);
    assert_eq!(f.tree.coords(), [f.me.node_addr()]);
    assert_eq!(
        (f.tree.root(), f.tree.parent(), f.tree.depth()),
        (f.me.node_addr(), None, 0)
    );
    assert_eq!(f.tree.deadline(), u64::MAX);
}

#[test]
fn the_smallest_root_is_followed_whatever_the_way() {
    let mut f = Fixture::new(2);
    assert_eq!(f.says(0, 1, &[]), moved(true, true));
    assert!(f.follows(1));
    assert_eq!(f.says(0, 0, &[addr(9), addr(8), addr(0)]), moved(true, true));
    assert_eq!(f.tree.root(), addr(0));
    assert_eq!(
        f.tree.coords(),
        [f.me.node_addr(), f.addr(0), addr(9), addr(8), addr(0)]
    );
    assert_eq!(f.tree.peer_coords(f.addr(1)), Some(&[f.addr(1)][..]));
}

#[test]
fn an_old_path_leads_on_by_what_is_known_now() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(9), addr(0)]);
    f.says(0, 1, &[addr(8), addr(0)]);
    let (me, left, right) = (f.me.node_addr(), f.addr(0), f.addr(1));
    assert!(f.follows(0));
    let (below, far) = (addr(100), addr(101));
    for (old, now) in [
        // This node had another place when the path was reported.
        (vec![below, me, right, addr(0)], vec![below, me, left, addr(9), addr(0)]),
        // A neighbour had another place.
        (
            vec![below, far, right, left, addr(0)],
            vec![below, far, right, addr(8), addr(0)],
        ),
        // The first known node of the path decides.
        (vec![below, right, me, addr(7)], vec![below, right, addr(8), addr(0)]),
        // No part of it is known better.
        (vec![below, far, addr(9), addr(0)], vec![below, far, addr(9), addr(0)]),
        (vec![below, left, addr(9), addr(0)], vec![below, left, addr(9), addr(0)]),
        // The neighbour has moved below the node in question.
        (vec![addr(8), right, addr(0)], vec![addr(8), right, addr(0)]),
    ] {
        assert_eq!(f.tree.update(&old), now);
    }
}

#[test]
fn the_smallest_node_has_no_parent() {
    let fleet = fleet(2);
    let mut tree = Tree::new(fleet[0].node_addr(), 0, 0, MTU);
    tree.peer_up(0, fleet[1].node_addr());
    let body = announcement(&fleet[1], 1, &[fleet[1].node_addr()]);
    assert_eq!(hear(&mut tree, 0, &fleet[1], &body), Ok(STAYED));
    assert_eq!(tree.parent(), None);
}

#[test]
fn between_equals_the_smaller_address_is_followed() {
    let mut f = Fixture::new(3);
    f.says(0, 1, &[addr(0)]);
    f.says(0, 0, &[addr(0)]);
    f.says(0, 2, &[addr(0)]);
    assert!(f.follows(1), "what is only as good is no reason to change");
    let parent = f.addr(1);
    assert_eq!(f.tree.peer_down(0, parent), moved(true, false));
    assert!(f.follows(0));
}

#[test]
fn a_better_parent_needs_a_fifth_and_waits_for_the_hold_down() {
    let mut f = Fixture::new(2);
    f.costs(0, 0, 1_000);
    f.costs(0, 1, 1_000);
    f.says(0, 0, &[addr(5), addr(0)]);
    assert!(f.follows(0));
    // 2.4 against 3 is a fifth, not more.
    f.costs(0, 1, 1_400);
    assert_eq!(f.says(100_000, 1, &[addr(0)]), STAYED);
    f.costs(100_000, 1, 1_399);
    assert_eq!(f.tree.handle_timeout(200_000), moved(true, false));
    assert!(f.follows(1));

    f.costs(200_000, 1, 9_000);
    assert_eq!(f.says(229_999, 0, &[addr(5), addr(0)]), STAYED);
    assert!(f.tree.deadline() <= 230_000, "the change that waits is not forgotten");
    assert_eq!(f.tree.handle_timeout(230_000), moved(true, false));
    assert!(f.follows(0));
}

#[test]
fn four_changes_of_parent_damp_but_becoming_the_root_is_none() {
    for (rounds, free_at) in [(3, 30_000), (4, 120_000)] {
        let mut f = Fixture::new(2);
        f.says(0, 0, &[addr(5), addr(0)]);
        let parent = f.addr(0);
        for _ in 1..rounds {
            assert_eq!(f.tree.peer_down(0, parent), moved(true, true));
            f.tree.peer_up(0, parent);
            f.says(0, 0, &[addr(5), addr(0)]);
        }
        f.costs(0, 1, 1_000);
        f.says(0, 1, &[addr(0)]);
        assert_eq!(f.tree.handle_timeout(free_at - 1), STAYED);
        assert_eq!(f.tree.handle_timeout(free_at), moved(true, false));
    }
}

#[test]
fn links_are_compared_again_every_minute() {
    let mut f = Fixture::new(2);
    for peer in 0..2 {
        f.costs(0, peer, 1_000);
        f.says(0, peer, &[addr(0)]);
    }
    assert_eq!(f.tree.handle_timeout(60_000), STAYED);
    f.costs(60_000, 0, 9_000);
    assert_eq!(f.tree.handle_timeout(119_999), STAYED);
    assert!(f.tree.deadline() <= 120_000);
    assert_eq!(f.tree.handle_timeout(120_000), moved(true, false));
    assert!(f.follows(1));
}

#[test]
fn a_first_measurement_is_looked_at_at_once() {
    let mut f = Fixture::new(2);
    f.costs(0, 1, 5_000);
    f.says(0, 1, &[addr(0)]);
    assert_eq!(f.says(40_000, 0, &[addr(0)]), STAYED, "not by being unknown");
    let _ = f.tree.handle_timeout(40_000);
    f.costs(41_000, 0, 1_000);
    assert!(f.tree.deadline() <= 41_000);
    assert_eq!(f.tree.handle_timeout(41_000), moved(true, false));
    assert!(f.follows(0));
}

#[test]
fn a_lost_parent_a_better_root_and_a_loop_wait_for_nothing() {
    let mut f = Fixture::new(3);
    f.says(0, 0, &[addr(1)]);
    f.says(0, 1, &[addr(7), addr(1)]);
    assert!(f.follows(0));
    let parent = f.addr(0);
    assert_eq!(f.tree.peer_down(1, parent), moved(true, false));
    assert!(f.follows(1));

    assert_eq!(f.says(2, 2, &[addr(7), addr(6), addr(0)]), moved(true, true));
    assert!(f.follows(2));

    let me = f.me.node_addr();
    assert_eq!(f.says(3, 2, &[me, addr(0)]), moved(true, true));
    assert!(f.follows(1), "the parent came to stand below us");

    let parent = f.addr(1);
    assert_eq!(f.tree.peer_down(4, parent), moved(true, true));
    assert_eq!(f.tree.coords(), [me], "all that is left is below us");
}

#[test]
fn a_parent_that_moves_takes_us_along_or_loses_us() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(5), addr(1)]);
    f.says(0, 1, &[addr(1)]);
    assert_eq!(f.says(1, 0, &[addr(6), addr(1)]), moved(false, false));
    assert_eq!(f.tree.coords()[2], addr(6));
    assert_eq!(f.says(2, 0, &[addr(4), addr(0)]), moved(false, true));
    assert_eq!(f.says(3, 0, &[addr(2)]), moved(true, true));
    assert!(f.follows(1), "the other still leads to the better root");
}

#[test]
fn the_same_place_again_is_no_news() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(0)]);
    f.quiet(10_000);
    assert_eq!(f.says(10_000, 0, &[addr(0)]), STAYED);
    assert!(f.told(10_000).is_empty());
}

#[test]
fn a_place_is_told_in_full_and_signed() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(3), addr(0)]);
    let told = f.told(0);
    assert_eq!(
        told.iter().map(|(to, _)| *to).collect::<Vec<_>>(),
        [f.addr(0), f.addr(1)]
    );
    let announce = TreeAnnounce::parse(&told[1].1).unwrap();
    assert_eq!(
        (announce.parent, announce.sequence, announce.timestamp),
        (f.addr(0), UNIX, UNIX)
    );
    assert!(
        announce
            .ancestry
            .iter()
            .map(|e| e.addr)
            .eq(f.tree.coords().iter().copied())
    );
    assert_eq!(
        announce.ancestry.at(1).unwrap().sequence,
        1,
        "ancestors keep their stamps"
    );
    assert_eq!(
        f.me.public()
            .verify(&announce.signed_bytes().unwrap(), announce.signature),
        Ok(())
    );
}

#[test]
fn news_are_coalesced_and_a_quiet_node_repeats_once_a_minute() {
    let mut f = Fixture::new(3);
    for peer in 0..3 {
        f.says(0, peer, &[addr(9), addr(0)]);
    }
    assert_eq!(f.told(0).len(), 3);
    for (now, above) in [(1, 6), (2, 8), (3, 7)] {
        f.says(now, 0, &[addr(above), addr(0)]);
        assert!(f.told(now).is_empty());
    }
    assert_eq!(f.tree.deadline(), 500);
    let told = f.told(500);
    assert_eq!(told.len(), 3);
    let announce = TreeAnnounce::parse(&told[0].1).unwrap();
    assert_eq!(announce.ancestry.at(2).unwrap().addr, addr(7));

    assert_eq!(
        f.quiet(30_000),
        9,
        "each neighbour three times more, as nothing acknowledges it"
    );
    assert_eq!(f.quiet(620_000), 27, "then once a minute");
}

#[test]
fn a_silent_neighbour_is_told_with_a_new_sequence_each_time() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(0)]);
    let mut sequences = Vec::new();
    for now in [0, 1_000, 5_000, 20_000] {
        let told = f.told(now);
        let silent = told.iter().find(|(to, _)| *to == f.addr(1)).unwrap();
        sequences.push(TreeAnnounce::parse(&silent.1).unwrap().sequence);
    }
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");

    f.says(30_000, 1, &[addr(0)]);
    let sequence = |f: &mut Fixture, now| TreeAnnounce::parse(&f.told(now)[1].1).unwrap().sequence;
    assert_eq!(sequence(&mut f, 80_000), sequence(&mut f, 140_000));
}

#[test]
fn a_neighbour_with_a_worse_root_is_told_ours_again() {
    let mut f = Fixture::new(2);
    f.says(0, 0, &[addr(0)]);
    f.quiet(30_000);
    let behind = announcement(&f.peers[1], 1_000, &[f.addr(1)]);
    assert_eq!(hear(&mut f.tree, 30_000, &f.peers[1], &behind), Ok(STAYED));
    assert_eq!(f.told(30_000).len(), 1);
    let again = hear(&mut f.tree, 40_000, &f.peers[1], &behind);
    assert_eq!(again, Err(AnnounceError::Repeated));
    assert_eq!(f.told(40_000)[0].0, f.addr(1));
    f.sequence = 1_000;
    f.says(50_000, 1, &[addr(0)]);
    assert!(f.told(50_000).is_empty(), "at the same root nothing is answered");
}

#[test]
fn a_neighbour_with_an_old_path_of_ours_is_told_every_15_s() {
    let mut f = Fixture::new(3);
    let (me, parent) = (f.me.node_addr(), f.addr(0));
    f.says(0, 0, &[addr(0)]);
    f.says(0, 1, &[me, parent, addr(0)]);
    f.quiet(80_000);
    assert_eq!(f.quiet(140_000), 1 + 1 + 4, "the third has not spoken at all");
    // The child is below a path that this node no longer has.
    assert_eq!(f.says(140_000, 0, &[addr(5), addr(0)]), moved(false, false));
    f.says(140_000, 2, &[parent, addr(5), addr(0)]);
    f.quiet(220_000);
    assert_eq!(f.quiet(280_000), 1 + 4 + 1);
    f.says(280_000, 1, &[me, parent, addr(5), addr(0)]);
    f.quiet(340_000);
    assert_eq!(f.quiet(400_000), 3);
}

#[test]
fn a_restarted_neighbour_may_count_from_one_again() {
    let mut f = Fixture::new(1);
    let path = [f.addr(0), addr(0)];
    let old = announcement(&f.peers[0], 50, &path);
    hear(&mut f.tree, 0, &f.peers[0], &old).unwrap();
    f.quiet(30_000);
    let fresh = announcement(&f.peers[0], 1, &path[..1]);
    let stale = AnnounceError::Stale { heard: 50, got: 1 };
    assert_eq!(hear(&mut f.tree, 30_000, &f.peers[0], &fresh), Err(stale));
    f.tree.peer_up(30_000, path[0]);
    assert!(f.follows(0));
    assert_eq!(f.told(30_000).len(), 1, "and is told at once");
    assert_eq!(hear(&mut f.tree, 30_000, &f.peers[0], &fresh), Ok(moved(false, true)));
}

#[test]
fn children_are_those_who_say_so() {
    let mut f = Fixture::new(3);
    let me = f.me.node_addr();
    f.says(0, 0, &[addr(0)]);
    f.says(0, 1, &[me, f.addr(0), addr(0)]);
    assert_eq!(f.tree.children().collect::<Vec<_>>(), [f.addr(1)]);
    let tree_peers = [0, 1, 2].map(|peer| f.tree.is_tree_peer(f.addr(peer)));
    assert_eq!(tree_peers, [true, true, false]);
    f.says(0, 1, &[addr(0)]);
    assert_eq!(f.tree.children().count(), 0);
}

#[test]
fn no_path_is_adopted_that_a_datagram_does_not_hold() {
    let ancestors = |count: usize| -> Vec<_> { (0..count).rev().map(|n| addr(n as u8)).collect() };
    let mut f = Fixture::new(1);
    let longest = ancestors(LONGEST - 2);
    f.says(0, 0, &longest);
    assert_eq!(f.tree.coords().len(), LONGEST);
    let (_, body) = f.told(0).remove(0);
    assert!(body.len() + weft_wire::fmp::LINK_OVERHEAD <= usize::from(MTU));

    // A path with one more node is a place, but none below which this node could be.
    assert_eq!(f.says(1, 0, &ancestors(LONGEST - 1)), moved(true, true));
    assert_eq!(f.tree.peer_coords(f.addr(0)).unwrap().len(), LONGEST);
    f.says(2, 0, &longest);
    assert!(f.follows(0));

    // A path with two more nodes is not even a place.
    assert_eq!(f.says(3, 0, &ancestors(LONGEST)), moved(true, true));
    assert_eq!(f.tree.peer_coords(f.addr(0)), None);
    assert_eq!(f.tree.parent(), None);
}

#[test]
fn without_room_for_a_parent_none_is_chosen() {
    for mtu in [0, 199] {
        let peer = &fleet(1)[0];
        let mut tree = Tree::new(addr(0xff), 0, 0, mtu);
        tree.peer_up(0, peer.node_addr());
        let body = announcement(peer, 1, &[peer.node_addr()]);
        assert_eq!(hear(&mut tree, 0, peer, &body), Ok(STAYED));
    }
}

#[test]
fn distance_goes_through_the_lowest_common_ancestor() {
    let path = |nodes: &[u8]| nodes.iter().copied().map(addr).collect::<Vec<_>>();
    let (root, a, b) = (path(&[1]), path(&[9, 4, 2, 1]), path(&[8, 3, 2, 1]));
    assert_eq!(distance(&a, &b), Some(4));
    assert_eq!(distance(&a, &root), Some(3));
    assert_eq!(distance(&a, &a), Some(0));
    assert_eq!(distance(&a, &path(&[4, 2, 1])), Some(1));
    assert_eq!(distance(&a, &path(&[9, 4, 2, 0])), None);
    assert_eq!(distance(&a, &[]), None);
}
