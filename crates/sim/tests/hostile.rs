//! A hostile neighbour costs its neighbours bounded memory, and attracts no traffic that has a
//! working path.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use weft_core::{Config, Hint, HintSource, PeerConfig};
use weft_fuzz::forged;
use weft_sim::{Fate, HostId, Kind, Shape, Topology, World};
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;

const NODES: usize = 16;
const LIAR: HostId = NODES;
const PAIRS: [(HostId, HostId); 4] = [(0, 15), (3, 12), (14, 1), (7, 9)];
/// Length of an IP packet of the sessions, bytes.
const PACKET: usize = 200;
/// Maximum state that the attacker may make a neighbour keep, bytes: 64 requests a second for ten
/// seconds, with paths of a datagram's length.
const MAX_STATE: usize = 400_000;

struct Net {
    world: World,
    neighbours: Vec<HostId>,
    seq: u32,
    /// IP packets for others that were forwarded to the attacker.
    stolen: Rc<Cell<u32>>,
}

impl Net {
    /// Honest nodes with sessions that pass packets. Then the attacker starts: it has links with
    /// four of them, forwards no packet, and forges messages as the test requests.
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        for _ in 0..=NODES {
            world.add_host(config);
        }
        for (a, b) in Topology::new(Shape::Random { degree: 4 }, NODES, seed).links {
            world.add_peer(b, a, true);
            world.add_peer(a, b, false);
        }
        world.kill(LIAR);
        let neighbours = vec![2, 6, 10, 13];
        for neighbour in &neighbours {
            world.add_peer(LIAR, *neighbour, true);
        }
        let stolen = Rc::new(Cell::new(0));
        let count = stolen.clone();
        world.set_rule(move |_, datagram| {
            let forwards = datagram.from == LIAR && datagram.kind == Kind::Data && !datagram.trail.is_empty();
            // Probes of relays are shorter, and may go to the attacker.
            let carried = forwards && datagram.bytes.len() > PACKET;
            count.set(count.get() + u32::from(carried));
            if carried { Fate::Drop } else { Fate::Pass }
        });
        for (a, b) in PAIRS {
            world.add_peer(a, b, false);
            world.add_peer(b, a, false);
        }
        world.run(60_000);
        let mut net = Self {
            world,
            neighbours,
            seq: 0,
            stolen,
        };
        net.exchange(5);
        net.world.restart(LIAR);
        net.exchange(10);
        net
    }

    /// Sends a packet per second in each direction between all pairs. Returns how many were sent
    /// and how many arrived.
    fn exchange(&mut self, seconds: u32) -> (usize, usize) {
        let arrived = |world: &World| world.hosts().iter().map(|host| host.received.len()).sum::<usize>();
        let before = arrived(&self.world);
        for _ in 0..seconds {
            for (a, b) in PAIRS {
                self.world.send(a, b, self.seq, PACKET);
                self.world.send(b, a, self.seq, PACKET);
                self.seq += 1;
            }
            self.world.run(1_000);
        }
        (2 * PAIRS.len() * seconds as usize, arrived(&self.world) - before)
    }

    fn addr(&self, host: HostId) -> NodeAddr {
        self.world.host(host).node_addr()
    }

    /// The addresses of one of the pairs, in both orders.
    fn pair(&self, number: u32) -> [(NodeAddr, NodeAddr); 2] {
        let (a, b) = PAIRS[number as usize % PAIRS.len()];
        let (a, b) = (self.addr(a), self.addr(b));
        [(a, b), (b, a)]
    }

    fn say(&mut self, message: LinkMessageType, body: &[u8]) {
        for neighbour in self.neighbours.clone() {
            self.world.say(LIAR, neighbour, message, body.to_vec());
        }
    }

    /// Runs `lie` `per_second` times a second for a while, and checks that it costs bounded memory.
    /// Returns how many of a thousand packets were lost meanwhile.
    fn endure(&mut self, seconds: u32, per_second: u32, mut lie: impl FnMut(&mut Self, u32)) -> usize {
        let (mut sums, mut most) = ((0, 0), 0);
        for second in 0..seconds {
            for number in 0..per_second {
                lie(self, second * per_second + number);
            }
            let (sent, arrived) = self.exchange(1);
            sums = (sums.0 + sent, sums.1 + arrived);
            for id in 0..NODES {
                let state = self.world.host(id).node.mesh_bytes();
                assert!(state < MAX_STATE, "host {id} keeps {state} bytes");
                most = most.max(state);
            }
        }
        self.world.check_all().unwrap();
        println!(
            "{} lost of {}, {} datagrams moved to the liar, {most} bytes at most",
            sums.0 - sums.1,
            sums.0,
            self.stolen.get()
        );
        (sums.0 - sums.1) * 1_000 / sums.0
    }
}

