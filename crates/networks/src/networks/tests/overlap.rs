//! Networks with one name, and members of different networks with one IPv4 address.

use weft_roster::addresses::derived;

use super::*;

/// Two networks named `home`, of nodes 0 and 1. Node 2 joins both, in this order. `nonce` is that of
/// the second.
fn joined_both(nonce: Nonce) -> (World, [NetworkId; 2]) {
    let mut world = World::new(3, &[(0, 2), (1, 2)]);
    world.create(0);
    let home = Name::network("home").unwrap();
    world.nodes[1].create(home, Some(name("founder")), nonce, UNIX).unwrap();
    for by in [0, 1] {
        let code = world.invite(by, 1, by as u8);
        world.join(2, &code, by);
        world.run(5_000);
    }
    let ids = [0, 1].map(|at| world.network(at).id());
    (world, ids)
}

fn labels(networks: &Networks) -> Vec<(NetworkId, String)> {
    let labelled = networks.in_order().map(|network| (network.id(), network.label()));
    labelled.map(|(id, label)| (id, label.unwrap().to_string())).collect()
}

fn network(of: &Networks, id: NetworkId) -> &Network {
    of.iter().find(|network| network.id() == id).unwrap()
}

/// A nonce with which the network of node 1 gives `key` this address.
fn nonce_for(key: &PublicKey, address: Ipv4Addr) -> Nonce {
    let nonces = (0..u64::MAX).map(|number| {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        nonce
    });
    let mut found = nonces.filter(|nonce| {
        let id = NetworkId::new(&identity(1).public(), nonce);
        derived(&id.to_string(), key) == address
    });
    found.next().unwrap()
}

#[test]
fn two_networks_of_one_name_have_labels_that_stay() {
    let (mut world, [first, second]) = joined_both([9; 16]);
    let expected = [(first, "home".to_owned()), (second, "home-2".to_owned())];
    assert_eq!(labels(&world.nodes[2]), expected);
    let create = |world: &mut World, text: &str| {
        let name = Name::network(text).unwrap();
        world.nodes[2].create(name, None, [text.len() as u8; 16], UNIX)
    };
    for taken in ["home", "home-2"] {
        let error = create(&mut world, taken).unwrap_err();
        assert_eq!(error, NetworkError::NameTaken(Name::network(taken).unwrap()));
    }
    let third = create(&mut world, "home-3").unwrap();

    let read = world.nodes[2].iter().map(|network| kept_again(network, 2));
    let mut read = networks(2, read.collect());
    let expected = [expected.to_vec(), vec![(third, "home-3".to_owned())]].concat();
    assert_eq!(labels(&read), expected);
    // The label is the name that commands take, and stays although the other name is free.
    assert_eq!(read.leave(Some("home"), true, (0, UNIX)), Ok(first));
    let mut again = networks(2, read.all.into_values().collect());
    assert_eq!(labels(&again), expected[1..]);
    assert!(matches!(
        again.leave(Some("home"), true, (0, UNIX)),
        Err(NetworkError::Unknown(_))
    ));
    assert_eq!(again.leave(Some("home-2"), true, (0, UNIX)), Ok(second));
}

#[test]
fn networks_that_were_kept_without_labels_get_some() {
    let (world, _) = joined_both([9; 16]);
    let kept = world.nodes[2].iter().map(|network| {
        let set = network.set().clone();
        Network::kept(&key(2), set, BTreeMap::new(), None)
    });
    let read = networks(2, kept.collect());
    let found: BTreeSet<String> = labels(&read).into_iter().map(|(_, label)| label).collect();
    assert_eq!(found, ["home".to_owned(), "home-2".to_owned()].into());
}

#[test]
fn an_address_leads_to_the_member_of_the_earlier_network() {
    let world = {
        let mut world = World::new(1, &[]);
        world.create(0);
        world
    };
    let address = world.network(0).ipv4(&key(0)).unwrap();
    let (mut world, [first, second]) = joined_both(nonce_for(&key(1), address));
    let node = &world.nodes[2];
    let rows: BTreeMap<PublicKey, Row> = node.rows().map(|row| (row.key, row)).collect();
    let own = |id| network(node, id).ipv4(&key(2));
    assert_eq!((rows[&key(0)].ipv4, rows[&key(0)].source), (Some(address), own(first)));
    assert_eq!((rows[&key(1)].ipv4, rows[&key(1)].source), (None, own(second)));
    assert!(rows[&key(1)].member, "IPv6 passes");
    assert_eq!(node.shadowed(network(node, first)), []);
    let expected = Shadowed {
        ipv4: address,
        member: key(1),
        network: first,
        leads_to: key(0),
    };
    assert_eq!(node.shadowed(network(node, second)), [expected]);
    assert_eq!(node.own_ipv4().count(), 2);
    world.nodes[2].leave(Some("home"), true, (0, UNIX)).unwrap();
    let row = world.nodes[2].rows().next().unwrap();
    assert_eq!((row.key, row.ipv4), (key(1), Some(address)));
}

