//! Members that synchronise over a network with delay and loss, on a virtual clock.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};
use weft_noise::PublicKey;
use weft_roster::key::RecordKey;
use weft_roster::network_id::NetworkId;
use weft_roster::record::{Body, Draft, Record, RecordError};
use weft_roster::set::RecordSet;
use weft_roster::state::State;
use weft_roster::sync::{MAX_MESSAGE, Message, Proven, Received, Sync, SyncError};

struct Node {
    key: PublicKey,
    set: RecordSet,
    state: State,
    sync: Sync,
    sent: usize,
    refused: Vec<SyncError>,
}

/// Nodes that reach each other, and what is between them.
struct World {
    nodes: BTreeMap<PublicKey, Node>,
    /// Messages by the time of their arrival.
    wire: BTreeMap<(u64, u64), (PublicKey, PublicKey, Vec<u8>)>,
    rng: ChaCha20Rng,
    /// Of 100 messages, how many get lost.
    loss: u32,
    /// A node that no message reaches, and from which none comes.
    cut: Option<PublicKey>,
    now: u64,
    sent: u64,
}

impl World {
    /// Nodes with the numbers 1 to `n`, all members, that know `records`.
    fn new(n: u8, loss: u32, records: &[Arc<Record>]) -> Self {
        let set = set(records);
        let state = State::of(&set);
        let node = |n| Node {
            key: key(n),
            set: set.clone(),
            state: state.clone(),
            sync: Sync::new(key(n)),
            sent: 0,
            refused: Vec::new(),
        };
        let mut world = Self {
            nodes: (1..=n).map(node).map(|node| (node.key, node)).collect(),
            wire: BTreeMap::new(),
            rng: ChaCha20Rng::seed_from_u64(u64::from(n) + u64::from(loss)),
            loss,
            cut: None,
            now: 0,
            sent: 0,
        };
        let keys: Vec<PublicKey> = world.nodes.keys().copied().collect();
        for a in &keys {
            for b in keys.iter().filter(|b| *b != a) {
                world.node(a).sync.connect(*b, 0);
            }
        }
        world.run_until(300_000);
        world.count_from_here();
        world
    }

    fn node(&mut self, key: &PublicKey) -> &mut Node {
        self.nodes.get_mut(key).unwrap()
    }

    fn at(&mut self, n: u8) -> &mut Node {
        self.node(&key(n))
    }

    fn count_from_here(&mut self) {
        self.nodes.values_mut().for_each(|node| node.sent = 0);
    }

    /// A record is made at a node.
    fn make(&mut self, at: u8, record: &Arc<Record>) {
        let now = self.now;
        let node = self.at(at);
        node.set.insert(record);
        node.state = State::of(&node.set);
        node.sync.push(record, None, &node.state, now);
    }

    fn poll(&mut self) {
        for node in self.nodes.values_mut() {
            while let Some((to, message)) = node.sync.poll(&node.set, &node.state, self.now) {
                node.sent += 1;
                self.sent += 1;
                let bytes = message.encode();
                assert!(bytes.len() <= MAX_MESSAGE);
                let cut = self.cut.is_some_and(|cut| [to, node.key].contains(&cut));
                if self.rng.next_u32() % 100 >= self.loss && !cut {
                    let delay = 5 + u64::from(self.rng.next_u32() % 60);
                    self.wire.insert((self.now + delay, self.sent), (node.key, to, bytes));
                }
            }
        }
    }

    fn run_until(&mut self, end: u64) {
        loop {
            self.poll();
            let arrival = self.wire.first_key_value().map(|((time, _), _)| *time);
            let timers = self.nodes.values().filter_map(|node| node.sync.timeout());
            let Some(next) = timers.chain(arrival).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                self.arrive(from, to, &bytes);
            }
        }
    }

    fn arrive(&mut self, from: PublicKey, to: PublicKey, bytes: &[u8]) {
        let now = self.now;
        let node = self.node(&to);
        let Received { kept, outcome } =
            node.sync
                .receive(&from, bytes, &mut node.set, &node.state, &Proven::default(), now);
        node.refused.extend(outcome.err());
        if kept.is_empty() {
            return;
        }
        node.state = State::of(&node.set);
        for record in kept {
            node.sync.push(&record, Some(&from), &node.state, now);
        }
    }

    /// The time until a condition holds at all nodes.
    fn time_until(&mut self, limit: u64, holds: impl Fn(&Node) -> bool) -> u64 {
        let start = self.now;
        while !self.nodes.values().all(&holds) {
            assert!(self.now - start < limit, "not within {limit} ms");
            self.run_until(self.now + 10);
        }
        self.now - start
    }
}

