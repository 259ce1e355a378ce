//! The spanning tree: a place for every node, found by gossip between neighbours alone.
//!
//! Every node follows the neighbour that leads to the smallest root it has heard of, and tells all neighbours its whole
//! path to that root. The path is the node's place in the mesh, and [`distance`] compares two of them. Source: FIPS
//! fips-spanning-tree, spanning-tree-dynamics and `proto/stp`.
//!
//! - [`Tree`]: where the neighbours stand, where we stand, and what there is to announce.
//! - `announce`: what a neighbour says, checked.
//! - `select`: whom to follow. `damper`: when a mere improvement has to wait.
//! - `herald`: our own declaration, and when each neighbour is told.
//!
//! What never is: next hops, places of nodes that are not neighbours, and measurements; link costs come in.
//!
//! # What a neighbour can make us believe
//!
//! A signature covers the announcing node, its parent, sequence and time. Everything above the
//! parent is an unproven claim. So in version 1 of the protocol any authenticated neighbour can
//! name a root smaller than every honest one, even one that does not exist, and the whole mesh
//! follows; or claim to stand next to the true root, and win those whose honest way is longer. The
//! rules demand that we follow, as no node can tell. What it cannot do is move a node without being
//! nearer to a root at least as small: worse roots, longer paths, paths through ourselves, paths
//! too long to pass on, forged signatures and replays change nothing but what is known of the
//! attacker. Moving the tree costs detours and announcements (two per second and neighbour at
//! most), never more memory than one path for each neighbour.

mod announce;
mod damper;
mod herald;
mod select;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use weft_noise::{Identity, PublicKey};
use weft_wire::NodeAddr;
use weft_wire::fmp::LINK_OVERHEAD;
use weft_wire::tree::{AncestryEntry, TreeAnnounce};

pub(crate) use self::announce::AnnounceError;
use self::announce::{Place, Quota};
use self::damper::Damper;
use self::herald::{Declaration, Outbox};
use self::select::Rank;

/// How often the choice of a parent is reconsidered without an announcement.
const REEVALUATE: u64 = 60_000;

/// What became of our place. Filters and cached coordinates follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Our path to the root is another one, at whatever place.
    pub(crate) coords_changed: bool,
    /// We follow another neighbour, or none any more.
    pub(crate) parent_changed: bool,
    /// The tree is another one.
    pub(crate) root_changed: bool,
}

/// Our place in the tree, and what the neighbours say of theirs. Times are ms on the caller's clock.
#[derive(Debug)]
pub(crate) struct Tree {
    me: NodeAddr,
    /// Most nodes of a path that an announcement in one datagram carries.
    longest: usize,
    /// Our path to the root: ourselves, the parent, and so on.
    coords: Vec<NodeAddr>,
    peers: BTreeMap<NodeAddr, Peer>,
    damper: Damper,
    reevaluate_at: u64,
    declaration: Declaration,
}

/// A neighbour, from link up to link down.
#[derive(Debug)]
struct Peer {
    /// What it last announced.
    place: Option<Place>,
    /// The sequence of that; `None` if a node that has just started may begin anywhere.
    heard: Option<u64>,
    /// Cost of the link in thousandths, if measured.
    cost: Option<u32>,
    quota: Quota,
    outbox: Outbox,
}

impl Peer {
    fn new(now: u64) -> Self {
        Self {
            place: None,
            heard: None,
            cost: None,
            quota: Quota::new(),
            outbox: Outbox::new(now),
        }
    }
}

impl Tree {
    /// A tree of ourselves alone.
    ///
    /// `jitter`, in ms, spreads the reconsiderations of nodes that were started together. `mtu` is the size of a
    /// datagram in bytes: a path that an announcement of this size does not hold is never adopted.
    pub(crate) fn new(me: NodeAddr, now: u64, jitter: u64, mtu: u16) -> Self {
        let entries = usize::from(mtu).saturating_sub(LINK_OVERHEAD + TreeAnnounce::MIN_LEN) / AncestryEntry::LEN;
        Self {
            me,
            longest: entries.max(1),
            coords: vec![me],
            peers: BTreeMap::new(),
            damper: Damper::default(),
            reevaluate_at: now.saturating_add(REEVALUATE / 2 + jitter % (REEVALUATE / 2)),
            declaration: Declaration::default(),
        }
    }

    /// Our path to the root: ourselves first, the root last.
    pub(crate) fn coords(&self) -> &[NodeAddr] {
        &self.coords
    }

