//! The private networks of this node: their records, and the documents that bring them to members.
//!
//! | module | what it is |
//! |---|---|
//! | [`Networks`] | all networks of the node: commands, documents and time in, documents out |
//! | `network` | one network: its records, its members, the request to join it |
//! | `labels` | the names by which this node tells its networks apart |
//! | `addresses` | IPv4 addresses that members of several networks have in common |
//! | `offers` | the routes that members offer to administrators |
//! | `presence`, `presences` | where members are at present: one statement, and all of a network |
//! | `document` | the documents on the service port of Weft, as bytes |
//! | `membership` | membership without an invite: requests, approvals, denials |
//! | `requests`, `asked` | such requests at the administrator, and at the node that asks |
//! | [`store`] | the files that keep networks between two runs |
//!
//! Never here: sessions and the packet path, which follow from [`Networks::rows`].

pub(crate) mod addresses;
mod asked;
mod document;
mod labels;
mod membership;
mod network;
mod offers;
pub(crate) mod presence;
mod presences;
mod requests;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::invite::{Code, Seed};
use weft_roster::names::Name;
use weft_roster::network_id::{NetworkId, Nonce};
use weft_roster::record::Exit;
use weft_roster::rules::{MAX_RULES, Policy, RuleError};
use weft_wire::Subnet;

pub use self::addresses::Shadowed;
pub use self::asked::{Asked, MAX_ASKED};
pub use self::document::{Ask, Document, DocumentError, Refusal, Verdict};
pub use self::membership::{Approval, fingerprint};
pub use self::network::{Joining, Network};
pub use self::offers::{MAX_OFFERED, exit_of, of_exit};
pub use self::presence::Presence;
pub use self::presences::PresenceDigest;
use self::requests::Requests;
pub use self::requests::{MAX_REQUESTS, Request};
use crate::networks::network::Enrolment;

/// Maximum number of networks of one node.
pub const MAX_NETWORKS: usize = 16;
/// How long changed presences wait for further ones before they are followed, in ms.
const FOLLOW_PRESENCES: u64 = 1_000;
/// Maximum number of requests whose answers this node passes back.
const MAX_PASSED_ON: usize = 64;
/// Administrators that get a request that this node passes on.
const ASKED_ADMINS: usize = 3;

