//! Members that lie about where they are, or where others are: what a victim gets that they name, and
//! that no path follows.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use weft_core::{Hint, HintSource, Path, PeerConfig};
use weft_networks::place::Places;
use weft_networks::{Document, Presence};
use weft_sim::{Fate, HostId};
use weft_wire::address;
use weft_wire::link::{OBSERVED, SIGHTING};
use weft_wire::sighting::Sighting;

use crate::common::fleet::Fleet;
use crate::common::reaching::Net;
use crate::reach::{CALM, PACE, PUBLIC, TRAFFIC, mesh, pairs};

/// Members, the founder and the liars among them.
const MEMBERS: usize = 22;
const LIARS: [usize; 4] = [18, 19, 20, 21];
/// Bytes with headers that an address gets from one node at once, and within an hour
/// (docs/protocol/security.md, P28).
const BURST: u64 = 4_096;
const HOUR: u64 = 16_384;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u64 = 28;
const MINUTE: u64 = 60_000;

/// The address of a host outside the network.
fn victim(n: u8) -> IpAddr {
    Ipv4Addr::new(203, 0, 113, n).into()
}

/// Bytes, with headers, that arrived at victims: by sending node, address and minute.
type Hits = Rc<RefCell<BTreeMap<(HostId, IpAddr, u64), u64>>>;

/// Counts what goes to victims. The liars answer the founder alone, so that all others look for them.
fn watch(fleet: &mut Fleet) -> Hits {
    let hits = Hits::default();
    let (count, founder) = (hits.clone(), fleet.host(0));
    let to_founder = fleet.world.host(founder).addr;
    let liars = LIARS.map(|at| fleet.host(at));
    let homes = LIARS.map(|at| fleet.world.host(fleet.host(at)).addr);
    fleet.world.set_rule(move |now, d| {
        if matches!(d.dst.ip(), IpAddr::V4(ip) if ip.octets().starts_with(&[203, 0, 113])) {
            let hit = (d.from, d.dst.ip(), now / MINUTE);
            *count.borrow_mut().entry(hit).or_default() += d.bytes.len() as u64 + HEADERS;
        }
        let by_liar = liars.contains(&d.from) || homes.contains(&d.dst);
        let by_founder = d.from == founder || d.dst == to_founder;
        if by_liar && !by_founder { Fate::Drop } else { Fate::Pass }
    });
    hits
}

/// The first liar names eight ports of one host, the second one eight others of it, the third one eight hosts, and the
/// fourth one two ports of each of four hosts; all of them other ports each 10 s.
fn lie(fleet: &mut Fleet, round: u16) {
    let port = |n: u16| 1_024 + (8 * round + n) % 60_000;
    let say: [Vec<SocketAddr>; 4] = [
        (0..8).map(|n| (victim(1), port(n)).into()).collect(),
        (0..8).map(|n| (victim(1), port(n + 30_000)).into()).collect(),
        (0..8).map(|n| (victim(n as u8 + 1), port(n)).into()).collect(),
        (0..8).map(|n| (victim(n as u8 / 2 + 1), port(n)).into()).collect(),
    ];
    for (at, addresses) in LIARS.into_iter().zip(say) {
        fleet.say(at, addresses);
    }
}

#[test]
fn victims_that_members_name_get_their_budget_of_each_node() {
    name_victims(10);
}

#[test]
#[ignore = "takes a minute: .ci/long sim"]
fn victims_that_members_name_get_their_budget_in_an_hour() {
    name_victims(60);
}

