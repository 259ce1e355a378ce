//! The links of a mesh.

use std::collections::BTreeSet;
use std::fmt;

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::HostId;

/// The shape of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each host with the one before it.
    Line,
    /// A line whose ends are linked.
    Ring,
    /// Rows of about the square root of the number of hosts, each host with its neighbours in row
    /// and column.
    Grid,
    /// Each host with an earlier one, chosen at random.
    Tree,
    /// A random tree, and links between random pairs until nodes have `degree` links on average.
    Random {
        /// Mean number of links of a node.
        degree: u32,
    },
}

impl Shape {
    /// Its name in scenario files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Ring => "ring",
            Self::Grid => "grid",
            Self::Tree => "tree",
            Self::Random { .. } => "random",
        }
    }
}

/// Its name, and its degree if it has one.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random { degree } => write!(f, "{} {degree}", self.name()),
            Self::Line | Self::Ring | Self::Grid | Self::Tree => f.write_str(self.name()),
        }
    }
}

/// The links of a mesh of hosts 0 to `nodes`. Every shape is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Hosts.
    pub nodes: usize,
    /// Pairs of hosts, the lower number first, sorted.
    pub links: Vec<(HostId, HostId)>,
}

impl Topology {
    /// Generates a mesh. The same arguments give the same mesh.
    pub fn new(shape: Shape, nodes: usize, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut links = BTreeSet::new();
        match shape {
            Shape::Line | Shape::Ring => {
                links.extend((1..nodes).map(|b| (b - 1, b)));
                if shape == Shape::Ring && nodes > 2 {
                    links.insert((0, nodes - 1));
                }
            }
            Shape::Grid => {
                let row = nodes.isqrt().max(1);
                links.extend((1..nodes).filter(|b| b % row != 0).map(|b| (b - 1, b)));
                links.extend((row..nodes).map(|b| (b - row, b)));
            }
            Shape::Tree => links.extend(tree(nodes, &mut rng)),
            Shape::Random { degree } => {
                links.extend(tree(nodes, &mut rng));
                let all = nodes * nodes.saturating_sub(1) / 2;
                let wanted = (nodes * degree as usize / 2).min(all);
                while links.len() < wanted {
                    let (a, b) = (below(&mut rng, nodes), below(&mut rng, nodes));
                    if a != b {
                        links.insert((a.min(b), a.max(b)));
                    }
                }
            }
        }
        let links = links.into_iter().collect();
        Self { nodes, links }
    }

    /// Number of links from `from` to every host on the shortest path; `None` if there is no path.
    pub fn distances(&self, from: HostId) -> Vec<Option<u32>> {
        Self::distances_over(&self.neighbours(), from)
    }

    /// Like [`Topology::distances`], with the result of [`Topology::neighbours`] given.
    pub(crate) fn distances_over(neighbours: &[Vec<HostId>], from: HostId) -> Vec<Option<u32>> {
        let mut distances = vec![None; neighbours.len()];
        let mut turn = vec![from];
        for distance in 0.. {
            let mut next = Vec::new();
            for host in turn {
                if distances[host].is_none() {
                    distances[host] = Some(distance);
                    next.extend_from_slice(&neighbours[host]);
                }
            }
            if next.is_empty() {
                break;
            }
            turn = next;
        }
        distances
    }

    /// The neighbours of each host.
    pub fn neighbours(&self) -> Vec<Vec<HostId>> {
        let mut neighbours = vec![Vec::new(); self.nodes];
        for (a, b) in &self.links {
            neighbours[*a].push(*b);
            neighbours[*b].push(*a);
        }
        neighbours
    }
}

/// A random number below `n`, or 0.
pub(crate) fn below(rng: &mut ChaCha20Rng, n: usize) -> usize {
    (rng.next_u64() % n.max(1) as u64) as usize
}

fn tree(nodes: usize, rng: &mut ChaCha20Rng) -> Vec<(HostId, HostId)> {
    (1..nodes).map(|b| (below(rng, b), b)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHAPES: [Shape; 6] = [
        Shape::Line,
        Shape::Ring,
        Shape::Grid,
        Shape::Tree,
        Shape::Random { degree: 4 },
        Shape::Random { degree: 200 },
    ];

    #[test]
    fn shapes_have_the_links_that_their_names_promise() {
        let links = |shape, nodes| Topology::new(shape, nodes, 7).links.len();
        assert_eq!(SHAPES.map(|shape| links(shape, 30)), [29, 30, 49, 29, 60, 435]);
        let line = Topology::new(Shape::Line, 30, 0).distances(0);
        assert_eq!(line[29], Some(29));
        let ring = Topology::new(Shape::Ring, 30, 0).distances(0);
        assert_eq!(ring.iter().max(), Some(&Some(15)));
        let grid = Topology::new(Shape::Grid, 25, 0).distances(0);
        assert_eq!(grid[24], Some(8));
    }

    proptest! {
        #[test]
        fn every_shape_is_connected_and_the_same_each_time(shape in 0..SHAPES.len(), nodes in 1_usize..60, seed: u64) {
            let topology = Topology::new(SHAPES[shape], nodes, seed);
            prop_assert_eq!(&topology, &Topology::new(SHAPES[shape], nodes, seed));
            prop_assert!(topology.distances(0).iter().all(Option::is_some));
            for (a, b) in &topology.links {
                prop_assert!(a < b && *b < nodes);
            }
        }
    }
}
