//! Commands about private networks.

use std::net::{IpAddr, SocketAddr};

use weft_config::peer::NodeRef;
use weft_control::status::{Document, Invited, NetworkList, NetworkStatus, SignedList, SignedStatus, Why};
use weft_control::{ErrorCode, MemberCommand, NetworkCommand, Reply};
use weft_core::Path;
use weft_desired::addresses::HostAddresses;
use weft_desired::references::NotFound;
use weft_host::surroundings::{Subnets, Surroundings};
use weft_networks::rules::why::{self, Known, Question, Verdict};
use weft_networks::{Changed, NetworkError, NewInvite, RouteChange};
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::netlink::{InterfaceAddress, Netlink};
use weft_os::random::random_bytes;
use weft_reach::message::Kind;
use weft_reach::nat::is_private;
use weft_roster::invite::{Code, EntryPoint, Seed};
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_wire::Subnet;

use super::guests::NewGuest;
use super::network_list::network_list;
use super::run::Daemon;

impl Daemon {
    /// Carries out a command about networks, and answers once what it has changed is saved.
    pub(super) fn answer_network(&mut self, command: NetworkCommand, reply: Reply) {
        let times = (boottime_ms(), unix_s());
        let command = match self.with_keys(command) {
            Ok(command) => command,
            Err(why) => return answer(reply, Err::<NetworkList, _>(why)),
        };
        match command {
            NetworkCommand::Why {
                from,
                to,
                behind,
                service,
            } => answer(reply, self.why(&from, &to, behind, &service, times.1)),
            NetworkCommand::JoinNvpn {
                label,
                by_hand,
                request,
            } => {
                let asked = self.request_nvpn((label.as_deref(), by_hand.as_ref()), request.as_deref(), times);
                let list = |request| NetworkList {
                    nvpn_request: Some(request),
                    ..NetworkList::none()
                };
                answer(reply, asked.map(list));
            }
            NetworkCommand::Requests { accept_s } => answer(reply, self.requests(accept_s)),
            NetworkCommand::Deny { node } => answer(reply, self.deny(&node)),
            NetworkCommand::Signed {
                network,
                member,
                leaves,
            } => {
                let of = (member.as_deref(), leaves);
                answer(reply, self.signed(network.as_deref(), of, times.1));
            }
            NetworkCommand::List {} | NetworkCommand::Members {} => {
                answer(reply, Ok(self.network_list(Done::default(), times)));
            }
            NetworkCommand::Invite {
                network,
                name,
                tags,
                uses,
                expires_s,
                addresses,
            } => self.change_and_save(
                move |daemon| daemon.invite(network.as_deref(), name, &tags, (uses, expires_s), addresses),
                |_, made| answer(reply, made),
            ),
            NetworkCommand::Guests {} => answer(reply, Ok(self.guest_list())),
            NetworkCommand::AddGuest {
                network,
                name,
                key,
                preshared,
                tags,
                ipv4,
            } => {
                let new = NewGuest {
                    network,
                    name,
                    key,
                    preshared,
                    tags,
                    ipv4,
                };
                self.change_and_save(
                    move |daemon| daemon.add_guest(new, times),
                    |_, made| answer(reply, made),
                );
            }
            NetworkCommand::RemoveGuest { network, guest } => self.change_and_save(
                move |daemon| daemon.remove_guest(network.as_deref(), &guest, times),
                |daemon, removed| {
                    if let Ok(key) = &removed {
                        daemon.forget_guest(key);
                    }
                    answer(reply, removed.map(|_| daemon.guest_list()));
                },
            ),
            NetworkCommand::Leave { network, sure } => self.change_and_save(
                move |daemon| daemon.leave(network.as_deref(), sure, times),
                move |daemon, left| match left {
                    Ok(left) if daemon.networks.iter().any(|network| network.id() == left) => {
                        daemon.farewells.wait(left, reply);
                    }
                    left => answer(reply, left.map(|_| daemon.network_list(Done::default(), times))),
                },
            ),
            command => self.change_and_save(
                move |daemon| daemon.change_networks(command, times),
                move |daemon, done| answer(reply, done.map(|done| daemon.network_list(done, times))),
            ),
        }
    }

