//! What a hostile neighbour can do, and what it cannot.

use proptest::prelude::*;

use super::net::Net;
use super::*;

/// A node that follows its honest neighbour 0; neighbour 1 is hostile.
fn attacked() -> Fixture {
    let mut f = Fixture::new(2);
    for peer in 0..2 {
        f.costs(0, peer, 1_000);
    }
    f.says(0, 0, &[addr(2), addr(1)]);
    f.quiet(50_000);
    f
}

fn unmoved(f: &mut Fixture, body: &[u8]) -> Result<Change, AnnounceError> {
    let coords = f.tree.coords().to_vec();
    let heard = hear(&mut f.tree, 60_000, &f.peers[1], body);
    assert_eq!(f.tree.coords(), coords);
    assert!(f.follows(0));
    heard
}

#[test]
fn forged_and_borrowed_announcements_are_refused() {
    let mut f = attacked();
    let liar = f.addr(1);
    // Signed by another node, signed for another place, signed for another node.
    let mut forged = announcement(&f.peers[1], 9, &[liar, addr(0)]);
    let forger = f.me.sign(&declaration_bytes(liar, addr(0), 9, UNIX));
    let at = forged.len() - 64;
    forged[at..].copy_from_slice(&forger);
    assert_eq!(unmoved(&mut f, &forged), Err(AnnounceError::BadSignature));

    let mut renumbered = announcement(&f.peers[1], 9, &[liar, addr(0)]);
    renumbered[1] ^= 2;
    assert_eq!(unmoved(&mut f, &renumbered), Err(AnnounceError::BadSignature));

    let foreign = f.addr(0);
    let borrowed = announcement(&f.peers[0], 9, &[foreign, addr(0)]);
    assert_eq!(unmoved(&mut f, &borrowed), Err(AnnounceError::ForeignNode(foreign)));

    let impersonated = announcement(&f.me, 9, &[f.me.node_addr(), addr(0)]);
    let me = f.me.node_addr();
    assert_eq!(unmoved(&mut f, &impersonated), Err(AnnounceError::ForeignNode(me)));
}

#[test]
fn replays_are_refused_and_cost_no_signature() {
    let mut f = attacked();
    let liar = f.addr(1);
    let old = announcement(&f.peers[1], 8, &[liar, addr(0)]);
    let new = announcement(&f.peers[1], 9, &[liar]);
    unmoved(&mut f, &new).unwrap();
    for _ in 0..100 {
        assert_eq!(unmoved(&mut f, &old), Err(AnnounceError::Stale { heard: 9, got: 8 }));
        assert_eq!(unmoved(&mut f, &new), Err(AnnounceError::Repeated));
    }
    let newer = announcement(&f.peers[1], 10, &[liar]);
    assert_eq!(unmoved(&mut f, &newer), Ok(STAYED));
}

#[test]
fn a_flood_is_answered_with_silence_and_few_verifications() {
    let mut f = attacked();
    let liar = f.addr(1);
    let mut verified = 0;
    for sequence in 10..200 {
        let body = announcement(&f.peers[1], sequence, &[liar]);
        verified += usize::from(unmoved(&mut f, &body) != Err(AnnounceError::TooOften));
    }
    assert_eq!(verified, 16);
    assert!(f.told(60_000).len() <= 1);
}

#[test]
fn crooked_paths_are_refused_and_absurd_ones_lead_nowhere() {
    let mut f = attacked();
    let (liar, me, honest) = (f.addr(1), f.me.node_addr(), f.addr(0));
    let looped = announcement(&f.peers[1], 9, &[liar, addr(7), addr(7), addr(0)]);
    assert_eq!(unmoved(&mut f, &looped), Err(AnnounceError::Loop(addr(7))));
    let rooted = signed(&f.peers[1], 9, liar, &[liar, addr(0)]);
    assert_eq!(unmoved(&mut f, &rooted), Err(AnnounceError::RootWithAncestors));
    let other = signed(&f.peers[1], 9, addr(3), &[liar, addr(0)]);
    assert_eq!(unmoved(&mut f, &other), Err(AnnounceError::ParentNotNext(addr(3))));
    let upside_down = announcement(&f.peers[1], 9, &[liar, addr(0), addr(3)]);
    assert_eq!(
        unmoved(&mut f, &upside_down),
        Err(AnnounceError::RootNotSmallest(addr(0)))
    );

    // Well formed, with a better root, but through this node, or too long.
    let through_us = announcement(&f.peers[1], 10, &[liar, me, honest, addr(0)]);
    assert_eq!(unmoved(&mut f, &through_us), Ok(STAYED));
    let endless: Vec<_> = std::iter::once(liar)
        .chain((0..1_900_u32).rev().map(|n| {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&n.to_be_bytes());
            NodeAddr::new(bytes)
        }))
        .collect();
    let absurd = announcement(&f.peers[1], 11, &endless);
    assert_eq!(unmoved(&mut f, &absurd), Ok(STAYED));
    assert_eq!(f.tree.peer_coords(liar), None, "and nothing of it is kept");
}

