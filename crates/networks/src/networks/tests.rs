use std::collections::BTreeMap;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_noise::SecretKey;
use weft_roster::invite::{EntryPoint, Seed};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Guest};

use super::enrolment::MAX_PASSED_ON;
use super::*;
use crate::{Ask, Document, Refusal, Verdict, Wish, document, kept};

mod decisions;
mod foreign;
mod guests;
mod leave;
mod local_rules;
mod lost;
mod mark;
mod membership;
mod names;
mod overlap;
mod presences;
mod routes;
mod secrets;
mod thief;
mod undo;

/// Nodes whose documents reach those that they are connected with.
struct World {
    nodes: Vec<Networks>,
    connected: BTreeSet<(usize, usize)>,
    now: u64,
    /// Documents that arrived.
    sent: usize,
    /// What they said, each with its receiver, for tests that look at that.
    heard: Option<Vec<(usize, Vec<u8>)>>,
}

const UNIX: u64 = 1_700_000_000;

fn rename(name: &str) -> MemberChange {
    MemberChange::Rename { name: name.to_owned() }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn tag(tags: &[&str]) -> MemberChange {
    MemberChange::Tag { tags: texts(tags) }
}

fn untag(tags: &[&str]) -> MemberChange {
    MemberChange::Untag { tags: texts(tags) }
}

fn replace(by: &str) -> MemberChange {
    MemberChange::Replace { by: by.to_owned() }
}

/// All that an administrator has signed stays, but for grants and invites.
fn keep_rest() -> Wish {
    Wish {
        rest: true,
        ..Wish::default()
    }
}

fn identity(number: usize) -> Arc<Identity> {
    let mut secret = [1; 32];
    secret[31] = number as u8 + 1;
    Arc::new(Identity::new(SecretKey::from_bytes(&secret).unwrap()))
}

fn key(number: usize) -> PublicKey {
    identity(number).public()
}

fn name(text: &str) -> Name {
    Name::host(text).unwrap()
}

/// The networks of a node, with secrets that are the same in each run.
fn networks(number: usize, kept: Vec<Network>) -> Networks {
    let seed = number as u64 * 1_000 + kept.len() as u64;
    Networks::new(identity(number), kept, Box::new(ChaCha20Rng::seed_from_u64(seed)))
}

impl Networks {
    /// Makes a node a member without its request.
    pub(crate) fn take_in(&mut self, of: &str, node: &PublicKey, name: Name, tags: BTreeSet<Name>) {
        let id = self.find(Some(of)).unwrap();
        let (identity, network) = self.with(id).unwrap();
        network.take_in(identity, node, (Some(name), tags), 0, UNIX).unwrap();
    }

    /// Adds a guest with this WireGuard key, whose record says this.
    pub(crate) fn take_guest(&mut self, of: &str, key: [u8; 32], guest: Guest) {
        let id = self.find(Some(of)).unwrap();
        let (identity, network) = self.with(id).unwrap();
        let body = Body::Guest(guest);
        network.write(identity, RecordKey::Guest(key), &body, 0, UNIX).unwrap();
    }
}

impl World {
    fn new(nodes: usize, connected: &[(usize, usize)]) -> Self {
        Self {
            nodes: (0..nodes).map(|number| networks(number, Vec::new())).collect(),
            connected: connected.iter().copied().collect(),
            now: 1_000,
            sent: 0,
            heard: None,
        }
    }

    fn unix(&self) -> u64 {
        UNIX + self.now / 1_000
    }

    fn times(&self) -> (u64, u64) {
        (self.now, self.unix())
    }

    fn are_connected(&self, a: usize, b: usize) -> bool {
        self.connected.contains(&(a, b)) || self.connected.contains(&(b, a))
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += 100;
            for at in 0..self.nodes.len() {
                if self.now.is_multiple_of(1_000) {
                    let near = (0..self.nodes.len()).filter(|other| self.are_connected(at, *other));
                    let near: BTreeSet<PublicKey> = near.map(key).collect();
                    self.nodes[at].set_reachable(near, self.now);
                }
                // As the daemon does while something is due.
                let is_due = |node: &Networks, now| node.timeout().is_some_and(|due| due <= now);
                for _ in 0..3 {
                    let times = self.times();
                    self.nodes[at].act_as_admin(times);
                    self.nodes[at].handle_timeout(self.now);
                    self.deliver(at);
                    if !is_due(&self.nodes[at], self.now) {
                        break;
                    }
                }
                assert!(!is_due(&self.nodes[at], self.now), "{at}: what is due is done");
            }
        }
    }

    fn deliver(&mut self, from: usize) {
        let (now, unix) = self.times();
        for (to, document) in self.nodes[from].take_documents() {
            let left = self.nodes[from].farewell(&to, &document);
            let to = (0..self.nodes.len()).find(|number| key(*number) == to).unwrap();
            if self.are_connected(from, to) {
                self.sent += 1;
                if let Some(heard) = &mut self.heard {
                    heard.push((to, document.clone()));
                }
                // A node ignores a document that it refuses, as the daemon does.
                let _ = self.nodes[to].handle_document(key(from), &document, now, unix);
                self.nodes[to].settle_enrolment(true);
                left.into_iter()
                    .for_each(|network| self.nodes[from].note_farewell(network));
            }
        }
    }

    fn create(&mut self, at: usize) {
        let home = Name::network("home").unwrap();
        let founder = name("founder");
        self.nodes[at].create(home, Some(founder), [7; 16], UNIX).unwrap();
    }

    fn invite(&mut self, at: usize, uses: u32, seed: u8) -> Code {
        let invite = NewInvite {
            name: None,
            tags: BTreeSet::new(),
            uses,
            expires: self.unix() + 3_600,
            addresses: vec!["192.0.2.1:2121".parse().unwrap()],
            entry: None,
        };
        let times = self.times();
        self.nodes[at]
            .invite(None, &invite, Seed::new([seed; 16]), times)
            .unwrap()
    }

    /// `at` joins with a code that names the node `by` in place of the inviter.
    fn join(&mut self, at: usize, code: &Code, by: usize) {
        let code = Code {
            inviter: key(by),
            ..code.clone()
        };
        let (now, unix) = self.times();
        let host = Some(name(&format!("node-{at}")));
        self.nodes[at].join(&code, host, now, unix).unwrap();
    }

    fn network(&self, at: usize) -> &Network {
        self.nodes[at].iter().next().unwrap()
    }

    /// The members by number, as a node knows them.
    fn members(&self, at: usize) -> Vec<usize> {
        let member = |number: &usize| self.network(at).is_member(&key(*number));
        (0..self.nodes.len()).filter(member).collect()
    }

    fn refusal(&self, at: usize) -> Option<Refusal> {
        self.network(at).joining()?.refusal
    }
}

