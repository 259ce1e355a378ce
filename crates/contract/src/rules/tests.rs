//! Whose rules are asked about packets of guests, and where packets of guests and to them may go.

use super::*;

/// This node, which has 10.44.0.1 in its networks, and others that have 10.44.0.2 and so on.
const ME: u8 = 1;
/// The host of guest 8.
const HOST: u8 = 2;
/// A guest behind [`HOST`], with 10.44.0.8.
const GUEST: u8 = 8;
/// A guest behind this node, with 10.44.0.9.
const HERE: u8 = 9;

fn node(byte: u8) -> NodeAddr {
    NodeAddr::new([byte; 16])
}

fn ipv4(byte: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 44, 0, byte)
}

fn at(byte: u8) -> IpAddr {
    ipv4(byte).into()
}

/// Rules of the network 0 for a peer with this address: these, or `inside`.
fn network(theirs: u8, rules: &[Rule], inside: bool) -> NetworkRules {
    NetworkRules {
        origin: 0,
        ipv4: Some(Addresses {
            ours: ipv4(ME),
            theirs: ipv4(theirs),
        }),
        ours: Arc::default(),
        theirs: Arc::default(),
        rules: RuleSet {
            list: rules.into(),
            chosen: (0..).zip(rules).map(|(at, _)| at).collect(),
        },
        inside,
        exit: false,
    }
}

/// The rules for a peer, of whose networks `guest` has one behind this node.
fn peer(networks: Vec<NetworkRules>) -> PeerRules {
    PeerRules {
        networks,
        guests_here: Arc::new([(ipv4(HERE), 0)].into()),
        ..PeerRules::default()
    }
}

fn guest(networks: Vec<NetworkRules>) -> PeerRules {
    PeerRules {
        is_guest: true,
        ..peer(networks)
    }
}

/// The policy of this node: nothing passes from [`HOST`], and all from the guests.
fn policy() -> Policy {
    let host = PeerRules {
        guests: Arc::new([(ipv4(GUEST), node(GUEST))].into()),
        ..peer(vec![network(HOST, &[], false)])
    };
    let peers = [
        (node(HOST), host),
        (node(GUEST), guest(vec![network(GUEST, &[], true)])),
        (node(HERE), guest(vec![network(HERE, &[], true)])),
    ];
    Policy::new(node(ME), 1, peers.into())
}

fn facts(source: IpAddr, dest: IpAddr) -> Facts {
    Facts {
        source,
        dest,
        protocol: 6,
        port: Some(22),
    }
}

#[test]
fn packets_of_a_guest_are_judged_by_its_own_rules() {
    let policy = policy();
    let passes = |source, dest| policy.allows(node(HOST), &facts(source, dest));
    assert!(passes(at(GUEST), at(ME)), "in the session with its host");
    assert!(!passes(at(HOST), at(ME)), "those of the host");
    assert!(!passes(at(HERE), at(ME)), "of a guest that is behind another node");
    let there = |dest| policy.allows(node(HERE), &facts(at(HERE), dest));
    assert!(there(at(ME)) && !there(at(HOST)), "in its own session");
}

#[test]
fn a_guest_without_rules_of_its_own_passes_nothing() {
    let all = network(HOST, &[], true);
    let host = PeerRules {
        guests: Arc::new([(ipv4(GUEST), node(GUEST))].into()),
        by_hand: Some(Arc::default()),
        ..peer(vec![all])
    };
    let policy = Policy::new(node(ME), 1, [(node(HOST), host)].into());
    let passes = |source| policy.allows(node(HOST), &facts(source, at(ME)));
    assert!(passes(at(HOST)) && !passes(at(GUEST)));
    assert!(!policy.may_leave(node(HOST), (at(ME), at(GUEST))));
    assert!(!policy.concerns(node(HOST), (at(GUEST), at(ME))));
}

