//! What follows from guests: those behind node 1, and those behind node 2, which has the name `nas`.

use std::path::Path;

use weft_host::dns::Zone;
use weft_host::dns::zone::MemberAddresses;
use weft_host::hosts::Hosts;
use weft_networks::HostUse;
use weft_noise::PublicKey;

use super::*;
use crate::members::Members;
use crate::names::zone;
use crate::routes::Routes;
use crate::tests::fixture::{UNIX, identity, networks, with_guests};
use crate::{Desired, Inputs, System};

const PHONE: [u8; 32] = [1; 32];
const PRINTER: [u8; 32] = [2; 32];

const IPV4: Ipv4Addr = Ipv4Addr::new(10, 44, 200, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 44, 200, 2);

fn key(byte: u8) -> PublicKey {
    identity(byte).public()
}

fn subnet(ipv4: Ipv4Addr) -> Subnet {
    Subnet::host(IpAddr::V4(ipv4))
}

/// The networks of node 1, in which `phone` is behind it and `printer` behind node 2.
fn world() -> Networks {
    let guests = [
        ("home", PHONE, key(1), "phone", IPV4),
        ("home", PRINTER, key(2), "printer", OTHER),
    ];
    with_guests(&networks(key(2), "nas"), &guests)
}

fn config(text: &str) -> Config {
    Config::parse(text, Path::new("weft.toml")).unwrap()
}

fn system() -> System {
    System {
        interface: 7,
        surroundings: weft_host::surroundings::Surroundings::default(),
        uplinks: Vec::new(),
        place: Err("there is no gateway"),
        listen: vec!["0.0.0.0:2121".parse().unwrap()],
        resolvers: Some(BTreeSet::new()),
        rules: [true; 2],
    }
}

fn desired(config: &Config, networks: &Networks, system: &System) -> Desired {
    Desired::of(&Inputs {
        config,
        networks,
        system,
        hosts: &Hosts::default(),
        adverts: &BTreeMap::new(),
        pass: &|_| true,
        served: None,
        times: (0, UNIX),
    })
}

#[test]
fn guests_behind_this_node_are_listed_with_their_names() {
    let networks = world();
    let desired = desired(&config(""), &networks, &system());
    let home = networks.iter().next().unwrap();
    let expected = Hosted {
        network: home.id(),
        key: PHONE,
        name: Name::host("phone").ok(),
        ipv4: IPV4,
        source: home.ipv4(&key(1)),
    };
    assert_eq!(desired.wireguard, [(node_addr(&PHONE), expected)].into());
    let rules = desired.rules.peers.unwrap();
    assert!(rules[&node_addr(&PHONE)].is_guest && rules[&node_addr(&PRINTER)].is_guest);
}

#[test]
fn a_guest_behind_this_node_is_reached_and_is_not_the_node() {
    let (networks, mut system) = (world(), system());
    let desired_of = |system: &System| desired(&config(""), &networks, system);
    let before = desired_of(&system);
    let home = networks.iter().next().unwrap();
    let own = home.ipv4(&key(1));
    assert!(before.own_subnets.contains(&subnet(IPV4)) && !before.own_subnets.contains(&subnet(OTHER)));
    assert_eq!(before.own_ipv4, own.into_iter().collect::<Vec<_>>());
    let wanted = &before.routes.wanted.subnets;
    assert_eq!(wanted.get(&subnet(IPV4)), Some(&own));
    let behind = before.members.subnets().find(|(behind, _)| *behind == subnet(IPV4));
    assert_eq!(behind, None, "the lanes have it under another address");
    // Another interface has just got it.
    system.surroundings.addresses.push(weft_os::netlink::InterfaceAddress {
        index: 2,
        address: IPV4.into(),
        prefix_len: 24,
    });
    let rules = desired_of(&system).rules.peers.unwrap();
    assert!(rules.values().all(|rules| rules.host.is_empty()));
}

