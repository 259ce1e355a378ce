use std::collections::BTreeSet;
use std::path::Path;

use weft_config::Config;
use weft_host::hosts::Hosts;
use weft_noise::{Identity, SecretKey};
use weft_os::netlink::{Interface, InterfaceAddress, Route};

use super::*;

/// The interface of the node, and that to its LAN.
const TUNNEL: u32 = 7;
const LAN: u32 = 2;

fn subnet(text: &str) -> Subnet {
    text.parse().unwrap()
}

/// A host in 192.168.1.0/24 and 2001:db8:1::/64, with a router.
fn system() -> System {
    let interface = |index, name: &str| Interface {
        index,
        name: name.to_owned(),
        up: true,
        ..Interface::default()
    };
    let address = |index, address: &str, prefix_len| InterfaceAddress {
        index,
        address: address.parse().unwrap(),
        prefix_len,
    };
    let surroundings = Surroundings {
        interfaces: vec![interface(LAN, "eth0"), interface(TUNNEL, "weft0")],
        addresses: vec![
            address(LAN, "192.168.1.7", 24),
            address(LAN, "2001:db8:1::7", 64),
            address(LAN, "fe80::7", 64),
            address(TUNNEL, "10.44.0.7", 32),
        ],
        routes: vec![Route {
            interface: Some(LAN),
            ..Route::via([0; 4].into(), 0, [192, 168, 1, 1].into())
        }],
        ..Surroundings::default()
    };
    System {
        interface: TUNNEL,
        surroundings,
        uplinks: Vec::new(),
        place: Err("there is no gateway"),
        listen: vec!["0.0.0.0:2121".parse().unwrap()],
        resolvers: Some(BTreeSet::from(["192.0.2.53".parse().unwrap()])),
        rules: [true; 2],
    }
}

