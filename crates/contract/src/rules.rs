//! What the rules say about packets of each peer, in the form that lanes use: tags and keys are
//! resolved, and rules that have expired are left out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weft_wire::internet::{EXIT_NAMES, is_of_internet};
use weft_wire::ip::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};
use weft_wire::{NodeAddr, Subnet};

/// The rules for all peers.
#[derive(Debug)]
pub struct Policy {
    generation: u64,
    me: NodeAddr,
    peers: BTreeMap<NodeAddr, PeerRules>,
}

/// The rules for the packets of one peer, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeerRules {
    /// Local rules that deny: the first ones.
    pub deny: RuleSet,
    /// Local rules that allow.
    pub allow: RuleSet,
    /// The rules of each network that the peer and this node are members of.
    pub networks: Vec<NetworkRules>,
    /// The subnets of this node that a peer exchanges packets with which was added by hand; `None` for
    /// other peers.
    pub by_hand: Option<Arc<[Subnet]>>,
    /// The addresses of this node and the subnets behind it, if it is an exit: packets to others
    /// pass if a network allows it. `None`: it is none, and has each address that arrives here.
    pub ours: Option<Arc<[Subnet]>>,
    /// All addresses of this host, ascending, with those of the broadcasts in its subnets: they are the
    /// node, whatever interface has them.
    pub host: Arc<[IpAddr]>,
    /// Whether this node sends to all other addresses by the peer.
    pub by_exit: bool,
    /// The addresses of guests behind the peer, each with the address that the rules for its packets are under.
    pub guests: Arc<BTreeMap<Ipv4Addr, NodeAddr>>,
    /// The addresses of guests behind this node, each with the origin of its network: no packets but those of that
    /// network pass to them.
    pub guests_here: Arc<BTreeMap<Ipv4Addr, u16>>,
    /// Whether the peer is a guest: it has no address of IPv6.
    pub is_guest: bool,
}

/// The rules of a network for the packets of one of its members.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkRules {
    /// The network that they are of: its place among those that the policy is made of.
    pub origin: u16,
    /// The IPv4 addresses in the network.
    pub ipv4: Option<Addresses>,
    /// The subnets behind this node that the network knows.
    pub ours: Arc<[Subnet]>,
    /// The subnets behind the peer that the network knows.
    pub theirs: Arc<[Subnet]>,
    /// The rules.
    pub rules: RuleSet,
    /// Whether packets pass that no rule matches.
    pub inside: bool,
    /// Whether this node is an exit of the network.
    pub exit: bool,
}

/// The IPv4 addresses of both ends in one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// That of this node.
    pub ours: Ipv4Addr,
    /// That of the peer.
    pub theirs: Ipv4Addr,
}

/// Rules that many peers share.
pub type RuleList = Arc<[Rule]>;

/// The rules of a list that are about one peer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RuleSet {
    /// All rules.
    pub list: RuleList,
    /// The places of those about this peer in the list, ascending.
    pub chosen: Arc<[u16]>,
}

/// A rule about packets of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its place among all rules of its origin, which has more than those about packets to this node.
    pub origin: u16,
    /// Whether they pass.
    pub allow: bool,
    /// Their destinations.
    pub to: Scope,
    /// Their protocol.
    pub protocol: Protocol,
    /// Destination ports, both ends of each range included; empty for all.
    pub ports: PortRanges,
}

/// Ranges of ports, both ends included.
pub type PortRanges = Box<[(u16, u16)]>;

/// A set of destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// This node, the subnets and guests behind it, and the addresses behind this exit.
    Any,
    /// The addresses of this node, with all those of its host.
    Node,
    /// A subnet behind this node, without the guests that have an address in it.
    Subnet(Subnet),
    /// Guests behind this node: their addresses, ascending.
    Guests(Arc<[Ipv4Addr]>),
    /// All addresses but those of nodes and the subnets and guests behind them: this node is an exit.
    Exit,
}

/// The destination of a packet, as a set: an address of this host in a subnet behind this node is both, so
/// rules about either are about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct To(u8);

impl To {
    const NODE: Self = Self(1);
    const SUBNET: Self = Self(2);
    const NODE_IN_SUBNET: Self = Self(3);
    const EXIT: Self = Self(4);
    const GUEST: Self = Self(8);

