//! What the rules say about one flow, and which of them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_contract::rules::{Facts, PeerRules, Reason};
use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::rules::{Policy, Protocol, Rule, Service};
use weft_wire::Subnet;
use weft_wire::internet::GLOBAL_IPV6;
use weft_wire::ip::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};

use super::compile::{self, Compiled};
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
    /// Local rules that mean less than they seem to, then a line for each origin of rules that has a say, in
    /// their order; the last one decided.
    pub reasons: Vec<String>,
}

/// What this node knows of the rules.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Its networks.
    pub networks: &'a Networks,
    /// The rules for packets to it, as its lanes apply them.
    pub compiled: &'a Compiled,
    /// The rules of its configuration, of which those are made.
    pub local: &'a [Rule],
    /// The peers of its configuration.
    pub by_hand: &'a BTreeSet<PublicKey>,
}

/// Explains what passes at `unix`, in seconds since 1970. A flow to this node, to what is behind it or by it as
/// exit is decided by the rules that its lanes apply. One to another node is decided as that one does, as far
/// as the networks of this node say: local rules are known only of this node.
#[must_use]
pub fn why(question: &Question, known: &Known<'_>, unix: u64) -> Verdict {
    if question.from == question.to {
        return Verdict::of(true, "both ends are one node, whose packets to itself no rule is about");
    }
    let ends = (&question.to, &question.from);
    if question.to != *known.networks.own() {
        let rules = compile::of_other(ends, known.networks, question.exit, unix);
        return explain(question, known, &rules);
    }
    let Some(peers) = &known.compiled.peers else {
        return match known.by_hand.contains(&question.from) {
            true => Verdict::of(true, BY_HAND),
            false => Verdict::of(true, "this node is in no network and has no local rules: all passes"),
        };
    };
    // Of a peer without rules all packets are dropped.
    let none = PeerRules::default();
    let rules = peers.get(&question.from.node_addr()).unwrap_or(&none);
    let mut verdict = explain(question, known, rules);
    if rules.by_hand.is_some() || !rules.networks.is_empty() {
        verdict.reasons.splice(..0, local::unclear(known.networks, known.local));
    }
    verdict
}

/// What is said of a peer of the configuration where no network has a say.
const BY_HAND: &str = "a peer of the configuration, and no network has both ends of the flow: it passes";

impl Verdict {
    fn of(allowed: bool, reason: &str) -> Self {
        Self {
            allowed,
            reasons: vec![reason.to_owned()],
        }
    }
}

/// What the rules for the packets of one peer say.
fn explain(question: &Question, known: &Known<'_>, rules: &PeerRules) -> Verdict {
    let (allowed, reasons) = decide(question, rules);
    let own = known.networks.own();
    // Whether another node has this one in its configuration is not known; a peer of this one is expected to.
    let has_own = question.from == *own && known.by_hand.contains(&question.to) && !question.exit;
    if has_own && reasons == [Reason::Apart] {
        return Verdict::of(true, BY_HAND);
    }
    let joined = known.networks.joined(&question.to);
    let line = |reason: &Reason| match *reason {
        Reason::Apart => apart(question, known, rules).to_owned(),
        Reason::ByHand => BY_HAND.to_owned(),
        Reason::Local { rule, .. } => match known.local.get(usize::from(rule)) {
            Some(rule) => format!("local rule: {rule}"),
            None => "a local rule".to_owned(),
        },
        Reason::Network { network, rule, allow } => match joined.get(usize::from(network)) {
            Some(network) => of_network(network, rule, allow),
            None => "the rules of a network".to_owned(),
        },
    };
    let by_others = |reason: &Reason| matches!(reason, Reason::Network { .. } | Reason::ByHand);
    let no_local = question.to == *own && !known.local.is_empty() && reasons.iter().all(by_others);
    let no_local = no_local.then(|| "no local rule matches".to_owned());
    Verdict {
        allowed,
        reasons: no_local.into_iter().chain(reasons.iter().map(line)).collect(),
    }
}

