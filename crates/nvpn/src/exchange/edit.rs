//! What an administrator has changed with a device: the difference between its list and the one that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thiserror::Error;
use weft_noise::PublicKey;

use crate::network_id::NetworkId;
use crate::shared_roster::SharedRoster;

/// The changes that an administrator has made with a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The administrator that has made them.
    pub signer: PublicKey,
    /// When the device showed last that it had the list before, in seconds since 1970.
    pub since: u64,
    /// Members that came, each with its name if it has one.
    pub added: BTreeMap<PublicKey, Option<String>>,
    /// Members that went.
    pub removed: BTreeSet<PublicKey>,
    /// Members that have another name.
    pub renamed: BTreeMap<PublicKey, String>,
    /// Why there are changes besides, which become no records.
    pub left: Option<Left>,
}

/// The reason why a change of an administrator becomes no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Left {
    /// No list is known that the device had before: it may be one from long ago.
    #[error("the list that the device had before is not known; once it has this one, it can change it")]
    Unseen,
    /// The budget of changes is used up.
    #[error("too many members are changed at once; one a second is followed")]
    Many,
    /// It changes administrators, or the name of the network.
    #[error("administrators and the name of the network are changed with weft")]
    Others,
    /// It puts back what the last list has undone: nvpn keeps the removals of its user, and applies them to each list.
    #[error(
        "the device puts back what was undone, so nvpn devices do without; remove the member, or add it again there"
    )]
    Insists,
}

impl Edit {
    /// Compares a list with the one that its signer had `before`. Changes that the list that is `held` has already are
    /// left out. A device may have been away for long, and its user has not made the changes of that time. `take` takes from a budget of changes, and returns how many there were.
    pub(super) fn of(
        before: Option<(&SharedRoster, u64)>,
        held: &SharedRoster,
        after: &SharedRoster,
        mut take: impl FnMut(usize) -> usize,
    ) -> Self {
        let (had, since) = before.unwrap_or((after, 0));
        let removed = had.members.difference(&after.members);
        let removed: Vec<_> = removed.filter(|key| held.members.contains(key)).copied().collect();
        let added = after.members.difference(&had.members);
        let added: Vec<_> = added.filter(|key| !held.members.contains(key)).copied().collect();
        let stayed = after.members.intersection(&had.members);
        let renamed: Vec<_> = stayed
            .filter_map(|key| Some((*key, after.aliases.get(key)?)))
            .filter(|(key, name)| [had, held].iter().all(|of| of.aliases.get(key) != Some(name)))
            .collect();
        let all = removed.len() + added.len() + renamed.len();
        let (removes, adds, renames) = (take(removed.len()), take(added.len()), take(renamed.len()));
        let left = match before {
            None => Some(Left::Unseen),
            Some(_) if removes + adds + renames < all => Some(Left::Many),
            Some((had, _)) if (&had.admins, &had.name) != (&after.admins, &after.name) => Some(Left::Others),
            Some(_) if all == 0 => Some(Left::Insists),
            Some(_) => None,
        };
        let named = |key: PublicKey| (key, after.aliases.get(&key).cloned());
        Self {
            signer: after.signer,
            since,
            added: added.into_iter().take(adds).map(named).collect(),
            removed: removed.into_iter().take(removes).collect(),
            renamed: renamed
                .into_iter()
                .take(renames)
                .map(|(key, name)| (key, name.clone()))
                .collect(),
            left,
        }
    }

    /// Returns whether there is nothing in it that may become records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.renamed.is_empty()
    }
}

/// The lists that devices have shown last: what their users edit, and when that was, in seconds since 1970. Most
/// devices have the same one.
#[derive(Debug, Default)]
pub(super) struct Shown(BTreeMap<(PublicKey, NetworkId), (Arc<SharedRoster>, u64)>);

impl Shown {
    /// Notes that the device of a key has this list.
    pub(super) fn note(&mut self, of: (PublicKey, NetworkId), list: &SharedRoster, unix: u64) {
        if let Some((_, at)) = self.0.get_mut(&of).filter(|(known, _)| known.id == list.id) {
            *at = unix;
            return;
        }
        let mut all = self.0.values();
        let known = all
            .find(|(known, _)| known.id == list.id)
            .map(|(known, _)| known.clone());
        let list = known.unwrap_or_else(|| Arc::new(list.clone()));
        self.0.insert(of, (list, unix));
    }

    /// Returns the list that the device of a key had last.
    pub(super) fn of(&self, key: &PublicKey, network: &NetworkId) -> Option<(&SharedRoster, u64)> {
        let (list, at) = self.0.get(&(*key, network.clone()))?;
        Some((list.as_ref(), *at))
    }

    /// Forgets the lists of other networks, and of keys that these do not name any longer.
    pub(super) fn retain(&mut self, is_named: impl Fn(&NetworkId, &PublicKey) -> bool) {
        self.0.retain(|(key, network), _| is_named(network, key));
    }
}
