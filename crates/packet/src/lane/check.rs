//! The invariants of a lane after every event, for fuzzing and simulation.

use std::collections::{BTreeMap, BTreeSet};

use weft_wire::NodeAddr;

use super::{Index, Lane};
use crate::bounds;
use crate::control::LinkId;
use crate::epoch::{Epochs, MAX_EPOCHS};
use crate::fast::{FastIndex, Reassembly};

/// The epochs of one link or session: all that open, and the one that seals.
type HeldEpochs = (BTreeSet<u32>, Option<u32>);

impl Lane {
    /// Checks that every queue is bounded, that kept values follow from the tables, and that
    /// indices and epochs belong together.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    #[doc(hidden)]
    pub fn check_invariants(&self) -> Result<(), String> {
        let bounded = |what: &str, len: usize, max: usize| {
            if len > max {
                return Err(format!("{len} {what}, at most {max}"));
            }
            Ok(())
        };
        self.reports.check()?;
        bounded("replies", self.replies.len(), bounds::REPLIES.count)?;
        bounded("bytes of replies", self.reply_bytes, bounds::REPLIES.bytes)?;
        bounded("early frames", self.early.load().count, bounds::EARLY.count)?;
        bounded("bytes of early frames", self.early.load().bytes, bounds::EARLY.bytes)?;
        bounded("packets that wait", self.queued.load().count, bounds::QUEUED.count)?;
        bounded("bytes that wait", self.queued.load().bytes, bounds::QUEUED.bytes)?;
        let queued: usize = self.sessions.values().map(|session| session.queue.len()).sum();
        if queued != self.queued.load().count {
            return Err(format!("{queued} packets wait, accounts say {:?}", self.queued.load()));
        }
        for session in self.sessions.values() {
            bounded("packets that wait", session.queue.len(), bounds::QUEUED_OF_SESSION)?;
            bounded("packets in pieces", session.reassembly.len(), Reassembly::MAX)?;
            check_epochs("session", &session.epochs)?;
        }
        for (peer, session) in &self.sessions {
            let resolved = self.resolve_egress(peer);
            let kept = session.egress.filter(|(version, _)| *version == self.version);
            if kept.is_some_and(|(_, kept)| kept != resolved) {
                return Err(format!("a session keeps {kept:?} instead of {resolved:?}"));
            }
        }
        for (id, link) in &self.links {
            check_epochs("link", &link.epochs)?;
            for index in link.epochs.ids() {
                if self.indices.get(&index) != Some(&Index::Keyed(*id)) {
                    return Err(format!("index {index} of link {} leads nowhere", id.0));
                }
            }
        }
        let fast = self
            .sessions
            .iter()
            .flat_map(|(peer, s)| s.fast.indices().map(|index| (index, FastIndex::Session(*peer))));
        let hops = self
            .links
            .iter()
            .flat_map(|(id, l)| l.hop.indices().map(|index| (index, FastIndex::Hop(*id))));
        if fast.chain(hops).collect::<BTreeMap<_, _>>() != self.fast_indices {
            return Err("the indices of fast keys do not lead to them".into());
        }
        for (index, to) in &self.indices {
            if let Index::Keyed(id) = to
                && !self.links.get(id).is_some_and(|l| l.epochs.ids().any(|i| i == *index))
            {
                return Err(format!("index {index} leads to no epoch"));
            }
        }
        Ok(())
    }

    /// Returns the number of labels that neighbours may use in relayed frames.
    #[doc(hidden)]
    pub fn labels_held(&self) -> usize {
        self.links.values().map(|link| link.labels.len()).sum()
    }

    /// Returns the epochs of every link that has any.
    #[doc(hidden)]
    pub fn held_links(&self) -> BTreeMap<LinkId, HeldEpochs> {
        let held = self.links.iter().map(|(id, link)| (*id, held(&link.epochs)));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }

    /// Returns the epochs of every session that has any.
    #[doc(hidden)]
    pub fn held_sessions(&self) -> BTreeMap<NodeAddr, HeldEpochs> {
        let held = self
            .sessions
            .iter()
            .map(|(peer, session)| (*peer, held(&session.epochs)));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }
}

fn held(epochs: &Epochs) -> HeldEpochs {
    (epochs.ids().collect(), epochs.current().map(|e| e.id))
}

fn check_epochs(what: &str, epochs: &Epochs) -> Result<(), String> {
    let (list, set): (Vec<u32>, BTreeSet<u32>) = (epochs.ids().collect(), epochs.ids().collect());
    if list.len() > MAX_EPOCHS || set.len() != list.len() {
        return Err(format!("a {what} has the epochs {list:?}"));
    }
    Ok(())
}
