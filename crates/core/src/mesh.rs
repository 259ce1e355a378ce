//! The mesh: spanning tree, filters, look-ups, and the next hop to every node.
//!
//! - [`tree`]: the spanning tree, and with it coordinates for every node.
//! - [`filter`]: the nodes that each neighbour may reach.
//! - [`coords`], [`next_hops`]: the coordinates of other nodes, and the neighbours on the routes to
//!   them, as learned.
//! - [`provenance`]: the evidence for such knowledge, and when it yields to other knowledge.
//! - [`suspects`]: neighbours and routes that do not answer at present.
//! - [`lookup`]: questions for coordinates.
//! - here: what these modules report to each other, and the next hop.

mod coords;
mod costs;
mod filter;
mod lookup;
mod next_hops;
mod provenance;
mod suspects;
mod tree;

use std::collections::{BTreeMap, VecDeque};

use weft_noise::{Identity, PublicKey};
use weft_wire::filter::FilterAnnounce;
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::tree::TreeAnnounce;
use weft_wire::{NodeAddr, WireError};

use self::coords::CoordCache;
use self::costs::{Costs, HOP};
use self::filter::Filters;
pub(crate) use self::filter::Was;
use self::lookup::{Limits, LookupCounters, LookupOutput, Lookups, View};
use self::next_hops::NextHops;
use self::provenance::{Provenance, Word};
pub(crate) use self::suspects::Silence;
use self::suspects::{Doubt, Suspects};
use self::tree::{AnnounceError, Tree, distance};
use crate::context::Context;

/// The distance that counts for a neighbour that is not closer to a destination, in hops.
const FAR: usize = 1_000;
/// Maximum number of nodes whose coordinates are kept.
const MAX_COORDS: usize = 4096;
/// An effect of the mesh for the node.
#[derive(Debug)]
pub(crate) enum MeshOutput {
    /// Send this link message to a neighbour.
    Send {
        /// The neighbour.
        to: NodeAddr,
        /// The FMP message type.
        msg_type: u8,
        /// The body of the message.
        body: Vec<u8>,
    },
    /// Routes may have changed.
    Changed,
    /// Routes to these destinations may have changed: those that the filter of `neighbour` contains
    /// now and did not before, and the other way round.
    Filtered {
        /// The neighbour.
        neighbour: NodeAddr,
        /// Its previous filter.
        was: Was,
    },
    /// A look-up did not find the node.
    Failed(NodeAddr),
}

/// The reason why a neighbour's message about the mesh had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not parse.
    Malformed,
    /// It is an announcement that is old, too frequent, forged or impossible.
    Announcement,
}

impl From<WireError> for Refused {
    fn from(_: WireError) -> Self {
        Self::Malformed
    }
}

/// The knowledge of a node about the mesh around it.
pub(crate) struct Mesh {
    me: NodeAddr,
    mtu: u16,
    transit: bool,
    neighbours: BTreeMap<NodeAddr, PublicKey>,
    tree: Tree,
    /// The parent in the tree, as the filters have it.
    parent: Option<NodeAddr>,
    filters: Filters,
    coords: CoordCache,
    lookups: Lookups,
    next_hops: NextHops,
    doubts: Suspects,
    costs: Costs,
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
            parent: None,
            filters: Filters::new(ctx.me),
            coords: CoordCache::new(MAX_COORDS),
            lookups: Lookups::new(Limits::default()),
            next_hops: NextHops::default(),
            doubts: Suspects::default(),
            costs: Costs::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the coordinates of this node, its own address first.
    pub(crate) fn my_coords(&self) -> &[NodeAddr] {
        self.tree.coords()
    }

    /// Returns the place of this node in the tree.
    pub(crate) fn place(&self) -> &Tree {
        &self.tree
    }

    /// Returns the number of nodes whose coordinates are kept.
    pub(crate) fn known(&self) -> usize {
        self.coords.len()
    }

    /// Returns the counters of look-ups.
    pub(crate) fn lookup_counters(&self) -> LookupCounters {
        self.lookups.counters()
    }

