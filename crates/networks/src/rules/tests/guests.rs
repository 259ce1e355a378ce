//! Rules about guests: node 1 has founded the networks, and guests are behind it or behind node 3.

use std::net::{IpAddr, Ipv4Addr};

use weft_contract::rules::{Facts, Policy as Lanes};
use weft_roster::guest::node_addr;
use weft_roster::record::Guest;
use weft_wire::NodeAddr;

use super::*;
use crate::MemberChange;

/// The WireGuard keys of two guests, which have 10.44.200.1 and 10.44.200.2.
const PHONE: [u8; 32] = [1; 32];
const PRINTER: [u8; 32] = [2; 32];

fn ipv4(key: [u8; 32]) -> Ipv4Addr {
    Ipv4Addr::new(10, 44, 200, key[0])
}

/// Adds a guest behind a node.
fn guest(networks: &mut Networks, network: &str, key: [u8; 32], host: u8, tags: &[&str]) {
    let guest = Guest {
        name: None,
        tags: tags.iter().map(|tag| Name::label(tag).unwrap()).collect(),
        ipv4: Some(ipv4(key)),
        host: Some(super::key(host)),
    };
    networks.take_guest(network, key, guest);
}

/// One network with nodes 1 to 3, in which these rules hold or `policy`.
fn home(rules: &[&str], policy: Policy) -> Networks {
    let mut networks = networks(&["home"]);
    take_in(&mut networks, "home", 2);
    take_in(&mut networks, "home", 3);
    set(&mut networks, "home", rules, policy);
    networks
}

fn set(networks: &mut Networks, network: &str, rules: &[&str], policy: Policy) {
    let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
    for change in [RuleChange::Default { policy }, RuleChange::Set { rules }] {
        networks.change_rules(Some(network), change, (0, UNIX)).unwrap();
    }
}

/// The rules of node 1.
struct Node {
    lanes: Lanes,
    /// The addresses of the nodes in the first network.
    ipv4: Vec<Ipv4Addr>,
}

impl Node {
    fn of(networks: &Networks, by_hand: &ByHand, rules: &[&str]) -> Self {
        let home = networks.in_order().next().unwrap();
        let ipv4 = (1..4).map(|byte| home.ipv4(&key(byte)).unwrap_or(Ipv4Addr::UNSPECIFIED));
        let peers = compile(&key(1), networks, by_hand, &local(rules), UNIX).peers.unwrap();
        Self {
            lanes: Lanes::new(key(1).node_addr(), 1, peers),
            ipv4: ipv4.collect(),
        }
    }

    fn plain(networks: &Networks) -> Self {
        Self::of(networks, &by_hand(&[]), &[])
    }

    fn ip(&self, node: u8) -> IpAddr {
        self.ipv4[usize::from(node) - 1].into()
    }

    /// Whether a packet of the session with `peer` begins a flow.
    fn passes(&self, peer: NodeAddr, (source, dest): (impl Into<IpAddr>, impl Into<IpAddr>), port: u16) -> bool {
        let facts = Facts {
            source: source.into(),
            dest: dest.into(),
            protocol: 6,
            port: Some(port),
        };
        self.lanes.allows(peer, &facts)
    }

    /// Whether flows of a guest behind node 3 to this node begin.
    fn hears(&self, guest: [u8; 32], port: u16) -> bool {
        self.passes(key(3).node_addr(), (ipv4(guest), self.ip(1)), port)
    }

    /// Whether flows of node 2 to a guest here begin.
    fn takes(&self, guest: [u8; 32], port: u16) -> bool {
        self.passes(key(2).node_addr(), (self.ip(2), ipv4(guest)), port)
    }
}

#[test]
fn a_guest_behind_a_member_passes_by_rules_about_its_tags() {
    let mut networks = home(&["allow from tag:phone to nas tcp/22"], Policy::Deny);
    guest(&mut networks, "home", PHONE, 3, &["phone"]);
    guest(&mut networks, "home", PRINTER, 3, &["printer"]);
    let node = Node::plain(&networks);
    assert_eq!([22, 23].map(|port| node.hears(PHONE, port)), [true, false]);
    assert!(!node.hears(PRINTER, 22));
    assert!(
        !node.passes(key(3).node_addr(), (node.ip(3), node.ip(1)), 22),
        "its host"
    );
    assert!(
        !node.passes(key(2).node_addr(), (ipv4(PHONE), node.ip(1)), 22),
        "by another"
    );
}

#[test]
fn the_first_rule_about_a_guest_decides() {
    let (deny, allow) = ("deny from tag:phone to any tcp/22", "allow from any to nas tcp/20-25");
    for (rules, passes) in [([deny, allow], false), ([allow, deny], true)] {
        let mut networks = home(&rules, Policy::Deny);
        guest(&mut networks, "home", PHONE, 3, &["phone"]);
        let node = Node::plain(&networks);
        assert_eq!((node.hears(PHONE, 22), node.hears(PHONE, 21)), (passes, true));
    }
}