    fn change_networks(&mut self, command: NetworkCommand, times: (u64, u64)) -> Result<Done, String> {
        let networks = &mut self.networks;
        let done =
            |changed: Result<NetworkId, NetworkError>| changed.map(Done::about).map_err(|error| error.to_string());
        match command {
            NetworkCommand::Ask { admin, addresses, host } => {
                let begun = self.ask_admin(&admin, addresses, host.as_deref(), times.0);
                begun.map(|()| Done::default())
            }
            NetworkCommand::Approve {
                network,
                node,
                nvpn,
                name,
                tags,
            } => {
                let node = (node.as_str(), nvpn);
                let approved = self.approve(network.as_deref(), node, name.as_deref(), &tags, times);
                approved.map(Done::about)
            }
            NetworkCommand::Create { name, host } => self.create(&name, host, times.1),
            NetworkCommand::Join { code, host } => self.join(&code, host, times),
            NetworkCommand::Rules { network, change } => done(networks.change_rules(network.as_deref(), change, times)),
            NetworkCommand::Route {
                network,
                member,
                subnet,
                change,
            } => self.change_route(network.as_deref(), &member, &subnet, change, times),
            NetworkCommand::Revoke { network, invite } => {
                let revoked = networks.revoke(network.as_deref(), &invite, times);
                revoked.map(|()| Done::default()).map_err(|error| error.to_string())
            }
            NetworkCommand::Member(MemberCommand {
                network,
                member,
                change,
                keep,
            }) => {
                let changed = networks.change_member(network.as_deref(), &member, (change, keep.as_ref()), times);
                let done = |changed: Changed| Done {
                    network: None,
                    signed_again: changed.again,
                };
                changed.map(done).map_err(|error| error.to_string())
            }
            NetworkCommand::Successor { network, member, keep } => {
                let named = networks.set_successor(network.as_deref(), (member.as_deref(), keep.as_ref()), times);
                let done = |(id, signed_again)| Done {
                    network: Some(id),
                    signed_again,
                };
                named.map(done).map_err(|error| error.to_string())
            }
            NetworkCommand::Invite { .. }
            | NetworkCommand::JoinNvpn { .. }
            | NetworkCommand::Leave { .. }
            | NetworkCommand::Why { .. }
            | NetworkCommand::Requests { .. }
            | NetworkCommand::Deny { .. }
            | NetworkCommand::Signed { .. }
            | NetworkCommand::AddGuest { .. }
            | NetworkCommand::RemoveGuest { .. }
            | NetworkCommand::Guests {}
            | NetworkCommand::List {}
            | NetworkCommand::Members {} => Ok(Done::default()),
        }
    }

    fn create(&mut self, name: &str, host: Option<String>, unix: u64) -> Result<Done, String> {
        let name = Name::network(name).map_err(|error| error.to_string())?;
        let nonce = random()?;
        let made = self.networks.create(name, host_name(host)?, nonce, unix);
        made.map(Done::about).map_err(|error| error.to_string())
    }

    fn join(&mut self, code: &str, host: Option<String>, (now, unix): (u64, u64)) -> Result<Done, String> {
        let code = Code::parse(code).map_err(|error| error.to_string())?;
        let begun = self.networks.join(&code, host_name(host)?, now, unix);
        begun.map(Done::about).map_err(|error| error.to_string())
    }

    /// Lists the records that end with the rights of an administrator.
    fn signed(&self, network: Option<&str>, of: (Option<&str>, bool), unix: u64) -> Result<SignedList, String> {
        let found = self.networks.signed_by(network, of, unix);
        let (signed, seen) = found.map_err(|error| error.to_string())?;
        let status = |signed: weft_networks::Signed| SignedStatus {
            what: signed.what,
            kind: signed.kind,
        };
        Ok(SignedList {
            schema: SignedList::SCHEMA.to_owned(),
            signed: signed.into_iter().map(status).collect(),
            seen,
        })
    }

