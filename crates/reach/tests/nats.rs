//! Nodes behind NATs of all kinds: a direct path is found in time where there is one, and never
//! where there is none.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use common::{Faults, Filtering, Mapping, Nat, World};
use proptest::prelude::*;

const MAPPINGS: [Mapping; 4] = [
    Mapping::None,
    Mapping::EndpointIndependent,
    Mapping::AddressDependent,
    Mapping::AddressAndPortDependent,
];
const FILTERINGS: [Filtering; 3] = [
    Filtering::EndpointIndependent,
    Filtering::AddressDependent,
    Filtering::AddressAndPortDependent,
];

/// The slow model: two hosts that know each other's addresses send to all that they know and have
/// heard of, round by round, without loss. Returns whether each gets an answer from where it sent.
fn possible(nats: &[Nat; 2], told: [&[SocketAddr]; 2]) -> [bool; 2] {
    let mut nats = nats.clone();
    let inner = [nats[0].inner(0), nats[1].inner(1)];
    let mut known = [told[1], told[0]].map(|all| all.iter().copied().collect::<BTreeSet<_>>());
    let mut answered = [false; 2];
    // A datagram: its source, and whether it reaches the other host.
    let pass = |nats: &mut [Nat; 2], from: usize, to: SocketAddr| {
        let other = 1 - from;
        let source = nats[from].outbound(2_000, inner[from], to);
        let there = to.ip() == nats[other].outer();
        let reached = there.then(|| nats[other].inbound(2_000, source, to.port())).flatten();
        (source, reached == Some(inner[other]))
    };
    for _ in 0..6 {
        let mut acks = Vec::new();
        for _ in 0..2 {
            for from in 0..2 {
                for to in known[from].clone() {
                    let (source, reaches) = pass(&mut nats, from, to);
                    if reaches {
                        known[1 - from].insert(source);
                        acks.push((1 - from, source, to));
                    }
                }
            }
        }
        for (from, to, probed) in acks {
            let (source, reaches) = pass(&mut nats, from, to);
            answered[1 - from] |= reaches && source == probed;
        }
    }
    answered
}

/// Runs two hosts behind two NATs. Returns when each found the other one.
fn punch(seed: u64, faults: Faults, nats: [Nat; 2]) -> (World, [Option<u64>; 2], [bool; 2]) {
    let mut world = World::new(seed, faults, Vec::from(nats));
    let (a, b) = (world.host(0), world.host(1));
    let told = [a, b].map(|host| {
        let candidates = world.hosts[host].reach.candidates();
        candidates.iter().map(|candidate| candidate.at).collect::<Vec<_>>()
    });
    let nats = [world.nats[0].clone(), world.nats[1].clone()];
    let possible = possible(&nats, [&told[0], &told[1]]);
    world.join(a, b);
    let start = world.now;
    world.run(start + 25_000);
    let found = [(a, b), (b, a)].map(|(host, other)| {
        let found = world.hosts[host].found.clone();
        for (_, peer, at) in &found {
            assert_eq!(*peer, world.hosts[other].addr);
            assert!(world.leads(host, *at, other), "{at} leads elsewhere");
        }
        assert!(found.len() <= 1, "found twice in one attempt");
        found.first().map(|(at, ..)| at - start)
    });
    (world, found, possible)
}