#[test]
fn without_a_rule_the_default_says_whether_a_guest_passes() {
    for (policy, passes) in [(Policy::Allow, true), (Policy::Deny, false)] {
        let mut networks = home(&[], policy);
        guest(&mut networks, "home", PHONE, 3, &[]);
        guest(&mut networks, "home", PRINTER, 1, &[]);
        let node = Node::plain(&networks);
        assert_eq!((node.hears(PHONE, 22), node.takes(PRINTER, 22)), (passes, passes));
    }
}

#[test]
fn a_member_reaches_a_guest_by_rules_about_its_tags() {
    let rules = [
        "allow from laptop to tag:printer tcp/631",
        "allow from any to nas tcp/22",
    ];
    let mut networks = home(&rules, Policy::Deny);
    guest(&mut networks, "home", PRINTER, 1, &["printer"]);
    guest(&mut networks, "home", PHONE, 1, &["phone"]);
    let node = Node::plain(&networks);
    assert_eq!([631, 22].map(|port| node.takes(PRINTER, port)), [true, false]);
    assert!(!node.takes(PHONE, 631));
    let to_node = |port| node.passes(key(2).node_addr(), (node.ip(2), node.ip(1)), port);
    assert!(
        to_node(22) && !to_node(631),
        "rules about the guest are not about its host"
    );
}

#[test]
fn a_rule_about_a_node_and_its_guests_is_about_both() {
    let mut networks = home(
        &["allow from any to tag:server tcp/80", "deny from any to any"],
        Policy::Allow,
    );
    let tag = MemberChange::Tag {
        tags: vec!["server".to_owned()],
    };
    networks.change_member(None, "nas", (tag, None), (0, UNIX)).unwrap();
    guest(&mut networks, "home", PRINTER, 1, &["server"]);
    guest(&mut networks, "home", PHONE, 1, &[]);
    let node = Node::plain(&networks);
    let to_node = node.passes(key(2).node_addr(), (node.ip(2), node.ip(1)), 80);
    assert!(to_node && node.takes(PRINTER, 80) && !node.takes(PHONE, 80));
    let verdict = ask(&networks, &by_hand(&[]), &[], &to_nas(81));
    assert_eq!(verdict.reasons, ["rule 2 of home: deny from any to any"]);
    let question = Question {
        behind: Some(ipv4(PRINTER).into()),
        ..to_nas(80)
    };
    let verdict = ask(&networks, &by_hand(&[]), &[], &question);
    assert_eq!(verdict.reasons, ["rule 1 of home: allow from any to tag:server tcp/80"]);
}

#[test]
fn guests_of_one_host_reach_each_other_by_rules() {
    let mut networks = home(&["allow from tag:phone to tag:printer tcp/631"], Policy::Deny);
    guest(&mut networks, "home", PHONE, 1, &["phone"]);
    guest(&mut networks, "home", PRINTER, 1, &["printer"]);
    let node = Node::plain(&networks);
    let passes = |from, to, port| node.passes(node_addr(&from), (ipv4(from), ipv4(to)), port);
    assert!(passes(PHONE, PRINTER, 631) && !passes(PHONE, PRINTER, 22));
    assert!(!passes(PRINTER, PHONE, 631));
    assert!(
        !node.passes(node_addr(&PHONE), (ipv4(PHONE), node.ip(1)), 631),
        "to the host"
    );
}

#[test]
fn packets_of_a_guest_leave_to_members_of_its_network() {
    let mut networks = home(&[], Policy::Deny);
    guest(&mut networks, "home", PHONE, 1, &[]);
    networks
        .create(Name::network("work").unwrap(), None, [9; 16], UNIX)
        .unwrap();
    take_in(&mut networks, "work", 4);
    let node = Node::plain(&networks);
    let work = networks.in_order().nth(1).unwrap();
    let [own, other] = [1, 4].map(|byte| IpAddr::from(work.ipv4(&key(byte)).unwrap()));
    let phone = IpAddr::from(ipv4(PHONE));
    let leaves = |peer: NodeAddr, ends| node.lanes.may_leave(peer, ends);
    assert!(leaves(key(2).node_addr(), (phone, node.ip(2))));
    assert!(leaves(node_addr(&PHONE), (node.ip(1), phone)));
    assert!(!leaves(key(4).node_addr(), (phone, other)));
    assert!(!leaves(node_addr(&PHONE), (own, phone)), "from another network");
    assert!(leaves(key(4).node_addr(), (own, other)));
}

#[test]
fn a_guest_of_one_network_is_none_of_another() {
    let mut networks = networks(&["home", "work"]);
    for network in ["home", "work"] {
        take_in(&mut networks, network, 3);
    }
    take_in(&mut networks, "work", 2);
    guest(&mut networks, "home", PHONE, 3, &["phone"]);
    guest(&mut networks, "home", PRINTER, 1, &["printer"]);
    set(&mut networks, "home", &[], Policy::Deny);
    let rules = ["allow from any to any", "allow from tag:phone to tag:printer"];
    set(&mut networks, "work", &rules, Policy::Allow);
    let node = Node::plain(&networks);
    assert!(!node.hears(PHONE, 22));
    let work = networks.in_order().nth(1).unwrap();
    let laptop = work.ipv4(&key(2)).unwrap();
    assert!(!node.passes(key(2).node_addr(), (laptop, ipv4(PRINTER)), 22));
    assert!(node.passes(key(2).node_addr(), (laptop, work.ipv4(&key(1)).unwrap()), 22));
}

