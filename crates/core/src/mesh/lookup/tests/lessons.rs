//! The neighbours that a request goes to, and what an answer teaches: L9, L10, L11.

use super::*;

const A: u8 = 10;
const B: u8 = 11;
const C: u8 = 12;
const D: u8 = 13;
const ORIGIN: u8 = 20;
const TARGET: u8 = 30;

fn ask(id: u64) -> Asked {
    Asked::new(id, addr(ORIGIN), addr(TARGET))
}

#[test]
fn l9_a_usable_direct_route_does_not_prevent_a_lookup() {
    let mut host = Host::new(|a| {
        a.link(addr(TARGET), true, &[addr(TARGET)])
            .link(addr(A), true, &[addr(TARGET)])
    });
    assert_eq!(asked(&host.want(addr(TARGET))), [addr(TARGET), addr(A)]);
    assert!(host.lookups.is_pending(&addr(TARGET)));
}

#[test]
fn l9_a_stale_direct_route_without_filter_asks_any_neighbour() {
    let mut host = Host::new(|a| a.link(addr(TARGET), true, &[addr(TARGET)]).link(addr(A), false, &[]));
    assert_eq!(asked(&host.want(addr(TARGET))), [addr(TARGET), addr(A)]);
}

#[test]
fn l10_the_target_gets_it_as_a_tree_neighbour() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(TARGET), true, &[addr(TARGET)]));
    assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(TARGET)]);
}

#[test]
fn l10_a_target_outside_tree_and_filters_gets_it_as_a_neighbour() {
    // FIPS would hand it to B, whose filter is forged.
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[addr(TARGET)])
            .link(addr(TARGET), false, &[])
    });
    assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(TARGET)]);
}

#[test]
fn l10_a_silent_target_is_sought_through_others_as_well() {
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[addr(TARGET)])
            .link(addr(TARGET), false, &[])
    });
    assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(TARGET)]);
    host.now += 3_000;
    assert_eq!(asked(&host.request(addr(A), &ask(2))), [addr(TARGET), addr(B)]);
}

#[test]
fn l11_tree_neighbours_with_a_filter_come_first() {
    let all = |a: Around| {
        a.link(addr(A), true, &[])
            .link(addr(B), false, &[addr(TARGET)])
            .link(addr(C), true, &[addr(TARGET)])
            .link(addr(D), false, &[])
    };
    assert_eq!(asked(&Host::new(all).request(addr(A), &ask(1))), [addr(C)]);
    assert_eq!(asked(&Host::new(all).want(addr(TARGET))), [addr(C)]);
}

#[test]
fn l11_other_neighbours_with_a_filter_come_second() {
    let all = |a: Around| {
        a.link(addr(A), true, &[])
            .link(addr(B), false, &[addr(TARGET)])
            .link(addr(C), true, &[])
    };
    assert_eq!(asked(&Host::new(all).request(addr(A), &ask(1))), [addr(B)]);
    assert_eq!(asked(&Host::new(all).want(addr(TARGET))), [addr(B)]);
}

#[test]
fn l11_any_neighbour_comes_last() {
    let all = |a: Around| {
        a.link(addr(A), true, &[])
            .link(addr(B), false, &[])
            .link(addr(C), true, &[])
    };
    let mut host = Host::new(all);
    assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(B), addr(C)]);
    assert_eq!(host.lookups.counters().undirected, 1);
    assert_eq!(asked(&Host::new(all).want(addr(TARGET))), [addr(A), addr(B), addr(C)]);
}

#[test]
fn l11_never_the_previous_hop_nor_the_originator() {
    let everyone = [addr(TARGET)];
    for (tree, reaches) in [(true, &everyone[..]), (false, &everyone), (true, &[]), (false, &[])] {
        let mut host = Host::new(|a| {
            a.link(addr(A), tree, reaches)
                .link(addr(ORIGIN), tree, reaches)
                .link(addr(B), tree, reaches)
        });
        assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(B)]);
        host.now += 3_000;
        assert_eq!(asked(&host.request(addr(A), &ask(2))), [addr(B)]);
    }
}

