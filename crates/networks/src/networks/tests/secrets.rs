use weft_roster::set::RecordSet;

use super::*;

impl World {
    fn secret(&self, at: usize) -> Option<[u8; 32]> {
        self.nodes[at].secrets().map(|(_, secret)| *secret).next()
    }

    /// Whether a node has ever received a secret, in whatever record.
    fn has_received(&self, at: usize, secret: &[u8; 32]) -> bool {
        let hex = secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut records = self.network(at).set().records();
        records.any(|record| record.event().to_json().contains(&hex))
    }

    fn change_at(&mut self, at: usize, member: &str, change: MemberChange) {
        let times = self.times();
        self.nodes[at]
            .change_member(None, member, (change, None), times)
            .unwrap();
    }

    /// A founder and members, all connected, that have the same records.
    fn of_members(nodes: usize) -> Self {
        let all = (0..nodes).flat_map(|a| (0..a).map(move |b| (b, a)));
        let mut world = Self::new(nodes, &all.collect::<Vec<_>>());
        world.create(0);
        let code = world.invite(0, 9, 1);
        for at in 1..nodes {
            world.join(at, &code, 0);
        }
        world.run(10_000);
        assert_eq!(world.members(nodes - 1).len(), nodes);
        world
    }

    /// Takes the secret out of what a node has kept, as a version without secrets would have it.
    fn forget_secret(&mut self, at: usize) {
        let network = self.network(at);
        let mut set = RecordSet::new(network.id());
        for record in network.set().records() {
            if *record.key() != weft_roster::key::RecordKey::Secret {
                set.insert(record);
            }
        }
        self.nodes[at] = networks(at, vec![Network::kept(&key(at), set, BTreeMap::new(), None)]);
    }
}

#[test]
fn members_have_the_secret() {
    let world = World::of_members(3);
    let secret = world.secret(0).unwrap();
    assert_eq!([world.secret(1), world.secret(2)], [Some(secret); 2]);
    assert_ne!(secret, [0; 32]);
}

#[test]
fn a_removed_member_never_gets_the_next_secret() {
    let mut world = World::of_members(4);
    let before = world.secret(0).unwrap();
    world.change_at(0, "node-2", MemberChange::Remove {});
    world.run(200_000);
    let after = world.secret(0).unwrap();
    assert_ne!(after, before);
    assert_eq!([world.secret(1), world.secret(3)], [Some(after); 2]);
    assert_eq!(world.secret(2), None, "it knows that it was removed");
    assert!(world.has_received(2, &before) && !world.has_received(2, &after));
}

#[test]
fn a_revoked_administrator_ends_the_secret() {
    let mut world = World::of_members(3);
    world.change_at(0, "node-1", MemberChange::MakeAdmin {});
    world.run(10_000);
    let before = world.secret(2).unwrap();
    world.change_at(0, "node-1", MemberChange::RevokeAdmin {});
    world.run(10_000);
    let after = world.secret(2).unwrap();
    assert_ne!(after, before);
    assert_eq!(world.secret(1), Some(after), "it is a member still");
}

#[test]
fn a_network_without_secret_gets_one_from_any_administrator_up() {
    for up in [0, 1] {
        let mut world = World::of_members(3);
        world.change_at(0, "node-1", MemberChange::MakeAdmin {});
        world.run(10_000);
        for at in 0..3 {
            world.forget_secret(at);
        }
        // The other administrator is off.
        world.connected = BTreeSet::from([(up, 2)]);
        world.run(60_000);
        let secret = world.secret(2).unwrap();
        assert_eq!(world.secret(up), Some(secret));
        world.run(60_000);
        assert_eq!(world.secret(2), Some(secret), "one is enough");
    }
}

#[test]
fn two_concurrent_removals_end_with_a_secret_that_neither_has() {
    let mut world = World::of_members(5);
    world.change_at(0, "node-1", MemberChange::MakeAdmin {});
    world.run(10_000);
    // The administrators do not hear of each other.
    world
        .connected
        .retain(|pair| *pair != (0, 1) && !(pair.0 < 2 && pair.1 == 4));
    let halves = [(0, 2), (1, 3)];
    let all = std::mem::replace(&mut world.connected, halves.into());
    world.change_at(0, "node-3", MemberChange::Remove {});
    world.change_at(1, "node-2", MemberChange::Remove {});
    world.run(10_000);
    world.connected = all;
    world.connected.extend([(0, 1), (0, 4), (1, 4)]);
    world.run(200_000);
    assert_eq!(world.members(0), [0, 1, 4]);
    let secret = world.secret(0).unwrap();
    assert_eq!([world.secret(1), world.secret(4)], [Some(secret); 2]);
    assert!(!world.has_received(2, &secret) && !world.has_received(3, &secret));
}
