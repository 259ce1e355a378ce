//! Routes: offered by members, approved by administrators.

use super::*;

fn subnet(text: &str) -> Subnet {
    text.parse().unwrap()
}

/// A founder with two members, which are connected with it only.
fn three() -> World {
    let mut world = World::new(3, &[(0, 1), (0, 2)]);
    world.create(0);
    let code = world.invite(0, 2, 1);
    world.join(1, &code, 0);
    world.join(2, &code, 0);
    world.run(10_000);
    assert_eq!(world.members(2), [0, 1, 2]);
    world
}

impl World {
    fn offer(&mut self, at: usize, subnets: &[&str]) {
        self.nodes[at].set_offer(&subnets.iter().map(|text| subnet(text)).collect());
    }

    fn route(&mut self, at: usize, member: &str, of: &str, change: RouteChange) -> Result<(), NetworkError> {
        let times = self.times();
        let changed = self.nodes[at].change_route(None, (member, subnet(of)), change, times);
        changed.map(drop)
    }

    fn offered(&self, at: usize, of: usize) -> Vec<Subnet> {
        let offered = self.network(at).offered_routes(&key(at), self.now);
        let by_member = offered.into_iter().filter(|(_, members)| members.contains(&key(of)));
        by_member.map(|(subnet, _)| subnet).collect()
    }
}

#[test]
fn an_approved_route_reaches_all_members_and_a_revoked_one_ends() {
    let mut world = three();
    world.offer(1, &["192.168.7.0/24", "2001:db8:7::/48"]);
    world.run(3_000);
    assert_eq!(
        world.offered(0, 1),
        [subnet("192.168.7.0/24"), subnet("2001:db8:7::/48")]
    );
    assert!(world.offered(2, 1).is_empty(), "an offer is for administrators");
    assert!(world.nodes[2].routes().is_empty(), "an offer has no effect");
    let route = |world: &mut World, change| world.route(0, "node-1", "192.168.7.0/24", change);
    route(&mut world, RouteChange::Approve).unwrap();
    route(&mut world, RouteChange::Approve).unwrap();
    world.run(3_000);
    let expected = BTreeMap::from([(subnet("192.168.7.0/24"), BTreeSet::from([key(1)]))]);
    for at in 0..3 {
        assert_eq!(world.nodes[at].routes(), expected, "{at}");
    }
    assert_eq!(world.nodes[1].own_routes(), BTreeSet::from([subnet("192.168.7.0/24")]));
    route(&mut world, RouteChange::Revoke).unwrap();
    world.run(3_000);
    for at in 0..3 {
        assert!(world.nodes[at].routes().is_empty(), "{at}");
    }
    assert!(world.nodes[1].own_routes().is_empty());
    // An approved route that is offered no longer is not forwarded to.
    route(&mut world, RouteChange::Approve).unwrap();
    world.offer(1, &[]);
    world.run(5_000);
    assert!(world.offered(0, 1).is_empty() && world.nodes[1].own_routes().is_empty());
}

