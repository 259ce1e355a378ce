//! Commands about private networks.

use std::net::SocketAddr;

use weft_core::Path;
use weft_os::clock::boottime_ms;
use weft_os::netlink::Netlink;
use weft_os::random::random_bytes;
use weft_roster::invite::{Code, EntryPoint, MAX_ADDRESSES, Seed};
use weft_roster::names::{Name, NameError};

use super::run::{Daemon, unix_now};
use crate::control::{self, ErrorCode, NetworkCommand, Reply};
use crate::networks::{MemberChange, Network, Networks, NewInvite, Refusal, is_global, store};
use crate::status::{Document as _, InviteStatus, Invited, MemberStatus, NetworkList, NetworkState, NetworkStatus};

impl Daemon {
    /// Carries out a command about networks, and answers.
    pub(super) fn answer_network(&mut self, command: NetworkCommand, reply: Reply) {
        let times = (boottime_ms(), unix_now());
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
            command => self.change_network(command, times),
        };
        match done {
            Ok(()) => reply.ok(&list(&self.networks, times.1)),
            Err(why) => refuse(reply, why),
        }
    }

    fn change_network(&mut self, command: NetworkCommand, (now, unix): (u64, u64)) -> Result<(), String> {
        let text = |error: crate::networks::NetworkError| error.to_string();
        match command {
            NetworkCommand::List {} | NetworkCommand::Invite { .. } => Ok(()),
            NetworkCommand::Create { name, host } => {
                let name = Name::network(&name).map_err(|error| error.to_string())?;
                let nonce = random()?;
                self.networks
                    .create(name, host_name(host)?, nonce, unix)
                    .map_err(text)?;
                Ok(())
            }
            NetworkCommand::Join { code, host } => {
                let code = Code::parse(&code).map_err(|error| error.to_string())?;
                self.networks.join(&code, host_name(host)?, now, unix).map_err(text)?;
                Ok(())
            }
            NetworkCommand::Leave { network } => {
                let id = self.networks.forget(network.as_deref()).map_err(text)?;
                store::remove(self.state.paths().directory(), id)
                    .map_err(|error| format!("the file of the network cannot be removed: {error}"))
            }
            NetworkCommand::Member {
                network,
                member,
                change,
                name,
            } => {
                let change = match change {
                    control::MemberChange::Remove => MemberChange::Remove,
                    control::MemberChange::MakeAdmin => MemberChange::MakeAdmin,
                    control::MemberChange::RevokeAdmin => MemberChange::RevokeAdmin,
                    control::MemberChange::Rename => {
                        let name = name.ok_or_else(|| "the new name is missing".to_owned())?;
                        MemberChange::Rename(Name::host(&name).map_err(|error| error.to_string())?)
                    }
                };
                let changed = self
                    .networks
                    .change_member(network.as_deref(), &member, change, (now, unix));
                changed.map(drop).map_err(text)
            }
            NetworkCommand::Revoke { network, invite } => self
                .networks
                .revoke(network.as_deref(), &invite, (now, unix))
                .map_err(text),
        }
    }

    fn invite(
        &mut self,
        network: Option<&str>,
        name: Option<String>,
        tags: &[String],
        (uses, expires_s): (u32, u32),
        addresses: Vec<SocketAddr>,
    ) -> Result<Invited, String> {
        let (now, unix) = (boottime_ms(), unix_now());
        let tags = tags.iter().map(|tag| Name::label(tag));
        let tags = tags
            .collect::<Result<_, NameError>>()
            .map_err(|error| error.to_string())?;
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
        let usable = |ip: &std::net::IpAddr| match ip {
            std::net::IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
            std::net::IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        };
        all.retain(usable);
        // Those that other networks reach come first.
        all.sort_by_key(|ip| (ip.is_ipv6(), !is_global(ip)));
        let listens = |ip: &std::net::IpAddr| {
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
        let member = |key: &weft_noise::PublicKey| self.networks.iter().any(|network| network.is_member(key));
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

fn host_name(name: Option<String>) -> Result<Option<Name>, String> {
    let name = name.map(|name| Name::host(&name)).transpose();
    name.map_err(|error| error.to_string())
}

fn random() -> Result<[u8; 16], String> {
    let mut bytes = [0; 16];
    random_bytes(&mut bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(bytes)
}

fn list(networks: &Networks, unix: u64) -> NetworkList {
    NetworkList {
        schema: NetworkList::SCHEMA.to_owned(),
        networks: networks.iter().map(|network| status(network, networks, unix)).collect(),
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
                None => "no answer yet from the node that the code names".to_owned(),
            },
        ),
        (false, None) => (
            NetworkState::Removed,
            "an administrator has removed this node; `weft leave` forgets the network".to_owned(),
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
    let hex = |key: &[u8; 32]| key.iter().map(|byte| format!("{byte:02x}")).collect();
    let invites = network.open_invites(unix).map(|(key, open)| InviteStatus {
        key: hex(key),
        name: open.invite.name.as_ref().map(ToString::to_string),
        remaining: open.remaining,
        expires_unix: open.invite.expires,
    });
    NetworkStatus {
        id: network.id().to_string(),
        name: network.name().map(ToString::to_string),
        state: kind,
        why,
        refused: network
            .joining()
            .and_then(|joining| joining.refusal)
            .is_some_and(Refusal::is_final),
        ipv4: network.ipv4(own),
        members,
        invites: invites.collect(),
    }
}
