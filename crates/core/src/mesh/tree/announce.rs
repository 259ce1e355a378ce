//! The announced place of a neighbour, checked.

use thiserror::Error;
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce};

/// Number of fresh announcements that a neighbour may send at once ...
const BURST: u64 = 16;
/// ... and the time after which it may send another, in ms. FIPS sends two per second.
const EVERY: u64 = 100;

/// The reason why an announcement was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum AnnounceError {
    /// The sender has no link to this node.
    #[error("it comes from a node that is no neighbour")]
    UnknownPeer,
    /// It describes another node than its sender.
    #[error("its sender speaks for {0}")]
    ForeignNode(NodeAddr),
    /// It repeats the last announcement; repeats make up for lost ones.
    #[error("it is known already")]
    Repeated,
    /// It is older than the last one.
    #[error("its sequence {got} is older than {heard}")]
    Stale {
        /// The sequence number of the previous announcement.
        heard: u64,
        /// The sequence number of this one.
        got: u64,
    },
    /// The neighbour announces faster than any node needs to.
    #[error("the neighbour announces too often")]
    TooOften,
    /// The declaration is not signed by the neighbour.
    #[error("its signature is not the neighbour's")]
    BadSignature,
    /// It has no path at all, which no parsed message has.
    #[error("its path is empty")]
    Empty,
    /// The path of a root continues.
    #[error("it declares a root that has ancestors")]
    RootWithAncestors,
    /// The declared parent is not the next node of the path.
    #[error("it declares {0} as parent, which its path does not go through next")]
    ParentNotNext(NodeAddr),
    /// The path contains a node twice.
    #[error("its path goes through {0} twice")]
    Loop(NodeAddr),
    /// The path ends at a node that is not its smallest.
    #[error("the announced root is not the smallest address on its path: {0} is smaller")]
    RootNotSmallest(NodeAddr),
}

/// Checks whether the signature of an announcement is worth verifying.
pub(super) fn admit(
    now: u64,
    from: NodeAddr,
    heard: Option<u64>,
    quota: &mut Quota,
    announce: &TreeAnnounce<'_>,
) -> Result<(), AnnounceError> {
    let node = announce.node().map_err(|_| AnnounceError::Empty)?;
    if node != from {
        return Err(AnnounceError::ForeignNode(node));
    }
    match heard {
        Some(heard) if announce.sequence == heard => Err(AnnounceError::Repeated),
        Some(heard) if announce.sequence < heard => Err(AnnounceError::Stale {
            heard,
            got: announce.sequence,
        }),
        _ if !quota.take(now) => Err(AnnounceError::TooOften),
        _ => Ok(()),
    }
}

/// Verifies that the declaration is signed with `key`.
pub(super) fn verify(key: &PublicKey, announce: &TreeAnnounce<'_>) -> Result<(), AnnounceError> {
    let declaration = announce.signed_bytes().map_err(|_| AnnounceError::Empty)?;
    key.verify(&declaration, announce.signature)
        .map_err(|_| AnnounceError::BadSignature)
}

/// The budget of signatures that a neighbour may make this node verify.
#[derive(Debug)]
pub(super) struct Quota {
    /// When the whole burst is available again.
    full_at: u64,
}

impl Quota {
    pub(super) fn new() -> Self {
        Self { full_at: 0 }
    }

    fn take(&mut self, now: u64) -> bool {
        let full_at = self.full_at.max(now).saturating_add(EVERY);
        let within = full_at <= now.saturating_add(BURST * EVERY);
        if within {
            self.full_at = full_at;
        }
        within
    }
}

/// The place of a neighbour, as it claims it.
#[derive(Debug)]
pub(super) struct Place {
    /// The neighbour's parent; the neighbour itself if it is a root. This part is signed.
    pub(super) parent: NodeAddr,
    /// Its path to the root, itself first. Empty if it is longer than this node could ever
    /// announce.
    pub(super) path: Vec<NodeAddr>,
    /// Sequence number and time of each node's declaration, as received.
    stamps: Vec<(u64, u64)>,
}

