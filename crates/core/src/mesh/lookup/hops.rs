//! The neighbours that a request goes to, in the order of L10 and L11.

use weft_wire::NodeAddr;

use super::View;

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quest {
    /// The neighbour that the request was received from; `None` if it is this node's own.
    pub(super) from: Option<NodeAddr>,
    pub(super) origin: NodeAddr,
    pub(super) target: NodeAddr,
    pub(super) request_id: u64,
    /// Smallest MTU of a usable link, in bytes.
    pub(super) min_mtu: u16,
    /// Earlier attempts failed, so the neighbours asked then may have forged answers or lost the
    /// request. The others are asked as well.
    pub(super) widen: bool,
}

impl Quest {
    /// Whether a filter of the previous hop or of the origin contains the target.
    fn points_back(&self, view: &impl View) -> bool {
        let asked = |from: NodeAddr| {
            let askers = [from, self.origin];
            askers
                .iter()
                .any(|p| view.is_neighbour(p) && view.may_reach(p, &self.target))
        };
        self.from.is_some_and(asked)
    }
}

/// The neighbours that receive the request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hops {
    /// The target itself, or neighbours whose filter contains it.
    pub(super) directed: Vec<NodeAddr>,
    /// Neighbours without such a sign.
    pub(super) undirected: Vec<NodeAddr>,
}

impl Hops {
    /// Chooses the target if it is a neighbour (L10). Otherwise tree neighbours with a filter that
    /// contains it, then other neighbours with such a filter, then any neighbour (L11). At most
    /// `fanout` in total, never the previous hop nor the origin.
    ///
    /// Filters that point back to the previous hop or the origin do give a candidate, so no other
    /// neighbour is asked unless the request is repeated. In a large mesh with filters near full,
    /// most requests have branches that end so, and each would flood the mesh.
    ///
    /// A request of this node itself for a neighbour goes to the others as well, because it is made
    /// when the direct path does not work (L9). So does one for a neighbour that does not answer at
    /// present. Doubted neighbours are asked last.
    pub(super) fn choose(quest: &Quest, view: &impl View, fanout: usize) -> Self {
        let ours = quest.from.is_none();
        let usable = |peer: &NodeAddr| {
            *peer != view.me()
                && *peer != quest.origin
                && Some(*peer) != quest.from
                && (quest.min_mtu == 0 || view.link_mtu(peer) >= quest.min_mtu)
        };
        let direct = view.is_neighbour(&quest.target) && usable(&quest.target);
        let mut hops = Self::default();
        if direct {
            hops.directed.push(quest.target);
        }
        if direct && !ours && !quest.widen && !view.is_doubted(&quest.target, &quest.target) {
            return hops;
        }
        let (mut tree, mut filter, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for peer in view.neighbours().filter(|p| *p != quest.target && usable(p)) {
            let knows = view.may_reach(&peer, &quest.target) && !view.is_doubted(&peer, &quest.target);
            let class = match (knows, view.is_tree_peer(&peer)) {
                (true, true) => &mut tree,
                (true, false) => &mut filter,
                (false, _) => &mut others,
            };
            class.push(peer);
        }
        if tree.is_empty() {
            tree.append(&mut filter);
        }
        if quest.widen || (tree.is_empty() && !quest.points_back(view)) {
            hops.undirected.append(&mut filter);
            hops.undirected.append(&mut others);
        }
        hops.directed.append(&mut tree);
        hops.limit(quest.request_id, fanout);
        hops
    }

    /// Keeps `fanout` of them. The choice depends on the request, so that another attempt asks
    /// others.
    fn limit(&mut self, request_id: u64, fanout: usize) {
        let mut room = fanout;
        for list in [&mut self.directed, &mut self.undirected] {
            if list.len() > room {
                let turn = request_id % list.len() as u64;
                list.rotate_left(turn as usize);
                list.truncate(room);
            }
            room -= list.len();
        }
    }

    /// Returns all of them, those with a sign first.
    pub(super) fn iter(&self) -> impl Iterator<Item = NodeAddr> {
        self.directed.iter().chain(&self.undirected).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.directed.len() + self.undirected.len()
    }
}