#[test]
fn worse_roots_and_longer_paths_change_nothing() {
    let mut f = attacked();
    let liar = f.addr(1);
    for (sequence, above) in [&[][..], &[addr(2)], &[addr(4), addr(3), addr(1)], &[addr(2), addr(1)]]
        .into_iter()
        .enumerate()
    {
        let path: Vec<_> = std::iter::once(liar).chain(above.iter().copied()).collect();
        let body = announcement(&f.peers[1], 9 + sequence as u64, &path);
        assert_eq!(unmoved(&mut f, &body), Ok(STAYED));
    }
}

#[test]
fn an_invented_root_goes_with_the_neighbour_that_invented_it() {
    let mut f = attacked();
    assert_eq!(f.says(60_000, 1, &[addr(0)]), moved(true, true));
    assert!(f.follows(1), "version 1 trusts what a neighbour says of those above it");
    let liar = f.addr(1);
    assert_eq!(f.tree.peer_down(61_000, liar), moved(true, true));
    assert!(f.follows(0));
}

#[test]
fn a_place_next_to_the_root_is_believed_but_not_at_once() {
    let mut f = attacked();
    f.tree.parent_holddown.switched(60_000);
    assert_eq!(f.says(61_000, 1, &[addr(1)]), STAYED, "a mere improvement waits");
    assert_eq!(f.tree.handle_timeout(90_000), moved(true, false));
    assert!(f.follows(1), "version 1 trusts what a neighbour says of those above it");
}

#[test]
fn an_invented_root_lasts_only_while_its_inventor_is_linked() {
    let mut net = Net::new(12, 3, 0);
    for node in 1..12 {
        net.link(node, node / 2);
    }
    net.run(20_000);
    let liar = 11;
    let (addr_of_liar, root) = (net.addr(liar), addr(0));
    assert!(root < net.addr(0));
    let lie = announcement(&net.nodes[liar], u64::MAX, &[addr_of_liar, root]);
    net.send(liar, liar / 2, lie);
    net.run(20_000);
    let fooled = net.trees.iter().filter(|tree| tree.root() == root).count();
    assert_eq!(fooled, 11, "all but the liar, whose own tree knows better");
    net.cut(liar, liar / 2);
    net.run(60_000);
    assert!(net.trees[..liar].iter().all(|tree| tree.root() == net.addr(0)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is validly signed: nothing panics, nothing grows, and no node leaves a root that is
    /// honest and better, nor stays on a detour to it for longer than mere improvements wait.
    #[test]
    fn nothing_breaks_and_no_worse_place_is_taken(
        lies in prop::collection::vec((any::<u8>(), prop::collection::vec(0..12_u8, 0..40), 0..2_000_u64), 1..40)
    ) {
        let mut f = attacked();
        let (liar, me) = (f.addr(1), f.me.node_addr());
        let pool: Vec<_> = (0..10).map(addr).chain([me, f.addr(0)]).collect();
        let honest = f.tree.peer_coords(f.addr(0)).unwrap().to_vec();
        let mut now = 60_000;
        for (sequence, above, pause) in lies {
            now += pause;
            let path: Vec<_> = std::iter::once(liar).chain(above.iter().map(|n| pool[usize::from(*n)])).collect();
            let body = announcement(&f.peers[1], u64::from(sequence), &path);
            let before = f.tree.coords().to_vec();
            if hear(&mut f.tree, now, &f.peers[1], &body).is_err() {
                prop_assert_eq!(f.tree.coords(), &before[..]);
            }
            let _ = f.tree.handle_timeout(now);
            let taken = f.tree.coords().to_vec();
            f.tree.check_invariants().map_err(TestCaseError::fail)?;
            let waits = now < f.tree.parent_holddown.free_at();
            let better = (taken.last(), if waits { 0 } else { taken.len() }) <= (honest.last(), honest.len() + 1);
            prop_assert!(better, "{:?} instead of {:?}", taken, honest);
            f.told(now);
        }
    }

    /// Arbitrary bytes over a link that is up.
    #[test]
    fn noise_changes_nothing(body in prop::collection::vec(any::<u8>(), 99..1_300)) {
        let mut f = attacked();
        let coords = f.tree.coords().to_vec();
        let mut body = body;
        body[0] = TreeAnnounce::VERSION;
        let entries = ((body.len() - TreeAnnounce::MIN_LEN) / AncestryEntry::LEN) as u16;
        body[33..35].copy_from_slice(&entries.to_le_bytes());
        if entries > 0 {
            let liar = f.addr(1);
            body[35..51].copy_from_slice(liar.as_bytes());
            let announce = TreeAnnounce::parse(&body).unwrap();
            let heard = f.tree.handle_announce(60_000, liar, &f.peers[1].public(), &announce);
            prop_assert_eq!(heard, Err(AnnounceError::BadSignature));
        }
        prop_assert_eq!(f.tree.coords(), &coords[..]);
    }
}
