//! How nodes find each other through each other: tree, filters, look-ups, and the way to everyone.
//!
//! - [`tree`]: the spanning tree, and with it coordinates for every node.
//! - [`filter`]: what each neighbour may reach.
//! - [`coords`]: the coordinates of others, as learned.
//! - [`lookup`]: asking for them.
//! - here: what they tell each other, and the next hop.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "link costs and the counters of gossip come with the metrics")
)]
mod coords;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "link costs and the counters of gossip come with the metrics")
)]
mod filter;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "link costs and the counters of gossip come with the metrics")
)]
mod lookup;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "link costs and the counters of gossip come with the metrics")
)]
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_noise::{Identity, PublicKey};
use weft_wire::NodeAddr;
use weft_wire::filter::FilterAnnounce;
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::tree::TreeAnnounce;

use self::coords::CoordCache;
use self::filter::Filters;
use self::lookup::{Limits, LookupOutput, Lookups, View};
use self::tree::{Tree, distance};
use crate::context::Context;

/// Nodes whose coordinates are kept.
const MAX_COORDS: usize = 4096;
/// Ways that replies taught us, at most.
const MAX_LEARNED: usize = 4096;
/// How long such a way is believed without being used, ms. FIPS keeps coordinates for as long.
const LEARNED_LIFE: u64 = 300_000;

/// A way that a passing reply taught us.
struct Learned {
    via: NodeAddr,
    until: u64,
}

/// What the node has to do because of what the mesh learned.
#[derive(Debug)]
pub(crate) enum MeshOutput {
    /// Send this link message to a neighbour.
    Send {
        /// The neighbour.
        to: NodeAddr,
        /// FMP message type.
        msg_type: u8,
        /// Its body.
        body: Vec<u8>,
    },
    /// Ways may have changed.
    Changed,
    /// A look-up found nobody.
    Failed(NodeAddr),
}

/// Everything a node knows of the mesh around it.
pub(crate) struct Mesh {
    me: NodeAddr,
    mtu: u16,
    transit: bool,
    neighbours: BTreeMap<NodeAddr, PublicKey>,
    tree: Tree,
    filters: Filters,
    coords: CoordCache,
    lookups: Lookups,
    learned: BTreeMap<NodeAddr, Learned>,
    outputs: VecDeque<MeshOutput>,
}