#[test]
fn l11_a_request_id_stops_echoes() {
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[])
            .link(addr(C), true, &[])
    });
    assert_eq!(asked(&host.request(addr(A), &ask(1))), [addr(B), addr(C)]);
    assert_eq!(host.request(addr(B), &ask(1)), []);
    assert_eq!(host.request(addr(A), &ask(1)), []);
    host.now += 9_999;
    assert_eq!(host.request(addr(C), &ask(1)), []);
    assert_eq!(host.lookups.counters().duplicates, 3);
    host.now += 1;
    assert_eq!(asked(&host.request(addr(C), &ask(1))), [addr(A), addr(B)]);
}

#[test]
fn l11_our_own_request_that_comes_back_is_an_echo() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    let (_, request) = requests(&host.want(addr(TARGET))).remove(0);
    assert_eq!(host.request(addr(B), &request), []);
    assert_eq!(host.lookups.counters().echoes, 1);
}

#[test]
fn l11_filters_back_to_the_asker_end_only_the_first_request() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[addr(TARGET)]).link(addr(B), true, &[]));
    assert_eq!(host.request(addr(A), &ask(1)), []);
    assert_eq!(host.lookups.counters().dead_ends, 1);
    host.now += 1_000;
    assert_eq!(asked(&host.request(addr(A), &ask(2))), [addr(B)]);
}

#[test]
fn l11_a_filter_that_leads_nowhere_is_not_the_last_word() {
    let liar = |a: Around| a.link(addr(A), true, &[addr(TARGET)]).link(addr(B), false, &[]);
    let mut origin = Host::new(liar);
    assert_eq!(asked(&origin.want(addr(TARGET))), [addr(A)]);
    assert_eq!(asked(&origin.timeout()), [addr(A)]);
    assert_eq!(asked(&origin.timeout()), [addr(A), addr(B)]);

    let mut transit = Host::new(|a| liar(a).link(addr(C), true, &[]));
    assert_eq!(asked(&transit.request(addr(C), &ask(1))), [addr(A)]);
    transit.now += 1_000;
    assert_eq!(asked(&transit.request(addr(C), &ask(2))), [addr(A)]);
    transit.now += 2_000;
    assert_eq!(asked(&transit.request(addr(C), &ask(3))), [addr(A), addr(B)]);
}

#[test]
fn l11_an_answer_that_was_proven_says_that_the_filter_was_right() {
    let target = identity(9);
    let name = target.node_addr();
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[name])
            .link(addr(C), true, &[])
    })
    .knows(target.public());
    host.request(addr(A), &Asked::new(1, addr(ORIGIN), name));
    assert_eq!(responses(&host.response(addr(B), &Answer::new(1, &target))).len(), 1);
    host.now += 3_000;
    assert_eq!(
        asked(&host.request(addr(A), &Asked::new(2, addr(ORIGIN), name))),
        [addr(B)]
    );
}

#[test]
fn l11_an_answer_in_passing_teaches_the_way_to_both_ends() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[target.node_addr()]));
    let request = Asked::new(1, addr(ORIGIN), target.node_addr());
    assert_eq!(
        host.request(addr(A), &request).len(),
        1,
        "a request alone teaches nothing"
    );
    let answer = Answer::new(1, &target);
    let outputs = host.response(addr(B), &answer);
    let learned = |dest, via, coords: &[NodeAddr], provenance| LookupOutput::Learned {
        dest,
        via,
        coords: coords.to_vec(),
        provenance,
    };
    let (of_target, of_origin) = (Provenance::Answer, Provenance::Passing);
    assert_eq!(
        outputs[1..],
        [
            learned(target.node_addr(), addr(B), &answer.coords, of_target),
            learned(addr(ORIGIN), addr(A), &request.origin_coords, of_origin)
        ]
    );
}

#[test]
fn a_forwarder_calls_an_answer_proven_if_it_can_verify_it() {
    let target = identity(9);
    let mut host =
        Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[target.node_addr()])).knows(target.public());
    host.request(addr(A), &Asked::new(1, addr(ORIGIN), target.node_addr()));
    let outputs = host.response(addr(B), &Answer::new(1, &target));
    let proven: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            LookupOutput::Learned { dest, provenance, .. } => Some((*dest, *provenance)),
            _ => None,
        })
        .collect();
    assert_eq!(
        proven,
        [
            (target.node_addr(), Provenance::Proven),
            (addr(ORIGIN), Provenance::Passing)
        ]
    );
}
