//! Hops: the fast keys of a link, and the labels under which relayed frames go over it.

use weft_wire::fast::{INNER_AT, LABEL_AT, MAX_HOPS, RelayHeader};

use super::{FastEpoch, FastIndex};
use crate::control::{Carry, EpochId, FastKeys, LinkId, Relay};
use crate::lane::Lane;
use crate::link::Link;

impl Link {
    /// Returns whether the link's keys for relayed frames may seal nothing more.
    pub(super) fn hop_is_spent(&self) -> bool {
        self.hop.current().is_some_and(FastEpoch::is_spent)
    }

    /// Seals for the next hop a frame of this node of `len` bytes, whose inner frame is at
    /// [`INNER_AT`].
    pub(super) fn seal_relayed(&mut self, relay: Relay, whole: bool, slot: &mut [u8], len: usize) -> Option<()> {
        let header = RelayHeader {
            label: relay.label,
            ttl: MAX_HOPS,
            marks: 0,
        };
        let frame = slot.get_mut(..len)?;
        frame.get_mut(LABEL_AT..INNER_AT)?.copy_from_slice(&header.to_bytes());
        self.hop.current_mut()?.seal_hop(frame, whole)
    }
}

impl Lane {
    pub(crate) fn install_hop(&mut self, now: u64, id: LinkId, keys: &FastKeys) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(index) = link.hop.install(FastEpoch::new(now, keys)) {
            self.fast_indices.remove(&index);
        }
        self.fast_indices.insert(keys.our_index, FastIndex::Hop(id));
    }

    pub(crate) fn retire_hop(&mut self, id: LinkId, key: EpochId) {
        let retired = self.links.get_mut(&id).and_then(|link| link.hop.retire(key.0));
        if let Some(index) = retired {
            self.fast_indices.remove(&index);
        }
    }

    pub(crate) fn set_label(&mut self, id: LinkId, label: u32, to: Carry) {
        if let Some(link) = self.links.get_mut(&id) {
            link.labels.insert(label, to);
        }
    }

    pub(crate) fn remove_label(&mut self, id: LinkId, label: u32) {
        if let Some(link) = self.links.get_mut(&id) {
            link.labels.remove(&label);
        }
    }
}
