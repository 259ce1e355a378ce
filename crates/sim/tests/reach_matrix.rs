//! Every two kinds of NAT boxes on virtual time: which pairs of nodes become direct, how soon, and that
//! they stay so without the nodes that relayed between them.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_core::{Config, Event};
use weft_sim::{Conditions, HostId, NatKind, World};

use crate::common::reaching::Net;

/// Runs of each cell, each with another seed.
const SEEDS: u64 = 20;
/// Between two packets of the pair, ms.
const PACE: u64 = 100;
/// Until the nodes have their links and know their NATs, ms.
const CALM: u64 = 5_000;
/// For which a pair is watched that does not become direct, ms: longer than an attempt.
const WATCHED: u64 = 40_000;
/// For which a direct pair is silent, ms: longer than a mapping lives.
const SILENCE: u64 = 90_000;
/// The nodes that meet; those that relay have the numbers after theirs.
const PAIR: (HostId, HostId) = (0, 1);

/// The boxes that a node is behind, from the node outward, and whether the first one maps a port on
/// request.
struct Side {
    name: &'static str,
    boxes: &'static [NatKind],
    maps: bool,
}

const fn side(name: &'static str, boxes: &'static [NatKind], maps: bool) -> Side {
    Side { name, boxes, maps }
}

use NatKind::{FullCone, PortRestricted, Restricted, Symmetric, SymmetricPreserving, SymmetricRandom};

const SIDES: [Side; 9] = [
    side("none", &[], false),
    side("full-cone", &[FullCone], false),
    side("restricted", &[Restricted], false),
    side("port-restricted", &[PortRestricted], false),
    side("sequential", &[Symmetric], false),
    side("random", &[SymmetricRandom], false),
    side("double", &[PortRestricted, PortRestricted], false),
    side("masquerade", &[SymmetricPreserving], false),
    side("mapping", &[SymmetricRandom], true),
];

/// The path that two sides have in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// One end, or both, can be told where the other will be seen.
    Direct,
    /// One end has random ports, and the other lets in what comes from where it sent alone.
    Searched,
    Relayed,
}

fn expected(a: &Side, b: &Side) -> Expected {
    let has = |side: &Side, kind: NatKind| side.boxes.contains(&kind) && !side.maps;
    let filters = |side: &Side| {
        let open = side.maps || side.boxes.is_empty();
        !open && !side.boxes.iter().all(|kind| matches!(kind, FullCone | Restricted))
    };
    let foretold = |side: &Side| !has(side, SymmetricRandom) && !has(side, Symmetric);
    match (a, b) {
        _ if !filters(a) || !filters(b) => Expected::Direct,
        _ if !foretold(a) && !foretold(b) => Expected::Relayed,
        _ if has(a, SymmetricRandom) || has(b, SymmetricRandom) => Expected::Searched,
        _ => Expected::Direct,
    }
}

/// Two nodes that know each other's key and the addresses of relays, which have no NAT boxes. Delays
/// differ by seed, and one datagram of a hundred is lost.
fn net(seed: u64, sides: [&Side; 2], relays: usize) -> Net {
    let mut world = World::new(seed);
    world.check_every = 500;
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let mut up_to = |most: u32| u64::from(rng.next_u32() % most);
    world.conditions = Conditions {
        delay: 2 + up_to(60),
        jitter: up_to(10),
        loss: 10,
        ..Conditions::default()
    };
    let config = Config {
        mesh: true,
        ..Config::default()
    };
    let mut mapped = Vec::new();
    for side in sides {
        let id = world.add_host(config);
        side.boxes.iter().for_each(|kind| world.put_behind(id, *kind));
        mapped.push((id, side.maps.then(|| world.map_port(id).unwrap())));
    }
    for _ in 0..relays {
        let relay = world.add_host(config);
        for end in [PAIR.0, PAIR.1] {
            world.add_peer(end, relay, true);
            world.add_peer(relay, end, false);
        }
    }
    world.add_peer(PAIR.0, PAIR.1, false);
    world.add_peer(PAIR.1, PAIR.0, false);
    let mut net = Net::new(seed, world);
    for (id, mapped) in mapped {
        net.searches[id]
            .reach
            .set_mapped(net.world.now(), mapped.into_iter().collect());
    }
    net
}

fn exchange(net: &mut Net, seq: u32) {
    net.world.send(PAIR.0, PAIR.1, seq, 200);
    net.world.send(PAIR.1, PAIR.0, seq, 200);
    net.run(PACE);
}

