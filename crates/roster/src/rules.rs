//! Rules: which flows pass inside a network.
//!
//! A rule is one line of text:
//!
//! ```text
//! allow from tag:family to npub1... tcp/22,8000-8080 until 1790000000
//! deny  from any        to route:192.168.7.0/24
//! ```
//!
//! [`Table::decide`] applies the rules of a network in their order.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_wire::Subnet;

use crate::names::Name;

mod decide;
mod parse;

pub use decide::{Decision, Destination, Flow, Party, Reason, Table};
pub use parse::RuleError;

/// Rules of one network, at most.
pub const MAX_RULES: usize = 1_000;

/// Ranges of ports in one rule, at most.
pub const MAX_RANGES: usize = 16;

/// Whether a flow passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// It passes.
    Allow,
    /// It does not.
    Deny,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What is done with a flow that the rule matches.
    pub policy: Policy,
    /// The members that the rule is for.
    pub from: Selector,
    /// The destinations that the rule is for.
    pub to: Target,
    /// The protocol and ports, or all.
    pub service: Option<Service>,
    /// The last second, since 1970, in which the rule matches anything.
    pub until: Option<u64>,
}

/// A set of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// `any`: every member.
    Any,
    /// `tag:NAME`: the members with a tag.
    Tag(Name),
    /// `npub1...`: one member.
    Member(PublicKey),
    /// `tag:NETWORK/NAME`: the members of one network with a tag. Only rules of a configuration have it
    /// ([`Rule::local`]); a network is named by its label or its identifier.
    TagOf(Name, Name),
}

/// A set of destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Members, at their own addresses. `any` is every destination: members, routes and exits.
    Members(Selector),
    /// `route:PREFIX`: the addresses of a subnet behind any member.
    Route(Subnet),
    /// `exit`: everything behind an exit.
    Exit,
}

/// What travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The protocol.
    pub protocol: Protocol,
    /// Ranges of destination ports, both ends included; empty for all.
    pub ports: Vec<(u16, u16)>,
}

/// An IP protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
    /// `icmp`: ICMP and ICMPv6.
    Icmp,
    /// Any other one, by its number.
    Number(u8),
}

impl Protocol {
    /// Returns true if the number in an IP header means this protocol.
    #[must_use]
    pub const fn matches(self, number: u8) -> bool {
        match self {
            Self::Tcp => number == 6,
            Self::Udp => number == 17,
            Self::Icmp => number == 1 || number == 58,
            Self::Number(own) => number == own,
        }
    }

    /// Returns true if the protocol has ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Tag(tag) => write!(f, "tag:{tag}"),
            Self::Member(key) => write!(f, "{key}"),
            Self::TagOf(network, tag) => write!(f, "tag:{network}/{tag}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(members) => write!(f, "{members}"),
            Self::Route(prefix) => write!(f, "route:{prefix}"),
            Self::Exit => f.write_str("exit"),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Icmp => f.write_str("icmp"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.protocol)?;
        for (at, (first, last)) in self.ports.iter().enumerate() {
            f.write_str(if at == 0 { "/" } else { "," })?;
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.policy, self.from, self.to)?;
        if let Some(service) = &self.service {
            write!(f, " {service}")?;
        }
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        Ok(())
    }
}

impl Target {
    /// Returns true if an address behind some member is in the set.
    fn holds_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Route(prefix) => prefix.contains(address),
            Self::Members(Selector::Any) => true,
            Self::Members(_) | Self::Exit => false,
        }
    }
}

#[cfg(test)]
mod tests;