impl Place {
    /// Returns the place that `announce` claims, if it is possible; `longest` is the maximum number
    /// of nodes in a path worth keeping.
    pub(super) fn read(announce: &TreeAnnounce<'_>, longest: usize) -> Result<Self, AnnounceError> {
        let (parent, ancestry) = (announce.parent, &announce.ancestry);
        check_first_step(parent, ancestry)?;
        let mut place = Self {
            parent,
            path: Vec::new(),
            stamps: Vec::new(),
        };
        if ancestry.len() > longest {
            return Ok(place);
        }
        place.path.reserve_exact(ancestry.len());
        place.stamps.reserve_exact(ancestry.len());
        for entry in ancestry.iter() {
            if place.path.contains(&entry.addr) {
                return Err(AnnounceError::Loop(entry.addr));
            }
            place.path.push(entry.addr);
            place.stamps.push((entry.sequence, entry.timestamp));
        }
        match place.path.iter().min() {
            Some(least) if place.path.last() != Some(least) => Err(AnnounceError::RootNotSmallest(*least)),
            _ => Ok(place),
        }
    }

    /// Whether it leads to a worse root than `root`.
    pub(super) fn is_behind(&self, root: NodeAddr) -> bool {
        self.path.last().is_some_and(|own| *own > root)
    }

    /// Whether the place agrees with the path `coords`: its root is as good, and its path above
    /// itself is `coords` if the neighbour is a child.
    pub(super) fn agrees_with(&self, coords: &[NodeAddr]) -> bool {
        let ([me, ..], Some(root), Some((_, above))) = (coords, coords.last(), self.path.split_first()) else {
            return true;
        };
        !self.is_behind(*root) && (self.parent != *me || above == coords)
    }

    /// Returns the path in the form in which it is announced further.
    pub(super) fn entries(&self) -> impl Iterator<Item = AncestryEntry> + '_ {
        let nodes = self.path.iter().zip(&self.stamps);
        nodes.map(|(addr, (sequence, timestamp))| AncestryEntry {
            addr: *addr,
            sequence: *sequence,
            timestamp: *timestamp,
        })
    }

    /// Checks the invariants for [`Tree::check_invariants`](super::Tree::check_invariants).
    pub(super) fn check(&self, node: NodeAddr, longest: usize) -> Result<(), String> {
        if self.stamps.len() != self.path.len() {
            return Err(format!("{} stamps of {node}'s path", self.stamps.len()));
        }
        if self.path.is_empty() {
            return Ok(());
        }
        check_path(node, &self.path, longest)
    }
}

/// Checks that the path of a root has one node, and that the parent is the next node of any other
/// path.
fn check_first_step(parent: NodeAddr, ancestry: &Ancestry<'_>) -> Result<(), AnnounceError> {
    let node = ancestry.at(0).ok_or(AnnounceError::Empty)?.addr;
    let next = ancestry.at(1).map(|entry| entry.addr);
    if parent == node {
        return next.map_or(Ok(()), |_| Err(AnnounceError::RootWithAncestors));
    }
    if next == Some(parent) {
        Ok(())
    } else {
        Err(AnnounceError::ParentNotNext(parent))
    }
}

