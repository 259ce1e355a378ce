//! The spanning tree: a place for every node, found by gossip between neighbours alone.
//!
//! Every node takes as parent the neighbour that leads to the smallest root known, and announces
//! its whole path to that root to all neighbours. The path is the node's coordinates, and
//! [`distance`] compares two of them. Source: FIPS fips-spanning-tree, spanning-tree-dynamics and
//! `proto/stp`.
//!
//! - [`Tree`]: the places of the neighbours and of this node, and the announcements that are due.
//! - `announce`: a neighbour's announcement, checked.
//! - `select`: the choice of the parent. `parent_holddown`: when a mere improvement has to wait.
//! - `announce_schedule`: this node's own declaration, and when each neighbour receives it.
//!
//! Never here: next hops, coordinates of nodes that are not neighbours, and measurements; link
//! costs are an input.
//!
//! # What a neighbour can make a node believe
//!
//! A signature covers the announcing node, its parent, sequence and time. Everything above the
//! parent is an unproven claim. So in version 1 of the protocol any authenticated neighbour can
//! name a root smaller than every honest one, even one that does not exist, and the whole mesh
//! follows. It can also claim to be next to the true root, and win the nodes whose honest path is
//! longer. The rules demand that nodes follow, because none can detect it. What the neighbour
//! cannot do is move a node without being nearer, by its claim, to a root at least as small. Worse
//! roots, longer paths, paths through the node itself, paths too long to forward, forged signatures
//! and replays change only what is known of the attacker. Moving the tree costs detours and
//! announcements (at most two per second and neighbour), and never more memory than one path for
//! each neighbour.

mod announce;
mod announce_schedule;
mod parent_holddown;
mod select;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use weft_noise::{Identity, PublicKey};
use weft_wire::NodeAddr;
use weft_wire::fmp::LINK_OVERHEAD;
use weft_wire::tree::{AncestryEntry, TreeAnnounce};

pub(crate) use self::announce::AnnounceError;
use self::announce::{Place, Quota};
use self::announce_schedule::{Declaration, Outbox};
use self::parent_holddown::ParentHolddown;
use self::select::Rank;

/// How often the choice of a parent is reconsidered without an announcement.
const REEVALUATE: u64 = 60_000;

/// The change of this node's place. Filters and cached coordinates follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// The path to the root changed, at any position.
    pub(crate) coords_changed: bool,
    /// The parent changed, or there is none any more.
    pub(crate) parent_changed: bool,
    /// The root changed.
    pub(crate) root_changed: bool,
}

/// The place of this node in the tree, and the announced places of the neighbours. Times are ms on
/// the caller's clock.
#[derive(Debug)]
pub(crate) struct Tree {
    me: NodeAddr,
    /// Maximum number of nodes in a path that fits an announcement of one datagram.
    longest: usize,
    /// The path to the root: this node, the parent, and so on.
    coords: Vec<NodeAddr>,
    peers: BTreeMap<NodeAddr, Peer>,
    /// The neighbours, by when the next announcement to each is due.
    queue: BTreeSet<(u64, NodeAddr)>,
    /// The neighbours that can be the parent, the best first.
    ranks: BTreeSet<Rank>,
    parent_holddown: ParentHolddown,
    reevaluate_at: u64,
    declaration: Declaration,
}

/// A neighbour, from link up to link down.
#[derive(Debug)]
struct Peer {
    /// Its last announcement.
    place: Option<Place>,
    /// The sequence number of that; `None` if any number is accepted, because the node has just
    /// started.
    heard: Option<u64>,
    /// Cost of the link in thousandths, if measured.
    cost: Option<u32>,
    /// Its rank as a parent; `None` if it cannot be one.
    rank: Option<Rank>,
    quota: Quota,
    outbox: Outbox,
}

impl Peer {
    fn new(now: u64) -> Self {
        Self {
            place: None,
            heard: None,
            cost: None,
            rank: None,
            quota: Quota::new(),
            outbox: Outbox::new(now),
        }
    }
}

