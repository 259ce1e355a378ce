//! Commands about private networks.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weft_core::Path;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::netlink::Netlink;
use weft_os::random::random_bytes;
use weft_roster::invite::{Code, EntryPoint, MAX_ADDRESSES, Seed};
use weft_roster::names::{Name, NameError};
use weft_roster::network_id::NetworkId;
use weft_roster::rules::Policy;
use weft_wire::Subnet;

use super::membership::asked_status;
use super::run::Daemon;
use crate::control::{self, ErrorCode, NetworkCommand, Reply};
use crate::networks::{MemberChange, Network, Networks, NewInvite, Refusal, RouteChange, RuleChange, store};
use crate::rules;
use crate::rules::why::{self, Question};
use crate::status::{
    Document as _, InviteStatus, Invited, MemberStatus, NetworkList, NetworkState, NetworkStatus, ShadowedStatus,
    ShadowingNode, Why,
};

impl Daemon {
    /// Carries out a command about networks, and answers.
    pub(super) fn answer_network(&mut self, command: NetworkCommand, reply: Reply) {
        let times = (boottime_ms(), unix_s());
        let refuse = |reply: Reply, why: String| reply.refuse(control::Refusal::new(ErrorCode::Network, why));
        let done = match command {
            NetworkCommand::Invite {
                network,
                name,
                tags,
                uses,
                expires_s,
                addresses,
            } => {
                let made = self.invite(network.as_deref(), name, &tags, (uses, expires_s), addresses);
                return match made {
                    Ok(invited) => reply.ok(&invited),
                    Err(why) => refuse(reply, why),
                };
            }
            NetworkCommand::Why {
                from,
                to,
                behind,
                service,
            } => {
                return match self.why(&from, &to, behind, &service, times.1) {
                    Ok(verdict) => reply.ok(&verdict),
                    Err(why) => refuse(reply, why),
                };
            }
            NetworkCommand::Requests { accept_s } => {
                return match self.requests(accept_s) {
                    Ok(requests) => reply.ok(&requests),
                    Err(why) => refuse(reply, why),
                };
            }
            NetworkCommand::Deny { node } => {
                return match self.deny(&node) {
                    Ok(requests) => reply.ok(&requests),
                    Err(why) => refuse(reply, why),
                };
            }
            command => self.change_network(command, times),
        };
        match done {
            Ok(only) => {
                let mut list = list(&self.networks, only, times.1);
                self.add_routes(&mut list, times.0);
                reply.ok(&list);
            }
            Err(why) => refuse(reply, why),
        }
    }

    /// Returns the network that the answer is about, if it is about one.
    fn change_network(
        &mut self,
        command: NetworkCommand,
        (now, unix): (u64, u64),
    ) -> Result<Option<NetworkId>, String> {
        let text = |error: crate::networks::NetworkError| error.to_string();
        match command {
            NetworkCommand::List {}
            | NetworkCommand::Why { .. }
            | NetworkCommand::Invite { .. }
            | NetworkCommand::Requests { .. }
            | NetworkCommand::Deny { .. } => Ok(None),
            NetworkCommand::Ask { admin, addresses, host } => {
                let begun = self.ask_admin(&admin, addresses, host.as_deref(), now);
                begun.map(|()| None)
            }
            NetworkCommand::Approve {
                network,
                node,
                name,
                tags,
            } => {
                let approved = self.approve(network.as_deref(), &node, name.as_deref(), &tags, (now, unix));
                approved.map(Some)
            }
            NetworkCommand::Create { name, host } => {
                let name = Name::network(&name).map_err(|error| error.to_string())?;
                let nonce = random()?;
                let made = self.networks.create(name, host_name(host)?, nonce, unix);
                made.map(Some).map_err(text)
            }
            NetworkCommand::Join { code, host } => {
                let code = Code::parse(&code).map_err(|error| error.to_string())?;
                let begun = self.networks.join(&code, host_name(host)?, now, unix);
                begun.map(Some).map_err(text)
            }
            NetworkCommand::Leave { network } => {
                let id = self.networks.forget(network.as_deref()).map_err(text)?;
                let removed = store::remove(self.state.paths().directory(), id);
                removed.map_err(|error| format!("the file of the network cannot be removed: {error}"))?;
                Ok(None)
            }
            NetworkCommand::Member {
                network,
                member,
                change,
                name,
                tags,
                by,
            } => {
                let change = member_change(change, name, &tags, by)?;
                let changed = self
                    .networks
                    .change_member(network.as_deref(), &member, change, (now, unix));
                changed.map(|_| None).map_err(text)
            }
            NetworkCommand::Rules { network, change } => {
                let changed = self
                    .networks
                    .change_rules(network.as_deref(), rule_change(change)?, (now, unix));
                changed.map(Some).map_err(text)
            }
            NetworkCommand::Route {
                network,
                member,
                subnet,
                change,
            } => {
                let change = match change {
                    control::RouteChange::Approve => RouteChange::Approve,
                    control::RouteChange::Revoke => RouteChange::Revoke,
                };
                if subnet == "exit" || subnet.parse::<Subnet>().is_ok_and(|subnet| subnet.prefix_len() == 0) {
                    let changed = self
                        .networks
                        .change_exit(network.as_deref(), &member, change, (now, unix));
                    return changed.map(Some).map_err(text);
                }
                let subnet = subnet
                    .parse()
                    .map_err(|_| format!("'{}' is no subnet; write it as 192.168.7.0/24", subnet.escape_debug()))?;
                let changed = self
                    .networks
                    .change_route(network.as_deref(), (&member, subnet), change, (now, unix));
                changed.map(Some).map_err(text)
            }
            NetworkCommand::Revoke { network, invite } => {
                let revoked = self.networks.revoke(network.as_deref(), &invite, (now, unix));
                revoked.map(|()| None).map_err(text)
            }
        }
    }