fn name_victims(minutes: u16) {
    let mut fleet = Fleet::joined(1, MEMBERS);
    fleet.world.check_every = 10_000;
    let hits = watch(&mut fleet);
    fleet.step = 500;
    for round in 0..6 * minutes {
        lie(&mut fleet, round);
        // Each node wants to reach all liars, at all times.
        for (at, liar) in (0..LIARS[0]).flat_map(|at| LIARS.map(|liar| (at, liar))) {
            fleet.send(at, liar, u32::from(round));
        }
        fleet.run(10_000);
    }
    let hits = hits.borrow();
    let mut hours: BTreeMap<(HostId, IpAddr), u64> = BTreeMap::new();
    let mut of_all: BTreeMap<IpAddr, u64> = BTreeMap::new();
    for ((from, to, _), bytes) in hits.iter() {
        *hours.entry((*from, *to)).or_default() += bytes;
        *of_all.entry(*to).or_default() += bytes;
    }
    let (minute, hour) = (hits.values().max().unwrap(), hours.values().max().unwrap());
    println!(
        "a node sends a victim at most {minute} bytes in a minute and {hour} in {minutes} minutes; all nodes: {of_all:?}"
    );
    let nodes = hours.keys().map(|(from, _)| from).collect::<BTreeSet<_>>().len();
    assert!(
        nodes >= MEMBERS - LIARS.len() && of_all.len() == 8,
        "{nodes} nodes, {of_all:?}"
    );
    let most = |minutes: u16| BURST + (HOUR - BURST) * u64::from(minutes) / 60;
    assert!(*minute <= most(1), "{minute} bytes in a minute");
    assert!(*hour <= most(minutes), "{hour} bytes in {minutes} minutes");
    let members = (0..LIARS[0]).collect::<Vec<_>>();
    assert!(fleet.agree(&members) && members.iter().skip(1).all(|at| fleet.are_direct(0, *at)));
}

/// The same with all ways together: relayed members whose candidates are addresses of victims, which begin an attempt
/// as often as a node takes part, say them in what members pass on, and seem to be there in the LAN.
#[test]
fn victims_that_are_named_in_all_ways_get_their_budget() {
    const NODES: usize = 24;
    // Not behind a NAT box.
    const LIARS: [HostId; 3] = [19, 21, 23];
    let mut net = mesh(5, NODES);
    net.run(CALM);
    let hits = Hits::default();
    let (count, homes) = (hits.clone(), LIARS.map(|liar| net.world.host(liar).addr));
    let begin = net.world.now();
    net.world.set_rule(move |now, d| {
        let by_liar = LIARS.contains(&d.from);
        if !by_liar && matches!(d.dst.ip(), IpAddr::V4(ip) if ip.octets().starts_with(&[203, 0, 113])) {
            let hit = (d.from, d.dst.ip(), (now - begin) / MINUTE);
            *count.borrow_mut().entry(hit).or_default() += d.bytes.len() as u64 + HEADERS;
        }
        let elsewhere = by_liar && d.dst.port() == 2_121 && d.from >= PUBLIC && !is_public(d.dst);
        let aside = homes.contains(&d.dst) && d.from >= PUBLIC;
        if elsewhere || aside { Fate::Drop } else { Fate::Pass }
    });
    let honest: Vec<HostId> = (PUBLIC..NODES).filter(|id| !LIARS.contains(id)).collect();
    for (liar, node) in LIARS
        .iter()
        .flat_map(|liar| honest.iter().map(move |node| (*liar, *node)))
    {
        net.world.add_peer(liar, node, false);
        net.world.add_peer(node, liar, false);
    }
    for round in 0..360_u16 {
        for (n, liar) in LIARS.into_iter().enumerate() {
            let port = |of: u16| 1_024 + (16 * round + of) % 60_000;
            // One names 16 ports of a victim, the others two ports of each of eight.
            let say = |of: u16| SocketAddr::new(victim(if n == 0 { 1 } else { of as u8 / 2 + 1 }), port(of));
            let now = net.world.now();
            net.searches[liar].reach.set_host(now, (0..16).map(say).collect());
            net.searches[liar].reach.handle_network_change(now);
            for node in &honest {
                name(&mut net, *node, liar, &[0, 1, 2, 3, 4, 5, 6, 7].map(say));
                net.world.send(*node, liar, u32::from(round), 200);
                net.world.send(liar, *node, u32::from(round), 200);
            }
        }
        net.run(10_000);
    }
    let hits = hits.borrow();
    let mut hours: BTreeMap<(HostId, IpAddr), u64> = BTreeMap::new();
    for ((from, to, _), bytes) in hits.iter() {
        *hours.entry((*from, *to)).or_default() += bytes;
    }
    let (minute, hour) = (hits.values().max().unwrap(), hours.values().max().unwrap());
    println!(
        "a node sends a victim at most {minute} bytes in a minute and {hour} in an hour; all nodes: {}",
        hours.values().sum::<u64>(),
    );
    let nodes: BTreeSet<&HostId> = hours.keys().map(|(from, _)| from).collect();
    assert!(honest.iter().all(|node| nodes.contains(node)), "{nodes:?}");
    let most = BURST + (HOUR - BURST) / 60;
    assert!(*minute <= most && *hour <= HOUR, "{minute} and {hour} bytes");
    assert!(*minute > BURST / 2 && *hour > HOUR / 2, "{minute} and {hour} bytes");
}