impl Tree {
    /// Creates a tree of this node alone.
    ///
    /// `jitter`, in ms, spreads the reconsiderations of nodes that were started together. `mtu` is
    /// the size of a datagram in bytes: a path that does not fit an announcement of this size is
    /// never adopted.
    pub(crate) fn new(me: NodeAddr, now: u64, jitter: u64, mtu: u16) -> Self {
        let entries = usize::from(mtu).saturating_sub(LINK_OVERHEAD + TreeAnnounce::MIN_LEN) / AncestryEntry::LEN;
        Self {
            me,
            longest: entries.max(1),
            coords: vec![me],
            peers: BTreeMap::new(),
            queue: BTreeSet::new(),
            ranks: BTreeSet::new(),
            parent_holddown: ParentHolddown::default(),
            reevaluate_at: now.saturating_add(REEVALUATE / 2 + jitter % (REEVALUATE / 2)),
            declaration: Declaration::default(),
        }
    }

    /// Returns the path to the root: this node first, the root last.
    pub(crate) fn coords(&self) -> &[NodeAddr] {
        &self.coords
    }

    /// Returns the root: in the end the smallest address among all reachable nodes.
    pub(crate) fn root(&self) -> NodeAddr {
        self.coords.last().copied().unwrap_or(self.me)
    }

    /// Returns the hops to the root.
    pub(crate) fn depth(&self) -> usize {
        self.coords.len() - 1
    }

    /// Returns the parent; `None` if this node is the root.
    pub(crate) fn parent(&self) -> Option<NodeAddr> {
        self.coords.get(1).copied()
    }

    /// Whether the tree uses the link to this neighbour: it is the parent or a child.
    pub(crate) fn is_tree_peer(&self, peer: NodeAddr) -> bool {
        self.parent() == Some(peer) || self.peers.get(&peer).is_some_and(|peer| peer.follows(self.me))
    }

