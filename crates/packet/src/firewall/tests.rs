//! Flows through one firewall: the end that began each, rules that change, and the bounds.

mod denied;
mod errors;
mod fragments;
mod known;
mod lanes;
mod memory;
mod model;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use weft_contract::rules::{
    Addresses, Facts, NetworkRules, PeerRules, Policy, Protocol, Reason, Rule, RuleList, RuleSet, Scope,
};
use weft_contract::{FirstFlows, KnownFlow, KnownFlows};
use weft_wire::NodeAddr;

use super::flow_key::{Direction, FlowKey};
use super::recent::RecentFlows;
use super::*;
use crate::counters::DropReason;
use crate::inner::Inner;
use crate::tables::Routes;

const ME: NodeAddr = NodeAddr::new([1; 16]);
const PEER: NodeAddr = NodeAddr::new([2; 16]);
const OTHER: NodeAddr = NodeAddr::new([3; 16]);
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const ACK: u8 = 16;
const RST: u8 = 4;

/// An IPv6 packet with a transport header.
fn packet(from: NodeAddr, to: NodeAddr, protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    let mut packet = vec![0; 60];
    packet[0] = 0x60;
    packet[5] = 20;
    packet[6] = protocol;
    packet[7] = 64;
    packet[8..24].copy_from_slice(&from.to_ipv6().octets());
    packet[24..40].copy_from_slice(&to.to_ipv6().octets());
    packet[40..42].copy_from_slice(&ports.0.to_be_bytes());
    packet[42..44].copy_from_slice(&ports.1.to_be_bytes());
    packet[52] = 0x50;
    packet[53] = flags;
    packet
}

fn to_me(protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    packet(PEER, ME, protocol, ports, flags)
}

fn from_me(protocol: u8, ports: (u16, u16), flags: u8) -> Vec<u8> {
    packet(ME, PEER, protocol, ports, flags)
}

/// Rules that allow TCP to these ports of this node; all else is denied.
fn rules(ports: &[u16]) -> BTreeMap<NodeAddr, PeerRules> {
    serving(TCP, ports)
}

/// The same for another protocol with ports.
fn serving(protocol: u8, ports: &[u16]) -> BTreeMap<NodeAddr, PeerRules> {
    let list: RuleList = ports
        .iter()
        .map(|port| Rule {
            origin: 0,
            allow: true,
            to: Scope::Node,
            protocol: Protocol::Number(protocol),
            ports: Box::new([(*port, *port)]),
        })
        .collect();
    let network = NetworkRules {
        origin: 0,
        ipv4: None,
        ours: Arc::default(),
        theirs: Arc::default(),
        rules: RuleSet {
            chosen: (0..list.len() as u16).collect(),
            list,
        },
        inside: false,
        exit: false,
    };
    let peer = PeerRules {
        networks: vec![network],
        ..PeerRules::default()
    };
    [PEER, OTHER].map(|node| (node, peer.clone())).into()
}

struct Node {
    policy: Arc<Policy>,
    lanes: [Firewall; 2],
    routes: Routes,
}

impl Node {
    fn new(ports: &[u16]) -> Self {
        Self::with(rules(ports))
    }

    fn with(rules: BTreeMap<NodeAddr, PeerRules>) -> Self {
        Self::of(rules, None)
    }

    fn of(rules: BTreeMap<NodeAddr, PeerRules>, known: Option<KnownFlows>) -> Self {
        let common = Arc::new(CommonFlows::default());
        let mut node = Self {
            policy: Arc::new(Policy::new(ME, 1, rules)),
            lanes: [0; 2].map(|_| Firewall::new(common.clone())),
            routes: Routes::new(ME),
        };
        let (hash_key, known) = (7, known.unwrap_or_default());
        node.set(Some(&FirstFlows { hash_key, known }));
        node
    }

    fn flows(&self) -> &FlowTable {
        self.lanes[0].flows().unwrap()
    }

    fn set(&mut self, first: Option<&FirstFlows>) {
        for lane in &mut self.lanes {
            lane.set(0, Some(self.policy.clone()), first);
        }
    }