    /// Returns the coordinates of a node, if they are known.
    pub(crate) fn coords_of(&self, now: u64, dest: NodeAddr) -> Option<&[NodeAddr]> {
        self.coords.peek(now, &dest)
    }

    pub(crate) fn neighbour_up(&mut self, now: u64, addr: NodeAddr, key: PublicKey) {
        self.neighbours.insert(addr, key);
        self.tree.peer_up(now, addr);
        self.filters.peer_up(now, addr);
        self.tree_changed(now, addr, true);
    }

    pub(crate) fn neighbour_down(&mut self, now: u64, addr: NodeAddr) {
        if self.neighbours.remove(&addr).is_none() {
            return;
        }
        let change = self.tree.peer_down(now, addr);
        self.filters.peer_down(now, &addr);
        self.next_hops.forget_through(&addr);
        self.doubts.set_silence(addr, None);
        self.costs.forget(&addr);
        self.tree_changed(now, addr, change.coords_changed);
    }

    /// Sets the measured cost of the link to a neighbour, in thousandths of a perfect link. Returns
    /// whether it changes the choice of routes.
    pub(crate) fn set_cost(&mut self, now: u64, neighbour: NodeAddr, cost: u32) -> bool {
        if !self.neighbours.contains_key(&neighbour) {
            return false;
        }
        self.tree.set_cost(now, neighbour, cost);
        let differs = self.costs.measured(neighbour, cost);
        if differs {
            self.outputs.push_back(MeshOutput::Changed);
        }
        differs
    }