    /// Returns the children: the neighbours whose last announcement names this node as parent.
    #[cfg(test)]
    pub(crate) fn children(&self) -> impl Iterator<Item = NodeAddr> + '_ {
        let children = self.peers.iter().filter(|(_, peer)| peer.follows(self.me));
        children.map(|(addr, _)| *addr)
    }

    /// Returns the announced path of a neighbour; `None` before its first announcement, and while
    /// the path is too long to follow.
    pub(crate) fn peer_coords(&self, peer: NodeAddr) -> Option<&[NodeAddr]> {
        let place = self.peers.get(&peer)?.place.as_ref()?;
        (!place.path.is_empty()).then_some(place.path.as_slice())
    }

    /// Returns another node's path, updated by what is known here: from the first of its nodes that
    /// is this node or a neighbour on, it continues with the present path of that node.
    ///
    /// Paths are reported now and then, and the tree changes meanwhile. A node on an old path that
    /// still uses it as the route to its former place sends messages for its own subtree back up
    /// and around, in loops.
    pub(crate) fn update<'a>(&'a self, path: &'a [NodeAddr]) -> Cow<'a, [NodeAddr]> {
        let known = |node: &NodeAddr| match *node == self.me {
            true => Some(self.coords()),
            false => self.peer_coords(*node),
        };
        let Some((at, above)) = path.iter().enumerate().find_map(|(at, node)| Some((at, known(node)?))) else {
            return Cow::Borrowed(path);
        };
        let below = path.get(..at).unwrap_or_default();
        // The node may have moved below the node in question, whose path has then changed too.
        if path.get(at..) == Some(above) || below.iter().any(|node| above.contains(node)) {
            return Cow::Borrowed(path);
        }
        Cow::Owned([below, above].concat())
    }

    /// Handles an announcement of the neighbour `from`, whose key is `key`.
    ///
    /// A fresh and genuine announcement of a path too long for this node is not an error. The
    /// neighbour then has no place below which a node could be, and is given up if it was the
    /// parent.
    ///
    /// # Errors
    ///
    /// [`AnnounceError`], a variant for each cause; nothing has changed then.
    pub(crate) fn handle_announce(
        &mut self,
        now: u64,
        from: NodeAddr,
        key: &PublicKey,
        announce: &TreeAnnounce<'_>,
    ) -> Result<Change, AnnounceError> {
        let peer = self.peers.get_mut(&from).ok_or(AnnounceError::UnknownPeer)?;
        match announce::admit(now, from, peer.heard, &mut peer.quota, announce) {
            Ok(()) => {}
            Err(repeated @ AnnounceError::Repeated) => {
                self.remind(now, &from);
                return Err(repeated);
            }
            Err(error) => return Err(error),
        }
        announce::verify(key, announce)?;
        let place = Place::read(announce, self.longest)?;
        self.change_peer(&from, |peer| {
            peer.place = Some(place);
            peer.heard = Some(announce.sequence);
        });
        let change = self.reselect(now);
        self.remind(now, &from);
        Ok(change)
    }

    /// Handles a sign that a neighbour has just sent: if it does not know the present path, the
    /// announcement is repeated soon.
    fn remind(&mut self, now: u64, to: &NodeAddr) {
        if self.peers.get(to).is_some_and(|peer| !peer.has_heard(&self.coords)) {
            self.change_peer(to, |peer| peer.outbox.hasten(now));
        }
    }

    /// Changes a neighbour, and keeps its places in the queue and among the ranks.
    fn change_peer(&mut self, addr: &NodeAddr, change: impl FnOnce(&mut Peer)) {
        let Some(peer) = self.peers.get_mut(addr) else { return };
        let before = (peer.outbox.due(), peer.rank);
        change(peer);
        peer.rank = peer.rank(*addr, self.me, self.longest);
        let (due, rank) = (peer.outbox.due(), peer.rank);
        if due != before.0 {
            self.queue.remove(&(before.0, *addr));
        }
        self.queue.insert((due, *addr));
        if rank != before.1 {
            before.1.map(|rank| self.ranks.remove(&rank));
            self.ranks.extend(rank);
        }
    }

    /// Handles a link that came up: the peer receives an announcement at once.
    ///
    /// For a known peer this means that it restarted. Its place holds until it announces another,
    /// with any sequence number.
    pub(crate) fn peer_up(&mut self, now: u64, peer: NodeAddr) {
        if peer == self.me {
            return;
        }
        self.peers.entry(peer).or_insert_with(|| Peer::new(now));
        self.change_peer(&peer, |peer| {
            peer.heard = None;
            peer.outbox.renew(now);
        });
    }

    /// Handles a lost link: all knowledge of its peer is removed.
    #[must_use]
    pub(crate) fn peer_down(&mut self, now: u64, peer: NodeAddr) -> Change {
        let Some(known) = self.peers.remove(&peer) else {
            return Change::default();
        };
        self.queue.remove(&(known.outbox.due(), peer));
        known.rank.map(|rank| self.ranks.remove(&rank));
        self.reselect(now)
    }

    /// Sets the cost of the link to `peer`: ETX times (1 + SRTT / 100 ms), in thousandths.
    ///
    /// After the first measurement the parent is reconsidered at the next [`Tree::handle_timeout`],
    /// which is due at once.
    pub(crate) fn set_cost(&mut self, now: u64, peer: NodeAddr, cost: u32) {
        let Some(known) = self.peers.get(&peer) else { return };
        if known.cost.is_none() {
            self.reevaluate_at = self.reevaluate_at.min(now);
        }
        self.change_peer(&peer, |peer| peer.cost = Some(cost));
    }

    /// Sets whether the link with a neighbour is idle: it receives few repeats then.
    pub(crate) fn set_idle(&mut self, now: u64, peer: NodeAddr, idle: bool) {
        self.change_peer(&peer, |peer| peer.outbox.set_idle(now, idle));
    }

    /// Returns the next due announcement: its destination, and the body of a
    /// [`LinkMessageType::TreeAnnounce`](weft_wire::link::LinkMessageType::TreeAnnounce).
    ///
    /// The caller repeats the call until there is none. `unix` is the wall clock in seconds;
    /// `identity` is that of this node.
    pub(crate) fn poll_announce(&mut self, now: u64, unix: u64, identity: &Identity) -> Option<(NodeAddr, Vec<u8>)> {
        let (_, to) = self.queue.first().copied().filter(|(due, _)| *due <= now)?;
        let peer = self.peers.get(&to)?;
        // A FIPS daemon answers a better or worse root, but only to an announcement that is new to
        // it.
        if peer.heard.is_none() && peer.outbox.repeats() {
            self.declaration.outdate();
        }
        let heard = peer.has_heard(&self.coords);
        self.change_peer(&to, |peer| peer.outbox.sent(now, heard));
        let parent = self.parent().and_then(|parent| self.peers.get(&parent));
        let ancestors = parent.and_then(|peer| peer.place.as_ref()).map(Place::entries);
        let body = self
            .declaration
            .body(unix, identity, self.me, ancestors.into_iter().flatten())?;
        Some((to, body.to_vec()))
    }

    /// Returns when [`Tree::poll_announce`] or [`Tree::handle_timeout`] is next due; `u64::MAX` if
    /// never.
    pub(crate) fn deadline(&self) -> u64 {
        let first = self.queue.first();
        first.map_or(u64::MAX, |(due, _)| (*due).min(self.reevaluate_at))
    }

    /// Reconsiders the parent if that is due.
    #[must_use]
    pub(crate) fn handle_timeout(&mut self, now: u64) -> Change {
        if now < self.reevaluate_at {
            return Change::default();
        }
        self.reevaluate_at = now.saturating_add(REEVALUATE);
        self.reselect(now)
    }

    /// Chooses the parent, and takes the place below it.
    fn reselect(&mut self, now: u64) -> Change {
        let (root, parent) = (self.root(), self.parent());
        let next = self.choose(now);
        let above = next.and_then(|next| self.peers.get(&next)?.place.as_ref());
        let above = above.map_or(&[][..], |place| &place.path);
        if self.coords.get(1..) == Some(above) {
            return Change::default();
        }
        self.coords.truncate(1);
        self.coords.extend_from_slice(above);
        self.declaration.outdate();
        let all: Vec<NodeAddr> = self.peers.keys().copied().collect();
        all.iter()
            .for_each(|addr| self.change_peer(addr, |peer| peer.outbox.renew(now)));
        let parent_changed = parent != next;
        if parent_changed && next.is_some() {
            self.parent_holddown.switched(now);
        }
        Change {
            coords_changed: true,
            parent_changed,
            root_changed: root != self.root(),
        }
    }

    /// Returns the parent from now on, or `None` if this node is the root.
    fn choose(&mut self, now: u64) -> Option<NodeAddr> {
        let best = *self.ranks.first()?;
        let present = self.parent().and_then(|parent| self.peers.get(&parent)?.rank);
        let Some(present) = present else {
            return Some(best.peer);
        };
        if best.root != present.root {
            return Some(best.peer);
        }
        if best.peer == present.peer || !best.clearly_beats(&present) {
            return Some(present.peer);
        }
        if self.parent_holddown.free_at() > now {
            self.reevaluate_at = self.reevaluate_at.min(self.parent_holddown.free_at());
            return Some(present.peer);
        }
        Some(best.peer)
    }

    /// Checks the invariants that hold after every event: the path of this node is that of a
    /// neighbour with this node in front, no path repeats a node or exceeds a datagram, and no
    /// announcement is too early.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        announce::check_path(self.me, &self.coords, self.longest)?;
        if let Some(parent) = self.parent() {
            let place = self.peers.get(&parent).and_then(|peer| peer.place.as_ref());
            if place.map(|place| place.path.as_slice()) != self.coords.get(1..) {
                return Err(format!("parent {parent} does not stand where we stand below it"));
            }
        }
        for (addr, peer) in &self.peers {
            if let Some(place) = &peer.place {
                place.check(*addr, self.longest)?;
            }
            peer.outbox.check()?;
            if peer.rank != peer.rank(*addr, self.me, self.longest) {
                return Err(format!("the rank of {addr} is not that of its place"));
            }
        }
        let due = self.peers.iter().map(|(addr, peer)| (peer.outbox.due(), *addr));
        if self.queue != due.collect() || self.ranks != self.peers.values().filter_map(|peer| peer.rank).collect() {
            return Err("queue and ranks are not those of the neighbours".into());
        }
        self.declaration.check(&self.coords)
    }
}

impl Peer {
    fn follows(&self, node: NodeAddr) -> bool {
        self.place.as_ref().is_some_and(|place| place.parent == node)
    }

    /// Whether its announcement is that of a node that knows `coords`; nothing else acknowledges an
    /// announcement.
    fn has_heard(&self, coords: &[NodeAddr]) -> bool {
        self.place.as_ref().is_some_and(|place| place.agrees_with(coords))
    }

    /// Returns the rank of this neighbour, `addr`, as a parent of `me`; `None` if it cannot be one,
    /// as a path has at most `longest` nodes.
    fn rank(&self, addr: NodeAddr, me: NodeAddr, longest: usize) -> Option<Rank> {
        let path = &self.place.as_ref()?.path;
        let fits = path.len() < longest && !path.contains(&me);
        let rank = Rank::new(addr, path, self.cost)?;
        (fits && rank.root < me).then_some(rank)
    }
}

/// Returns the hops between two places over the tree, through their lowest common ancestor; `None`
/// if they are in different trees.
///
/// Both are paths as [`Tree::coords`] returns them.
pub(crate) fn distance(a: &[NodeAddr], b: &[NodeAddr]) -> Option<usize> {
    let shared = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (shared > 0).then(|| a.len() + b.len() - 2 * shared)
}
