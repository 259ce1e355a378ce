//! Each rule of FIPS's "Discovery Protocol".

use super::super::{ATTEMPTS, MAX_COORDS};
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
fn attempts_at_1_2_4_and_8_seconds_have_fresh_ids_and_then_fail() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]));
    let start = host.now;
    let mut ids = BTreeSet::new();
    let mut outputs = host.want(addr(TARGET));
    for at in [1_000, 3_000, 7_000, 15_000] {
        assert!(ids.insert(requests(&outputs)[0].1.id));
        assert_eq!(host.lookups.deadline(), (start + at, "look-up attempt"));
        outputs = host.timeout();
    }
    assert_eq!(outputs, [LookupOutput::Failed { target: addr(TARGET) }]);
    assert!(!host.lookups.is_pending(&addr(TARGET)));
    assert_eq!(host.lookups.deadline().0, u64::MAX);
}

#[test]
fn wanting_twice_is_wanting_once() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]));
    host.want(addr(TARGET));
    let deadline = host.lookups.deadline();
    host.now += 500;
    assert_eq!(host.want(addr(TARGET)), []);
    assert_eq!(host.lookups.deadline(), deadline);
    assert_eq!(host.lookups.counters().started, 1);
}

#[test]
fn we_are_not_looked_for() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]));
    assert_eq!(host.want(host.around.me), []);
    assert!(!host.lookups.is_pending(&host.around.me));
}

#[test]
fn a_cancelled_lookup_says_nothing_more() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[])).knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    host.lookups.cancel(&target.node_addr());
    assert_eq!(host.lookups.deadline().0, u64::MAX);
    assert_eq!(host.response(addr(A), &Answer::new(id, &target)), []);
}

#[test]
fn a_lookup_outlives_a_start_without_neighbours() {
    let mut host = Host::new(|a| a);
    assert_eq!(host.want(addr(TARGET)), []);
    host.around = host.around.clone().link(addr(A), true, &[]);
    assert_eq!(asked(&host.timeout()), [addr(A)]);
}

#[test]
fn more_lookups_than_allowed_fail_at_once() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]));
    host.lookups.limits.wanted = 2;
    host.want(addr(1));
    host.want(addr(2));
    assert_eq!(host.want(addr(3)), [LookupOutput::Failed { target: addr(3) }]);
    assert_eq!(asked(&host.want(addr(1))), []);
}

#[test]
fn an_answer_is_found_with_the_smallest_mtu_and_its_bearer() {
    let target = identity(9);
    let host = Host::new(|a| a.link(addr(A), true, &[]).mtu(addr(A), 1_400));
    let mut host = host.knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    let answer = Answer::new(id, &target);
    let found = |path_mtu| LookupOutput::Found {
        target: target.node_addr(),
        coords: answer.coords.clone(),
        path_mtu,
        via: addr(A),
    };
    let narrow = Answer {
        path_mtu: 1_300,
        ..answer.clone()
    };
    assert_eq!(host.response(addr(A), &narrow), [found(1_300)]);
    assert!(!host.lookups.is_pending(&target.node_addr()));
    assert_eq!(host.response(addr(A), &answer), []);
    assert_eq!(host.lookups.counters().unsolicited, 1);

    let id = requests(&host.want(target.node_addr()))[0].1.id;
    assert_eq!(host.response(addr(A), &Answer::new(id, &target)), [found(1_400)]);
}

#[test]
fn a_late_answer_to_an_earlier_attempt_is_as_good() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[])).knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    (1..ATTEMPTS).for_each(|_| drop(host.timeout()));
    let outputs = host.response(addr(A), &Answer::new(id, &target));
    assert!(matches!(outputs[..], [LookupOutput::Found { .. }]));
}

#[test]
fn the_target_answers_back_the_way_with_a_proof() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).mtu(addr(A), 1_300));
    host.around.coords = vec![host.around.me, addr(3), addr(0)];
    let request = Asked {
        ttl: 0,
        ..Asked::new(5, addr(ORIGIN), host.around.me)
    };
    let outputs = host.request(addr(A), &request);
    let (to, answer) = responses(&outputs).remove(0);
    assert_eq!((to, answer.id, answer.target), (addr(A), 5, host.around.me));
    assert_eq!((answer.path_mtu, &answer.coords), (1_300, &host.around.coords));
    let proof = prove(&host.identity, 5, host.around.me, Coords::new(&answer.coords)).unwrap();
    assert_eq!(answer.proof, proof);
    let learned = LookupOutput::Learned {
        dest: addr(ORIGIN),
        via: addr(A),
        coords: request.origin_coords.clone(),
        provenance: Provenance::Passing,
    };
    assert_eq!(outputs[1], learned);
    assert_eq!(host.request(addr(A), &request), [], "once");
}