    fn change(&mut self, ports: &[u16]) {
        self.change_to(rules(ports));
    }

    fn change_to(&mut self, rules: BTreeMap<NodeAddr, PeerRules>) {
        let generation = self.policy.generation() + 1;
        self.policy = Arc::new(Policy::new(ME, generation, rules));
        self.set(None);
    }

    fn receive(&mut self, now: u64, packet: &[u8]) -> Result<(), DropReason> {
        self.receive_from(PEER, now, packet)
    }

    fn receive_from(&mut self, peer: NodeAddr, now: u64, packet: &[u8]) -> Result<(), DropReason> {
        passed(self.lanes[0].inbound(now, &self.routes, peer, packet))
    }

    /// Sends by the other lane.
    fn send(&mut self, now: u64, packet: &[u8]) {
        assert_eq!(self.lanes[1].outbound(now, packet), Ok(()));
    }
}

/// Whether a packet passes at once: a fragment that waits does not.
fn passed(verdict: Result<Verdict, DropReason>) -> Result<(), DropReason> {
    match verdict? {
        Verdict::Pass => Ok(()),
        Verdict::Held => Err(DropReason::Denied),
    }
}

#[test]
fn a_peer_reaches_what_the_rules_allow_and_nothing_else() {
    let mut node = Node::new(&[22]);
    assert_eq!(node.receive(0, &to_me(TCP, (5000, 22), SYN)), Ok(()));
    assert_eq!(node.receive(0, &to_me(TCP, (5000, 23), SYN)), Err(DropReason::Denied));
    assert_eq!(node.receive(0, &to_me(UDP, (5000, 22), 0)), Err(DropReason::Denied));
    let stranger = packet(NodeAddr::new([9; 16]), ME, TCP, (5000, 22), SYN);
    let denied = node.receive_from(NodeAddr::new([9; 16]), 0, &stranger);
    assert_eq!(denied, Err(DropReason::Denied));
}

/// A packet of IPv4 with a transport header.
fn packet4(from: [u8; 4], to: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[..4].copy_from_slice(&[0x45, 0, 0, 40]);
    packet[8..10].copy_from_slice(&[64, TCP]);
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
    packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
    packet[32..34].copy_from_slice(&[0x50, SYN]);
    packet
}

#[test]
fn an_exit_serves_members_under_their_own_addresses() {
    const INTERNET: [u8; 4] = [198, 51, 100, 7];
    const LAN: [u8; 4] = [192, 168, 7, 9];
    let exit = |exit: bool, of_network: &[Rule], otherwise: bool| {
        let all = |rules: &[Rule]| RuleSet {
            list: rules.into(),
            chosen: (0..rules.len() as u16).collect(),
        };
        let rules = PeerRules {
            networks: vec![NetworkRules {
                origin: 0,
                ipv4: Some(Addresses {
                    ours: [10, 44, 0, 1].into(),
                    theirs: [10, 44, 0, 2].into(),
                }),
                ours: Arc::default(),
                theirs: ["10.9.0.0/16".parse().unwrap()].into(),
                rules: all(of_network),
                inside: true,
                exit,
            }],
            by_hand: otherwise.then(|| ["192.168.7.0/24".parse().unwrap()].into()),
            ours: Some(["10.44.0.1/32".parse().unwrap(), "192.168.7.0/24".parse().unwrap()].into()),
            ..PeerRules::default()
        };
        Arc::new(Policy::new(ME, 1, [(PEER, rules)].into()))
    };
    let passes = |policy: &Arc<Policy>, from: [u8; 4], to: [u8; 4], port: u16| {
        let mut lane = Firewall::new(Arc::default());
        lane.set(0, Some(policy.clone()), None);
        passed(lane.inbound(0, &Routes::new(ME), PEER, &packet4(from, to, (5000, port)))).is_ok()
    };
    let (member, behind) = ([10, 44, 0, 2], [10, 9, 0, 1]);
    let open = exit(true, &[], false);
    assert!(passes(&open, member, INTERNET, 443));
    assert!(!passes(&open, behind, INTERNET, 443), "a source behind the member");
    assert!(
        !passes(&exit(false, &[], false), member, INTERNET, 443),
        "no exit of the network"
    );
    let by_hand = exit(false, &[], true);
    assert!(!passes(&by_hand, member, INTERNET, 443), "a peer added by hand");
    assert!(passes(&by_hand, member, LAN, 443), "a configured subnet");
    let rule = |to| Rule {
        origin: 0,
        allow: false,
        to,
        protocol: Protocol::Number(TCP),
        ports: Box::new([(25, 25)]),
    };
    for (to, exits, ours) in [
        (Scope::Exit, false, true),
        (Scope::Any, false, false),
        (Scope::Node, true, false),
    ] {
        let policy = exit(true, &[rule(to.clone())], false);
        assert_eq!(passes(&policy, member, INTERNET, 25), exits, "{to:?}");
        assert_eq!(passes(&policy, member, [10, 44, 0, 1], 25), ours, "{to:?}");
        assert!(passes(&policy, member, INTERNET, 443), "{to:?}");
    }
    let subnet = exit(true, &[rule(Scope::Subnet("0.0.0.0/0".parse().unwrap()))], false);
    assert!(
        passes(&subnet, member, INTERNET, 25),
        "a rule about a route is about none behind an exit"
    );
}

