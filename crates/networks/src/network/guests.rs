//! Guests: devices with WireGuard that administrators add by records, each with a member as its host.

use std::net::Ipv4Addr;

use weft_noise::{Identity, PublicKey};
use weft_roster::addresses;
use weft_roster::guest::{self, MAX_GUESTS};
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::record::{Body, Guest};

use super::Network;
use crate::{AddGuest, GuestAdded, NetworkError};

impl Network {
    /// Returns the guests that count, by their WireGuard keys, each with its record and the name by which it is
    /// found.
    pub fn guests(&self) -> impl Iterator<Item = (&[u8; 32], &Guest, Option<&Name>)> {
        let guests = self.state.guests.iter();
        guests.map(|(key, guest)| (key, guest, self.state.guest_names.get(key)))
    }

    /// Signs the record of a guest.
    pub(crate) fn add_guest(
        &mut self,
        identity: &Identity,
        new: AddGuest,
        (now, unix): (u64, u64),
    ) -> Result<GuestAdded, NetworkError> {
        self.admin(identity)?;
        if new.key == [0; 32] {
            return Err(NetworkError::NoGuestKey);
        }
        if self.state.guests.contains_key(&new.key) {
            return Err(NetworkError::GuestAlready(self.guest_shown(&new.key)));
        }
        if self.state.guests.len() >= MAX_GUESTS {
            return Err(NetworkError::TooManyGuests);
        }
        self.check_guest_name(&new.name)?;
        let named = new.host.unwrap_or_else(|| identity.public().to_string());
        let host = self.named(&named)?;
        let ipv4 = self.guest_ipv4(&new.key, new.ipv4)?;
        let body = Body::Guest(Guest {
            name: Some(new.name),
            tags: new.tags,
            ipv4: Some(ipv4),
            host: Some(host),
        });
        self.write(identity, RecordKey::Guest(new.key), &body, now, unix)?;
        Ok(GuestAdded { ipv4, host })
    }

    /// Signs the removal of the record of a guest, and returns its key.
    pub(crate) fn remove_guest(
        &mut self,
        identity: &Identity,
        named: &str,
        (now, unix): (u64, u64),
    ) -> Result<[u8; 32], NetworkError> {
        self.admin(identity)?;
        let key = self.guest_named(named);
        let key = key.ok_or_else(|| NetworkError::NoGuest(named.escape_debug().to_string()))?;
        self.remove(identity, &RecordKey::Guest(key), now, unix)?;
        Ok(key)
    }

    /// Returns the guest of a name, a full name, an IPv4 address or a key. By its key a guest is found that does not
    /// count, too, so that its record can be removed.
    pub(crate) fn guest_named(&self, named: &str) -> Option<[u8; 32]> {
        if let Some(key) = guest::read_key(named) {
            let record = self.set.in_force(&RecordKey::Guest(key));
            return record.filter(|record| !record.removed()).map(|_| key);
        }
        if let Ok(ipv4) = named.parse::<Ipv4Addr>() {
            return self.guest_at(ipv4).copied();
        }
        let name = match self.label.as_ref() {
            Some(label) => without_domain(named, label)?,
            None => named,
        };
        let mut names = self.state.guest_names.iter();
        names.find(|(_, known)| known.as_str() == name).map(|(key, _)| *key)
    }

    /// Returns the guest that has this address.
    pub(super) fn guest_at(&self, ipv4: Ipv4Addr) -> Option<&[u8; 32]> {
        let mut guests = self.state.guests.iter();
        guests.find(|(_, guest)| guest.ipv4 == Some(ipv4)).map(|(key, _)| key)
    }

    /// Returns true if a guest is found by this name.
    pub(super) fn has_guest_named(&self, name: &Name) -> bool {
        self.state.guest_names.values().any(|known| known == name)
    }

    /// Returns the name of a guest, or its key as WireGuard writes it.
    pub(super) fn guest_shown(&self, key: &[u8; 32]) -> String {
        let name = self.state.guest_names.get(key);
        name.map_or_else(|| guest::key_text(key), ToString::to_string)
    }

    /// Returns the member or guest that has this address, for the user.
    fn owner_shown(&self, ipv4: Ipv4Addr) -> Option<String> {
        let mut members = self.state.addresses.of.iter();
        let member = members.find(|(_, known)| **known == ipv4);
        let member = member.map(|(key, _)| self.name_of(key));
        member.or_else(|| Some(self.guest_shown(self.guest_at(ipv4)?)))
    }

    /// Fails if a member or a guest has this name.
    fn check_guest_name(&self, name: &Name) -> Result<(), NetworkError> {
        // A member is found by the name of the record, or by another one while two have the same.
        let of_member = self.check_name(None, name);
        of_member.map_err(|_| NetworkError::NameInUse(name.clone()))
    }

    /// Returns the address of a new guest: the chosen one, or the first free one of those that follow from its key.
    fn guest_ipv4(&self, key: &[u8; 32], chosen: Option<Ipv4Addr>) -> Result<Ipv4Addr, NetworkError> {
        let Some(chosen) = chosen else {
            let free = addresses::free(&self.id().to_string(), key, |ipv4| self.is_taken(ipv4));
            return free.ok_or(NetworkError::NoFreeAddress);
        };
        if !addresses::may_be_fixed(chosen) {
            return Err(NetworkError::NotPrivate(chosen));
        }
        match self.owner_shown(chosen) {
            Some(owner) => Err(NetworkError::AddressTaken(chosen, owner)),
            None => Ok(chosen),
        }
    }

    /// Returns true if a member or a guest has this address.
    pub(super) fn is_taken(&self, ipv4: Ipv4Addr) -> bool {
        let mut members = self.state.addresses.of.values();
        members.any(|known| *known == ipv4) || self.guest_at(ipv4).is_some()
    }

    /// Fails if another member than `member`, or a guest, has this address.
    pub(super) fn check_free(&self, ipv4: Ipv4Addr, member: &PublicKey) -> Result<(), NetworkError> {
        match self.ipv4(member) == Some(ipv4) {
            true => Ok(()),
            false => match self.owner_shown(ipv4) {
                Some(owner) => Err(NetworkError::AddressTaken(ipv4, owner)),
                None => Ok(()),
            },
        }
    }
}

/// Returns the first label of `NAME.NETWORK.weft`, or the text as it is if it has no dots; `None` for a name in
/// another network.
fn without_domain<'a>(named: &'a str, label: &Name) -> Option<&'a str> {
    let named = named.strip_suffix('.').unwrap_or(named);
    match named.split_once('.') {
        None => Some(named),
        Some((name, domain)) => (domain.strip_suffix(".weft")? == label.as_str()).then_some(name),
    }
}
