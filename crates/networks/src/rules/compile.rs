//! From the rules of networks and of the configuration to those of the packet path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use weft_contract::rules::{self, Addresses, NetworkRules, PeerRules, RuleList, RuleSet, Scope};
use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::rules::{Policy, Protocol, Rule, Selector, Target};
use weft_wire::{NodeAddr, Subnet};

use super::local;
use crate::{Network, Networks};

/// The rules for the packet path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compiled {
    /// The rules for the packets of each peer; `None` if all packets pass.
    pub peers: Option<BTreeMap<NodeAddr, PeerRules>>,
    /// When a rule ends, in seconds since 1970: the rules have to be compiled again.
    pub next: Option<u64>,
}

/// What the configuration says of packets: its peers, and the subnets of this node that they may send
/// to.
#[derive(Debug, Clone, Default)]
pub struct ByHand {
    /// The peers.
    pub peers: BTreeSet<PublicKey>,
    /// The subnets, with further addresses of this node.
    pub subnets: Vec<Subnet>,
    /// The addresses of this node and the subnets behind it, if it is an exit.
    pub serves: Option<Vec<Subnet>>,
    /// The addresses of this host that count as the node, ascending.
    pub host: Vec<IpAddr>,
    /// The exit that this node uses.
    pub exit: Option<PublicKey>,
}

/// Compiles the rules for packets to the node `own` at `unix`, in seconds since 1970.
#[must_use]
pub fn compile(own: &PublicKey, networks: &Networks, by_hand: &ByHand, local: &[Rule], unix: u64) -> Compiled {
    let joined = networks.joined(own);
    if joined.is_empty() && local.is_empty() {
        return Compiled::default();
    }
    let members = joined.iter().flat_map(|network| network.state().members.keys());
    let keys: BTreeSet<PublicKey> = members
        .chain(&by_hand.peers)
        .copied()
        .filter(|key| key != own)
        .collect();
    let mut of_node = OfNode::new(own, &joined, by_hand, local, unix);
    let peers = keys.iter().map(|key| (key.node_addr(), of_node.of(key))).collect();
    let of_records = joined
        .iter()
        .flat_map(|network| network.state().table.rules.iter().flatten());
    let ends = of_records.chain(local).filter_map(|rule| rule.until);
    Compiled {
        peers: Some(peers),
        // A rule matches in its last second, too.
        next: ends.filter(|until| *until >= unix).min().map(|until| until + 1),
    }
}

/// Compiles the rules that another node has for the packets of `peer`, as far as the networks of this one
/// say: its configuration is not known, but for whether it `serves` as exit.
pub(super) fn of_other(
    (node, peer): (&PublicKey, &PublicKey),
    networks: &Networks,
    serves: bool,
    unix: u64,
) -> PeerRules {
    let by_hand = ByHand {
        serves: serves.then(Vec::new),
        ..ByHand::default()
    };
    OfNode::new(node, &networks.joined(node), &by_hand, &[], unix).of(peer)
}

/// The rules for packets to one node.
struct OfNode<'a> {
    joined: &'a [&'a Network],
    by_hand: &'a ByHand,
    networks: Vec<OfNetwork<'a>>,
    deny: List,
    allow: List,
    subnets: Arc<[Subnet]>,
    ours: Option<Arc<[Subnet]>>,
    host: Arc<[IpAddr]>,
}

impl<'a> OfNode<'a> {
    fn new(own: &PublicKey, joined: &'a [&'a Network], by_hand: &'a ByHand, local: &[Rule], unix: u64) -> Self {
        let exit = by_hand.serves.is_some();
        let local_of = |policy: Policy| {
            let chosen = (0..).zip(local).filter(|(_, rule)| rule.policy == policy);
            List::new(chosen, |to| local::holds(joined, policy, to, own), exit, unix)
        };
        let of_networks = (0..).zip(joined);
        Self {
            joined,
            by_hand,
            networks: of_networks
                .map(|(origin, network)| OfNetwork::new(own, (origin, network), exit, unix))
                .collect(),
            deny: local_of(Policy::Deny),
            allow: local_of(Policy::Allow),
            subnets: by_hand.subnets.as_slice().into(),
            ours: by_hand.serves.as_deref().map(Arc::from),
            host: by_hand.host.as_slice().into(),
        }
    }

    /// Those for the packets of a peer.
    fn of(&mut self, key: &PublicKey) -> PeerRules {
        let holds = |policy, from: &Selector| local::holds(self.joined, policy, from, key);
        PeerRules {
            deny: self.deny.of(|from| holds(Policy::Deny, from)),
            allow: self.allow.of(|from| holds(Policy::Allow, from)),
            networks: self.networks.iter_mut().filter_map(|network| network.of(key)).collect(),
            by_hand: self.by_hand.peers.contains(key).then(|| Arc::clone(&self.subnets)),
            ours: self.ours.clone(),
            host: Arc::clone(&self.host),
            by_exit: self.by_hand.exit == Some(*key),
        }
    }
}

