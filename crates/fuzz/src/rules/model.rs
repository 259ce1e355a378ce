//! Rules and flows as lists, read anew for each packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use weft_contract::rules::{Addresses, NetworkRules, PeerRules, Protocol, Rule, RuleSet, Scope};
use weft_wire::Subnet;

use super::packets::{Content, Flow, Probe, Shape};
use super::{addresses, behind};
use crate::input::Input;

/// No flow ends before it was silent for this long, in ms.
const KEPT: u64 = 50_000;

/// What a node's firewall has to know.
#[derive(Default)]
pub(super) struct Model {
    pub(super) policy: Option<SlowPolicy>,
    /// Packets whose flows are unknown were sent.
    pub(super) is_vague: bool,
    flows: BTreeMap<Flow, Known>,
    /// Fragments that passed: addresses and identification.
    fragments: BTreeSet<(IpAddr, IpAddr, u16)>,
}

#[derive(Clone, Copy)]
struct Known {
    /// This host certainly began it.
    ours: bool,
    /// This host may have begun it, after it had been silent.
    perhaps_ours: bool,
    received: u64,
    active: u64,
}

/// The rules for the other node.
pub(super) struct SlowPolicy {
    me: usize,
    deny: Vec<SlowRule>,
    allow: Vec<SlowRule>,
    networks: Vec<SlowNetwork>,
    by_hand: bool,
}

struct SlowNetwork {
    /// Which of the IPv4 addresses of [`addresses`] it has.
    ipv4: Option<usize>,
    subnets: bool,
    rules: Vec<SlowRule>,
    inside: bool,
}

#[derive(Clone)]
struct SlowRule {
    allow: bool,
    /// Of any destination, of the node, or of one of its subnets.
    to: Option<Option<Subnet>>,
    protocol: Protocol,
    ports: Option<RangeInclusive<u16>>,
}

impl Model {
    pub(super) fn sent(&mut self, now: u64, probe: &Probe) {
        let Some(flow) = probe.flow().filter(|_| self.policy.is_some()) else {
            return;
        };
        let new = Known {
            ours: true,
            perhaps_ours: true,
            received: now,
            active: now,
        };
        let known = self.flows.entry(flow).or_insert(new);
        known.perhaps_ours |= now - known.received > KEPT;
        known.active = now;
    }

    pub(super) fn received(&mut self, now: u64, probe: &Probe) {
        if self.policy.is_none() {
            return;
        }
        if let Shape::First(ident) = probe.shape {
            self.fragments.insert((probe.from, probe.to, ident));
        }
        let Some(flow) = probe.flow() else { return };
        let new = Known {
            ours: false,
            perhaps_ours: false,
            received: now,
            active: now,
        };
        let known = self.flows.entry(flow).or_insert(new);
        known.ours &= now - known.active <= KEPT;
        known.received = now;
        known.active = now;
    }

    fn allows(&self, probe: &Probe) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.allows(probe))
    }

    /// Whether a packet of this host leaves.
    pub(super) fn may_leave(&self, probe: &Probe) -> bool {
        self.policy.as_ref().is_none_or(|policy| policy.may_leave(probe))
    }

    /// Whether a packet that was delivered was let in rightly.
    pub(super) fn may_pass(&self, probe: &Probe) -> bool {
        if self.policy.is_none() || self.is_vague {
            return true;
        }
        if probe.shape == Shape::Routed {
            return false;
        }
        let known = |flow| self.flows.get(&flow);
        let by_flow = match (&probe.content, probe.shape) {
            (_, Shape::Later(ident)) => self.fragments.contains(&(probe.from, probe.to, ident)),
            (Content::About(quoted), _) => quoted.flow().is_some_and(|flow| known(flow).is_some()),
            _ => probe.flow().and_then(known).is_some_and(|flow| flow.perhaps_ours),
        };
        by_flow || self.allows(probe)
    }

    /// Whether a packet that was denied should not have been.
    pub(super) fn must_pass(&self, now: u64, probe: &Probe) -> bool {
        if probe.shape == Shape::Routed || self.is_vague {
            return false;
        }
        let known = probe.flow().and_then(|flow| self.flows.get(&flow));
        self.allows(probe) || known.is_some_and(|flow| flow.ours && now - flow.active <= KEPT)
    }

    /// Whether nothing may arrive, whatever it is.
    pub(super) fn is_closed(&self) -> bool {
        let closed = |policy: &SlowPolicy| {
            let open = |rules: &[SlowRule]| rules.iter().any(|rule| rule.allow);
            let network_open = |network: &SlowNetwork| network.inside || open(&network.rules);
            !policy.by_hand && !open(&policy.allow) && !open(&policy.deny) && !policy.networks.iter().any(network_open)
        };
        self.policy.as_ref().is_some_and(closed) && self.flows.is_empty() && !self.is_vague
    }
}

impl SlowPolicy {
    pub(super) fn from(input: &mut Input<'_>, me: usize) -> Self {
        let bits = input.u8();
        Self {
            me,
            deny: SlowRule::list(input, me, usize::from(bits & 1), Some(false)),
            allow: SlowRule::list(input, me, usize::from(bits >> 1 & 1), Some(true)),
            networks: (0..bits >> 2 & 3)
                .map(|_| {
                    let bits = input.u8();
                    SlowNetwork {
                        ipv4: [None, Some(1), Some(2), Some(1)][usize::from(bits & 3)],
                        subnets: bits & 4 != 0,
                        rules: SlowRule::list(input, me, usize::from(bits >> 3 & 3), None),
                        inside: bits & 0x60 == 0x60,
                    }
                })
                .collect(),
            by_hand: bits >> 4 == 15,
        }
    }