/// A network whose nodes 1 to `n` are members.
fn network(n: u8) -> Vec<Arc<Record>> {
    let mut records = vec![founding(1, None), grant(1, 2, 1)];
    records.extend((1..=n).map(|n| member(1, n, 1)));
    records
}

#[test]
fn a_change_reaches_all_within_20_messages_a_member() {
    for (n, loss) in [(3, 0), (3, 30), (30, 0), (30, 20), (100, 0), (100, 20)] {
        let mut world = World::new(n, loss, &network(n));
        let removal = unmember(2, n, 2);
        world.make(2, &removal);
        let gone = key(n);
        let time = world.time_until(10_000, |node| {
            node.key == gone || node.state.removed.contains_key(&gone)
        });
        world.run_until(world.now + 60_000);
        let most = world.nodes.values().map(|node| node.sent).max().unwrap();
        println!("{n} nodes, {loss} % loss: {time} ms, at most {most} messages");
        assert!(most <= 20, "{n} nodes, {loss} % loss: {most} messages");
    }
}

#[test]
fn a_hundred_changes_are_caught_up_in_one_exchange() {
    let mut world = World::new(3, 0, &network(3));
    let late = key(3);
    let now = world.now;
    for n in [1, 2] {
        world.at(n).sync.disconnect(&late, now);
    }
    for n in 0..100_u8 {
        world.make(1, &member(1, n.wrapping_add(100), 1));
    }
    world.run_until(world.now + 200_000);
    assert!(!world.at(3).state.members.contains_key(&key(150)));
    // It has one partner, so that one exchange is all that can help it.
    let now = world.now;
    world.at(3).sync.disconnect(&key(2), now);
    world.count_from_here();
    world.at(1).sync.connect(late, now);
    world.time_until(1_000, |node| node.state.members.len() == 103);
    let sent: usize = world.nodes.values().map(|node| node.sent).sum();
    println!("100 changes: {sent} messages");
    assert!(sent <= 6, "{sent} messages");
}

#[test]
fn records_of_two_sides_come_together() {
    let mut world = World::new(30, 10, &network(30));
    let keys: Vec<PublicKey> = world.nodes.keys().copied().collect();
    let (left, right) = keys.split_at(15);
    let now = world.now;
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))) {
        world.node(a).sync.disconnect(b, now);
        world.node(b).sync.disconnect(a, now);
    }
    // The administrators 1 and 2 act on different sides, or on one; both make records.
    world.make(1, &member(1, 40, 1));
    world.make(1, &grant(1, 41, 1));
    world.make(2, &member(2, 42, 1));
    world.make(2, &unmember(2, 30, 2));
    world.run_until(world.now + 100_000);
    let now = world.now;
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))) {
        world.node(a).sync.connect(*b, now);
        world.node(b).sync.connect(*a, now);
    }
    let complete = |node: &Node| {
        let has = |n: u8| node.state.members.contains_key(&key(n));
        has(40) && has(42) && !has(30) && node.state.admins.rank(&key(41)) == Some(1)
    };
    world.time_until(20_000, |node| complete(node) || node.key == key(30));
}

#[test]
fn a_removed_member_gets_its_removal_and_nothing_later() {
    let mut world = World::new(6, 0, &network(6));
    let gone = key(6);
    let removal = unmember(1, 6, 2);
    world.make(1, &removal);
    world.time_until(2_000, |node| node.state.removed.contains_key(&gone));
    let later = member(1, 50, 1);
    world.make(1, &later);
    let now = world.now;
    for n in 1..6 {
        // It comes again, and asks for everything.
        world.at(n).sync.disconnect(&gone, now);
        world.at(n).sync.connect(gone, now);
        world.at(6).sync.disconnect(&key(n), now);
        world.at(6).sync.connect(key(n), now);
        let all = Message::Ids {
            buckets: [0xff; 32],
            ids: Vec::new(),
        };
        world.arrive(gone, key(n), &all.encode());
        assert_eq!(world.at(n).refused.last(), Some(&SyncError::NotMember));
    }
    world.run_until(world.now + 120_000);
    let node = world.at(6);
    assert!(node.state.removed.contains_key(&gone));
    assert!(!node.set.records().any(|record| record.id() == later.id()));
    assert!(world.at(5).state.members.contains_key(&key(50)));
}

