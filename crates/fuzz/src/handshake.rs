//! Two nodes with each other as configured peers, and an attacker between them: it sees every
//! datagram, sends any datagram from any address, and may be a neighbour of both in the mesh. It
//! drops nothing.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use weft_core::{Config, Event};
use weft_noise::PublicKey;

use super::input::Input;
use weft_sim::{Fate, HostId, World};

mod attack;

use attack::{Attack, Attacker, Seen};

/// The honest nodes, and the attacker's node, a neighbour.
const A: HostId = 0;
const B: HostId = 1;
const MALLORY: HostId = 2;
const MAX_EVENTS: usize = 60;
/// Maximum number of datagrams and messages of the attacker in one run, so that a run ends.
const MAX_FORGED: u32 = 800;
/// Intervals between packets of the nodes, for a fourth of the inputs and for the others; each
/// datagram costs time, and longer intervals find the same.
const PACES: [Pace; 4] = [
    Pace { step: 20, every: 200 },
    Pace {
        step: 100,
        every: 1_000,
    },
    Pace {
        step: 100,
        every: 1_000,
    },
    Pace {
        step: 100,
        every: 1_000,
    },
];
/// The nodes reach each other within this time after a start or the attacker's last action, ms.
const REACHED_WITHIN: u64 = 60_000;
/// A packet arrives within this, ms.
const ARRIVES_WITHIN: u64 = 2_000;
/// Maximum mesh state that an attacker makes a node keep, bytes.
const MAX_STATE: usize = 4_000_000;

/// Runs two honest nodes and an attacker that forges, replays, spoofs and floods, and drops
/// nothing. After every step no invariant is broken, and each packet that a host received was sent
/// by the other, and received once. When the attack pauses, the two reach each other within
/// `REACHED_WITHIN`. Once they have a link and have reached each other, and until one of them
/// restarts, no attack costs a packet or ends their link or session.
pub fn handshake(data: &[u8]) {
    let mut input = Input::new(data);
    let mut net = Net::new(&mut input);
    for _ in 0..MAX_EVENTS {
        if input.is_empty() {
            break;
        }
        net.event(&mut input);
    }
    net.attacker.flood = None;
    net.until_both_reached();
    // Packets in flight arrive; no further one is sent.
    net.run(ARRIVES_WITHIN + 1);
    if let Err(broken) = net.world.check_all() {
        panic!("{broken}");
    }
}

/// The interval between packets of both nodes.
#[derive(Clone, Copy)]
struct Pace {
    /// Interval during an attack, which is repeated as often, ms.
    step: u64,
    /// Interval otherwise, ms.
    every: u64,
}

/// A packet between the honest nodes.
struct Sent {
    from: HostId,
    len: usize,
    at: u64,
}

struct Net {
    world: World,
    attacker: Attacker,
    pace: Pace,
    /// Which of the honest nodes have the other's address.
    dials: [bool; 2],
    /// Which of them has another address than the other has configured.
    moved: Option<HostId>,
    /// By number.
    sent: Vec<Sent>,
    delivered: BTreeSet<u32>,
    /// When the honest nodes last began to look for each other, and whether each has received a
    /// packet of the other since.
    since: u64,
    reached: [bool; 2],
    next_try: u64,
    /// Which of them have a link with the other's present process, since when both have, and which
    /// has received a packet since.
    linked: [bool; 2],
    linked_since: u64,
    passed: [bool; 2],
    /// Since when both have all of that, so that no attack may end it.
    works: Option<u64>,
    /// Packets sent since then that are in flight, the oldest first.
    owed: VecDeque<u32>,
}

impl Net {
    fn new(input: &mut Input<'_>) -> Self {
        let (shape, seed) = (input.u8(), input.u8());
        let config = Config {
            mesh: shape & 0x04 == 0,
            rekey: [120_000, 31_000, 5_000, 5_000][usize::from(shape & 0x03)],
            fast: shape & 0x08 == 0,
            ..Config::default()
        };
        let mut world = World::new(u64::from(seed & 0x0f));
        world.check_every = 32;
        for _ in [A, B, MALLORY] {
            world.add_host(config);
        }
        // If neither has an address of the other, the path goes through the attacker's node.
        let direct = shape & 0x30 != 0x30 || !config.mesh;
        let dials = [direct, direct && shape & 0x10 == 0];
        world.add_peer(A, B, dials[A]);
        world.add_peer(B, A, dials[B]);
        if config.mesh {
            for honest in [A, B] {
                world.add_peer(MALLORY, honest, true);
                world.add_peer(honest, MALLORY, false);
            }
        }
        let seen = Rc::new(RefCell::new(Seen::default()));
        let tap = seen.clone();
        world.set_rule(move |_, datagram| {
            if datagram.from == A || datagram.from == B {
                tap.borrow_mut().take(datagram);
            }
            Fate::Pass
        });
        Self {
            attacker: Attacker::new(seen, config.mesh),
            pace: PACES[usize::from(seed >> 4 & 3)],
            since: world.now(),
            next_try: world.now(),
            world,
            dials,
            moved: None,
            sent: Vec::new(),
            delivered: BTreeSet::new(),
            linked: [false; 2],
            linked_since: u64::MAX,
            passed: [false; 2],
            works: None,
            owed: VecDeque::new(),
            reached: [false; 2],
        }
    }