    /// Returns the counters of gossip and look-ups, by name.
    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.filters.counters().named().chain(self.lookups.counters().named())
    }

    /// Handles a message of a neighbour about the mesh.
    ///
    /// # Errors
    ///
    /// [`Refused`]. Nothing has changed then.
    pub(crate) fn handle_message(
        &mut self,
        now: u64,
        from: NodeAddr,
        kind: LinkMessageType,
        body: &[u8],
        identity: &Identity,
        key_of: impl Fn(&NodeAddr) -> Option<PublicKey>,
    ) -> Result<(), Refused> {
        let key = self.neighbours.get(&from).copied().ok_or(Refused::Announcement)?;
        match kind {
            LinkMessageType::TreeAnnounce => {
                let announce = TreeAnnounce::parse(body)?;
                match self.tree.handle_announce(now, from, &key, &announce) {
                    Ok(change) => self.tree_changed(now, from, change.coords_changed),
                    // Every node repeats its last announcement, in case it was lost.
                    Err(AnnounceError::Repeated) => {}
                    Err(_) => return Err(Refused::Announcement),
                }
            }
            LinkMessageType::FilterAnnounce => {
                let announce = FilterAnnounce::parse(body)?;
                let changed = self.filters.handle_announce(now, &from, &announce);
                if let Some(was) = changed.map_err(|_| Refused::Announcement)? {
                    let neighbour = from;
                    self.outputs.push_back(MeshOutput::Filtered { neighbour, was });
                }
            }
            LinkMessageType::LookupRequest => {
                let request = LookupRequest::parse(body)?;
                let (lookups, view) = self.split(now);
                lookups.handle_request(now, from, &request, &view, identity);
                self.drain_lookups(now);
            }
            LinkMessageType::LookupResponse => {
                let response = LookupResponse::parse(body)?;
                let (lookups, view) = self.split(now);
                lookups.handle_response(now, from, &response, &view, key_of);
                self.drain_lookups(now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a neighbour's filter gives another answer for a node than it did before.
    pub(crate) fn filter_differs(&self, neighbour: &NodeAddr, was: &Was, dest: &NodeAddr) -> bool {
        self.filters.may_reach(neighbour, dest) != was.may_reach(dest)
    }

    /// Starts a look-up of a node's coordinates.
    pub(crate) fn look_up(&mut self, now: u64, target: NodeAddr, ctx: &mut Context) {
        let (lookups, view) = self.split(now);
        lookups.want(now, target, &view, &mut *ctx.rng);
        self.drain_lookups(now);
    }

    /// Learns coordinates from a message that this node has forwarded or received. They are hints
    /// without a proof.
    pub(crate) fn learn_coords(&mut self, now: u64, dest: NodeAddr, path: &[NodeAddr], teller: NodeAddr) {
        let provenance = Provenance::Passing;
        self.keep_coords(now, dest, path, Word { teller, provenance });
    }

    /// Learns from a session message of `src` that was received through `via`: the route back may
    /// lead there.
    pub(crate) fn learn_next_hop(&mut self, now: u64, src: NodeAddr, via: NodeAddr) {
        let provenance = Provenance::Passing;
        self.keep_way(
            now,
            src,
            Word {
                teller: via,
                provenance,
            },
        );
    }

    /// Learns from a frame of a node's session that was received through `via`: the route back
    /// leads there.
    pub(crate) fn prove_way(&mut self, now: u64, src: NodeAddr, via: NodeAddr) {
        let provenance = Provenance::Proven;
        self.keep_way(
            now,
            src,
            Word {
                teller: via,
                provenance,
            },
        );
    }

    /// Records how silent a neighbour is, and returns how silent it was before.
    pub(crate) fn set_silence(&mut self, neighbour: NodeAddr, silence: Option<Silence>) -> Option<Silence> {
        self.doubts.set_silence(neighbour, silence)
    }

    /// Sets whether the link with a neighbour is idle: announcements are repeated less often then.
    pub(crate) fn set_idle(&mut self, now: u64, neighbour: NodeAddr, idle: bool) {
        self.tree.set_idle(now, neighbour, idle);
        self.filters.set_idle(now, neighbour, idle);
    }

    /// Records that messages to `dest` through `via` were not answered.
    pub(crate) fn suspect_route(&mut self, now: u64, dest: NodeAddr, via: NodeAddr) {
        self.doubts.suspect_route(now, dest, via);
    }

    /// Whether `via` is suspect as the next hop to `dest`.
    pub(crate) fn is_doubted(&self, now: u64, via: NodeAddr, dest: NodeAddr) -> bool {
        self.doubts.cover(now, &via, &dest)
    }

    fn keep_coords(&mut self, now: u64, dest: NodeAddr, path: &[NodeAddr], word: Word) {
        if dest != self.me {
            // Impossible coordinates are ignored.
            let _ = self.coords.insert(now, dest, path, word);
        }
    }

    fn keep_way(&mut self, now: u64, dest: NodeAddr, word: Word) {
        if dest != self.me && dest != word.teller {
            self.next_hops.learn(now, dest, word);
        }
    }

    /// Returns the neighbour to which a message for `dest` is handed, other than `not`. A suspect
    /// neighbour is the last choice. A suspect neighbour that answers, or has been heard again, has
    /// precedence over one that has not been heard since it fell silent.
    ///
    /// The order of preference: the destination, if it is a neighbour. Then, for messages of this
    /// node itself, the neighbour that forwarded an answer with the destination's signature. Then,
    /// if the coordinates are known, the neighbours closer to the destination than this node: first
    /// the one that forwarded an answer, then those whose filters contain the destination, then any
    /// other; among several the cheapest, by the cost of the link to it and the hops from there. If
    /// the coordinates are unknown or no neighbour is closer, the neighbour that forwarded an
    /// answer, or at least a message.
    pub(crate) fn next_hop(&mut self, now: u64, dest: NodeAddr, not: Option<NodeAddr>) -> Option<NodeAddr> {
        if not == Some(dest) {
            return None;
        }
        let doubts = [Doubt::None, Doubt::OfTheRoute, Doubt::OfTheNeighbour];
        doubts.into_iter().find_map(|doubt| self.hop(now, dest, not, doubt))
    }

    /// The same, with no more than this doubt about it.
    fn hop(&mut self, now: u64, dest: NodeAddr, not: Option<NodeAddr>, most: Doubt) -> Option<NodeAddr> {
        let usable = |via: &NodeAddr| Some(*via) != not && self.doubts.accept(now, via, &dest, most);
        if self.neighbours.contains_key(&dest) && usable(&dest) {
            return Some(dest);
        }
        let way = self.next_hops.to(now, &dest).filter(|(via, _)| usable(via));
        // Messages of this node itself have made no hop yet. A relay has to bring a message closer,
        // or it may circulate.
        if let (Some((via, Provenance::Proven)), None) = (way, not) {
            return Some(via);
        }
        let coords = place_of(&mut self.coords, &self.tree, now, dest);
        let closer = coords.and_then(|coords| self.closer_hop(&dest, &coords, way, usable));
        // The destination may reach this node through neighbours that are not closer to it. Its own
        // messages then show the route back.
        let back = || self.next_hops.back_to(now, &dest).filter(usable);
        closer.or(way.map(|(via, _)| via)).or_else(back)
    }

    /// Returns the neighbours through which messages of this node to `dest` may pass, the preferred ones
    /// first: those that have forwarded a message or an answer of it, then those whose filter contains
    /// it, then those that are closer to it. Suspect ones are left out.
    pub(crate) fn relays_to(&mut self, now: u64, dest: NodeAddr) -> Vec<NodeAddr> {
        let coords = place_of(&mut self.coords, &self.tree, now, dest).unwrap_or_default();
        let coords = self.tree.update(&coords);
        let usable = |via: &NodeAddr| *via != dest && !self.doubts.cover(now, via, &dest);
        let rank = |via: &NodeAddr| {
            let closer = self.closer(*via, &coords);
            let (misses, cost, via) = self.rank(*via, &dest, closer.unwrap_or(FAR));
            (!misses || closer.is_some()).then_some((misses, cost, via))
        };
        let others = self.neighbours.keys().filter(|via| usable(via));
        let mut others: Vec<_> = others.filter_map(rank).collect();
        others.sort_unstable();
        let learned = self.next_hops.to(now, &dest).map(|(via, _)| via);
        let learned = learned.into_iter().chain(self.next_hops.back_to(now, &dest));
        let mut all: Vec<NodeAddr> = learned.filter(usable).collect();
        for (.., via) in others {
            if !all.contains(&via) {
                all.push(via);
            }
        }
        all
    }

    /// Returns the order of a neighbour as the next hop to `dest`, which is `hops` away from it: whether
    /// its filter lacks `dest`, and the cost. The least is the best.
    fn rank(&self, via: NodeAddr, dest: &NodeAddr, hops: usize) -> (bool, u64, NodeAddr) {
        let cost = self.costs.of(&via) + hops as u64 * HOP;
        (!self.filters.may_reach(&via, dest), cost, via)
    }

    /// Returns the distance of a neighbour from the node with these coordinates, if it is closer to
    /// it than this node.
    fn closer(&self, via: NodeAddr, coords: &[NodeAddr]) -> Option<usize> {
        let ours = distance(self.tree.coords(), coords)?;
        let theirs = distance(self.tree.peer_coords(via)?, coords)?;
        (theirs < ours).then_some(theirs)
    }

    fn closer_hop(
        &self,
        dest: &NodeAddr,
        coords: &[NodeAddr],
        way: Option<(NodeAddr, Provenance)>,
        usable: impl Fn(&NodeAddr) -> bool,
    ) -> Option<NodeAddr> {
        let coords = &self.tree.update(coords);
        let closer = |via: &NodeAddr| self.closer(*via, coords);
        let answered = way.filter(|(via, provenance)| *provenance >= Provenance::Answer && closer(via).is_some());
        if let Some((via, _)) = answered {
            return Some(via);
        }
        let others = self.neighbours.keys().filter(|via| usable(via));
        let best = others.filter_map(|via| Some(self.rank(*via, dest, closer(via)?))).min();
        best.map(|(.., via)| via)
    }

    /// Whether a look-up of a node is in progress.
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
            self.tree_changed(now, self.me, change.coords_changed);
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

    /// Checks the invariants that hold after every event.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        self.tree.check_invariants()?;
        self.filters.check_invariants()?;
        self.coords.check_invariants()?;
        self.next_hops.check_invariants()?;
        self.lookups.check_invariants()
    }

    /// Returns the memory for state that other nodes have caused, in bytes, approximately.
    pub(crate) fn bytes(&self) -> usize {
        self.filters.bytes() + self.coords.bytes() + self.lookups.bytes() + self.next_hops.bytes()
    }

    /// Follows a change of the tree that the neighbour `by` has caused.
    fn tree_changed(&mut self, now: u64, by: NodeAddr, coords_changed: bool) {
        if coords_changed {
            // Coordinates through this node, or with another root than the present one, were
            // relative to the earlier tree.
            self.coords.remove_below(&self.me);
            self.coords.remove_other_roots(&self.tree.root());
        }
        let parents = [self.parent, self.tree.parent()];
        self.parent = self.tree.parent();
        for peer in parents.into_iter().flatten().chain([by]) {
            // A node that does not forward leads nowhere.
            let known = self.transit && self.neighbours.contains_key(&peer);
            let in_tree = known && self.tree.is_tree_peer(peer);
            self.filters.set_tree_peer(now, peer, in_tree);
        }
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
                    self.take_answer(now, target, via, &coords, Provenance::Proven);
                    self.outputs.push_back(MeshOutput::Changed);
                }
                LookupOutput::Failed { target } => self.outputs.push_back(MeshOutput::Failed(target)),
                LookupOutput::Learned {
                    dest,
                    via,
                    coords,
                    provenance,
                } => self.take_answer(now, dest, via, &coords, provenance),
            }
        }
    }

    fn take_answer(&mut self, now: u64, dest: NodeAddr, via: NodeAddr, coords: &[NodeAddr], provenance: Provenance) {
        let word = Word {
            teller: via,
            provenance,
        };
        self.keep_coords(now, dest, coords, word);
        self.keep_way(now, dest, word);
    }

    /// Returns the look-ups, and their view of the rest.
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
            next_hops: &self.next_hops,
            doubts: &self.doubts,
        };
        (&mut self.lookups, around)
    }
}

