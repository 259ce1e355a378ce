//! What becomes of traffic whose way has gone silent: it goes round, long before the link is given up.
//!
//! Three things are taken for silence: a neighbour that answers nothing (`link::trust`), a session that answers
//! nothing although the neighbour does, and the other end's own choice of another way. None of them ends anything.

use weft_packet::LinkId;
use weft_wire::NodeAddr;

use super::Node;
use crate::Event;

/// After we followed the other end to another way we stay for this long, ms, an eighth more or less: two ends that
/// follow each other at once would swap for ever.
const STAY: u64 = 2_000;
/// Frames confirm the way they came by for this long, ms.
const FRESH: u64 = 1_000;

impl Node {
    /// Goes round a neighbour that has fallen silent, or back once it speaks.
    pub(super) fn follow_trust(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr).filter(|_| self.ctx.config.mesh) else {
            return;
        };
        let (key, link) = (peer.key, peer.link.id);
        let silent = peer.link.is_up() && !peer.link.is_trusted();
        if self.mesh.set_silent(addr, silent) {
            self.ctx.event(if silent {
                Event::LinkSilent { peer: key }
            } else {
                Event::LinkAnswers { peer: key }
            });
            if silent {
                self.lose_next_hop(now, link);
            }
            self.reroute(now);
            self.run_mesh(now);
        } else if silent {
            // Nodes that still send through it are told again.
            self.withdraw_routes_over(link);
        }
    }

    /// A session has had no answer for some time: if it goes through others, some other may do better.
    pub(super) fn handle_silent_session(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if !peer.session.take_silence(now) {
            return;
        }
        let route = peer.session.route();
        if route != Some(peer.link.id) {
            if let Some(via) = route.and_then(|link| self.by_link.get(&link)) {
                self.mesh.doubt_way(now, addr, *via);
            }
            self.look_up(now, addr);
            self.reroute_one(now, addr);
            self.run_mesh(now);
        }
    }

    /// The frames of a session come over another link than before.
    pub(super) fn handle_arrival(&mut self, now: u64, addr: NodeAddr, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&addr).filter(|_| self.ctx.config.mesh) {
            peer.session.handle_arrival(now, link);
            self.follow_other_end(now, addr);
        }
    }

    /// Frames that come by the way that ours go confirm it: nothing else need be better.
    pub(super) fn confirm_way(&mut self, now: u64, addr: NodeAddr) {
        let Some(session) = self.peers.get(&addr).map(|peer| &peer.session) else {
            return;
        };
        if now.saturating_sub(session.liveness.last_heard()) >= FRESH {
            return;
        }
        let both = session.arrives().filter(|link| session.route() == Some(*link));
        if let Some(via) = both.and_then(|link| self.by_link.get(&link)) {
            self.mesh.prove_way(now, addr, *via);
        }
    }

    /// Goes the way by which the other end reaches us, unless we have just done so or know ours to be good.
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
        self.follow_trust(now, addr);
        self.reroute_one(now, addr);
        self.run_mesh(now);
    }
}
