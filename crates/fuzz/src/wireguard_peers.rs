//! The fuzz target of weft-wireguard's handshakes: two peers, and an attacker between them.
//!
//! The attacker sees, drops, repeats, changes and injects datagrams, and names any source. No byte that it sends opens, and
//! once it is gone packets pass again in both directions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_wireguard::interface::{At, Interface, Output, PeerSetup, REJECT_AFTER, Traffic};
use weft_wireguard::keys::{PrivateKey, PublicKey};
use weft_wireguard::transport::{Session, receiver};

use super::input::Input;

/// Steps of one run.
const STEPS: usize = 400;
/// Datagrams that the attacker keeps.
const KEPT: usize = 64;

#[derive(Clone)]
struct Datagram {
    from: SocketAddr,
    to: usize,
    bytes: Vec<u8>,
}

struct End {
    interface: Interface,
    peer: PublicKey,
    sessions: BTreeMap<u32, Session>,
    sending: Option<u32>,
}

struct World {
    now: u64,
    ends: [End; 2],
    restarts: u64,
    under_way: VecDeque<Datagram>,
    kept: Vec<Datagram>,
    /// The numbers of packets that were sealed, and of those that came, by receiver.
    sent: u32,
    came: [BTreeSet<u32>; 2],
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, end as u8 + 1], 51_820))
}

fn private(end: usize) -> PrivateKey {
    PrivateKey::from_bytes([end as u8 + 1; 32])
}

fn fresh(end: usize, seed: u64, at: At) -> End {
    let rng = ChaCha20Rng::seed_from_u64(seed << 1 | end as u64);
    let mut interface = Interface::new(private(end), Box::new(rng));
    let peer = private(1 - end).public();
    let setup = PeerSetup {
        endpoint: Some(address(1 - end)),
        ..PeerSetup::default()
    };
    interface.set_peer(at, peer, setup).unwrap();
    End {
        interface,
        peer,
        sessions: BTreeMap::new(),
        sending: None,
    }
}

impl World {
    fn new() -> Self {
        let at = At {
            now: 0,
            unix: Duration::from_secs(1_700_000_000),
        };
        Self {
            now: 0,
            ends: [0, 1].map(|end| fresh(end, 0, at)),
            restarts: 0,
            under_way: VecDeque::new(),
            kept: Vec::new(),
            sent: 0,
            came: Default::default(),
        }
    }

    fn at(&self) -> At {
        At {
            now: self.now,
            unix: Duration::from_secs(1_700_000_000) + Duration::from_millis(self.now),
        }
    }

    fn settle(&mut self) {
        for number in 0..2 {
            let mut outputs = 0;
            while let Some(output) = self.ends[number].interface.poll_output() {
                outputs += 1;
                assert!(outputs <= 12, "one event causes a bounded number of effects");
                self.carry_out(number, output);
            }
        }
    }

    fn carry_out(&mut self, number: usize, output: Output) {
        let end = &mut self.ends[number];
        match output {
            Output::Send { to, bytes } => self.put(number, to, bytes),
            Output::Install { keys, use_now, .. } => {
                assert!(end.sessions.insert(keys.local, Session::new(&keys)).is_none());
                assert!(end.sessions.len() <= 5, "four, and those that end now");
                if use_now {
                    end.sending = Some(keys.local);
                }
            }
            Output::Use { local, .. } => {
                assert!(end.sessions.contains_key(&local));
                end.sending = Some(local);
            }
            Output::Retire { local, .. } => {
                assert!(end.sessions.remove(&local).is_some());
                end.sending = end.sending.filter(|sending| *sending != local);
            }
            Output::Keepalive { .. } => self.seal(number, &[]),
            Output::Moved { .. } | Output::Unreachable { .. } => {}
        }
    }

    fn put(&mut self, from: usize, to: SocketAddr, bytes: Vec<u8>) {
        let datagram = Datagram {
            from: address(from),
            to: 1 - from,
            bytes,
        };
        if self.kept.len() < KEPT {
            self.kept.push(datagram.clone());
        }
        // What goes to an address of the attacker stays there.
        if to == address(1 - from) {
            self.under_way.push_back(datagram);
        }
    }

