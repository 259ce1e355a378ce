//! Membership without an invite: a node asks an administrator, whose owner approves or denies.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_wire::Subnet;

use super::Networks;
use super::asked::{Asked, MAX_ASKED};
use super::requests::Request;
use crate::document::{Document, Verdict};
use crate::offers::MAX_OFFERED;
use crate::reserved::not_offered;
use crate::{Network, NetworkError};

/// The decision of an administrator about a node that it admits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approval {
    /// Its name; `None` for the one that it would like, with a number if another member has that.
    pub name: Option<Name>,
    /// Its tags.
    pub tags: BTreeSet<Name>,
}

/// The short form of a key that people compare: the first and the last six characters of its npub
/// behind `npub1`, 60 bits. The last six are the checksum of all others.
#[must_use]
pub fn fingerprint(key: &PublicKey) -> String {
    let text = key.to_string();
    let text = text.strip_prefix("npub1").unwrap_or(&text);
    let first = text.get(..6).unwrap_or(text);
    let last = text.len().checked_sub(6).and_then(|at| text.get(at..));
    format!("{first}-{}", last.unwrap_or_default())
}

impl Networks {
    /// Begins to ask the administrator `admin` for membership. [`Networks::asked`] says how far that
    /// is.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn ask_admin(
        &mut self,
        admin: PublicKey,
        addresses: Vec<SocketAddr>,
        name: Option<Name>,
        now: u64,
    ) -> Result<(), NetworkError> {
        if admin == self.own {
            return Err(NetworkError::Itself(admin));
        }
        self.check_room()?;
        // One that has ended makes room.
        self.asked.retain(|key, asked| *key != admin && asked.is_open());
        if self.asked.len() >= MAX_ASKED {
            return Err(NetworkError::AskedTooMany);
        }
        self.asked.insert(admin, Asked::new(addresses, name, now));
        self.changed = true;
        Ok(())
    }

    /// The administrators that this node asks, or has asked lately.
    pub fn asked(&self) -> impl Iterator<Item = (&PublicKey, &Asked)> {
        self.asked.iter()
    }

    /// Accepts requests for some ms; 0 refuses further ones.
    ///
    /// # Errors
    /// [`NetworkError`] if this node is the administrator of no network.
    pub fn accept_requests(&mut self, ms: u64, now: u64) -> Result<(), NetworkError> {
        if !self.is_admin() {
            let network = self.all.values().find(|network| network.is_member(&self.own));
            network.ok_or(NetworkError::NoNetwork)?.admin(&self.identity)?;
        }
        self.requests.accept_until(now + ms);
        self.changed = true;
        Ok(())
    }

    /// For how many ms more requests are accepted.
    #[must_use]
    pub fn accepts_requests(&self, now: u64) -> Option<u64> {
        self.requests.accepted_for(now)
    }

    /// The requests that wait for a decision.
    pub fn requests(&self, now: u64) -> impl Iterator<Item = (&PublicKey, &Request)> {
        self.requests.iter(now)
    }

    /// Takes a node in that has asked. Returns the network.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn approve(
        &mut self,
        of: Option<&str>,
        node: &PublicKey,
        approval: Approval,
        (now, unix): (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        let id = self.find(of)?;
        let request = self.requests.find(node, now);
        let request = request.ok_or_else(|| NetworkError::NoRequest(node.to_string()))?;
        let wanted = request.name.clone();
        let (identity, network) = self.with(id)?;
        if let Some(name) = &approval.name {
            network.check_name(Some(node), name)?;
        }
        let name = approval.name.or(wanted);
        network.take_in(identity, node, (name, approval.tags), now, unix)?;
        self.decide(node, Some(id), now)?;
        Ok(id)
    }

    /// Takes a device in that has shown its key to the owner of this node, and the name that it would like.
    /// One that is a member stays as it is. Returns the network.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn take_in_device(
        &mut self,
        of: Option<&str>,
        device: &PublicKey,
        (approval, wanted): (Approval, Option<Name>),
        (now, unix): (u64, u64),
    ) -> Result<NetworkId, NetworkError> {
        if *device == self.own {
            return Err(NetworkError::Itself(*device));
        }
        let id = self.find(of)?;
        let asked = self.requests.find(device, now);
        let wanted = wanted.or_else(|| asked?.name.clone());
        let (identity, network) = self.with(id)?;
        if let Some(name) = &approval.name {
            let known = network.state().names.get(device);
            if network.is_member(device) && known != Some(name) {
                return Err(NetworkError::MemberAlready(
                    network.name_of(device),
                    network.label_or_id(),
                ));
            }
            network.check_name(Some(device), name)?;
        }
        network.take_in(identity, device, (approval.name.or(wanted), approval.tags), now, unix)?;
        self.requests.decide(device, Some(id), now);
        self.changed = true;
        Ok(id)
    }

    /// Takes what a device offers, as [`Networks::handle_document`] takes the offer of a node.
    pub fn take_device_offer(&mut self, device: PublicKey, subnets: &BTreeSet<Subnet>, now: u64) {
        let is_exit = |subnet: &Subnet| subnet.prefix_len() == 0;
        let usable = subnets
            .iter()
            .filter(|subnet| is_exit(subnet) || not_offered(subnet).is_none());
        let subnets: BTreeSet<Subnet> = usable.copied().take(MAX_OFFERED).collect();
        for network in self.all.values_mut() {
            // A refused offer is that of no member, or comes too often.
            let _ = network.take_offer(&self.own, device, subnets.clone(), now);
        }
    }

    /// Notes the request of a device without an invite, as [`Networks::handle_document`] does that of a node.
    /// Returns whether it waits for a decision.
    pub fn note_device_request(&mut self, device: PublicKey, name: Option<Name>, now: u64) -> bool {
        self.requests.receive(device, name, now).1 == Verdict::Waits
    }

    /// Takes a node in that has asked and is to take over from a member.
    pub(super) fn take_in_successor(
        &mut self,
        id: NetworkId,
        old: &str,
        new: &str,
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        let (_, network) = self.with(id)?;
        // Errors of the old one are found before anything is changed.
        network.named(old)?;
        let Ok(key) = new.parse::<PublicKey>() else {
            return Ok(());
        };
        if network.is_member(&key) || self.requests.find(&key, now).is_none() {
            return Ok(());
        }
        let of = id.to_string();
        self.approve(Some(&of), &key, Approval::default(), (now, unix))?;
        Ok(())
    }

    /// Denies the request of a node.
    ///
    /// # Errors
    /// [`NetworkError::MemberAlready`] if no request waits and a network has it; otherwise
    /// [`NetworkError::NoRequest`].
    pub fn deny(&mut self, node: &PublicKey, now: u64) -> Result<(), NetworkError> {
        let asks = self.requests.find(node, now).is_some();
        let has = |network: &&Network| network.is_admin(&self.own) && network.is_member(node);
        if let Some(network) = self.all.values().find(has).filter(|_| !asks) {
            let label = network
                .label()
                .map_or_else(|| network.id().to_string(), Name::to_string);
            return Err(NetworkError::MemberAlready(network.name_of(node), label));
        }
        self.decide(node, None, now)
    }

    /// Keeps a decision, and sends it to the node.
    fn decide(&mut self, node: &PublicKey, network: Option<NetworkId>, now: u64) -> Result<(), NetworkError> {
        if !self.requests.decide(node, network, now) {
            return Err(NetworkError::NoRequest(node.to_string()));
        }
        let verdict = network.map_or(Verdict::Denied, |_| Verdict::TakenIn);
        let document = Document::Verdict { network, verdict };
        self.out.push((*node, document.encode()));
        self.changed = true;
        Ok(())
    }

    /// Answers a request of a node.
    pub(super) fn answer_request(&mut self, from: PublicKey, name: Option<Name>, now: u64) {
        // A member that was removed since its approval asks again.
        let is_member = |id: &NetworkId| self.all.get(id).is_some_and(|network| network.is_member(&from));
        self.requests.forget_approval(&from, is_member);
        let (network, verdict) = match self.is_admin() {
            true => self.requests.receive(from, name, now),
            false => (None, Verdict::NotAdmin),
        };
        // It is a member already: its records are lost, by a new machine with an old key for instance,
        // or this node has forgotten its decision. Any member has the records.
        let member =
            |network: &&Network| !network.is_foreign() && network.is_member(&self.own) && network.is_member(&from);
        let (network, verdict) = match (verdict, self.all.values().find(member)) {
            (Verdict::Closed | Verdict::NotAdmin, Some(network)) => (Some(network.id()), Verdict::TakenIn),
            _ => (network, verdict),
        };
        self.out.push((from, Document::Verdict { network, verdict }.encode()));
    }

    /// Handles the answer of an administrator that this node asks.
    pub(super) fn handle_verdict(&mut self, from: PublicKey, network: Option<NetworkId>, verdict: Verdict) {
        let Some(asked) = self.asked.get_mut(&from).filter(|asked| asked.is_open()) else {
            return;
        };
        asked.verdict = Some(verdict);
        asked.network = network;
        self.changed |= verdict.is_final();
        let (Some(id), addresses) = (network, asked.addresses.clone()) else {
            return;
        };
        if self.check_no_foreign(id).is_err() {
            return;
        }
        match self.all.get_mut(&id) {
            Some(known) if known.is_member(&self.own) => {}
            Some(known) => known.expect_records(from, addresses),
            None => {
                let network = Network::approved(&self.own, id, from, addresses);
                self.insert(network);
            }
        }
    }

    /// Asks the administrators that are due, and ends requests that have lasted long enough.
    pub(super) fn ask(&mut self, now: u64) {
        let before = self.asked.len();
        self.asked.retain(|_, asked| !asked.is_over(now));
        self.changed |= self.asked.len() < before;
        for (admin, asked) in &mut self.asked {
            if let Some(document) = asked.poll(now) {
                self.out.push((*admin, document));
            }
        }
    }

    fn is_admin(&self) -> bool {
        self.all.values().any(|network| network.is_admin(&self.own))
    }
}
