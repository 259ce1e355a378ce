//! Subnets behind members: members offer them, and administrators approve them by records.

use std::collections::{BTreeMap, BTreeSet};

use weft_noise::{Identity, PublicKey};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Exit, Guest};
use weft_wire::Subnet;

use super::Network;
use crate::document::{Document, DocumentError};
use crate::reserved::not_offered;
use crate::{NetworkError, RouteChange, exit_of, of_exit};

/// Administrators that get an offer although nothing shows that they can be reached, if no other one
/// can.
const TRIED_ADMINS: usize = 3;

impl Network {
    /// The approved routes, each with the members that have it. A subnet that cannot be behind a
    /// member is left out, whatever the records say.
    pub fn routes(&self) -> impl Iterator<Item = (&Subnet, &BTreeSet<PublicKey>)> {
        let routes = self.state.routes.iter();
        routes.filter(|(subnet, _)| not_offered(subnet).is_none())
    }

    /// The approved exits, as all addresses of each IP version, each with the members that forward it.
    #[must_use]
    pub fn exits(&self) -> BTreeMap<Subnet, BTreeSet<PublicKey>> {
        let mut exits: BTreeMap<Subnet, BTreeSet<PublicKey>> = BTreeMap::new();
        for (member, exit) in &self.state.exits {
            for all in of_exit(*exit) {
                exits.entry(all).or_default().insert(*member);
            }
        }
        exits
    }

    /// The routes that members offer, as far as this node knows: an administrator knows those of
    /// all, another member its own.
    #[must_use]
    pub fn offered_routes(&self, own: &PublicKey, now: u64) -> BTreeMap<Subnet, BTreeSet<PublicKey>> {
        let mut offered: BTreeMap<Subnet, BTreeSet<PublicKey>> = BTreeMap::new();
        for member in self.state.members.keys() {
            for subnet in self.offers_of(own, member, now) {
                offered.entry(subnet).or_default().insert(*member);
            }
        }
        offered
    }

    /// Sets the subnets that this node offers.
    pub(crate) fn set_offer(&mut self, subnets: BTreeSet<Subnet>) {
        self.own_offer = subnets;
    }

    /// Takes what a member offers.
    pub(crate) fn take_offer(
        &mut self,
        own: &PublicKey,
        from: PublicKey,
        subnets: BTreeSet<Subnet>,
        now: u64,
    ) -> Result<(), DocumentError> {
        let wanted = self.state.admins.rank(own).is_some() && self.is_member(&from);
        if wanted && self.offers.receive(from, subnets, now) {
            Ok(())
        } else {
            Err(DocumentError::Unwanted)
        }
    }

    /// Returns the next offer of this node to send.
    pub(super) fn poll_offer(&mut self, own: &PublicKey, now: u64) -> Option<(PublicKey, Vec<u8>)> {
        let admins = self.offer_to(own);
        let to = self.offers.poll(&self.own_offer, admins.into_iter(), now)?;
        let offer = Document::Offer {
            network: self.id(),
            subnets: self.own_offer.clone(),
        };
        Some((to, offer.encode()))
    }

    /// When [`poll_offer`](Self::poll_offer) has something, in ms.
    pub(super) fn offer_timeout(&self, own: &PublicKey) -> Option<u64> {
        let admins = self.offer_to(own);
        admins
            .iter()
            .filter_map(|admin| self.offers.due(&self.own_offer, admin))
            .min()
    }

    /// Forgets offers of nodes that are not members any longer.
    pub(super) fn drop_offers(&mut self) {
        let state = &self.state;
        self.offers.retain(
            |key| state.members.contains_key(key),
            |key| state.admins.rank(key).is_some(),
        );
    }

    /// The administrators that get what this node offers.
    fn offer_to(&self, own: &PublicKey) -> Vec<PublicKey> {
        if !self.is_member(own) {
            return Vec::new();
        }
        let admins = self.state.admins.of.keys().filter(|key| *key != own);
        let connected = admins.clone().filter(|key| self.connected.contains(*key));
        let connected: Vec<PublicKey> = connected.copied().collect();
        match connected.is_empty() {
            true => admins.take(TRIED_ADMINS).copied().collect(),
            false => connected,
        }
    }