/// When both ends first had a session with each other, if they have.
fn session_since(net: &Net) -> Option<u64> {
    let up = |from: HostId, to: HostId| {
        let key = net.world.host(to).key;
        let mut events = net.world.host(from).events.iter();
        let up = events.find(|(_, event)| matches!(event, Event::SessionUp { peer } if *peer == key));
        up.map(|(at, _)| *at)
    };
    Some(up(PAIR.0, PAIR.1)?.max(up(PAIR.1, PAIR.0)?))
}

/// Returns how long after their session the pair had a direct path, ms, unless it has none.
fn until_direct(net: &mut Net) -> Option<u64> {
    net.run(CALM);
    for seq in 0..(WATCHED / PACE) as u32 {
        exchange(net, seq);
        if net.is_direct(PAIR) {
            return Some(net.world.now() - session_since(net).unwrap());
        }
    }
    assert!(session_since(net).is_some(), "the relays work");
    None
}

/// The relays are gone, and the pair is silent for longer than mappings live: its packets arrive.
fn stays_direct(net: &mut Net) {
    (2..net.world.hosts().len()).for_each(|relay| net.world.kill(relay));
    (net.world.conditions.loss, net.world.conditions.jitter) = (0, 0);
    net.run(SILENCE);
    let received = |net: &Net| [PAIR.0, PAIR.1].map(|id| net.world.host(id).received.len());
    let before = received(net);
    (1_000..1_050).for_each(|seq| exchange(net, seq));
    net.run(1_000);
    assert_eq!(received(net), before.map(|before| before + 50));
    assert!(net.is_direct(PAIR));
}

/// Runs a cell with all seeds. Returns the times until the path was direct, sorted, ms.
fn cell(a: &Side, b: &Side, relays: usize) -> Vec<u64> {
    let mut times = Vec::new();
    for seed in 0..SEEDS {
        let mut net = net(seed, [a, b], relays);
        if let Some(time) = until_direct(&mut net) {
            times.push(time);
            stays_direct(&mut net);
        }
    }
    times.sort_unstable();
    times
}

fn seconds(ms: u64) -> String {
    format!("{}.{}", ms / 1_000, ms % 1_000 / 100)
}

/// What a cell shows, and whether that is right.
fn judged(a: &Side, b: &Side) -> (String, bool) {
    let times = cell(a, b, 2);
    let (Some(median), Some(worst)) = (times.get(times.len() / 2), times.last()) else {
        return ("R".to_owned(), expected(a, b) == Expected::Relayed);
    };
    let bounds = match expected(a, b) {
        Expected::Direct => [1_500, 5_000],
        Expected::Searched => [4_500, 21_000],
        Expected::Relayed => [0; 2],
    };
    let all = times.len() as u64 == SEEDS;
    let shown = format!("{} / {}", seconds(*median), seconds(*worst));
    (shown, all && *median <= bounds[0] && *worst <= bounds[1])
}

/// Runs the cells of some sides with themselves and all that follow, and prints them as rows of a table.
fn rows(rows: std::ops::Range<usize>) {
    let mut wrong = Vec::new();
    for (n, a) in SIDES.iter().enumerate().take(rows.end).skip(rows.start) {
        let mut line = format!("| {} |{}", a.name, "  |".repeat(n));
        for b in &SIDES[n..] {
            let (shown, right) = judged(a, b);
            line += &format!(" {shown} |");
            if !right {
                wrong.push(format!("{} and {}: {shown}", a.name, b.name));
            }
        }
        println!("{line}");
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn cells_without_a_nat_and_with_cones_become_direct_and_stay() {
    rows(0..3);
}

#[test]
fn cells_with_filters_by_port_become_direct_and_stay() {
    rows(3..5);
}

#[test]
fn cells_with_hard_mappings_have_the_path_that_they_may_have() {
    rows(5..SIDES.len());
}

/// One observer tells no kinds of NATs apart, but the addresses that it sees are enough unless they are
/// other ones for the peer.
#[test]
fn one_neighbour_leads_to_a_direct_path_that_outlasts_it() {
    let changes = |side: &&Side| matches!(side.name, "sequential" | "random");
    let sides: Vec<&Side> = SIDES.iter().filter(|side| !changes(side)).collect();
    for (n, a) in sides.iter().enumerate() {
        for b in &sides[n..] {
            let times = cell(a, b, 1);
            assert_eq!(times.len() as u64, SEEDS, "{} and {}", a.name, b.name);
            assert!(
                times[times.len() / 2] <= 1_500 && *times.last().unwrap() <= 5_000,
                "{times:?}"
            );
        }
    }
}

#[test]
fn one_neighbour_is_enough_to_search_for_random_ports() {
    let of = |name: &str| SIDES.iter().find(|side| side.name == name).unwrap();
    for (a, b) in [("masquerade", "random"), ("random", "masquerade")] {
        assert_eq!(cell(of(a), of(b), 1).len() as u64, SEEDS, "{a} and {b}");
    }
}