    fn event(&mut self, input: &mut Input<'_>) {
        match input.below(16) {
            0..=3 => {
                let ms = [20, 100, 400, 1_500, 6_000, 20_000][input.below(6)];
                self.pass(ms);
            }
            4 | 5 => {
                for _ in 0..=input.below(4) {
                    self.send(input.below(2), 100 + input.below(10) * 100);
                }
            }
            6..=10 => {
                let (attack, times) = (Attack::read(input), [1, 1, 2, 8, 64][input.below(5)]);
                self.attack(attack, times);
            }
            11 | 12 => {
                let each = [1, 1, 4, 16][input.below(4)];
                self.attacker.flood = Some((Attack::read(input), each));
                self.pass([200, 1_000, 3_000, 8_000][input.below(4)]);
            }
            13 => self.attacker.flood = None,
            14 => self.world.conditions.jitter = [0, 0, 5, 40][input.below(4)],
            _ => self.change(input),
        }
        self.check();
    }

    /// A legitimate change at an honest node.
    fn change(&mut self, input: &mut Input<'_>) {
        let id = input.below(2);
        if input.flag() {
            return;
        }
        // A node that dials may have any address, if it still finds the other at its address.
        if input.flag() && self.dials[id] && self.moved.is_none_or(|moved| moved == id) {
            self.moved = Some(id);
            let addr = SocketAddr::from(([203, 0, 113, 1 + id as u8], 2_121 + u16::from(input.u8() & 3)));
            self.world.kill(id);
            self.world.move_host(id, addr);
        }
        self.world.restart(id);
        self.since = self.world.now();
        self.reached = [false; 2];
        (self.linked, self.linked_since, self.passed) = ([false; 2], u64::MAX, [false; 2]);
        self.works = None;
        self.owed.clear();
    }

    fn attack(&mut self, attack: Attack, times: u32) {
        for _ in 0..times {
            if self.attacker.forged < MAX_FORGED {
                self.attacker.act(&mut self.world, attack);
            }
        }
    }

    /// Lets `ms` pass.
    fn pass(&mut self, ms: u64) {
        let end = self.world.now() + ms;
        while self.world.now() < end {
            if let Some((attack, each)) = self.attacker.flood {
                self.attack(attack, each);
            }
            if self.world.now() >= self.next_try {
                self.next_try = self.world.now() + self.step();
                self.send(A, 100);
                self.send(B, 100);
            }
            let left = end - self.world.now();
            self.run(self.step().min(left));
        }
    }

    /// Interval without packets, ms.
    fn step(&self) -> u64 {
        if self.attacker.flood.is_some() {
            self.pace.step
        } else {
            self.pace.every
        }
    }

    fn run(&mut self, ms: u64) {
        if let Err(broken) = self.world.try_run(ms) {
            panic!("{broken}");
        }
        self.check();
    }

    fn send(&mut self, from: HostId, len: usize) {
        self.world.send(from, 1 - from, self.sent.len() as u32, len);
        let at = self.world.now();
        if self.works.is_some() {
            self.owed.push_back(self.sent.len() as u32);
        }
        self.sent.push(Sent { from, len, at });
    }

    fn check(&mut self) {
        let now = self.world.now();
        for id in [A, B] {
            let other = self.world.host(1 - id).key;
            let host = self.world.host_mut(id);
            let state = host.node.mesh_bytes();
            assert!(state < MAX_STATE, "host {id} keeps {state} bytes");
            assert_eq!(host.garbled, 0, "host {id} received a packet that no host sent");
            let events = std::mem::take(&mut host.events);
            for (at, event) in events {
                let ended = ends(&event, other);
                let works = self.works;
                assert!(
                    !(ended && works.is_some()),
                    "host {id} at {at}: {event:?}, worked since {works:?}"
                );
                match event {
                    Event::LinkUp { peer, .. } if peer == other => self.linked[id] = true,
                    Event::LinkDown { peer, .. } if peer == other => {
                        (self.linked[id], self.linked_since, self.passed) = (false, u64::MAX, [false; 2]);
                    }
                    _ => {}
                }
            }
            let received = std::mem::take(&mut host.received);
            for (_, got) in received.into_iter().filter(|(_, got)| got.from == other.node_addr()) {
                let Some(sent) = self.sent.get(got.seq as usize) else {
                    panic!("{got:?} was never sent");
                };
                assert_eq!(
                    (sent.from, sent.len),
                    (1 - id, got.len),
                    "{got:?} was sent by another, or cut"
                );
                assert!(self.delivered.insert(got.seq), "{got:?} is delivered twice");
                self.reached[id] |= sent.at >= self.since;
                self.passed[id] |= sent.at >= self.linked_since;
            }
        }
        if self.linked == [true; 2] {
            self.linked_since = self.linked_since.min(now);
        }
        self.check_owed(now);
        let waited = now - self.since.max(self.attacker.last);
        assert!(
            self.reached == [true; 2] || waited <= REACHED_WITHIN,
            "{waited} ms after a start and all attacks packets passed to: {:?}",
            self.reached
        );
    }

    /// Checks that packets sent over a working link and session arrive.
    fn check_owed(&mut self, now: u64) {
        while let Some(seq) = self.owed.front() {
            let late = now - self.sent[*seq as usize].at > ARRIVES_WITHIN;
            let arrived = self.delivered.contains(seq);
            assert!(
                arrived || !late,
                "packet {seq} of {:?} is lost",
                self.sent[*seq as usize].from
            );
            if !arrived {
                break;
            }
            self.owed.pop_front();
        }
        if self.works.is_none() && self.linked == [true; 2] && self.passed == [true; 2] {
            self.works = Some(now);
        }
    }

    fn until_both_reached(&mut self) {
        while self.reached != [true; 2] {
            self.pass(self.pace.every);
        }
    }
}

/// Whether this event ends the link or the session with `peer`.
fn ends(event: &Event, peer: PublicKey) -> bool {
    match event {
        Event::LinkDown { peer: of, .. } | Event::SessionDown { peer: of, .. } => *of == peer,
        _ => false,
    }
}