    /// Whether it is one of these.
    const fn is(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

/// The port of queries for names, as rules see those to an exit (RFC 1035 section 4.2).
const DNS: u16 = 53;

/// A set of protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// All.
    Any,
    /// ICMP and ICMPv6.
    Icmp,
    /// One, by its number.
    Number(u8),
}

/// What rules look at in the first packet of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub dest: IpAddr,
    /// The protocol of its transport header, by its number.
    pub protocol: u8,
    /// Its destination port, if it is one of TCP or UDP that shows it.
    pub port: Option<u16>,
}

/// Why a flow passes or not: one origin of rules that has a say. Origins are named as in [`Rule::origin`] and
/// [`NetworkRules::origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing: no network and no configuration joins its ends, so it does not pass.
    Apart,
    /// The local rules, of which this one decides.
    Local {
        /// The rule.
        rule: u16,
        /// Whether the flow passes.
        allow: bool,
    },
    /// A network that joins the ends. One that allows the flow decides.
    Network {
        /// The network.
        network: u16,
        /// Its first rule that matches; `None`: none does, and its default says what follows.
        rule: Option<u16>,
        /// Whether the network allows the flow.
        allow: bool,
    },
    /// The configuration, which has the peer: the flow passes.
    ByHand,
}

impl Policy {
    /// Makes a policy of the node `me`. `generation` is above that of every earlier one.
    #[must_use]
    pub const fn new(me: NodeAddr, generation: u64, peers: BTreeMap<NodeAddr, PeerRules>) -> Self {
        Self { generation, me, peers }
    }

    /// Returns a number that is above that of every earlier policy.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the address of this node.
    #[must_use]
    pub const fn me(&self) -> NodeAddr {
        self.me
    }

    /// Returns the peers that have rules.
    pub fn peers(&self) -> impl Iterator<Item = NodeAddr> {
        self.peers.keys().copied()
    }

    /// Returns whether there are rules for packets of this peer.
    #[must_use]
    pub fn knows(&self, peer: NodeAddr) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Returns whether this node sends to all other addresses by this peer.
    #[must_use]
    pub fn is_exit(&self, peer: NodeAddr) -> bool {
        self.peers.get(&peer).is_some_and(|rules| rules.by_exit)
    }

    /// Returns whether the rules allow the flow that a packet of a peer with these properties begins.
    #[must_use]
    pub fn allows(&self, peer: NodeAddr, facts: &Facts) -> bool {
        let speaker = self.speaker(peer, facts.source);
        speaker.is_some_and(|(peer, rules)| rules.decide((self.me, peer), facts, |_| ()))
    }

    /// Returns the party that has `address` in the session with a peer, and its rules: a guest behind the peer, or
    /// the peer itself. Returns `None` for a party without rules, and for a guest with an IPv6 address.
    fn speaker(&self, peer: NodeAddr, address: IpAddr) -> Option<(NodeAddr, &PeerRules)> {
        let rules = self.peers.get(&peer)?;
        match rules.guest_behind(address) {
            Some(guest) => Some((guest, self.peers.get(&guest)?)),
            None => (!rules.is_guest || address.is_ipv4()).then_some((peer, rules)),
        }
    }

    /// Returns whether a packet from `source` may go to a peer: the source is this node in a network that
    /// both are in, or a subnet or guest behind it there, or in the configuration if the peer is, too. To those that
    /// this node serves as exit go answers from all other addresses, and errors about those that it refuses.
    #[must_use]
    pub fn may_leave(&self, peer: NodeAddr, (source, dest): (IpAddr, IpAddr)) -> bool {
        let is_ours = |rules: &PeerRules| rules.networks.iter().any(|network| network.is_ours(source));
        let may = |(peer, rules): (NodeAddr, &PeerRules)| {
            rules.joins((self.me, peer), source, dest)
                || rules.by_exit && is_ours(rules)
                || rules.serves(peer, dest) && [To::EXIT, To::NODE].contains(&rules.destination(self.me, source))
        };
        source == IpAddr::V6(self.me.to_ipv6()) || self.speaker(peer, dest).is_some_and(may)
    }

    /// Returns whether an error about a packet with these ends, source first, reveals nothing to the peer
    /// that sent it: the peer may know of the destination, or this node is an exit for the source, and as
    /// such refuses all that is not of the Internet alike.
    #[must_use]
    pub fn concerns(&self, peer: NodeAddr, (source, dest): (IpAddr, IpAddr)) -> bool {
        let concerns = |(peer, rules): (NodeAddr, &PeerRules)| {
            rules.joins((self.me, peer), dest, source) || rules.serves(peer, source) && !is_of_internet(dest)
        };
        self.speaker(peer, source).is_some_and(concerns)
    }
}

