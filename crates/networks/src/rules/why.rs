//! What the rules say about one flow, and which of them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::rules::{Destination, Flow, Party, Policy, Protocol, Reason, Rule, Selector, Service, Target};

use super::compile::tags;
use super::{in_words, local};
use crate::{Network, Networks};

/// The flow that is asked about.
#[derive(Debug, Clone)]
pub struct Question {
    /// The node that begins it.
    pub from: PublicKey,
    /// The node that it goes to.
    pub to: PublicKey,
    /// An address behind that node, unless it goes to the node itself.
    pub behind: Option<IpAddr>,
    /// Whether it goes by that node as exit.
    pub exit: bool,
    /// Its protocol.
    pub protocol: u8,
    /// Its destination port.
    pub port: Option<u16>,
}

/// What the rules say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the flow passes.
    pub allowed: bool,
    /// One line for each origin of rules that was asked, in their order; the last one decided.
    pub reasons: Vec<String>,
}

/// Explains what passes. Local rules are known only of this node, so they are asked if the flow goes
/// to it. `by_hand`: whether the other end is a peer of the configuration.
#[must_use]
pub fn why(question: &Question, networks: &Networks, local: &[Rule], by_hand: bool, unix: u64) -> Verdict {
    let common: Vec<&Network> = networks
        .iter()
        .filter(|network| network.is_member(&question.from) && network.is_member(&question.to))
        .filter(|network| !question.exit || network.state().exits.contains_key(&question.to))
        .filter(|network| {
            question
                .behind
                .is_none_or(|address| is_behind(network, &question.to, address))
        })
        .collect();
    // An exit serves members only.
    let by_hand = by_hand && !question.exit;
    let mut reasons = Vec::new();
    if question.to == *networks.own() && (by_hand || !common.is_empty()) {
        reasons.extend(local::unclear(networks, local));
        if let Some((policy, reason)) = local_rule(question, networks, local, unix) {
            reasons.push(reason);
            return Verdict {
                allowed: policy == Policy::Allow,
                reasons,
            };
        }
        if !local.is_empty() {
            reasons.push("no local rule matches".to_owned());
        }
    }
    if common.is_empty() {
        reasons.push(match by_hand {
            true => "a peer of the configuration and in no network with this node: all passes".to_owned(),
            false if question.exit => "no network of this node has both as member and exit: nothing passes".to_owned(),
            false if question.behind.is_some() => {
                "no network that this node and the two are in has such a route: nothing passes".to_owned()
            }
            false => "the two are in no network that this node is in: nothing passes".to_owned(),
        });
        return Verdict {
            allowed: by_hand,
            reasons,
        };
    }
    let mut allowed = false;
    for network in common {
        let (policy, reason) = of_network(question, network, unix);
        reasons.push(reason);
        if policy == Policy::Allow {
            allowed = true;
            break;
        }
    }
    Verdict { allowed, reasons }
}

/// Whether an address is in an approved route of a member.
fn is_behind(network: &Network, member: &PublicKey, address: IpAddr) -> bool {
    let mut routes = network.routes();
    routes.any(|(subnet, members)| subnet.contains(address) && members.contains(member))
}

fn local_rule(question: &Question, networks: &Networks, local: &[Rule], unix: u64) -> Option<(Policy, String)> {
    let own = networks.own();
    let joined: Vec<&Network> = networks.iter().filter(|network| network.is_member(own)).collect();
    let none = BTreeSet::new();
    let flow = question.flow(&none, &none);
    let matches = |rule: &Rule| {
        let holds = |end: &Selector, key| local::holds(&joined, rule.policy, end, key);
        // The members at both ends are compared here, and the rest as in a network.
        let to = match &rule.to {
            Target::Members(to) if *to != Selector::Any => holds(to, own).then_some(Selector::Member(*own)),
            _ => None,
        };
        let rest = Rule {
            from: Selector::Any,
            to: to.map_or_else(|| rule.to.clone(), Target::Members),
            ..rule.clone()
        };
        holds(&rule.from, &question.from) && rest.matches(&flow, unix)
    };
    [Policy::Deny, Policy::Allow].into_iter().find_map(|policy| {
        let mut rules = local.iter().filter(|rule| rule.policy == policy);
        let rule = rules.find(|rule| matches(rule))?;
        Some((policy, format!("local rule: {rule}")))
    })
}

fn of_network(question: &Question, network: &Network, unix: u64) -> (Policy, String) {
    let state = network.state();
    let tags = |key| tags(network, key);
    let (from, to) = (tags(&question.from), tags(&question.to));
    let decision = state.table.decide(&question.flow(&from, &to), unix);
    let name = network.label().map_or("the network", Name::as_str);
    let reason = match decision.reason {
        Reason::Rule(at) => {
            let rule = state.table.rules.as_ref().and_then(|rules| rules.get(at));
            let text = rule.map(|rule| in_words(rule, state)).unwrap_or_default();
            format!("rule {} of {name}: {text}", at + 1)
        }
        Reason::Default => format!("no rule of {name} matches, and its default is {}", decision.policy),
        Reason::NotUnderstood => {
            format!("the rules of {name} are those of a later version of Weft: nothing passes; update this node")
        }
    };
    (decision.policy, reason)
}

impl Question {
    fn flow<'a>(&self, from: &'a BTreeSet<Name>, to: &'a BTreeSet<Name>) -> Flow<'a> {
        Flow {
            from: Party {
                key: self.from,
                tags: from,
            },
            to: match self.behind {
                _ if self.exit => Destination::Exit,
                Some(address) => Destination::Route(address),
                None => Destination::Member(Party { key: self.to, tags: to }),
            },
            protocol: self.protocol,
            port: self.port,
        }
    }
}

/// Reads a protocol and port in the language of rules, as `tcp/22`.
///
/// # Errors
/// A text that says what is expected.
pub fn service(text: &str) -> Result<(u8, Option<u16>), String> {
    let expected = || "a protocol with a port, such as tcp/22 or udp/53, or icmp, or a number".to_owned();
    let rule: Rule = format!("allow from any to any {text}")
        .parse()
        .map_err(|_| expected())?;
    let Some(Service { protocol, ports }) = rule.service.filter(|_| rule.until.is_none()) else {
        return Err(expected());
    };
    let number = match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Icmp => 1,
        Protocol::Number(number) => number,
    };
    match &ports[..] {
        [] if protocol.has_ports() => Err(expected()),
        [] => Ok((number, None)),
        [(first, last)] if first == last => Ok((number, Some(*first))),
        _ => Err("one port at a time, such as tcp/22".to_owned()),
    }
}
