//! The records that a node gets that is a member no longer: those that ended its membership and its rights.
//!
//! Such a node may have missed that the signers of these records have rights. It drops records of
//! signers without rights, and would continue as before. So the records that gave them these rights precede.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_noise::PublicKey;

use crate::admins::{Admins, network_of};
use crate::key::RecordKey;
use crate::record::Record;
use crate::set::RecordSet;
use crate::state::State;

/// The records that show a removed node its removal; none for a node that was not removed.
pub(super) struct Dismissal {
    /// What gave the signers of the other ones their rights.
    pub(super) rights: Vec<Arc<Record>>,
    /// What ended the membership and the rights of the node.
    pub(super) ends: Vec<Arc<Record>>,
}

impl Dismissal {
    pub(super) fn of(node: &PublicKey, set: &RecordSet, state: &State) -> Option<Self> {
        let removal = state.removed.get(node)?;
        let admins = &state.admins;
        let position = admins.heads.iter().position(|head| head == node);
        let handover = position.and_then(|at| admins.handovers.get(at));
        let revocation = set.in_force(&RecordKey::Admin(*node)).filter(|record| record.removed());
        let ends: Vec<Arc<Record>> = handover
            .into_iter()
            .chain(revocation)
            .chain([removal])
            .cloned()
            .collect();
        let mut rights = heads(set, admins);
        let mut seen = BTreeSet::new();
        for record in &ends {
            let mut signer = record.signer();
            while seen.insert(*signer)
                && let Some(grant) = admins.of.get(signer).and_then(|admin| admin.grant.as_ref())
            {
                rights.push(Arc::clone(grant));
                signer = grant.signer();
            }
        }
        Some(Self { rights, ends })
    }
}

/// Lists the records that make the present head the head: those of each head about the network, and each handover.
fn heads(set: &RecordSet, admins: &Admins) -> Vec<Arc<Record>> {
    let networks = admins.heads.iter().filter_map(|head| network_of(set.slots(), head));
    networks.chain(&admins.handovers).cloned().collect()
}
