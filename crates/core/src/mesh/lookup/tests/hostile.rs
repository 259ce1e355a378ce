//! What a hostile neighbour can do to a node, and what it costs.

use super::super::recent::Recent;
use super::net::{Filters, Net, line};
use super::*;

const HONEST: u8 = 10;
const HOSTILE: u8 = 11;
const ONWARD: u8 = 12;
const ORIGIN: u8 = 20;
const TARGET: u8 = 30;

fn between() -> Host {
    Host::new(|a| {
        a.link(addr(HONEST), true, &[])
            .link(addr(HOSTILE), true, &[])
            .link(addr(ONWARD), true, &[addr(TARGET)])
    })
}

fn number(n: u64) -> NodeAddr {
    let mut bytes = [0xee; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    NodeAddr::new(bytes)
}

/// Returns a request of the maximum size, of another origin for another target each time.
fn junk(n: u64) -> Asked {
    let mut origin_coords = vec![addr(9); super::super::MAX_COORDS];
    origin_coords[0] = number(n);
    Asked {
        origin_coords,
        ..Asked::new(n, number(n), number(!n))
    }
}

#[test]
fn a_flood_costs_bounded_memory_and_bounded_sends() {
    let mut host = between();
    let mut sends = 0;
    for n in 0..20_000 {
        host.now += 1;
        sends += host.request(addr(HOSTILE), &junk(n)).len();
    }
    let limits = host.lookups.limits;
    let undirected = limits.undirected.burst + 20 * limits.undirected.per_second;
    assert!(sends as u64 <= undirected, "{sends} sends");
    let largest = size_of::<Recent>() + 2 * super::super::MAX_COORDS * 16;
    assert!(host.lookups.bytes() <= limits.recent_per_neighbour * largest);
    assert!(host.lookups.counters().throttled > 15_000);
}

#[test]
fn a_flood_does_not_keep_others_from_being_heard() {
    let mut host = between();
    for n in 0..5_000 {
        host.now += 1;
        host.request(addr(HOSTILE), &junk(n));
    }
    let request = Asked::new(77, addr(ORIGIN), addr(TARGET));
    assert_eq!(asked(&host.request(addr(HONEST), &request)), [addr(ONWARD)]);
    let unknown = Asked::new(78, addr(ORIGIN), addr(99));
    assert_eq!(
        asked(&host.request(addr(HONEST), &unknown)),
        [addr(HOSTILE), addr(ONWARD)]
    );
}

#[test]
fn a_flood_for_absent_nodes_leaves_room_for_real_ones() {
    // Both arrive through the same neighbour.
    let mut host = between();
    for n in 0..100 {
        host.request(addr(HOSTILE), &junk(n));
    }
    assert!(host.lookups.counters().throttled > 0);
    let request = Asked::new(77, addr(ORIGIN), addr(TARGET));
    assert_eq!(asked(&host.request(addr(HOSTILE), &request)), [addr(ONWARD)]);
}

#[test]
fn a_flood_pushes_out_nothing_but_itself() {
    let target = identity(9);
    let name = target.node_addr();
    let mut host = Host::new(|a| {
        a.link(addr(HONEST), true, &[])
            .link(addr(103), true, &[])
            .link(addr(ONWARD), true, &[name])
    });
    host.lookups.limits.recent = 100;
    host.request(addr(HONEST), &Asked::new(1, addr(ORIGIN), name));
    // Three fill the table, a fourth is late.
    for n in 0..600 {
        host.now += 1;
        host.request(addr(100 + (n % 3) as u8), &junk(n));
    }
    assert!(host.lookups.counters().full > 0);
    assert_eq!(
        asked(&host.request(addr(103), &Asked::new(2, addr(ORIGIN + 1), name))),
        [addr(ONWARD)]
    );
    assert_eq!(
        host.request(addr(HONEST), &Asked::new(1, addr(ORIGIN), name)),
        [],
        "still known"
    );
    let back = responses(&host.response(addr(ONWARD), &Answer::new(1, &target)));
    assert_eq!(back[0].0, addr(HONEST));
    let back = responses(&host.response(addr(ONWARD), &Answer::new(2, &target)));
    assert_eq!(back[0].0, addr(103));
}

#[test]
fn no_neighbour_holds_more_than_its_share() {
    let mut host = between();
    host.lookups.limits.recent_per_neighbour = 10;
    for n in 0..30 {
        host.request(addr(HOSTILE), &junk(n));
    }
    assert_eq!(host.lookups.counters().full, 20);
    assert_eq!(host.request(addr(HOSTILE), &junk(0)), [], "the first are still known");
    assert_eq!(host.lookups.counters().duplicates, 1);
    let request = Asked::new(77, addr(ORIGIN), addr(TARGET));
    assert_eq!(asked(&host.request(addr(HONEST), &request)), [addr(ONWARD)]);
}

#[test]
fn frequent_requests_for_a_target_do_not_block_other_origins() {
    // FIPS forwards one request for a target in two seconds, of all origins together.
    let mut host = between();
    for id in 0..50 {
        host.request(addr(HOSTILE), &Asked::new(id, addr(ORIGIN), addr(TARGET)));
    }
    let request = Asked::new(77, addr(ORIGIN), addr(TARGET));
    assert_eq!(asked(&host.request(addr(HONEST), &request)), [addr(ONWARD)]);
}

#[test]
fn a_request_id_in_use_for_another_target_blocks_nothing() {
    let mut host = between();
    host.request(addr(HOSTILE), &Asked::new(5, number(1), number(2)));
    let request = Asked::new(5, addr(ORIGIN), addr(TARGET));
    assert_eq!(asked(&host.request(addr(HONEST), &request)), [addr(ONWARD)]);
}

#[test]
fn a_request_with_our_own_id_does_not_divert_our_answer() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(HOSTILE), true, &[]).link(addr(ONWARD), true, &[])).knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    host.request(addr(HOSTILE), &Asked::new(id, addr(ORIGIN), target.node_addr()));
    let outputs = host.response(addr(ONWARD), &Answer::new(id, &target));
    assert!(matches!(outputs[..], [LookupOutput::Found { .. }]));
}

