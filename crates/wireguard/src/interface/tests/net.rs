//! Two interfaces, or more, on a network from a seed, whose rule decides about each datagram.

use std::collections::{BTreeMap, HashMap};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};

use super::super::*;
use crate::transport::{Session, receiver};

/// How long a datagram is under way, in ms.
const DELAY: u64 = 20;

pub(super) type Rule = Box<dyn FnMut(&Datagram) -> bool>;

#[derive(Debug, Clone)]
pub(super) struct Datagram {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

impl Datagram {
    pub(super) fn kind(&self) -> u8 {
        self.bytes[0]
    }
}

/// One end: an interface and what a data path keeps for it.
pub(super) struct End {
    pub(super) interface: Interface,
    pub(super) addr: SocketAddr,
    sessions: HashMap<u32, (PublicKey, Session)>,
    sending: HashMap<PublicKey, u32>,
    waiting: HashMap<PublicKey, Vec<Vec<u8>>>,
    /// Where peers are, as the interface has said: a data path hears nothing else.
    endpoints: HashMap<PublicKey, SocketAddr>,
    /// The numbers of packets that came.
    pub(super) received: Vec<u32>,
    pub(super) unreachable: u64,
    pub(super) installed: u64,
}

pub(super) struct Net {
    pub(super) now: u64,
    pub(super) ends: Vec<End>,
    rng: ChaCha20Rng,
    under_way: BTreeMap<(u64, u64), Datagram>,
    count: u64,
    /// Handshake messages and data messages that were sent, by type.
    pub(super) sent: [u64; 5],
    pub(super) rule: Rule,
    seed: u64,
}

impl Net {
    /// Two ends that know each other. The first one knows where the second one is.
    pub(super) fn pair(seed: u64) -> Self {
        let mut net = Self::new(seed, 2);
        net.acquaint(0, 1, PeerSetup::default());
        net
    }

    pub(super) fn new(seed: u64, count: u8) -> Self {
        let mut net = Self {
            now: 1_000,
            ends: Vec::new(),
            rng: ChaCha20Rng::seed_from_u64(seed),
            under_way: BTreeMap::new(),
            count: 1 << 41,
            sent: [0; 5],
            rule: Box::new(|_| true),
            seed,
        };
        for number in 0..count {
            let addr = SocketAddr::from(([192, 0, 2, number + 1], 51_820));
            let end = net.fresh(number, addr);
            net.ends.push(end);
        }
        net
    }

    fn fresh(&self, number: u8, addr: SocketAddr) -> End {
        let private = PrivateKey::from_bytes([number + 1; 32]);
        let rng = ChaCha20Rng::seed_from_u64(self.seed ^ self.now << 8 ^ u64::from(number));
        End {
            interface: Interface::new(private, Box::new(rng)),
            addr,
            sessions: HashMap::new(),
            sending: HashMap::new(),
            waiting: HashMap::new(),
            endpoints: HashMap::new(),
            received: Vec::new(),
            unreachable: 0,
            installed: 0,
        }
    }

    /// Makes two ends peers. The first one learns where the second one is.
    pub(super) fn acquaint(&mut self, from: usize, to: usize, setup: PeerSetup) {
        let at = self.at();
        let [one, other] = [from, to].map(|end| *self.ends[end].interface.public());
        let endpoint = Some(self.ends[to].addr);
        let there = PeerSetup {
            endpoint,
            ..setup.clone()
        };
        self.ends[from].interface.set_peer(at, other, there).unwrap();
        self.ends[to].interface.set_peer(at, one, setup).unwrap();
        self.settle();
    }

    /// Replaces an end by one with the same key that knows nothing else, as a new process.
    pub(super) fn restart(&mut self, end: usize) {
        let number = u8::try_from(end).unwrap();
        self.ends[end] = self.fresh(number, self.ends[end].addr);
    }

    pub(super) fn at(&self) -> At {
        At {
            now: self.now,
            unix: Duration::from_millis(1_700_000_000_000 + self.now),
        }
    }

    pub(super) fn key(&self, end: usize) -> PublicKey {
        *self.ends[end].interface.public()
    }

    /// Sends a packet with a number.
    pub(super) fn say(&mut self, from: usize, to: usize, number: u32) {
        let key = self.key(to);
        let at = self.at();
        let end = &mut self.ends[from];
        end.waiting.entry(key).or_default().push(number.to_be_bytes().repeat(8));
        match end.sending.contains_key(&key) {
            true => self.flush(from, &key),
            false => end.interface.want(at, &key),
        }
        self.settle();
    }

    fn flush(&mut self, from: usize, key: &PublicKey) {
        let at = self.at();
        let end = &mut self.ends[from];
        let Some(local) = end.sending.get(key).copied() else {
            return;
        };
        let Some(to) = end.endpoints.get(key).copied() else {
            return;
        };
        let packets = end.waiting.remove(key).unwrap_or_default();
        for packet in packets {
            let mut bytes = Vec::new();
            end.sessions
                .get_mut(&local)
                .unwrap()
                .1
                .seal(&packet, 1_420, &mut bytes)
                .unwrap();
            let traffic = Traffic {
                sent: 1,
                ..Traffic::default()
            };
            end.interface.note_traffic(at, local, traffic);
            let from = end.addr;
            Self::put(
                &mut self.under_way,
                &mut self.count,
                self.now,
                &mut self.sent,
                Datagram { from, to, bytes },
            );
        }
    }

