//! Changes of members that an administrator makes with an nvpn device: they become records
//! (docs/protocol/nvpn.md, "Edits").

use std::time::Instant;

use weft_networks::{Approval, MemberChange, Network};
use weft_noise::PublicKey;
use weft_nvpn::exchange::Edit;
use weft_nvpn::network_id::NetworkId;
use weft_os::clock::unix_s;
use weft_roster::names::Name;

use super::super::run::Daemon;
use super::is_signer;

/// One change of an [`Edit`].
enum Change {
    /// A member comes, by this name if it is one.
    Add(Option<Name>),
    /// A member is changed.
    Member(MemberChange),
}

impl Daemon {
    /// Makes records of what an administrator has changed with a device, if this node signs the lists of the
    /// network. Its next list undoes all else.
    pub(super) fn follow_edit(&mut self, now: u64, network: &NetworkId, edit: &Edit) {
        let own = *self.networks.own();
        let is_edited = |known: &&Network| known.nvpn_id().as_ref() == Some(network);
        let Some(known) = self.networks.iter().find(is_edited) else {
            return;
        };
        let reached = |key: &PublicKey| *key == own || self.networks.is_reachable(key);
        if !known.is_admin(&edit.signer) || !is_signer(&mut self.nvpn.seniors, known, (own, reached), now) {
            return;
        }
        let (id, label) = (known.id().to_string(), known.label_or_id());
        let by = self.facts.name(&edit.signer);
        let mut followed = true;
        for (member, change) in changes_of(edit) {
            let name = self.facts.name(&member);
            match self.change_as_edited(&id, &member, (change, edit.since), now) {
                Ok(()) => tracing::info!(network = label, by, member = name, "changed with nvpn"),
                Err(why) => {
                    tracing::warn!(
                        network = label,
                        by,
                        member = name,
                        why,
                        "a change with nvpn is not followed"
                    );
                    followed = false;
                }
            }
        }
        if let Some(why) = edit.left {
            tracing::warn!(network = label, by, %why, "a change with nvpn is not followed");
        }
        if followed && edit.left.is_none() {
            self.nvpn.exchange.end_rivalry(network);
        }
        self.events.hurry(Instant::now());
    }

    /// Makes a record of one change, by a device that showed its list at `since` last, in seconds since 1970.
    fn change_as_edited(
        &mut self,
        id: &str,
        member: &PublicKey,
        (change, since): (Change, u64),
        now: u64,
    ) -> Result<(), String> {
        let times = (now, unix_s());
        let network = self.networks.iter().find(|known| known.id().to_string() == id);
        if network.is_some_and(|network| network.is_admin(member)) {
            return Err("administrators are changed with weft".to_owned());
        }
        // The device may have the member from a list that this node has not seen.
        let removed = network.and_then(|network| network.state().removed.get(member));
        if matches!(change, Change::Add(_)) && removed.is_some_and(|record| record.event().body().created_at > since) {
            return Err("it was removed meanwhile; `weft approve` takes it in again".to_owned());
        }
        let done = match change {
            Change::Add(name) => {
                let approval = (Approval::default(), name);
                self.networks
                    .take_in_device(Some(id), member, approval, times)
                    .map(drop)
            }
            Change::Member(change) => self
                .networks
                .change_member(Some(id), &member.to_string(), (change, None), times)
                .map(drop),
        };
        done.map_err(|error| error.to_string())
    }
}

/// Returns the changes of an edit, each with its member: first who goes, whose name others may get.
fn changes_of(edit: &Edit) -> impl Iterator<Item = (PublicKey, Change)> {
    let removed = edit.removed.iter();
    let removed = removed.map(|key| (*key, Change::Member(MemberChange::Remove {})));
    let added = edit.added.iter();
    let added = added.map(|(key, name)| (*key, Change::Add(name.as_deref().and_then(Name::host_like))));
    let renamed = edit.renamed.iter().filter_map(|(key, name)| {
        let name = Name::host_like(name)?.to_string();
        Some((*key, Change::Member(MemberChange::Rename { name })))
    });
    removed.chain(added).chain(renamed)
}