#[test]
fn a_member_that_is_no_administrator_passes_the_request_on() {
    let mut world = World::new(3, &[(0, 1), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    world.join(1, &code, 0);
    world.run(5_000);
    assert_eq!(world.members(1), [0, 1]);
    assert!(
        world.nodes[1].welcomes_guests(world.now, world.unix()),
        "the invite is known there too"
    );
    // The founder is not connected with the joining node.
    world.join(2, &code, 1);
    world.run(5_000);
    for at in 0..3 {
        assert_eq!(world.members(at), [0, 1, 2], "node {at}");
    }
    let rows: BTreeMap<PublicKey, Row> = world.nodes[2].rows().map(|row| (row.key, row)).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.values().all(|row| row.member && row.ipv4.is_some()));
    assert_eq!(
        rows[&key(1)].addresses.iter().map(|hint| hint.at).collect::<Vec<_>>(),
        code.addresses,
        "the one by which it came in"
    );
    assert_eq!(rows[&key(0)].name, Some(name("founder")));
}

#[test]
fn two_administrators_that_enrol_on_one_use_end_with_one_member() {
    let mut world = World::new(4, &[(0, 1)]);
    world.create(0);
    let first = world.invite(0, 1, 1);
    world.join(1, &first, 0);
    world.run(5_000);
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (MemberChange::MakeAdmin {}, None), times)
        .unwrap();
    let second = world.invite(0, 1, 2);
    world.run(5_000);
    world.connected = [(0, 2), (1, 3)].into();
    world.join(2, &second, 0);
    world.join(3, &second, 1);
    world.run(5_000);
    assert_eq!((world.members(0), world.members(1)), (vec![0, 1, 2], vec![0, 1, 3]));
    world.connected = [(0, 1), (0, 2), (1, 3)].into();
    world.run(90_000);
    let members = world.members(0);
    assert_eq!(members.len(), 3, "{members:?}");
    assert_eq!(world.members(1), members);
    let out = if members.contains(&2) { 3 } else { 2 };
    assert!(!world.nodes[0].rows().any(|row| row.key == key(out) && row.member));
}

