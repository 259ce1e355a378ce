//! Fragments: decided about with the first one of their packet, in any order.

use super::*;

/// Later fragments of a packet, in their order.
fn later(ident: u32, count: u16) -> Vec<Vec<u8>> {
    (1..=count).map(|n| fragment(ident, 3 * n, n < count, 0)).collect()
}

/// Offers a packet to one lane.
fn offer(node: &mut Node, lane: usize, now: u64, packet: &[u8]) -> Result<Verdict, DropReason> {
    node.lanes[lane].inbound(now, &node.routes, PEER, packet)
}

/// The fragments that waited and that a lane passes on now, and the number of those that were dropped.
fn settled(node: &mut Node, lane: usize) -> (Vec<Vec<u8>>, u64) {
    let Settled { passed, dropped } = node.lanes[lane].take_settled();
    (passed, dropped)
}

#[test]
fn fragments_follow_the_first_one_of_their_packet() {
    let mut node = Node::new(&[22]);
    let later = |ident| fragment(ident, 3, false, 0);
    assert_eq!(
        node.receive(0, &later(1)),
        Err(DropReason::Denied),
        "its port is unknown"
    );
    assert_eq!(node.receive(0, &fragment(1, 0, true, 22)), Ok(()));
    assert_eq!(node.receive(0, &later(1)), Ok(()));
    assert_eq!(node.receive(0, &later(2)), Err(DropReason::Denied));
    assert_eq!(node.receive(0, &fragment(3, 0, true, 23)), Err(DropReason::Denied));
    assert_eq!(node.receive(0, &later(3)), Err(DropReason::Denied));
    let mut short = fragment(4, 0, true, 22);
    short.truncate(40 + 8 + 2);
    short[5] = 10;
    assert_eq!(node.receive(0, &short), Err(DropReason::Denied), "it hides its port");
}

#[test]
fn any_number_of_fragmented_packets_is_one_flow() {
    let mut node = Node::new(&[22]);
    for ident in 0..50_000 {
        assert_eq!(node.receive(0, &fragment(ident, 0, true, 22)), Ok(()));
        assert_eq!(node.receive(0, &fragment(ident, 3, false, 0)), Ok(()));
    }
    assert_eq!(node.flows().len(), 1);
}

#[test]
fn fragments_that_come_early_pass_with_the_first() {
    let mut node = Node::new(&[22]);
    let of_packet = later(1, 5);
    for packet in of_packet.iter().rev() {
        assert_eq!(offer(&mut node, 0, 0, packet), Ok(Verdict::Held));
    }
    let of_other = later(2, 1);
    assert_eq!(offer(&mut node, 0, 0, &of_other[0]), Ok(Verdict::Held));
    // Another lane decides: the ports pick it, and later fragments have none.
    assert_eq!(
        offer(&mut node, 1, held::HOLD - 1, &fragment(1, 0, true, 22)),
        Ok(Verdict::Pass)
    );
    let (mut passed, dropped) = settled(&mut node, 1);
    passed.reverse();
    assert_eq!((passed, dropped), (of_packet, 0));
    assert!(!node.lanes[0].has_settled() && !node.lanes[1].has_settled());
}

#[test]
fn fragments_that_come_early_answer_what_this_host_asked() {
    let mut node = Node::new(&[]);
    let mut first = fragment(1, 0, true, 4000);
    first[48..50].copy_from_slice(&22_u16.to_be_bytes());
    node.send(0, &from_me(TCP, (4000, 22), SYN));
    assert_eq!(offer(&mut node, 0, 0, &later(1, 1)[0]), Ok(Verdict::Held));
    assert_eq!(offer(&mut node, 0, 1, &first), Ok(Verdict::Pass));
    assert_eq!(settled(&mut node, 0), (later(1, 1), 0));
}

#[test]
fn fragments_that_come_early_are_dropped_with_the_first() {
    let mut node = Node::new(&[22]);
    for packet in later(1, 3) {
        assert_eq!(offer(&mut node, 0, 0, &packet), Ok(Verdict::Held));
    }
    assert_eq!(
        offer(&mut node, 0, 1, &fragment(1, 0, true, 23)),
        Err(DropReason::Denied)
    );
    assert_eq!(settled(&mut node, 0), (Vec::new(), 3));
    assert_eq!(offer(&mut node, 0, 2, &fragment(1, 0, true, 22)), Ok(Verdict::Pass));
    assert_eq!(settled(&mut node, 0), (Vec::new(), 0));
}

#[test]
fn fragments_wait_for_a_short_time_and_for_their_own_peer() {
    let mut node = Node::new(&[22]);
    let waiting = later(1, 1);
    assert_eq!(offer(&mut node, 0, 0, &waiting[0]), Ok(Verdict::Held));
    // From another peer, although the addresses are the same.
    assert_eq!(node.receive_from(OTHER, 0, &fragment(1, 0, true, 22)), Ok(()));
    assert_eq!(settled(&mut node, 0), (Vec::new(), 0));
    let mut node = Node::new(&[22]);
    assert_eq!(offer(&mut node, 0, 0, &waiting[0]), Ok(Verdict::Held));
    assert_eq!(
        offer(&mut node, 0, held::HOLD, &fragment(1, 0, true, 22)),
        Ok(Verdict::Pass)
    );
    assert_eq!(settled(&mut node, 0), (Vec::new(), 1));
    let stranger = node.receive_from(NodeAddr::new([9; 16]), 0, &later(2, 1)[0]);
    assert_eq!(
        (stranger, node.lanes[0].has_settled()),
        (Err(DropReason::Denied), false)
    );
}

#[test]
fn a_flood_of_later_fragments_takes_no_place_of_others() {
    let mut node = Node::new(&[22]);
    let mut flood = fragment(0, 3, true, 0);
    flood.resize(1_400, 0xee);
    flood[4..6].copy_from_slice(&1_360_u16.to_be_bytes());
    let mut dropped = 0;
    for ident in 0..20_000_u32 {
        flood[44..48].copy_from_slice(&ident.to_be_bytes());
        assert_eq!(offer(&mut node, 0, 0, &flood), Ok(Verdict::Held));
        dropped += settled(&mut node, 0).1;
    }
    let held = 20_000 - dropped;
    assert!(
        (1..=weft_contract::bounds::FRAGMENTS.count as u64 / 4).contains(&held),
        "{held}"
    );
    // The longest packet of another peer.
    let whole = later(7, 45);
    for packet in &whole {
        let held = node.lanes[0].inbound(0, &node.routes, OTHER, packet);
        assert_eq!(held, Ok(Verdict::Held));
    }
    assert_eq!(node.receive_from(OTHER, 0, &fragment(7, 0, true, 22)), Ok(()));
    assert_eq!(settled(&mut node, 0), (whole, 0));
    // Nothing of the flood is left behind.
    assert_eq!(offer(&mut node, 0, held::HOLD, &flood), Ok(Verdict::Held));
    assert_eq!(settled(&mut node, 0).1, held);
}