impl Mesh {
    pub(crate) fn new(ctx: &mut Context, now: u64) -> Self {
        let jitter = ctx.jittered(1_000);
        Self {
            me: ctx.me,
            mtu: ctx.config.mtu,
            transit: ctx.config.transit,
            neighbours: BTreeMap::new(),
            tree: Tree::new(ctx.me, now, jitter, ctx.config.mtu),
            filters: Filters::new(ctx.me),
            coords: CoordCache::new(MAX_COORDS),
            lookups: Lookups::new(Limits::default()),
            learned: BTreeMap::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Our coordinates, ourselves first.
    pub(crate) fn my_coords(&self) -> &[NodeAddr] {
        self.tree.coords()
    }

    /// A node's coordinates, if we know them.
    pub(crate) fn coords_of(&self, now: u64, dest: NodeAddr) -> Option<&[NodeAddr]> {
        self.coords.peek(now, &dest)
    }

    pub(crate) fn neighbour_up(&mut self, now: u64, addr: NodeAddr, key: PublicKey) {
        self.neighbours.insert(addr, key);
        self.tree.peer_up(now, addr);
        self.filters.peer_up(now, addr);
        self.tree_changed(now, true);
    }

    pub(crate) fn neighbour_down(&mut self, now: u64, addr: NodeAddr) {
        if self.neighbours.remove(&addr).is_none() {
            return;
        }
        let change = self.tree.peer_down(now, addr);
        self.filters.peer_down(now, &addr);
        self.learned.retain(|_, way| way.via != addr);
        self.tree_changed(now, change.coords_changed);
    }

    /// A message of a neighbour about the mesh. False if it did not parse or was refused.
    pub(crate) fn handle_message(
        &mut self,
        now: u64,
        from: NodeAddr,
        kind: LinkMessageType,
        body: &[u8],
        identity: &Identity,
        keys: &BTreeMap<NodeAddr, PublicKey>,
    ) -> bool {
        let Some(key) = self.neighbours.get(&from).copied() else {
            return false;
        };
        match kind {
            LinkMessageType::TreeAnnounce => {
                let Ok(announce) = TreeAnnounce::parse(body) else {
                    return false;
                };
                let Ok(change) = self.tree.handle_announce(now, from, &key, &announce) else {
                    return false;
                };
                self.tree_changed(now, change.coords_changed);
                true
            }
            LinkMessageType::FilterAnnounce => {
                let Ok(announce) = FilterAnnounce::parse(body) else {
                    return false;
                };
                let Ok(changed) = self.filters.handle_announce(now, &from, &announce) else {
                    return false;
                };
                if changed {
                    self.outputs.push_back(MeshOutput::Changed);
                }
                true
            }
            LinkMessageType::LookupRequest => {
                let Ok(request) = LookupRequest::parse(body) else {
                    return false;
                };
                let (lookups, view) = self.split(now);
                lookups.handle_request(now, from, &request, &view, identity);
                self.drain_lookups(now);
                true
            }
            LinkMessageType::LookupResponse => {
                let Ok(response) = LookupResponse::parse(body) else {
                    return false;
                };
                let (lookups, view) = self.split(now);
                let key_of = |addr: &NodeAddr| keys.get(addr).copied();
                lookups.handle_response(now, from, &response, &view, key_of);
                self.drain_lookups(now);
                true
            }
            _ => true,
        }
    }

    /// Asks where a node is.
    pub(crate) fn look_up(&mut self, now: u64, target: NodeAddr, ctx: &mut Context) {
        let (lookups, view) = self.split(now);
        lookups.want(now, target, &view, &mut *ctx.rng);
        self.drain_lookups(now);
    }

    /// Coordinates that a passing message told. They are hints, not proven by anything.
    pub(crate) fn learn_coords(&mut self, now: u64, dest: NodeAddr, path: &[NodeAddr]) {
        if dest != self.me {
            // A path that cannot be is ignored.
            let _ = self.coords.insert(now, dest, path);
        }
    }

    /// A session message of `src` came through `via`, so the way back leads there.
    pub(crate) fn learn_way(&mut self, now: u64, src: NodeAddr, via: NodeAddr) {
        if src == self.me || src == via || self.neighbours.contains_key(&src) {
            return;
        }
        if self.learned.len() >= MAX_LEARNED && !self.learned.contains_key(&src) {
            self.learned.retain(|_, way| way.until > now);
            if self.learned.len() >= MAX_LEARNED {
                return;
            }
        }
        self.learned.insert(
            src,
            Learned {
                via,
                until: now + LEARNED_LIFE,
            },
        );
    }

    /// Coordinates and ways to a node turned out wrong.
    pub(crate) fn forget(&mut self, dest: NodeAddr) {
        self.coords.remove(&dest);
        self.learned.remove(&dest);
    }

    /// The neighbour to hand a message for `dest` to, other than `not`.
    ///
    /// A neighbour itself first; then what replies taught; then, with coordinates, the neighbours whose filters have it
    /// and that are closer than we are, the closest first; then any closer one.
    pub(crate) fn next_hop(&mut self, now: u64, dest: NodeAddr, not: Option<NodeAddr>) -> Option<NodeAddr> {
        let usable = |via: &NodeAddr| Some(*via) != not;
        if self.neighbours.contains_key(&dest) {
            return Some(dest).filter(usable);
        }
        let learned = self
            .learned
            .get(&dest)
            .filter(|way| way.until > now && usable(&way.via));
        if let Some(via) = learned
            .map(|way| way.via)
            .filter(|via| self.neighbours.contains_key(via))
        {
            return Some(via);
        }
        let coords = self.coords.lookup(now, &dest)?.to_vec();
        let ours = distance(self.tree.coords(), &coords)?;
        let closer = |via: &NodeAddr| {
            let theirs = distance(self.tree.peer_coords(*via)?, &coords)?;
            (theirs < ours).then_some((theirs, *via))
        };
        let candidates = || self.neighbours.keys().filter(|via| usable(via)).filter_map(closer);
        let filtered = candidates().filter(|(_, via)| self.filters.may_reach(via, &dest)).min();
        filtered.or_else(|| candidates().min()).map(|(_, via)| via)
    }

    /// Whether a look-up for a node is under way.
    pub(crate) fn is_looking_for(&self, dest: NodeAddr) -> bool {
        self.lookups.is_pending(&dest)
    }

    pub(crate) fn deadline(&self) -> (u64, &'static str) {
        [
            (self.tree.deadline(), "tree"),
            (self.filters.deadline(), "filters"),
            self.lookups.deadline(),
        ]
        .into_iter()
        .min_by_key(|(at, _)| *at)
        .unwrap_or((u64::MAX, ""))
    }

    pub(crate) fn handle_timeout(&mut self, now: u64, unix: u64, ctx: &mut Context) {
        let change = self.tree.handle_timeout(now);
        if change.coords_changed || change.parent_changed {
            self.tree_changed(now, change.coords_changed);
        }
        let (lookups, view) = self.split(now);
        lookups.handle_timeout(now, &view, &mut *ctx.rng);
        self.drain_lookups(now);
        self.poll_gossip(now, unix, &ctx.identity);
    }

    /// Makes the announcements that are due.
    pub(crate) fn poll_gossip(&mut self, now: u64, unix: u64, identity: &Identity) {
        while let Some((to, body)) = self.tree.poll_announce(now, unix, identity) {
            let msg_type = LinkMessageType::TreeAnnounce.to_byte();
            self.outputs.push_back(MeshOutput::Send { to, msg_type, body });
        }
        while let Some((to, body)) = self.filters.poll_announce(now) {
            let msg_type = LinkMessageType::FilterAnnounce.to_byte();
            self.outputs.push_back(MeshOutput::Send { to, msg_type, body });
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<MeshOutput> {
        self.outputs.pop_front()
    }

    /// Checks what must hold after every event.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        self.tree.check_invariants()?;
        self.filters.check_invariants()?;
        self.coords.check_invariants()?;
        self.lookups.check_invariants()
    }

    /// Bytes that others have made us keep, about.
    pub(crate) fn bytes(&self) -> usize {
        let learned = self.learned.len() * (2 * NodeAddr::LEN + 8);
        self.filters.bytes() + self.coords.bytes() + self.lookups.bytes() + learned
    }

    fn tree_changed(&mut self, now: u64, coords_changed: bool) {
        if coords_changed {
            // Paths that lead through us, or to a root that is no longer ours, were relative to the tree as it was.
            self.coords.remove_below(&self.me);
            self.coords.remove_other_roots(&self.tree.root());
        }
        let tree_peers: BTreeSet<NodeAddr> = self
            .neighbours
            .keys()
            .copied()
            .filter(|peer| self.tree.is_tree_peer(*peer))
            .collect();
        self.filters.set_tree_peers(now, tree_peers.into_iter());
        self.outputs.push_back(MeshOutput::Changed);
    }

    fn drain_lookups(&mut self, now: u64) {
        while let Some(output) = self.lookups.poll() {
            match output {
                LookupOutput::Send { to, msg_type, body } => {
                    self.outputs.push_back(MeshOutput::Send { to, msg_type, body });
                }
                LookupOutput::Found {
                    target, coords, via, ..
                } => {
                    self.learn_coords(now, target, &coords);
                    self.learn_way(now, target, via);
                    self.outputs.push_back(MeshOutput::Changed);
                }
                LookupOutput::Failed { target } => self.outputs.push_back(MeshOutput::Failed(target)),
                LookupOutput::Learned { dest, via, coords, .. } => {
                    self.learn_coords(now, dest, &coords);
                    self.learn_way(now, dest, via);
                }
            }
        }
    }

    /// The look-ups, and what they may see of the rest.
    fn split(&mut self, now: u64) -> (&mut Lookups, Around<'_>) {
        let around = Around {
            now,
            me: self.me,
            mtu: self.mtu,
            transit: self.transit,
            neighbours: &self.neighbours,
            tree: &self.tree,
            filters: &self.filters,
            coords: &self.coords,
            learned: &self.learned,
        };
        (&mut self.lookups, around)
    }
}

/// What look-ups see of the mesh.
struct Around<'a> {
    now: u64,
    me: NodeAddr,
    mtu: u16,
    transit: bool,
    neighbours: &'a BTreeMap<NodeAddr, PublicKey>,
    tree: &'a Tree,
    filters: &'a Filters,
    coords: &'a CoordCache,
    learned: &'a BTreeMap<NodeAddr, Learned>,
}

impl View for Around<'_> {
    fn me(&self) -> NodeAddr {
        self.me
    }

    fn my_coords(&self) -> &[NodeAddr] {
        self.tree.coords()
    }

    fn is_neighbour(&self, addr: &NodeAddr) -> bool {
        self.neighbours.contains_key(addr)
    }

    fn neighbours(&self) -> impl Iterator<Item = NodeAddr> {
        self.neighbours.keys().copied()
    }

    fn is_tree_peer(&self, peer: &NodeAddr) -> bool {
        self.tree.is_tree_peer(*peer)
    }

    fn may_reach(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        self.filters.may_reach(peer, dest)
    }

    fn link_mtu(&self, _peer: &NodeAddr) -> u16 {
        self.mtu
    }

    fn transit(&self) -> bool {
        self.transit
    }

    fn next_hop(&self, dest: &NodeAddr) -> Option<NodeAddr> {
        if self.neighbours.contains_key(dest) {
            return Some(*dest);
        }
        if let Some(way) = self.learned.get(dest) {
            return Some(way.via);
        }
        let coords = self.coords.peek(self.now, dest)?;
        let ours = distance(self.tree.coords(), coords)?;
        let closer = self
            .neighbours
            .keys()
            .filter_map(|via| Some((distance(self.tree.peer_coords(*via)?, coords)?, *via)));
        closer.filter(|(theirs, _)| *theirs < ours).min().map(|(_, via)| via)
    }
}