/// The network of the tests of exits, whose default is to pass: `of_network` are its rules.
fn exit_network(of_network: &[Rule], inside: bool, exit: bool) -> NetworkRules {
    NetworkRules {
        origin: 0,
        ipv4: Some(Addresses {
            ours: [10, 44, 0, 1].into(),
            theirs: [10, 44, 0, 2].into(),
        }),
        ours: Arc::default(),
        theirs: Arc::default(),
        rules: RuleSet {
            list: of_network.into(),
            chosen: (0..of_network.len() as u16).collect(),
        },
        inside,
        exit,
    }
}

fn about(allow: bool, to: Scope) -> Rule {
    Rule {
        origin: 0,
        allow,
        to,
        protocol: Protocol::Any,
        ports: Box::default(),
    }
}

/// What an exit decides about a packet of its member to port 443: the host has these addresses.
fn at_exit(networks: Vec<NetworkRules>, ours: &[&str], host: &[&str], dest: &str) -> bool {
    at_port_of_exit(networks, (ours, host), dest, 443)
}

fn at_port_of_exit(networks: Vec<NetworkRules>, (ours, host): (&[&str], &[&str]), dest: &str, port: u16) -> bool {
    let mut host: Vec<IpAddr> = host.iter().map(|ip| ip.parse().unwrap()).collect();
    host.sort_unstable();
    let rules = PeerRules {
        networks,
        ours: Some(ours.iter().map(|subnet| subnet.parse().unwrap()).collect()),
        host: host.into(),
        ..PeerRules::default()
    };
    let mut lane = Firewall::new(Arc::default());
    lane.set(0, Some(Arc::new(Policy::new(ME, 1, [(PEER, rules)].into()))), None);
    let dest: IpAddr = dest.parse().unwrap();
    let packet = match dest {
        IpAddr::V4(dest) => packet4([10, 44, 0, 2], dest.octets(), (5000, port)),
        IpAddr::V6(dest) => {
            let mut packet = to_me(TCP, (5000, port), SYN);
            packet[24..40].copy_from_slice(&dest.octets());
            packet
        }
    };
    passed(lane.inbound(0, &Routes::new(ME), PEER, &packet)).is_ok()
}

const OWN: [&str; 1] = ["10.44.0.1/32"];
const HOST: [&str; 6] = [
    "127.0.0.1",
    "192.168.9.1",
    "172.17.0.1",
    "203.0.113.10",
    "2001:db8:3::10",
    "fe80::1",
];

