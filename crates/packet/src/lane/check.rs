//! The invariants of a lane after every event, for fuzzing and simulation.

use std::collections::{BTreeMap, BTreeSet};

use weft_wire::NodeAddr;

use super::Lane;
use crate::bounds;
use crate::control::LinkId;
use crate::fast::Reassembly;
use crate::fips::{Epochs, MAX_EPOCHS};
use crate::tables::{FastOwner, Index};

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
        self.out.check()?;
        bounded("early frames", self.early.load().count, bounds::EARLY.count)?;
        bounded("bytes of early frames", self.early.load().bytes, bounds::EARLY.bytes)?;
        bounded("packets that wait", self.queued.load().count, bounds::QUEUED.count)?;
        bounded("bytes that wait", self.queued.load().bytes, bounds::QUEUED.bytes)?;
        let tables = &self.tables;
        let queued: usize = tables.sessions.iter().map(|(_, session)| session.queue.len()).sum();
        if queued != self.queued.load().count {
            return Err(format!("{queued} packets wait, accounts say {:?}", self.queued.load()));
        }
        for (key, session) in tables.sessions.iter() {
            bounded("packets that wait", session.queue.len(), bounds::QUEUED_OF_SESSION)?;
            bounded("packets in pieces", session.reassembly.len(), Reassembly::MAX)?;
            check_epochs("session", &session.epochs)?;
            tables.check_egress(key)?;
        }
        for (key, link) in tables.links.iter() {
            check_epochs("link", &link.epochs)?;
            for index in link.epochs.ids() {
                if tables.indices.get(&index) != Some(&Index::Keyed(key)) {
                    return Err(format!("index {index} of link {} leads nowhere", link.id.0));
                }
            }
        }
        let sessions = tables.sessions.iter();
        let fast = sessions.flat_map(|(key, s)| s.fast.indices().map(move |index| (index, FastOwner::Session(key))));
        let links = tables.links.iter();
        let hops = links.flat_map(|(key, l)| l.hop.indices().map(move |index| (index, FastOwner::Hop(key))));
        if fast.chain(hops).collect::<BTreeMap<_, _>>() != tables.fast_indices {
            return Err("the indices of fast keys do not lead to them".into());
        }
        for (index, to) in &tables.indices {
            if let Index::Keyed(key) = to
                && !tables
                    .links
                    .get(*key)
                    .is_some_and(|l| l.epochs.ids().any(|i| i == *index))
            {
                return Err(format!("index {index} leads to no epoch"));
            }
        }
        Ok(())
    }

    /// Returns the number of labels that neighbours may use in relayed frames.
    #[doc(hidden)]
    pub fn labels_held(&self) -> usize {
        self.tables.links.iter().map(|(_, link)| link.labels.len()).sum()
    }

    /// Returns the epochs of every link that has any.
    #[doc(hidden)]
    pub fn held_links(&self) -> BTreeMap<LinkId, HeldEpochs> {
        let held = self.tables.links.iter().map(|(_, link)| (link.id, held(&link.epochs)));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }

    /// Returns the epochs of every session that has any.
    #[doc(hidden)]
    pub fn held_sessions(&self) -> BTreeMap<NodeAddr, HeldEpochs> {
        let held = self.tables.sessions.iter().map(|(_, s)| (s.peer, held(&s.epochs)));
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
