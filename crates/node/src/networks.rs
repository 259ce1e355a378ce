//! The private networks of this node: their records, and the documents that bring them to members.
//!
//! | module | what it is |
//! |---|---|
//! | [`Networks`] | all networks of the node: commands, documents and time in, documents out |
//! | `network` | one network: its records, its members, the request to join it |
//! | `document` | the documents on the service port of Weft, as bytes |
//! | [`store`] | the files that keep networks between two runs |
//!
//! Never here: sessions and the packet path, which follow from [`Networks::rows`].

mod document;
mod network;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::invite::{Code, Seed};
use weft_roster::names::Name;
use weft_roster::network_id::{NetworkId, Nonce};

pub use self::document::{Document, DocumentError, Refusal};
pub use self::network::{Joining, Network, is_global};
use crate::networks::network::Enrolment;

/// Maximum number of networks of one node.
pub const MAX_NETWORKS: usize = 16;
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
    /// No open invite begins like this.
    #[error("the network has no open invite {0}; `weft invites` lists them")]
    NoInvite(String),
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
    /// Addresses at which it may be.
    pub addresses: Vec<SocketAddr>,
    /// Its IPv4 address in the network.
    pub ipv4: Option<Ipv4Addr>,
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
    /// Something changed that others follow: members, names, addresses.
    changed: bool,
}

impl Networks {
    /// The networks of the node `identity`, as they were kept.
    #[must_use]
    pub fn new(identity: Arc<Identity>, kept: Vec<Network>) -> Self {
        Self {
            own: identity.public(),
            identity,
            all: kept.into_iter().map(|network| (network.id(), network)).collect(),
            out: Vec::new(),
            passed_on: BTreeMap::new(),
            reachable: BTreeSet::new(),
            changed: true,
        }
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
        if self.all.values().any(|network| network.name() == Some(&name)) {
            return Err(NetworkError::NameTaken(name));
        }
        let network = Network::found(&self.identity, name, host, nonce, unix)?;
        let id = network.id();
        self.all.insert(id, network);
        self.changed = true;
        Ok(id)
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
        self.all.insert(code.network, network);
        self.changed = true;
        Ok(code.network)
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
        let (identity, network) = self.with(id)?;
        let key = network.change_member(identity, member, change, now, unix)?;
        self.changed = true;
        Ok(key)
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
        let id = self.find(of)?;
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
                self.changed |= known.handle_sync(&self.own, &from, message, now)?;
                Ok(())
            }
            Document::Ask(ask) => {
                let outcome = match self.all.get_mut(&ask.network) {
                    Some(network) => network.enrol(&self.identity, &ask, now, unix),
                    None => Enrolment::Refused(Refusal::OtherNetwork),
                };
                let refusal = match outcome {
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
            Document::Answer { network, member, .. } => {
                if let Some(back) = self.passed_on.remove(&(network, member)) {
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
            self.changed |= network.end_dismissals(now);
            while let Some(document) = network.poll(&self.own, now) {
                self.out.push(document);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do, if nothing else happens.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        self.all.values().filter_map(Network::timeout).min()
    }

    /// Takes the documents to send, each with its receiver.
    pub fn take_documents(&mut self) -> Vec<(PublicKey, Vec<u8>)> {
        std::mem::take(&mut self.out)
    }

    /// Returns whether members, names or addresses have changed since the last call.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Takes the networks that have changed and are to be written.
    pub fn take_unsaved(&mut self) -> Vec<&Network> {
        let unsaved = self
            .all
            .values_mut()
            .filter_map(|network| network.take_unsaved().then_some(&*network));
        unsaved.collect()
    }

    /// The nodes of all networks: members, and contacts of those that this node joins. A node of
    /// several networks has several rows.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        self.all.values().flat_map(|network| network.rows(&self.own))
    }

    /// The IPv4 addresses of this node, one of each network that it is a member of.
    pub fn own_ipv4(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.all.values().filter_map(|network| network.ipv4(&self.own))
    }

    /// Whether a network of this node has an invite that has not expired, so that guests are welcome.
    #[must_use]
    pub fn welcomes_guests(&self, unix: u64) -> bool {
        self.all
            .values()
            .any(|network| network.is_member(&self.own) && network.has_invite(unix))
    }

    fn check_room(&self) -> Result<(), NetworkError> {
        if self.all.len() < MAX_NETWORKS {
            Ok(())
        } else {
            Err(NetworkError::TooMany)
        }
    }

    /// The network of this name or identifier, or the only one.
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
            network.name().is_some_and(|name| name.as_str() == wanted) || network.id().to_string() == wanted
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

/// A change of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// It is removed.
    Remove,
    /// It gets another name.
    Rename(Name),
    /// It becomes an administrator.
    MakeAdmin,
    /// It is an administrator no longer. Records of its own that stay are signed again.
    RevokeAdmin,
}

#[cfg(test)]
mod tests;
