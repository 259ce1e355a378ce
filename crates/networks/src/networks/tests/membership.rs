//! Membership without an invite.

use weft_roster::rules::Policy;

use super::*;

const MINUTE: u64 = 60_000;

impl World {
    /// `at` asks `admin`.
    fn ask(&mut self, at: usize, admin: usize) {
        let address = "192.0.2.1:2121".parse().unwrap();
        let host = Some(name(&format!("node-{at}")));
        self.nodes[at]
            .ask_admin(key(admin), vec![address], host, self.now)
            .unwrap();
    }

    fn accept(&mut self, at: usize, ms: u64) {
        self.nodes[at].accept_requests(ms, self.now).unwrap();
    }

    /// The nodes whose requests wait at `at`.
    fn waiting(&self, at: usize) -> Vec<PublicKey> {
        self.nodes[at].requests(self.now).map(|(key, _)| *key).collect()
    }

    fn verdict(&self, at: usize, admin: usize) -> Option<Verdict> {
        let mut asked = self.nodes[at].asked();
        asked.find(|(of, _)| **of == key(admin)).unwrap().1.verdict
    }

    fn approve(&mut self, at: usize, node: usize) -> Result<NetworkId, NetworkError> {
        let times = self.times();
        self.nodes[at].approve(None, &key(node), Approval::default(), times)
    }
}

#[test]
fn a_node_that_asks_is_a_member_when_the_administrator_approves() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    world.ask(1, 0);
    let row = world.nodes[1].rows().next().unwrap();
    assert!(row.key == key(0) && !row.member && row.addresses.len() == 1);
    // Nothing is accepted unless the owner says so.
    world.run(5_000);
    assert_eq!(world.verdict(1, 0), Some(Verdict::Closed));
    assert!(world.waiting(0).is_empty());
    assert!(!world.nodes[0].welcomes_guests(world.now, world.unix()));
    world.accept(0, 10 * MINUTE);
    assert!(world.nodes[0].welcomes_guests(world.now, world.unix()));
    world.run(5_000);
    assert_eq!(world.verdict(1, 0), Some(Verdict::Waits));
    assert_eq!(world.waiting(0), [key(1)]);
    assert!(world.nodes[1].iter().next().is_none());
    let times = world.times();
    let approval = Approval {
        name: Some(name("laptop")),
        tags: [Name::label("trusted").unwrap()].into(),
    };
    world.nodes[0].approve(None, &key(1), approval, times).unwrap();
    assert!(world.waiting(0).is_empty());
    world.run(5_000);
    assert_eq!((world.members(0), world.members(1)), (vec![0, 1], vec![0, 1]));
    let member = &world.network(1).state().members[&key(1)];
    assert!(member.proof.is_none() && member.tags.len() == 1);
    assert_eq!(world.network(1).state().names[&key(1)], name("laptop"));
    // The request has ended, and with it the contact.
    assert!(world.nodes[1].rows().all(|row| row.member));
    world.run(61 * MINUTE);
    assert_eq!(world.nodes[1].asked().count(), 0);
    assert_eq!(world.members(1), [0, 1]);
}

#[test]
fn an_approval_that_finds_the_node_away_reaches_it_later() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    world.accept(0, MINUTE);
    world.ask(1, 0);
    world.run(5_000);
    world.connected.clear();
    world.approve(0, 1).unwrap();
    world.run(12 * MINUTE);
    assert!(world.nodes[1].iter().next().is_none());
    // The decision is forgotten, and the membership is not.
    world.connected.insert((0, 1));
    world.run(10_000);
    assert_eq!(world.members(1), [0, 1]);
}

#[test]
fn an_approved_node_that_restarts_goes_on() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    world.accept(0, MINUTE);
    world.ask(1, 0);
    world.run(5_000);
    let id = world.approve(0, 1).unwrap();
    world.deliver(0);
    assert!(!world.network(1).is_member(&key(1)));
    let kept = kept_again(world.network(1), 1);
    assert_eq!((kept.id(), kept.joining().unwrap().proof.clone()), (id, None));
    world.nodes[1] = networks(1, vec![kept]);
    assert_eq!(world.nodes[1].rows().next().unwrap().addresses.len(), 1);
    world.run(5_000);
    assert_eq!(world.members(1), [0, 1]);
}

