//! Packets that pass through a relay move to another one when that leads to the peer on a better
//! path, and stay when it only says so.

use weft_core::{Config, Path, PathReason, PeerStatus};
use weft_sim::{Conditions, Fate, HostId, World};

const FAST: Conditions = link(10, 0);

const fn link(delay: u64, loss: u32) -> Conditions {
    Conditions {
        delay,
        loss,
        jitter: 0,
        reorder: 0,
        duplicate: 0,
        mtu: u16::MAX,
    }
}

fn meshed() -> Config {
    Config {
        mesh: true,
        ..Config::default()
    }
}

/// Two ends that reach each other through either of two relays, and packets that pass.
struct Square {
    world: World,
    a: HostId,
    b: HostId,
    relays: [HostId; 2],
    sent: u32,
}

impl Square {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let [a, b, one, two] = [0; 4].map(|_| world.add_host(meshed()));
        for relay in [one, two] {
            world.add_peer(a, relay, true);
            world.add_peer(b, relay, true);
        }
        world.add_peer(a, b, false);
        world.add_peer(b, a, false);
        world.run(20_000);
        let mut square = Self {
            world,
            a,
            b,
            relays: [one, two],
            sent: 0,
        };
        square.stream(5_000);
        square
    }

    /// Sends a packet in each direction every 20 ms, for `ms`.
    fn stream(&mut self, ms: u64) {
        for _ in 0..ms / 20 {
            self.world.send(self.a, self.b, self.sent, 200);
            self.world.send(self.b, self.a, self.sent, 200);
            self.sent += 1;
            self.world.run(20);
        }
    }

    /// Sets both links of a relay.
    fn set(&mut self, relay: HostId, conditions: Conditions) {
        for end in [self.a, self.b] {
            self.world.set_link(relay, end, Some(conditions));
        }
    }

    fn status(&self, of: HostId, peer: HostId) -> PeerStatus {
        let key = self.world.host(peer).key;
        let mut all = self.world.host(of).node.peer_status(self.world.now());
        all.find(|p| p.key == key).unwrap()
    }

    /// The relays that the ends use.
    fn used(&self) -> [HostId; 2] {
        [(self.a, self.b), (self.b, self.a)].map(|(of, peer)| {
            let path = self.status(of, peer).path;
            let leads = |relay: &&HostId| path == Some(Path::Relayed(self.world.host(**relay).key));
            *self.relays.iter().find(leads).unwrap()
        })
    }

    /// The relay of both ends, and the other one.
    fn roles(&self) -> (HostId, HostId) {
        let used = self.used();
        assert_eq!(used[0], used[1], "both ends use one relay");
        let other = self.relays.into_iter().find(|relay| *relay != used[0]);
        (used[0], other.unwrap())
    }

    fn changes(&self) -> usize {
        let changes = |of, peer| self.status(of, peer).path_changes.len();
        changes(self.a, self.b) + changes(self.b, self.a)
    }

    fn moves(&self) -> u64 {
        let moves = |of: HostId| self.world.host(of).node.counters().relay_moves;
        moves(self.a) + moves(self.b)
    }

    fn received(&self) -> usize {
        self.world.host(self.a).received.len() + self.world.host(self.b).received.len()
    }
}

#[test]
fn packets_move_to_the_relay_on_the_faster_path() {
    for seed in 0..5 {
        let mut square = Square::new(seed);
        let (used, other) = square.roles();
        square.set(other, FAST);
        square.set(used, link(80, 0));
        let (before, sent) = (square.received(), square.sent);
        square.stream(25_000);
        assert_eq!(square.roles(), (other, used), "seed {seed}");
        let reasons = [(square.a, square.b), (square.b, square.a)]
            .map(|(of, peer)| square.status(of, peer).path_changes[0].reason);
        assert!(reasons.contains(&PathReason::Compared), "seed {seed}: {reasons:?}");
        // Both paths work: what is in flight arrives.
        square.world.run(1_000);
        assert_eq!(
            square.received() - before,
            2 * (square.sent - sent) as usize,
            "seed {seed}"
        );
        let rtt = square.status(square.a, square.b).session.unwrap().quality.rtt_us;
        assert_eq!(rtt, Some(40_000), "seed {seed}");
    }
}

#[test]
fn packets_move_off_a_relay_that_loses_them() {
    for seed in 0..5 {
        let mut square = Square::new(seed);
        let (used, other) = square.roles();
        square.set(used, link(10, 150));
        square.stream(40_000);
        assert_eq!(square.roles(), (other, used), "seed {seed}");
    }
}

#[test]
fn equal_relays_keep_what_they_have() {
    for seed in 0..5 {
        let mut square = Square::new(seed);
        square.set(square.relays[1], link(12, 0));
        let changes = square.changes();
        square.stream(600_000);
        assert_eq!((square.changes(), square.moves()), (changes, 0), "seed {seed}");
    }
}

/// The other relay is faster, and forwards nothing.
#[test]
fn a_relay_that_forwards_nothing_attracts_no_packet() {
    for seed in 0..5 {
        let mut square = Square::new(seed);
        let (used, other) = square.roles();
        square.set(used, link(80, 0));
        square.set(other, link(1, 0));
        square.world.set_rule(
            move |_, datagram| match datagram.from == other && !datagram.trail.is_empty() {
                true => Fate::Drop,
                false => Fate::Pass,
            },
        );
        let (changes, before, sent) = (square.changes(), square.received(), square.sent);
        square.stream(120_000);
        square.world.run(1_000);
        assert_eq!(
            square.received() - before,
            2 * (square.sent - sent) as usize,
            "seed {seed}"
        );
        assert_eq!((square.changes(), square.moves()), (changes, 0), "seed {seed}");
    }
}

#[test]
fn an_idle_session_probes_nothing() {
    let mut square = Square::new(1);
    square.stream(60_000);
    let probes = |square: &Square| square.world.host(square.a).node.counters().relay_probes;
    square.world.run(20_000);
    let before = probes(&square);
    assert!(before > 0);
    square.world.run(600_000);
    assert_eq!(probes(&square), before);
}

/// The cost of comparing equal paths for an hour.
#[test]
fn probes_are_few() {
    let mut square = Square::new(2);
    let before = square.world.host(square.a).node.counters().relay_probes;
    square.stream(3_600_000);
    let probes = square.world.host(square.a).node.counters().relay_probes - before;
    // A round of 16 probes in 4 minutes, and some more in the beginning.
    assert!((200..400).contains(&probes), "{probes}");
}
