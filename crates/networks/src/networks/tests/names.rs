//! Names: no newcomer takes that of a member, and a key is a key.

use weft_roster::key::RecordKey;
use weft_roster::record::Body;

use super::*;

impl World {
    /// `at` joins with a code of node 0, and would like a name.
    fn join_as(&mut self, at: usize, code: &Code, host: &str) {
        let (now, unix) = self.times();
        // Also a name that no command takes.
        let host = Some(Name::label(host).unwrap());
        self.nodes[at].join(code, host, now, unix).unwrap();
        self.run(3_000);
    }

    fn name_of(&self, at: usize, of: usize) -> Option<&str> {
        self.network(at).state().names.get(&key(of)).map(Name::as_str)
    }

    fn change_as(&mut self, by: usize, member: &str, change: MemberChange) -> Result<Changed, NetworkError> {
        let times = self.times();
        self.nodes[by].change_member(None, member, (change, None), times)
    }

    fn named_invite(&mut self, text: &str, uses: u32, seed: u8) -> Result<Code, NetworkError> {
        let invite = NewInvite {
            name: Some(name(text)),
            tags: BTreeSet::new(),
            uses,
            expires: self.unix() + 3_600,
            addresses: Vec::new(),
            entry: None,
        };
        let times = self.times();
        self.nodes[0].invite(None, &invite, Seed::new([seed; 16]), times)
    }

    /// The name in the record of a member.
    fn written(&self, at: usize, of: usize) -> Option<&str> {
        let record = self.network(at).set().in_force(&RecordKey::Member(key(of)))?;
        match record.body() {
            Body::Member(member) => member.name.as_ref().map(Name::as_str),
            _ => None,
        }
    }
}

/// Whatever the keys are: some of the newcomers have a lower one than the member, some a higher one.
#[test]
fn a_newcomer_takes_the_name_of_no_member() {
    const NODES: usize = 9;
    let mut newcomers: Vec<usize> = (0..NODES).collect();
    newcomers.sort_by_key(|at| key(*at));
    let founder = newcomers.remove(NODES / 2);
    let pairs: Vec<(usize, usize)> = newcomers.iter().map(|at| (founder, *at)).collect();
    let mut world = World::new(NODES, &pairs);
    world.create(founder);
    let code = world.invite(founder, NODES as u32, 1);
    for (number, at) in (2..).zip(&newcomers) {
        world.join_as(*at, &code, "founder");
        assert_eq!(world.name_of(*at, founder), Some("founder"), "node {at}");
        assert_eq!(world.name_of(founder, *at), Some(&*format!("founder-{number}")));
    }
    let told = |world: &World| world.network(founder).numbered().cloned().collect::<Vec<_>>();
    let keys: Vec<PublicKey> = newcomers.iter().map(|at| key(*at)).collect();
    let numbered: Vec<PublicKey> = told(&world).iter().map(|numbered| numbered.member).collect();
    assert_eq!(numbered, keys, "the administrator is told");
    assert!(told(&world).iter().all(|numbered| numbered.holder == key(founder)));
    // One that was renamed is told of no longer.
    world.change_as(founder, "founder-2", rename("attic")).unwrap();
    assert!(told(&world).iter().all(|numbered| numbered.member != keys[0]));
}

#[test]
fn a_key_is_a_key_whatever_members_would_like_to_be_called() {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let code = world.invite(0, 3, 1);
    let (first, id) = (key(1).to_string(), world.network(0).id().to_string());
    world.join_as(2, &code, &first);
    world.join_as(1, &code, &id);
    assert_eq!((world.name_of(0, 2), world.name_of(0, 1)), (None, None));
    world.change_as(0, &first, MemberChange::MakeAdmin {}).unwrap();
    let network = world.network(0);
    assert!(network.is_admin(&key(1)) && !network.is_admin(&key(2)));
    let stranger = key(7).to_string();
    let unknown = world.change_as(0, &stranger, MemberChange::Remove {});
    assert_eq!(unknown, Err(NetworkError::NoMember(stranger)));
}

#[test]
fn the_name_of_an_invite_is_free_or_gets_a_number() {
    let mut world = World::new(4, &[(0, 1), (0, 2), (0, 3)]);
    world.create(0);
    let taken = world.named_invite("founder", 1, 1);
    assert_eq!(taken, Err(NetworkError::MemberNameTaken(name("founder"))));
    let code = world.named_invite("printer", 3, 2).unwrap();
    for (at, given) in [(1, "printer"), (2, "printer-2"), (3, "printer-3")] {
        world.join_as(at, &code, "scanner");
        assert_eq!(world.name_of(0, at), Some(given));
    }
}

