//! Paths of this node's own sessions: direct while there is a link, through a neighbour while there
//! is none.

use weft_contract::{LinkId, SessionCommand};
use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::session::PathMtuNotification;

use super::doubt::STAY;
use super::signals::Why;
use super::{Node, PATIENCE};
use crate::path::Standing;
use crate::rounds::Rounds;
use crate::{Event, Path};

/// A path counts as healthy for this long after frames were received on it, in ms.
const HEALTHY: u64 = 2_000;
/// It also counts as healthy for this long after the peer reported that frames of this node arrive,
/// in ms. A weft peer reports once a round trip, and at most every 500 ms.
const TOLD: u64 = 3_000;

impl Node {
    /// Chooses the path of every session again, in the next round of a node with many peers.
    pub(super) fn reroute_soon(&mut self, now: u64) {
        let at = Rounds::of(self.peers.len()).next(now);
        self.reroute_at = self.reroute_at.min(at);
        if at <= now {
            self.reroute(now);
        }
    }

    /// Chooses the path of every session again: a session outlives its paths.
    pub(super) fn reroute(&mut self, now: u64) {
        self.reroute_at = u64::MAX;
        self.withdraw_routes(now);
        let addrs: Vec<NodeAddr> = self
            .peers
            .iter()
            .filter(|(_, p)| p.configured)
            .map(|(addr, _)| *addr)
            .collect();
        for addr in addrs {
            self.reroute_one(now, addr);
        }
    }