/// A member with these subnets, each by hand or not, at an address.
fn members(subnets: &[(&str, bool)], at: &str) -> Members {
    let list = |by_hand: bool| {
        let of = subnets.iter().filter(|(_, by)| !by_hand || *by);
        of.map(|(text, _)| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
    };
    let key = Identity::new(SecretKey::from_bytes(&[2; 32]).unwrap()).public();
    let text = format!(
        "[[peer]]\nnpub = \"{key}\"\naddresses = [\"{at}\"]\nroutes = [{}]\n",
        list(false)
    );
    let config = Config::parse(&text, Path::new("weft.toml")).unwrap();
    let mut members = Members::configured(&config, &Hosts::default());
    members.forget_by_hand(
        &subnets
            .iter()
            .filter(|(_, by)| !by)
            .map(|(text, _)| subnet(text))
            .collect(),
    );
    members
}

/// The routes of a node without guests.
fn derive(members: &Members, system: &System) -> Routes {
    Routes::of(members, &BTreeMap::new(), system)
}

fn routes(subnets: &[&str], system: &System) -> Routes {
    let of_network: Vec<_> = subnets.iter().map(|text| (*text, false)).collect();
    derive(&members(&of_network, "203.0.113.9:2121"), system)
}

#[test]
fn a_peer_inside_a_subnet_withholds_no_route() {
    let all = members(&[("192.168.9.0/24", false)], "192.168.9.1:2121");
    let of = derive(&all, &system());
    assert!(of.withheld.is_empty() && of.wanted.subnets.contains_key(&subnet("192.168.9.0/24")));
    assert_eq!(of.wanted.ports, BTreeSet::from([2121]), "for a strict check of sources");
    assert_eq!(routes(&["192.168.9.0/24"], &system()).wanted.ports, BTreeSet::new());
}

#[test]
fn networks_of_own_links_win_over_routes_of_members() {
    let link = |network: &str| Some(Obstacle::Link(subnet(network), "eth0".to_owned()));
    for (text, expected) in [
        ("192.168.1.0/24", link("192.168.1.0/24")),
        ("192.168.1.2/32", link("192.168.1.0/24")),
        ("192.168.1.128/25", link("192.168.1.0/24")),
        ("2001:db8:1::2/128", link("2001:db8:1::/64")),
        ("192.168.0.0/16", None),
        ("192.168.2.0/24", None),
        ("2001:db8::/32", None),
    ] {
        let of = routes(&[text], &system());
        assert_eq!(of.withheld.get(&subnet(text)), expected.as_ref(), "{text}");
        assert_eq!(of.wanted.subnets.contains_key(&subnet(text)), expected.is_none());
    }
    // A user of this host has written it.
    let by_hand = derive(&members(&[("192.168.1.2/32", true)], "203.0.113.9:2121"), &system());
    assert!(by_hand.withheld.is_empty());
    let same = derive(&members(&[("192.168.1.0/24", true)], "203.0.113.9:2121"), &system());
    assert_eq!(
        same.withheld.get(&subnet("192.168.1.0/24")),
        link("192.168.1.0/24").as_ref()
    );
}

#[test]
fn a_part_of_a_subnet_that_the_host_reaches_stays_its_own() {
    let mut system = system();
    let by_router = |to: &str, metric| Route {
        metric,
        ..Route::via(subnet(to).address(), subnet(to).prefix_len(), [192, 168, 1, 1].into())
    };
    let routes_of_host = [by_router("192.168.5.0/24", None), by_router("172.16.0.0/12", Some(600))];
    system.surroundings.routes.extend(routes_of_host);
    let of = routes(&["192.168.0.0/16", "192.168.5.7/32", "172.16.0.0/12"], &system);
    let past: Vec<String> = of.wanted.past.iter().map(ToString::to_string).collect();
    assert_eq!(past, ["192.168.1.0/24", "192.168.5.0/24"]);
    assert!(
        of.withheld.is_empty(),
        "a longer one is used, and one before a route for other times"
    );
    // The same subnet.
    let of = routes(&["192.168.5.0/24"], &system);
    assert_eq!(of.withheld.get(&subnet("192.168.5.0/24")), Some(&Obstacle::Taken));
}

#[test]
fn without_rules_a_peer_inside_a_subnet_withholds_it() {
    let mut system = system();
    system.rules = [false, true];
    let peer = "192.168.9.1:2121";
    let all = [
        ("192.168.9.0/24", false),
        ("192.168.0.0/16", false),
        ("2001:db8:9::/64", false),
    ];
    let of = derive(&members(&all, peer), &system);
    let inside = Obstacle::PeerInside(peer.parse().unwrap());
    let withheld: Vec<_> = of.withheld.into_iter().collect();
    let both = ["192.168.0.0/16", "192.168.9.0/24"];
    assert_eq!(withheld, both.map(|text| (subnet(text), inside.clone())));
    assert_eq!(of.wanted.in_main, [true, false]);
    assert!(of.wanted.past.is_empty() && of.wanted.subnets.len() == 1);
    // The host has a route to the peer that is longer.
    let to_peer = Route::via([192, 168, 9, 1].into(), 32, [192, 168, 1, 1].into());
    system.surroundings.routes.push(to_peer);
    assert!(derive(&members(&all, peer), &system).withheld.is_empty());
}

#[test]
fn addresses_of_the_host_and_its_servers_are_of_no_member() {
    let mut system = system();
    system.surroundings.addresses.push(InterfaceAddress {
        index: LAN,
        address: "10.44.0.8".parse().unwrap(),
        prefix_len: 16,
    });
    let mut config = Config::default();
    for accepts in [false, true] {
        config.networks.accept_routes = accepts;
        let host = host_use(&config, &system);
        let why = |text: &str| host.unused(text.parse().unwrap()).map(|unused| unused.to_string());
        for (address, expected) in [
            ("192.168.1.1", "a router of this host has it"),
            ("192.168.1.7", "another interface of this host has it"),
            ("10.44.0.8", "another interface of this host has it"),
            ("192.0.2.53", "a name server of this host has it"),
            ("192.168.1.9", "it is in 192.168.1.0/24, which this host is in by eth0"),
        ] {
            let why = why(address);
            assert!(
                why.as_ref().is_some_and(|why| why.starts_with(expected)),
                "{address}: {why:?}"
            );
        }
        // That of a LAN with the range of networks, and its own.
        assert_eq!((why("10.44.0.9"), why("10.44.0.7")), (None, None));
        assert_eq!(why("10.9.0.9").is_none(), accepts);
    }
    system.resolvers = None;
    let host = host_use(&config, &system);
    assert_eq!(
        host.unused("10.9.0.9".parse().unwrap()),
        Some(weft_networks::Unused::NotKnown)
    );
    assert_eq!(host.unused("10.44.0.9".parse().unwrap()), None);
}