#[test]
fn a_denied_node_learns_it_and_can_be_approved_after_all() {
    let mut world = World::new(2, &[(0, 1)]);
    world.create(0);
    world.accept(0, MINUTE);
    world.ask(1, 0);
    world.run(5_000);
    world.nodes[0].deny(&key(1), world.now).unwrap();
    world.run(5_000);
    assert_eq!(world.verdict(1, 0), Some(Verdict::Denied));
    assert!(world.nodes[1].rows().next().is_none(), "no contact any longer");
    assert!(world.waiting(0).is_empty());
    // Asking again changes nothing while the decision is kept.
    world.ask(1, 0);
    world.run(5_000);
    assert_eq!(world.verdict(1, 0), Some(Verdict::Denied));
    world.approve(0, 1).unwrap();
    world.ask(1, 0);
    world.run(5_000);
    assert_eq!(world.members(1), [0, 1]);
}

#[test]
fn a_removed_member_comes_back_by_a_request() {
    let mut world = World::new(3, &[(0, 1), (0, 2), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    world.join(1, &code, 0);
    world.join(2, &code, 0);
    world.run(10_000);
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-2", (MemberChange::Remove {}, None), times)
        .unwrap();
    world.run(90_000);
    assert_eq!(world.members(2), [0, 1]);
    world.accept(0, MINUTE);
    world.ask(2, 0);
    world.run(5_000);
    world.approve(0, 2).unwrap();
    world.run(10_000);
    for at in 0..3 {
        assert_eq!(world.members(at), [0, 1, 2], "node {at}");
    }
    assert!(world.network(2).joining().is_none());
    assert!(world.nodes[2].rows().all(|row| row.member));

    // The approval counts once: after another removal the owner decides again.
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-2", (MemberChange::Remove {}, None), times)
        .unwrap();
    world.run(5_000);
    world.ask(2, 0);
    world.run(5_000);
    assert_eq!(
        (world.verdict(2, 0), world.waiting(0)),
        (Some(Verdict::Waits), vec![key(2)])
    );
    world.approve(0, 2).unwrap();
    world.run(10_000);
    assert_eq!(world.members(2), [0, 1, 2]);
}

#[test]
fn a_node_that_is_no_administrator_takes_no_requests() {
    let mut world = World::new(3, &[(0, 1), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    world.run(5_000);
    world.ask(2, 1);
    world.run(5_000);
    assert_eq!(world.verdict(2, 1), Some(Verdict::NotAdmin));
    let now = world.now;
    match world.nodes[1].accept_requests(MINUTE, now) {
        Err(NetworkError::NotAdmin(admins)) => assert_eq!(admins, "founder"),
        other => panic!("{other:?}"),
    }
    let nowhere = world.nodes[2].accept_requests(MINUTE, now);
    assert_eq!(nowhere, Err(NetworkError::NoNetwork));
    assert_eq!(world.approve(0, 2), Err(NetworkError::NoRequest(key(2).to_string())));
    assert_eq!(
        world.nodes[0].deny(&key(2), now),
        Err(NetworkError::NoRequest(key(2).to_string()))
    );
    let itself = world.nodes[2].ask_admin(key(2), Vec::new(), None, now);
    assert_eq!(itself, Err(NetworkError::Itself(key(2))));
}

#[test]
fn requests_and_administrators_that_are_asked_are_few() {
    let mut world = World::new(1, &[]);
    world.create(0);
    world.accept(0, MINUTE);
    let (now, unix) = world.times();
    let request = Document::Request {
        name: Some(name("node")),
    };
    let mut answers = Vec::new();
    for number in 1..100 {
        world.nodes[0]
            .handle_document(key(number), &request.encode(), now, unix)
            .unwrap();
        let (to, answer) = world.nodes[0].take_documents().pop().unwrap();
        assert_eq!(to, key(number));
        match Document::decode(&answer).unwrap() {
            Document::Verdict { verdict, .. } => answers.push(verdict),
            other => panic!("{other:?}"),
        }
    }
    assert!(answers[..MAX_REQUESTS].iter().all(|verdict| *verdict == Verdict::Waits));
    assert!(
        answers[MAX_REQUESTS..]
            .iter()
            .all(|verdict| *verdict == Verdict::TooMany)
    );
    assert_eq!(world.waiting(0).len(), MAX_REQUESTS);
    // After an hour they have ended.
    world.now += 60 * MINUTE;
    assert!(world.waiting(0).is_empty());
    let mut asks = (1..10).map(|number| world.nodes[0].ask_admin(key(number), Vec::new(), None, now));
    assert!(asks.by_ref().take(MAX_ASKED).all(|asked| asked.is_ok()));
    assert_eq!(asks.next(), Some(Err(NetworkError::AskedTooMany)));
}

#[test]
fn verdicts_of_others_count_for_nothing() {
    let mut world = World::new(3, &[(0, 1)]);
    world.create(0);
    world.ask(1, 0);
    let network = Some(NetworkId::from_bytes([6; 16]));
    let (now, unix) = world.times();
    for verdict in [Verdict::TakenIn, Verdict::Denied] {
        let lie = Document::Verdict { network, verdict }.encode();
        world.nodes[1].handle_document(key(2), &lie, now, unix).unwrap();
    }
    assert_eq!(world.verdict(1, 0), None);
    assert!(world.nodes[1].iter().next().is_none());
}

#[test]
fn fingerprints_are_the_ends_of_the_npub() {
    let text = key(0).to_string();
    let short = fingerprint(&key(0));
    assert_eq!(short.len(), 13);
    assert_eq!((&text[5..11], &text[text.len() - 6..]), short.split_once('-').unwrap());
    assert_ne!(short, fingerprint(&key(1)));
}

impl World {
    fn change(&mut self, member: &str, change: MemberChange) -> Result<PublicKey, NetworkError> {
        let times = self.times();
        self.nodes[0]
            .change_member(None, member, (change, Some(&keep_rest())), times)
            .map(|changed| changed.key)
    }

    /// The founder 0 and its members `node-1` to `node-COUNT`.
    pub(super) fn with_members(count: usize) -> Self {
        let connected: Vec<(usize, usize)> = (1..=count).map(|other| (0, other)).collect();
        let mut world = Self::new(count + 1, &connected);
        world.create(0);
        let code = world.invite(0, count as u32, 1);
        for at in 1..=count {
            world.join(at, &code, 0);
            world.run(5_000);
        }
        world
    }
}

fn fix(ipv4: Option<Ipv4Addr>) -> MemberChange {
    MemberChange::Address { ipv4 }
}

fn labels(tags: &[&str]) -> BTreeSet<Name> {
    tags.iter().map(|tag| Name::label(tag).unwrap()).collect()
}

#[test]
fn tags_are_added_and_removed() {
    let mut world = World::with_members(1);
    let tags = |world: &World, at: usize| world.network(at).state().members[&key(1)].tags.clone();
    world.change("node-1", tag(&["a", "b"])).unwrap();
    world.change("node-1", tag(&["b", "c"])).unwrap();
    world.run(5_000);
    assert_eq!(tags(&world, 1), labels(&["a", "b", "c"]));
    world.change("node-1", untag(&["a", "b"])).unwrap();
    world.run(5_000);
    assert_eq!(tags(&world, 1), labels(&["c"]));
    assert_eq!(world.network(1).state().names[&key(1)], name("node-1"));
    let missing = world.change("node-1", untag(&["c", "d"]));
    assert!(matches!(missing, Err(NetworkError::NoTag { tag, .. }) if tag.as_str() == "d"));
    assert_eq!(tags(&world, 0), labels(&["c"]), "nothing is changed then");
    // A record has 32 tags at most.
    let many = (0..32).map(|n| format!("t{n}")).collect();
    assert!(world.change("node-1", MemberChange::Tag { tags: many }).is_err());
    assert_eq!(tags(&world, 0), labels(&["c"]));
    let times = world.times();
    let junior = world.nodes[1].change_member(None, "founder", (tag(&["x"]), None), times);
    assert!(matches!(junior, Err(NetworkError::NotAdmin(_))));
}

#[test]
fn a_new_machine_takes_the_place_of_an_old_one() {
    let mut world = World::with_members(2);
    world.change("node-1", tag(&["a"])).unwrap();
    world.change("node-1", MemberChange::MakeAdmin {}).unwrap();
    world.run(5_000);
    world.change("node-1", replace("node-2")).unwrap();
    world.run(10_000);
    for at in [0, 2] {
        assert_eq!(world.members(at), [0, 2], "node {at}");
        let state = world.network(at).state();
        assert_eq!(state.names[&key(2)], name("node-1"));
        assert_eq!(state.members[&key(2)].tags, labels(&["a"]));
        assert!(state.admins.rank(&key(2)).is_none() && state.admins.rank(&key(1)).is_none());
    }
    assert!(!world.network(1).is_member(&key(1)));
}

#[test]
fn a_fixed_address_moves_to_the_replacing_node() {
    let mut world = World::with_members(1);
    let fixed = "10.44.7.7".parse().unwrap();
    let body = weft_roster::record::Member {
        name: Some(name("nas")),
        ipv4: Some(fixed),
        ..Default::default()
    };
    let times = world.times();
    let nas = key(1);
    let network = world.nodes[0].all.values_mut().next().unwrap();
    let body = weft_roster::record::Body::Member(body);
    let record = weft_roster::key::RecordKey::Member(nas);
    network.write(&identity(0), record, &body, times.0, times.1).unwrap();
    world.nodes.push(networks(2, Vec::new()));
    world.connected.insert((0, 2));
    world.accept(0, MINUTE);
    world.ask(2, 0);
    world.run(5_000);
    let new = key(2).to_string();
    let wrong = world.change("nobody", replace(&new));
    assert!(matches!(wrong, Err(NetworkError::NoMember(_))));
    assert_eq!(world.waiting(0), [key(2)], "nothing is changed then");
    world.change("nas", replace(&new)).unwrap();
    world.run(5_000);
    assert_eq!(world.members(2), [0, 2]);
    assert_eq!(world.network(2).ipv4(&key(2)), Some(fixed));
    assert_eq!(world.network(2).state().names[&key(2)], name("nas"));
}

#[test]
fn a_replacement_that_cannot_be_changes_nothing() {
    let mut world = World::with_members(2);
    let mut refused = |old: &str, new: &str| world.change(old, replace(new));
    assert!(matches!(refused("node-1", "node-1"), Err(NetworkError::SameMember(_))));
    assert!(matches!(refused("node-1", "node-9"), Err(NetworkError::NoMember(_))));
    assert_eq!(refused("founder", "node-1"), Err(NetworkError::ReplacesItself));
    assert_eq!(world.members(0), [0, 1, 2]);
    // A junior cannot write about its senior, nor remove it.
    world.change("node-1", MemberChange::MakeAdmin {}).unwrap();
    world.run(5_000);
    let times = world.times();
    let mut refused = |old: &str, new: &str| {
        let change = replace(new);
        world.nodes[1].change_member(None, old, (change, None), times)
    };
    assert!(matches!(refused("node-2", "founder"), Err(NetworkError::NotSenior(_))));
    assert!(matches!(refused("founder", "node-2"), Err(NetworkError::NotSenior(_))));
    assert_eq!(world.members(1), [0, 1, 2]);
}

/// The key of a member is all that a new machine needs: any member has the records, and no decision
/// of an administrator is asked for. The founder is the administrator again.
#[test]
fn a_member_on_a_new_machine_gets_its_network_from_any_member() {
    let mut world = World::new(3, &[(0, 1), (0, 2), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    world.join(1, &code, 0);
    world.join(2, &code, 0);
    world.run(10_000);
    world.nodes[0] = networks(0, Vec::new());
    world.run(10_000);
    assert!(world.nodes[0].iter().next().is_none());
    world.ask(0, 1);
    world.run(5_000);
    assert_eq!(world.members(0), [0, 1, 2]);
    assert!(world.network(0).is_admin(&key(0)));
    assert!(world.nodes[0].rows().all(|row| row.member));

    // It stays closed to others.
    let mut world = World::new(3, &[(0, 1), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    world.run(10_000);
    world.ask(2, 1);
    world.run(5_000);
    assert_eq!(world.verdict(2, 1), Some(Verdict::NotAdmin));
}

/// An administrator that is removed cannot come back by an invite of its own, and the command says
/// what stays of its work.
#[test]
fn the_invites_of_a_removed_administrator_end_with_it() {
    let mut world = World::new(4, &[(0, 1), (0, 2), (0, 3), (1, 2)]);
    world.create(0);
    let code = world.invite(0, 1, 1);
    world.join(1, &code, 0);
    world.run(10_000);
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (MemberChange::MakeAdmin {}, None), times)
        .unwrap();
    world.run(5_000);
    let theirs = world.invite(1, 5, 2);
    world.join(2, &theirs, 1);
    world.run(10_000);
    assert_eq!(world.members(0), [0, 1, 2]);
    let times = world.times();
    let changed = world.nodes[0].change_member(None, "node-1", (MemberChange::Remove {}, Some(&keep_rest())), times);
    let again = changed.unwrap().again;
    assert!(again.contains(&"member node-2".to_owned()), "{again:?}");
    let ended = |line: &&String| line.starts_with("invite/") && line.ends_with(": ended");
    assert_eq!(again.iter().filter(ended).count(), 1, "{again:?}");
    world.join(3, &theirs, 0);
    world.run(10_000);
    assert_eq!(world.refusal(3), Some(Refusal::Revoked));
    assert_eq!(world.members(0), [0, 2], "who has joined stays");
}

#[test]
fn an_administrator_fixes_addresses_that_no_other_member_has() {
    let mut world = World::with_members(2);
    let address = |text: &str| Some(text.parse().unwrap());
    let of = |world: &World, at: usize, member: usize| world.network(at).ipv4(&key(member)).unwrap();
    let derived = of(&world, 0, 1);
    world.change("node-1", fix(address("10.44.3.4"))).unwrap();
    world.run(5_000);
    assert_eq!([of(&world, 0, 1), of(&world, 2, 1)], [address("10.44.3.4").unwrap(); 2]);
    for outside in ["10.45.3.4", "192.168.1.1", "10.44.3.0", "10.44.255.255"] {
        let refused = world.change("node-1", fix(address(outside)));
        assert!(matches!(refused, Err(NetworkError::NotOfNetworks(_))), "{outside}");
    }
    let taken = world.change("node-2", fix(address("10.44.3.4")));
    assert_eq!(
        taken,
        Err(NetworkError::AddressTaken(
            address("10.44.3.4").unwrap(),
            "node-1".to_owned()
        ))
    );
    // The derived address of one can be that of another one meanwhile.
    world.change("node-2", fix(Some(derived))).unwrap();
    let back = world.change("node-1", fix(None));
    assert!(matches!(back, Err(NetworkError::AddressTaken(..))), "{back:?}");
    world.change("node-2", fix(None)).unwrap();
    world.change("node-1", fix(None)).unwrap();
    assert_eq!(of(&world, 0, 1), derived);
}

#[test]
fn no_command_gives_two_members_one_name() {
    let mut world = World::with_members(2);
    let taken = world.change("node-1", rename("node-2"));
    assert_eq!(taken, Err(NetworkError::MemberNameTaken(name("node-2"))));
    world.change("node-1", rename("node-1")).unwrap();
    world.change("node-1", rename("shed")).unwrap();
    world.change("node-2", rename("node-1")).unwrap();
    assert!(world.network(0).state().renamed.is_empty());
}

/// The time in which each node sends a digest, in ms: in a star, not all get a push.
const DIGESTS: u64 = 120_000;

#[test]
fn the_founder_names_a_successor_and_takes_that_back() {
    let mut world = World::with_members(3);
    let rank = |world: &World, at: usize, of: usize| world.network(at).state().admins.rank(&key(of));
    let name_successor = |world: &mut World, at: usize, member: Option<&str>| {
        let times = world.times();
        world.nodes[at].set_successor(None, (member, Some(&keep_rest())), times)
    };
    let network = world.network(0).id();
    assert_eq!(name_successor(&mut world, 0, Some("node-1")), Ok((network, Vec::new())));
    world.run(DIGESTS);
    for at in 0..4 {
        assert_eq!(rank(&world, at, 1), Some(0), "node {at}");
        assert_eq!(world.members(at), [0, 1, 2, 3], "node {at}");
    }
    // It has the founder's rights, but for naming the next one and for those over the founder.
    assert_eq!(
        name_successor(&mut world, 1, Some("node-2")),
        Err(NetworkError::NotHeadYet("founder".to_owned()))
    );
    let times = world.times();
    let granted = world.nodes[1].change_member(None, "node-2", (MemberChange::MakeAdmin {}, None), times);
    assert!(granted.is_ok(), "{granted:?}");
    world.run(DIGESTS);
    for change in [MemberChange::Remove {}, MemberChange::RevokeAdmin {}] {
        let refused = world.change("node-1", change);
        assert_eq!(refused, Err(NetworkError::IsSuccessor("node-1".to_owned())));
    }
    world.change("node-1", rename("heir")).unwrap();
    assert!(matches!(
        name_successor(&mut world, 0, Some("founder")),
        Err(NetworkError::SucceedsItself(_))
    ));
    // Another one: what the former one signed stays.
    let wish = Wish {
        admins: vec!["node-2".to_owned()],
        ..keep_rest()
    };
    let times = world.times();
    let named = world.nodes[0].set_successor(None, (Some("node-3"), Some(&wish)), times);
    assert_eq!(named.unwrap().1, ["administrator node-2"]);
    world.run(DIGESTS);
    for at in 0..4 {
        let ranks = [1, 2, 3].map(|of| rank(&world, at, of));
        assert_eq!(ranks, [None, Some(1), Some(0)], "node {at}");
        assert_eq!(world.members(at), [0, 1, 2, 3], "node {at}");
        assert_eq!(world.network(at).state().names[&key(1)], name("heir"));
    }
    assert_eq!(name_successor(&mut world, 0, None), Ok((network, Vec::new())));
    assert_eq!(rank(&world, 0, 3), None);
    world.change("node-3", MemberChange::Remove {}).unwrap();
}

#[test]
fn the_default_that_a_removed_administrator_set_stays() {
    let mut world = World::with_members(1);
    world.change("node-1", MemberChange::MakeAdmin {}).unwrap();
    world.run(5_000);
    let times = world.times();
    let deny = RuleChange::Default { policy: Policy::Deny };
    world.nodes[1].change_rules(None, deny, times).unwrap();
    world.run(5_000);
    world.change("node-1", MemberChange::RevokeAdmin {}).unwrap();
    world.run(5_000);
    for at in 0..2 {
        assert_eq!(world.network(at).state().table.inside, Policy::Deny, "node {at}");
        assert_eq!(world.network(at).name(), Some(&Name::network("home").unwrap()));
    }
}

#[test]
fn a_member_is_not_denied() {
    let mut world = World::with_members(1);
    let now = world.now;
    let member = NetworkError::MemberAlready("node-1".to_owned(), "home".to_owned());
    assert_eq!(world.nodes[0].deny(&key(1), now), Err(member));
    // Also one that was taken in by a request, whose decision is kept for a while.
    let mut asked = World::new(2, &[(0, 1)]);
    asked.create(0);
    asked.accept(0, 60_000);
    asked.ask(1, 0);
    asked.run(5_000);
    asked.approve(0, 1).unwrap();
    let denied = asked.nodes[0].deny(&key(1), asked.now);
    assert!(matches!(denied, Err(NetworkError::MemberAlready(..))), "{denied:?}");
    let unknown = NetworkError::NoRequest(key(5).to_string());
    assert_eq!(world.nodes[0].deny(&key(5), now), Err(unknown));
}

/// Guests cost handshakes. They are welcome while an invite is open, and an hour longer.
#[test]
fn invites_that_are_closed_welcome_no_guests_for_long() {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let welcome = |world: &World, s: u64| world.nodes[0].welcomes_guests(world.now, world.unix() + s);
    assert!(!welcome(&world, 0));
    let invite = |world: &mut World, seed: u8| {
        let invite = NewInvite {
            name: None,
            tags: BTreeSet::new(),
            uses: 1,
            expires: u64::from(u32::MAX),
            addresses: Vec::new(),
            entry: None,
        };
        let times = world.times();
        world.nodes[0]
            .invite(None, &invite, Seed::new([seed; 16]), times)
            .unwrap()
    };
    let used = invite(&mut world, 1);
    assert!(welcome(&world, 100_000_000));
    world.join(1, &used, 0);
    world.run(10_000);
    assert!(welcome(&world, 3_000) && !welcome(&world, 3_600));
    let revoked = invite(&mut world, 2);
    let key = hex::encode(revoked.seed.key_pair().public().as_bytes());
    let times = world.times();
    world.nodes[0].revoke(None, &key[..12], times).unwrap();
    assert!(welcome(&world, 3_599) && !welcome(&world, 3_600));
}