    fn leave(&mut self, network: Option<&str>, force: bool, times: (u64, u64)) -> Result<NetworkId, String> {
        let left = self.networks.leave(network, force, times);
        let id = left.map_err(|error| error.to_string())?;
        match self.saving.why_unusable(&id).filter(|_| !force) {
            Some(why) => Err(format!(
                "{why}; it stays, because it may be the only one that has the records: \
                 `weft leave --force --network {id}` removes it"
            )),
            None => Ok(id),
        }
    }

    /// Approves or revokes a subnet of a member, or the member as exit: `subnet` is then `exit`, or a
    /// route to all addresses.
    fn change_route(
        &mut self,
        network: Option<&str>,
        member: &str,
        subnet: &str,
        change: RouteChange,
        times: (u64, u64),
    ) -> Result<Done, String> {
        let read = subnet.parse::<Subnet>();
        let is_exit = subnet == "exit" || read.is_ok_and(|subnet| subnet.prefix_len() == 0);
        let changed = match read {
            _ if is_exit => self.networks.change_exit(network, member, change, times),
            Ok(subnet) => self.networks.change_route(network, (member, subnet), change, times),
            Err(_) => {
                let shown = subnet.escape_debug();
                return Err(format!("'{shown}' is no subnet; write it as 192.168.7.0/24"));
            }
        };
        changed.map(Done::about).map_err(|error| error.to_string())
    }

    /// Returns the list that answers a change.
    pub(super) fn network_list(&self, done: Done, (now, unix): (u64, u64)) -> NetworkList {
        let mut list = network_list((&self.networks, &self.saving), done.network, unix);
        list.signed_again = done.signed_again;
        let foreign = |network: &&mut NetworkStatus| network.founded_with.is_some();
        if !self.nvpn.is_on() {
            for network in list.networks.iter_mut().filter(foreign) {
                network.why =
                    "nvpn is off on this machine, so no packets pass: `weft set nvpn.enabled true`".to_owned();
            }
        }
        self.add_routes(&mut list, now);
        self.add_asked_at(&mut list, now);
        self.add_standings(&mut list, now);
        list
    }

    pub(super) fn why(
        &self,
        from: &str,
        to: &str,
        behind: Option<IpAddr>,
        service: &str,
        unix: u64,
    ) -> Result<Why, String> {
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
        let verdict = self.verdict(&question, unix);
        Ok(Why {
            schema: Why::SCHEMA.to_owned(),
            allowed: verdict.allowed,
            reasons: verdict.reasons,
        })
    }

    /// Explains what the rules say about a flow, by those that the lanes of this node apply.
    pub(super) fn verdict(&self, question: &Question, unix: u64) -> Verdict {
        let config = &self.configuration.config;
        let known = Known {
            networks: &self.networks,
            compiled: &self.desired.rules,
            local: &config.local_rules,
            by_hand: &config.by_hand().peers,
        };
        why::why(question, &known, unix)
    }

    /// Finds the exit that questions without a name are about: that of this node, or this node, or the first
    /// one.
    fn any_exit(&self) -> Result<PublicKey, String> {
        let exits = self.networks.exits();
        let chosen = self.desired.exit;
        let own = self.networks.own();
        let own = exits.contains_key(own).then_some(*own);
        let any = chosen
            .map(|(key, _)| key)
            .or(own)
            .or_else(|| exits.keys().next().copied());
        any.ok_or_else(|| "no network of this node has an exit; `weft routes` lists them".to_owned())
    }

