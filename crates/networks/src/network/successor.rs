//! What the founder says about the network: its successor.

use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::changes::{Again, Keep};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Network as NetworkBody};

use super::{Network, Wish};
use crate::NetworkError;

impl Network {
    /// Names the founder's successor, or none. Returns what was signed again, in words.
    pub(crate) fn set_successor(
        &mut self,
        identity: &Identity,
        (named, wish): (Option<&str>, Option<&Wish>),
        now: u64,
        unix: u64,
    ) -> Result<Vec<String>, NetworkError> {
        if !self.state.admins.is_founder(&identity.public()) {
            self.admin(identity)?;
            return Err(NetworkError::NotFounder);
        }
        let successor = named.map(|named| self.named(named)).transpose()?;
        if let Some(named) = named.filter(|_| successor == Some(identity.public())) {
            return Err(NetworkError::SucceedsItself(named.escape_debug().to_string()));
        }
        if let Some(former) = self.state.admins.successor() {
            self.check_seen(former, wish, unix)?;
        }
        self.take_rights_back(identity, now, unix)?;
        self.write_names(identity, (now, unix));
        let names = self.state.names.clone();
        let mut again = Vec::new();
        // One step after the other: the former successor goes before the next one comes.
        if self
            .state
            .admins
            .successor()
            .is_some_and(|former| Some(*former) != successor)
        {
            again = self.write_successor(identity, None, wish, (now, unix))?;
        }
        if successor.is_some() {
            again.extend(self.write_successor(identity, successor, wish, (now, unix))?);
        }
        Ok(again.iter().map(|again| self.in_words(again, &names)).collect())
    }

    /// The successor, if its rights end when this node, the founder, names none. It keeps them if a grant
    /// gives them, too.
    pub(crate) fn falling_successor(&self, identity: &Identity, unix: u64) -> Result<Option<PublicKey>, NetworkError> {
        if self.state.admins.successor().is_none() || !self.state.admins.is_founder(&identity.public()) {
            return Ok(None);
        }
        let body = Body::Network(NetworkBody {
            successor: None,
            ..self.network_body(identity)
        });
        let version = self.set.next_version(&RecordKey::Network, &identity.public())?;
        let record = Draft::new(self.id(), RecordKey::Network, version, &body).sign(identity, unix)?;
        Ok(self.set.falls_with(&Arc::new(record)))
    }

    /// Gives the founder, which this node is, its rights back if its successor has ended them.
    fn take_rights_back(&mut self, identity: &Identity, now: u64, unix: u64) -> Result<(), NetworkError> {
        let own = identity.public();
        if self.is_admin(&own) {
            return Ok(());
        }
        let version = self.set.next_version(&RecordKey::Admin(own), &own)?;
        let record = Draft::new(self.id(), RecordKey::Admin(own), version, &Body::Plain).sign(identity, unix)?;
        self.add(record, now)
    }

    fn write_successor(
        &mut self,
        identity: &Identity,
        successor: Option<PublicKey>,
        wish: Option<&Wish>,
        (now, unix): (u64, u64),
    ) -> Result<Vec<Again>, NetworkError> {
        let body = Body::Network(NetworkBody {
            successor,
            ..self.network_body(identity)
        });
        let draft = |version| Draft::new(self.id(), RecordKey::Network, version, &body).sign(identity, unix);
        let version = self.set.next_version(&RecordKey::Network, &identity.public())?;
        let record = Arc::new(draft(version)?);
        let keep = match self.set.falls_with(&record) {
            Some(former) => self.keep(&former, wish, unix)?,
            None => Keep::default(),
        };
        let again = self.set.successor_list(&record, &keep)?;
        self.sign_again(identity, &again, now, unix)?;
        self.write(identity, RecordKey::Network, &body, now, unix)?;
        Ok(again)
    }

    /// What this node would sign about the network if nothing changed: name and default in force, and
    /// what it signed before, which for the founder has more in it.
    pub(super) fn network_body(&self, identity: &Identity) -> NetworkBody {
        let own = self.set.live().filter(|record| {
            *record.key() == RecordKey::Network && *record.signer() == identity.public() && !record.removed()
        });
        let own = own
            .max_by_key(|record| record.version())
            .map(|record| record.body().clone());
        let (founder, successor) = match own {
            Some(Body::Network(body)) => (body.founder, body.successor),
            _ => (None, None),
        };
        NetworkBody {
            name: self.state.name.clone(),
            inside: self.state.table.inside,
            founder,
            successor,
        }
    }
}
