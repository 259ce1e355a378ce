//! Two hosts with two networks between them, each of which can be cut or drop what is large.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use weft_core::{Config, Event, Path};
use weft_sim::{Conditions, Fate, HostId, World};

/// Two hosts that are in both networks, and which of them work.
pub(crate) struct Net {
    pub(crate) world: World,
    pub(crate) hosts: [HostId; 2],
    pub(crate) first: [SocketAddr; 2],
    pub(crate) second: [SocketAddr; 2],
    /// Whether datagrams pass in the first network, and in the second one.
    pub(crate) passes: [Rc<Cell<bool>>; 2],
    /// The largest datagrams that pass in each of them, of the first host and of the second one, in bytes.
    pub(crate) takes: [Rc<Cell<[usize; 2]>>; 2],
}

impl Net {
    /// The delays of the two networks, ms. The hosts know the addresses of each other in both.
    pub(crate) fn new(seed: u64, delays: [u64; 2]) -> Self {
        let mut world = World::new(seed);
        world.conditions.delay = delays[0];
        let hosts = [0; 2].map(|_| world.add_host(Config::default()));
        let first = hosts.map(|host| world.host(host).addr);
        let second = hosts.map(|host| world.connect_second(host));
        world.set_second(Conditions {
            delay: delays[1],
            ..Conditions::default()
        });
        let passes = [0; 2].map(|_| Rc::new(Cell::new(true)));
        let takes = [0; 2].map(|_| Rc::new(Cell::new([usize::MAX; 2])));
        let (works, largest) = (passes.clone(), takes.clone());
        world.set_rule(move |_, d| {
            let network = usize::from(second.contains(&d.dst));
            let fits = largest[network]
                .get()
                .get(d.from)
                .is_none_or(|most| d.bytes.len() <= *most);
            let pass = works[network].get() && fits;
            if pass { Fate::Pass } else { Fate::Drop }
        });
        Self {
            world,
            hosts,
            first,
            second,
            passes,
            takes,
        }
    }

    pub(crate) fn meet(&mut self, knows_second: [bool; 2]) {
        let [a, b] = self.hosts;
        for (host, peer) in [(a, b), (b, a)] {
            let mut addresses = vec![self.first[peer]];
            addresses.extend(knows_second[host].then_some(self.second[peer]));
            self.world.add_peer_at(host, peer, addresses);
        }
    }

    /// Runs with a packet in each direction each 20 ms, and returns the longest time without a packet at one of
    /// the hosts, ms.
    pub(crate) fn talk(&mut self, ms: u64) -> u64 {
        self.talk_in(ms, [300; 2])
    }

    /// Like [`Net::talk`], with packets of these lengths from the first and from the second host, in bytes.
    pub(crate) fn talk_in(&mut self, ms: u64, lens: [usize; 2]) -> u64 {
        let [a, b] = self.hosts;
        let mut longest = 0;
        let mut last = [self.world.now(); 2];
        for step in 0..ms / 20 {
            let before = self.hosts.map(|host| self.world.host(host).received.len());
            self.world.send(a, b, step as u32, lens[0]);
            self.world.send(b, a, step as u32, lens[1]);
            self.world.run(20);
            for (host, before) in self.hosts.into_iter().zip(before) {
                if self.world.host(host).received.len() > before {
                    last[host] = self.world.now();
                }
                longest = longest.max(self.world.now() - last[host]);
            }
        }
        longest
    }

    pub(crate) fn paths(&self) -> [Option<SocketAddr>; 2] {
        self.hosts.map(|host| {
            let status = self.world.host(host).node.peer_status(self.world.now()).next().unwrap();
            match status.path {
                Some(Path::Direct(at)) => Some(at),
                _ => None,
            }
        })
    }

    /// Whether both ends send in the first network, or both in the second one.
    pub(crate) fn in_second(&self) -> Option<bool> {
        match self.paths() {
            [Some(a), Some(b)] if (a, b) == (self.second[1], self.second[0]) => Some(true),
            [Some(a), Some(b)] if (a, b) == (self.first[1], self.first[0]) => Some(false),
            _ => None,
        }
    }

    pub(crate) fn moves(&self) -> usize {
        let events = self.hosts.iter().flat_map(|host| &self.world.host(*host).events);
        events.filter(|(_, e)| matches!(e, Event::Roamed { .. })).count()
    }
}
