//! Fast frames in a lane: keys that change in place, one seal for a packet, and what answers itself.
//!
//! A session has them beside its FIPS epochs, under the same numbers. The lane opens a fast frame as soon as its keys
//! are installed, and seals data in them once one from the other side has opened that shows that ours open there: the core
//! cannot see that both ends derived the same keys, nor that fast frames get through. docs/protocol/fast.md.
//!
//! A link has such keys too where frames are relayed over it: they seal what a frame tells the next hop.

mod border;
mod forward;
mod fragment;
mod hop;
mod ingress;
mod keys;
mod message;
mod reassembly;
mod seal;
mod size;
mod way;

pub(crate) use fragment::{ELIDED, MAX_FRAGMENTED};
pub(crate) use ingress::Source;
pub(crate) use keys::FastEpoch;
pub(crate) use reassembly::Reassembly;
pub(crate) use way::Way;

use weft_wire::NodeAddr;

use crate::control::LinkId;

/// Fast keys of one session at a time: the present ones, those before and those to come.
const MAX_EPOCHS: usize = 4;

/// In numbers of epochs that measurements go by: fast frames of an epoch count on their own.
const FAST_BIT: u32 = 1 << 31;

/// Whose keys an index of fast frames names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastIndex {
    /// Those of the session with this node.
    Session(NodeAddr),
    /// Those of the hop over this link.
    Hop(LinkId),
}

/// The fast keys of one session, or of one link.
#[derive(Default)]
pub(crate) struct Fast {
    list: Vec<FastEpoch>,
    current: Option<u32>,
}

impl Fast {
    /// Adds keys; returns the receiver index of those that had to go for them.
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

    /// Receiver indices of all of them.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.iter().map(|e| e.our_index)
    }

    /// The keys that seal data.
    pub(crate) fn current(&self) -> Option<&FastEpoch> {
        self.list.iter().find(|e| Some(e.id) == self.current)
    }

    /// The keys that seal data.
    pub(crate) fn current_mut(&mut self) -> Option<&mut FastEpoch> {
        self.list.iter_mut().find(|e| Some(e.id) == self.current)
    }

    /// The number of those keys.
    pub(crate) fn current_id(&self) -> Option<u32> {
        self.current
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut FastEpoch> {
        self.list.iter_mut().find(|e| e.id == id)
    }

    fn by_index_mut(&mut self, our_index: u32) -> Option<&mut FastEpoch> {
        self.list.iter_mut().find(|e| e.our_index == our_index)
    }

    /// The keys that measurements know by this number.
    pub(crate) fn measured(&self, number: u32) -> Option<&FastEpoch> {
        self.list.iter().find(|e| e.number() == number)
    }

    /// A first frame opened under `id` that does not ask for a confirm, or the first that came directly. It lets data go
    /// under `id` if that is the newest.
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