/// The reason why a command about networks is not carried out. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The node has as many networks as it can have.
    #[error("this node is in {MAX_NETWORKS} networks, and no more are possible; leave one")]
    TooMany,
    /// No network has this name.
    #[error("this node is in no network named {0}; `weft networks` lists them")]
    Unknown(String),
    /// The node is in several networks.
    #[error("this node is in several networks; name one with --network")]
    Which,
    /// The node is in no network.
    #[error("this node is in no network; `weft create` makes one, and `weft join` joins one")]
    NoNetwork,
    /// The node is in this network already.
    #[error("this node is in that network already")]
    Already,
    /// Another network has this name.
    #[error("this node is in a network named {0} already; choose another name")]
    NameTaken(Name),
    /// The node may not change the network.
    #[error("this node is no administrator of the network; ask one of {0}")]
    NotAdmin(String),
    /// No member has this name or key.
    #[error("the network has no member {0}; `weft members` lists them")]
    NoMember(String),
    /// A member does not have this tag.
    #[error("{member} has no tag {tag}; `weft members` lists its tags")]
    NoTag {
        /// The member, as it was named.
        member: String,
        /// The tag.
        tag: Name,
    },
    /// A member would take over from itself.
    #[error("{0} is both the old machine and the new one; name two")]
    SameMember(String),
    /// This node would be removed by its own command.
    #[error("this node cannot replace itself; ask another administrator, or make one with `weft admin add`")]
    ReplacesItself,
    /// No open invite begins like this.
    #[error("the network has no open invite {0}; `weft invites` lists them")]
    NoInvite(String),
    /// A rule cannot be read.
    #[error("rule {text:?}: {error}; as in `allow from tag:family to nas tcp/22`")]
    BadRule {
        /// The rule.
        text: String,
        /// What is wrong with it.
        error: RuleError,
    },
    /// No rule has this number.
    #[error("the network has no rule {0}; `weft rule list` shows them with their numbers")]
    NoRule(usize),
    /// More rules than a network can have.
    #[error("a network has at most {MAX_RULES} rules")]
    TooManyRules,
    /// The rules in force have parts that this version does not know.
    #[error(
        "the rules are those of a later version of weft; update this node, or replace them all with `weft rule set`"
    )]
    RulesNotUnderstood,
    /// A node has not asked for membership.
    #[error("no request of {0} waits; `weft requests` lists them")]
    NoRequest(String),
    /// A request would go to this node itself.
    #[error("{0} is this node itself; name an administrator of the network")]
    Itself(PublicKey),
    /// The node asks too many administrators.
    #[error("this node asks {MAX_ASKED} administrators already; wait until one has answered")]
    AskedTooMany,
    /// The network has no room for another member.
    #[error("the network has as many members as it can have; remove one")]
    TooManyMembers,
    /// The member does not offer this route.
    #[error("{0} does not offer the route {1}; `weft routes` lists what members offer")]
    NotOffered(String, Subnet),
    /// The member does not offer to be an exit.
    #[error("{0} does not offer to be an exit; `weft set --advertise-exit` there does")]
    NoExitOffered(String),
    /// The member is no exit.
    #[error("{0} is no approved exit; `weft routes` lists them")]
    NoExit(String),
    /// The member has no such route.
    #[error("{0} has no approved route {1}; `weft routes` lists them")]
    NoRoute(String, Subnet),
    /// Records of this node about this administrator do not count.
    #[error(
        "{0} is an administrator of the same rank or a higher one; itself or one above it decides about its routes"
    )]
    Senior(String),
    /// The subnet cannot be behind a member.
    #[error("{0} is {1}; a route needs another subnet")]
    Reserved(Subnet, &'static str),
    /// The subnet contains the address of a member.
    #[error("{0} contains the address of {1}; a route needs a subnet without members")]
    Covers(Subnet, String),
    /// The invite has expired.
    #[error("the invite has expired; ask for a new one")]
    Expired,
    /// The records do not permit the change.
    #[error(transparent)]
    Change(#[from] weft_roster::changes::ChangeError),
    /// The record is not valid.
    #[error(transparent)]
    Record(#[from] weft_roster::record::RecordError),
    /// The records of the network have no room left.
    #[error("the records of the network take all the room that they may have")]
    Full,
}

/// A node that a network brings: a member, or a contact by which this node joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub key: PublicKey,
    /// Its name in the network.
    pub name: Option<Name>,
    /// The name of the network on this node.
    pub network: Option<Name>,
    /// Addresses at which it may be.
    pub addresses: Vec<SocketAddr>,
    /// Its IPv4 address in the network, if packets to it go to this node.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv4 address of this node in the network.
    pub source: Option<Ipv4Addr>,
    /// Whether IP packets pass: it and this node are members.
    pub member: bool,
}

/// What a new invite says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInvite {
    /// The name of the member that it brings.
    pub name: Option<Name>,
    /// The tags that members get.
    pub tags: BTreeSet<Name>,
    /// How many members it may bring.
    pub uses: u32,
    /// Its end, in seconds since 1970.
    pub expires: u64,
    /// Addresses of this node.
    pub addresses: Vec<SocketAddr>,
    /// Another way into the network.
    pub entry: Option<weft_roster::invite::EntryPoint>,
}

/// A change of the rules of a network. Members may be named in the text of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// A rule is added in front of the one with this number, or at the end.
    Add {
        /// The rule.
        rule: String,
        /// The number, from 1.
        at: Option<usize>,
    },
    /// The rule with this number, from 1, is removed.
    Remove(usize),
    /// All rules are replaced.
    Set(Vec<String>),
    /// What is done with flows that no rule matches.
    Default(Policy),
}