/// Members pass these addresses of a liar on to a node, and announcements in the LAN have one of them; the daemon of
/// the node inquires about them.
fn name(net: &mut Net, node: HostId, liar: HostId, addresses: &[SocketAddr]) {
    let (now, key) = (net.world.now(), net.world.host(liar).key);
    let source = HintSource::Member;
    let hints = addresses.iter().map(|at| Hint { at: *at, source }).collect();
    let host = net.world.host_mut(node);
    host.add_peer(now, PeerConfig { key, addresses: hints });
    host.node.dial(now, &key, addresses[0], HintSource::Lan);
    for at in addresses {
        // The hosts of the simulation know no empty datagrams.
        if host.node.may_send(now, *at, 1) {
            host.send_outside(now, *at, vec![0]);
        }
    }
    host.settle(now);
}

/// Whether an address is that of one of the public nodes.
fn is_public(at: SocketAddr) -> bool {
    matches!(at.ip(), IpAddr::V4(ip) if ip.octets()[..3] == [192, 0, 2] && usize::from(ip.octets()[3]) <= PUBLIC)
}

/// A public node reports a victim's address to its neighbours, as their own and as that of their peers. The paths stay,
/// and none leads to the victim.
#[test]
fn false_observations_and_sightings_lead_no_path_astray() {
    const NODES: usize = 50;
    const LIAR: HostId = 0;
    let mut net = mesh(11, NODES);
    net.run(CALM);
    let pairs = pairs(&mut net, 3);
    let exchange = |net: &mut Net, pairs: &[(HostId, HostId)], seq: u32| {
        for (a, b) in pairs {
            net.world.send(*a, *b, seq, 200);
            net.world.send(*b, *a, seq, 200);
        }
        net.run(PACE);
    };
    (0..(TRAFFIC / PACE) as u32).for_each(|seq| exchange(&mut net, &pairs, seq));
    let direct: Vec<(HostId, HostId)> = pairs.iter().copied().filter(|pair| net.is_direct(*pair)).collect();
    let key = net.world.host(LIAR).key;
    let knows_liar = |id: &HostId| net.world.host(*id).node.link_path(&key).is_some();
    let neighbours: Vec<HostId> = (PUBLIC..NODES).filter(knows_liar).collect();
    assert!(
        direct.len() > 30 && neighbours.len() > 5,
        "{} {}",
        direct.len(),
        neighbours.len()
    );
    let received = |net: &Net| net.world.hosts().iter().map(|host| host.received.len()).sum::<usize>();
    let before = received(&net);
    let lies = 240;
    for round in 0..lies {
        for neighbour in &neighbours {
            let at = SocketAddr::new(victim(round as u8 % 8 + 1), 1_024 + round as u16);
            net.world
                .say_type(LIAR, *neighbour, OBSERVED, address::to_bytes(at).to_vec());
            for (_, peer) in pairs.iter().filter(|(a, _)| a == neighbour) {
                let of = net.world.host(*peer).node_addr();
                net.world
                    .say_type(LIAR, *neighbour, SIGHTING, Sighting { of, at }.to_bytes().to_vec());
            }
        }
        exchange(&mut net, &direct, 1_000 + round);
        for (a, b) in direct.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
            let path = net.world.host(a).node.weft_path(&net.world.host(b).key);
            let Some(Path::Direct(at)) = path else {
                panic!("{a} has no direct path to {b}")
            };
            let outer = Ipv4Addr::from(u32::from_be_bytes([11, 0, 0, 0]) + b as u32 + 1);
            assert!(
                at == net.world.host(b).addr || at.ip() == outer,
                "{a} sends to {at}, not to {b}"
            );
        }
    }
    net.run(1_000);
    assert_eq!(received(&net) - before, 2 * direct.len() * lies as usize);
    let told = neighbours.iter().filter(|id| {
        let own = net.searches[**id].reach.observed(false);
        own.iter().any(|at| at.ip() != net.world.host(**id).addr.ip())
    });
    assert!(told.count() > 0, "some neighbour has taken notice");
}