#[test]
fn a_guest_behind_a_member_is_an_address_of_that_member() {
    let networks = world();
    // No consent is needed, and a neighbour in a LAN with such addresses takes nothing away.
    let config = config("[networks]\naccept_routes = false\n");
    let mut system = system();
    system.surroundings.interfaces.push(weft_os::netlink::Interface {
        index: 2,
        name: "eth0".to_owned(),
        up: true,
        usable: true,
        ..weft_os::netlink::Interface::default()
    });
    system.surroundings.addresses.push(weft_os::netlink::InterfaceAddress {
        index: 2,
        address: "10.44.200.9".parse().unwrap(),
        prefix_len: 24,
    });
    let desired = desired(&config, &networks, &system);
    let found = desired.members.subnets().find(|(behind, _)| *behind == subnet(OTHER));
    assert_eq!(found, Some((subnet(OTHER), key(2))));
    let own = networks.iter().next().unwrap().ipv4(&key(1));
    for ipv4 in [IPV4, OTHER] {
        assert_eq!(desired.routes.wanted.subnets.get(&subnet(ipv4)), Some(&own), "{ipv4}");
    }
    assert!(desired.routes.withheld.is_empty());
    let other = "10.44.200.3".parse().unwrap();
    assert!(desired.of_interest.contain(OTHER.into()) && !desired.of_interest.contain(other));
}

#[test]
fn a_guest_whose_address_is_used_otherwise_is_left_out() {
    let peer = key(9);
    for text in [
        "[tun]\naddresses = [\"10.44.200.1/32\"]\n",
        "[tun]\nroutes = [\"10.44.200.1/32\"]\n",
        &format!("[[peer]]\nnpub = \"{peer}\"\nroutes = [\"10.44.200.1/32\"]\n"),
    ] {
        assert!(hosted(&config(text), &world()).is_empty(), "{text}");
    }
    let mut networks = world();
    networks.set_host_use(HostUse {
        own: BTreeSet::from([IPV4]),
        resolvers: Some(BTreeSet::from([OTHER.into()])),
        ..HostUse::default()
    });
    assert!(hosted(&config(""), &networks).is_empty());
    let members = Members::of(&config(""), &networks, &Hosts::default());
    assert!(members.subnets().all(|(behind, _)| behind != subnet(OTHER)));
    let routes = Routes::of(&members, &BTreeMap::new(), &system());
    assert!(!routes.wanted.subnets.contains_key(&subnet(IPV4)));
}

#[test]
fn a_guest_in_two_networks_counts_in_the_first() {
    let mut networks = networks(key(2), "nas");
    let work = Name::network("work").unwrap();
    networks.create(work, None, [8; 16], UNIX).unwrap();
    let guests = [
        ("work", PHONE, key(1), "phone", OTHER),
        ("home", PHONE, key(1), "phone", IPV4),
        ("work", PRINTER, key(1), "printer", IPV4),
    ];
    let networks = with_guests(&networks, &guests);
    let found: Vec<_> = hosted(&config(""), &networks).into_values().collect();
    let home = networks.named(Some("home")).unwrap().id();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].network, found[0].ipv4), (home, IPV4));
}

#[test]
fn guests_have_names_with_an_address_of_ipv4() {
    let third = Ipv4Addr::new(10, 44, 200, 3);
    let guests = [
        ("home", PHONE, key(1), "phone", IPV4),
        ("home", PRINTER, key(2), "printer", OTHER),
        ("home", [3; 32], key(1), "nas", third),
    ];
    let networks = with_guests(&networks(key(2), "nas"), &guests);
    let home = networks.iter().next().unwrap();
    let mut expected = Zone::default();
    let guest = |ipv4| MemberAddresses {
        ipv6: None,
        ipv4: Some(ipv4),
    };
    expected.add_member("home", "phone", guest(IPV4));
    expected.add_member("home", "printer", guest(OTHER));
    // A name that a member has leads to the member alone.
    let nas = MemberAddresses {
        ipv6: Some(key(2).node_addr().to_ipv6()),
        ipv4: home.ipv4(&key(2)),
    };
    expected.add_member("home", "nas", nas);
    assert_eq!(zone(&Members::default(), &networks), expected);
}
