//! All that must hold in and around a running node, derived from what is known.
//!
//! [`Desired::of`] is a pure function of the configuration, the networks, what the system says, and what
//! can be reached. The daemon compares its result with the one before, and changes what differs
//! (`node::daemon::apply`). What several parts of the node depend on is derived here, and nowhere else;
//! what one part alone reads from the configuration is not.
//!
//! To add a fact: a field of [`Desired`] that follows from [`Inputs`], and a step of the daemon that
//! makes it so. To add a source: a field of [`Inputs`], and a call of `Daemon::apply` where it changes.
//!
//! | module | what it is |
//! |---|---|
//! | [`addresses`] | the addresses of this host that others are told |
//! | [`members`] | the nodes with which packets pass, whatever brought them |
//! | [`exit`] | orders for exits, and what this node offers |
//! | [`guests`] | the devices with WireGuard behind this node |
//! | [`names`] | the names that this node answers for |
//! | [`references`] | the node that a user means by a name, an address or a key |
//! | [`routes`] | where packets to subnets behind peers go |
//!
//! Never here: clocks and sockets (weft-node), files (weft-store), how a fact gets into the system
//! (weft-host).

pub mod addresses;
pub mod exit;
pub mod guests;
mod lan;
pub mod members;
pub mod names;
pub mod references;
pub mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use weft_config::host_name::{HostName, PeerAddress};
use weft_config::{Announce, Config, NostrConfig, UplinkUse};
use weft_core::Admit;
use weft_core::HintSource;
use weft_discovery::port_mapping::Place;
use weft_host::dns::Zone;
use weft_host::hosts::Hosts;
use weft_host::surroundings::{Subnets, Surroundings};
use weft_host::uplinks::Uplink;
use weft_networks::rules::compile::{ByHand, Compiled, compile};
use weft_networks::rules::unclear;
use weft_networks::{HostUse, Networks, of_exit};
use weft_noise::PublicKey;
use weft_reach::lan::mdns::Link;
use weft_reach::lan::{MAX_NETWORKS, Secret};
use weft_roster::record::Exit;
use weft_wire::{NodeAddr, Subnet};

use addresses::HostAddresses;
use exit::Orders;
use guests::Hosted;
use members::Members;
use routes::Routes;

/// What the system says.
#[derive(Clone, Debug)]
pub struct System {
    /// The index of the node's own interface.
    pub interface: u32,
    /// The interfaces, addresses and routes of others.
    pub surroundings: Surroundings,
    /// The uplinks, in the order of the system.
    pub uplinks: Vec<Uplink>,
    /// Where a mapping of a port can be asked for; the reason otherwise.
    pub place: Result<Place, &'static str>,
    /// The addresses of the node's own sockets.
    pub listen: Vec<SocketAddr>,
    /// The name servers that the system asks; `None` until they are known.
    pub resolvers: Option<BTreeSet<IpAddr>>,
    /// Whether the kernel has rules for routes of IPv4, of IPv6.
    pub rules: [bool; 2],
}

/// What [`Desired`] follows from.
pub struct Inputs<'a> {
    /// The configuration in effect.
    pub config: &'a Config,
    /// The private networks.
    pub networks: &'a Networks,
    /// What the system says.
    pub system: &'a System,
    /// The addresses that host names have at present.
    pub hosts: &'a Hosts,
    /// The addresses that peers have published at relays of Nostr.
    pub adverts: &'a BTreeMap<PublicKey, Vec<SocketAddr>>,
    /// Whether packets of subnets pass to a peer.
    pub pass: &'a dyn Fn(&PublicKey) -> bool,
    /// What the system forwards as exit now.
    pub served: Option<Exit>,
    /// Milliseconds since boot, and seconds since 1970 (UTC).
    pub times: (u64, u64),
}

/// Which nodes may link without being configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// All or none.
    pub admit: Admit,
    /// Those that may in any case.
    pub allowed: BTreeSet<NodeAddr>,
    /// Those that may not in any case.
    pub denied: BTreeSet<NodeAddr>,
}

impl Admission {
    /// Returns what the configuration says.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let mesh = &config.mesh;
        let [allowed, denied] = [&mesh.allow, &mesh.deny].map(|keys| keys.iter().map(PublicKey::node_addr).collect());
        Self {
            admit: if mesh.open { Admit::Everyone } else { Admit::Configured },
            allowed,
            denied,
        }
    }
}

/// What the node announces in its LANs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Which nodes find it.
    pub announce: Announce,
    /// The secrets of the networks that it is a member of.
    pub secrets: Vec<Secret>,
}

impl Announced {
    fn of(config: &Config, networks: &Networks) -> Self {
        let announce = config.lan.announce;
        let secrets = networks.secrets().take(MAX_NETWORKS).map(|(_, secret)| *secret);
        Self {
            announce,
            secrets: secrets.filter(|_| announce != Announce::Off).collect(),
        }
    }
}

