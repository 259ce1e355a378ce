//! What the rules say about a flow.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_noise::PublicKey;

use crate::names::Name;

use super::{Policy, Rule, Selector, Service, Target};

/// The rules in force, and what is done with flows that none of them matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The rules in their order; `None` if the records have rules, none of which is understood.
    pub rules: Option<Vec<Rule>>,
    /// What is done with other flows.
    pub inside: Policy,
}

/// A member at one end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a> {
    /// The member's key.
    pub key: PublicKey,
    /// The member's tags.
    pub tags: &'a BTreeSet<Name>,
}

/// The destination of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination<'a> {
    /// A member, at an address of its own.
    Member(Party<'a>),
    /// An address of an approved route.
    Route(IpAddr),
    /// An address behind an exit.
    Exit,
}

/// A flow, named by its first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow<'a> {
    /// The member that began it.
    pub from: Party<'a>,
    /// Where it goes.
    pub to: Destination<'a>,
    /// The protocol in the IP header, behind extension headers.
    pub protocol: u8,
    /// The destination port of TCP and UDP; `None` if the packet does not show it, as a fragment.
    pub port: Option<u16>,
}

/// The outcome for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Whether the flow passes.
    pub policy: Policy,
    /// Why.
    pub reason: Reason,
}

/// What decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The rule with this index, from 0.
    Rule(usize),
    /// No rule matched.
    Default,
    /// The rules are those of a later version of Weft.
    NotUnderstood,
}

impl Table {
    /// Decides about a flow at the time `now`, in seconds since 1970: the first rule that matches,
    /// else the policy inside the network. Without rules that are understood nothing passes.
    ///
    /// If the port of a flow is not known, a rule with ports that denies matches, and one that
    /// allows does not.
    #[must_use]
    pub fn decide(&self, flow: &Flow<'_>, now: u64) -> Decision {
        let Some(rules) = &self.rules else {
            return Decision {
                policy: Policy::Deny,
                reason: Reason::NotUnderstood,
            };
        };
        let matching = rules.iter().enumerate().find(|(_, rule)| rule.matches(flow, now));
        match matching {
            Some((index, rule)) => Decision {
                policy: rule.policy,
                reason: Reason::Rule(index),
            },
            None => Decision {
                policy: self.inside,
                reason: Reason::Default,
            },
        }
    }
}

impl Rule {
    /// Returns true if the rule is about a flow at the time `now`, in seconds since 1970.
    #[must_use]
    pub fn matches(&self, flow: &Flow<'_>, now: u64) -> bool {
        let service = |service: &Service| service.matches(flow, self.policy);
        self.until.is_none_or(|until| now <= until)
            && self.from.holds(&flow.from)
            && self.to.holds(&flow.to)
            && self.service.as_ref().is_none_or(service)
    }
}

impl Selector {
    fn holds(&self, party: &Party<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Tag(tag) => party.tags.contains(tag),
            Self::Member(key) => *key == party.key,
            // A party is one of one network, which has no rule of this kind.
            Self::TagOf(..) => false,
        }
    }
}

impl Target {
    fn holds(&self, destination: &Destination<'_>) -> bool {
        match destination {
            Destination::Member(party) => matches!(self, Self::Members(members) if members.holds(party)),
            Destination::Route(address) => self.holds_address(*address),
            Destination::Exit => matches!(self, Self::Exit | Self::Members(Selector::Any)),
        }
    }
}

impl Service {
    fn matches(&self, flow: &Flow<'_>, policy: Policy) -> bool {
        if !self.protocol.matches(flow.protocol) {
            return false;
        }
        if self.ports.is_empty() {
            return true;
        }
        let within = |port| self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port));
        flow.port.map_or(policy == Policy::Deny, within)
    }
}