impl PeerRules {
    /// Whether the flow passes that a packet of the peer begins, `ends` being this node and the peer. `tell`
    /// hears of each origin of rules that has a say, in their order; the last one decides.
    pub fn decide(&self, ends: (NodeAddr, NodeAddr), facts: &Facts, mut tell: impl FnMut(Reason)) -> bool {
        let (me, peer) = ends;
        if !self.joins(ends, facts.dest, facts.source) {
            // No local rule leads from one network into another.
            tell(Reason::Apart);
            return false;
        }
        let for_names = self.asked_for_names(me, facts);
        let (facts, to) = match &for_names {
            Some(query) => (query, To::EXIT),
            None => (facts, self.destination(me, facts.dest)),
        };
        if let Some(rule) = self.deny.first(facts, to).or_else(|| self.allow.first(facts, to)) {
            tell(Reason::Local {
                rule: rule.origin,
                allow: rule.allow,
            });
            return rule.allow;
        }
        let by_exit = for_names.is_some() || self.leads_by_exit(to, facts.dest);
        let concerns = |network: &&NetworkRules| {
            let joins = to != To::EXIT && self.joins_in(network, me, facts.dest, facts.source);
            joins || by_exit && network.serves(peer, facts.source)
        };
        let mut concerned = self.networks.iter().filter(concerns).peekable();
        if concerned.peek().is_none() {
            let passes = to != To::EXIT && self.by_hand.is_some();
            tell(if passes { Reason::ByHand } else { Reason::Apart });
            return passes;
        }
        // A flow passes if one common network allows it.
        concerned.any(|network| {
            let rule = network.rules.first(facts, to);
            let allow = rule.map_or(network.inside, |rule| rule.allow);
            tell(Reason::Network {
                network: network.origin,
                rule: rule.map(|rule| rule.origin),
                allow,
            });
            allow
        })
    }

    /// Whether packets pass between these addresses unless a rule denies them: one of this node or
    /// behind it, and one of the peer or behind it.
    fn joins(&self, (me, peer): (NodeAddr, NodeAddr), ours: IpAddr, theirs: IpAddr) -> bool {
        let by_hand = self.by_hand.as_ref();
        let in_subnets = |subnets: &Arc<[Subnet]>| within(subnets, ours) && self.network_of_guest(ours).is_none();
        by_hand.is_some_and(|subnets| self.is_own(me, ours) || in_subnets(subnets))
            || self
                .networks
                .iter()
                .any(|network| self.joins_in(network, me, ours, theirs))
            || self.serves(peer, theirs) && self.leads_by_exit(self.destination(me, ours), ours)
    }

    /// Whether packets pass in a network between these addresses: [`NetworkRules::joins`], or the first is that of
    /// a guest of the network.
    fn joins_in(&self, network: &NetworkRules, me: NodeAddr, ours: IpAddr, theirs: IpAddr) -> bool {
        match self.network_of_guest(ours) {
            Some(origin) => origin == network.origin && network.is_theirs(theirs),
            None => network.joins(me, ours, theirs),
        }
    }

    /// The guest behind the peer with this address.
    #[inline]
    fn guest_behind(&self, address: IpAddr) -> Option<NodeAddr> {
        by_ipv4(&self.guests, address)
    }

    /// The origin of the network whose guest with this address is behind this node.
    #[inline]
    fn network_of_guest(&self, address: IpAddr) -> Option<u16> {
        by_ipv4(&self.guests_here, address)
    }

    /// Whether this node is an exit for packets of the peer with this address.
    fn serves(&self, peer: NodeAddr, theirs: IpAddr) -> bool {
        self.networks.iter().any(|network| network.serves(peer, theirs))
    }

    /// Whether those that this node serves as exit send to this address: one of the Internet, be it the
    /// host's own.
    fn leads_by_exit(&self, to: To, dest: IpAddr) -> bool {
        self.ours.is_some() && [To::EXIT, To::NODE].contains(&to) && is_of_internet(dest)
    }

    /// A query for names to this exit as one to port 53 behind it: who may use the exit may ask it, and
    /// no other peer.
    fn asked_for_names(&self, me: NodeAddr, facts: &Facts) -> Option<Facts> {
        let is_query = facts.port == Some(EXIT_NAMES) && self.ours.is_some() && self.is_own(me, facts.dest);
        is_query.then_some(Facts {
            port: Some(DNS),
            ..*facts
        })
    }

