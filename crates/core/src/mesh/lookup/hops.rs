//! Whom a request goes to: the order of L10 and L11.

use weft_wire::NodeAddr;

use super::View;

/// A request that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quest {
    /// Who handed it to us; `None` if it is ours.
    pub(super) from: Option<NodeAddr>,
    pub(super) origin: NodeAddr,
    pub(super) target: NodeAddr,
    pub(super) request_id: u64,
    /// Smallest MTU of a link that is of use, bytes.
    pub(super) min_mtu: u16,
    /// Earlier attempts led to nothing, so the neighbours asked then may have lied or lost it: ask the others as well.
    pub(super) widen: bool,
}

impl Quest {
    /// Whether a filter of those who asked has the target.
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

/// Who gets it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hops {
    /// Those whom something points to: the target itself, or neighbours with a filter that has it.
    pub(super) directed: Vec<NodeAddr>,
    /// Those whom nothing points to.
    pub(super) undirected: Vec<NodeAddr>,
}

impl Hops {
    /// The target if it is a neighbour (L10); else tree neighbours with a filter that has it; else other neighbours
    /// with such a filter; else any neighbour (L11). At most `fanout` in all, never the previous hop nor the origin.
    ///
    /// If filters point back to the previous hop or the origin they do give a candidate, so no other neighbour is asked
    /// unless the request comes again. In a large mesh with filters near full, most requests have branches that end
    /// so, and each would flood the mesh.
    ///
    /// A request of our own for a neighbour asks the others as well: it is made because the direct way does not do
    /// (L9); so does one for a neighbour that does not answer right now. Who is doubted is asked last.
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

    /// Keeps `fanout` of them. Which ones depends on the request, so that another attempt asks others.
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

    /// All of them, those that something points to first.
    pub(super) fn iter(&self) -> impl Iterator<Item = NodeAddr> {
        self.directed.iter().chain(&self.undirected).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.directed.len() + self.undirected.len()
    }
}