    fn why(&self, from: &str, to: &str, behind: Option<IpAddr>, service: &str, unix: u64) -> Result<Why, String> {
        let (protocol, port) = why::service(service)?;
        let exit = to == "exit";
        let question = Question {
            from: self.node_named(from)?,
            to: if exit { self.any_exit()? } else { self.node_named(to)? },
            behind,
            exit,
            protocol,
            port,
        };
        let config = &self.configuration.config;
        let by_hand = config
            .peers
            .iter()
            .any(|peer| peer.key == question.from || peer.key == question.to);
        let verdict = why::why(&question, &self.networks, &config.local_rules, by_hand, unix);
        Ok(Why {
            schema: Why::SCHEMA.to_owned(),
            allowed: verdict.allowed,
            reasons: verdict.reasons,
        })
    }

    /// The exit that questions without a name are about: that of this node, or this node, or the first
    /// one.
    fn any_exit(&self) -> Result<PublicKey, String> {
        let exits = self.networks.exits();
        let chosen = self.members.exit(&self.configuration.config, &self.networks);
        let own = self.networks.own();
        let own = exits.contains_key(own).then_some(*own);
        let any = chosen
            .map(|(key, _)| key)
            .or(own)
            .or_else(|| exits.keys().next().copied());
        any.ok_or_else(|| "no network of this node has an exit; `weft routes` lists them".to_owned())
    }

    /// The node with a name in a network, a name in the configuration, or this npub.
    fn node_named(&self, named: &str) -> Result<PublicKey, String> {
        if let Ok(key) = named.parse() {
            return Ok(key);
        }
        let of_networks = self.networks.iter().flat_map(|network| &network.state().names);
        let mut known = of_networks
            .filter(|(_, name)| name.as_str() == named)
            .map(|(key, _)| *key);
        let by_hand = || {
            let peers = self.members.names().into_iter();
            let mut named = peers.filter(|(_, name)| name.as_str() == named);
            named.next().map(|(key, _)| key)
        };
        known.next().or_else(by_hand).ok_or_else(|| {
            format!(
                "no node is named {}; `weft members` and `weft status` list them",
                named.escape_debug()
            )
        })
    }