/// The tags that a node has in a network.
fn tags(network: &Network, key: &PublicKey) -> BTreeSet<Name> {
    let member = network.state().members.get(key);
    member.map(|member| member.tags.clone()).unwrap_or_default()
}

/// One network, as this node sees it.
struct OfNetwork<'a> {
    own: PublicKey,
    origin: u16,
    network: &'a Network,
    list: List,
    ours: Arc<[Subnet]>,
}

impl<'a> OfNetwork<'a> {
    fn new(own: &PublicKey, (origin, network): (u16, &'a Network), exit: bool, unix: u64) -> Self {
        let state = network.state();
        let tags = tags(network, own);
        let rules = (0..).zip(state.table.rules.iter().flatten());
        Self {
            own: *own,
            origin,
            network,
            list: List::new(rules, |to| holds(to, own, &tags), exit, unix),
            ours: behind(network, own),
        }
    }

    /// The rules for a peer, if it is a member.
    fn of(&mut self, key: &PublicKey) -> Option<NetworkRules> {
        let state = self.network.state();
        let member = state.members.get(key)?;
        let ends = self.network.ipv4(&self.own).zip(self.network.ipv4(key));
        Some(NetworkRules {
            origin: self.origin,
            ipv4: ends.map(|(ours, theirs)| Addresses { ours, theirs }),
            ours: Arc::clone(&self.ours),
            theirs: behind(self.network, key),
            rules: self.list.of(|from| holds(from, key, &member.tags)),
            // Rules that are not understood let nothing pass.
            inside: state.table.inside == Policy::Allow && state.table.rules.is_some(),
            exit: state.exits.contains_key(&self.own),
        })
    }
}

/// The subnets behind a member.
fn behind(network: &Network, key: &PublicKey) -> Arc<[Subnet]> {
    let routes = network.routes().filter(|(_, members)| members.contains(key));
    routes.map(|(subnet, _)| *subnet).collect()
}

/// The rules of one origin that can be about packets to this node. Each is named by its place among all of
/// that origin.
struct List {
    rules: RuleList,
    from: Vec<Selector>,
    /// Sets of rules that peers share: many have the same.
    sets: BTreeMap<Vec<u16>, Arc<[u16]>>,
}

impl List {
    fn new<'r>(
        rules: impl IntoIterator<Item = (u16, &'r Rule)>,
        is_own: impl Fn(&Selector) -> bool,
        exit: bool,
        unix: u64,
    ) -> Self {
        let in_force = |rule: &Rule| rule.until.is_none_or(|until| unix <= until);
        let known = |rule: &Rule| exit || rule.to != Target::Exit;
        let rules = rules.into_iter().filter(|(_, rule)| in_force(rule) && known(rule));
        let ours = rules.filter_map(|(origin, rule)| Some((rule.from.clone(), resolve((origin, rule), &is_own)?)));
        let (from, rules): (Vec<_>, Vec<_>) = ours.unzip();
        Self {
            rules: rules.into(),
            from,
            sets: BTreeMap::new(),
        }
    }

    /// Those about the packets of one peer.
    fn of(&mut self, holds: impl Fn(&Selector) -> bool) -> RuleSet {
        let holds = self.from.iter().map(holds);
        let chosen: Vec<u16> = (0..).zip(holds).filter(|(_, holds)| *holds).map(|(at, _)| at).collect();
        let shared = self
            .sets
            .entry(chosen)
            .or_insert_with_key(|chosen| chosen.as_slice().into());
        RuleSet {
            list: Arc::clone(&self.rules),
            chosen: Arc::clone(shared),
        }
    }
}

/// A rule for packets to this node, or `None` if it is about other destinations only.
fn resolve((origin, rule): (u16, &Rule), is_own: impl Fn(&Selector) -> bool) -> Option<rules::Rule> {
    let to = match &rule.to {
        Target::Members(Selector::Any) => Scope::Any,
        Target::Members(members) if is_own(members) => Scope::Node,
        Target::Route(subnet) => Scope::Subnet(*subnet),
        Target::Exit => Scope::Exit,
        Target::Members(_) => return None,
    };
    let service = rule.service.as_ref();
    let protocol = match service.map(|service| service.protocol) {
        None => rules::Protocol::Any,
        Some(Protocol::Icmp) => rules::Protocol::Icmp,
        Some(Protocol::Tcp) => rules::Protocol::Number(6),
        Some(Protocol::Udp) => rules::Protocol::Number(17),
        Some(Protocol::Number(number)) => rules::Protocol::Number(number),
    };
    Some(rules::Rule {
        origin,
        allow: rule.policy == Policy::Allow,
        to,
        protocol,
        ports: service
            .map(|service| service.ports.as_slice().into())
            .unwrap_or_default(),
    })
}

fn holds(selector: &Selector, key: &PublicKey, tags: &BTreeSet<Name>) -> bool {
    match selector {
        Selector::Any => true,
        Selector::Tag(tag) => tags.contains(tag),
        Selector::Member(member) => member == key,
        // Only local rules have one.
        Selector::TagOf(..) => false,
    }
}
