//! What the head of a network says about it: its successor.

use std::sync::Arc;

use weft_noise::{Identity, PublicKey};
use weft_roster::changes::{Again, Keep};
use weft_roster::key::RecordKey;
use weft_roster::record::{Body, Draft, Network as NetworkBody, Record};

use super::signed::Demotion;
use super::{Network, Wish};
use crate::NetworkError;

impl Network {
    /// Names the successor of this node, the head of the network or an earlier one that takes its place back,
    /// or none. Returns what was signed again, in words.
    pub(crate) fn set_successor(
        &mut self,
        identity: &Identity,
        (named, wish): (Option<&str>, Option<&Wish>),
        now: u64,
        unix: u64,
    ) -> Result<Vec<String>, NetworkError> {
        let own = identity.public();
        if !self.state.admins.heads.contains(&own) {
            self.admin(identity)?;
            let head = self.state.admins.head().map(|head| self.name_of(head));
            return Err(match head {
                Some(head) if self.state.admins.successor() == Some(&own) => NetworkError::NotHeadYet(head),
                _ => NetworkError::NotFounder,
            });
        }
        let successor = named.map(|named| self.named(named)).transpose()?;
        if successor == Some(own) {
            return Err(NetworkError::SucceedsItself(self.name_of(&own)));
        }
        let former = self.set.named_by(&own);
        if let Some(admin) = &former {
            self.check_seen(dropped(admin, &own), wish, unix)?;
        }
        self.write_names(identity, (now, unix));
        let names = self.state.names.clone();
        let mut again = Vec::new();
        // One step after the other: the former successor goes before the next one comes.
        if former.is_some_and(|former| Some(former) != successor) {
            again = self.write_successor(identity, None, wish, (now, unix))?;
        }
        if successor.is_some() {
            again.extend(self.write_successor(identity, successor, wish, (now, unix))?);
        }
        Ok(again.iter().map(|again| self.in_words(again, &names)).collect())
    }

    /// The successor, if its rights end when this node, which names it, names none. It keeps them if a grant
    /// gives them, too.
    pub(crate) fn falling_successor(&self, identity: &Identity, unix: u64) -> Result<Option<PublicKey>, NetworkError> {
        let own = identity.public();
        if !self.state.admins.heads.contains(&own) || self.set.named_by(&own).is_none() {
            return Ok(None);
        }
        let body = NetworkBody {
            successor: None,
            ..self.network_body(identity)
        };
        let record = self.sign_network(identity, (body, None), unix)?;
        Ok(self.set.falls_with(&Arc::new(record)))
    }

    /// Signs what this node, the head or an earlier one, says about the network.
    fn sign_network(
        &self,
        identity: &Identity,
        (body, restated): (NetworkBody, Option<&Arc<Record>>),
        unix: u64,
    ) -> Result<Record, NetworkError> {
        let version = self
            .set
            .successor_version(&identity.public(), body.successor.as_ref())?;
        let mut draft = Draft::new(self.id(), RecordKey::Network, version, &Body::Network(body));
        // Name and default are those of another administrator, unless this node has set them.
        if let Some(record) = restated {
            draft = draft.restating(record, &identity.public());
        }
        Ok(draft.sign(identity, unix)?)
    }

    fn write_successor(
        &mut self,
        identity: &Identity,
        successor: Option<PublicKey>,
        wish: Option<&Wish>,
        (now, unix): (u64, u64),
    ) -> Result<Vec<Again>, NetworkError> {
        let own = identity.public();
        let mut body = NetworkBody {
            successor,
            ..self.network_body(identity)
        };
        let said = self.set.in_force(&RecordKey::Network);
        let mut network = Arc::new(self.sign_network(identity, (body.clone(), said), unix)?);
        let keep = match self.set.falls_with(&network) {
            Some(former) => self.keep(dropped(&former, &own), wish, unix)?,
            None => Keep::default(),
        };
        // Statements of the former one about the network stay its own, unless the user keeps them.
        let former = self
            .set
            .named_by(&own)
            .filter(|former| Some(*former) != successor && !keep.rest);
        let before = former.and_then(|former| self.set.in_force_without(&RecordKey::Network, &former, &own));
        if let Some(Body::Network(said)) = before.map(|record| record.body()) {
            (body.name, body.inside) = (said.name.clone(), said.inside);
            network = Arc::new(self.sign_network(identity, (body, before), unix)?);
        }
        let again = self.set.successor_list(&network, &keep)?;
        // As an earlier head this node has no rights but by this record.
        let mut signed = vec![Arc::unwrap_or_clone(network)];
        signed.extend(self.signed_again(identity, &again, unix)?);
        self.add_all(signed, now)?;
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

/// The end of the rights of a successor that `by` names no longer.
const fn dropped<'a>(admin: &'a PublicKey, by: &'a PublicKey) -> Demotion<'a> {
    let leaves = false;
    Demotion { admin, by, leaves }
}