    fn seal(&mut self, number: usize, packet: &[u8]) {
        let at = self.at();
        let end = &mut self.ends[number];
        let Some(local) = end.sending else { return };
        let (Some(session), Some(to)) = (end.sessions.get_mut(&local), end.interface.endpoint(&end.peer)) else {
            return;
        };
        let mut bytes = Vec::new();
        session.seal(packet, 1_420, &mut bytes).unwrap();
        let traffic = Traffic {
            sent: u64::from(!packet.is_empty()),
            ..Traffic::default()
        };
        end.interface.note_traffic(at, local, traffic);
        self.put(number, to, bytes);
    }

    fn say(&mut self, number: usize) {
        let at = self.at();
        let end = &mut self.ends[number];
        if end.sending.is_none() {
            let peer = end.peer;
            end.interface.want(at, &peer);
        } else {
            self.sent += 1;
            let packet = [&[number as u8][..], &self.sent.to_le_bytes(), &[0x45; 11]].concat();
            self.seal(number, &packet);
        }
        self.settle();
    }

    fn deliver(&mut self, mut datagram: Datagram) {
        let at = self.at();
        let end = &mut self.ends[datagram.to];
        let Some(local) = receiver(&datagram.bytes) else {
            end.interface.handle_datagram(at, datagram.from, &datagram.bytes);
            return self.settle();
        };
        let Some(session) = end.sessions.get_mut(&local) else {
            return;
        };
        let Ok(packet) = session.open(&mut datagram.bytes) else {
            return;
        };
        let (received, keepalives) = (u64::from(!packet.is_empty()), u64::from(packet.is_empty()));
        if let Some((from, rest)) = packet.split_first() {
            assert_eq!(usize::from(*from), 1 - datagram.to, "what opens was sealed by the peer");
            let number = u32::from_le_bytes(*rest.first_chunk().unwrap());
            assert!(number <= self.sent && self.came[datagram.to].insert(number), "once");
        }
        let traffic = Traffic {
            sent: 0,
            received,
            keepalives,
            from: Some(datagram.from),
        };
        end.interface.note_traffic(at, local, traffic);
        self.settle();
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        loop {
            let due = self.ends.iter().filter_map(|end| end.interface.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due <= until) else {
                break;
            };
            self.now = self.now.max(due);
            let at = self.at();
            for end in &mut self.ends {
                end.interface.handle_timeout(at);
                assert!(end.interface.poll_timeout().is_none_or(|due| due > at.now));
            }
            self.settle();
        }
        self.now = until;
    }

    fn restart(&mut self, number: usize) {
        self.restarts += 1;
        self.ends[number] = fresh(number, self.restarts, self.at());
        self.settle();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let first = |world: &mut Self| world.under_way.pop_front();
        match input.u8() % 10 {
            0 | 1 => self.say(input.below(2)),
            2 | 3 => first(self).into_iter().for_each(|datagram| self.deliver(datagram)),
            4 => drop(first(self)),
            5 => self.pass(u64::from(input.u16()) * 4),
            6 => {
                if let Some(mut datagram) = input.latest(&self.kept).cloned() {
                    if input.flag() {
                        datagram.from = SocketAddr::from(([203, 0, 113, input.u8()], 7));
                    }
                    if input.flag() && !datagram.bytes.is_empty() {
                        input.spoil(&mut datagram.bytes);
                    }
                    self.deliver(datagram);
                }
            }
            7 => {
                let bytes = [&[input.u8() % 5, 0, 0, 0][..], input.bytes()].concat();
                let (to, from) = (input.below(2), address(input.below(4)));
                self.deliver(Datagram { from, to, bytes });
            }
            8 => self.restart(input.below(2)),
            _ => self.kept.clear(),
        }
    }

    /// The attacker is gone: packets pass again.
    fn heal(&mut self) {
        for _ in 0..(REJECT_AFTER + 60_000) / 1_000 {
            for end in 0..2 {
                self.say(end);
            }
            while let Some(datagram) = self.under_way.pop_front() {
                self.deliver(datagram);
            }
            self.pass(1_000);
        }
        let before = [0, 1].map(|end| self.came[end].len());
        for end in 0..2 {
            self.say(end);
        }
        while let Some(datagram) = self.under_way.pop_front() {
            self.deliver(datagram);
        }
        for (end, before) in before.into_iter().enumerate() {
            assert!(self.came[end].len() > before, "no packet reaches {end}");
        }
    }
}

/// Runs two peers and an attacker, whose steps the bytes choose.
///
/// # Panics
/// On a broken promise.
pub fn wireguard(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.heal();
}
