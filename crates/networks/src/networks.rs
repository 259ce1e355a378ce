//! All networks of a node: commands, documents and time in, documents out.

mod addresses;
mod asked;
mod commands;
mod duties;
mod enrolment;
mod foreign;
mod guests;
mod labels;
mod leave;
mod mark;
mod membership;
mod requests;
mod secrets;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_core::Hint;
use weft_noise::{Identity, PublicKey};
use weft_roster::invite::Code;
use weft_roster::names::Name;
use weft_roster::network_id::{NetworkId, Nonce};
use weft_roster::record::Exit;
use weft_roster::sync::{Proven, Unproven};
use weft_wire::Subnet;

pub use self::addresses::{HostUse, Owner, Owners, Shadowed, Unused, UsedGuest, used_ipv4};
pub use self::asked::{Asked, MAX_ASKED};
pub use self::commands::{Changed, MemberChange, NewInvite, RouteChange, RuleChange};
use self::enrolment::Enrolled;
pub use self::guests::{AddGuest, GuestAdded};
pub use self::mark::Mark;
pub use self::membership::{Approval, fingerprint};
use self::requests::Requests;
pub use self::requests::{MAX_REQUESTS, Request};
use self::secrets::SecretRng;
pub use self::undo::Before;
use crate::document::{Document, DocumentError};
use crate::offers::exit_of;
use crate::{Network, NetworkError};

/// Maximum number of networks of one node.
pub const MAX_NETWORKS: usize = 16;
/// How long changed presences wait for further ones before they are followed, in ms.
const FOLLOW_PRESENCES: u64 = 1_000;

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
    pub addresses: Vec<Hint>,
    /// Its IPv4 address in the network, if packets to it go to this node.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv4 address of this node in the network.
    pub source: Option<Ipv4Addr>,
    /// Whether IP packets pass: it and this node are members.
    pub member: bool,
}

/// All networks of a node. Times are ms on a clock that never goes back; `unix` is seconds since
/// 1970.
pub struct Networks {
    identity: Arc<Identity>,
    own: PublicKey,
    rng: SecretRng,
    all: BTreeMap<NetworkId, Network>,
    /// Documents to send.
    out: Vec<(PublicKey, Vec<u8>)>,
    /// Forwarded requests to join, by network and joiner: the member that has forwarded them.
    passed_on: BTreeMap<(NetworkId, PublicKey), PublicKey>,
    /// A node that was admitted by its invite, and is not told yet.
    enrolled: Option<Enrolled>,
    /// Networks that this node has left, each with whether a member has its resignation.
    left: Vec<(NetworkId, bool)>,
    /// Nodes that can be reached now.
    reachable: BTreeSet<PublicKey>,
    /// Requests of other nodes for membership.
    requests: Requests,
    /// Administrators that this node asks for membership.
    asked: BTreeMap<PublicKey, Asked>,
    /// The subnets that this node offers.
    offer: BTreeSet<Subnet>,
    /// Until when this node waits for the answer of an administrator of a network of nvpn, in ms.
    list_until: Option<u64>,
    /// What this host uses addresses for.
    host: HostUse,
    /// Something changed that others follow: members, names, addresses.
    changed: bool,
    /// When changed presences are followed, in ms.
    presences_at: Option<u64>,
    /// How often something has changed for all networks, or a network took the place of another one: revisions do
    /// not tell that.
    generation: u64,
}

impl Networks {
    /// The networks of the node `identity`, as they were kept. Their secrets come from `rng`.
    #[must_use]
    pub fn new(identity: Arc<Identity>, kept: Vec<Network>, rng: Box<dyn rand_core::CryptoRng + Send>) -> Self {
        let mut networks = Self {
            own: identity.public(),
            identity,
            rng: SecretRng(rng),
            all: kept.into_iter().map(|network| (network.id(), network)).collect(),
            out: Vec::new(),
            passed_on: BTreeMap::new(),
            enrolled: None,
            left: Vec::new(),
            reachable: BTreeSet::new(),
            requests: Requests::default(),
            asked: BTreeMap::new(),
            offer: BTreeSet::new(),
            list_until: None,
            host: HostUse::default(),
            changed: true,
            presences_at: None,
            generation: 0,
        };
        networks.label_networks();
        networks
    }

