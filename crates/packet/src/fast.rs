//! Fast frames in a lane: keys that advance in place, one seal for a packet, and messages that the
//! lane answers itself.
//!
//! A session has fast keys in addition to its FIPS epochs, under the same numbers. The lane opens
//! fast frames as soon as their keys are installed. It seals data in them once it has opened one
//! from the peer that shows that its own frames open there: the core cannot see that both ends
//! derived the same keys, nor that fast frames get through. docs/protocol/fast.md.
//!
//! A link has such keys too if frames are relayed over it. They seal the part of a frame that the
//! next hop reads.

mod forward;
mod fragment;
mod ingress;
mod keys;
mod message;
mod reassembly;
mod seal;

pub(crate) use forward::HopIngress;
pub(crate) use ingress::{SessionIngress, Source};
pub(crate) use keys::FastEpoch;
pub(crate) use reassembly::Reassembly;

use weft_contract::CountedEpoch;

/// The number of fast keys that one session or link holds at a time: the present ones, earlier and
/// later ones.
const MAX_EPOCHS: usize = 4;

/// The fast keys of one session, or of one link.
#[derive(Default)]
pub(crate) struct Fast {
    list: Vec<FastEpoch>,
    current: Option<u32>,
}

impl Fast {
    /// Adds keys. Returns the receiver index of those that were removed for them.
    pub(crate) fn install(&mut self, epoch: FastEpoch) -> Option<u32> {
        let replaced = self.retire(epoch.id);
        let evicted = (self.list.len() == MAX_EPOCHS).then(|| {
            let at = self.list.iter().position(|e| Some(e.id) != self.current);
            at.map(|at| self.list.remove(at).our_index)
        });
        self.list.reserve_exact(1);
        self.list.push(epoch);
        replaced.or(evicted.flatten())
    }

    /// Removes keys and returns their receiver index.
    pub(crate) fn retire(&mut self, id: u32) -> Option<u32> {
        if self.current == Some(id) {
            self.current = None;
        }
        let at = self.list.iter().position(|e| e.id == id)?;
        Some(self.list.remove(at).our_index)
    }

    /// Seals with none of them from now on.
    pub(crate) fn suspend(&mut self) {
        self.current = None;
    }

    /// Returns the receiver indices of all of them.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.iter().map(|e| e.our_index)
    }

    /// Returns the keys that seal data.
    pub(crate) fn current(&self) -> Option<&FastEpoch> {
        self.pick(None)
    }

    /// Returns the keys that seal data.
    pub(crate) fn current_mut(&mut self) -> Option<&mut FastEpoch> {
        self.pick_mut(None)
    }

    /// Returns the number of the keys that seal data.
    pub(crate) fn current_id(&self) -> Option<u32> {
        self.current
    }

    /// Returns the keys of this number, or those that seal data.
    fn pick(&self, id: Option<u32>) -> Option<&FastEpoch> {
        let id = id.or(self.current);
        self.list.iter().find(|e| Some(e.id) == id)
    }

    /// Like [`Fast::pick`], for a change.
    fn pick_mut(&mut self, id: Option<u32>) -> Option<&mut FastEpoch> {
        let id = id.or(self.current);
        self.list.iter_mut().find(|e| Some(e.id) == id)
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut FastEpoch> {
        self.pick_mut(Some(id))
    }

    fn by_index_mut(&mut self, our_index: u32) -> Option<&mut FastEpoch> {
        self.list.iter_mut().find(|e| e.our_index == our_index)
    }

    /// Returns the keys whose frames are counted so.
    pub(crate) fn counted(&self, epoch: CountedEpoch) -> Option<&FastEpoch> {
        self.list.iter().find(|e| e.counted() == epoch)
    }

    /// Records that a frame opened under `id` that does not ask for a confirm, the first of all or
    /// the first over a direct path. Data goes under `id` from now on if it is the newest.
    fn prove(&mut self, id: u32, direct: bool) {
        let Some(epoch) = self.get_mut(id) else { return };
        epoch.proven = true;
        epoch.direct |= direct;
        if self.current.is_none_or(|current| current < id) {
            self.current = Some(id);
            for replaced in self.list.iter_mut().filter(|e| e.id < id) {
                replaced.rest();
            }
        }
    }
}
