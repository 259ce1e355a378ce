//! Networks that were founded with nvpn: how this node comes into one, follows its lists, and is removed.

use weft_nostr::event::Event;
use weft_nvpn::shared_roster::Refusal;
use weft_roster::membership;
use weft_roster::network_id::NetworkId;

use super::Networks;
use crate::document::DocumentError;
use crate::network::SignedMembers;
use crate::{Network, NetworkError};

impl Networks {
    /// Enters a network that was founded with nvpn, by the list with which one of its administrators has
    /// answered the request of this node. Returns the network.
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn join_foreign(&mut self, event: Event, unix: u64) -> Result<NetworkId, NetworkError> {
        let signed = SignedMembers::read(event)?;
        if !signed.list.members.contains(&self.own) {
            return Err(NetworkError::NotListed);
        }
        let is_same =
            |network: &Network| !network.is_foreign() && network.nvpn_id().as_ref() == Some(&signed.list.network);
        if membership::is_of_weft(&signed.event.body().tags) || self.all.values().any(is_same) {
            return Err(NetworkError::FoundedWithWeft);
        }
        let id = signed.id();
        match self.all.get(&id).map(Network::signed_members) {
            Some(Some(held)) if held.event == signed.event => return Ok(id),
            Some(Some(held)) => signed.list.supersedes(&held.list, unix)?,
            Some(None) => {}
            None => self.check_room()?,
        }
        let mut network = Network::foreign(&self.own, signed);
        network.note_change();
        Ok(self.insert(network))
    }

    /// Follows a later list of a network that was founded with nvpn. A list without this node ends the membership. A
    /// list of weft ends it as well: the network has records then. The network is forgotten in both cases. Returns the
    /// network, and whether this node is still a member.
    ///
    /// # Errors
    /// [`NetworkError`]; nothing is changed then.
    pub fn follow_list(&mut self, event: Event, (now, unix): (u64, u64)) -> Result<(NetworkId, bool), NetworkError> {
        let signed = SignedMembers::read(event)?;
        let id = signed.id();
        let network = self.all.get_mut(&id).ok_or(NetworkError::NoNetwork)?;
        let held = network.signed_members().ok_or(Refusal::Network)?;
        signed.list.supersedes(&held.list, unix)?;
        self.changed = true;
        // A list of weft shows that the network has records, which this node has to ask for.
        let is_of_weft = membership::is_of_weft(&signed.event.body().tags);
        let stays = signed.list.members.contains(&self.own) && !is_of_weft;
        match stays {
            true => {
                network.replace_list(signed, now);
                self.label_networks();
            }
            false => {
                self.all.remove(&id);
                self.generation += 1;
            }
        }
        Ok((id, stays))
    }

    /// Says until when a request of this node to an administrator of a network of nvpn waits, in ms. Nodes that are not
    /// known are guests meanwhile: the answer comes from one.
    pub fn await_list(&mut self, until: Option<u64>) {
        self.list_until = until;
    }

    /// Fails if nvpn calls a network of this node by the identifier of one with records: devices could not tell
    /// them apart.
    pub(super) fn check_no_foreign(&self, id: NetworkId) -> Result<(), NetworkError> {
        let text = id.to_string();
        let is_same = |network: &&Network| {
            let signed = network.signed_members();
            signed.is_some_and(|signed| signed.list.network.as_str() == text)
        };
        match self.all.values().find(is_same) {
            Some(network) => Err(NetworkError::Foreign(network.label_or_id())),
            None => Ok(()),
        }
    }

    /// The network with records of this identifier.
    pub(super) fn of_records(&mut self, id: NetworkId) -> Result<&mut Network, DocumentError> {
        let known = self.all.get_mut(&id).filter(|network| !network.is_foreign());
        known.ok_or(DocumentError::OtherNetwork)
    }
}