#[test]
fn a_guest_has_no_address_of_ipv6() {
    let policy = policy();
    let of = |byte| IpAddr::V6(node(byte).to_ipv6());
    let asked = |peer| {
        let passes = policy.allows(node(peer), &facts(of(peer), of(ME)));
        let concerns = policy.concerns(node(peer), (of(peer), of(ME)));
        (passes, concerns)
    };
    assert_eq!(asked(HERE), (false, false));
    assert_eq!(asked(HOST), (false, true), "its rules let nothing pass");
}

#[test]
fn packets_leave_to_guests_and_from_guests_in_their_network() {
    let other = NetworkRules {
        origin: 1,
        ..network(4, &[], true)
    };
    let mut peers = policy().peers;
    peers.insert(node(3), peer(vec![network(3, &[], true)]));
    peers.insert(node(4), peer(vec![other]));
    let policy = Policy::new(node(ME), 1, peers);
    let leaves = |peer, source, dest| policy.may_leave(node(peer), (at(source), at(dest)));
    assert!(leaves(HERE, ME, HERE) && leaves(HOST, ME, GUEST), "those of this node");
    assert!(leaves(3, HERE, 3) && leaves(HOST, HERE, GUEST), "those of a guest here");
    assert!(!leaves(4, HERE, 4), "into another network");
    assert!(leaves(4, ME, 4));
    assert!(!leaves(3, GUEST, 3), "those of a guest of another host");
}

#[test]
fn rules_about_subnets_are_about_no_guest() {
    let subnet = |allow| Rule {
        origin: 0,
        allow,
        to: Scope::Subnet("10.44.0.0/16".parse().unwrap()),
        protocol: Protocol::Any,
        ports: PortRanges::default(),
    };
    let to = |to, allow| Rule { to, ..subnet(allow) };
    let guests = |all: &[u8]| Scope::Guests(all.iter().map(|byte| ipv4(*byte)).collect());
    for (rules, inside, passes) in [
        (vec![subnet(false)], true, true),
        (vec![subnet(true)], false, false),
        (vec![to(Scope::Node, true)], false, false),
        (vec![to(Scope::Exit, true)], false, false),
        (vec![to(Scope::Any, true)], false, true),
        (vec![to(guests(&[7, HERE]), true)], false, true),
        (vec![to(guests(&[7]), true)], false, false),
        (vec![to(guests(&[HERE]), false), to(Scope::Any, true)], true, false),
        (vec![to(Scope::Any, true), to(guests(&[HERE]), false)], true, true),
    ] {
        let behind = ["10.44.0.0/16".parse().unwrap()];
        let network = NetworkRules {
            ours: behind.into(),
            ..network(3, &rules, inside)
        };
        let policy = Policy::new(node(ME), 1, [(node(3), peer(vec![network]))].into());
        assert_eq!(policy.allows(node(3), &facts(at(3), at(HERE))), passes, "{rules:?}");
    }
}

#[test]
fn a_guest_is_reached_in_its_network_alone() {
    let subnets: [Subnet; 1] = ["10.44.0.0/16".parse().unwrap()];
    let other = NetworkRules {
        origin: 1,
        ours: subnets.into(),
        ..network(3, &[], true)
    };
    let passes = |networks: Vec<NetworkRules>, by_hand: bool, dest| {
        let rules = PeerRules {
            by_hand: by_hand.then(|| subnets.into()),
            ..peer(networks)
        };
        let policy = Policy::new(node(ME), 1, [(node(3), rules)].into());
        policy.allows(node(3), &facts(at(3), dest))
    };
    assert!(passes(vec![other.clone()], true, at(77)), "a subnet of both");
    assert!(!passes(vec![other.clone()], true, at(HERE)));
    assert!(!passes(Vec::new(), true, at(HERE)), "a peer of the configuration");
    assert!(!passes(vec![other.clone(), network(3, &[], false)], false, at(HERE)));
    assert!(passes(vec![other, network(3, &[], true)], false, at(HERE)));
}
