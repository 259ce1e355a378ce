//! What the rules of nftables do with a packet, as far as they can be followed. Pure.
//!
//! A condition that is not known here may hold or not. Both are followed, and a packet counts as
//! dropped only if it is dropped either way, so that a fault is never a guess.

mod condition;
mod nat;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

/// Jumps from chain to chain that are followed.
const DEPTH: usize = 16;

/// Where a packet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// On its way to a program of this host.
    Input,
    /// On its way through this host.
    Forward,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Forward => "forward",
        }
    }
}

/// A packet. What is `None` may be anything.
#[derive(Clone, Debug)]
pub struct Packet {
    hook: Hook,
    ipv6: Option<bool>,
    /// The interfaces that it comes in by, and leaves by.
    incoming: Option<String>,
    outgoing: Option<String>,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    protocol: Option<&'static str>,
    port: Option<u16>,
    /// Whether it belongs to a connection that packets in the other direction have begun.
    answers: bool,
}

impl Packet {
    /// A datagram to a port of this host.
    #[must_use]
    pub const fn udp(port: u16) -> Self {
        Self {
            hook: Hook::Input,
            ipv6: None,
            incoming: None,
            outgoing: None,
            source: None,
            destination: None,
            protocol: Some("udp"),
            port: Some(port),
            answers: false,
        }
    }

    /// The same packet, coming in on an interface.
    #[must_use]
    pub fn by(self, interface: &str) -> Self {
        Self {
            incoming: Some(interface.to_owned()),
            ..self
        }
    }

    /// An echo request over IPv6 that comes in on an interface.
    #[must_use]
    pub fn echo(interface: &str) -> Self {
        Self {
            ipv6: Some(true),
            incoming: Some(interface.to_owned()),
            protocol: Some("ipv6-icmp"),
            port: None,
            ..Self::udp(0)
        }
    }

    /// The first packet of a connection that this host forwards from one interface to another.
    #[must_use]
    pub fn forwarded(incoming: &str, outgoing: &str, destination: IpAddr) -> Self {
        Self {
            hook: Hook::Forward,
            ipv6: Some(destination.is_ipv6()),
            incoming: Some(incoming.to_owned()),
            outgoing: Some(outgoing.to_owned()),
            source: None,
            destination: Some(destination),
            protocol: None,
            port: None,
            answers: false,
        }
    }

    /// The same packet from this address.
    #[must_use]
    pub fn from(self, source: IpAddr) -> Self {
        Self {
            source: Some(source),
            ..self
        }
    }

    /// An answer to [`forwarded`](Self::forwarded) packets, which goes the other way.
    #[must_use]
    pub fn answer(&self) -> Self {
        Self {
            incoming: self.outgoing.clone(),
            outgoing: self.incoming.clone(),
            source: None,
            destination: None,
            answers: true,
            ..self.clone()
        }
    }
}

/// All rules of nftables, those among them that iptables has written.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    chains: Vec<Chain>,
}

#[derive(Clone, Debug)]
struct Chain {
    /// Family and table.
    table: (String, String),
    name: String,
    /// The hook that packets come from, unless they come from other chains alone.
    hook: Option<String>,
    /// If packets get another source here as they leave the host: its priority, the lowest goes first.
    sources: Option<i64>,
    /// Whether packets are dropped that no rule decides.
    drops: bool,
    rules: Vec<Rule>,
}

impl Chain {
    /// Whether it is asked about packets of this version of IP, and its table is none of `except`.
    fn takes(&self, packet: &Packet, except: &[&str]) -> bool {
        let (family, table) = (self.table.0.as_str(), self.table.1.as_str());
        let is_of_version = match family {
            "inet" => true,
            "ip" => packet.ipv6 != Some(true),
            "ip6" => packet.ipv6 != Some(false),
            _ => false,
        };
        is_of_version && !except.contains(&table)
    }
}

#[derive(Clone, Debug)]
struct Rule {
    expressions: Vec<Value>,
    /// The rule in the language of nft(8), if that is known.
    text: Option<String>,
}

/// What may become of a packet: more than one of them if that depends on what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcomes {
    accepted: bool,
    dropped: bool,
    /// The next rule is asked.
    falls: bool,
    /// The rest of the chain is left out.
    returns: bool,
}

impl Outcomes {
    const ACCEPTED: Self = Self::new(true, false, false, false);
    const DROPPED: Self = Self::new(false, true, false, false);
    const RETURNS: Self = Self::new(false, false, false, true);
    const UNKNOWN: Self = Self::new(true, true, true, false);

    const fn new(accepted: bool, dropped: bool, falls: bool, returns: bool) -> Self {
        Self {
            accepted,
            dropped,
            falls,
            returns,
        }
    }
}

impl Ruleset {
    /// Reads what `nft -j list ruleset` prints. `text`: what `nft -a list ruleset` prints, which tells
    /// more about the rules of iptables.
    #[must_use]
    pub fn parse(document: &Value, text: &str) -> Self {
        let word = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let texts = rules_by_handle(text);
        let mut chains: Vec<Chain> = Vec::new();
        for item in document["nftables"].as_array().into_iter().flatten() {
            if let Some(chain) = item.get("chain") {
                chains.push(Chain {
                    table: (word(chain, "family"), word(chain, "table")),
                    name: word(chain, "name"),
                    hook: (chain["type"] == "filter").then(|| word(chain, "hook")),
                    sources: (chain["type"] == "nat" && chain["hook"] == "postrouting")
                        .then(|| chain["prio"].as_i64().unwrap_or_default()),
                    drops: chain["policy"] == "drop",
                    rules: Vec::new(),
                });
            }
            if let Some(rule) = item.get("rule") {
                let (table, name) = ((word(rule, "family"), word(rule, "table")), word(rule, "chain"));
                let chain = chains
                    .iter_mut()
                    .find(|chain| chain.table == table && chain.name == name);
                if let (Some(chain), Some(expressions)) = (chain, rule["expr"].as_array()) {
                    let handle = (table, rule["handle"].as_u64().unwrap_or_default());
                    chain.rules.push(Rule {
                        expressions: expressions.clone(),
                        text: texts.get(&handle).map(|text| (*text).to_owned()),
                    });
                }
            }
        }
        Self { chains }
    }

