//! Floods of unfinished session handshakes, at 5,000 a second in each direction, from a node that
//! has a link with some node of the mesh: sessions of others open, rekey and lose nothing.

use std::cell::Cell;
use std::rc::Rc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_core::{Admit, Config, Event};
use weft_fuzz::forged;
use weft_noise::{SecretKey, xk};
use weft_packet::DropReason;
use weft_sim::{Fate, HostId, Kind, World};
use weft_wire::link::LinkMessageType;
use weft_wire::session::{SessionAck, SessionSetup};
use weft_wire::{Coords, NodeAddr};

/// Maximum additional time for a session to open during a flood, ms.
const DELAY: u64 = 1_000;

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// First handshake messages with a key that no node has: any point of the curve gets an answer.
fn points(count: u64) -> Vec<[u8; xk::MSG1_LEN]> {
    let point = |seed| {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let remote = SecretKey::generate(&mut rng).public();
        xk::Initiator::start(remote, &mut rng).1
    };
    (0..count).map(point).collect()
}

fn setup(noise: &[u8; xk::MSG1_LEN], src: &[NodeAddr], dest: &[NodeAddr]) -> Vec<u8> {
    let setup = SessionSetup {
        flags: 0,
        src: Coords::new(src),
        dest: Coords::new(dest),
        noise,
    };
    let mut out = vec![0; setup.wire_len()];
    setup.emit(&mut out).unwrap();
    forged::datagram(src[0], dest[0], 64, &out)
}

fn ack(point: &[u8; xk::MSG1_LEN], number: u32, src: NodeAddr, dest: NodeAddr) -> Vec<u8> {
    let mut noise = [0; xk::MSG2_LEN];
    noise[..point.len()].copy_from_slice(point);
    noise[40..44].copy_from_slice(&number.to_le_bytes());
    let (src_path, dest_path) = ([src], [dest]);
    let ack = SessionAck {
        flags: 0,
        src: Coords::new(&src_path),
        dest: Coords::new(&dest_path),
        noise: &noise,
    };
    let mut out = vec![0; ack.wire_len()];
    ack.emit(&mut out).unwrap();
    forged::datagram(src, dest, 64, &out)
}

fn msg3(number: u32, src: NodeAddr, dest: NodeAddr) -> Vec<u8> {
    let mut message = vec![3, 0, 76, 0, 0, 73, 0];
    message.extend([9; xk::MSG3_LEN]);
    message[20..24].copy_from_slice(&number.to_le_bytes());
    forged::datagram(src, dest, 64, &message)
}

/// The messages of the attacker, 5 times in each millisecond and in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    None,
    Setups,
    Acks,
    Msg3,
    All,
}

/// A and B, which are configured peers, and R, a neighbour of both; M is a neighbour of R alone, or
/// of B too.
struct Net {
    world: World,
    a: HostId,
    b: HostId,
    m: HostId,
    /// The neighbours through which M floods.
    through: Vec<HostId>,
    points: Vec<[u8; xk::MSG1_LEN]>,
    sent: u32,
}

impl Net {
    fn new(seed: u64, direct: bool, near: bool, delay: u64) -> Self {
        let mut world = World::new(seed);
        world.check_every = 1_000;
        let [a, b, r, m] = [0; 4].map(|_| world.add_host(meshed()));
        world.conditions.delay = delay;
        world.conditions.jitter = 10;
        world.add_peer(a, b, direct);
        world.add_peer(b, a, direct);
        world.add_peer(a, r, true);
        world.add_peer(b, r, true);
        world.add_peer(m, r, true);
        if near {
            world.add_peer(m, b, true);
        }
        world.run(10_000);
        Self {
            world,
            a,
            b,
            m,
            through: if near { vec![r, b] } else { vec![r] },
            points: points(50),
            sent: 0,
        }
    }

    /// Runs a millisecond, with five messages of the kind in each direction and through each
    /// neighbour.
    fn flood(&mut self, flood: Flood) {
        let [addr_a, addr_b] = [self.a, self.b].map(|host| self.world.host(host).node_addr());
        for _ in 0..5 {
            self.sent += 1;
            let point = &self.points[self.sent as usize % self.points.len()];
            for (src, dest) in [(addr_a, addr_b), (addr_b, addr_a)] {
                let forged = match flood {
                    Flood::None => Vec::new(),
                    Flood::Setups => vec![setup(point, &[src], &[dest])],
                    Flood::Acks => vec![ack(point, self.sent, src, dest)],
                    Flood::Msg3 => vec![msg3(self.sent, src, dest)],
                    Flood::All => vec![match self.sent % 3 {
                        0 => setup(point, &[src], &[dest]),
                        1 => ack(point, self.sent, src, dest),
                        _ => msg3(self.sent, src, dest),
                    }],
                };
                for lie in forged {
                    for via in self.through.clone() {
                        self.world
                            .say(self.m, via, LinkMessageType::SessionDatagram, lie.clone());
                    }
                }
            }
        }
        self.world.run(1);
    }

    /// Returns the time from the first packet of A until one arrives at B. The flood has lasted for
    /// `before` ms by then.
    fn opens(&mut self, flood: Flood, before: u32) -> u64 {
        for _ in 0..before {
            self.flood(flood);
        }
        let start = self.world.now();
        for seq in 0..15_000 {
            if seq % 100 == 0 {
                self.world.send(self.a, self.b, seq, 200);
            }
            self.flood(flood);
            if let Some((at, _)) = self.world.host(self.b).received.first() {
                return at - start;
            }
        }
        u64::MAX
    }