#[test]
fn every_pair_of_nats_without_faults() {
    let mut direct = 0;
    for (n, (m1, f1)) in MAPPINGS.iter().flat_map(|m| FILTERINGS.map(|f| (*m, f))).enumerate() {
        for (m2, f2) in MAPPINGS.iter().flat_map(|m| FILTERINGS.map(|f| (*m, f))).skip(n) {
            let nats = [Nat::new(1, m1, f1), Nat::new(2, m2, f2)];
            let faults = Faults {
                delay: 20,
                ..Faults::default()
            };
            let (_, found, possible) = punch(7, faults, nats);
            let what = format!("{m1:?}/{f1:?} with {m2:?}/{f2:?}");
            assert_eq!(found.map(|at| at.is_some()), possible, "{what}");
            assert!(found.iter().flatten().all(|at| *at <= 1_000), "{what}: {found:?}");
            direct += usize::from(possible == [true; 2]);
            // What RFC 5128 says, section 3.4: with mappings that do not depend on the endpoint.
            let independent = |m| matches!(m, Mapping::None | Mapping::EndpointIndependent);
            assert!(!(independent(m1) && independent(m2)) || possible == [true; 2], "{what}");
            // Each probe comes from an address of its own, to which none was sent before.
            let dependent = [m1, m2] == [Mapping::AddressAndPortDependent; 2];
            assert!(!dependent || possible == [false; 2], "{what}");
        }
    }
    assert!(direct > 30, "{direct} of 78");
}

/// Two hosts behind one NAT, which turns no datagrams back, take the addresses of their subnet.
#[test]
fn two_hosts_of_one_subnet() {
    let nat = Nat::new(1, Mapping::AddressAndPortDependent, Filtering::AddressAndPortDependent);
    let mut world = World::new(
        3,
        Faults {
            delay: 5,
            ..Faults::default()
        },
        vec![nat],
    );
    let (a, b) = (world.host(0), world.host(0));
    world.join(a, b);
    world.run(3_000);
    assert_eq!(
        world.hosts[a].found.first().map(|found| found.2),
        Some(world.hosts[b].at)
    );
    assert_eq!(
        world.hosts[b].found.first().map(|found| found.2),
        Some(world.hosts[a].at)
    );
}

fn nat(number: u8) -> impl Strategy<Value = Nat> {
    let kinds = (
        prop::sample::select(&MAPPINGS[..]),
        prop::sample::select(&FILTERINGS[..]),
    );
    kinds.prop_map(move |(mapping, filtering)| Nat::new(number, mapping, filtering))
}

fn faults() -> impl Strategy<Value = Faults> {
    let all = (1u64..120, 0u64..150, 0u32..20, 0usize..2);
    all.prop_map(|(delay, jitter, loss, lost_messages)| Faults {
        delay,
        jitter,
        loss,
        lost_messages,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is lost or reordered, a path that there is is found within 5 s.
    #[test]
    fn any_pair_with_faults(seed: u64, faults in faults(), one in nat(1), other in nat(2)) {
        let (_, found, possible) = punch(seed, faults, [one, other]);
        prop_assert_eq!(found.map(|at| at.is_some()), possible);
        prop_assert!(found.iter().flatten().all(|at| *at <= 5_000), "{:?}", found);
    }

    /// Three nodes that look for each other at once find what each pair finds alone.
    #[test]
    fn attempts_of_one_node_do_not_disturb_each_other(
        seed: u64,
        faults in faults(),
        nats in (nat(1), nat(2), nat(3)),
    ) {
        let nats = [nats.0, nats.1, nats.2];
        let mut world = World::new(seed, faults, nats.to_vec());
        let hosts = [0, 1, 2].map(|nat| world.host(nat));
        let pairs = [(0, 1), (1, 2), (0, 2)];
        pairs.iter().for_each(|(one, other)| world.join(hosts[*one], hosts[*other]));
        let start = world.now;
        world.run(start + 25_000);
        for (one, other) in pairs {
            let alone = [nats[one].clone(), nats[other].clone()];
            let (_, _, possible) = punch(seed, Faults::default(), alone);
            for (n, (host, peer)) in [(one, other), (other, one)].into_iter().enumerate() {
                let peer = world.hosts[peer].addr;
                let found = world.hosts[host].found.iter().find(|found| found.1 == peer);
                prop_assert_eq!(found.is_some(), possible[n], "{} and {}", one, other);
                prop_assert!(found.is_none_or(|found| found.0 - start <= 5_000), "{:?}", found);
            }
        }
    }
}
