//! Commands about guests: devices with WireGuard behind a member.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use weft_noise::PublicKey;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;

use super::Networks;
use crate::{Network, NetworkError};

/// A device that is to become a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddGuest {
    /// Its public key of WireGuard.
    pub key: [u8; 32],
    /// Its name.
    pub name: Name,
    /// Tags that rules name.
    pub tags: BTreeSet<Name>,
    /// Its address; `None` for the first free one of those in 10.44.0.0/16 that follow from its key.
    pub ipv4: Option<Ipv4Addr>,
    /// Name or npub of the member that exchanges packets for it; `None` for this node.
    pub host: Option<String>,
}

/// A guest that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestAdded {
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// The member that exchanges packets for it.
    pub host: PublicKey,
}

impl Networks {
    /// Adds a guest. `times`: ms on the clock of the networks, and seconds since 1970.
    ///
    /// # Errors
    /// [`NetworkError`]: this node lacks the rights of an administrator; key, name or address are taken or refused; the
    /// host is unknown to the network; the network has [`MAX_GUESTS`](weft_roster::guest::MAX_GUESTS) guests.
    pub fn add_guest(
        &mut self,
        network: Option<&str>,
        guest: AddGuest,
        times: (u64, u64),
    ) -> Result<(NetworkId, GuestAdded), NetworkError> {
        let id = self.find(network)?;
        let (identity, network) = self.with(id)?;
        let added = network.add_guest(identity, guest, times)?;
        self.changed = true;
        Ok((id, added))
    }

    /// Removes a guest, and returns its key. `named` is its name, `NAME.NETWORK.weft`, its IPv4 address, or its key in
    /// base64 or hexadecimal digits. Without `network` it may be in any network of this node. `times`: ms on the
    /// clock of the networks, and seconds since 1970.
    ///
    /// # Errors
    /// [`NetworkError`]: this node lacks the rights of an administrator; the guest is unknown, or several networks have
    /// one of this name.
    pub fn remove_guest(
        &mut self,
        network: Option<&str>,
        named: &str,
        times: (u64, u64),
    ) -> Result<[u8; 32], NetworkError> {
        let id = self.network_of_guest(network, named)?;
        let (identity, network) = self.with(id)?;
        let key = network.remove_guest(identity, named, times)?;
        self.changed = true;
        Ok(key)
    }

    /// Returns the network of a command about a guest: the one that is named, or the only one that has the guest.
    fn network_of_guest(&self, network: Option<&str>, named: &str) -> Result<NetworkId, NetworkError> {
        if network.is_some() {
            return self.find(network);
        }
        let has = |network: &&Network| network.is_member(&self.own) && network.guest_named(named).is_some();
        let having: Vec<&Network> = self.in_order().filter(has).collect();
        match &having[..] {
            [only] => Ok(only.id()),
            [] => match self.find(None) {
                Err(NetworkError::Which(_)) => Err(NetworkError::NoGuest(named.escape_debug().to_string())),
                found => found,
            },
            several => {
                let names: Vec<String> = several.iter().map(|network| network.label_or_id()).collect();
                Err(NetworkError::Which(names.join(", ")))
            }
        }
    }
}