    /// The root: the smallest address of all that can be reached, in the end.
    pub(crate) fn root(&self) -> NodeAddr {
        self.coords.last().copied().unwrap_or(self.me)
    }

    /// Hops to the root.
    pub(crate) fn depth(&self) -> usize {
        self.coords.len() - 1
    }

    /// The neighbour that we follow; `None` if we are the root.
    pub(crate) fn parent(&self) -> Option<NodeAddr> {
        self.coords.get(1).copied()
    }

    /// Whether the tree runs over the link to this neighbour: our parent, or a node that follows us.
    pub(crate) fn is_tree_peer(&self, peer: NodeAddr) -> bool {
        self.parent() == Some(peer) || self.peers.get(&peer).is_some_and(|peer| peer.follows(self.me))
    }

    /// The neighbours that follow us, by what they said last.
    #[cfg(test)]
    pub(crate) fn children(&self) -> impl Iterator<Item = NodeAddr> + '_ {
        let children = self.peers.iter().filter(|(_, peer)| peer.follows(self.me));
        children.map(|(addr, _)| *addr)
    }

    /// The path of a neighbour as it announced it; `None` before it did, and while it is longer than we could follow.
    pub(crate) fn peer_coords(&self, peer: NodeAddr) -> Option<&[NodeAddr]> {
        let place = self.peers.get(&peer)?.place.as_ref()?;
        (!place.path.is_empty()).then_some(place.path.as_slice())
    }

    /// A path of another node as it leads on by what we know: behind the first of its nodes that is ourselves or a
    /// neighbour comes what that node says now.
    ///
    /// Paths are told now and then, and the tree changes meanwhile. A node on an old path that still reads it as the way to
    /// its former place sends what is for its own subtree back up and around, in circles.
    pub(crate) fn update<'a>(&'a self, path: &'a [NodeAddr]) -> Cow<'a, [NodeAddr]> {
        let known = |node: &NodeAddr| match *node == self.me {
            true => Some(self.coords()),
            false => self.peer_coords(*node),
        };
        let Some((at, above)) = path.iter().enumerate().find_map(|(at, node)| Some((at, known(node)?))) else {
            return Cow::Borrowed(path);
        };
        let below = path.get(..at).unwrap_or_default();
        // It may have moved below the node in question, whose path then is another one too.
        if path.get(at..) == Some(above) || below.iter().any(|node| above.contains(node)) {
            return Cow::Borrowed(path);
        }
        Cow::Owned([below, above].concat())
    }

    /// Takes what the neighbour `from`, whose key is `key`, announced.
    ///
    /// A fresh and genuine announcement of a path too long for us is no error: the neighbour then has no place that a node
    /// could follow, and it is left if it was our parent.
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
                peer.remind(now, &self.coords);
                return Err(repeated);
            }
            Err(error) => return Err(error),
        }
        announce::verify(key, announce)?;
        peer.place = Some(Place::read(announce, self.longest)?);
        peer.heard = Some(announce.sequence);

        let change = self.reselect(now);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.remind(now, &self.coords);
        }
        Ok(change)
    }

    /// A link came up: the peer is told our place at once.
    ///
    /// For a known peer this means that it restarted. Its place holds until it announces another, under whatever
    /// sequence.
    pub(crate) fn peer_up(&mut self, now: u64, peer: NodeAddr) {
        if peer == self.me {
            return;
        }
        let peer = self.peers.entry(peer).or_insert_with(|| Peer::new(now));
        peer.heard = None;
        peer.outbox.renew(now);
    }

    /// A link is lost, and all that is known of its peer.
    #[must_use]
    pub(crate) fn peer_down(&mut self, now: u64, peer: NodeAddr) -> Change {
        if self.peers.remove(&peer).is_none() {
            return Change::default();
        }
        self.reselect(now)
    }

    /// What the link to `peer` costs: ETX times (1 + SRTT / 100 ms), in thousandths.
    ///
    /// The first measurement reconsiders the parent at the next [`Tree::handle_timeout`], due at once.
    pub(crate) fn set_cost(&mut self, now: u64, peer: NodeAddr, cost: u32) {
        if let Some(peer) = self.peers.get_mut(&peer)
            && peer.cost.replace(cost).is_none()
        {
            self.reevaluate_at = self.reevaluate_at.min(now);
        }
    }

    /// The next announcement that is due: to whom, and the body of a
    /// [`LinkMessageType::TreeAnnounce`](weft_wire::link::LinkMessageType::TreeAnnounce).
    ///
    /// To be called until there is none. `unix` is the wall clock in seconds; `identity` is ours.
    pub(crate) fn poll_announce(&mut self, now: u64, unix: u64, identity: &Identity) -> Option<(NodeAddr, Vec<u8>)> {
        let (&to, peer) = self.peers.iter_mut().find(|(_, peer)| peer.outbox.due() <= now)?;
        // A FIPS daemon answers a better or worse root, but only to an announcement that is new to it.
        if peer.heard.is_none() && peer.outbox.repeats() {
            self.declaration.outdate();
        }
        peer.outbox.sent(now, peer.has_heard(&self.coords));
        let parent = self.parent().and_then(|parent| self.peers.get(&parent));
        let ancestors = parent.and_then(|peer| peer.place.as_ref()).map(Place::entries);
        let body = self
            .declaration
            .body(unix, identity, self.me, ancestors.into_iter().flatten())?;
        Some((to, body.to_vec()))
    }

    /// When [`Tree::poll_announce`] or [`Tree::handle_timeout`] is next due; `u64::MAX` if never.
    pub(crate) fn deadline(&self) -> u64 {
        let announcements = self.peers.values().map(|peer| peer.outbox.due()).min();
        announcements.map_or(u64::MAX, |due| due.min(self.reevaluate_at))
    }

    /// Reconsiders the parent if it is time to.
    #[must_use]
    pub(crate) fn handle_timeout(&mut self, now: u64) -> Change {
        if now < self.reevaluate_at {
            return Change::default();
        }
        self.reevaluate_at = now.saturating_add(REEVALUATE);
        self.reselect(now)
    }

    /// Chooses whom to follow, and takes our place there.
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
        self.peers.values_mut().for_each(|peer| peer.outbox.renew(now));
        let parent_changed = parent != next;
        if parent_changed && next.is_some() {
            self.damper.switched(now);
        }
        Change {
            coords_changed: true,
            parent_changed,
            root_changed: root != self.root(),
        }
    }

    /// The neighbour to follow from now on, or `None` to be the root.
    fn choose(&mut self, now: u64) -> Option<NodeAddr> {
        let best = self.peers.keys().filter_map(|peer| self.rank(*peer)).min()?;
        let Some(present) = self.parent().and_then(|parent| self.rank(parent)) else {
            return Some(best.peer);
        };
        if best.root != present.root {
            return Some(best.peer);
        }
        if best.peer == present.peer || !best.clearly_beats(&present) {
            return Some(present.peer);
        }
        if self.damper.free_at() > now {
            self.reevaluate_at = self.reevaluate_at.min(self.damper.free_at());
            return Some(present.peer);
        }
        Some(best.peer)
    }

    /// How good a parent `peer` would be; `None` if it cannot be one.
    fn rank(&self, peer: NodeAddr) -> Option<Rank> {
        let known = self.peers.get(&peer)?;
        let path = &known.place.as_ref()?.path;
        let fits = path.len() < self.longest && !path.contains(&self.me);
        let rank = Rank::new(peer, path, known.cost)?;
        (fits && rank.root < self.me).then_some(rank)
    }

    /// Checks what must hold after every event: our path is a neighbour's, lengthened by ourselves, no path repeats a
    /// node or exceeds a datagram, and no announcement comes too early.
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
        }
        self.declaration.check(&self.coords)
    }
}

impl Peer {
    fn follows(&self, node: NodeAddr) -> bool {
        self.place.as_ref().is_some_and(|place| place.parent == node)
    }

    /// Whether what it says is what a node says that knows our path; nothing else acknowledges an announcement.
    fn has_heard(&self, coords: &[NodeAddr]) -> bool {
        self.place.as_ref().is_some_and(|place| place.agrees_with(coords))
    }

    /// It has just spoken: if it has missed our path, it is told again.
    fn remind(&mut self, now: u64, coords: &[NodeAddr]) {
        if !self.has_heard(coords) {
            self.outbox.hasten(now);
        }
    }
}

/// Hops between two places over the tree, through their lowest common ancestor; `None` if they are in different trees.
///
/// Both are paths as [`Tree::coords`] gives them.
pub(crate) fn distance(a: &[NodeAddr], b: &[NodeAddr]) -> Option<usize> {
    let shared = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    (shared > 0).then(|| a.len() + b.len() - 2 * shared)
}