#[test]
fn floods_of_look_ups_cost_bounded_memory() {
    let mut net = Net::new(1);
    let origin: Vec<_> = (0..60).map(|n| NodeAddr::new([n + 1; 16])).collect();
    let lost = net.endure(20, 500, |net, number| {
        let mut target = [0xee; 16];
        target[..4].copy_from_slice(&number.to_be_bytes());
        net.say(
            LinkMessageType::LookupRequest,
            &forged::request(u64::from(number), &origin, NodeAddr::new(target)),
        );
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

#[test]
fn filters_full_of_ones_draw_nothing() {
    let mut net = Net::new(2);
    let lost = net.endure(20, 2, |net, number| {
        let ones = [8_192, 5_938, 5_937][number as usize % 3];
        net.say(
            LinkMessageType::FilterAnnounce,
            &forged::filter(1_000_000 + u64::from(number), ones),
        );
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

#[test]
fn false_coordinates_of_who_asks_move_nothing() {
    let mut net = Net::new(3);
    let lost = net.endure(20, 20, |net, number| {
        for (victim, other) in net.pair(number) {
            let place = [victim, net.addr(LIAR)];
            let request = forged::request(u64::from(number), &place, other);
            net.say(LinkMessageType::LookupRequest, &request);
        }
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

/// Forty handshakes a second in the name of each victim, with coordinates next to the attacker, and
/// ten times as many. Answers to them go to the attacker, so what it received is not counted here.
#[test]
fn handshakes_in_the_name_of_both_ends_cost_no_packet() {
    for (seed, per_second) in [(3, 20), (5, 20), (7, 200), (10, 200)] {
        let mut net = Net::new(seed);
        let lost = net.endure(20, per_second, |net, number| {
            for (victim, other) in net.pair(number) {
                let liar = net.addr(LIAR);
                let setup = forged::setup(&[victim, liar], &[other, liar]);
                let datagram = forged::datagram(victim, other, 64, &setup);
                net.say(LinkMessageType::SessionDatagram, &datagram);
            }
        });
        assert_eq!(lost, 0, "seed {seed}, {per_second} a second");
    }
}

#[test]
fn forged_proofs_move_nothing() {
    let mut net = Net::new(3);
    let lost = net.endure(20, 20, |net, number| {
        for (victim, _) in net.pair(number) {
            let place = [victim, net.addr(LIAR)];
            let response = forged::response(u64::from(number), &place);
            net.say(LinkMessageType::LookupResponse, &response);
        }
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

#[test]
fn error_signals_move_nothing() {
    let mut net = Net::new(3);
    let lost = net.endure(20, 20, |net, number| {
        for (victim, other) in net.pair(number) {
            let liar = net.addr(LIAR);
            for coords in [&[victim, liar][..], &[]] {
                let signal = forged::signal(liar, victim, coords);
                let datagram = forged::datagram(liar, other, 64, &signal);
                net.say(LinkMessageType::SessionDatagram, &datagram);
            }
        }
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

/// Every rule of the tree demands to follow it. Working paths stay nevertheless.
#[test]
fn a_root_that_does_not_exist_moves_nothing_that_works() {
    let mut net = Net::new(4);
    let identity = net.world.host(LIAR).identity();
    let root = NodeAddr::new([0; 16]);
    let lost = net.endure(30, 1, |net, number| {
        let unix = 1_701_000_000 + u64::from(number);
        let body = forged::tree(&identity, unix + 10_000_000, unix, &[root]);
        net.say(LinkMessageType::TreeAnnounce, &body);
    });
    for id in 0..NODES {
        assert_eq!(
            net.world.host(id).node.coords().last(),
            Some(&root),
            "host {id} was not fooled"
        );
    }
    assert_eq!((lost, net.stolen.get()), (0, 0));
    net.world.kill(LIAR);
    net.exchange(60);
    assert_eq!(net.exchange(20), (160, 160));
}

/// Forged coordinates next to the root are equally attractive.
#[test]
fn a_false_place_near_the_root_moves_nothing_that_works() {
    let mut net = Net::new(5);
    let identity = net.world.host(LIAR).identity();
    let root = *net.world.host(0).node.coords().last().unwrap();
    let lost = net.endure(30, 1, |net, number| {
        let unix = 1_701_000_000 + u64::from(number);
        let body = forged::tree(&identity, unix + 10_000_000, unix, &[root]);
        net.say(LinkMessageType::TreeAnnounce, &body);
    });
    assert_eq!((lost, net.stolen.get()), (0, 0));
}

#[test]
fn a_victim_that_many_peers_name_gets_its_budget() {
    const HEADERS: usize = 28;
    let mut world = World::new(7);
    let [node, honest] = [0; 2].map(|_| world.add_host(Config::default()));
    let victim: std::net::IpAddr = "203.0.113.9".parse().unwrap();
    let sent = Rc::new(Cell::new(0));
    let count = sent.clone();
    world.set_rule(move |_, d| {
        if d.dst.ip() == victim {
            count.set(count.get() + d.bytes.len() + HEADERS);
        }
        Fate::Pass
    });
    let at = world.host(honest).addr;
    let add = |world: &mut World, peer: HostId, addresses: Vec<SocketAddr>| {
        let source = HintSource::Member;
        let addresses = addresses.into_iter().map(|at| Hint { at, source }).collect();
        let (now, key) = (world.now(), world.host(peer).key);
        world.host_mut(node).add_peer(now, PeerConfig { key, addresses });
        world.host_mut(node).settle(now);
    };
    for port in 1..=50 {
        let liar = world.add_host(Config::default());
        world.kill(liar);
        add(
            &mut world,
            liar,
            vec![(victim, port).into(), (victim, 1_000 + port).into()],
        );
    }
    add(&mut world, honest, vec![at]);
    world.add_peer(honest, node, false);
    world.run(60_000);
    let status = |world: &World| {
        let mut all = world.host(node).node.peer_status(world.now());
        all.any(|peer| peer.link.is_some())
    };
    assert!(status(&world), "a peer that answers is linked");
    let minute = sent.get();
    assert!(
        (1_000..=1_536 + 6_144 / 60).contains(&minute),
        "{minute} bytes in a minute"
    );
    // Packets for all of them come all the time.
    for second in 0..3_540 {
        for liar in 2..52 {
            world.send(node, liar, second, 100);
        }
        world.run(1_000);
    }
    let hour = sent.get();
    assert!((4_000..=6_144).contains(&hour), "{hour} bytes in an hour");
}