    fn invite(
        &mut self,
        network: Option<&str>,
        name: Option<String>,
        tags: &[String],
        (uses, expires_s): (u32, u32),
        addresses: Vec<SocketAddr>,
    ) -> Result<Invited, String> {
        let (now, unix) = (boottime_ms(), unix_s());
        let tags = labels(tags)?;
        let addresses = match addresses.is_empty() {
            true => self.own_addresses()?,
            false => addresses,
        };
        let entry = self.entry_point(&addresses);
        if addresses.is_empty() && entry.is_none() {
            return Err(
                "this machine has no address for the code; connect it to a network, or give one with --address"
                    .to_owned(),
            );
        }
        let new = NewInvite {
            name: host_name(name)?,
            tags,
            uses,
            expires: unix + u64::from(expires_s),
            addresses,
            entry,
        };
        let seed = Seed::new(random()?);
        let code = self.networks.invite(network, &new, seed, (now, unix));
        let code = code.map_err(|error| error.to_string())?;
        let of = self.networks.iter().find(|known| known.id() == code.network);
        Ok(Invited {
            schema: Invited::SCHEMA.to_owned(),
            code: code.encode().to_string(),
            network: of.and_then(|network| Some(network.name()?.to_string())),
            uses,
            expires_unix: new.expires,
        })
    }

    /// The addresses of this host at which the node listens, for a code: those of IPv4, or of IPv6 if
    /// there are none.
    fn own_addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let failed = |error: weft_os::netlink::NetlinkError| error.to_string();
        let mut netlink = Netlink::open().map_err(failed)?;
        let mut all = Vec::new();
        for interface in netlink.interfaces().map_err(failed)? {
            if interface.index != self.routes.index() {
                let addresses = netlink.addresses(interface.index).map_err(failed)?;
                all.extend(addresses.into_iter().map(|address| address.address));
            }
        }
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        all.retain(usable);
        // Those that other networks reach come first.
        all.sort_by_key(|ip| (ip.is_ipv6(), !is_global(ip)));
        let listens = |ip: &IpAddr| {
            let at = self.facts.listen.iter().find(|listen| {
                listen.ip() == *ip || listen.ip().is_unspecified() && listen.is_ipv4() == ip.is_ipv4()
            })?;
            Some(SocketAddr::new(*ip, at.port()))
        };
        let mut addresses: Vec<SocketAddr> = all.iter().filter_map(listens).collect();
        if addresses.iter().any(SocketAddr::is_ipv4) {
            addresses.retain(SocketAddr::is_ipv4);
        }
        addresses.truncate(MAX_ADDRESSES);
        Ok(addresses)
    }

    /// A member with another address, for a joiner that cannot reach this node: needed if no address
    /// of this node can be reached from other networks.
    fn entry_point(&self, own: &[SocketAddr]) -> Option<EntryPoint> {
        if own.iter().any(|address| is_global(&address.ip())) {
            return None;
        }
        let member = |key: &PublicKey| self.networks.iter().any(|network| network.is_member(key));
        let linked = self.node.peer_status(boottime_ms()).filter(|peer| member(&peer.key));
        let mut entries: Vec<EntryPoint> = linked
            .filter_map(|peer| match peer.path? {
                Path::Direct(address) if peer.link_age.is_some() && is_global(&address.ip()) => {
                    Some(EntryPoint { key: peer.key, address })
                }
                _ => None,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key);
        entries.first().copied()
    }
}

fn rule_change(change: control::RuleChange) -> Result<RuleChange, String> {
    Ok(match change {
        control::RuleChange::Add { rule, at } => RuleChange::Add { rule, at },
        control::RuleChange::Remove { at } => RuleChange::Remove(at),
        control::RuleChange::Set { rules } => RuleChange::Set(rules),
        control::RuleChange::Default { policy } => {
            let policy = Policy::read(&policy);
            RuleChange::Default(policy.map_err(|_| "the default is allow or deny".to_owned())?)
        }
    })
}

/// A change of a member, with what belongs to it.
fn member_change(
    change: control::MemberChange,
    name: Option<String>,
    tags: &[String],
    by: Option<String>,
) -> Result<MemberChange, String> {
    Ok(match change {
        control::MemberChange::Remove => MemberChange::Remove,
        control::MemberChange::MakeAdmin => MemberChange::MakeAdmin,
        control::MemberChange::RevokeAdmin => MemberChange::RevokeAdmin,
        control::MemberChange::Tag => MemberChange::Tag(labels(tags)?),
        control::MemberChange::Untag => MemberChange::Untag(labels(tags)?),
        control::MemberChange::Rename => {
            let name = name.ok_or_else(|| "the new name is missing".to_owned())?;
            MemberChange::Rename(Name::host(&name).map_err(|error| error.to_string())?)
        }
        control::MemberChange::Replace => {
            MemberChange::ReplaceBy(by.ok_or_else(|| "the machine that takes over is missing".to_owned())?)
        }
    })
}

