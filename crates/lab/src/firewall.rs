//! A firewall in front of a host or a network: it stands at one end of a cable and drops frames by
//! [`FirewallRules`]. It sends nothing, so both sides see silence.
//!
//! Pure: frames in, decisions out; times are milliseconds. The cable's
//! [emulator](crate::emulator) asks it about each frame. `flow` reads the headers.

mod flow;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use self::flow::{Content, Flow, Transport};
use crate::nat::MappingLife;

/// Flows that are known at the same time; packets that would open more do so in vain.
pub const MAX_FLOWS: usize = 65_536;

/// Milliseconds between removals of expired flows.
const SWEEP: u64 = 1000;

/// What a firewall drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirewallRules {
    /// The packets that enter.
    pub inbound: Inbound,
    /// Whether UDP passes, in both directions.
    pub udp: bool,
    /// Whether these rules apply to IPv4; otherwise it passes.
    pub ipv4: bool,
    /// Whether these rules apply to IPv6; otherwise it passes.
    pub ipv6: bool,
    /// How long a flow lasts without packets; the time for echo is that of all other protocols too.
    pub life: MappingLife,
}

/// The packets that a firewall lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inbound {
    /// All.
    All,
    /// Only those of a flow that began inside, and ICMP errors about its packets (RFC 6092).
    Answers,
}

impl Default for FirewallRules {
    /// No packet is dropped.
    fn default() -> Self {
        Self {
            inbound: Inbound::All,
            udp: true,
            ipv4: true,
            ipv6: true,
            life: MappingLife::default(),
        }
    }
}

/// A direction through a firewall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the protected side.
    Out,
    /// To the protected side.
    In,
}

/// Frames that were dropped so far; a super-frame counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FirewallCounts {
    /// On their way in.
    pub dropped_in: u64,
    /// On their way out.
    pub dropped_out: u64,
}

/// A firewall.
#[derive(Debug)]
pub struct Firewall {
    rules: FirewallRules,
    /// When each flow that began inside was last used.
    flows: BTreeMap<Key, u64>,
    swept: u64,
    counts: FirewallCounts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    transport: Transport,
    inside: SocketAddr,
    outside: SocketAddr,
}

impl Firewall {
    /// A firewall that knows no flow.
    #[must_use]
    pub fn new(rules: FirewallRules) -> Self {
        Self {
            rules,
            flows: BTreeMap::new(),
            swept: 0,
            counts: FirewallCounts::default(),
        }
    }

    /// Decides about an Ethernet frame, of which the headers suffice, and counts it if it is to be
    /// dropped. Frames other than IP, and the messages by which IPv6 neighbours find each other,
    /// always pass.
    pub fn admits(&mut self, now: u64, way: Way, frame: &[u8]) -> bool {
        self.sweep(now);
        let admitted = match flow::read(frame) {
            Content::Other => true,
            Content::Packet { ipv6, .. } if !self.applies(ipv6) => true,
            Content::Packet { transport, .. } if transport == Some(Transport::Udp) && !self.rules.udp => false,
            Content::Packet { flow, .. } if self.rules.inbound == Inbound::Answers => self.follows(now, way, flow),
            Content::Packet { .. } => true,
        };
        if !admitted {
            match way {
                Way::In => self.counts.dropped_in += 1,
                Way::Out => self.counts.dropped_out += 1,
            }
        }
        admitted
    }

    /// The frames that were dropped so far.
    #[must_use]
    pub fn counts(&self) -> FirewallCounts {
        self.counts
    }

    fn applies(&self, ipv6: bool) -> bool {
        if ipv6 { self.rules.ipv6 } else { self.rules.ipv4 }
    }

    /// Whether a packet may pass where only answers enter.
    fn follows(&mut self, now: u64, way: Way, flow: Option<Flow>) -> bool {
        let Some(flow) = flow else {
            // A packet without ports, as a later fragment, may leave. It never counts as an answer.
            return way == Way::Out;
        };
        // An error quotes a packet of the other direction.
        let from_inside = (way == Way::Out) != flow.is_error;
        let key = match from_inside {
            true => Key {
                transport: flow.transport,
                inside: flow.source,
                outside: flow.destination,
            },
            false => Key {
                transport: flow.transport,
                inside: flow.destination,
                outside: flow.source,
            },
        };
        let life = self.life(flow.transport);
        let known = self.flows.get(&key).is_some_and(|at| now.saturating_sub(*at) < life);
        match way {
            Way::Out => {
                let opens = flow.opens && !flow.is_error && (known || self.flows.len() < MAX_FLOWS);
                if opens {
                    self.flows.insert(key, now);
                }
                true
            }
            Way::In if flow.is_error => known,
            Way::In => {
                let admitted = known && flow.answers;
                if admitted {
                    self.flows.insert(key, now);
                }
                admitted
            }
        }
    }

    fn sweep(&mut self, now: u64) {
        if now.saturating_sub(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let rules = self.rules;
        let is_live = |key: &Key, at: u64| now.saturating_sub(at) < life(&rules, key.transport);
        self.flows.retain(|key, at| is_live(key, *at));
    }

    fn life(&self, transport: Transport) -> u64 {
        life(&self.rules, transport)
    }
}

fn life(rules: &FirewallRules, transport: Transport) -> u64 {
    match transport {
        Transport::Udp => rules.life.udp_ms,
        Transport::Tcp => rules.life.tcp_ms,
        Transport::Echo | Transport::Other(_) => rules.life.echo_ms,
    }
}

#[cfg(test)]
mod tests;
