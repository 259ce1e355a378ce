//! The peers of a node, and when each is due.
//!
//! A node may have thousands of peers, and an event concerns one of them. So the next deadline of
//! each is kept in order, and computed again only for peers that were borrowed mutably.

use std::collections::{BTreeMap, BTreeSet};

use weft_wire::NodeAddr;

use super::Peer;
use crate::context::Context;

/// Peers by address.
#[derive(Default)]
pub(crate) struct Peers {
    map: BTreeMap<NodeAddr, Box<Peer>>,
    /// The peers with a deadline, by [`Peer::queued`].
    queue: BTreeSet<(u64, NodeAddr)>,
    /// The peers that were borrowed mutably since their deadline was computed. An address may be
    /// listed several times.
    touched: Vec<NodeAddr>,
    /// Neighbours that are not configured and whose link had ended at that time.
    gone: BTreeSet<NodeAddr>,
}

impl Peers {
    pub(crate) fn get(&self, addr: &NodeAddr) -> Option<&Peer> {
        self.map.get(addr).map(|peer| &**peer)
    }

    /// Returns a peer for a change.
    pub(crate) fn get_mut(&mut self, addr: &NodeAddr) -> Option<&mut Peer> {
        let peer = self.map.get_mut(addr)?;
        if self.touched.last() != Some(addr) {
            self.touched.push(*addr);
        }
        Some(peer)
    }

    pub(crate) fn contains_key(&self, addr: &NodeAddr) -> bool {
        self.map.contains_key(addr)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Iterates in the order of the addresses.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeAddr, &Peer)> + Clone {
        self.map.iter().map(|(addr, peer)| (addr, &**peer))
    }

    /// Iterates in the order of the addresses.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Peer> + Clone {
        self.map.values().map(|peer| &**peer)
    }

    /// Records that what is due for all peers may have changed.
    pub(crate) fn touch_all(&mut self) {
        self.touched = self.map.keys().copied().collect();
    }

    /// Returns all peers for a change, in the order of their addresses.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.touch_all();
        self.map.values_mut().map(|peer| &mut **peer)
    }

    pub(crate) fn insert(&mut self, addr: NodeAddr, peer: Peer) {
        self.remove(&addr);
        self.map.insert(addr, Box::new(peer));
        self.touched.push(addr);
    }

    pub(crate) fn remove(&mut self, addr: &NodeAddr) -> Option<Box<Peer>> {
        let peer = self.map.remove(addr)?;
        self.queue.remove(&(peer.queued, *addr));
        Some(peer)
    }

    /// Takes the neighbours that are not configured and whose links seem to have ended.
    pub(crate) fn take_gone(&mut self, ctx: &Context) -> BTreeSet<NodeAddr> {
        self.refresh(ctx);
        std::mem::take(&mut self.gone)
    }

    /// Computes again, for the peers that were borrowed mutably, when they are due and whether they
    /// are gone.
    fn refresh(&mut self, ctx: &Context) {
        for addr in self.touched.drain(..) {
            let Some(peer) = self.map.get_mut(&addr) else { continue };
            if peer.is_gone() {
                self.gone.insert(addr);
            }
            let (at, _) = peer.due(ctx);
            let before = std::mem::replace(&mut peer.queued, at);
            if before == at {
                continue;
            }
            self.queue.remove(&(before, addr));
            if at != u64::MAX {
                self.queue.insert((at, addr));
            }
        }
    }

    /// Returns the peers that are due at `now`, in the order of their addresses.
    pub(crate) fn due(&mut self, ctx: &Context, now: u64) -> Vec<NodeAddr> {
        self.refresh(ctx);
        let due = self.queue.iter().take_while(|(at, _)| *at <= now);
        let mut due: Vec<NodeAddr> = due.map(|(_, addr)| *addr).collect();
        due.sort_unstable();
        due
    }

    /// Returns when the first peer is due, and for what.
    pub(crate) fn next(&mut self, ctx: &Context) -> Option<(u64, &'static str)> {
        self.refresh(ctx);
        let (_, addr) = self.queue.first()?;
        self.map.get(addr).map(|peer| peer.due(ctx))
    }

    /// Checks the stored deadlines against the peers themselves.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check(&self, ctx: &Context) -> Result<(), String> {
        for (addr, peer) in &self.map {
            let (at, kept) = (peer.due(ctx).0, peer.queued);
            if at != kept && !self.touched.contains(addr) {
                return Err(format!("a peer is due at {at}, and kept as due at {kept}"));
            }
        }
        let mut queued = self.map.iter().filter(|(_, peer)| peer.queued != u64::MAX);
        let count = queued.clone().count();
        if count != self.queue.len() || queued.any(|(addr, peer)| !self.queue.contains(&(peer.queued, *addr))) {
            return Err("the queue of peers is not that of their moments".into());
        }
        Ok(())
    }
}
