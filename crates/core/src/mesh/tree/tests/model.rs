//! The choice of a parent against a slow model, derived from the rules and not from the code.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Up(usize),
    Down(usize),
    /// A neighbour announces itself and these nodes, made into a path with the smallest last.
    Says(usize, Vec<usize>),
    Costs(usize, u32),
    Wait(u64),
}

#[derive(Clone, Default)]
struct Known {
    path: Vec<NodeAddr>,
    cost: Option<u32>,
}

#[derive(Default)]
struct Model {
    peers: BTreeMap<NodeAddr, Known>,
    parent: Option<NodeAddr>,
    coords: Vec<NodeAddr>,
    switches: Vec<u64>,
}

impl Model {
    fn new(me: NodeAddr) -> Self {
        Self {
            coords: vec![me],
            ..Self::default()
        }
    }

    /// Replays all changes of parent so far.
    fn must_wait(&self, now: u64) -> bool {
        let (mut damped_until, mut counted) = (0, Vec::<u64>::new());
        for &at in &self.switches {
            if at < damped_until {
                continue;
            }
            counted.push(at);
            if counted.iter().filter(|earlier| at - **earlier < 60_000).count() == 4 {
                damped_until = at + 120_000;
                counted.clear();
            }
        }
        let held = self.switches.last().is_some_and(|last| now < last + 30_000);
        held || now < damped_until
    }

    fn effective_depth(&self, peer: NodeAddr) -> u64 {
        let known = &self.peers[&peer];
        (known.path.len() as u64 - 1) * 1_000 + u64::from(known.cost.unwrap_or(1_000))
    }

    fn choose(&self, now: u64) -> Option<NodeAddr> {
        let me = self.coords[0];
        let mut usable: Vec<NodeAddr> = Vec::new();
        for (peer, known) in &self.peers {
            if let Some(root) = known.path.last()
                && *root < me
                && known.path.iter().all(|node| *node != me)
                && known.path.len() < LONGEST
            {
                usable.push(*peer);
            }
        }
        let root_of = |peer: &NodeAddr| self.peers[peer].path.last().copied();
        let root = usable.iter().filter_map(root_of).min()?;
        usable.retain(|peer| root_of(peer) == Some(root));
        let present = self.parent.filter(|parent| usable.contains(parent));
        if usable.iter().any(|peer| self.peers[peer].cost.is_some()) {
            usable.retain(|peer| self.peers[peer].cost.is_some());
        }
        usable.sort_by_key(|peer| (self.effective_depth(*peer), *peer));
        let best = usable[0];
        let Some(present) = present else { return Some(best) };
        let worth_it = self.effective_depth(best) * 100 < self.effective_depth(present) * 80;
        Some(if worth_it && !self.must_wait(now) {
            best
        } else {
            present
        })
    }

    fn reconsider(&mut self, now: u64) {
        let next = self.choose(now);
        if next != self.parent && next.is_some() {
            self.switches.push(now);
        }
        self.parent = next;
        self.coords.truncate(1);
        if let Some(parent) = next {
            self.coords.extend(&self.peers[&parent].path);
        }
    }
}

/// Returns a path that begins at `node` and ends at its smallest.
fn path_of(node: NodeAddr, above: impl Iterator<Item = NodeAddr>) -> Vec<NodeAddr> {
    let mut path = vec![node];
    for next in above {
        if !path.contains(&next) {
            path.push(next);
        }
    }
    let least = path.iter().copied().min().unwrap();
    path.retain(|other| *other != least || least == node);
    if least == node {
        return vec![node];
    }
    path.push(least);
    path
}

fn op() -> impl Strategy<Value = Op> {
    let peer = 0..4_usize;
    prop_oneof![
        1 => peer.clone().prop_map(Op::Up),
        1 => peer.clone().prop_map(Op::Down),
        6 => (peer.clone(), prop::collection::vec(0..9_usize, 0..5)).prop_map(|(p, above)| Op::Says(p, above)),
        2 => (peer, 900..12_000_u32).prop_map(|(p, cost)| Op::Costs(p, cost)),
        4 => prop_oneof![0..2_000_u64, 0..100_000_u64].prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn we_follow_whom_the_model_follows(ops in prop::collection::vec(op(), 1..60)) {
        let peers = fleet(4);
        let mut pool: Vec<_> = peers.iter().map(Identity::node_addr).collect();
        // Between the two smallest neighbours and the others.
        let mut me = *pool[1].as_bytes();
        me[15] = me[15].wrapping_add(1);
        let me = NodeAddr::new(me);
        pool.extend([me, addr(0), addr(1), addr(0xfe), addr(0xff)]);

        let mut tree = Tree::new(me, 0, 0, MTU);
        let mut model = Model::new(me);
        let (mut now, mut sequence) = (0, 0);
        for op in ops {
            let (root, parent, coords) = (*model.coords.last().unwrap(), model.parent, model.coords.clone());
            let change = match op {
                Op::Up(peer) => {
                    tree.peer_up(now, pool[peer]);
                    model.peers.entry(pool[peer]).or_default();
                    Change::default()
                }
                Op::Down(peer) => {
                    if model.peers.remove(&pool[peer]).is_some() {
                        model.reconsider(now);
                    }
                    tree.peer_down(now, pool[peer])
                }
                Op::Says(peer, above) => {
                    let path = path_of(pool[peer], above.iter().map(|n| pool[*n]));
                    sequence += 1;
                    now += 100;
                    let heard = hear(&mut tree, now, &peers[peer], &announcement(&peers[peer], sequence, &path));
                    match model.peers.get_mut(&pool[peer]) {
                        None => {
                            prop_assert_eq!(heard, Err(AnnounceError::UnknownPeer));
                            Change::default()
                        }
                        Some(known) => {
                            known.path = path;
                            model.reconsider(now);
                            heard.unwrap()
                        }
                    }
                }
                Op::Costs(peer, cost) => {
                    tree.set_cost(now, pool[peer], cost);
                    if let Some(known) = model.peers.get_mut(&pool[peer]) { known.cost = Some(cost); }
                    Change::default()
                }
                Op::Wait(time) => {
                    now += time;
                    if tree.reevaluate_at <= now { model.reconsider(now); }
                    tree.handle_timeout(now)
                }
            };
            tree.check_invariants().map_err(TestCaseError::fail)?;
            prop_assert_eq!(tree.parent(), model.parent);
            prop_assert_eq!(tree.coords(), &model.coords[..]);
            let expected = Change {
                coords_changed: coords != model.coords,
                parent_changed: parent != model.parent,
                root_changed: root != *model.coords.last().unwrap(),
            };
            prop_assert_eq!(change, expected);
        }
    }
}
