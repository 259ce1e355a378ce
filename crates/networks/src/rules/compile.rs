//! From the rules of networks and of the configuration to those of the packet path.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weft_contract::rules::{self, Addresses, NetworkRules, PeerRules, RuleList, RuleSet, Scope};
use weft_noise::PublicKey;
use weft_roster::guest::node_addr;
use weft_roster::names::Name;
use weft_roster::rules::{Policy, Protocol, Rule, Selector, Target};
use weft_wire::{NodeAddr, Subnet};

use super::local;
use super::party::{Guests, Party};
use crate::{Network, Networks, UsedGuest};

/// The rules for the packet path.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compiled {
    /// The rules for the packets of each peer, and of each guest under the address that stands for it; `None` if all
    /// packets pass.
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
    let guests = Guests::new(own, networks, &joined, &by_hand.subnets);
    let mut of_node = OfNode::new(own, (&joined, &guests), by_hand, local, unix);
    let nodes = keys.iter().map(|key| (key.node_addr(), Party::Node(key)));
    let parties = nodes.chain(guests.keys().into_iter().map(|key| (node_addr(key), Party::Guest(key))));
    let peers = parties.map(|(address, party)| (address, of_node.of(party))).collect();
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
    let joined = networks.joined(node);
    let guests = Guests::new(node, networks, &joined, &[]);
    OfNode::new(node, (&joined, &guests), &by_hand, &[], unix).of(Party::Node(peer))
}

/// The rules for packets to one node and the guests behind it.
struct OfNode<'a> {
    joined: &'a [&'a Network],
    guests: &'a Guests<'a>,
    by_hand: &'a ByHand,
    networks: Vec<OfNetwork<'a>>,
    deny: List,
    allow: List,
    subnets: Arc<[Subnet]>,
    ours: Option<Arc<[Subnet]>>,
    host: Arc<[IpAddr]>,
}

impl<'a> OfNode<'a> {
    fn new(
        own: &PublicKey,
        (joined, guests): (&'a [&'a Network], &'a Guests<'a>),
        by_hand: &'a ByHand,
        local: &[Rule],
        unix: u64,
    ) -> Self {
        let exit = by_hand.serves.is_some();
        let local_of = |policy: Policy| {
            let chosen = (0..).zip(local).filter(|(_, rule)| rule.policy == policy);
            let holds = |to: &Selector, party| local::holds(joined, policy, to, party);
            let is_own = |to: &Selector| holds(to, Party::Node(own));
            let here = |to: &Selector| guests.here(|guest| holds(to, Party::Guest(guest.key)));
            List::new(chosen, (is_own, here), exit, unix)
        };
        let of_network = |(origin, network)| OfNetwork::new(own, (origin, network), guests, exit, unix);
        Self {
            joined,
            guests,
            by_hand,
            networks: (0..).zip(joined.iter().copied()).map(of_network).collect(),
            deny: local_of(Policy::Deny),
            allow: local_of(Policy::Allow),
            subnets: by_hand.subnets.as_slice().into(),
            ours: by_hand.serves.as_deref().map(Arc::from),
            host: by_hand.host.as_slice().into(),
        }
    }

    /// Those for the packets of a peer or a guest.
    fn of(&mut self, party: Party<'_>) -> PeerRules {
        let holds = |policy, from: &Selector| local::holds(self.joined, policy, from, party);
        let (by_hand, by_exit) = match party {
            Party::Node(key) => (self.by_hand.peers.contains(key), self.by_hand.exit == Some(*key)),
            Party::Guest(_) => (false, false),
        };
        PeerRules {
            deny: self.deny.of(|from| holds(Policy::Deny, from)),
            allow: self.allow.of(|from| holds(Policy::Allow, from)),
            networks: self
                .networks
                .iter_mut()
                .filter_map(|network| network.of(party))
                .collect(),
            by_hand: by_hand.then(|| Arc::clone(&self.subnets)),
            ours: self.ours.clone(),
            host: Arc::clone(&self.host),
            by_exit,
            guests: self.guests.behind(party),
            guests_here: Arc::clone(&self.guests.here),
            is_guest: matches!(party, Party::Guest(_)),
        }
    }
}

/// One network, as this node sees it.
struct OfNetwork<'a> {
    own: PublicKey,
    origin: u16,
    network: &'a Network,
    guests: BTreeMap<&'a [u8; 32], UsedGuest<'a>>,
    list: List,
    ours: Arc<[Subnet]>,
}

/// One end of the flows that the rules of a network are about.
struct End<'a> {
    ipv4: Option<Ipv4Addr>,
    tags: &'a BTreeSet<Name>,
    subnets: Arc<[Subnet]>,
    /// Whether this node may be its exit. A guest has no exit but the node that it is behind.
    by_exit: bool,
}

