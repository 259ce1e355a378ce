//! Random histories of several administrators, with partitions: the rules of names hold, by a slow model of them.

use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use weft_noise::SecretKey;
use weft_roster::admins::Rank;

use super::super::Wish;
use super::*;
use crate::MemberChange;

/// Histories of each run.
const HISTORIES: u64 = 10_000;
/// Steps of a history.
const STEPS: usize = 14;
/// Keys of administrators; the first is the founder. Its grants come first, and the third one is a grant of the second.
const ADMINS: usize = 4;
/// Keys of nodes, with those of administrators.
const NODES: usize = 9;
const NAMES: [&str; 4] = ["nas", "nas-2", "desk", "attic"];
const UNIX: u64 = 1_700_000_000;

fn identity(number: usize) -> Identity {
    Identity::new(SecretKey::from_bytes(&[number as u8 + 1; 32]).unwrap())
}

/// Administrators with the records that each knows, and the side of a partition that each is on.
struct History {
    identities: Vec<Arc<Identity>>,
    networks: Vec<Network>,
    sides: Vec<u8>,
    rng: ChaCha20Rng,
    now: u64,
}

impl History {
    fn new(seed: u64, identities: &[Arc<Identity>]) -> Self {
        let name = |text: &str| Name::host(text).unwrap();
        let home = Name::network("home").unwrap();
        let founder = Network::found(&identities[0], home, Some(name("founder")), [1; 16], UNIX).unwrap();
        let id = founder.id();
        let others =
            (1..ADMINS).map(|at| Network::approved(&identities[at].public(), id, identities[0].public(), Vec::new()));
        let mut history = Self {
            networks: [founder].into_iter().chain(others).collect(),
            identities: identities.to_vec(),
            sides: vec![0; ADMINS],
            rng: ChaCha20Rng::seed_from_u64(seed),
            now: 1,
        };
        for (by, subject) in [(0, 1), (0, 2), (1, 3)] {
            let key = history.key(subject);
            let wanted = Some(name(&format!("admin-{subject}")));
            history.take_in(by, &key, wanted).unwrap();
            history.exchange();
            history.change(by, &key, MemberChange::MakeAdmin {}).unwrap();
            history.exchange();
        }
        history
    }

    fn key(&self, number: usize) -> PublicKey {
        self.identities[number].public()
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.next_u32() as usize % n
    }

    fn take_in(&mut self, by: usize, node: &PublicKey, wanted: Option<Name>) -> Result<(), NetworkError> {
        let named = (wanted, BTreeSet::new());
        self.networks[by].take_in(&self.identities[by], node, named, self.now, UNIX)
    }

    fn change(&mut self, by: usize, node: &PublicKey, change: MemberChange) -> Result<(), NetworkError> {
        let wish = Wish {
            rest: true,
            ..Wish::default()
        };
        let change = (change, Some(&wish));
        let changed = self.networks[by].change_member(&self.identities[by], &node.to_string(), change, self.now, UNIX);
        changed.map(drop)
    }

    /// Brings all records of each side to all administrators there.
    fn exchange(&mut self) {
        for side in 0..2 {
            let of_side: Vec<usize> = (0..ADMINS).filter(|at| self.sides[*at] == side).collect();
            let records = of_side.iter().flat_map(|at| self.networks[*at].set.records());
            let records: Vec<_> = records.map(Arc::clone).collect();
            for at in of_side {
                let network = &mut self.networks[at];
                for record in &records {
                    network.set.insert(record);
                }
                network.renew_state(self.now);
            }
        }
    }

    /// The administrators of a side write names down until none has anything to write.
    fn write_names(&mut self, side: u8) {
        for at in (0..ADMINS).chain(0..ADMINS) {
            if self.sides[at] == side && !self.networks[at].state.renamed.is_empty() {
                self.networks[at].write_names(&self.identities[at], (self.now, UNIX));
                self.exchange();
            }
        }
    }

    /// One change by an administrator. Returns the members whose names it may change.
    fn act(&mut self, by: usize) -> BTreeSet<PublicKey> {
        let (node, other) = (self.below(NODES), self.below(NODES));
        let (node, other) = (self.key(node), self.key(other));
        let wanted = Name::host(NAMES[self.below(NAMES.len())]).unwrap();
        let held = self.holders(by, &wanted).into_iter().any(|key| key != node);
        match self.below(8) {
            0..3 => {
                let was_member = self.networks[by].is_member(&node);
                let done = self.take_in(by, &node, Some(wanted.clone()));
                if done.is_ok() && !was_member {
                    let name = &self.networks[by].state.names[&node];
                    assert_eq!(held, *name != wanted, "{name} for {wanted}");
                }
            }
            3 => {
                let renamed = self.change(
                    by,
                    &node,
                    MemberChange::Rename {
                        name: wanted.to_string(),
                    },
                );
                assert!(!(held && renamed.is_ok()), "a name of another member");
            }
            4 => drop(self.change(
                by,
                &node,
                MemberChange::Tag {
                    tags: vec!["tag".to_owned()],
                },
            )),
            5 => drop(self.change(by, &node, MemberChange::Remove {})),
            6 => {
                let right = match self.networks[by].is_admin(&node) {
                    true => MemberChange::RevokeAdmin {},
                    false => MemberChange::MakeAdmin {},
                };
                let done = self.change(by, &node, right);
                return if done.is_ok() { BTreeSet::new() } else { [node].into() };
            }
            _ => {
                drop(self.change(by, &node, MemberChange::Replace { by: other.to_string() }));
                return [node, other].into();
            }
        }
        [node].into()
    }