#[test]
fn without_transit_only_the_target_answers() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[target.node_addr()]));
    host.request(addr(A), &Asked::new(1, addr(ORIGIN), target.node_addr()));
    host.around.transit = false;
    assert_eq!(
        host.request(addr(A), &Asked::new(2, addr(ORIGIN), target.node_addr())),
        []
    );
    assert_eq!(host.response(addr(B), &Answer::new(1, &target)), []);
    assert_eq!(host.lookups.counters().not_transit, 2);
    let us = Asked::new(3, addr(ORIGIN), host.around.me);
    assert_eq!(responses(&host.request(addr(A), &us)).len(), 1);
    let mut host = host.knows(target.public());
    let id = requests(&host.want(target.node_addr()))[0].1.id;
    let outputs = host.response(addr(B), &Answer::new(id, &target));
    assert!(matches!(outputs[..], [LookupOutput::Found { .. }]));
}

#[test]
fn each_hop_lowers_the_ttl_and_none_goes_on_without() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    for (id, ttl, expected) in [(1, 2, Some(1)), (2, 1, Some(0)), (3, 0, None), (4, 255, Some(63))] {
        host.now += 10_000;
        let request = Asked { ttl, ..ask(id) };
        let outputs = requests(&host.request(addr(A), &request));
        let expected = expected.map(|ttl| (addr(B), Asked { ttl, ..request }));
        assert_eq!(outputs.first(), expected.as_ref());
    }
    assert_eq!(host.lookups.counters().ttl_exhausted, 1);
}

#[test]
fn a_request_without_ttl_does_not_hide_one_with() {
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[])
            .link(addr(C), true, &[])
    });
    assert_eq!(host.request(addr(A), &Asked { ttl: 0, ..ask(1) }), []);
    assert_eq!(asked(&host.request(addr(B), &ask(1))), [addr(A), addr(C)]);
}

#[test]
fn links_below_the_smallest_mtu_are_not_used() {
    let mut host = Host::new(|a| {
        a.link(addr(A), true, &[])
            .link(addr(B), true, &[addr(TARGET)])
            .link(addr(C), false, &[addr(TARGET)])
            .mtu(addr(B), 1_279)
    });
    let narrow = Asked {
        min_mtu: 1_280,
        ..ask(1)
    };
    let outputs = requests(&host.request(addr(A), &narrow));
    assert_eq!(outputs, [(addr(C), Asked { ttl: 63, ..narrow })]);
}

#[test]
fn path_mtu_is_lowered_by_both_links_of_a_node_on_the_way() {
    let target = identity(9);
    for (towards_origin, towards_target, so_far, expected) in [
        (1_300, 1_400, 1_500, 1_300),
        (1_400, 1_300, 1_500, 1_300),
        (1_400, 1_400, 1_300, 1_300),
    ] {
        let mut host = Host::new(|a| {
            a.link(addr(A), true, &[])
                .link(addr(B), true, &[])
                .mtu(addr(A), towards_origin)
                .mtu(addr(B), towards_target)
        });
        host.request(addr(A), &Asked::new(1, addr(ORIGIN), target.node_addr()));
        let answer = Answer {
            path_mtu: so_far,
            ..Answer::new(1, &target)
        };
        let (to, back) = responses(&host.response(addr(B), &answer)).remove(0);
        assert_eq!(to, addr(A));
        let expected = Answer {
            path_mtu: expected,
            ..answer
        };
        assert_eq!(back, expected);
    }
}

#[test]
fn repeated_requests_of_an_origin_pass_twice_in_two_seconds() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    let passed = |host: &mut Host, id| asked(&host.request(addr(A), &ask(id))).len();
    assert_eq!(
        (passed(&mut host, 1), passed(&mut host, 2), passed(&mut host, 3)),
        (1, 1, 0)
    );
    assert_eq!(host.lookups.counters().too_soon, 1);
    let other = Asked::new(4, addr(ORIGIN + 1), addr(TARGET));
    assert_eq!(asked(&host.request(addr(A), &other)), [addr(B)], "another origin");
    host.now += 2_000;
    assert_eq!(passed(&mut host, 5), 1);
}

#[test]
fn all_attempts_of_one_lookup_get_through_a_node_on_the_way() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    for (id, wait) in [(1, 1_000), (2, 2_000), (3, 4_000), (4, 0)] {
        assert_eq!(asked(&host.request(addr(A), &ask(id))), [addr(B)]);
        host.now += wait;
    }
}