/// All networks of a node. Times are ms on a clock that never goes back; `unix` is seconds since
/// 1970.
pub struct Networks {
    identity: Arc<Identity>,
    own: PublicKey,
    all: BTreeMap<NetworkId, Network>,
    /// Documents to send.
    out: Vec<(PublicKey, Vec<u8>)>,
    /// The nodes to which answers are passed back, by network and asking node.
    passed_on: BTreeMap<(NetworkId, PublicKey), PublicKey>,
    /// Nodes that can be reached now.
    reachable: BTreeSet<PublicKey>,
    /// Requests of other nodes for membership.
    requests: Requests,
    /// Administrators that this node asks for membership.
    asked: BTreeMap<PublicKey, Asked>,
    /// The subnets that this node offers.
    offer: BTreeSet<Subnet>,
    /// Something changed that others follow: members, names, addresses.
    changed: bool,
    /// When changed presences are followed, in ms.
    presences_at: Option<u64>,
}

impl Networks {
    /// The networks of the node `identity`, as they were kept.
    #[must_use]
    pub fn new(identity: Arc<Identity>, kept: Vec<Network>) -> Self {
        let mut networks = Self {
            own: identity.public(),
            identity,
            all: kept.into_iter().map(|network| (network.id(), network)).collect(),
            out: Vec::new(),
            passed_on: BTreeMap::new(),
            reachable: BTreeSet::new(),
            requests: Requests::default(),
            asked: BTreeMap::new(),
            offer: BTreeSet::new(),
            changed: true,
            presences_at: None,
        };
        networks.label_networks();
        networks
    }