    fn rekeys(&self) -> usize {
        let events = self.world.host(self.b).events.iter();
        events
            .filter(|(_, e)| matches!(e, Event::SessionRekeyed { .. }))
            .count()
    }
}

/// Checks over all seeds that no session takes longer by more than [`DELAY`] than with the same
/// seed and no flood.
fn opens_in_time(direct: bool, near: bool, delay: u64, floods: &[Flood]) {
    for seed in 1..=5 {
        for before in [0, 1_000] {
            let calm = Net::new(seed, direct, near, delay).opens(Flood::None, before);
            for flood in floods {
                let took = Net::new(seed, direct, near, delay).opens(*flood, before);
                let told =
                    format!("direct {direct}, near {near}, delay {delay}, {flood:?} for {before} ms, seed {seed}");
                println!("{told}: {took} ms, {calm} without");
                assert!(took <= calm.saturating_add(DELAY), "{told}: {took} ms, {calm} without");
            }
        }
    }
}

#[test]
fn forged_setups_do_not_prevent_a_session_of_neighbours() {
    opens_in_time(true, false, 20, &[Flood::Setups, Flood::All]);
}

#[test]
fn nor_over_a_long_way() {
    opens_in_time(true, false, 150, &[Flood::Setups]);
}

#[test]
fn nor_a_session_through_the_relay_of_the_flood() {
    opens_in_time(false, false, 20, &[Flood::Setups, Flood::Acks, Flood::Msg3, Flood::All]);
    opens_in_time(false, false, 75, &[Flood::Setups]);
}

#[test]
fn nor_from_a_neighbour_of_one_end() {
    opens_in_time(true, true, 20, &[Flood::All]);
    opens_in_time(false, true, 20, &[Flood::All]);
}

/// The attacker is four hops from the victims, which are neighbours, and no mesh in between is
/// open.
#[test]
fn nor_from_afar() {
    let mut world = World::new(97);
    world.check_every = 1_000;
    let closed = Config {
        admit: Admit::Configured,
        ..meshed()
    };
    let hosts: Vec<HostId> = (0..6).map(|_| world.add_host(closed)).collect();
    for pair in hosts[..5].windows(2) {
        world.add_peer(pair[0], pair[1], true);
        world.add_peer(pair[1], pair[0], true);
    }
    let (b, a) = (hosts[4], hosts[5]);
    world.add_peer(b, a, true);
    world.add_peer(a, b, true);
    world.run(20_000);
    let [at_a, at_b] = [a, b].map(|host| world.host(host).node.coords().to_vec());
    let acks = Rc::new(Cell::new(0));
    let count = acks.clone();
    world.set_rule(move |_, datagram| {
        let forged = datagram.from == b && datagram.kind == Kind::Ack && datagram.trail.is_empty();
        count.set(count.get() + u32::from(forged));
        Fate::Pass
    });
    let points = points(50);
    let mut took = None;
    for ms in 0..12_000_usize {
        for n in 0..5 {
            let point = &points[(5 * ms + n) % points.len()];
            for (src, dest) in [(&at_a, &at_b), (&at_b, &at_a)] {
                let lie = setup(point, src, dest);
                world.say(hosts[0], hosts[1], LinkMessageType::SessionDatagram, lie);
            }
        }
        if ms >= 2_000 && ms % 100 == 0 {
            world.send(a, b, ms as u32, 200);
        }
        world.run(1);
        if !world.host(b).received.is_empty() {
            took = Some(ms - 2_000);
            break;
        }
    }
    assert!(took.is_some_and(|took| took < 2_000), "{took:?}");
    // Of more than 20,000 messages, the first relay forwards 24 a second to each end.
    let refused = world.host(hosts[1]).lane.counters().drops[DropReason::ClearForwarded];
    assert!(
        refused > 15_000 && acks.get() < 250,
        "{refused} refused, {} answered",
        acks.get()
    );
}

#[test]
fn floods_prevent_no_new_session_keys_and_cost_no_packet() {
    for direct in [true, false] {
        let rekeys = [Flood::None, Flood::All].map(|flood| {
            let mut net = Net::new(5, direct, false, 20);
            // Until shortly before the first keys are replaced.
            for seq in 0..900 {
                net.world.send(net.a, net.b, seq, 200);
                net.world.run(100);
            }
            let (keys, before) = (net.rekeys(), net.world.host(net.b).received.len());
            let (mut sent, mut took) = (0, 0);
            for ms in 0..50_000_u32 {
                if ms % 50 == 0 {
                    net.world.send(net.a, net.b, 10_000 + ms, 200);
                    sent += 1;
                }
                // Simulating the whole flood would take minutes; it is on in every other second of
                // those in which keys may change.
                net.flood(if ms % 2_000 < 1_000 && net.rekeys() == keys {
                    flood
                } else {
                    Flood::None
                });
                took = ms;
                if net.rekeys() > keys {
                    break;
                }
            }
            net.world.run(3_000);
            let arrived = net.world.host(net.b).received.len() - before;
            assert_eq!(arrived, sent, "direct {direct}, {flood:?}");
            (net.rekeys() - keys, took)
        });
        println!("direct {direct}: rekeys and when, without and with {rekeys:?}");
        assert_eq!(rekeys[0].0, 1, "direct {direct}");
        assert!(
            rekeys[1].0 == 1 && rekeys[1].1 <= rekeys[0].1 + 20_000,
            "direct {direct}: {rekeys:?}"
        );
    }
}
