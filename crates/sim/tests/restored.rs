//! How soon packets pass again in both directions once a path is there again. IPv4 goes in fast frames
//! alone, which need more than FIPS frames do: they have to come back as soon.

use std::cell::Cell;
use std::rc::Rc;

use weft_core::Config;
use weft_sim::{Fate, HostId, World};

use crate::subnets::{datagram, subnet};

/// The time between two packets, ms.
const PACE: u64 = 50;

/// A relay that both ends know, and the ends, which know each other.
struct Net {
    world: World,
    relay: HostId,
    ends: [HostId; 2],
    /// Whether nothing passes from and to the first end.
    cut: Rc<Cell<bool>>,
    ipv4: bool,
    seq: u32,
}

/// Configures the subnets behind all hosts.
fn tell(world: &mut World, own: HostId) {
    let others = (0..world.hosts().len()).filter(|host| *host != own);
    let theirs = others
        .map(|peer| (subnet(peer), world.host(peer).key.node_addr()))
        .collect();
    let now = world.now();
    let host = world.host_mut(own);
    host.node.set_subnets(vec![subnet(own)], theirs);
    host.settle(now);
}

impl Net {
    /// `direct`: the ends reach each other.
    fn new(seed: u64, ipv4: bool, direct: bool) -> Self {
        let mut world = World::new(seed);
        world.conditions.delay = 5;
        let config = Config {
            mesh: true,
            ..Config::default()
        };
        let hosts = [0; 3].map(|_| world.add_host(config));
        let [relay, a, b] = hosts;
        for host in hosts {
            for peer in hosts.into_iter().filter(|peer| *peer != host) {
                world.add_peer(host, peer, true);
            }
            tell(&mut world, host);
        }
        let cut = Rc::new(Cell::new(false));
        let is_cut = cut.clone();
        let ends = [a, b].map(|host| world.host(host).addr);
        world.set_rule(move |_, d| {
            let of = |at| d.src == at || d.dst == at;
            let between = of(ends[0]) && of(ends[1]);
            if is_cut.get() && of(ends[0]) || between && !direct {
                Fate::Drop
            } else {
                Fate::Pass
            }
        });
        let mut net = Self {
            world,
            relay,
            ends: [a, b],
            cut,
            ipv4,
            seq: 0,
        };
        net.talk(10_000 + 37 * seed % 1_000);
        net
    }

    /// The packets that a host has received of these.
    fn received(&self, host: HostId) -> u64 {
        let host = self.world.host(host);
        match self.ipv4 {
            true => host.lane.counters().full_rx,
            false => host.received.len() as u64,
        }
    }

    fn send(&mut self, from: HostId, to: HostId) {
        match self.ipv4 {
            true => self.world.send_ip(from, &datagram(from, to)),
            false => self.world.send(from, to, self.seq, 36),
        }
        self.seq += 1;
    }

    /// The first end sends for so long, and the second one answers each packet. Returns how long it takes
    /// until the first answer, and the longest time without one from then on, ms.
    fn talk(&mut self, ms: u64) -> (u64, u64) {
        let [a, b] = self.ends;
        let start = self.world.now();
        let (mut heard, mut answered) = (self.received(b), self.received(a));
        let (mut last, mut first, mut longest) = (start, None, 0);
        while self.world.now() < start + ms {
            if (self.world.now() - start).is_multiple_of(PACE) {
                self.send(a, b);
            }
            self.world.run(1);
            while heard < self.received(b) {
                self.send(b, a);
                heard += 1;
            }
            if answered < self.received(a) {
                answered = self.received(a);
                if first.is_some() {
                    longest = longest.max(self.world.now() - last);
                }
                first.get_or_insert(self.world.now() - start);
                last = self.world.now();
            }
        }
        (first.unwrap_or(ms), longest.max(self.world.now() - last))
    }

    /// Cuts the first end off for so long, and returns what follows the end of that.
    fn cut(&mut self, ms: u64) -> (u64, u64) {
        self.cut.set(true);
        self.talk(ms);
        self.cut.set(false);
        let now = self.world.now();
        let host = self.world.host_mut(self.ends[0]);
        host.node.handle_network_change(now);
        host.settle(now);
        self.talk(20_000)
    }
}

/// Asserts that packets pass again in both directions within so many ms, and no longer pause follows.
fn assert_within(limit: u64, what: &str, (first, silence): (u64, u64)) {
    assert!(first <= limit, "{what}: {first} ms until the first answer");
    assert!(silence <= limit, "{what}: {silence} ms without an answer later");
}

#[test]
fn ipv4_passes_within_a_second_of_a_path_that_is_back() {
    for (direct, ipv4) in [(true, false), (true, true), (false, false), (false, true)] {
        for seed in 0..20 {
            let mut net = Net::new(seed, ipv4, direct);
            let mut all = Vec::new();
            for ms in [20_000, 5_000, 20_000, 5_000] {
                all.push(net.cut(ms));
            }
            println!("direct {direct}, ipv4 {ipv4}, seed {seed}: {all:?}");
            for passed in all {
                assert_within(1_000, &format!("direct {direct}, ipv4 {ipv4}, seed {seed}"), passed);
            }
        }
    }
}

#[test]
fn ipv4_passes_within_two_seconds_of_a_restart_of_a_neighbour() {
    for (direct, ipv4) in [(true, false), (true, true), (false, false), (false, true)] {
        for seed in 0..20 {
            let mut net = Net::new(seed, ipv4, direct);
            let mut all = Vec::new();
            for host in [net.relay, net.ends[1]] {
                net.world.kill(host);
                net.talk(1_000);
                net.world.restart(host);
                tell(&mut net.world, host);
                all.push(net.talk(20_000));
            }
            println!("direct {direct}, ipv4 {ipv4}, seed {seed}: {all:?}");
            for passed in all {
                assert_within(2_000, &format!("direct {direct}, ipv4 {ipv4}, seed {seed}"), passed);
            }
        }
    }
}