#[test]
fn a_guest_whose_host_is_removed_passes_nothing() {
    let mut networks = home(&[], Policy::Allow);
    guest(&mut networks, "home", PHONE, 3, &[]);
    assert!(Node::plain(&networks).hears(PHONE, 22));
    let name = networks.in_order().next().unwrap().name_of(&key(3));
    let removal = (MemberChange::Remove {}, None);
    networks.change_member(None, &name, removal, (0, UNIX)).unwrap();
    let node = Node::of(&networks, &by_hand(&[3]), &[]);
    assert!(!node.hears(PHONE, 22), "without a common network");
    assert!(!node.lanes.knows(node_addr(&PHONE)));
}

#[test]
fn local_rules_are_about_guests_by_their_tags() {
    let mut networks = home(&[], Policy::Allow);
    guest(&mut networks, "home", PHONE, 3, &["phone"]);
    guest(&mut networks, "home", PRINTER, 1, &["printer"]);
    let rules = [
        "deny from tag:phone to any tcp/22",
        "deny from any to tag:home/printer tcp/80",
        "deny from any to any tcp/25",
    ];
    let node = Node::of(&networks, &by_hand(&[]), &rules);
    assert_eq!([22, 25, 80].map(|port| node.hears(PHONE, port)), [false, false, true]);
    assert_eq!([22, 25, 80].map(|port| node.takes(PRINTER, port)), [true, false, false]);
    assert_eq!(super::super::unused_tags(&networks, &local(&rules)), [""; 0]);
}

#[test]
fn a_guest_uses_no_exit_but_its_host() {
    let mut networks = home(&[], Policy::Allow);
    networks.set_offer(&["0.0.0.0/0".parse().unwrap()].into());
    networks
        .change_exit(None, "nas", RouteChange::Approve, (0, UNIX))
        .unwrap();
    guest(&mut networks, "home", PHONE, 3, &[]);
    guest(&mut networks, "home", PRINTER, 1, &[]);
    let by_hand = ByHand {
        serves: Some(Vec::new()),
        ..by_hand(&[])
    };
    let node = Node::of(&networks, &by_hand, &[]);
    let internet = Ipv4Addr::new(8, 8, 8, 8);
    let of_here = (ipv4(PRINTER), internet);
    assert!(node.passes(node_addr(&PRINTER), of_here, 443));
    assert!(node.passes(key(3).node_addr(), (node.ip(3), internet), 443));
    assert!(!node.passes(key(3).node_addr(), (ipv4(PHONE), internet), 443));
}

/// Its host has one session with it, and so one address.
#[test]
fn a_guest_in_two_networks_is_here_in_the_first() {
    let mut networks = networks(&["home", "work"]);
    take_in(&mut networks, "work", 2);
    for network in ["home", "work"] {
        guest(&mut networks, network, PHONE, 1, &[]);
    }
    let used = networks.used_guests();
    let home = networks.in_order().next().unwrap();
    let found: Vec<_> = used.iter().map(|guest| (guest.network.id(), guest.ipv4)).collect();
    assert_eq!(found, [(home.id(), ipv4(PHONE))]);
    let node = Node::plain(&networks);
    let work = networks.in_order().nth(1).unwrap();
    let laptop = work.ipv4(&key(2)).unwrap();
    assert!(!node.passes(key(2).node_addr(), (laptop, ipv4(PHONE)), 22));
}

#[test]
fn an_address_of_the_configuration_is_that_of_no_guest_here() {
    let mut networks = home(&[], Policy::Allow);
    guest(&mut networks, "home", PRINTER, 1, &[]);
    assert!(Node::plain(&networks).takes(PRINTER, 22));
    let by_hand = ByHand {
        subnets: vec![Subnet::host(ipv4(PRINTER).into())],
        ..by_hand(&[])
    };
    assert!(!Node::of(&networks, &by_hand, &[]).takes(PRINTER, 22));
}

#[test]
fn of_two_networks_the_first_says_what_an_address_leads_to() {
    for (of_guest, of_member) in [("home", "work"), ("work", "home")] {
        let mut networks = networks(&["home", "work"]);
        for network in ["home", "work"] {
            take_in(&mut networks, network, 3);
        }
        let fixed = MemberChange::Address {
            ipv4: Some(ipv4(PHONE)),
        };
        let times = (0, UNIX);
        networks
            .change_member(Some(of_member), "laptop", (fixed, None), times)
            .unwrap();
        guest(&mut networks, of_guest, PHONE, 3, &[]);
        let is_first = of_guest == "home";
        assert_eq!(networks.used_guests().len(), usize::from(is_first));
        let network = networks.named(Some(of_member)).unwrap();
        let shadowed: Vec<_> = networks.shadowed(network).iter().map(|of| of.leads_to).collect();
        assert_eq!(
            shadowed,
            vec![key(3); usize::from(is_first)],
            "its host has it otherwise"
        );
    }
}
