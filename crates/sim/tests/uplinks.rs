//! Two uplinks at both ends of a link: one of them fails without a sign, is back, and the other one
//! fails.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use weft_contract::Endpoint;
use weft_core::Config;
use weft_sim::{Fate, HostId, World};

/// The time between two packets of each host, ms.
const PACE: u64 = 20;
/// The time without a packet after a cut, ms.
const SILENCE: u64 = 1_500;
/// The age of a datagram that still shows that a path works, ms.
const LATELY: u64 = 2_000;

/// Two hosts with two uplinks each, and what passes.
struct Net {
    world: World,
    hosts: [HostId; 2],
    /// The address of each host in its first uplink.
    first: [SocketAddr; 2],
    /// Its addresses in the second one: that of the ordinary socket, and that of the other one.
    second: [[SocketAddr; 2]; 2],
    /// The address whose uplink is cut.
    cut: Rc<Cell<Option<IpAddr>>>,
    /// When the last datagram passed from an address to another one.
    passed: Rc<RefCell<BTreeMap<(SocketAddr, SocketAddr), u64>>>,
    paths: [Option<Endpoint>; 2],
    moves: usize,
    seq: u32,
}

/// What came of packets in both directions.
struct Passed {
    /// The longest time without a packet at one end, ms.
    silence: u64,
    /// The age of the run when the last packet that was lost left, ms.
    last_lost: Option<u64>,
}

impl Net {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        world.conditions.jitter = 4;
        let hosts = [0; 2].map(|_| world.add_host(Config::default()));
        let second = hosts.map(|host| world.add_uplink(host));
        let first = hosts.map(|host| world.host(host).addr);
        let (cut, passed) = (Rc::new(Cell::new(None)), Rc::new(RefCell::new(BTreeMap::new())));
        let (is_cut, note) = (cut.clone(), passed.clone());
        world.set_rule(move |now, d| {
            if [d.src, d.dst].iter().any(|end| Some(end.ip()) == is_cut.get()) {
                return Fate::Drop;
            }
            note.borrow_mut().insert((d.src, d.dst), now);
            Fate::Pass
        });
        for (host, peer) in [(hosts[0], hosts[1]), (hosts[1], hosts[0])] {
            world.add_peer_at(host, peer, vec![first[peer], second[peer][0]]);
        }
        let mut net = Self {
            world,
            hosts,
            first,
            second,
            cut,
            passed,
            paths: [None; 2],
            moves: 0,
            seq: 0,
        };
        net.talk(12_000 + 37 * seed % 1_000);
        net.moves = 0;
        net
    }

    /// Runs with a packet in each direction each [`PACE`], and checks each change of a path.
    fn talk(&mut self, ms: u64) -> Passed {
        let (start, first) = (self.world.now(), self.seq);
        let before = self.hosts.map(|host| self.world.host(host).received.len());
        let (mut silence, mut last) = (0, [start; 2]);
        for _ in 0..ms / PACE {
            let [a, b] = self.hosts;
            let counts = self.hosts.map(|host| self.world.host(host).received.len());
            self.world.send(a, b, self.seq, 300);
            self.world.send(b, a, self.seq, 300);
            self.seq += 1;
            self.world.run(PACE);
            for host in self.hosts {
                if self.world.host(host).received.len() > counts[host] {
                    last[host] = self.world.now();
                }
                silence = silence.max(self.world.now() - last[host]);
            }
            self.check_moves();
        }
        let lost = self.hosts.map(|host| {
            let received = &self.world.host(host).received[before[host]..];
            let received: BTreeSet<u32> = received.iter().map(|(_, probe)| probe.seq).collect();
            // The last one is on its way.
            (first..self.seq - 2).rev().find(|seq| !received.contains(seq))
        });
        let last_lost = lost.into_iter().flatten().max();
        Passed {
            silence,
            last_lost: last_lost.map(|seq| u64::from(seq - first) * PACE),
        }
    }

    /// The address of a host from which a path leads.
    fn local(&self, host: HostId, path: Endpoint) -> SocketAddr {
        let [ordinary, further] = self.second[host];
        match path.local() {
            _ if !path.socket().is_ordinary() => further,
            Some(local) if local.ip == ordinary.ip() => ordinary,
            _ => self.first[host],
        }
    }

    /// A link goes to a path by which something came from the peer lately, and to no other.
    fn check_moves(&mut self) {
        let [a, b] = self.hosts;
        for (host, peer) in [(a, b), (b, a)] {
            let key = self.world.host(peer).key;
            let path = self.world.host(host).node.link_path(&key);
            if path == self.paths[host] {
                continue;
            }
            self.paths[host] = path;
            self.moves += 1;
            let Some(path) = path else {
                panic!("the link of {host} is down")
            };
            let ends = (path.remote(), self.local(host, path));
            let passed = self.passed.borrow().get(&ends).copied();
            let lately = passed.is_some_and(|at| at + LATELY >= self.world.now());
            assert!(lately, "nothing came by {path:?}");
        }
    }

    /// Cuts an uplink of a host, ends that, and asserts what it costs.
    fn cut_and_mend(&mut self, seed: u64, host: HostId, uplink: usize) -> u64 {
        let ends = [self.first[host], self.second[host][0]];
        self.cut.set(Some(ends[uplink].ip()));
        let cut = self.talk(10_000);
        let what = format!("seed {seed}, uplink {uplink} of {host}");
        assert!(cut.silence <= SILENCE, "{what}: {} ms of silence", cut.silence);
        assert!(
            cut.last_lost.is_none_or(|at| at <= SILENCE),
            "{what}: {:?}",
            cut.last_lost
        );
        self.cut.set(None);
        let back = self.talk(40_000);
        assert_eq!(back.last_lost, None, "{what}: a packet is lost on the way back");
        assert!(back.silence <= 3 * PACE, "{what}: {} ms on the way back", back.silence);
        cut.silence
    }
}

#[test]
fn a_cut_of_either_uplink_of_either_end_costs_no_connection() {
    let (mut silences, mut moves) = (Vec::new(), 0);
    for seed in 0..100 {
        let mut net = Net::new(seed);
        let (host, uplink) = ((seed % 2) as usize, (seed / 2 % 2) as usize);
        for uplink in [uplink, 1 - uplink] {
            silences.push(net.cut_and_mend(seed, net.hosts[host], uplink));
        }
        moves += net.moves;
    }
    silences.sort_unstable();
    let in_use = silences.iter().filter(|ms| **ms > 3 * PACE).count();
    println!(
        "{} cuts, {in_use} of them of the uplink in use: {} ms of silence in the middle, {} at most; {moves} changes of \
         a path",
        silences.len(),
        silences[silences.len() / 2],
        silences[silences.len() - 1],
    );
    assert!(in_use >= 100, "{in_use} cuts were noticed");
}