    /// Finds the node at one end of a flow.
    fn node_named(&self, named: &str) -> Result<PublicKey, String> {
        let wanted = named.parse::<NodeRef>();
        let wanted = wanted.map_err(|error| format!("{} is {error}", named.escape_debug()))?;
        match (self.desired.members.find(&wanted), wanted) {
            (Ok(key), _) | (Err(NotFound::Unknown { .. }), NodeRef::Key(key)) => Ok(key),
            (Err(error @ NotFound::Unknown { .. }), NodeRef::Address(_)) => {
                Err(format!("{error}; an address behind a node is given with --behind"))
            }
            (Err(error), _) => Err(error.to_string()),
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
        let (now, unix) = (boottime_ms(), unix_s());
        let tags = Name::labels(tags).map_err(|error| error.to_string())?;
        let (addresses, unsure) = match addresses.is_empty() {
            true => self.own_addresses()?,
            false => (addresses, Vec::new()),
        };
        let is_outer = |at: &SocketAddr| !is_private(at.ip()) && !unsure.contains(at);
        let entry = match addresses.iter().any(is_outer) {
            true => None,
            false => self.entry_point(),
        };
        if addresses.is_empty() && entry.is_none() {
            return Err(no_address(&surroundings()?, self.system.interface));
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
            entry: code.entry.map(|entry| entry.address),
            local_only: code.entry.is_none() && !code.held().iter().any(is_outer),
            addresses: code.held(),
        })
    }

    /// Returns the addresses of this node for a code, and those among them at which others see it, and at which a
    /// NAT may let in no datagrams of a joiner.
    pub(super) fn own_addresses(&self) -> Result<(Vec<SocketAddr>, Vec<SocketAddr>), String> {
        let host = HostAddresses::of(&surroundings()?, self.system.interface, &self.facts.listen);
        let [mapped, mut observed] = [Kind::Mapped, Kind::Observed].map(|kind| self.reaching.own_of(kind));
        observed.retain(|at| !is_private(at.ip()));
        Ok((host.of_invite(&[&mapped[..], &observed].concat()), observed))
    }

    /// Finds a member with an address that other networks reach, for a joiner that cannot reach this node.
    fn entry_point(&self) -> Option<EntryPoint> {
        let member = |key: &PublicKey| self.networks.iter().any(|network| network.is_member(key));
        let linked = self.node.peer_status(boottime_ms()).filter(|peer| member(&peer.key));
        let mut entries: Vec<EntryPoint> = linked
            .filter_map(|peer| match peer.path? {
                Path::Direct(address) if peer.link.is_some() && !is_private(address.ip()) => {
                    Some(EntryPoint { key: peer.key, address })
                }
                _ => None,
            })
            .collect();
        entries.sort_by_key(|entry| entry.key);
        entries.first().copied()
    }
}

/// A change that was carried out.
#[derive(Default)]
pub(super) struct Done {
    /// The network that the answer is about; `None`: all of them.
    network: Option<NetworkId>,
    /// The records that were signed again, in words.
    signed_again: Vec<String>,
}

impl Done {
    fn about(network: NetworkId) -> Self {
        Self {
            network: Some(network),
            ..Self::default()
        }
    }
}

fn answer(reply: Reply, done: Result<impl Document, String>) {
    match done {
        Ok(document) => reply.ok(&document),
        Err(why) => reply.refuse(weft_control::Refusal::new(ErrorCode::Network, why)),
    }
}

/// Reads what the system says now.
fn surroundings() -> Result<Surroundings, String> {
    let read = Netlink::open().and_then(|mut netlink| Surroundings::read(&mut netlink, &Subnets::default()));
    read.map_err(|error| error.to_string())
}

/// Returns the error of an invite on a host without an address for the code. `own` is the index of the node's
/// interface.
fn no_address(surroundings: &Surroundings, own: u32) -> String {
    let passes = |of: &&InterfaceAddress| of.index != own && surroundings.leads(of).is_some();
    let link_local = |of: &&InterfaceAddress| match of.address {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let mut addresses = surroundings.addresses.iter().filter(passes);
    match addresses.find(link_local).and_then(|of| surroundings.name(of.index)) {
        Some(name) => format!(
            "this machine has link-local addresses alone, which a code cannot name; give it and the other machine addresses of one \
             network, here for example with: ip address add 192.168.77.1/24 dev {name}"
        ),
        None => {
            "this machine has no address for the code; connect it to a network, or give one with --address".to_owned()
        }
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