#[test]
fn an_approval_gives_no_name_of_another_member() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    let wanted = Some(name("founder"));
    world.nodes[1]
        .ask_admin(key(0), vec!["192.0.2.1:2121".parse().unwrap()], wanted.clone(), 1_000)
        .unwrap();
    world.nodes[0].accept_requests(600_000, 1_000).unwrap();
    world.run(5_000);
    let approval = Approval {
        name: wanted,
        ..Approval::default()
    };
    let times = world.times();
    let taken = world.nodes[0].approve(None, &key(1), approval, times);
    assert_eq!(taken, Err(NetworkError::MemberNameTaken(name("founder"))));
    assert_eq!(world.members(0), [0], "it waits for another decision");
    world.nodes[0]
        .approve(None, &key(1), Approval::default(), times)
        .unwrap();
    world.run(5_000);
    assert_eq!(world.name_of(1, 1), Some("founder-2"));
}

/// Two administrators that do not reach each other take in a machine each, by one name.
#[test]
fn of_two_names_given_apart_the_senior_signer_decides() {
    let mut world = World::new(5, &[(0, 1), (0, 4)]);
    world.create(0);
    let code = world.invite(0, 9, 1);
    world.join_as(1, &code, "second");
    world.join_as(4, &code, "witness");
    world.change_as(0, "second", MemberChange::MakeAdmin {}).unwrap();
    world.run(5_000);
    world.connected = [(0, 2), (1, 3)].into();
    world.join_as(2, &code, "nas");
    world.join_as(
        3,
        &Code {
            inviter: key(1),
            ..code.clone()
        },
        "nas",
    );
    assert_eq!((world.name_of(0, 2), world.name_of(1, 3)), (Some("nas"), Some("nas")));
    world.connected = [(0, 1), (0, 2), (1, 3), (0, 4)].into();
    world.run(90_000);
    for at in 0..5 {
        assert_eq!(
            (world.name_of(at, 2), world.name_of(at, 3)),
            (Some("nas"), Some("nas-2")),
            "node {at}"
        );
        assert_eq!(world.written(at, 3), Some("nas-2"), "it stays: node {at}");
    }
    for at in [0, 1] {
        let told: Vec<PublicKey> = world.network(at).numbered().map(|numbered| numbered.member).collect();
        assert_eq!(told, [key(3)], "node {at} is told");
    }
    // What becomes free is taken over by no other member, and a name that is given anew moves none.
    world.change_as(0, "nas", MemberChange::Remove {}).unwrap();
    world.run(5_000);
    assert_eq!(world.name_of(4, 3), Some("nas-2"));
    world.change_as(0, "witness", rename("nas")).unwrap();
    world.run(5_000);
    // The removed one comes back.
    world.nodes[2]
        .ask_admin(
            key(0),
            vec!["192.0.2.1:2121".parse().unwrap()],
            Some(name("nas")),
            world.now,
        )
        .unwrap();
    world.nodes[0].accept_requests(600_000, world.now).unwrap();
    world.run(5_000);
    let times = world.times();
    world.nodes[0]
        .approve(None, &key(2), Approval::default(), times)
        .unwrap();
    world.run(10_000);
    for at in [0, 3, 4] {
        assert_eq!(
            (world.name_of(at, 4), world.name_of(at, 3)),
            (Some("nas"), Some("nas-2")),
            "node {at}"
        );
        assert_eq!(world.name_of(at, 2), Some("nas-3"));
    }
}

#[test]
fn an_identifier_names_a_network_before_a_label_does() {
    let mut world = World::new(1, &[]);
    world.create(0);
    let id = world.network(0).id();
    let (_, unix) = world.times();
    let work = world.nodes[0].create(name("work"), None, [9; 16], unix).unwrap();
    assert_eq!(world.nodes[0].find(Some("work")), Ok(work));
    // No command gives this name to a network.
    assert!(Name::network(&id.to_string()).is_err() && Name::network(&work.to_string()).is_err());
    for (of, other) in [(id, work), (work, id)] {
        let label = Name::label(&other.to_string()).unwrap();
        world.nodes[0].all.get_mut(&of).unwrap().set_label(Some(label));
    }
    for network in [id, work] {
        assert_eq!(world.nodes[0].find(Some(&network.to_string())), Ok(network));
    }
}