#[test]
fn a_later_network_takes_no_address_of_a_member_for_this_node() {
    let world = {
        let mut world = World::new(1, &[]);
        world.create(0);
        world
    };
    let address = world.network(0).ipv4(&key(0)).unwrap();
    let (world, [first, second]) = joined_both(nonce_for(&key(2), address));
    let node = &world.nodes[2];
    assert_eq!(network(node, second).ipv4(&key(2)), Some(address));
    assert_eq!(node.own_ipv4_in(network(node, second)), None);
    assert_eq!(
        node.own_ipv4().collect::<Vec<_>>(),
        [network(node, first).ipv4(&key(2)).unwrap()]
    );
    let rows: BTreeMap<PublicKey, Row> = node.rows().map(|row| (row.key, row)).collect();
    assert_eq!(rows[&key(0)].ipv4, Some(address));
    assert_eq!(rows[&key(1)].ipv4, None, "no address to send from");
}

/// An administrator gives node 1 or the member itself an address that is not derived.
fn fix(world: &mut World, member: usize, address: &str) {
    let body = weft_roster::record::Member {
        ipv4: Some(address.parse().unwrap()),
        ..Default::default()
    };
    let body = weft_roster::record::Body::Member(body);
    let record = weft_roster::key::RecordKey::Member(key(member));
    let times = world.times();
    let network = world.nodes[0].all.values_mut().next().unwrap();
    network.write(&identity(0), record, &body, times.0, times.1).unwrap();
    world.run(5_000);
}

/// What this node asks its resolver is known, and there is none.
fn host(accepts: bool) -> HostUse {
    HostUse {
        accepts,
        resolvers: Some(BTreeSet::new()),
        ..HostUse::default()
    }
}

#[test]
fn no_fixed_address_outside_the_range_is_used_without_consent() {
    let mut world = World::with_members(2);
    fix(&mut world, 1, "192.168.1.1");
    let used = |world: &World| {
        let rows: BTreeMap<PublicKey, Row> = world.nodes[2].rows().map(|row| (row.key, row)).collect();
        rows[&key(1)].ipv4.map(|ipv4| ipv4.to_string())
    };
    let unused = |world: &World| world.nodes[2].unused(world.network(2));
    let address: Ipv4Addr = "192.168.1.1".parse().unwrap();
    world.nodes[2].set_host_use(host(false));
    assert_eq!(used(&world), None);
    assert_eq!(unused(&world), [(key(1), address, Unused::NotAccepted)]);
    world.nodes[2].set_host_use(host(true));
    assert_eq!(used(&world).as_deref(), Some("192.168.1.1"));
    assert_eq!(unused(&world), []);
    // Consent is none to the address of the router.
    world.nodes[2].set_host_use(HostUse {
        routers: BTreeSet::from([address.into()]),
        ..host(true)
    });
    assert_eq!(used(&world), None);
    assert_eq!(unused(&world), [(key(1), address, Unused::Router)]);
}

#[test]
fn a_member_takes_no_fixed_address_without_its_consent() {
    let mut world = World::with_members(2);
    fix(&mut world, 2, "192.168.1.1");
    let own = |world: &World| world.nodes[2].own_ipv4().collect::<Vec<_>>();
    world.nodes[2].set_host_use(host(false));
    assert_eq!(own(&world), [] as [Ipv4Addr; 0]);
    let unused = world.nodes[2].unused(world.network(2));
    assert!(unused.iter().any(|(member, ..)| *member == key(2)), "{unused:?}");
    world.nodes[2].set_host_use(host(true));
    assert_eq!(own(&world), ["192.168.1.1".parse::<Ipv4Addr>().unwrap()]);
}