impl<'a> OfNetwork<'a> {
    fn new(own: &PublicKey, (origin, network): (u16, &'a Network), of: &Guests<'a>, exit: bool, unix: u64) -> Self {
        let guests = of.of(network);
        let none = BTreeSet::new();
        let tags = Party::Node(own).tags(network).unwrap_or(&none);
        let is_own = |to: &Selector| holds(to, Party::Node(own), tags);
        let here = |to: &Selector| {
            let is_meant = |guest: &UsedGuest<'_>| holds(to, Party::Guest(guest.key), &guest.guest.tags);
            of.here(|guest| guest.network.id() == network.id() && is_meant(guest))
        };
        let rules = (0..).zip(network.state().table.rules.iter().flatten());
        Self {
            own: *own,
            origin,
            network,
            list: List::new(rules, (is_own, here), exit, unix),
            guests,
            ours: behind(network, own),
        }
    }

    /// The rules for a member or a guest, if it is one of this network.
    fn of(&mut self, party: Party<'_>) -> Option<NetworkRules> {
        let state = self.network.state();
        let end = self.end(party)?;
        let ends = self.network.ipv4(&self.own).zip(end.ipv4);
        Some(NetworkRules {
            origin: self.origin,
            ipv4: ends.map(|(ours, theirs)| Addresses { ours, theirs }),
            ours: Arc::clone(&self.ours),
            theirs: end.subnets,
            rules: self.list.of(|from| holds(from, party, end.tags)),
            // Rules that are not understood let nothing pass.
            inside: state.table.inside == Policy::Allow && state.table.rules.is_some(),
            exit: end.by_exit && state.exits.contains_key(&self.own),
        })
    }

    fn end(&self, party: Party<'_>) -> Option<End<'a>> {
        Some(match party {
            Party::Node(key) => End {
                ipv4: self.network.ipv4(key),
                tags: &self.network.state().members.get(key)?.tags,
                subnets: behind(self.network, key),
                by_exit: true,
            },
            Party::Guest(key) => {
                let guest = self.guests.get(key)?;
                End {
                    ipv4: Some(guest.ipv4),
                    tags: &guest.guest.tags,
                    subnets: Arc::default(),
                    by_exit: guest.host == self.own,
                }
            }
        })
    }
}

/// The subnets behind a member.
fn behind(network: &Network, key: &PublicKey) -> Arc<[Subnet]> {
    let routes = network.routes().filter(|(_, members)| members.contains(key));
    routes.map(|(subnet, _)| *subnet).collect()
}

/// The rules of one origin that can be about packets to this node and the guests behind it. Each is named by its place
/// among all of that origin. One that is about both the node and guests is there twice, in the place of one, so the
/// length is at most twice the limit of rules.
struct List {
    rules: RuleList,
    from: Vec<Selector>,
    /// Sets of rules that peers share: many have the same.
    sets: BTreeMap<Vec<u16>, Arc<[u16]>>,
}

impl List {
    fn new<'r>(
        rules: impl IntoIterator<Item = (u16, &'r Rule)>,
        (is_own, here): (impl Fn(&Selector) -> bool, impl Fn(&Selector) -> Vec<Ipv4Addr>),
        exit: bool,
        unix: u64,
    ) -> Self {
        let in_force = |rule: &Rule| rule.until.is_none_or(|until| unix <= until);
        let known = |rule: &Rule| exit || rule.to != Target::Exit;
        let rules = rules.into_iter().filter(|(_, rule)| in_force(rule) && known(rule));
        let ours = rules.flat_map(|(origin, rule)| {
            let scopes = scopes(&rule.to, &is_own, &here).into_iter();
            scopes.map(move |to| (rule.from.clone(), resolve((origin, rule), to)))
        });
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

/// The destinations here that a rule is about: none if it is about others only.
fn scopes(to: &Target, is_own: impl Fn(&Selector) -> bool, here: impl Fn(&Selector) -> Vec<Ipv4Addr>) -> Vec<Scope> {
    match to {
        Target::Members(Selector::Any) => vec![Scope::Any],
        Target::Members(members) => {
            let node = is_own(members).then_some(Scope::Node);
            let guests = Some(here(members)).filter(|guests| !guests.is_empty());
            node.into_iter()
                .chain(guests.map(|guests| Scope::Guests(guests.into())))
                .collect()
        }
        Target::Route(subnet) => vec![Scope::Subnet(*subnet)],
        Target::Exit => vec![Scope::Exit],
    }
}

/// A rule for packets to this node and what is behind it.
fn resolve((origin, rule): (u16, &Rule), to: Scope) -> rules::Rule {
    let service = rule.service.as_ref();
    let protocol = match service.map(|service| service.protocol) {
        None => rules::Protocol::Any,
        Some(Protocol::Icmp) => rules::Protocol::Icmp,
        Some(Protocol::Tcp) => rules::Protocol::Number(6),
        Some(Protocol::Udp) => rules::Protocol::Number(17),
        Some(Protocol::Number(number)) => rules::Protocol::Number(number),
    };
    rules::Rule {
        origin,
        allow: rule.policy == Policy::Allow,
        to,
        protocol,
        ports: service
            .map(|service| service.ports.as_slice().into())
            .unwrap_or_default(),
    }
}

fn holds(selector: &Selector, party: Party<'_>, tags: &BTreeSet<Name>) -> bool {
    match selector {
        Selector::Any => true,
        Selector::Tag(tag) => tags.contains(tag),
        Selector::Member(member) => party.is_node(member),
        // Only local rules have one.
        Selector::TagOf(..) => false,
    }
}