    /// All networks, by identifier.
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.all.values()
    }

    /// The key of this node.
    #[must_use]
    pub const fn own(&self) -> &PublicKey {
        &self.own
    }

    /// Founds a network, with this node as its first member.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn create(
        &mut self,
        name: Name,
        host: Option<Name>,
        nonce: Nonce,
        unix: u64,
    ) -> Result<NetworkId, NetworkError> {
        self.check_room()?;
        if self.all.values().any(|network| network.label() == Some(&name)) {
            return Err(NetworkError::NameTaken(name));
        }
        let network = Network::found(&self.identity, name, host, nonce, unix)?;
        Ok(self.insert(network))
    }

    /// Makes an invite, and returns its code.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn invite(
        &mut self,
        of: Option<&str>,
        invite: &NewInvite,
        seed: Seed,
        (now, unix): (u64, u64),
    ) -> Result<Code, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        let code = network.invite(identity, invite, seed, now, unix)?;
        self.changed = true;
        Ok(code)
    }

    /// Begins to join a network. [`Network::joining`] says how far that is.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn join(&mut self, code: &Code, host: Option<Name>, now: u64, unix: u64) -> Result<NetworkId, NetworkError> {
        if u64::from(code.expires) <= unix {
            return Err(NetworkError::Expired);
        }
        match self.all.get(&code.network) {
            Some(known) if known.is_member(&self.own) => return Err(NetworkError::Already),
            Some(_) => {}
            None => self.check_room()?,
        }
        let network = Network::join(&self.own, code, host, now);
        Ok(self.insert(network))
    }

    /// Removes a member, or changes its name.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_member(
        &mut self,
        of: Option<&str>,
        member: &str,
        change: MemberChange,
        (now, unix): (u64, u64),
    ) -> Result<PublicKey, NetworkError> {
        let id = self.find(of)?;
        if let MemberChange::ReplaceBy(new) = &change {
            self.take_in_successor(id, member, new, (now, unix))?;
        }
        let (identity, network) = self.with(id)?;
        let key = network.change_member(identity, member, change, now, unix)?;
        self.changed = true;
        Ok(key)
    }

    /// Changes the rules of a network.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_rules(
        &mut self,
        of: Option<&str>,
        change: RuleChange,
        (now, unix): (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_rules(identity, change, now, unix)?;
        self.changed = true;
        Ok(id)
    }

    /// Approves or revokes a route of a member.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_route(
        &mut self,
        of: Option<&str>,
        route: (&str, Subnet),
        change: RouteChange,
        times: (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_route(identity, route, change, times)?;
        self.changed = true;
        Ok(id)
    }

    /// Approves a member as exit, or revokes that.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn change_exit(
        &mut self,
        of: Option<&str>,
        member: &str,
        change: RouteChange,
        times: (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.change_exit(identity, member, change, times)?;
        self.changed = true;
        Ok(id)
    }

    /// Sets the subnets that this node offers to all its networks. All addresses of an IP version
    /// offer it as exit.
    pub fn set_offer(&mut self, subnets: &BTreeSet<Subnet>) {
        self.offer.clone_from(subnets);
        for network in self.all.values_mut() {
            network.set_offer(subnets.clone());
        }
    }

    /// The approved routes of all networks that this node is a member of, each with the members that
    /// have it.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<Subnet, BTreeSet<PublicKey>> {
        let mut routes: BTreeMap<Subnet, BTreeSet<PublicKey>> = BTreeMap::new();
        for network in self.all.values().filter(|network| network.is_member(&self.own)) {
            for (subnet, members) in network.routes() {
                routes.entry(*subnet).or_default().extend(members);
            }
        }
        routes
    }

    /// The routes that this node offers and that are approved.
    #[must_use]
    pub fn own_routes(&self) -> BTreeSet<Subnet> {
        let approved = self.routes();
        let own = |subnet: &&Subnet| approved.get(subnet).is_some_and(|members| members.contains(&self.own));
        self.offer.iter().filter(own).copied().collect()
    }

    /// The members that are exits in a network that this node is a member of.
    #[must_use]
    pub fn exits(&self) -> BTreeMap<PublicKey, Exit> {
        let joined = self.all.values().filter(|network| network.is_member(&self.own));
        let mut exits: BTreeMap<PublicKey, Exit> = BTreeMap::new();
        for (key, exit) in joined.flat_map(|network| &network.state().exits) {
            let known = exits.entry(*key).or_insert(*exit);
            known.ipv4 |= exit.ipv4;
            known.ipv6 |= exit.ipv6;
        }
        exits
    }

    /// What this node forwards as exit: the IP versions that it offers and that are approved.
    #[must_use]
    pub fn own_exit(&self) -> Option<Exit> {
        let approved = self.exits().remove(&self.own)?;
        let offered = exit_of(&self.offer)?;
        let both = Exit {
            ipv4: approved.ipv4 && offered.ipv4,
            ipv6: approved.ipv6 && offered.ipv6,
        };
        (both.ipv4 || both.ipv6).then_some(both)
    }

    /// Revokes the open invite whose key begins with `prefix`.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn revoke(&mut self, of: Option<&str>, prefix: &str, (now, unix): (u64, u64)) -> Result<(), NetworkError> {
        let id = self.find(of)?;
        let (identity, network) = self.with(id)?;
        network.revoke(identity, prefix, now, unix)?;
        self.changed = true;
        Ok(())
    }

    /// Forgets a network. The other members learn nothing of it.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn forget(&mut self, of: Option<&str>) -> Result<NetworkId, NetworkError> {
        let mut all = self.all.keys();
        let id = match (of, all.next(), all.next()) {
            // Also one that has removed this node.
            (None, Some(only), None) => *only,
            _ => self.find(of)?,
        };
        self.all.remove(&id);
        self.changed = true;
        Ok(id)
    }

    /// Processes a document of a node, which the session authenticates.
    ///
    /// # Errors
    /// [`DocumentError`]: the document is ignored.
    pub fn handle_document(&mut self, from: PublicKey, bytes: &[u8], now: u64, unix: u64) -> Result<(), DocumentError> {
        match Document::decode(bytes)? {
            Document::Sync { network, message } => {
                let known = self.all.get_mut(&network).ok_or(DocumentError::OtherNetwork)?;
                if known.handle_sync(&self.own, &from, message, now)? {
                    self.label_networks();
                    self.changed = true;
                }
                Ok(())
            }
            Document::Presences { network, presences } => {
                let known = self.all.get_mut(&network).ok_or(DocumentError::OtherNetwork)?;
                if known.take_presences(from, presences, now)? {
                    self.presences_at.get_or_insert(now + FOLLOW_PRESENCES);
                }
                Ok(())
            }
            Document::PresenceDigest { network, digest } => {
                let known = self.all.get_mut(&network).ok_or(DocumentError::OtherNetwork)?;
                known.take_presence_digest(from, &digest, now)
            }
            Document::Offer { network, subnets } => {
                let known = self.all.get_mut(&network).ok_or(DocumentError::OtherNetwork)?;
                known.take_offer(&self.own, from, subnets, now)
            }
            Document::Ask(ask) => {
                let outcome = match self.all.get_mut(&ask.network) {
                    Some(network) => network.enrol(&self.identity, &ask, now, unix),
                    None => Enrolment::Refused(Refusal::OtherNetwork),
                };
                let refusal = match outcome {
                    Enrolment::Member => None,
                    Enrolment::Done => {
                        self.changed = true;
                        None
                    }
                    Enrolment::Refused(refusal) => Some(refusal),
                    Enrolment::PassOn(admins) => {
                        let admins = admins.into_iter().filter(|admin| self.reachable.contains(admin));
                        let admins: Vec<PublicKey> = admins.filter(|admin| *admin != from).take(ASKED_ADMINS).collect();
                        if !admins.is_empty() {
                            if self.passed_on.len() >= MAX_PASSED_ON {
                                self.passed_on.pop_first();
                            }
                            self.passed_on.insert((ask.network, ask.member), from);
                            self.out.extend(admins.into_iter().map(|admin| (admin, bytes.to_vec())));
                            return Ok(());
                        }
                        Some(Refusal::NoAdmin)
                    }
                };
                let (network, member) = (ask.network, ask.member);
                let answer = Document::Answer {
                    network,
                    member,
                    refusal,
                };
                self.out.push((from, answer.encode()));
                Ok(())
            }
            Document::Answer {
                network,
                member,
                refusal,
            } if member == self.own => {
                if let Some(known) = self.all.get_mut(&network) {
                    known.handle_answer(&from, refusal);
                }
                Ok(())
            }
            Document::Request { name } => {
                self.answer_request(from, name, now);
                Ok(())
            }
            Document::Verdict { network, verdict } => {
                self.handle_verdict(from, network, verdict);
                Ok(())
            }
            Document::Answer { network, member, .. } => {
                // Those that were asked are administrators.
                let known = self.all.get(&network).ok_or(DocumentError::OtherNetwork)?;
                if known.state().admins.rank(&from).is_some()
                    && let Some(back) = self.passed_on.remove(&(network, member))
                {
                    self.out.push((back, bytes.to_vec()));
                }
                Ok(())
            }
        }
    }

    /// Records which nodes can be reached now.
    pub fn set_reachable(&mut self, reachable: BTreeSet<PublicKey>, now: u64) {
        for network in self.all.values_mut() {
            network.set_reachable(&self.own, &reachable, now);
        }
        self.reachable = reachable;
    }

    /// Performs what is due at `now`.
    pub fn handle_timeout(&mut self, now: u64) {
        for network in self.all.values_mut() {
            self.changed |= network.end_dismissals(now) | network.follow_presences(&self.identity, now);
            while let Some(document) = network.poll(&self.own, now) {
                self.out.push(document);
            }
        }
        self.changed |= self.presences_at.take_if(|at| *at <= now).is_some();
        self.ask(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, if nothing else happens.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let asked = self.asked.values().map(Asked::timeout);
        self.all
            .values()
            .filter_map(|network| network.timeout(&self.own))
            .chain(asked)
            .chain(self.presences_at)
            .min()
    }

    /// Records that the presences of a network were written as they are.
    pub fn note_presences_saved(&mut self, network: NetworkId) {
        if let Some(network) = self.all.get_mut(&network) {
            network.note_presences_saved();
        }
    }

    /// Takes the documents to send, each with its receiver.
    pub fn take_documents(&mut self) -> Vec<(PublicKey, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }

    /// Returns whether members, names or addresses have changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Records that a network was written as it is.
    pub fn note_saved(&mut self, network: NetworkId) {
        if let Some(network) = self.all.get_mut(&network) {
            network.note_saved();
        }
    }

    /// The nodes of all networks: members, and contacts of those that this node joins, and
    /// administrators that it asks. A node of several networks has several rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let asked = self.asked.iter().filter_map(|(admin, asked)| asked.row(admin));
        let owners = self.owners();
        let of_networks = self
            .in_order()
            .flat_map(move |network| network.rows(&self.own, &owners));
        of_networks.chain(asked)
    }

    /// The labels of the networks of this node that each member is in.
    #[must_use]
    pub fn names_by_member(&self) -> BTreeMap<PublicKey, Vec<String>> {
        let mut names: BTreeMap<PublicKey, Vec<String>> = BTreeMap::new();
        for network in self.all.values().filter(|network| network.is_member(&self.own)) {
            let Some(name) = network.label() else { continue };
            for member in network.state().members.keys() {
                names.entry(*member).or_default().push(name.to_string());
            }
        }
        names
    }

    /// Whether guests are welcome: a network of this node has an invite that has not expired, or
    /// this node accepts requests without one.
    #[must_use]
    pub fn welcomes_guests(&self, now: u64, unix: u64) -> bool {
        let mut networks = self.all.values();
        let invites = networks.any(|network| network.is_member(&self.own) && network.has_invite(unix));
        invites || self.requests.welcome_guests(now)
    }

    fn insert(&mut self, mut network: Network) -> NetworkId {
        let id = network.id();
        network.set_offer(self.offer.clone());
        let before = self.all.get(&id);
        network.set_place(before.map_or_else(|| self.next_place(), Network::place));
        self.all.insert(id, network);
        self.label_networks();
        self.changed = true;
        id
    }

    fn check_room(&self) -> Result<(), NetworkError> {
        if self.all.len() < MAX_NETWORKS {
            Ok(())
        } else {
            Err(NetworkError::TooMany)
        }
    }

    /// The network of this label or identifier, or the only one.
    fn find(&self, named: Option<&str>) -> Result<NetworkId, NetworkError> {
        let Some(wanted) = named else {
            let mut members = self.all.values().filter(|network| network.is_member(&self.own));
            return match (members.next(), members.next()) {
                (Some(only), None) => Ok(only.id()),
                (Some(_), Some(_)) => Err(NetworkError::Which),
                (None, _) => Err(NetworkError::NoNetwork),
            };
        };
        let named = |network: &&Network| {
            network.label().is_some_and(|label| label.as_str() == wanted) || network.id().to_string() == wanted
        };
        let found = self.all.values().find(named).map(Network::id);
        found.ok_or_else(|| NetworkError::Unknown(wanted.escape_debug().to_string()))
    }

    fn with(&mut self, id: NetworkId) -> Result<(&Identity, &mut Network), NetworkError> {
        match self.all.get_mut(&id) {
            Some(network) => Ok((&self.identity, network)),
            None => Err(NetworkError::NoNetwork),
        }
    }
}

/// A change of a route of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteChange {
    /// It is used from now on.
    Approve,
    /// It is used no longer.
    Revoke,
}

/// A change of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// It is removed.
    Remove,
    /// It gets another name.
    Rename(Name),
    /// It gets these tags, and keeps those that it has.
    Tag(BTreeSet<Name>),
    /// It has these tags no longer.
    Untag(BTreeSet<Name>),
    /// It is removed, and the member of this name or npub takes over its name, tags and fixed address.
    ReplaceBy(String),
    /// It becomes an administrator.
    MakeAdmin,
    /// It is an administrator no longer. Records of its own that stay are signed again.
    RevokeAdmin,
}

#[cfg(test)]
mod tests;