#[test]
fn every_address_of_an_exits_host_is_the_node() {
    let (deny, allow) = (about(false, Scope::Node), about(true, Scope::Exit));
    let to_exit_alone = [deny, allow];
    let rules: [(&[Rule], bool); 2] = [(&to_exit_alone, true), (&to_exit_alone[1..], false)];
    for (rules, inside) in rules {
        let passes = |dest: &str| at_exit(vec![exit_network(rules, inside, true)], &OWN, &HOST, dest);
        assert!(passes("203.0.113.11") && passes("2001:db8:3::11"), "the Internet");
        for dest in HOST.iter().chain(&["10.44.0.1", "127.0.0.53"]) {
            assert!(!passes(dest), "{dest}");
        }
    }
    // Rules that allow the node lead to its addresses of the Internet, and to no local network.
    let node = [about(true, Scope::Node)];
    let passes = |dest: &str| at_exit(vec![exit_network(&node, false, true)], &OWN, &HOST, dest);
    assert!(passes("203.0.113.10") && passes("2001:db8:3::10") && passes("10.44.0.1"));
    assert!(!passes("192.168.9.1") && !passes("172.17.0.1") && !passes("203.0.113.11"));
    // No network that is served: nothing leads there.
    let other = |dest: &str| at_exit(vec![exit_network(&[], true, false)], &OWN, &HOST, dest);
    assert!(!other("203.0.113.10") && other("10.44.0.1"));
}

#[test]
fn an_exit_is_of_the_internet_alone() {
    let passes = |dest: &str| at_exit(vec![exit_network(&[], true, true)], &OWN, &[], dest);
    assert!(passes("198.51.100.7") && passes("2001:db8::7"));
    for dest in [
        "0.0.0.0",
        "127.0.0.1",
        "10.9.9.9",
        "100.64.0.1",
        "169.254.169.254",
        "172.17.0.2",
        "192.168.9.255",
        "224.0.0.251",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "ff0e::1",
    ] {
        assert!(!passes(dest), "{dest}");
    }
}

#[test]
fn users_of_an_exit_may_ask_it_for_names() {
    let me = ME.to_ipv6().to_string();
    let asks = |rules: &[Rule], inside: bool, exit: bool| {
        [(&me, 7353), (&OWN[0][..9].to_owned(), 7353)]
            .map(|(dest, port)| at_port_of_exit(vec![exit_network(rules, inside, exit)], (&OWN, &HOST), dest, port))
    };
    let ports = |allow, to, ports: &[u16]| Rule {
        origin: 0,
        ports: ports.iter().map(|port| (*port, *port)).collect(),
        protocol: Protocol::Number(TCP),
        ..about(allow, to)
    };
    assert_eq!(asks(&[about(true, Scope::Exit)], false, true), [true; 2]);
    assert_eq!(asks(&[ports(true, Scope::Exit, &[53])], false, true), [true; 2]);
    assert_eq!(asks(&[ports(true, Scope::Exit, &[7353, 443])], false, true), [false; 2]);
    assert_eq!(
        asks(&[about(true, Scope::Node)], false, true),
        [false; 2],
        "the node alone"
    );
    assert_eq!(asks(&[about(false, Scope::Exit)], true, true), [false; 2]);
    assert_eq!(asks(&[ports(false, Scope::Exit, &[53])], true, true), [false; 2]);
    assert_eq!(asks(&[about(false, Scope::Node)], true, true), [true; 2]);
    assert_eq!(asks(&[], true, false), [false; 2], "a member of another network");
    // The same port elsewhere, and other ports of the node, are none of it.
    let exit = vec![exit_network(&[about(true, Scope::Exit)], false, true)];
    assert!(!at_port_of_exit(exit.clone(), (&OWN, &HOST), "203.0.113.10", 7353));
    assert!(!at_port_of_exit(exit, (&OWN, &HOST), &me, 53));
}