/// The view that look-ups have of the mesh.
struct Around<'a> {
    now: u64,
    me: NodeAddr,
    mtu: u16,
    transit: bool,
    neighbours: &'a BTreeMap<NodeAddr, PublicKey>,
    tree: &'a Tree,
    filters: &'a Filters,
    coords: &'a CoordCache,
    next_hops: &'a NextHops,
    doubts: &'a Suspects,
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
        if self.tree.parent() == Some(*peer) {
            self.filters.parent_may_reach(peer, dest)
        } else {
            self.filters.may_reach(peer, dest)
        }
    }

    fn is_doubted(&self, peer: &NodeAddr, dest: &NodeAddr) -> bool {
        self.doubts.cover(self.now, peer, dest)
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
        if let Some((via, _)) = self.next_hops.to(self.now, dest) {
            return Some(via);
        }
        let coords = self.tree.update(self.coords.peek(self.now, dest)?);
        let ours = distance(self.tree.coords(), &coords)?;
        let closer = self
            .neighbours
            .keys()
            .filter_map(|via| Some((distance(self.tree.peer_coords(*via)?, &coords)?, *via)));
        closer.filter(|(theirs, _)| *theirs < ours).min().map(|(_, via)| via)
    }
}

/// Returns the coordinates of a node: those that are kept, or those of a neighbour.
fn place_of(kept: &mut CoordCache, tree: &Tree, now: u64, dest: NodeAddr) -> Option<Vec<NodeAddr>> {
    let cached = kept.lookup(now, &dest).map(<[NodeAddr]>::to_vec);
    cached.or_else(|| tree.peer_coords(dest).map(<[NodeAddr]>::to_vec))
}
