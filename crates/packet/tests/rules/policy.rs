//! The rules of both ends.

use std::net::Ipv4Addr;
use std::sync::Arc;

use weft_contract::rules::{Addresses, NetworkRules, PeerRules, Policy, Protocol, Rule, RuleSet, Scope};
use weft_contract::{Command, TableCommand};
use weft_wire::{NodeAddr, Subnet};

use crate::line::{A, B, Host};
use crate::packets::{TCP, UDP};

/// The networks behind A and B, and their IPv4 addresses in two networks of nodes.
const BEHIND: [[&str; 4]; 2] = [
    ["10.6.0.0/16", "fdab:1::/64", "10.7.0.1/32", "10.9.0.1/32"],
    ["10.8.0.0/16", "fdab:2::/64", "10.7.0.2/32", "10.9.0.2/32"],
];

/// The rules of B for A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Those of two networks, and local ones.
    Some,
    /// Those of a network in which all is allowed that no rule denies.
    Open,
    /// None, for a peer that was added by hand. 10.9.0.2 is no part of the configuration.
    ByHand,
    /// None, in a network in which nothing is allowed.
    Nothing,
}

fn networks(texts: &[&str]) -> Vec<Subnet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn rule(allow: bool, to: Scope, protocol: Protocol, ports: &[(u16, u16)]) -> Rule {
    let ports = ports.into();
    Rule {
        origin: 0,
        allow,
        to,
        protocol,
        ports,
    }
}

fn all(rules: Vec<Rule>) -> RuleSet {
    RuleSet {
        chosen: (0..rules.len() as u16).collect(),
        list: rules.into(),
    }
}

/// The network with these IPv4 addresses, whose last part is 1 for A and 2 for B, as B sees it.
fn network(third: u8, rules: RuleSet, inside: bool) -> NetworkRules {
    let address = |of| Ipv4Addr::new(10, third, 0, of);
    let subnets = |of: usize| -> Arc<[Subnet]> {
        if third == 7 {
            networks(&BEHIND[of][..2])
        } else {
            Vec::new()
        }
        .into()
    };
    NetworkRules {
        origin: 0,
        ipv4: Some(Addresses {
            ours: address(2),
            theirs: address(1),
        }),
        ours: subnets(1),
        theirs: subnets(0),
        rules,
        inside,
        exit: false,
    }
}

fn some() -> PeerRules {
    let (tcp, udp) = (Protocol::Number(TCP), Protocol::Number(UDP));
    let behind = networks(&BEHIND[1]);
    let mut first = all(vec![
        rule(true, Scope::Node, tcp, &[(22, 22), (8_000, 8_999), (65_535, 65_535)]),
        rule(false, Scope::Node, tcp, &[(7_000, 7_000)]),
        rule(true, Scope::Node, tcp, &[(7_000, 7_001)]),
        // About peers with another tag.
        rule(true, Scope::Any, tcp, &[(9_999, 9_999)]),
        rule(true, Scope::Node, Protocol::Icmp, &[]),
        rule(true, Scope::Node, udp, &[(5_000, 5_000)]),
        rule(false, Scope::Node, udp, &[(6_001, 6_002)]),
        rule(true, Scope::Node, udp, &[(6_000, 6_002)]),
        rule(true, Scope::Node, Protocol::Number(47), &[]),
        rule(true, Scope::Subnet(behind[0]), tcp, &[(80, 80)]),
        rule(true, Scope::Subnet(behind[1]), udp, &[]),
    ]);
    first.chosen = first.chosen.iter().copied().filter(|at| *at != 3).collect();
    let second = all(vec![rule(true, Scope::Node, udp, &[(53, 53)])]);
    PeerRules {
        deny: all(vec![rule(false, Scope::Node, udp, &[(6_000, 6_000)])]),
        allow: all(vec![rule(true, Scope::Node, udp, &[(6_000, 6_001)])]),
        networks: vec![network(7, first, false), network(9, second, false)],
        by_hand: None,
        ..PeerRules::default()
    }
}

impl Rules {
    pub(crate) fn for_a(self) -> PeerRules {
        let none = RuleSet::default();
        // All but the address in the second network.
        let of_configuration: Arc<[Subnet]> = networks(&BEHIND[1][..3]).into();
        let (networks, by_hand) = match self {
            Self::Some => return some(),
            Self::Open => {
                let smtp = rule(false, Scope::Any, Protocol::Number(TCP), &[(25, 25)]);
                (vec![network(7, all(vec![smtp]), true)], None)
            }
            Self::ByHand => (Vec::new(), Some(of_configuration)),
            Self::Nothing => (vec![network(7, none, false)], None),
        };
        PeerRules {
            networks,
            by_hand,
            ..PeerRules::default()
        }
    }
}

pub(crate) fn set(host: &mut Host, peer: NodeAddr, rules: PeerRules) {
    let policy = Policy::new(host.me, 1, [(peer, rules)].into());
    let policy = Some(Arc::new(policy));
    host.apply(Command::Table(TableCommand::SetPolicy { policy, first: None }));
}

/// Sets the networks of both ends, and their rules. A allows nothing that it did not begin. Without
/// rules, B checks nothing.
pub(crate) fn set_both(a: &mut Host, b: &mut Host, rules: Option<Rules>) {
    let [of_a, of_b] = BEHIND.map(|texts| networks(&texts));
    for (host, peer, ours, theirs) in [(&mut *a, B, &of_a, &of_b), (&mut *b, A, &of_b, &of_a)] {
        let theirs = theirs.iter().map(|network| (*network, peer)).collect();
        let ours = ours.clone();
        host.apply(Command::Table(TableCommand::SetSubnets { ours, theirs }));
    }
    let nothing = PeerRules {
        deny: all(vec![rule(false, Scope::Any, Protocol::Any, &[])]),
        by_hand: Some(of_a.into()),
        ..PeerRules::default()
    };
    set(a, B, nothing);
    if let Some(rules) = rules {
        set(b, A, rules.for_a());
    }
}