#[test]
fn requests_in_our_name_or_with_wrong_coordinates_are_dropped() {
    let mut host = between();
    let ours = Asked::new(1, host.around.me, addr(TARGET));
    assert_eq!(host.request(addr(HOSTILE), &ours), []);
    assert_eq!(host.lookups.counters().echoes, 1);
    let borrowed = Asked {
        origin_coords: vec![addr(HONEST), addr(0)],
        ..Asked::new(2, addr(ORIGIN), addr(TARGET))
    };
    assert_eq!(host.request(addr(HOSTILE), &borrowed), []);
    assert_eq!(
        host.request(addr(HOSTILE), &Asked::new(3, addr(TARGET), addr(TARGET))),
        []
    );
    assert_eq!(
        host.request(addr(ONWARD), &Asked::new(4, addr(ORIGIN), addr(ONWARD))),
        []
    );
    assert_eq!(host.lookups.counters().malformed, 3);
}

#[test]
fn a_false_origin_is_learned_only_with_an_answer_and_unproven() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(HOSTILE), true, &[]).link(addr(ONWARD), true, &[])).knows(target.public());
    let learned = |outputs: &[LookupOutput]| {
        let of_origin = |o: &&LookupOutput| matches!(o, LookupOutput::Learned { dest, provenance, .. } if *dest == addr(ORIGIN) || *provenance == Provenance::Proven);
        outputs.iter().filter(of_origin).cloned().collect::<Vec<_>>()
    };
    let pretended = Asked::new(1, addr(ORIGIN), target.node_addr());
    assert_eq!(learned(&host.request(addr(HOSTILE), &pretended)), []);
    let outputs = learned(&host.response(addr(ONWARD), &Answer::new(1, &target)));
    let marks = outputs.iter().map(|o| match o {
        LookupOutput::Learned { dest, provenance, .. } => (*dest, *provenance),
        _ => unreachable!(),
    });
    assert_eq!(
        marks.collect::<Vec<_>>(),
        [
            (target.node_addr(), Provenance::Proven),
            (addr(ORIGIN), Provenance::Passing)
        ]
    );
}

#[test]
fn a_forged_proof_is_dropped_where_the_key_is_known() {
    let target = identity(9);
    let name = target.node_addr();
    let mut host = Host::new(|a| {
        a.link(addr(HONEST), true, &[])
            .link(addr(HOSTILE), true, &[])
            .link(addr(ONWARD), true, &[])
    })
    .knows(target.public());
    host.request(addr(HONEST), &Asked::new(1, addr(ORIGIN), name));
    assert_eq!(host.response(addr(HOSTILE), &Answer::forged(1, name)), []);
    assert_eq!(host.lookups.counters().forged, 1);
    assert_eq!(
        responses(&host.response(addr(ONWARD), &Answer::new(1, &target))).len(),
        1
    );
}

