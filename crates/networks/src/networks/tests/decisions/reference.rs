//! What the rules mean, in the words of the documentation and with tables that decide slowly.

use std::net::IpAddr;

use weft_roster::rules::{Destination, Flow, Party, Policy, Reason, Rule, Selector, Table, Target};
use weft_wire::internet::is_of_internet;

use super::*;
use crate::rules::in_words;

/// The slow reference, in the words of the documentation: the node `own` receives a packet of `peer`.
pub(super) struct Reference<'a> {
    pub(super) own: PublicKey,
    pub(super) peer: PublicKey,
    /// The networks that both are in.
    pub(super) common: Vec<&'a Network>,
    /// Those that the own node is in.
    pub(super) joined: Vec<&'a Network>,
    pub(super) by_hand: &'a ByHand,
    pub(super) local: &'a [Rule],
}

/// The first packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(super) struct First {
    pub(super) source: IpAddr,
    pub(super) dest: IpAddr,
    pub(super) service: (u8, Option<u16>),
}

/// What an address is to rules.
#[derive(Debug, Clone, Copy, PartialEq)]
enum To {
    Node,
    Behind,
    Outside,
}

fn is_behind(network: &Network, key: &PublicKey, at: IpAddr) -> bool {
    let mut routes = network.routes();
    routes.any(|(subnet, members)| subnet.contains(at) && members.contains(key))
}

fn has_ipv4(network: &Network, key: &PublicKey, at: IpAddr) -> bool {
    network.ipv4(key).is_some_and(|ip| IpAddr::V4(ip) == at)
}