    pub(super) fn peer_rules(&self) -> PeerRules {
        let v4 = |node: usize, at: usize| match addresses(node)[at] {
            IpAddr::V4(ip) => ip,
            IpAddr::V6(_) => panic!("{at}"),
        };
        let subnets = |node: usize, network: &SlowNetwork| match network.subnets {
            true => behind(node)[2..].into(),
            false => [].into(),
        };
        let networks = self.networks.iter().map(|network| NetworkRules {
            origin: 0,
            ipv4: network.ipv4.map(|at| Addresses {
                ours: v4(self.me, at),
                theirs: v4(1 - self.me, at),
            }),
            ours: subnets(self.me, network),
            theirs: subnets(1 - self.me, network),
            rules: rule_set(&network.rules),
            inside: network.inside,
            exit: false,
        });
        PeerRules {
            deny: rule_set(&self.deny),
            allow: rule_set(&self.allow),
            networks: networks.collect(),
            by_hand: self.by_hand.then(|| behind(self.me).into()),
            ..PeerRules::default()
        }
    }

    fn allows(&self, probe: &Probe) -> bool {
        if !self.joins(probe.to, probe.from) {
            return false;
        }
        let is_own = |network: &SlowNetwork| network.ipv4.is_some_and(|at| probe.to == addresses(self.me)[at]);
        let to_node = probe.to == addresses(self.me)[0] || self.networks.iter().any(is_own);
        let first = |rules: &[SlowRule]| {
            let rule = rules.iter().find(|rule| rule.matches(probe, to_node));
            rule.map(|rule| rule.allow)
        };
        if let Some(decision) = first(&self.deny).or(first(&self.allow)) {
            return decision;
        }
        let concerned: Vec<&SlowNetwork> = self
            .networks
            .iter()
            .filter(|network| self.joins_in(network, probe.to, probe.from))
            .collect();
        match concerned.is_empty() {
            true => self.by_hand,
            false => concerned
                .iter()
                .any(|network| first(&network.rules).unwrap_or(network.inside)),
        }
    }

    /// Whether a packet may leave, whatever the rules say.
    pub(super) fn may_leave(&self, probe: &Probe) -> bool {
        probe.from == addresses(self.me)[0] || self.joins(probe.from, probe.to)
    }

    fn joins(&self, ours: IpAddr, theirs: IpAddr) -> bool {
        let is_own = |network: &SlowNetwork| network.ipv4.is_some_and(|at| ours == addresses(self.me)[at]);
        let is_node = ours == addresses(self.me)[0] || self.networks.iter().any(is_own);
        let is_here = is_node || behind(self.me).iter().any(|subnet| subnet.contains(ours));
        let in_a_network = self.networks.iter().any(|network| self.joins_in(network, ours, theirs));
        self.by_hand && is_here || in_a_network
    }

    fn joins_in(&self, network: &SlowNetwork, ours: IpAddr, theirs: IpAddr) -> bool {
        let within = |node: usize, address| behind(node)[2..].iter().any(|subnet| subnet.contains(address));
        let here = |node: usize, address: IpAddr| {
            network.ipv4.is_some_and(|at| address == addresses(node)[at]) || network.subnets && within(node, address)
        };
        (theirs.is_ipv6() || here(1 - self.me, theirs)) && (ours == addresses(self.me)[0] || here(self.me, ours))
    }
}

impl SlowRule {
    fn list(input: &mut Input<'_>, me: usize, count: usize, allow: Option<bool>) -> Vec<Self> {
        let mut rule = || {
            let bits = input.u8();
            let ports = input.u8();
            let first = u16::from(ports & 7);
            Self {
                allow: allow.unwrap_or(bits & 1 != 0),
                to: match bits >> 1 & 3 {
                    0 => None,
                    1 => Some(None),
                    more => Some(Some(behind(me)[usize::from(more)])),
                },
                protocol: match bits >> 3 & 7 {
                    0 => Protocol::Any,
                    1 | 2 => Protocol::Icmp,
                    3 => Protocol::Number(47),
                    4 | 5 => Protocol::Number(6),
                    _ => Protocol::Number(17),
                },
                ports: (bits >> 6 != 0).then(|| first..=first + u16::from(ports >> 3 & 3)),
            }
        };
        (0..count).map(|_| rule()).collect()
    }

    fn matches(&self, probe: &Probe, to_node: bool) -> bool {
        let to = match self.to {
            None => true,
            Some(None) => to_node,
            Some(Some(network)) => !to_node && network.contains(probe.to),
        };
        let protocol = match self.protocol {
            Protocol::Any => true,
            Protocol::Icmp => [1, 58].contains(&probe.protocol()),
            Protocol::Number(number) => number == probe.protocol(),
        };
        let port = match (&self.ports, probe.port()) {
            (None, _) => true,
            (Some(range), Some(port)) => range.contains(&port),
            (Some(_), None) => !self.allow,
        };
        to && protocol && port
    }

    fn rule(&self) -> Rule {
        Rule {
            origin: 0,
            allow: self.allow,
            to: match self.to {
                None => Scope::Any,
                Some(None) => Scope::Node,
                Some(Some(network)) => Scope::Subnet(network),
            },
            protocol: self.protocol,
            ports: self.ports.iter().map(|range| (*range.start(), *range.end())).collect(),
        }
    }
}

fn rule_set(rules: &[SlowRule]) -> RuleSet {
    RuleSet {
        list: rules.iter().map(SlowRule::rule).collect(),
        chosen: (0..rules.len() as u16).collect(),
    }
}