/// Why no network and no configuration joins the ends of a flow.
fn apart(question: &Question, known: &Known<'_>, rules: &PeerRules) -> &'static str {
    match question.behind {
        _ if question.exit && rules.ours.is_none() && rules.networks.iter().any(|network| network.exit) => {
            "this node is an approved exit and serves as none at present: nothing passes"
        }
        _ if question.exit => "no network of this node has both as member and exit: nothing passes",
        Some(_) if question.to == *known.networks.own() && rules.by_hand.is_some() => {
            "neither the configuration nor a network that the two are in has such a subnet of this node: nothing passes"
        }
        Some(_) => "no network that this node and the two are in has such a route: nothing passes",
        None => "the two are in no network that this node is in: nothing passes",
    }
}

/// What a network says, by the rule that decides or its default.
fn of_network(network: &Network, rule: Option<u16>, allow: bool) -> String {
    let state = network.state();
    let name = network.label().map_or("the network", Name::as_str);
    let Some(rules) = &state.table.rules else {
        return format!("the rules of {name} are those of a later version of Weft: nothing passes; update this node");
    };
    let Some(at) = rule.map(usize::from) else {
        let policy = if allow { Policy::Allow } else { Policy::Deny };
        return format!("no rule of {name} matches, and its default is {policy}");
    };
    let text = rules.get(at).map(|rule| in_words(rule, state)).unwrap_or_default();
    format!("rule {} of {name}: {text}", at + 1)
}

/// Asks the rules about the first packet of a flow, from each address that the peer may send it from until one
/// passes. Returns whether it does, and the reasons.
fn decide(question: &Question, rules: &PeerRules) -> (bool, Vec<Reason>) {
    let ends = (question.to.node_addr(), question.from.node_addr());
    let mut all = Vec::new();
    for facts in question.packets(rules) {
        let mut reasons = Vec::new();
        let passes = rules.decide(ends, &facts, |reason| reasons.push(reason));
        // A local rule says the same about each address.
        let is_local = matches!(reasons.last(), Some(Reason::Local { .. }));
        all.extend(reasons.into_iter().filter(|reason| *reason != Reason::Apart));
        if passes || is_local {
            return (passes, all);
        }
    }
    if all.is_empty() {
        all.push(Reason::Apart);
    }
    (false, all)
}

impl Question {
    /// What rules see of the packets that may begin the flow: one for each address of the peer that goes with
    /// the destination.
    fn packets(&self, rules: &PeerRules) -> Vec<Facts> {
        let dest = match self.behind {
            _ if self.exit => outside(rules),
            Some(address) => address,
            None => self.to.node_addr().to_ipv6().into(),
        };
        let mut sources: Vec<IpAddr> = match dest {
            IpAddr::V6(_) => vec![self.from.node_addr().to_ipv6().into()],
            IpAddr::V4(_) => {
                let ends = rules.networks.iter().filter_map(|network| network.ipv4);
                ends.map(|ends| ends.theirs.into()).collect()
            }
        };
        if sources.is_empty() {
            // A peer of the configuration has addresses of its own, which no network knows.
            sources.push(Ipv4Addr::UNSPECIFIED.into());
        }
        let protocol = match (self.protocol, dest) {
            (PROTOCOL_ICMP, IpAddr::V6(_)) => PROTOCOL_ICMPV6,
            (PROTOCOL_ICMPV6, IpAddr::V4(_)) => PROTOCOL_ICMP,
            (protocol, _) => protocol,
        };
        let packet = |source| Facts {
            source,
            dest,
            protocol,
            port: self.port,
        };
        sources.into_iter().map(packet).collect()
    }
}

/// An address of the Internet that is not this exit's own or behind it.
fn outside(rules: &PeerRules) -> IpAddr {
    let (first, _) = GLOBAL_IPV6;
    let at = |n: u16| IpAddr::from(Ipv6Addr::from_bits(first.to_bits() | u128::from(n) << 112 | 1));
    let near = rules
        .ours
        .iter()
        .chain(rules.networks.iter().map(|network| &network.ours));
    let near: Vec<Subnet> = near.flat_map(|subnets| subnets.iter().copied()).collect();
    let is_near = |at: &IpAddr| rules.host.contains(at) || near.iter().any(|subnet| subnet.contains(*at));
    (0..0x2000).map(at).find(|at| !is_near(at)).unwrap_or_else(|| at(0))
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
        Protocol::Tcp => PROTOCOL_TCP,
        Protocol::Udp => PROTOCOL_UDP,
        Protocol::Icmp => PROTOCOL_ICMP,
        Protocol::Number(number) => number,
    };
    match &ports[..] {
        [] if protocol.has_ports() => Err(expected()),
        [] => Ok((number, None)),
        [(first, last)] if first == last => Ok((number, Some(*first))),
        _ => Err("one port at a time, such as tcp/22".to_owned()),
    }
}