pub(super) fn labels(tags: &[String]) -> Result<BTreeSet<Name>, String> {
    let tags = tags.iter().map(|tag| Name::label(tag));
    tags.collect::<Result<_, NameError>>()
        .map_err(|error| error.to_string())
}

fn host_name(name: Option<String>) -> Result<Option<Name>, String> {
    let name = name.map(|name| Name::host(&name)).transpose();
    name.map_err(|error| error.to_string())
}

fn random() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    random_bytes(&mut bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(bytes)
}

/// All networks, or one of them.
fn list(networks: &Networks, only: Option<NetworkId>, unix: u64) -> NetworkList {
    let listed = networks
        .iter()
        .filter(|network| only.is_none_or(|only| network.id() == only));
    NetworkList {
        schema: NetworkList::SCHEMA.to_owned(),
        networks: listed.map(|network| status(network, networks, unix)).collect(),
        asked: networks
            .asked()
            .map(|(admin, asked)| asked_status(admin, asked))
            .collect(),
    }
}

/// Whether an address can be reached from other networks than its own.
fn is_global(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            // RFC 6598: shared between a provider and its customers.
            let shared = a == 100 && b & 0xc0 == 64;
            !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_unspecified() || shared)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000,
    }
}

fn status(network: &Network, networks: &Networks, unix: u64) -> NetworkStatus {
    let own = networks.own();
    let state = network.state();
    let (kind, why) = match (network.is_member(own), network.joining()) {
        (true, _) => (NetworkState::Member, "this node is a member".to_owned()),
        (false, Some(joining)) => (
            NetworkState::Joining,
            match joining.refusal {
                Some(refusal) => refusal.to_string(),
                None if joining.proof.is_none() => {
                    "an administrator has taken this node in, and its records are to come".to_owned()
                }
                None => "no answer yet from the node that the code names".to_owned(),
            },
        ),
        (false, None) => (
            NetworkState::Removed,
            "an administrator has removed this node; `weft leave` forgets the network, `weft join --ask` asks to come back"
                .to_owned(),
        ),
    };
    let mut members: Vec<MemberStatus> = state
        .members
        .iter()
        .map(|(key, member)| MemberStatus {
            npub: key.to_string(),
            name: state.names.get(key).map(ToString::to_string),
            address: key.node_addr().to_ipv6(),
            ipv4: network.ipv4(key),
            admin: state.admins.rank(key).is_some(),
            own: key == own,
            tags: member.tags.iter().map(ToString::to_string).collect(),
        })
        .collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let invites = network.open_invites(unix).map(|(key, open)| InviteStatus {
        key: hex::encode(key),
        name: open.invite.name.as_ref().map(ToString::to_string),
        remaining: open.remaining,
        expires_unix: open.invite.expires,
    });
    NetworkStatus {
        id: network.id().to_string(),
        name: network.name().map(ToString::to_string),
        label: network.label().map(ToString::to_string),
        state: kind,
        why,
        refused: network
            .joining()
            .and_then(|joining| joining.refusal)
            .is_some_and(Refusal::is_final),
        ipv4: network.ipv4(own),
        members,
        invites: invites.collect(),
        rules: (state.table.rules.as_ref())
            .map(|rules| rules.iter().map(|rule| rules::in_words(rule, state)).collect()),
        default: state.table.inside.to_string(),
        routes: Vec::new(),
        shadowed: shadowed(network, networks),
    }
}

/// The addresses of members that lead to nodes of other networks.
fn shadowed(network: &Network, networks: &Networks) -> Vec<ShadowedStatus> {
    let each = networks.shadowed(network).into_iter();
    each.map(|shadowed| {
        let other = networks.iter().find(|other| other.id() == shadowed.network);
        let named = |of: Option<&Network>, key| of.and_then(|of| of.state().names.get(key)).map(ToString::to_string);
        ShadowedStatus {
            ipv4: shadowed.ipv4,
            npub: shadowed.member.to_string(),
            name: named(Some(network), &shadowed.member),
            own: shadowed.member == *networks.own(),
            leads_to: ShadowingNode {
                network: other.and_then(Network::label).map(ToString::to_string),
                npub: shadowed.leads_to.to_string(),
                name: named(other, &shadowed.leads_to),
                own: shadowed.leads_to == *networks.own(),
            },
        }
    })
    .collect()
}