#[test]
fn a_forged_proof_that_comes_first_does_not_end_the_lookup() {
    // No node on the path knows the key, so the forgery is forwarded, and the true answer after it
    // as well.
    let target = identity(9);
    let name = target.node_addr();
    let mut host = Host::new(|a| {
        a.link(addr(HONEST), true, &[])
            .link(addr(HOSTILE), true, &[])
            .link(addr(ONWARD), true, &[])
    });
    host.request(addr(HONEST), &Asked::new(1, addr(ORIGIN), name));
    let passed: Vec<_> = (0..50)
        .flat_map(|_| host.response(addr(HOSTILE), &Answer::forged(1, name)))
        .collect();
    assert_eq!(responses(&passed).len(), 2);
    assert_eq!(
        responses(&host.response(addr(ONWARD), &Answer::new(1, &target))).len(),
        1
    );
    let again = host.response(addr(ONWARD), &Answer::new(1, &target));
    assert_eq!(responses(&again).len(), 1);
    assert_eq!(
        host.response(addr(ONWARD), &Answer::new(1, &target)),
        [],
        "four at most"
    );
}

#[test]
fn the_origin_accepts_no_forgery_and_verifies_few() {
    let target = identity(9);
    let name = target.node_addr();
    let mut host = Host::new(|a| a.link(addr(HOSTILE), true, &[]).link(addr(ONWARD), true, &[])).knows(target.public());
    let id = requests(&host.want(name))[0].1.id;
    for _ in 0..1_000 {
        assert_eq!(host.response(addr(HOSTILE), &Answer::forged(id, name)), []);
    }
    let counters = host.lookups.counters();
    assert_eq!((counters.forged, counters.surplus), (2, 998));
    let moved = Answer {
        coords: vec![name, addr(HOSTILE)],
        ..Answer::new(id, &target)
    };
    assert_eq!(
        host.response(addr(ONWARD), &moved),
        [],
        "the proof covers the coordinates"
    );
    let other = Answer {
        id,
        ..Answer::new(id ^ 1, &target)
    };
    host.timeout();
    assert_eq!(host.response(addr(ONWARD), &other), [], "and the request");
    assert!(host.lookups.is_pending(&name));
}

#[test]
fn the_origin_accepts_nothing_that_it_cannot_verify() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(ONWARD), true, &[]));
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    assert_eq!(host.response(addr(ONWARD), &Answer::new(id, &target)), []);
    assert_eq!(host.lookups.counters().unknown_key, 1);
    host.keys.insert(target.node_addr(), identity(8).public());
    assert_eq!(host.response(addr(ONWARD), &Answer::new(id, &target)), []);
    assert_eq!(host.lookups.counters().forged, 1);
}

#[test]
fn old_answers_played_again_are_not_believed() {
    // FIPS accepts any answer with a valid proof that it did not forward, however old.
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(HOSTILE), true, &[])).knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    let old = Answer::new(id, &target);
    assert_eq!(host.response(addr(HOSTILE), &old).len(), 1);
    host.now += 60_000;
    host.want(target.node_addr());
    assert_eq!(host.response(addr(HOSTILE), &old), []);
    assert!(host.lookups.is_pending(&target.node_addr()));
}

#[test]
fn answers_in_our_name_or_from_the_asker_are_dropped() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(HOSTILE), true, &[]).link(addr(ONWARD), true, &[]));
    let me = host.around.me;
    host.request(addr(HONEST), &Asked::new(1, addr(ORIGIN), me));
    assert_eq!(host.response(addr(HOSTILE), &Answer::forged(1, me)), []);
    host.request(addr(HOSTILE), &Asked::new(2, addr(ORIGIN), target.node_addr()));
    assert_eq!(host.response(addr(HOSTILE), &Answer::new(2, &target)), []);
    let counters = host.lookups.counters();
    assert_eq!((counters.malformed, counters.surplus), (1, 1));
}

#[test]
fn a_flooding_node_does_not_stop_the_lookups_of_a_whole_line() {
    // 0 - 1 - 2 - 3 - 4, and 5, linked to 1, sends a flood for nodes that do not exist.
    let mut links = line(5);
    links.push((1, 5));
    let mut net = Net::new(8, 6, &links, Filters::Perfect);
    let mut worst = 0;
    for n in 0..4_000u64 {
        net.inject(5, 1, &junk(n));
        net.run_until(net.now + 2);
        worst = worst.max(net.members.iter().map(|m| m.lookups.bytes()).max().unwrap());
        if n == 3_000 {
            net.want(0, 4);
        }
    }
    net.run_until(net.now + 20_000);
    assert!(net.found(0, 4).is_some());
    assert_eq!(net.members[0].lookups.counters().attempts, 1);
    let largest = size_of::<Recent>() + 2 * super::super::MAX_COORDS * 16;
    assert!(
        worst <= Limits::default().recent_per_neighbour * largest,
        "{worst} bytes"
    );
    assert!(net.members[1].lookups.counters().throttled > 0);
}