#[test]
fn an_own_address_in_a_route_is_both_node_and_route() {
    const LAN: &str = "192.168.9.0/24";
    let route = Scope::Subnet(LAN.parse().unwrap());
    let passes = |rules: &[Rule], inside: bool, dest: &str| {
        let network = NetworkRules {
            origin: 0,
            ours: [LAN.parse().unwrap()].into(),
            ..exit_network(rules, inside, false)
        };
        let served = at_exit(vec![network.clone()], &[OWN[0], LAN], &HOST, dest);
        let rules = PeerRules {
            networks: vec![network],
            host: [dest.parse().unwrap()].into(),
            ..PeerRules::default()
        };
        let mut lane = Firewall::new(Arc::default());
        lane.set(0, Some(Arc::new(Policy::new(ME, 1, [(PEER, rules)].into()))), None);
        let packet = packet4([10, 44, 0, 2], [192, 168, 9, 1], (5000, 443));
        if dest == "192.168.9.1" {
            assert_eq!(
                passed(lane.inbound(0, &Routes::new(ME), PEER, &packet)).is_ok(),
                served,
                "without an exit it is the same"
            );
        }
        served
    };
    let (node, printer) = ("192.168.9.1", "192.168.9.2");
    let deny_node = [about(false, Scope::Node)];
    assert!(!passes(&deny_node, true, node) && passes(&deny_node, true, printer));
    let deny_route = [about(false, route.clone())];
    assert!(!passes(&deny_route, true, node) && !passes(&deny_route, true, printer));
    let allow_route = [about(true, route)];
    assert!(passes(&allow_route, false, node) && passes(&allow_route, false, printer));
    let allow_node = [about(true, Scope::Node)];
    assert!(passes(&allow_node, false, node) && !passes(&allow_node, false, printer));
}

#[test]
fn an_exit_begins_flows_from_addresses_of_its_own() {
    const INTERNET: &str = "2001:db8::7";
    let packet = |(from, to): (&str, &str), flags| {
        let ends = [from, to].map(|text| text.parse().unwrap());
        match ends {
            [IpAddr::V6(from), IpAddr::V6(to)] => {
                let mut packet = to_me(TCP, (443, 443), flags);
                packet[8..24].copy_from_slice(&from.octets());
                packet[24..40].copy_from_slice(&to.octets());
                packet
            }
            [IpAddr::V4(from), IpAddr::V4(to)] => packet4(from.octets(), to.octets(), (443, 443)),
            _ => panic!("{ends:?}"),
        }
    };
    let [me, peer, other] = [ME, PEER, OTHER].map(|node| node.to_ipv6().to_string());
    for by_hand in [false, true] {
        let mut exit = rules(&[]);
        let rules = exit.get_mut(&PEER).unwrap();
        rules.by_exit = true;
        rules.by_hand = by_hand.then(|| ["10.8.0.0/16".parse().unwrap()].into());
        rules.networks[0].inside = true;
        rules.networks[0].theirs = ["10.9.0.0/16".parse().unwrap()].into();
        rules.networks[0].ours = ["10.8.0.0/16".parse().unwrap()].into();
        let mut node = Node::with(exit);
        let subnets = ["0.0.0.0/0", "::/0", "fdab:1::/64", "10.9.0.0/16"];
        node.routes
            .set_subnets(&[], &subnets.map(|subnet| (subnet.parse().unwrap(), PEER)));
        for (source, passes) in [
            (&peer[..], true),
            ("fdab:1::5", true),
            ("10.9.0.1", true),
            ("198.51.100.7", false),
            ("2001:db8::1", false),
            (&other, false),
            (&me, false),
        ] {
            let dest = if source.contains(':') { &me } else { "10.8.0.1" };
            let passed = node.receive(0, &packet((source, dest), SYN)).is_ok();
            assert_eq!(passed, passes, "{source} {by_hand}");
        }
        // What this host has begun goes on.
        node.send(0, &packet((&me, INTERNET), SYN));
        assert_eq!(node.receive(0, &packet((INTERNET, &me), ACK)), Ok(()));
    }
}

