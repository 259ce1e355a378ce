//! The invariants of a lane after every event, for fuzzing and simulation.

use std::collections::{BTreeMap, BTreeSet};

use weft_contract::{LinkId, Load, bounds};
use weft_wire::NodeAddr;

use super::Lane;
use crate::fast::Reassembly;
use crate::fips::{Epochs, IPV6_OVERHEAD, MAX_EPOCHS};
use crate::mss;
use crate::tables::{Egress, FastOwner, Index};

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
        let guests = tables.sessions.iter();
        let keys = guests.flat_map(|(key, s)| {
            let indices = s.wireguard.iter().flat_map(|tunnel| tunnel.indices());
            indices.map(move |index| (index, key))
        });
        if keys.collect::<BTreeMap<_, _>>() != tables.wireguard.indices {
            return Err("the indices of keys of WireGuard do not lead to them".into());
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

    /// Returns a view of the lane for tests and simulation.
    #[doc(hidden)]
    pub fn inspect(&self) -> Inspection<'_> {
        Inspection(self)
    }
}

/// A view of a lane for tests and simulation.
#[derive(Clone, Copy)]
pub struct Inspection<'a>(&'a Lane);

impl Inspection<'_> {
    /// Returns the number of labels that neighbours may use in relayed frames.
    #[must_use]
    pub fn labels(self) -> usize {
        self.0.tables.links.iter().map(|(_, link)| link.labels.len()).sum()
    }

    /// Returns the epochs of every link that has any.
    #[must_use]
    pub fn links(self) -> BTreeMap<LinkId, HeldEpochs> {
        let held = self
            .0
            .tables
            .links
            .iter()
            .map(|(_, link)| (link.id, held(&link.epochs)));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }

    /// Returns the epochs of every session that has any.
    #[must_use]
    pub fn sessions(self) -> BTreeMap<NodeAddr, HeldEpochs> {
        let held = self.0.tables.sessions.iter().map(|(_, s)| (s.peer, held(&s.epochs)));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }

    /// Returns the number of packets that wait for a session with `peer`.
    #[must_use]
    pub fn queued(self, peer: &NodeAddr) -> usize {
        self.0.tables.sessions.find(peer).map_or(0, |s| s.queue.len())
    }

    /// Returns the number and size of the frames that wait for keys.
    #[must_use]
    pub fn early(self) -> Load {
        self.0.early.load()
    }

    /// Returns the size of the largest IP packet in one FIPS frame of this node's own link, in
    /// bytes.
    #[must_use]
    pub fn max_inner(self) -> usize {
        usize::from(self.0.tables.config.mtu) - IPV6_OVERHEAD
    }

    /// Returns the size of the largest IP packet in one frame to this node, in bytes.
    #[must_use]
    pub fn max_inner_to(self, peer: &NodeAddr) -> usize {
        let session = self.0.tables.sessions.key(peer);
        let egress = session.map(|key| self.0.tables.resolve_egress(key));
        egress.map_or_else(|| self.max_inner(), Egress::max_inner)
    }

    /// Returns the size of the largest TCP packet that the hosts at both ends of a session over
    /// this node's own link shall agree on, in bytes; see
    /// [`cautious_payload`](crate::mss::cautious_payload).
    #[must_use]
    pub fn max_tcp(self) -> usize {
        usize::from(mss::cautious_payload(self.0.tables.config.mtu)) - IPV6_OVERHEAD
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
