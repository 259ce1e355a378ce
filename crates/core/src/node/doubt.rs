//! Rerouting of traffic whose path has gone silent. Traffic avoids such a path long before the link
//! is given up.
//!
//! Three observations count as silence: a neighbour that does not answer (`link::health`), a
//! session that does not answer although the neighbour does, and the peer's own change to another
//! path. None of them ends a link or session.

use weft_contract::LinkId;
use weft_wire::NodeAddr;

use super::Node;
use crate::Event;
use crate::mesh::Silence;

/// After a switch to the path that the peer uses, the node stays on it for this long, in ms, an
/// eighth more or less. Otherwise two ends that follow each other at the same time would swap paths
/// for ever.
pub(super) const STAY: u64 = 2_000;
/// A received frame confirms its path for this long, in ms.
const FRESH: u64 = 1_000;

impl Node {
    /// Reroutes around a neighbour that has fallen silent, or back to it once it answers.
    pub(super) fn follow_health(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr).filter(|_| self.ctx.config.mesh) else {
            return;
        };
        let (key, link) = (peer.key(), peer.link.id);
        let silent = peer.link.is_up() && !peer.link.is_healthy();
        let silence = silent.then_some(match peer.link.health.is_silent() {
            true => Silence::Unheard,
            false => Silence::Heard,
        });
        let before = self.mesh.set_silence(addr, silence);
        if before.is_some() != silent {
            self.ctx.event(if silent {
                Event::LinkSilent { peer: key }
            } else {
                Event::LinkAnswers { peer: key }
            });
        }
        if before != silence {
            match silence {
                Some(Silence::Unheard) => self.lose_next_hop(now, link),
                Some(Silence::Heard) | None => self.labels.start_over(now, link),
            }
            self.reroute_soon(now);
            self.run_mesh(now);
        } else if silent {
            // Nodes that still send through it receive another error signal.
            self.withdraw_routes_over(link);
        }
    }

    /// Tells the link whether its path is narrow, as the session has measured.
    pub(super) fn follow_size(&mut self, now: u64, addr: NodeAddr) {
        let known = self.peers.get(&addr).and_then(|peer| peer.session.direct_narrowness());
        if let Some((at, is_narrow)) = known {
            self.with_peer(addr, |_, peer| peer.link.note_narrow(now, at, is_narrow));
        }
    }

    /// Handles a session that has had no answer for some time. If its path is relayed, another
    /// relay may work.
    pub(super) fn handle_silent_session(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if !peer.session.take_silence(now) {
            return;
        }
        let route = peer.session.next_hop();
        if route != Some(peer.link.id) {
            if let Some(via) = route.and_then(|link| self.by_link.get(&link)) {
                self.mesh.suspect_route(now, addr, *via);
            }
            self.look_up(now, addr);
            self.reroute_one(now, addr);
            self.run_mesh(now);
        }
    }

    /// Handles the report that frames of a session arrive over another link than before.
    pub(super) fn handle_arrival(&mut self, now: u64, addr: NodeAddr, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&addr).filter(|_| self.ctx.config.mesh) {
            peer.session.handle_arrival(now, link);
            self.follow_other_end(now, addr);
        }
    }

    /// Handles frames that arrive over the link that this node sends on: they confirm the path, so
    /// no other one need be preferred.
    pub(super) fn confirm_route(&mut self, now: u64, addr: NodeAddr) {
        let Some(session) = self.peers.get(&addr).map(|peer| &peer.session) else {
            return;
        };
        if now.saturating_sub(session.liveness.last_heard()) >= FRESH {
            return;
        }
        let both = session.arrives().filter(|link| session.next_hop() == Some(*link));
        if let Some(via) = both.and_then(|link| self.by_link.get(&link)) {
            self.mesh.prove_way(now, addr, *via);
        }
    }

    /// Switches to the path on which the peer's frames arrive, unless this node has just switched
    /// or knows that its own path works.
    pub(super) fn follow_other_end(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let Some(link) = peer.session.take_arrival(now) else {
            return;
        };
        peer.session.stay(now + self.ctx.jittered(STAY));
        let Some(via) = self.by_link.get(&link).filter(|via| **via != addr) else {
            return;
        };
        self.mesh.prove_way(now, addr, *via);
        peer.link.handle_left(now);
        self.follow_health(now, addr);
        self.reroute_one(now, addr);
        self.run_mesh(now);
    }
}
