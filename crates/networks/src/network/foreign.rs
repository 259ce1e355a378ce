//! A network that was founded with nvpn: a signed list of its members takes the place of records.
//!
//! This node signs nothing for it. A later list replaces the one that is held as a whole, by nvpn's rules
//! ([`SharedRoster::supersedes`]).

use std::collections::BTreeMap;

use weft_noise::PublicKey;
use weft_nostr::event::Event;
use weft_nvpn::network_id;
use weft_nvpn::shared_roster::{RosterError, SharedRoster};
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::set::RecordSet;
use weft_roster::state::State;

use super::{DISMISSAL, MAX_DISMISSED, Network};
use crate::NetworkError;

/// The name of a network whose list has none that can be one.
const NAMELESS: &str = "nvpn-network";

/// The signed list of a network that was founded with nvpn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMembers {
    /// The event, as it was signed.
    pub event: Event,
    /// What it says.
    pub list: SharedRoster,
}

/// Returns the name of a member without an alias, as nvpn makes it.
fn peer_name(key: &PublicKey) -> Option<Name> {
    let hex = hex::encode(key.as_bytes());
    Name::host(&format!("peer-{}", hex.get(..12)?)).ok()
}

impl SignedMembers {
    /// Reads a list from a verified event.
    ///
    /// # Errors
    /// [`RosterError`]
    pub fn read(event: Event) -> Result<Self, RosterError> {
        let list = SharedRoster::read(&event)?;
        Ok(Self { event, list })
    }

    /// The identifier of the network on weft nodes.
    #[must_use]
    pub fn id(&self) -> NetworkId {
        NetworkId::of_nvpn(self.list.network.as_str())
    }

    /// What it amounts to. Members without an alias that can be a name have the one that nvpn gives them.
    fn state(&self) -> State {
        let name = Name::network_like(&self.list.name).or_else(|| Name::network(NAMELESS).ok());
        let named = |key: &PublicKey| {
            let alias = self.list.aliases.get(key);
            let name = alias.and_then(|alias| Name::host_like(alias));
            (*key, name.or_else(|| peer_name(key)))
        };
        let members: BTreeMap<PublicKey, Option<Name>> = self.list.members.iter().map(named).collect();
        State::foreign(self.list.network.as_str(), name, members)
    }
}

impl Network {
    /// A network that was founded with nvpn, by its list.
    #[must_use]
    pub fn foreign(own: &PublicKey, signed: SignedMembers) -> Self {
        let mut network = Self::kept(own, RecordSet::new(signed.id()), BTreeMap::new(), None);
        network.state = signed.state();
        network.foreign = Some(signed);
        network
    }

    /// The list of a network that was founded with nvpn; `None` for one of weft.
    #[must_use]
    pub fn signed_members(&self) -> Option<&SignedMembers> {
        self.foreign.as_ref()
    }

    /// Whether it was founded with nvpn: this node administers nothing in it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether a node is an administrator, by records or by the list of nvpn.
    #[must_use]
    pub fn shows_admin(&self, key: &PublicKey) -> bool {
        let listed = |foreign: &SignedMembers| foreign.list.admins.contains(key);
        self.is_admin(key) || self.foreign.as_ref().is_some_and(listed)
    }

    /// What nvpn calls the network.
    #[must_use]
    pub fn nvpn_id(&self) -> Option<network_id::NetworkId> {
        match &self.foreign {
            Some(foreign) => Some(foreign.list.network.clone()),
            None => network_id::NetworkId::new(&self.id().to_string()),
        }
    }

    /// Replaces the list, which [`SharedRoster::supersedes`] permits. Members that went stay contacts for a
    /// while, so that they learn it.
    pub(crate) fn replace_list(&mut self, signed: SignedMembers, now: u64) {
        let before = std::mem::replace(&mut self.state, signed.state());
        let members = &self.state.members;
        let gone = before.members.keys().filter(|key| !members.contains_key(*key));
        let gone = gone.take(MAX_DISMISSED.saturating_sub(self.dismissed.len()));
        self.dismissed.extend(gone.map(|key| (*key, now + DISMISSAL)));
        self.dismissed.retain(|key, _| !members.contains_key(key));
        self.foreign = Some(signed);
        self.note_change();
    }

    /// Fails for a network that was founded with nvpn, in which records say nothing.
    pub(crate) fn check_own(&self) -> Result<(), NetworkError> {
        match self.is_foreign() {
            true => Err(NetworkError::Foreign(self.label_or_id())),
            false => Ok(()),
        }
    }
}