    /// All networks, by identifier.
    pub fn iter(&self) -> impl Iterator<Item = &Network> {
        self.all.values()
    }

    /// The networks that a node is a member of, by identifier.
    pub(crate) fn joined(&self, node: &PublicKey) -> Vec<&Network> {
        self.iter().filter(|network| network.is_member(node)).collect()
    }

    /// The identity of this node.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether a node can be reached now.
    #[must_use]
    pub fn is_reachable(&self, node: &PublicKey) -> bool {
        self.reachable.contains(node)
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
        let mut network = Network::found(&self.identity, name, host, nonce, unix)?;
        network.write_secret(&self.identity, self.rng.random_bytes(), (0, unix))?;
        Ok(self.insert(network))
    }

    /// Begins to join a network. [`Network::joining`] says how far that is.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn join(&mut self, code: &Code, host: Option<Name>, now: u64, unix: u64) -> Result<NetworkId, NetworkError> {
        if u64::from(code.expires) <= unix {
            return Err(NetworkError::Expired {
                ended: code.expires.into(),
                now: unix,
            });
        }
        self.check_no_foreign(code.network)?;
        match self.all.get(&code.network) {
            Some(known) if known.is_member(&self.own) => return Err(NetworkError::Already),
            Some(_) => {}
            None => self.check_room()?,
        }
        let network = Network::join(&self.own, code, host, now);
        Ok(self.insert(network))
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

    /// The records of a document whose signatures are to be verified, which may happen on another thread.
    #[must_use]
    pub fn unproven(&mut self, from: &PublicKey, bytes: &[u8], now: u64) -> Option<Unproven> {
        match Document::decode(bytes) {
            Ok(Document::Sync { network, message }) => self.of_records(network).ok()?.unproven(from, message, now),
            _ => None,
        }
    }

    /// Processes a document of a node, which the session authenticates, and verifies all signatures in it.
    ///
    /// # Errors
    /// [`DocumentError`]: the document is ignored.
    pub fn handle_document(&mut self, from: PublicKey, bytes: &[u8], now: u64, unix: u64) -> Result<(), DocumentError> {
        self.handle_proven(from, bytes, &Proven::default(), (now, unix))
    }

