//! The invariants of a node after every event, and the state that it has to share with its lane.

use std::collections::{BTreeMap, BTreeSet};

use weft_contract::LinkId;
use weft_wire::NodeAddr;

use super::Node;
use super::forwarding::MAX_HELD;
use crate::session::HANDSHAKE_LIFE;

/// Maximum number of epochs of one link: candidates, the present one, and those that drain.
const MAX_LINK_EPOCHS: usize = 12;
/// Maximum number of epochs of one session.
const MAX_SESSION_EPOCHS: usize = 24;

/// The epochs of one link or session: all that open, and the one that seals.
type HeldEpochs = (BTreeSet<u32>, Option<u32>);

impl Node {
    /// Checks the invariants that hold after every event, for fuzzing and simulation: state is
    /// bounded, each index has an owner, and no deadline is forgotten.
    ///
    /// # Errors
    ///
    /// The broken invariant, in words.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.mesh.check_invariants()?;
        self.labels.check_invariants()?;
        self.routes.check()?;
        self.hops.check()?;
        self.relays.check()?;
        self.peers.check(&self.ctx)?;
        if self.held.len() > MAX_HELD {
            return Err(format!("{} routes are held", self.held.len()));
        }
        let half_open: usize = self.peers.values().map(|peer| peer.session.half_open()).sum();
        let most = self.ctx.unproven.most_in(HANDSHAKE_LIFE, self.peers.len());
        if half_open > most {
            return Err(format!("{half_open} half-open handshakes, at most {most}"));
        }
        let mut indices = 0;
        for peer in self.peers.values() {
            let (link, session) = (&peer.link, &peer.session);
            if peer.configured && peer.expected.as_ref() != Some(&peer.hosts()) {
                return Err(format!("handshakes are expected from {:?}", peer.expected));
            }
            if link.epochs_held() > MAX_LINK_EPOCHS {
                return Err(format!("{} link epochs", link.epochs_held()));
            }
            if session.epochs_held() > MAX_SESSION_EPOCHS {
                return Err(format!("{} session epochs", session.epochs_held()));
            }
            let dialable = !link.is_up() && link.has_target();
            if dialable && link.deadline(&self.ctx).0 == u64::MAX {
                return Err("a peer with an address is never dialled again".into());
            }
            indices += link.epochs_held() + usize::from(link.dialing(0).is_some());
        }
        if indices != self.ctx.indices_held() {
            return Err(format!(
                "{} indices for {indices} epochs and attempts",
                self.ctx.indices_held()
            ));
        }
        Ok(())
    }

    /// Returns the link with a node, configured or not.
    #[doc(hidden)]
    pub fn link_with(&self, peer: &NodeAddr) -> Option<LinkId> {
        self.peers.get(peer).map(|peer| peer.link.id)
    }

    /// Returns the epochs of every link that has any.
    #[doc(hidden)]
    pub fn held_links(&self) -> BTreeMap<LinkId, HeldEpochs> {
        let held = self.peers.values().map(|peer| (peer.link.id, peer.link.held()));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }

    /// Returns the epochs of every session that has any.
    #[doc(hidden)]
    pub fn held_sessions(&self) -> BTreeMap<NodeAddr, HeldEpochs> {
        let held = self.peers.iter().map(|(addr, peer)| (*addr, peer.session.held()));
        held.filter(|(_, (ids, _))| !ids.is_empty()).collect()
    }
}