#[test]
fn answers_arrive_by_another_lane_than_the_questions_left() {
    let mut node = Node::new(&[]);
    for (protocol, idle) in [(UDP, 300_000), (TCP, 7_440_000)] {
        let answer = to_me(protocol, (53, 4000), ACK);
        assert_eq!(node.receive(0, &answer), Err(DropReason::Denied));
        node.send(0, &from_me(protocol, (4000, 53), ACK));
        assert_eq!(node.receive(1, &answer), Ok(()));
        // Another port is another flow.
        assert_eq!(
            node.receive(1, &to_me(protocol, (54, 4000), ACK)),
            Err(DropReason::Denied)
        );
        assert_eq!(node.receive(1 + idle, &answer), Ok(()));
        assert_eq!(
            node.receive(2 * idle + 3_000, &answer),
            Err(DropReason::Denied),
            "silent for too long"
        );
    }
}

#[test]
fn a_connection_that_was_reset_is_forgotten_early() {
    let mut node = Node::new(&[]);
    let answer = to_me(TCP, (80, 4000), ACK);
    node.send(0, &from_me(TCP, (4000, 80), SYN));
    assert_eq!(node.receive(0, &answer), Ok(()));
    node.send(10, &from_me(TCP, (4000, 80), RST));
    assert_eq!(node.receive(1_000_000, &answer), Err(DropReason::Denied));
}

#[test]
fn a_change_ends_what_it_denies_and_nothing_else() {
    let mut node = Node::new(&[22, 80]);
    let (ssh, web) = (to_me(TCP, (5000, 22), ACK), to_me(TCP, (5000, 80), ACK));
    let own = to_me(TCP, (443, 6000), ACK);
    node.send(0, &from_me(TCP, (6000, 443), SYN));
    for packet in [&ssh, &web, &own] {
        assert_eq!(node.receive(0, packet), Ok(()));
    }
    node.change(&[80]);
    assert_eq!(node.receive(1, &ssh), Err(DropReason::Denied));
    // The host goes on to answer, which does not open the flow again.
    node.send(2, &from_me(TCP, (22, 5000), ACK));
    assert_eq!(node.receive(3, &ssh), Err(DropReason::Denied));
    assert_eq!(node.receive(3, &web), Ok(()));
    assert_eq!(node.receive(3, &own), Ok(()));
    node.change(&[22]);
    assert_eq!(node.receive(4, &ssh), Ok(()));
    assert_eq!(node.receive(4, &web), Err(DropReason::Denied));
    // What this host began is not subject to its own rules.
    assert_eq!(node.receive(4, &own), Ok(()));
}

/// An ICMPv6 message between the node and the peer.
fn icmp(from: NodeAddr, to: NodeAddr, kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut message = packet(from, to, 58, (0, 0), 0);
    message.truncate(40);
    message.extend([kind, 0, 0, 0]);
    message.extend(rest);
    message[5] = (message.len() - 40) as u8;
    message
}

#[test]
fn echoes_pass_in_the_direction_in_which_this_host_asks() {
    let mut node = Node::new(&[]);
    let ident = [0x12, 0x34, 0, 1];
    node.send(0, &icmp(ME, PEER, 128, &ident));
    assert_eq!(node.receive(0, &icmp(PEER, ME, 129, &ident)), Ok(()));
    assert_eq!(node.receive(0, &icmp(PEER, ME, 128, &ident)), Err(DropReason::Denied));
    assert_eq!(
        node.receive(0, &icmp(PEER, ME, 129, &[0, 9, 0, 1])),
        Err(DropReason::Denied)
    );
}

/// A fragment of a TCP packet at an offset, in units of 8 bytes.
fn fragment(ident: u32, offset: u16, more: bool, port: u16) -> Vec<u8> {
    let whole = to_me(TCP, (5000, port), SYN);
    let mut packet = whole[..40].to_vec();
    packet[6] = 44;
    packet.extend([TCP, 0]);
    packet.extend((offset << 3 | u16::from(more)).to_be_bytes());
    packet.extend(ident.to_be_bytes());
    packet.extend(&whole[40..]);
    packet[5] = (packet.len() - 40) as u8;
    packet
}