    /// Processes a document of a node, which the session authenticates. The signatures of `proven` records were
    /// verified.
    ///
    /// # Errors
    /// [`DocumentError`]: the document is ignored, but for the records in front of one that is refused.
    pub fn handle_proven(
        &mut self,
        from: PublicKey,
        bytes: &[u8],
        proven: &Proven,
        (now, unix): (u64, u64),
    ) -> Result<(), DocumentError> {
        let own = self.own;
        match Document::decode(bytes)? {
            Document::Sync { network, message } => {
                let known = self.of_records(network)?;
                let (changed, outcome) = known.handle_sync(&own, &from, message, proven, now);
                if changed {
                    self.label_networks();
                    self.changed = true;
                }
                Ok(outcome?)
            }
            Document::Presences { network, presences } => {
                let known = self.of_records(network)?;
                if known.take_presences(from, presences, now)? {
                    self.presences_at.get_or_insert(now + FOLLOW_PRESENCES);
                }
                Ok(())
            }
            Document::PresenceDigest { network, digest } => {
                let known = self.of_records(network)?;
                known.take_presence_digest(from, &digest, now)
            }
            Document::Offer { network, subnets } => {
                let known = self.of_records(network)?;
                known.take_offer(&own, from, subnets, now)
            }
            Document::Ask(ask) => {
                self.answer_ask(from, &ask, bytes, now, unix);
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
                let known = self.of_records(network)?;
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

    /// A node has restarted, and has lost what this one told it.
    pub fn handle_restart(&mut self, node: &PublicKey) {
        for network in self.all.values_mut() {
            network.handle_restart(node);
        }
    }

    /// A document to a node did not arrive, although the node counts as reachable: it gets again what it was
    /// told lately.
    pub fn handle_lost(&mut self, node: &PublicKey, now: u64) {
        for network in self.all.values_mut() {
            network.handle_lost(node, now);
        }
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
        self.end_farewells(now);
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

    /// Sets the addresses of this node that members are told; `unix_ms` is the time since 1970 at `now`.
    pub fn set_own_addresses(&mut self, addresses: &[SocketAddr], now: u64, unix_ms: u64) {
        for network in self.all.values_mut() {
            network.set_own_addresses(addresses, now, unix_ms);
        }
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

    /// Records that a network was written as it was at a revision.
    pub fn note_saved(&mut self, network: NetworkId, revision: u64) {
        if let Some(network) = self.all.get_mut(&network) {
            network.note_saved(revision);
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

    /// Whether guests are welcome: a network of this node has an invite that has not expired, or has lost
    /// its records, or this node accepts requests without an invite, or waits for the answer to its own request from
    /// a network of nvpn.
    #[must_use]
    pub fn welcomes_guests(&self, now: u64, unix: u64) -> bool {
        let mut networks = self.all.values();
        let welcomes =
            |network: &Network| network.is_lost() || (network.is_member(&self.own) && network.has_invite(unix));
        let waits = self.list_until.is_some_and(|until| now < until);
        waits || networks.any(welcomes) || self.requests.welcome_guests(now)
    }

    fn insert(&mut self, mut network: Network) -> NetworkId {
        let id = network.id();
        network.set_offer(self.offer.clone());
        match self.all.get(&id) {
            Some(before) => network.replaces(before),
            None => network.set_place(self.next_place()),
        }
        self.all.insert(id, network);
        self.label_networks();
        self.changed = true;
        self.generation += 1;
        id
    }

    fn check_room(&self) -> Result<(), NetworkError> {
        if self.all.len() < MAX_NETWORKS {
            Ok(())
        } else {
            Err(NetworkError::TooMany)
        }
    }

    /// Returns the network of this name or identifier; for `None` the only one that this node is a member of.
    #[must_use]
    pub fn named(&self, named: Option<&str>) -> Option<&Network> {
        self.all.get(&self.find(named).ok()?)
    }

    /// The network of this identifier or label, or the only one.
    fn find(&self, named: Option<&str>) -> Result<NetworkId, NetworkError> {
        let Some(wanted) = named else {
            let members: Vec<&Network> = self.in_order().filter(|network| network.is_member(&self.own)).collect();
            let named = |network: &&Network| network.label_or_id();
            return match &members[..] {
                [] => Err(self.why_none()),
                [only] => Ok(only.id()),
                several => {
                    let names: Vec<String> = several.iter().map(named).collect();
                    Err(NetworkError::Which(names.join(", ")))
                }
            };
        };
        let by_id = wanted.parse().ok().filter(|id| self.all.contains_key(id));
        let of_label = |network: &&Network| network.label().is_some_and(|label| label.as_str() == wanted);
        let found = by_id.or_else(|| self.all.values().find(of_label).map(Network::id));
        found.ok_or_else(|| NetworkError::Unknown(wanted.escape_debug().to_string()))
    }

    /// [`find`](Self::find) among the networks that this node has headed, also those that have removed it.
    fn find_own(&self, named: Option<&str>) -> Result<NetworkId, NetworkError> {
        let heads = |network: &&Network| network.state().admins.heads.contains(&self.own);
        let mut own = self.all.values().filter(heads);
        match (named, own.next(), own.next()) {
            (None, Some(only), None) => Ok(only.id()),
            _ => self.find(named),
        }
    }

    /// Why this node is a member of no network.
    fn why_none(&self) -> NetworkError {
        let lost = self.all.values().find(|network| network.is_lost());
        let removed = self.all.values().find(|network| network.joining().is_none());
        match (lost, removed) {
            (Some(lost), _) => NetworkError::Lost(lost.id()),
            (None, Some(removed)) => NetworkError::NotMember(removed.label_or_id()),
            (None, None) => NetworkError::NoNetwork,
        }
    }

    fn with(&mut self, id: NetworkId) -> Result<(&Identity, &mut Network), NetworkError> {
        match self.all.get_mut(&id) {
            Some(network) => network.check_own().map(|()| (&*self.identity, network)),
            None => Err(NetworkError::NoNetwork),
        }
    }
}

#[cfg(test)]
mod tests;