impl Reference<'_> {
    fn is_ours(&self, network: &Network, at: IpAddr) -> bool {
        at == IpAddr::V6(self.own.node_addr().to_ipv6()) || has_ipv4(network, &self.own, at)
    }

    fn is_own(&self, at: IpAddr) -> bool {
        let is_address = at == IpAddr::V6(self.own.node_addr().to_ipv6());
        is_address || self.common.iter().any(|network| self.is_ours(network, at))
    }

    /// Whether a network joins the ends, without exits.
    fn joins(&self, network: &Network, first: First) -> bool {
        let theirs = first.source.is_ipv6()
            || has_ipv4(network, &self.peer, first.source)
            || is_behind(network, &self.peer, first.source);
        theirs && (self.is_ours(network, first.dest) || is_behind(network, &self.own, first.dest))
    }

    /// Whether a network has the own node as exit for the peer.
    fn serves(&self, network: &Network, first: First) -> bool {
        let source =
            first.source == IpAddr::V6(self.peer.node_addr().to_ipv6()) || has_ipv4(network, &self.peer, first.source);
        source && network.state().exits.contains_key(&self.own)
    }

    fn to(&self, dest: IpAddr) -> Vec<To> {
        if self.is_own(dest) {
            return vec![To::Node];
        }
        let is_host = self.by_hand.host.contains(&dest);
        let served = self.by_hand.serves.as_deref();
        let known = served.is_none_or(|served| served.iter().any(|subnet| subnet.contains(dest)))
            || self.common.iter().any(|network| is_behind(network, &self.own, dest));
        match (known, is_host) {
            (true, true) => vec![To::Node, To::Behind],
            (true, false) => vec![To::Behind],
            (false, true) => vec![To::Node],
            (false, false) => vec![To::Outside],
        }
    }

    /// Whether the flow passes, and each origin that had a say.
    pub(super) fn decide(&self, mut first: First) -> (bool, Vec<String>) {
        let by_hand = self.by_hand.peers.contains(&self.peer);
        let in_configuration = self.by_hand.subnets.iter().any(|subnet| subnet.contains(first.dest));
        let serving = self.by_hand.serves.is_some();
        let mut to = self.to(first.dest);
        let internet = !to.contains(&To::Behind) && is_of_internet(first.dest);
        let exits = self
            .common
            .iter()
            .filter(|network| serving && self.serves(network, first));
        let exits: Vec<&Network> = exits.copied().collect();
        let joined = self.common.iter().filter(|network| self.joins(network, first));
        let mut concerned: Vec<&Network> = joined.copied().collect();
        let by_configuration = by_hand && (self.is_own(first.dest) || in_configuration);
        if !by_configuration && concerned.is_empty() && (exits.is_empty() || !internet) {
            return (false, Vec::new());
        }
        let for_names = serving && first.service.1 == Some(7_353) && self.is_own(first.dest);
        if for_names {
            (to, first.service.1) = (vec![To::Outside], Some(53));
        }
        if to == [To::Outside] {
            concerned.clear();
        }
        if for_names || internet {
            concerned.extend(exits);
        }
        concerned.sort_by_key(|network| network.id());
        concerned.dedup_by_key(|network| network.id());
        for policy in [Policy::Deny, Policy::Allow] {
            let rules: Vec<&Rule> = self.local.iter().filter(|rule| rule.policy == policy).collect();
            let table = Table {
                rules: Some(rules.iter().map(|rule| self.resolved(rule)).collect()),
                inside: Policy::Deny,
            };
            if let (policy, Reason::Rule(at)) = self.ask(&table, None, (&to, first)) {
                return (policy == Policy::Allow, vec![format!("local rule: {}", rules[at])]);
            }
        }
        let mut said = Vec::new();
        for network in &concerned {
            let table = &network.state().table;
            let (policy, reason) = self.ask(table, Some(network), (&to, first));
            let label = network.label().unwrap();
            said.push(match reason {
                Reason::Rule(at) => {
                    let rule = in_words(&table.rules.as_ref().unwrap()[at], network.state());
                    format!("rule {} of {label}: {rule}", at + 1)
                }
                _ => format!("no rule of {label} matches, and its default is {policy}"),
            });
            if policy == Policy::Allow {
                return (true, said);
            }
        }
        (concerned.is_empty() && to != [To::Outside] && by_hand, said)
    }

    /// What a table says; an address of the host in a subnet behind it is both, and the first rule counts.
    fn ask(&self, table: &Table, network: Option<&Network>, (to, first): (&[To], First)) -> (Policy, Reason) {
        let tags = |key: &PublicKey| {
            let member = network.and_then(|network| network.state().members.get(key));
            member.map(|member| member.tags.clone()).unwrap_or_default()
        };
        let (ours, theirs) = (tags(&self.own), tags(&self.peer));
        let decisions = to.iter().map(|to| {
            let flow = Flow {
                from: Party {
                    key: self.peer,
                    tags: &theirs,
                },
                to: match to {
                    To::Node => Destination::Member(Party {
                        key: self.own,
                        tags: &ours,
                    }),
                    To::Behind => Destination::Route(first.dest),
                    To::Outside => Destination::Exit,
                },
                protocol: first.service.0,
                port: first.service.1,
            };
            table.decide(&flow, UNIX)
        });
        let earliest = decisions.min_by_key(|decision| match decision.reason {
            Reason::Rule(at) => at,
            _ => usize::MAX,
        });
        earliest.map(|decision| (decision.policy, decision.reason)).unwrap()
    }

    /// A local rule with members in place of tags: the ends of this flow that have them, or no node.
    fn resolved(&self, rule: &Rule) -> Rule {
        let end = |selector: &Selector, end: PublicKey| {
            let has = |network: &&Network, tag: &Name| {
                network
                    .state()
                    .members
                    .get(&end)
                    .is_some_and(|of| of.tags.contains(tag))
            };
            let holds = match selector {
                Selector::Any | Selector::Member(_) => return selector.clone(),
                Selector::TagOf(of, tag) => {
                    let mut of = self.joined.iter().filter(|network| network.label() == Some(of));
                    of.any(|network| has(network, tag))
                }
                Selector::Tag(tag) => match (&self.joined[..], rule.policy) {
                    ([_, _, ..], Policy::Allow) => false,
                    (joined, _) => joined.iter().any(|network| has(network, tag)),
                },
            };
            Selector::Member(if holds { end } else { key(9) })
        };
        let to = match &rule.to {
            Target::Members(to) => Target::Members(end(to, self.own)),
            to => to.clone(),
        };
        Rule {
            from: end(&rule.from, self.peer),
            to,
            ..rule.clone()
        }
    }
}