/// A node that missed the rights of the one that removed it learns them with its removal.
#[test]
fn a_removed_node_learns_the_rights_of_its_remover() {
    let gone = key(6);
    let by_successor = vec![founding(2, Some(3)), revoke(3, 6, 2), unmember(3, 6, 3)];
    let by_chain = vec![grant(1, 4, 1), grant(4, 5, 1), revoke(1, 6, 2), unmember(5, 6, 3)];
    for (records, by) in [(by_successor, 3), (by_chain, 5)] {
        let mut world = World::new(6, 0, &[network(6), vec![grant(1, 6, 1)]].concat());
        world.cut = Some(gone);
        for record in &records {
            world.make(by, record);
        }
        world.time_until(10_000, |node| {
            node.key == gone || node.state.removed.contains_key(&gone)
        });
        world.cut = None;
        let now = world.now;
        for n in 1..6 {
            world.at(n).sync.disconnect(&gone, now);
        }
        assert_eq!(world.at(6).state.admins.rank(&gone), Some(1));
        world.at(by).sync.connect(gone, now);
        world.time_until(10_000, |node| node.state.removed.contains_key(&gone));
        assert_eq!(world.at(6).state.admins.rank(&gone), None);
    }
}

/// A founder that was removed, and takes its place back, is heard by those that have removed it, and by them it
/// is told nothing but its removal before.
#[test]
fn a_removed_founder_that_comes_back_is_heard() {
    let mut records = network(4);
    records.extend([founding(2, Some(2)), member(2, 2, 2), member(2, 3, 2), member(2, 4, 2)]);
    let mut world = World::new(4, 0, &records);
    let founder = key(1);
    world.cut = Some(founder);
    for record in [revoke(2, 1, 3), unmember(2, 1, 2)] {
        world.make(2, &record);
    }
    world.time_until(20_000, |node| {
        node.key == founder || node.state.removed.contains_key(&founder)
    });
    world.cut = None;
    let now = world.now;
    let all = Message::Ids {
        buckets: [0xff; 32],
        ids: Vec::new(),
    };
    world.arrive(founder, key(3), &all.encode());
    assert_eq!(world.at(3).refused.last(), Some(&SyncError::NotMember));
    // It has the same records as before it was removed, and drops its successor.
    world.make(1, &founding(4, None));
    for n in 2..=4 {
        world.at(1).sync.disconnect(&key(n), now);
        world.at(1).sync.connect(key(n), now);
    }
    world.time_until(20_000, |node| {
        node.state.admins.is_head(&founder) && node.state.members.len() == 4
    });
    assert!(!world.at(4).state.admins.resigned.contains(&founder));
}

/// What stands in front of garbage counts, and the garbage is an error.
#[test]
fn records_in_front_of_garbage_count() {
    let mut world = World::new(3, 0, &network(3));
    let good = member(1, 50, 1);
    let message = Message::Records {
        want: Vec::new(),
        records: vec![good.event().to_json(), "garbage".to_owned()],
    };
    let now = world.now;
    let node = world.at(2);
    let received = node.sync.receive(
        &key(3),
        &message.encode(),
        &mut node.set,
        &node.state,
        &Proven::default(),
        now,
    );
    assert!(received.outcome.is_err(), "{received:?}");
    assert_eq!(received.kept, [good]);
}

#[test]
fn a_joiner_gets_the_whole_network() {
    let mut world = World::new(4, 0, &network(4));
    let (joiner, now) = (key(9), world.now);
    let set = RecordSet::new(id());
    let mut sync = Sync::new(joiner);
    sync.connect(key(1), now);
    let state = State::of(&set);
    let node = Node {
        key: joiner,
        set,
        state,
        sync,
        sent: 0,
        refused: Vec::new(),
    };
    world.nodes.insert(joiner, node);
    world.at(1).sync.connect(joiner, now);
    world.run_until(now + 5_000);
    assert_eq!(world.at(9).set.records().count(), 0, "nothing before it is a member");
    world.make(1, &member(1, 9, 1));
    world.time_until(5_000, |node| node.state.members.len() == 5);
}