    /// Chooses the path of one session. If packets wait and there is none, starts a look-up.
    pub(super) fn reroute_one(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr) else { return };
        let needed = peer.session.needs_route();
        let (trusted, own) = (peer.link.is_healthy(), peer.link.is_up().then_some(peer.link.id));
        // A neighbour that is heard again is trusted only later. Meanwhile its link is used unless a
        // relayed path passes as much.
        let heard = own.filter(|_| trusted || !peer.link.health.is_silent());
        let direct = own.filter(|_| trusted);
        let relayed = || {
            self.healthy_way(now, addr)
                .filter(|link| heard.is_none() || self.takes_all(*link, addr))
        };
        let link = direct
            .or_else(relayed)
            .or(heard)
            .or_else(|| self.way_to(now, addr))
            .or(own);
        let hop = link.and_then(|link| self.by_link.get(&link));
        let poor = hop.is_none_or(|hop| self.mesh.is_doubted(now, *hop, addr));
        let coords = (
            self.mesh.my_coords().to_vec(),
            self.mesh.coords_of(now, addr).unwrap_or_default().to_vec(),
        );
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let lost = coords.1.is_empty();
        let moved = peer.session.set_coords(now, coords);
        let before = peer.session.next_hop();
        peer.session.handle_route(&mut self.ctx, now, link);
        self.note_path(now, addr);
        let relayed = link.is_some() && link != own;
        // A path may well outlast the coordinates, but not through relays that route by coordinates
        // alone.
        if needed && (poor || relayed && lost) {
            self.look_up(now, addr);
        }
        // A FIPS daemon that has lost the coordinates of this node neither asks for them nor
        // reports it: its packets just cease.
        if needed && relayed && (before != link || moved) {
            self.warm(now, addr, Why::Moved);
        }
    }

    /// Changes the path of a session to the one over `link`, because probes over it were answered.
    pub(super) fn change_path(&mut self, now: u64, addr: NodeAddr, link: LinkId) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.session.stay(now + self.ctx.jittered(STAY));
        peer.session.handle_route(&mut self.ctx, now, Some(link));
        self.enter_path(now, addr, true);
        self.warm(now, addr, Why::Moved);
    }

    /// Records the path to a peer, and reports it if it has changed.
    pub(super) fn note_path(&mut self, now: u64, addr: NodeAddr) {
        self.enter_path(now, addr, false);
    }

    fn enter_path(&mut self, now: u64, addr: NodeAddr, compared: bool) {
        let Some(peer) = self.peers.get(&addr).filter(|p| p.configured) else {
            return;
        };
        let linked = |key: &PublicKey| self.peers.get(&key.node_addr()).is_some_and(|p| p.link.is_up());
        let silent = |hop: NodeAddr| self.mesh.is_doubted(now, hop, addr);
        let route = peer.session.next_hop().filter(|route| *route != peer.link.id);
        let relay = route.and_then(|route| self.peers.get(self.by_link.get(&route)?));
        let relay = relay.filter(|p| p.link.is_up()).map(|p| Path::Relayed(p.key()));
        let standing = Standing {
            path: relay.or(peer.link.path().map(|path| Path::Direct(path.remote()))),
            link: match peer.link.up_since {
                Some(since) => Ok(since),
                None => Err(peer.link.last_down.map(|(_, why)| why)),
            },
            old_relay_up: match peer.paths.path() {
                Some(Path::Relayed(old)) => linked(&old),
                _ => false,
            },
            old_silent: match peer.paths.path() {
                Some(Path::Relayed(old)) => silent(old.node_addr()),
                _ => silent(addr),
            },
            old_narrow: match peer.paths.path() {
                Some(Path::Direct(old)) => peer.link.was_narrow(old),
                _ => false,
            },
            compared,
        };
        let key = peer.key();
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if standing.path.is_some() {
            let path = peer.link.path();
            peer.session.follow_path(&mut self.ctx, now, path);
        }
        if let Some(reason) = peer.paths.note(now, &standing) {
            self.ctx.event(Event::PathChanged {
                peer: key,
                path: standing.path,
                reason,
            });
        }
        self.note_progress(now, addr);
    }

    pub(super) fn look_up(&mut self, now: u64, addr: NodeAddr) {
        if self.ctx.config.mesh {
            self.mesh.look_up(now, addr, &mut self.ctx);
        }
    }

    /// Returns the next hop of the session, if it works: frames of the peer arrive over it, or the
    /// peer reports that frames of this node arrive. Gossip and answers to look-ups are weaker
    /// evidence. Coordinates in the clear are not evidence, because any member of the mesh can send
    /// a handshake in the name of the peer.
    fn healthy_way(&self, now: u64, addr: NodeAddr) -> Option<LinkId> {
        let session = &self.peers.get(&addr)?.session;
        let link = session.next_hop()?;
        let hop = *self.by_link.get(&link)?;
        let up = self.peers.get(&hop).is_some_and(|p| p.link.is_up());
        let both = session.arrives() == Some(link) && now.saturating_sub(session.liveness.last_heard()) < HEALTHY;
        let told = session.told().is_some_and(|at| now.saturating_sub(at) < TOLD);
        let works = both || told;
        (up && works && !self.mesh.is_doubted(now, hop, addr)).then_some(link)
    }

    /// Whether a path takes all packets that the session may have: those in fast frames too, if both ends
    /// have them. On a relayed path these need a label.
    fn takes_all(&self, link: LinkId, addr: NodeAddr) -> bool {
        let Some(peer) = self.peers.get(&addr) else {
            return false;
        };
        !peer.session.has_fast() || link == peer.link.id || self.labels.bound(link, addr).is_some()
    }

    fn way_to(&mut self, now: u64, addr: NodeAddr) -> Option<LinkId> {
        let next = self.mesh.next_hop(now, addr, None)?;
        self.peers.get(&next).filter(|p| p.link.is_up()).map(|p| p.link.id)
    }

    /// Handles a packet that waits for a session. It starts discovery even if a direct path looks
    /// usable (L9).
    /// Asks for a session with a peer, as a packet for it does, unless there is one. A key that belongs
    /// to no peer changes nothing.
    pub fn want_session(&mut self, now: u64, peer: &PublicKey) {
        let addr = peer.node_addr();
        if self.peers.get(&addr).is_some_and(|peer| !peer.session.is_up()) {
            self.handle_wanted(now, addr);
        }
    }

    pub(super) fn handle_wanted(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.link.handle_wanted(now);
        peer.session.handle_wanted(&mut self.ctx, now);
        if !peer.session.is_up() {
            self.look_up(now, addr);
        }
        self.reroute_one(now, addr);
        self.run_mesh(now);
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let waited = peer.session.wanted.map_or(0, |since| now.saturating_sub(since));
        if peer.session.next_hop().is_none() && waited >= PATIENCE && !self.mesh.is_looking_for(addr) {
            peer.session.wanted = None;
            self.counters.services_dropped += peer.session.drop_services();
            self.ctx.change_session(addr, SessionCommand::DropQueue);
        }
    }

    pub(super) fn handle_lookup_failed(&mut self, target: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&target) else {
            return;
        };
        if peer.session.next_hop().is_none() && peer.session.wanted.take().is_some() {
            self.counters.services_dropped += peer.session.drop_services();
            self.ctx.change_session(target, SessionCommand::DropQueue);
        }
    }

    /// Handles the peer's report on the size of the frames that its path takes.
    pub(super) fn handle_path_mtu(&mut self, now: u64, peer: NodeAddr, body: &[u8]) {
        let Ok(told) = PathMtuNotification::parse(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        if let Some(peer) = self.peers.get_mut(&peer) {
            peer.session.handle_path_mtu(&mut self.ctx, now, told.path_mtu);
        }
    }
}