    fn put(
        queue: &mut BTreeMap<(u64, u64), Datagram>,
        count: &mut u64,
        now: u64,
        sent: &mut [u64; 5],
        datagram: Datagram,
    ) {
        if let Some(sent) = sent.get_mut(usize::from(datagram.kind())) {
            *sent += 1;
        }
        *count += 1;
        queue.insert((now + DELAY, *count), datagram);
    }

    /// Puts a datagram on the way as it is.
    pub(super) fn inject(&mut self, datagram: Datagram) {
        Self::put(&mut self.under_way, &mut self.count, self.now, &mut [0; 5], datagram);
    }

    /// Puts a datagram on the way as it is, in front of or behind those of the same time.
    pub(super) fn inject_early(&mut self, datagram: Datagram, place: u64) {
        self.count += 1;
        let order = if place == 0 { self.count - (1 << 40) } else { self.count };
        self.under_way.insert((self.now + DELAY, order), datagram);
    }

    /// Delivers one packet of each end to the other one as if it came from these addresses.
    pub(super) fn lead_astray(&mut self, from: [SocketAddr; 2]) {
        for end in [0, 1] {
            self.say(end, 1 - end, 300);
        }
        for datagram in self.under_way.values_mut() {
            let to = self.ends.iter().position(|end| end.addr == datagram.to);
            datagram.from = from[to.unwrap()];
        }
        self.run(DELAY);
    }

    /// Carries out what the interfaces call for.
    pub(super) fn settle(&mut self) {
        for end in 0..self.ends.len() {
            while let Some(output) = self.ends[end].interface.poll_output() {
                self.carry_out(end, output);
            }
        }
    }

    fn carry_out(&mut self, number: usize, output: Output) {
        let end = &mut self.ends[number];
        match output {
            Output::Send { to, bytes } => {
                let from = end.addr;
                Self::put(
                    &mut self.under_way,
                    &mut self.count,
                    self.now,
                    &mut self.sent,
                    Datagram { from, to, bytes },
                );
            }
            Output::Install { peer, keys, use_now } => {
                end.installed += 1;
                end.sessions.insert(keys.local, (peer, Session::new(&keys)));
                if use_now {
                    end.sending.insert(peer, keys.local);
                    self.flush(number, &peer);
                }
            }
            Output::Use { peer, local } => {
                end.sending.insert(peer, local);
                self.flush(number, &peer);
            }
            Output::Retire { local, .. } => {
                assert!(end.sessions.remove(&local).is_some(), "keys end once");
                end.sending.retain(|_, sending| *sending != local);
            }
            Output::Keepalive { peer } => {
                let Some(local) = end.sending.get(&peer) else { return };
                let Some(to) = end.endpoints.get(&peer).copied() else {
                    return;
                };
                let mut bytes = Vec::new();
                end.sessions
                    .get_mut(local)
                    .unwrap()
                    .1
                    .seal(&[], 1_420, &mut bytes)
                    .unwrap();
                let from = end.addr;
                Self::put(
                    &mut self.under_way,
                    &mut self.count,
                    self.now,
                    &mut self.sent,
                    Datagram { from, to, bytes },
                );
            }
            Output::Moved { peer, to } => drop(end.endpoints.insert(peer, to)),
            Output::Unreachable { peer } => {
                end.unreachable += 1;
                end.waiting.remove(&peer);
            }
        }
    }

    fn deliver(&mut self, mut datagram: Datagram) {
        if !(self.rule)(&datagram) {
            return;
        }
        let at = self.at();
        let Some(end) = self.ends.iter_mut().find(|end| end.addr == datagram.to) else {
            return;
        };
        let Some(local) = receiver(&datagram.bytes) else {
            return end.interface.handle_datagram(at, datagram.from, &datagram.bytes);
        };
        let Some((_, session)) = end.sessions.get_mut(&local) else {
            return;
        };
        let Ok(packet) = session.open(&mut datagram.bytes) else {
            return;
        };
        let traffic = Traffic {
            received: u64::from(!packet.is_empty()),
            keepalives: u64::from(packet.is_empty()),
            from: Some(datagram.from),
            sent: 0,
        };
        if let Some(number) = packet.first_chunk() {
            end.received.push(u32::from_be_bytes(*number));
        }
        end.interface.note_traffic(at, local, traffic);
    }

    /// Lets `ms` pass.
    pub(super) fn run(&mut self, ms: u64) {
        let until = self.now + ms;
        loop {
            let timers = self.ends.iter().filter_map(|end| end.interface.poll_timeout());
            let next = timers.chain(self.under_way.keys().next().map(|(at, _)| *at)).min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= self.now) {
                let datagram = first.remove();
                self.deliver(datagram);
                self.settle();
            }
            let at = self.at();
            for end in &mut self.ends {
                end.interface.handle_timeout(at);
                let due = end.interface.poll_timeout();
                assert!(
                    due.is_none_or(|due| due > at.now),
                    "a timer that is due at {due:?} does nothing"
                );
            }
            self.settle();
        }
        self.now = until;
    }

    /// Sends packets with numbers from `first` on in both directions between two ends, one each `pause` ms, and returns
    /// how many came.
    pub(super) fn talk(&mut self, [a, b]: [usize; 2], first: u32, (count, pause): (u32, u64)) -> [usize; 2] {
        let before = [a, b].map(|end| self.ends[end].received.len());
        for number in first..first + count {
            self.say(a, b, number);
            self.say(b, a, number);
            self.run(pause);
        }
        [a, b].map(|end| self.ends[end].received.len() - before[usize::from(end == b)])
    }

    pub(super) fn draw(&mut self) -> u32 {
        self.rng.next_u32()
    }
}