#[test]
fn a_peer_that_fills_its_share_keeps_no_other_out() {
    let mut node = Node::new(&[22]);
    let mut full = 0;
    for n in 0..60_000_u32 {
        let mut syn = to_me(TCP, (n as u16, 22), SYN);
        // Many sources behind one peer.
        syn[20..24].copy_from_slice(&n.to_be_bytes());
        full += u32::from(node.receive(0, &syn) == Err(DropReason::FlowsFull));
    }
    let flows = node.flows().len();
    assert!(full > 0 && flows <= MAX_FLOWS / 4, "{full} {flows}");
    let of_other = packet(OTHER, ME, TCP, (5000, 22), SYN);
    assert_eq!(node.receive_from(OTHER, 0, &of_other), Ok(()));
    for port in 0..10_000 {
        node.send(0, &from_me(UDP, (port, 53), 0));
    }
    // Once they have ended, there is room again.
    let again = (0..1_000_u16).filter(|port| node.receive(400_000, &to_me(TCP, (*port, 22), SYN)).is_ok());
    assert_eq!(again.count(), 1_000);
}

#[test]
fn a_table_that_this_host_has_filled_refuses_its_new_flows() {
    let mut node = Node::new(&[]);
    let mut refused = 0;
    for n in 0..100_000_u32 {
        let mut packet = from_me(UDP, (n as u16, 53), 0);
        packet[36..40].copy_from_slice(&n.to_be_bytes());
        refused += u32::from(node.lanes[0].outbound(0, &packet) == Err(DropReason::FlowsFull));
    }
    assert!(node.flows().len() <= MAX_FLOWS);
    assert_eq!(refused as usize + node.flows().len(), 100_000);
}

proptest! {
    /// No bytes panic, and none pass that begin no allowed flow.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), first in prop::sample::select(vec![0x45_u8, 0x60])) {
        let mut bytes = bytes;
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let mut node = Node::new(&[]);
        prop_assert!(node.receive(0, &bytes).is_err());
        let _ = node.lanes[1].outbound(0, &bytes);
    }
}

#[test]
fn each_origin_that_has_a_say_is_told_in_order() {
    let of_network = |origin, rules: &[Rule], inside| NetworkRules {
        origin,
        ..exit_network(rules, inside, false)
    };
    let (deny, allow) = (about(false, Scope::Node), about(true, Scope::Node));
    let numbered = |origin, rule: &Rule| Rule { origin, ..rule.clone() };
    let networks = vec![
        of_network(4, &[numbered(7, &deny), allow.clone()], true),
        of_network(6, &[], true),
        of_network(8, &[allow], true),
    ];
    let mut rules = PeerRules {
        networks,
        ..PeerRules::default()
    };
    let facts = Facts {
        source: PEER.to_ipv6().into(),
        dest: ME.to_ipv6().into(),
        protocol: TCP,
        port: Some(22),
    };
    let told = |rules: &PeerRules, facts: &Facts| {
        let mut told = Vec::new();
        let passes = rules.decide((ME, PEER), facts, |reason| told.push(reason));
        (passes, told)
    };
    let of = |network, rule, allow| Reason::Network { network, rule, allow };
    let both = vec![of(4, Some(7), false), of(6, None, true)];
    assert_eq!(told(&rules, &facts), (true, both));
    rules.deny = RuleSet {
        list: [numbered(9, &deny)].into(),
        chosen: [0].into(),
    };
    let local = Reason::Local { rule: 9, allow: false };
    assert_eq!(told(&rules, &facts), (false, vec![local]));
    let elsewhere = Facts {
        dest: "192.168.7.9".parse().unwrap(),
        ..facts
    };
    assert_eq!(told(&rules, &elsewhere), (false, vec![Reason::Apart]));
    let by_hand = PeerRules {
        by_hand: Some(Arc::default()),
        ..PeerRules::default()
    };
    assert_eq!(told(&by_hand, &facts), (true, vec![Reason::ByHand]));
}