    /// The members that have a name or whose record gives it.
    fn holders(&self, at: usize, name: &Name) -> Vec<PublicKey> {
        let state = &self.networks[at].state;
        let has = |(key, member): &(&PublicKey, &Member)| {
            member.name.as_ref() == Some(name) || state.names.get(*key) == Some(name)
        };
        state.members.iter().filter(has).map(|(key, _)| *key).collect()
    }

    /// The rules of names, looked up for each pair of members.
    fn check(&self, at: usize) {
        let network = &self.networks[at];
        let state = &network.state;
        let claims: Vec<(&PublicKey, &Name, Rank)> = state
            .members
            .iter()
            .filter_map(|(key, member)| {
                let record = network.set.in_force(&RecordKey::Member(*key)).unwrap();
                let rank = state.admins.rank(record.signer()).unwrap();
                Some((key, member.name.as_ref()?, rank))
            })
            .collect();
        for (key, name, rank) in &claims {
            let first = !claims
                .iter()
                .any(|(other, same, before)| same == name && (before, other) < (rank, key));
            let has = &state.names[*key];
            assert_eq!(first, has == *name, "{has} for {name}");
            assert_eq!(first, !state.renamed.contains(*key));
            assert!(
                state.names.iter().all(|(other, name)| other == *key || name != has),
                "two have {has}"
            );
            let number = has
                .as_str()
                .strip_prefix(&format!("{name}-"))
                .and_then(|n| n.parse::<usize>().ok());
            assert!(first || number.is_some_and(|number| number >= 2), "{has} for {name}");
        }
        assert_eq!(claims.len(), state.names.len());
    }

    /// Checks a side, and that what its administrators write moves no name. Returns the names.
    fn settle(&mut self, at: usize) -> BTreeMap<PublicKey, Name> {
        self.check(at);
        let names = self.networks[at].state.names.clone();
        self.write_names(self.sides[at]);
        self.check(at);
        assert_eq!(
            names, self.networks[at].state.names,
            "a name that is written down is that which it was"
        );
        names
    }

    fn step(&mut self) {
        self.now += 1_000;
        if self.below(4) == 0 {
            let parted: Vec<u8> = (0..ADMINS).map(|_| self.below(2) as u8).collect();
            let whole = self.below(2) == 0;
            self.sides = if whole { vec![0; ADMINS] } else { parted };
            self.exchange();
            for at in 0..ADMINS {
                self.settle(at);
            }
            return;
        }
        let by = self.below(ADMINS);
        if !self.networks[by].is_admin(&self.key(by)) {
            return;
        }
        let before = self.settle(by);
        let converged = self.networks[by].state.renamed.is_empty();
        let touched = self.act(by);
        self.exchange();
        let after = self.settle(by);
        for (key, name) in before.iter().filter(|(key, _)| converged && !touched.contains(*key)) {
            assert!(
                after.get(key).is_none_or(|now| now == name),
                "{name} is now {}, by {by}: {touched:?}",
                after[key]
            );
        }
    }
}

#[test]
fn names_hold_in_random_histories_of_administrators() {
    let identities: Vec<Arc<Identity>> = (0..NODES).map(|number| Arc::new(identity(number))).collect();
    let mut numbered = 0;
    for seed in 0..HISTORIES {
        let mut history = History::new(seed, &identities);
        for _ in 0..STEPS {
            history.step();
        }
        history.sides = vec![0; ADMINS];
        history.exchange();
        history.settle(0);
        // The founder may write each record.
        assert!(
            history.networks[0].state.renamed.is_empty(),
            "seed {seed}: a name is not written down"
        );
        let states = history.networks.iter().map(|network| &network.state);
        assert!(
            states.clone().all(|state| *state == history.networks[0].state),
            "seed {seed}"
        );
        numbered += u64::from(
            history
                .networks
                .iter()
                .any(|network| network.numbered().next().is_some()),
        );
    }
    assert!(numbered > HISTORIES / 10, "{numbered} histories with two of one name");
}