    fn offers_of(&self, own: &PublicKey, member: &PublicKey, now: u64) -> BTreeSet<Subnet> {
        match member == own {
            true => self.own_offer.clone(),
            false => self.offers.of(member, now).collect(),
        }
    }

    /// Approves or revokes a route of the member that is named.
    pub(crate) fn change_route(
        &mut self,
        identity: &Identity,
        (named, subnet): (&str, Subnet),
        change: RouteChange,
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let member = self.named(named)?;
        let own = identity.public();
        self.may_decide(&own, &member)?;
        let approved = self.state.routes.get(&subnet).is_some_and(|of| of.contains(&member));
        let key = RecordKey::Route(member, subnet);
        match change {
            RouteChange::Approve if approved => Ok(()),
            RouteChange::Approve => {
                self.check_route(subnet)?;
                if !self.offers_of(&own, &member, now).contains(&subnet) {
                    return Err(NetworkError::NotOffered(self.shown(&member), subnet));
                }
                self.write(identity, key, &Body::Plain, now, unix)
            }
            RouteChange::Revoke if approved => self.remove(identity, &key, now, unix),
            RouteChange::Revoke => Err(NetworkError::NoRoute(self.shown(&member), subnet)),
        }
    }

    /// Approves the member that is named as exit for the IP versions that it offers, or revokes that.
    pub(crate) fn change_exit(
        &mut self,
        identity: &Identity,
        named: &str,
        change: RouteChange,
        (now, unix): (u64, u64),
    ) -> Result<(), NetworkError> {
        self.admin(identity)?;
        let member = self.named(named)?;
        let own = identity.public();
        self.may_decide(&own, &member)?;
        let approved: Option<Exit> = self.state.exits.get(&member).copied();
        let key = RecordKey::Exit(member);
        match (change, approved) {
            (RouteChange::Approve, approved) => {
                let offered = exit_of(&self.offers_of(&own, &member, now));
                let offered = offered.ok_or_else(|| NetworkError::NoExitOffered(self.shown(&member)))?;
                match approved == Some(offered) {
                    true => Ok(()),
                    false => self.write(identity, key, &Body::Exit(offered), now, unix),
                }
            }
            (RouteChange::Revoke, Some(_)) => self.remove(identity, &key, now, unix),
            (RouteChange::Revoke, None) => Err(NetworkError::NoExit(self.shown(&member))),
        }
    }

    /// Fails unless records of `own` about `member` count: about an administrator only its own do,
    /// and those of its seniors.
    fn may_decide(&self, own: &PublicKey, member: &PublicKey) -> Result<(), NetworkError> {
        let Some(rank) = self.state.admins.rank(member) else {
            return Ok(());
        };
        match own == member || self.state.admins.rank(own).is_some_and(|own| own < rank) {
            true => Ok(()),
            false => Err(NetworkError::Senior(self.shown(member))),
        }
    }

    /// Fails if a subnet cannot be behind a member of this network.
    fn check_route(&self, subnet: Subnet) -> Result<(), NetworkError> {
        if let Some(what) = not_offered(&subnet) {
            return Err(NetworkError::Reserved(subnet, what));
        }
        let mut addresses = self.state.addresses.of.iter();
        let member = addresses.find(|(_, address)| subnet.contains((**address).into()));
        let mut guests = self.state.guests.iter();
        let covers = |guest: &Guest| guest.ipv4.is_some_and(|ipv4| subnet.contains(ipv4.into()));
        let owner = match member {
            Some((key, _)) => Some(self.shown(key)),
            None => guests
                .find(|(_, guest)| covers(guest))
                .map(|(key, _)| self.guest_shown(key)),
        };
        owner.map_or(Ok(()), |owner| Err(NetworkError::Covers(subnet, owner)))
    }

    fn shown(&self, key: &PublicKey) -> String {
        let name = self.state.names.get(key);
        name.map_or_else(|| key.to_string(), ToString::to_string)
    }
}