/// Checks the invariants of a kept path: it begins at `node`, repeats no node, and ends at its
/// smallest.
pub(super) fn check_path(node: NodeAddr, path: &[NodeAddr], longest: usize) -> Result<(), String> {
    let mut nodes = path.to_vec();
    nodes.sort_unstable();
    nodes.dedup();
    if path.first() != Some(&node) || nodes.first() != path.last() {
        return Err(format!("{path:?} is no path of {node} to its smallest"));
    }
    if nodes.len() != path.len() || path.len() > longest {
        return Err(format!("path of {} nodes, {} different", path.len(), nodes.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_wire::tree::SIGNATURE_LEN;

    use super::*;

    fn addr(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    fn read(parent: u8, path: &[u8], longest: usize) -> Result<Place, AnnounceError> {
        let entries: Vec<_> = path.iter().map(|n| entry(*n)).collect();
        let announce = TreeAnnounce {
            sequence: 7,
            timestamp: 8,
            parent: addr(parent),
            ancestry: Ancestry::new(&entries),
            signature: &[0; SIGNATURE_LEN],
        };
        Place::read(&announce, longest)
    }

    fn entry(n: u8) -> AncestryEntry {
        AncestryEntry {
            addr: addr(n),
            sequence: u64::from(n) + 100,
            timestamp: u64::from(n) + 200,
        }
    }

    #[test]
    fn a_place_keeps_path_and_stamps() {
        let place = read(4, &[9, 4, 1], 3).unwrap();
        assert_eq!(place.parent, addr(4));
        assert_eq!(place.path, [addr(9), addr(4), addr(1)]);
        assert_eq!(place.entries().collect::<Vec<_>>(), [entry(9), entry(4), entry(1)]);
        assert!(place.is_behind(addr(0)) && !place.is_behind(addr(1)));
        assert_eq!(read(9, &[9], 3).unwrap().path, [addr(9)]);
    }

    #[test]
    fn every_crooked_path_has_its_name() {
        let error = |parent, path: &[u8]| read(parent, path, 9).unwrap_err();
        assert_eq!(error(9, &[]), AnnounceError::Empty);
        assert_eq!(error(9, &[9, 1]), AnnounceError::RootWithAncestors);
        assert_eq!(error(4, &[9]), AnnounceError::ParentNotNext(addr(4)));
        assert_eq!(error(4, &[9, 5, 1]), AnnounceError::ParentNotNext(addr(4)));
        assert_eq!(error(4, &[9, 4, 5, 4, 1]), AnnounceError::Loop(addr(4)));
        assert_eq!(error(4, &[9, 4, 9, 1]), AnnounceError::Loop(addr(9)));
        assert_eq!(error(4, &[9, 4, 1, 5]), AnnounceError::RootNotSmallest(addr(1)));
        assert_eq!(error(10, &[9, 10]), AnnounceError::RootNotSmallest(addr(9)));
    }

    #[test]
    fn of_a_path_too_long_only_the_parent_is_kept() {
        let place = read(4, &[9, 4, 3, 1], 3).unwrap();
        assert_eq!((place.parent, place.path.capacity()), (addr(4), 0));
        assert!(!place.is_behind(addr(0)));
    }

    #[test]
    fn announced_coordinates_fit_at_an_equal_root_and_below_us() {
        let fits = |path: &[u8], ours: &[u8]| {
            let ours: Vec<_> = ours.iter().copied().map(addr).collect();
            let parent = path.get(1).copied().unwrap_or(path[0]);
            read(parent, path, 3).unwrap().agrees_with(&ours)
        };
        assert!(fits(&[9, 1], &[5, 1]) && fits(&[9, 0], &[5, 1]));
        assert!(!fits(&[9, 2], &[5, 1]) && !fits(&[9], &[5]));
        assert!(fits(&[9, 5, 1], &[5, 1]) && !fits(&[9, 5, 1], &[5, 3, 1]));
        assert!(fits(&[9, 8, 2, 1], &[5, 0]), "nothing is known of a path too long");
    }

    #[test]
    fn the_quota_is_a_burst_and_then_a_rate() {
        let mut quota = Quota::new();
        let taken = |quota: &mut Quota, now| (0..100).filter(|_| quota.take(now)).count();
        assert_eq!(taken(&mut quota, 1_000), 16);
        assert_eq!(taken(&mut quota, 1_099), 0);
        assert_eq!(taken(&mut quota, 1_300), 3);
        assert_eq!(taken(&mut quota, 1_000_000), 16);
    }
}