#[test]
fn a_removed_member_gets_its_removal_and_nothing_later() {
    let mut world = World::new(3, &[(0, 1), (0, 2), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    world.join(1, &code, 0);
    world.join(2, &code, 0);
    world.run(10_000);
    assert_eq!(world.members(2), [0, 1, 2]);
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-2", (MemberChange::Remove {}, None), times)
        .unwrap();
    let row = world.nodes[0].rows().find(|row| row.key == key(2)).unwrap();
    assert!(!row.member, "a contact for a minute");
    world.run(3_000);
    assert_eq!((world.members(1), world.members(2)), (vec![0, 1], vec![0, 1]));
    assert!(world.nodes[2].rows().next().is_none(), "nothing passes there either");
    let before = world.network(2).set().records().count();
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (rename("other"), None), times)
        .unwrap();
    world.run(120_000);
    assert_eq!(world.network(2).set().records().count(), before);
    assert!(
        !world.nodes[0].rows().any(|row| row.key == key(2)),
        "no contact any longer"
    );
    // Its code has served.
    world.connected.insert((0, 2));
    world.join(2, &code, 0);
    world.run(5_000);
    assert_eq!(world.refusal(2), Some(Refusal::Removed));
}

#[test]
fn a_join_that_does_not_fit_is_refused_with_the_reason() {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let (used, revoked) = (world.invite(0, 1, 1), world.invite(0, 1, 2));
    world.join(1, &used, 0);
    world.run(5_000);
    assert_eq!(world.members(0), [0, 1]);
    let times = world.times();
    let hex: String = revoked
        .seed
        .key_pair()
        .public()
        .as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    world.nodes[0].revoke(None, &hex[..8], times).unwrap();
    let short = Code {
        expires: (world.unix() + 100_000) as u32,
        seed: Seed::new([9; 16]),
        ..used.clone()
    };
    let expired = world.invite(0, 1, 3);
    for (code, refusal) in [
        (&used, Refusal::Used),
        (&revoked, Refusal::Revoked),
        (&short, Refusal::UnknownInvite),
    ] {
        world.join(2, code, 0);
        world.run(4_000);
        assert_eq!(world.refusal(2), Some(refusal));
        world.nodes[2]
            .leave(Some(&code.network.to_string()), true, (0, UNIX))
            .unwrap();
    }
    world.now += 3_601_000;
    let (now, unix) = world.times();
    let late = world.nodes[2].join(&expired, None, now, unix);
    assert!(
        matches!(late, Err(NetworkError::Expired { ended, now }) if ended <= now),
        "{late:?}"
    );
    let line = late.unwrap_err().to_string();
    assert!(line.starts_with("by this machine's clock (2023-11-"), "{line}");
    // The joining node's clock is behind.
    world.nodes[2].join(&expired, None, world.now, UNIX).unwrap();
    world.run(4_000);
    assert_eq!(world.refusal(2), Some(Refusal::Expired));
    assert_eq!(world.members(0), [0, 1]);
    assert!(!world.nodes[0].welcomes_guests(world.now, world.unix()));
}

#[test]
fn a_request_serves_its_own_key_only() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    let code = world.invite(0, 9, 1);
    let network = code.network;
    let proof = code.seed.prove(&key(5), network);
    let ask = |member, proof: &weft_roster::invite::Proof| {
        Document::Ask(document::Ask {
            network,
            member,
            proof: proof.clone(),
            name: None,
        })
        .encode()
    };
    let (now, unix) = world.times();
    let answer = |world: &mut World, bytes: &[u8]| {
        world.nodes[0].handle_document(key(1), bytes, now, unix).unwrap();
        world.nodes[0].settle_enrolment(true);
        let (to, document) = world.nodes[0].take_documents().pop().unwrap();
        assert_eq!(to, key(1), "the answer goes where the request came from");
        match Document::decode(&document).unwrap() {
            Document::Answer { refusal, .. } => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(answer(&mut world, &ask(key(6), &proof)), Some(Refusal::BadProof));
    let mut altered = proof.clone();
    altered.signature[5] ^= 1;
    assert_eq!(answer(&mut world, &ask(key(5), &altered)), Some(Refusal::BadProof));
    // Guesses cost a look-up, and no signature is verified.
    for guess in 0..10_000_u32 {
        let mut wrong = proof.clone();
        wrong.invite[..4].copy_from_slice(&guess.to_be_bytes());
        assert_eq!(answer(&mut world, &ask(key(5), &wrong)), Some(Refusal::UnknownInvite));
    }
    assert_eq!(world.network(0).state().members.len(), 1);
    assert_eq!(answer(&mut world, &ask(key(5), &proof)), None);
    assert!(world.network(0).is_member(&key(5)));
}

#[test]
fn a_joining_node_listens_to_those_that_it_asked() {
    let mut world = World::new(3, &[(0, 1), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    let (now, unix) = world.times();
    let network = code.network;
    let lie = Document::Answer {
        network,
        member: key(1),
        refusal: Some(Refusal::Removed),
    };
    world.nodes[1]
        .handle_document(key(2), &lie.encode(), now, unix)
        .unwrap();
    assert_eq!(world.refusal(1), None);
    let sync = Document::Sync {
        network,
        message: &[1; 33],
    };
    assert!(
        world.nodes[1]
            .handle_document(key(2), &sync.encode(), now, unix)
            .is_err()
    );
    world.run(5_000);
    assert_eq!(world.members(1), [0, 1]);
}

#[test]
fn requests_that_are_passed_on_take_bounded_memory() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    world.run(5_000);
    let (now, unix) = world.times();
    for number in 0..200 {
        let member = key(number);
        let ask = Document::Ask(document::Ask {
            network: code.network,
            member,
            proof: code.seed.prove(&key(3), code.network),
            name: None,
        });
        world.nodes[1]
            .handle_document(key(9), &ask.encode(), now, unix)
            .unwrap();
    }
    assert!(world.nodes[1].passed_on.len() <= MAX_PASSED_ON);
}

/// A network as it is after a restart of its node.
fn kept_again(network: &Network, own: usize) -> Network {
    kept::from_text(&kept::to_text(network).unwrap(), &key(own)).unwrap()
}

#[test]
fn networks_are_read_as_they_were_written() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    // Once while it joins, once as a member.
    for joined in [false, true] {
        assert!(world.network(1).is_unsaved());
        let again = kept_again(world.network(1), 1);
        let revision = world.network(1).revision();
        world.nodes[1].note_saved(code.network, revision);
        assert!(!world.network(1).is_unsaved());
        let network = world.network(1);
        assert_eq!(again.state(), network.state());
        assert_eq!(again.contacts(), network.contacts());
        assert_eq!(again.joining().is_none(), joined);
        assert_eq!(again.is_member(&key(1)), joined);
        // A node that restarts in between goes on.
        world.nodes[1] = networks(1, vec![again]);
        world.run(5_000);
    }
    assert!(kept::from_text("{", &key(1)).is_err());
}

#[test]
fn commands_name_what_is_missing() {
    let mut world = World::new(2, &[(0, 1)]);
    let times = world.times();
    let change = |world: &mut World, at: usize, of: Option<&str>, member: &str| {
        world.nodes[at].change_member(of, member, (MemberChange::Remove {}, None), times)
    };
    assert_eq!(change(&mut world, 0, None, "x"), Err(NetworkError::NoNetwork));
    world.create(0);
    let again = world.nodes[0].create(Name::network("home").unwrap(), None, [8; 16], UNIX);
    assert!(matches!(again, Err(NetworkError::NameTaken(_))));
    assert!(matches!(
        change(&mut world, 0, Some("work"), "x"),
        Err(NetworkError::Unknown(_))
    ));
    assert!(matches!(
        change(&mut world, 0, None, "x"),
        Err(NetworkError::NoMember(_))
    ));
    assert!(matches!(
        world.nodes[0].revoke(None, "00", times),
        Err(NetworkError::NoInvite(_))
    ));
    let code = world.invite(0, 1, 1);
    let (now, unix) = world.times();
    let own = world.nodes[0].join(&code, None, now, unix);
    assert_eq!(own, Err(NetworkError::Already));
    world.join(1, &code, 0);
    world.run(5_000);
    match change(&mut world, 1, None, "founder") {
        Err(NetworkError::NotAdmin(who)) => assert_eq!(who, "founder"),
        other => panic!("{other:?}"),
    }
    world.nodes[0]
        .create(Name::network("work").unwrap(), None, [9; 16], UNIX)
        .unwrap();
    assert_eq!(
        change(&mut world, 0, None, "x"),
        Err(NetworkError::Which("home, work".to_owned()))
    );
    let entry = EntryPoint {
        key: key(1),
        address: "192.0.2.2:2121".parse().unwrap(),
    };
    let code = Code {
        entry: Some(entry),
        network: NetworkId::from_bytes([5; 16]),
        ..code
    };
    world.nodes[1].join(&code, None, now, unix).unwrap();
    assert_eq!(world.nodes[1].iter().count(), 2);
}

/// A removal reaches a hundred nodes of which each knows few, with few documents.
#[test]
fn a_removal_reaches_all_nodes_within_seconds() {
    const NODES: usize = 100;
    let mut world = World::new(NODES, &[]);
    world.create(0);
    let code = world.invite(0, NODES as u32, 1);
    world.connected = (1..NODES).map(|at| (0, at)).collect();
    for at in 1..NODES {
        world.join(at, &code, 0);
    }
    world.run(30_000);
    // A ring with chords: each node is connected with four others.
    let ring = (0..NODES).map(|at| (at, (at + 1) % NODES));
    let chords = (0..NODES).map(|at| (at, (at + 37) % NODES));
    world.connected = ring.chain(chords).collect();
    world.run(30_000);
    for at in 0..NODES {
        assert_eq!(world.members(at).len(), NODES, "node {at} before");
    }
    let sent = world.sent;
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-50", (MemberChange::Remove {}, None), times)
        .unwrap();
    world.run(10_000);
    for at in 0..NODES {
        assert!(!world.network(at).is_member(&key(50)), "node {at}");
    }
    let documents = world.sent - sent;
    eprintln!("{documents} documents for {NODES} nodes");
    assert!(documents <= 20 * NODES, "{documents} documents");
}

#[test]
fn a_new_member_keeps_its_contact_until_it_knows_it_as_a_member() {
    const NODES: usize = 200;
    // Records arrive in the order of the members' keys, in several messages: that of the founder in
    // the last one.
    let mut numbers: Vec<usize> = (0..NODES).collect();
    numbers.sort_by_key(|number| key(*number));
    let (joiner, founder) = (numbers[0], numbers[NODES - 1]);
    let mut world = World::new(NODES, &[(joiner, founder)]);
    world.create(founder);
    let code = world.invite(founder, 300, 1);
    let (now, unix) = world.times();
    for number in numbers[1..NODES - 1].iter().copied() {
        let ask = Ask {
            network: code.network,
            member: key(number),
            proof: code.seed.prove(&key(number), code.network),
            name: None,
        };
        let ask = Document::Ask(ask).encode();
        world.nodes[founder]
            .handle_document(key(number), &ask, now, unix)
            .unwrap();
        world.nodes[founder].settle_enrolment(true);
    }
    world.join(joiner, &code, founder);
    let mut partial = 0;
    for _ in 0..50 {
        world.now += 100;
        world.nodes[founder].set_reachable(BTreeSet::from([key(joiner)]), world.now);
        for (from, to) in [(founder, joiner), (joiner, founder)] {
            world.nodes[from].handle_timeout(world.now);
            for (receiver, document) in world.nodes[from].take_documents() {
                // A node reaches its peers and no other.
                let rows: BTreeSet<PublicKey> = world.nodes[to].rows().map(|row| row.key).collect();
                assert!(to == founder || rows.contains(&key(founder)), "{}", rows.len());
                if receiver == key(to) {
                    let _ = world.nodes[to].handle_document(key(from), &document, world.now, unix);
                    world.nodes[to].set_reachable(BTreeSet::from([key(from)]), world.now);
                }
                let network = world.network(joiner);
                partial += usize::from(network.is_member(&key(joiner)) && !network.is_member(&key(founder)));
            }
        }
    }
    assert!(partial > 0, "all records came in one message");
    assert_eq!(world.network(joiner).state().members.len(), NODES);
    let founder = world.nodes[joiner].rows().find(|row| row.key == key(founder)).unwrap();
    assert!(founder.member);
}