#[test]
fn records_that_prove_nothing_are_not_passed_on() {
    let mut world = World::new(3, 0, &network(3));
    let void: Vec<Arc<Record>> = (10..20).map(|by| member(by, 60, 1)).collect();
    let records = void.iter().map(|record| record.event().to_json()).collect();
    let message = Message::Records {
        want: Vec::new(),
        records,
    };
    world.arrive(key(3), key(1), &message.encode());
    world.run_until(world.now + 200_000);
    assert_eq!(world.at(1).set.records().count(), network(3).len());
    assert_eq!(world.at(1).set.counts().without_rank, 10);
    assert_eq!(world.at(2).set.records().count(), network(3).len());
}

#[test]
fn bad_messages_are_refused() {
    let mut world = World::new(3, 0, &network(3));
    let forged = member(1, 50, 1).event().to_json().replace("n1-1", "n1-2");
    let old = member(1, 2, 1).event().to_json();
    let other = Draft::new(
        NetworkId::from_bytes([1; 16]),
        RecordKey::Admin(key(5)),
        1,
        &Body::Plain,
    );
    let other = other.sign(&identity(1), 0).unwrap().event().to_json();
    let records = |records: &[&String]| {
        let records = records.iter().map(|record| (*record).clone()).collect();
        let want = Vec::new();
        Message::Records { want, records }.encode()
    };
    let before = world.at(1).set.records().count();
    for (bytes, refused) in [
        (records(&[&old]), None),
        (records(&[&old, &forged]), Some("Id")),
        (records(&[&other]), Some("OtherNetwork")),
        (vec![77], Some("Type")),
    ] {
        world.at(1).refused.clear();
        world.arrive(key(3), key(1), &bytes);
        let error = world.at(1).refused.first().map(|error| format!("{error:?}"));
        assert_eq!(error.is_some(), refused.is_some());
        assert!(error.is_none_or(|error| error.contains(refused.unwrap())));
    }
    assert_eq!(world.at(1).set.records().count(), before);
    let stranger = world.at(1);
    let now = 1_000_000;
    let received = stranger.sync.receive(
        &key(50),
        &[1; 33],
        &mut stranger.set,
        &stranger.state,
        &Proven::default(),
        now,
    );
    assert_eq!(received.outcome, Err(SyncError::Unconnected));
    assert!(matches!(
        Record::parse_of(id(), other.as_bytes()),
        Err(RecordError::OtherNetwork(_))
    ));
}

#[test]
fn a_member_has_a_share() {
    let mut world = World::new(3, 0, &network(3));
    let now = world.now;
    let all = Message::Ids {
        buckets: [0xff; 32],
        ids: Vec::new(),
    };
    let bytes = all.encode();
    let (mut taken, mut answered) = (0, 0);
    loop {
        let node = world.at(1);
        let received = node
            .sync
            .receive(&key(3), &bytes, &mut node.set, &node.state, &Proven::default(), now);
        match received.outcome {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error, SyncError::Budget);
                break;
            }
        }
        while let Some((to, message)) = node.sync.poll(&node.set, &node.state, now) {
            answered += if to == key(3) { message.encode().len() } else { 0 };
        }
    }
    assert_eq!(taken, (4 << 20) / (8_192 + bytes.len()));
    assert!(answered < 4 << 20, "{answered}");
    world.arrive(key(3), key(1), &vec![0; MAX_MESSAGE]);
    assert_eq!(world.at(1).refused, [SyncError::Budget]);
}

/// What a node sends counts on when it comes again.
#[test]
fn a_share_lasts_over_reconnects() {
    let mut world = World::new(3, 0, &network(3));
    let now = world.now;
    let mut taken = 0;
    for _ in 0..10 {
        let node = world.at(1);
        let receive = |node: &mut Node| {
            node.sync
                .receive(&key(3), &[1; 33], &mut node.set, &node.state, &Proven::default(), now)
        };
        while receive(node).outcome != Err(SyncError::Budget) {
            taken += 1;
        }
        node.sync.disconnect(&key(3), now);
        node.sync.connect(key(3), now);
    }
    assert_eq!(taken, (4 << 20) / (8_192 + 33));
    // It is whole again as if the node had stayed.
    let node = world.at(1);
    node.sync.disconnect(&key(3), now + 1_000);
    node.sync.connect(key(3), now + 2_000);
    let later = now + 2_000;
    let receive = |node: &mut Node| {
        node.sync
            .receive(&key(3), &[1; 33], &mut node.set, &node.state, &Proven::default(), later)
    };
    let again = (0..100)
        .take_while(|_| receive(node).outcome != Err(SyncError::Budget))
        .count();
    // What was left before is not enough for one more, but for a part.
    assert!((15..=16).contains(&again), "{again}");
}