#[test]
fn an_answer_goes_around_a_previous_hop_that_is_gone() {
    let target = identity(9);
    let setup = |next: Option<u8>, origin_near: bool| {
        let mut host = Host::new(|a| {
            a.link(addr(A), true, &[])
                .link(addr(B), true, &[])
                .link(addr(C), true, &[])
        });
        host.request(addr(A), &Asked::new(1, addr(ORIGIN), target.node_addr()));
        host.around.neighbours.remove(&addr(A));
        if origin_near {
            host.around = host.around.clone().link(addr(ORIGIN), false, &[]);
        }
        host.around.next_hops = next.map(|n| (addr(ORIGIN), addr(n))).into_iter().collect();
        host
    };
    for (next, origin_near, expected) in [
        (None, true, Some(ORIGIN)),
        (Some(C), true, Some(ORIGIN)),
        (Some(C), false, Some(C)),
        (Some(B), false, None),
        (Some(D), false, None),
        (None, false, None),
    ] {
        let mut host = setup(next, origin_near);
        let outputs = host.response(addr(B), &Answer::new(1, &target));
        let to = responses(&outputs).first().map(|(to, _)| *to);
        assert_eq!(to, expected.map(addr));
        let counters = host.lookups.counters();
        assert_eq!(
            (counters.rerouted, counters.no_way_back),
            (u64::from(to.is_some()), u64::from(to.is_none()))
        );
        let learned_origin =
            |o: &LookupOutput| matches!(o, LookupOutput::Learned { dest, .. } if *dest == addr(ORIGIN));
        assert!(!outputs.iter().any(learned_origin), "the way of the request is gone");
    }
}

#[test]
fn an_answer_after_the_window_finds_no_way() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    host.request(addr(A), &Asked::new(1, addr(ORIGIN), target.node_addr()));
    host.now += 10_000;
    assert_eq!(host.response(addr(B), &Answer::new(1, &target)), []);
    assert_eq!(host.lookups.counters().unsolicited, 1);
}

#[test]
fn a_request_for_more_than_the_fanout_asks_others_each_time() {
    let mut host = Host::new(|a| (0..100).fold(a, |a, n| a.link(addr(n + 100), false, &[])));
    let mut seen = BTreeSet::new();
    let mut outputs = host.want(addr(TARGET));
    for _ in 0..ATTEMPTS {
        assert_eq!(asked(&outputs).len(), host.lookups.limits.fanout);
        seen.extend(asked(&outputs));
        outputs = host.timeout();
    }
    assert!(seen.len() > host.lookups.limits.fanout);
}

#[test]
fn the_fanout_counts_all_that_are_asked() {
    let mut host = Host::new(|a| {
        let others = (0..20).fold(a, |a, n| a.link(addr(n + 100), false, &[]));
        (0..5).fold(others, |a, n| a.link(addr(n), true, &[addr(TARGET)]))
    });
    host.lookups.limits.fanout = 8;
    assert_eq!(asked(&host.want(addr(TARGET))).len(), 5);
    host.timeout();
    let widened = asked(&host.timeout());
    assert_eq!(widened.len(), 8);
    assert_eq!(widened[..5], [addr(0), addr(1), addr(2), addr(3), addr(4)]);
}

#[test]
fn an_answer_to_a_request_that_went_nowhere_is_nobodys() {
    let target = identity(9);
    let mut host = Host::new(|a| a.link(addr(A), true, &[]));
    let request = Asked::new(1, addr(ORIGIN), target.node_addr());
    assert_eq!(host.request(addr(A), &request), []);
    host.around = host.around.clone().link(addr(B), true, &[]);
    assert_eq!(host.response(addr(B), &Answer::new(1, &target)), []);
    assert_eq!(host.lookups.counters().unsolicited, 1);
}

#[test]
fn old_requests_are_forgotten() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    let empty = host.lookups.bytes();
    (0..50).for_each(|id| drop(host.request(addr(A), &Asked::new(id, addr(ORIGIN), addr(100 + id as u8)))));
    assert!(host.lookups.bytes() > empty + 50 * size_of::<super::super::recent::Recent>());
    assert_eq!(host.lookups.deadline().1, "look-up requests to forget");
    while host.lookups.deadline().0 != u64::MAX {
        host.timeout();
    }
    assert!(host.now <= 50_000 + 12_000);
    assert!(host.lookups.bytes() < empty + 2_048);
}

#[test]
fn coordinates_that_cannot_be_are_refused() {
    let mut host = Host::new(|a| a.link(addr(A), true, &[]).link(addr(B), true, &[]));
    let deep = |len: usize| {
        let mut coords = vec![addr(ORIGIN); len];
        coords.resize(len, addr(0));
        coords
    };
    let with = |id, origin_coords| Asked {
        origin_coords,
        ..ask(id)
    };
    assert_eq!(host.request(addr(A), &with(1, deep(MAX_COORDS + 1))), []);
    assert_eq!(host.request(addr(A), &with(2, vec![addr(A), addr(ORIGIN)])), []);
    assert_eq!(host.lookups.counters().malformed, 2);
    assert_eq!(asked(&host.request(addr(A), &with(3, deep(MAX_COORDS)))), [addr(B)]);
}
