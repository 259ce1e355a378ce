//! Reading a rule.

use std::str::{FromStr, SplitAsciiWhitespace};

use thiserror::Error;
use weft_noise::{KeyError, PublicKey};
use weft_wire::Subnet;

use crate::key::routable;
use crate::names::{Name, NameError};

use super::{MAX_RANGES, Policy, Protocol, Rule, Selector, Service, Target};

/// The reason why a text is not a [`Rule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The rule does not begin with its policy.
    #[error("a rule begins with `allow` or `deny`")]
    Policy,
    /// `from` is missing.
    #[error("the word `from` follows `allow` or `deny`")]
    From,
    /// `to` is missing.
    #[error("the word `to` follows the members that the rule is for")]
    To,
    /// A member or tag is missing behind `from` or `to`.
    #[error("`{0}` is followed by `any`, `tag:NAME` or `npub1...`")]
    Missing(&'static str),
    /// A member is not a public key.
    #[error("a member is `any`, `tag:NAME` or `npub1...`: {0}")]
    Member(KeyError),
    /// A tag has a name that is none.
    #[error("the name of the tag: {0}")]
    Tag(NameError),
    /// `route:` without a subnet that may be routed.
    #[error("`route:` is followed by a subnet, such as 192.168.7.0/24, without bits behind the prefix")]
    Route,
    /// `route:` or `exit` behind `from`.
    #[error("a flow comes from a member, not from a route or an exit")]
    NotASource,
    /// Not a protocol.
    #[error("a protocol is `tcp`, `udp`, `icmp` or a number from 0 to 255")]
    Protocol,
    /// Ports of a protocol without them.
    #[error("only `tcp` and `udp` have ports")]
    NoPorts,
    /// Not a port, or a range that ends before it begins.
    #[error("a port is a number from 0 to 65535, a range two of them with `-`, the lower one first")]
    Port,
    /// More ranges than a rule may have.
    #[error("a rule has at most {MAX_RANGES} ranges of ports")]
    TooManyPorts,
    /// `until` without a time.
    #[error("`until` is followed by a time in seconds since 1970")]
    Until,
    /// Words behind the end.
    #[error("the rule has words behind its end")]
    Rest,
}

impl Policy {
    /// Reads `allow` or `deny`.
    ///
    /// # Errors
    /// [`RuleError::Policy`] for any other text.
    pub fn read(text: &str) -> Result<Self, RuleError> {
        match text {
            "allow" => Ok(Self::Allow),
            "deny" => Ok(Self::Deny),
            _ => Err(RuleError::Policy),
        }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    /// Reads a rule of a network. Words are separated by white space.
    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::read(text, selector)
    }
}

impl Rule {
    /// Reads a rule of a configuration, in which a tag may be that of one network, as `tag:home/family`.
    ///
    /// # Errors
    /// [`RuleError`]
    pub fn local(text: &str) -> Result<Self, RuleError> {
        Self::read(text, |word| {
            match word.strip_prefix("tag:").and_then(|tag| tag.split_once('/')) {
                Some((network, tag)) => {
                    let [network, tag] = [network, tag].map(|name| Name::label(name).map_err(RuleError::Tag));
                    Ok(Selector::TagOf(network?, tag?))
                }
                None => selector(word),
            }
        })
    }

    fn read(text: &str, selector: impl Fn(&str) -> Result<Selector, RuleError>) -> Result<Self, RuleError> {
        let mut words = text.split_ascii_whitespace();
        let policy = Policy::read(words.next().ok_or(RuleError::Policy)?)?;
        expect(&mut words, "from", RuleError::From)?;
        let from = selector(words.next().ok_or(RuleError::Missing("from"))?)?;
        expect(&mut words, "to", RuleError::To)?;
        let to = target(words.next().ok_or(RuleError::Missing("to"))?, selector)?;
        let mut next = words.next();
        let service = match next {
            Some("until") | None => None,
            Some(word) => {
                next = words.next();
                Some(service(word)?)
            }
        };
        let until = match next {
            None => None,
            Some("until") => {
                let time = words.next().and_then(decimal);
                Some(time.ok_or(RuleError::Until)?)
            }
            Some(_) => return Err(RuleError::Rest),
        };
        match words.next() {
            Some(_) => Err(RuleError::Rest),
            None => Ok(Self {
                policy,
                from,
                to,
                service,
                until,
            }),
        }
    }
}

fn expect(words: &mut SplitAsciiWhitespace<'_>, word: &str, error: RuleError) -> Result<(), RuleError> {
    if words.next() == Some(word) { Ok(()) } else { Err(error) }
}

fn selector(word: &str) -> Result<Selector, RuleError> {
    if word == "any" {
        return Ok(Selector::Any);
    }
    if let Some(tag) = word.strip_prefix("tag:") {
        return Name::label(tag).map(Selector::Tag).map_err(RuleError::Tag);
    }
    if word == "exit" || word.starts_with("route:") {
        return Err(RuleError::NotASource);
    }
    word.parse::<PublicKey>()
        .map(Selector::Member)
        .map_err(RuleError::Member)
}

fn target(word: &str, selector: impl Fn(&str) -> Result<Selector, RuleError>) -> Result<Target, RuleError> {
    if word == "exit" {
        return Ok(Target::Exit);
    }
    if let Some(prefix) = word.strip_prefix("route:") {
        let prefix: Subnet = prefix.parse().map_err(|_| RuleError::Route)?;
        return routable(prefix).map(Target::Route).map_err(|_| RuleError::Route);
    }
    selector(word).map(Target::Members)
}

fn service(word: &str) -> Result<Service, RuleError> {
    let (protocol, ports) = match word.split_once('/') {
        Some((protocol, ports)) => (protocol, Some(ports)),
        None => (word, None),
    };
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "icmp" => Protocol::Icmp,
        number => match decimal(number).and_then(|number| u8::try_from(number).ok()) {
            Some(6) => Protocol::Tcp,
            Some(17) => Protocol::Udp,
            Some(number) => Protocol::Number(number),
            None => return Err(RuleError::Protocol),
        },
    };
    let Some(ports) = ports else {
        return Ok(Service {
            protocol,
            ports: Vec::new(),
        });
    };
    if !protocol.has_ports() {
        return Err(RuleError::NoPorts);
    }
    let ports: Vec<(u16, u16)> = ports.split(',').map(range).collect::<Result<_, _>>()?;
    if ports.len() > MAX_RANGES {
        return Err(RuleError::TooManyPorts);
    }
    Ok(Service { protocol, ports })
}

fn range(text: &str) -> Result<(u16, u16), RuleError> {
    let port = |text| {
        let number = decimal(text).and_then(|number| u16::try_from(number).ok());
        number.ok_or(RuleError::Port)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    if first <= last {
        Ok((first, last))
    } else {
        Err(RuleError::Port)
    }
}

/// Parses a number of digits alone; the parser of the standard library takes a sign, too.
fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}