/// All that must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Which nodes may link.
    pub admission: Admission,
    /// Whether nodes without a place in the mesh may link to join a network.
    pub guests: bool,
    /// The nodes with which packets pass.
    pub members: Members,
    /// The guests behind this node, under the addresses that stand for them in the lanes. Their rules are under these,
    /// too.
    pub wireguard: BTreeMap<NodeAddr, Hosted>,
    /// The rules of the packet path.
    pub rules: Compiled,
    /// What is to be said of local rules that do not say which network they mean.
    pub unclear: Vec<String>,
    /// The exit of this node, if it is approved.
    pub exit: Option<(PublicKey, Exit)>,
    /// The addresses and subnets to which peers may send, with the guests behind this node and those that it forwards
    /// as exit.
    pub own_subnets: Vec<Subnet>,
    /// The IPv4 addresses of this node in its networks.
    pub own_ipv4: Vec<Ipv4Addr>,
    /// What decides which addresses of members are used.
    pub host_use: HostUse,
    /// The subnets of which it matters how the host reaches addresses in them.
    pub of_interest: Subnets,
    /// The routes to subnets behind peers, and to the guests behind this node.
    pub routes: Routes,
    /// What the system does for exits.
    pub orders: Orders,
    /// What this node offers to its networks.
    pub offer: BTreeSet<Subnet>,
    /// The names that it answers for.
    pub zone: Zone,
    /// The addresses at which it passes on queries of members that use it as exit.
    pub names_at: BTreeSet<IpAddr>,
    /// The names of the networks of each member.
    pub member_of: BTreeMap<PublicKey, Vec<String>>,
    /// The host names that are looked up.
    pub host_names: BTreeSet<HostName>,
    /// The STUN servers that are asked, each with its addresses.
    pub stun: Vec<(String, Vec<SocketAddr>)>,
    /// The Nostr relays.
    pub nostr: NostrConfig,
    /// What is announced in LANs.
    pub announced: Announced,
    /// The subnets of this host, in which announcements count.
    pub lan: Vec<Subnet>,
    /// The links on which this node is announced and looks for others.
    pub links: Vec<Link>,
    /// The addresses of this host at which it listens.
    pub host: HostAddresses,
    /// Where a mapping of a port is asked for; the reason why not.
    pub mapping: Result<Place, &'static str>,
    /// What further uplinks are used for, and those that are served.
    pub uplinks: (UplinkUse, Vec<Uplink>),
}

impl Desired {
    /// Derives all that must hold.
    #[must_use]
    pub fn of(inputs: &Inputs<'_>) -> Self {
        let Inputs {
            config,
            networks,
            system,
            times: (now, unix),
            ..
        } = *inputs;
        let mut members = Members::of(config, networks, inputs.hosts);
        members.add_hints(inputs.adverts, HintSource::Advert);
        let exit = members.exit(config, networks);
        let mut own_subnets = exit::own_subnets(config, networks);
        let by_hand = ByHand {
            serves: inputs.served.map(|_| own_subnets.clone()),
            host: exit::host(config, system, &own_subnets, inputs.served.is_some()),
            exit: exit.map(|(key, _)| key),
            ..config.by_hand()
        };
        let wireguard = guests::hosted(config, networks);
        // Rules know the addresses of guests apart from those of this node.
        own_subnets.extend(wireguard.values().map(Hosted::subnet));
        own_subnets.extend(inputs.served.into_iter().flat_map(of_exit));
        let host = HostAddresses::of(&system.surroundings, system.interface, &system.listen);
        Self {
            admission: Admission::of(config),
            guests: networks.welcomes_guests(now, unix),
            rules: compile(networks.own(), networks, &by_hand, &config.local_rules, unix),
            unclear: unclear(networks, &config.local_rules),
            exit,
            own_subnets,
            own_ipv4: networks.own_ipv4().collect(),
            host_use: routes::host_use(config, system),
            of_interest: routes::of_interest(&members, networks),
            routes: Routes::of(&members, &wireguard, system),
            orders: Orders {
                used: exit::used(config, networks, exit, inputs.pass),
                served: exit::served(config, networks, &exit::host(config, system, &[], true)),
                ends: config.tun.exit.is_none(),
            },
            offer: exit::offer(config, &system.surroundings, system.interface),
            zone: names::zone(&members, networks),
            names_at: match inputs.served {
                Some(_) => exit::names_at(networks),
                None => BTreeSet::new(),
            },
            member_of: networks.names_by_member(),
            host_names: config.host_names(),
            stun: stun(config, inputs.hosts, &host.told),
            nostr: config.nostr.clone(),
            announced: Announced::of(config, networks),
            lan: lan::subnets(&system.surroundings, system.interface),
            links: lan::links(&system.surroundings, system.interface),
            host,
            mapping: match config.reach.port_mapping {
                true => system.place,
                false => Err("reach.port_mapping = false"),
            },
            uplinks: uplinks(config.reach.uplinks, system),
            members,
            wireguard,
        }
    }
}

/// Returns the STUN servers of the configuration, at the addresses that their names have, in the versions of IP
/// in which this host has one.
fn stun(config: &Config, hosts: &Hosts, own: &[SocketAddr]) -> Vec<(String, Vec<SocketAddr>)> {
    let usable = |ip: &IpAddr| own.iter().any(|at| at.is_ipv6() == ip.is_ipv6());
    let addresses = |server: &PeerAddress| match server {
        PeerAddress::At(at) => vec![*at],
        PeerAddress::Named { host, port } => {
            let all = hosts.addresses(host).into_iter().filter(usable);
            all.map(|ip| SocketAddr::new(ip, *port)).collect()
        }
    };
    let servers = config.reach.stun.iter();
    servers.map(|server| (server.to_string(), addresses(server))).collect()
}

/// Returns the uplinks for the versions of IP in which the node listens at all its addresses. A node that listens
/// at chosen ones uses no others.
fn uplinks(usage: UplinkUse, system: &System) -> (UplinkUse, Vec<Uplink>) {
    let listens = |ipv6: bool| {
        let mut all = system.listen.iter();
        all.any(|own| own.is_ipv6() == ipv6 && own.ip().is_unspecified())
    };
    let served = system.uplinks.iter().filter(|uplink| listens(uplink.ipv6));
    match usage {
        UplinkUse::Off => (usage, Vec::new()),
        _ => (usage, served.cloned().collect()),
    }
}

#[cfg(test)]
mod tests;