    /// Whether a document has rules that only their text explains.
    #[must_use]
    pub fn needs_text(document: &str) -> bool {
        document.contains("\"xt\"")
    }

    /// The chain that surely drops the packet, as nft names it: `inet filter input`. The tables in
    /// `except` are left out.
    #[must_use]
    pub fn dropped_by(&self, packet: &Packet, except: &[&str]) -> Option<String> {
        let is_hooked = |chain: &&Chain| chain.hook.as_deref() == Some(packet.hook.name());
        let mut starts = self
            .chains
            .iter()
            .filter(|chain| is_hooked(chain) && chain.takes(packet, except));
        let chain = starts.find(|chain| {
            let Outcomes {
                accepted,
                dropped,
                falls,
                returns,
            } = self.follow(chain, packet, 0);
            let by_policy = falls || returns;
            !(accepted || by_policy && !chain.drops) && (dropped || by_policy)
        })?;
        Some(format!("{} {} {}", chain.table.0, chain.table.1, chain.name))
    }

    /// What the rules of a chain may do.
    fn follow(&self, chain: &Chain, packet: &Packet, depth: usize) -> Outcomes {
        let mut all = Outcomes::default();
        if depth > DEPTH {
            return Outcomes::UNKNOWN;
        }
        for rule in &chain.rules {
            let holds = condition::all_hold(rule, packet);
            if holds == Some(false) {
                continue;
            }
            let mut expressions = rule.expressions.iter();
            let Some(rule) = expressions.find_map(|expression| self.decide(chain, expression, packet, depth)) else {
                continue;
            };
            all.accepted |= rule.accepted;
            all.dropped |= rule.dropped;
            all.returns |= rule.returns;
            if holds == Some(true) && !rule.falls {
                return all;
            }
        }
        Outcomes { falls: true, ..all }
    }

    /// What one statement may do; `None` if it is none that decides.
    fn decide(&self, chain: &Chain, expression: &Value, packet: &Packet, depth: usize) -> Option<Outcomes> {
        let (name, argument) = expression.as_object()?.iter().next()?;
        match name.as_str() {
            "accept" => Some(Outcomes::ACCEPTED),
            "drop" | "reject" => Some(Outcomes::DROPPED),
            "return" => Some(Outcomes::RETURNS),
            "queue" => Some(Outcomes::UNKNOWN),
            "vmap" => Some(self.look_up(chain, argument, packet, depth)),
            "xt" if argument["type"] == "target" => match argument["name"].as_str() {
                Some("REJECT" | "DROP") => Some(Outcomes::DROPPED),
                Some("LOG" | "NFLOG" | "MARK" | "CONNMARK" | "TCPMSS" | "CT" | "TRACE") => None,
                _ => Some(Outcomes::UNKNOWN),
            },
            "jump" | "goto" => {
                let target = argument["target"].as_str()?;
                let mut chains = self.chains.iter();
                let target = chains.find(|known| known.table == chain.table && known.name == target);
                let there = target.map_or(Outcomes::UNKNOWN, |target| self.follow(target, packet, depth + 1));
                let back = there.falls || there.returns;
                Some(match name.as_str() {
                    "jump" => Outcomes::new(there.accepted, there.dropped, back, false),
                    _ => Outcomes::new(there.accepted, there.dropped, false, back),
                })
            }
            _ => None,
        }
    }

    /// What a map from values to verdicts does.
    fn look_up(&self, chain: &Chain, map: &Value, packet: &Packet, depth: usize) -> Outcomes {
        let Some(pairs) = map["data"]["set"].as_array() else {
            return Outcomes::UNKNOWN;
        };
        let mut all = Outcomes::default();
        for pair in pairs {
            let (value, verdict) = (&pair[0], &pair[1]);
            let holds = condition::equals(&map["key"], value, packet);
            if holds == Some(false) {
                continue;
            }
            let one = self.decide(chain, verdict, packet, depth).unwrap_or(Outcomes::UNKNOWN);
            all.accepted |= one.accepted;
            all.dropped |= one.dropped;
            all.returns |= one.returns;
            all.falls |= one.falls;
            if holds == Some(true) {
                return all;
            }
        }
        Outcomes { falls: true, ..all }
    }
}

/// The rules that `nft -a list ruleset` prints, by the family and name of their table and their handle.
fn rules_by_handle(text: &str) -> BTreeMap<((String, String), u64), &str> {
    let mut rules = BTreeMap::new();
    let mut table = (String::new(), String::new());
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["table", family, name, ..] = words[..] {
            table = (family.to_owned(), name.to_owned());
        } else if let Some((rule, handle)) = line.rsplit_once("# handle ")
            && let Ok(handle) = handle.parse()
        {
            rules.insert((table.clone(), handle), rule);
        }
    }
    rules
}

#[cfg(test)]
mod tests;