#[test]
fn commands_about_routes_name_what_is_missing() {
    let mut world = three();
    let approve = |world: &mut World, at, member: &str, of| world.route(at, member, of, RouteChange::Approve);
    let lan = "192.168.7.0/24";
    assert!(matches!(
        approve(&mut world, 0, "node-1", lan),
        Err(NetworkError::NotOffered(..))
    ));
    assert!(matches!(
        approve(&mut world, 0, "x", lan),
        Err(NetworkError::NoMember(_))
    ));
    assert!(matches!(
        approve(&mut world, 1, "node-1", lan),
        Err(NetworkError::NotAdmin(_))
    ));
    for (of, words) in [
        ("10.0.0.0/8", "addresses of members"),
        ("0.0.0.0/0", "exit"),
        ("fd00::/8", "addresses of nodes"),
        ("127.0.0.0/8", "loopback"),
    ] {
        let error = approve(&mut world, 0, "node-1", of).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
    assert!(matches!(
        world.route(0, "node-1", lan, RouteChange::Revoke),
        Err(NetworkError::NoRoute(..))
    ));
    // An administrator of a lower rank decides about itself and not about its senior.
    let times = world.times();
    world.nodes[0]
        .change_member(None, "node-1", (MemberChange::MakeAdmin {}, None), times)
        .unwrap();
    world.offer(0, &[lan]);
    world.offer(1, &[lan]);
    world.run(5_000);
    assert!(matches!(
        approve(&mut world, 1, "founder", lan),
        Err(NetworkError::Senior(_))
    ));
    approve(&mut world, 1, "node-1", lan).unwrap();
    approve(&mut world, 0, "founder", lan).unwrap();
    world.run(3_000);
    let both = BTreeSet::from([key(0), key(1)]);
    assert_eq!(world.nodes[2].routes(), BTreeMap::from([(subnet(lan), both)]));
}

#[test]
fn an_offer_of_a_stranger_is_ignored() {
    let mut world = three();
    let network = world.network(0).id();
    let offer = Document::Offer {
        network,
        subnets: BTreeSet::from([subnet("192.168.7.0/24")]),
    };
    let (now, unix) = world.times();
    for (at, from) in [(0, 7), (2, 1)] {
        let taken = world.nodes[at].handle_document(key(from), &offer.encode(), now, unix);
        assert_eq!(taken, Err(DocumentError::Unwanted), "{at}");
    }
    assert_eq!(
        world.nodes[0].handle_document(key(1), &offer.encode(), now, unix),
        Ok(())
    );
}

#[test]
fn an_approved_exit_reaches_all_members_and_a_revoked_one_ends() {
    let mut world = three();
    let exit = |world: &mut World, change| {
        let times = world.times();
        world.nodes[0].change_exit(None, "node-1", change, times).map(drop)
    };
    let error = exit(&mut world, RouteChange::Approve).unwrap_err();
    assert_eq!(error, NetworkError::NoExitOffered("node-1".to_owned()));
    world.offer(1, &["0.0.0.0/0", "192.168.7.0/24"]);
    world.run(3_000);
    assert_eq!(world.offered(0, 1), [subnet("0.0.0.0/0"), subnet("192.168.7.0/24")]);
    let route = world.route(0, "node-1", "0.0.0.0/0", RouteChange::Approve);
    assert!(matches!(route, Err(NetworkError::Reserved(..))), "{route:?}");
    assert!(world.nodes[1].own_exit().is_none(), "an offer has no effect");
    exit(&mut world, RouteChange::Approve).unwrap();
    world.run(3_000);
    let ipv4 = Exit::default();
    for at in 0..3 {
        assert_eq!(world.nodes[at].exits(), BTreeMap::from([(key(1), ipv4)]), "{at}");
        assert!(world.nodes[at].routes().is_empty(), "{at}");
    }
    assert_eq!(world.nodes[1].own_exit(), Some(ipv4));
    assert_eq!(world.nodes[2].own_exit(), None);

    // It has IPv6 now, which an administrator approves again.
    world.offer(1, &["0.0.0.0/0", "::/0"]);
    world.run(3_000);
    assert_eq!(world.nodes[1].own_exit(), Some(ipv4));
    exit(&mut world, RouteChange::Approve).unwrap();
    world.run(3_000);
    let both = Exit { ipv6: true, ..ipv4 };
    assert_eq!(world.nodes[1].own_exit(), Some(both));
    assert_eq!(world.nodes[2].exits()[&key(1)], both);
    world.offer(1, &["::/0"]);
    assert_eq!(world.nodes[1].own_exit().map(|exit| exit.ipv4), Some(false));
    world.offer(1, &[]);
    assert_eq!(world.nodes[1].own_exit(), None, "it offers nothing any longer");
    exit(&mut world, RouteChange::Revoke).unwrap();
    world.run(3_000);
    assert!(world.nodes[2].exits().is_empty());
    let error = exit(&mut world, RouteChange::Revoke).unwrap_err();
    assert_eq!(error, NetworkError::NoExit("node-1".to_owned()));
}