    /// Whether this is an address of this node in the mesh.
    fn is_own(&self, me: NodeAddr, address: IpAddr) -> bool {
        address == IpAddr::V6(me.to_ipv6()) || self.networks.iter().any(|network| network.is_ours(address))
    }

    fn destination(&self, me: NodeAddr, dest: IpAddr) -> To {
        if self.is_own(me, dest) {
            return To::NODE;
        }
        if self.network_of_guest(dest).is_some() {
            return To::GUEST;
        }
        let is_host = self.host.binary_search(&dest).is_ok();
        let behind = |network: &NetworkRules| within(&network.ours, dest);
        match &self.ours {
            Some(ours) if !within(ours, dest) && !self.networks.iter().any(behind) => match is_host {
                true => To::NODE,
                false => To::EXIT,
            },
            _ if is_host => To::NODE_IN_SUBNET,
            _ => To::SUBNET,
        }
    }
}

impl NetworkRules {
    fn is_ours(&self, address: IpAddr) -> bool {
        self.ipv4.is_some_and(|ends| IpAddr::V4(ends.ours) == address)
    }

    /// Whether packets pass in this network between these addresses: one of this node or behind it,
    /// and one of the peer or behind it, each an address that it has here.
    fn joins(&self, me: NodeAddr, ours: IpAddr, theirs: IpAddr) -> bool {
        let node = ours == IpAddr::V6(me.to_ipv6()) || self.is_ours(ours) || within(&self.ours, ours);
        self.is_theirs(theirs) && node
    }

    /// Whether the peer has this address here, or it is behind the peer.
    fn is_theirs(&self, address: IpAddr) -> bool {
        let has = self.ipv4.is_some_and(|ends| IpAddr::V4(ends.theirs) == address);
        address.is_ipv6() || has || within(&self.theirs, address)
    }

    /// Whether this node is an exit for packets of the peer with this address: only members reach an
    /// exit, each under an address of its own, so answers go nowhere else.
    fn serves(&self, peer: NodeAddr, theirs: IpAddr) -> bool {
        let is_theirs = self.ipv4.is_some_and(|ends| IpAddr::V4(ends.theirs) == theirs);
        self.exit && (is_theirs || theirs == IpAddr::V6(peer.to_ipv6()))
    }
}

/// The value of an address of IPv4.
#[inline]
fn by_ipv4<T: Copy>(values: &BTreeMap<Ipv4Addr, T>, address: IpAddr) -> Option<T> {
    match address {
        IpAddr::V4(address) if !values.is_empty() => values.get(&address).copied(),
        _ => None,
    }
}

fn within(subnets: &[Subnet], address: IpAddr) -> bool {
    subnets.iter().any(|subnet| subnet.contains(address))
}

/// Whether an address is one of these, which ascend.
fn is_among(all: &[Ipv4Addr], address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if all.binary_search(&address).is_ok())
}

impl RuleSet {
    /// The first rule that matches.
    fn first(&self, facts: &Facts, to: To) -> Option<&Rule> {
        let mut rules = self.chosen.iter().filter_map(|at| self.list.get(usize::from(*at)));
        rules.find(|rule| rule.matches(facts, to))
    }
}

impl Rule {
    fn matches(&self, facts: &Facts, to: To) -> bool {
        let to = match &self.to {
            Scope::Any => true,
            Scope::Node => to.is(To::NODE),
            Scope::Subnet(subnet) => to.is(To::SUBNET) && subnet.contains(facts.dest),
            Scope::Guests(guests) => to.is(To::GUEST) && is_among(guests, facts.dest),
            Scope::Exit => to.is(To::EXIT),
        };
        let protocol = match self.protocol {
            Protocol::Any => true,
            Protocol::Icmp => matches!(facts.protocol, PROTOCOL_ICMP | PROTOCOL_ICMPV6),
            Protocol::Number(number) => facts.protocol == number,
        };
        let within = |port| self.ports.iter().any(|(first, last)| (*first..=*last).contains(&port));
        // If a packet does not show its port, a rule that denies some matches, and one that allows
        // some does not.
        to && protocol && (self.ports.is_empty() || facts.port.map_or(!self.allow, within))
    }
}

#[cfg(test)]
mod tests;