/// A liar passes on what it has forged about others, and what they have said before they moved. The two are cut off from
/// each other and move meanwhile, so that only what members pass on leads them to each other.
#[test]
fn a_liar_about_others_neither_moves_nor_separates_them() {
    const LIAR: usize = 4;
    for seed in 0..10 {
        let mut fleet = Fleet::joined(seed, 5);
        fleet.run_until(30_000, |fleet| fleet.are_direct(1, 2));
        let network = fleet.network(1).id();
        let [one, two, liar] = [1, 2, LIAR].map(|at| fleet.host(at));
        let bait = fleet.world.host(liar).addr;
        let genuine = |fleet: &Fleet, at: usize| {
            let addr = fleet.world.host(fleet.host(at)).addr;
            Presence::sign(
                &fleet.world.host(fleet.host(at)).identity(),
                &network,
                1,
                Places::of_udp(&[addr]),
            )
        };
        let old = [1, 2].map(|at| genuine(&fleet, at));
        let forged = [1, 2].map(|at| {
            let mut presence = Presence::sign(
                &fleet.world.host(liar).identity(),
                &network,
                1 << 52,
                Places::of_udp(&[bait]),
            );
            presence.member = fleet.key(at);
            presence
        });
        let presences: Vec<(Presence, u32)> = old.into_iter().chain(forged).map(|presence| (presence, 0)).collect();
        let document = Document::Presences { network, presences }.encode();
        let tell = |fleet: &mut Fleet| {
            (0..LIAR)
                .filter(|to| fleet.send_document(LIAR, *to, document.clone()))
                .count()
        };
        let mut told = 0;
        for round in 0..2 {
            let first = round * 1_000;
            fleet.part(&[1]);
            for (n, host) in [one, two].into_iter().enumerate() {
                let new = ([198, 51, 100, 1 + n as u8], 4_000 + round as u16);
                fleet.world.move_host(host, new.into());
            }
            for second in 0..60 {
                told += tell(&mut fleet);
                fleet.send(1, 2, first + second);
                fleet.send(2, 1, first + second);
                fleet.run(1_000);
            }
            fleet.heal();
            fleet.run_until(60_000, |fleet| fleet.are_direct(1, 2));
            for seq in first + 500..first + 1_000 {
                if seq % 50 == 0 {
                    told += tell(&mut fleet);
                }
                fleet.send(1, 2, seq);
                fleet.run(20);
                assert!(fleet.are_direct(1, 2), "seed {seed}");
            }
            fleet.run(1_000);
            let received = fleet.world.host(two).received.iter();
            let received = received.filter(|(_, probe)| probe.seq >= first + 500).count();
            assert_eq!(received, 500, "seed {seed}");
        }
        assert!(told > 200, "{told} documents of the liar");
    }
}
