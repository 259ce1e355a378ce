//! The node in the mesh: neighbours come and go, gossip and look-ups pass, messages of other nodes
//! are forwarded.

use std::collections::BTreeSet;

use weft_contract::{Endpoint, LinkId, SendCommand, TableCommand};
use weft_noise::PublicKey;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session::{SessionAck, SessionSetup};
use weft_wire::{NodeAddr, fmp, fsp};

use super::signals::Cause;
use super::{Node, Peer};
use crate::link::Link;
use crate::mesh::{MeshOutput, Refused, Was};
use crate::path::PathHistory;
use crate::progress::Progress;
use crate::rounds::Rounds;
use crate::session::Session;
use crate::{Admit, Event, Hint, MeshStatus, SessionDown, Stranger};

/// Maximum number of neighbours that are not configured.
const MAX_STRANGERS: usize = 64;
/// Maximum number of further nodes that ask to become such neighbours and have proven nothing:
/// their first message may be forged, with any source.
const MAX_UNPROVEN: usize = 256;
/// Time for which such a node keeps its place: two long round trips, in ms.
const UNPROVEN_GRACE: u64 = 2_000;

impl Node {
    /// Sets whether nodes that are not configured may link, those that may although they otherwise
    /// may not, and those that may not although they otherwise may. Configured peers always may.
    /// Links that are up stay.
    pub fn set_admission(&mut self, admit: Admit, allowed: BTreeSet<NodeAddr>, denied: BTreeSet<NodeAddr>) {
        self.ctx.config.admit = admit;
        (self.allowed, self.denied) = (allowed, denied);
    }

    /// Returns the node's part in the mesh, if it has one.
    pub fn mesh_status(&self) -> Option<MeshStatus> {
        let linked = self.peers.values().filter(|peer| peer.link.is_up());
        let (neighbours, strangers) = linked.fold((0, 0), |(all, strangers), peer| {
            (all + 1, strangers + usize::from(!peer.configured))
        });
        let tree = self.mesh.place();
        self.ctx.config.mesh.then(|| MeshStatus {
            root: tree.root().to_string(),
            parent: tree
                .parent()
                .and_then(|parent| self.peers.get(&parent))
                .map(|peer| peer.key().to_string()),
            depth: tree.depth(),
            neighbours,
            strangers,
            transit: self.ctx.config.transit,
            known: self.mesh.known(),
            lookups_found: self.mesh.lookup_counters().found,
            lookups_failed: self.mesh.lookup_counters().failed,
            state_bytes: self.mesh.bytes(),
        })
    }

    /// Returns the coordinates of a node, from itself to the root, if they were received lately;
    /// for the node's own address, its own coordinates.
    pub fn coords_of(&self, now: u64, node: NodeAddr) -> Option<&[NodeAddr]> {
        if node == self.ctx.me {
            Some(self.mesh.my_coords())
        } else {
            self.mesh.coords_of(now, node)
        }
    }

    /// Makes a place for a node that asks to link and is not configured. Returns whether such nodes
    /// are admitted and there is room.
    pub(super) fn admit_stranger(&mut self, now: u64, key: PublicKey) -> bool {
        let addr = key.node_addr();
        let welcome = self.is_welcome(&addr) || self.admits_guest(&addr);
        if !welcome || addr == self.ctx.me || self.strangers() >= MAX_STRANGERS || !self.make_room_for_unproven(now) {
            return false;
        }
        self.insert_peer(now, key, &[], false);
        true
    }

    /// Whether the mesh admits a node that is not configured.
    pub(super) fn is_welcome(&self, addr: &NodeAddr) -> bool {
        let everyone = self.ctx.config.admit == Admit::Everyone && !self.denied.contains(addr);
        self.ctx.config.mesh && (everyone || self.allowed.contains(addr))
    }

    /// Records a node that is not configured, asked to link and gets no answer. A denied node is
    /// not reported to the user.
    pub(super) fn note_turned_away(&mut self, now: u64, key: PublicKey, from: Endpoint) {
        self.counters.strangers += 1;
        let from = from.remote();
        if !self.denied.contains(&key.node_addr()) && self.turned_away.note(now, key, from) {
            self.ctx.event(Event::TurnedAway { key, from });
        }
    }

    /// Returns the neighbours that are not configured, in the order of their addresses.
    pub fn stranger_status(&self, now: u64) -> impl Iterator<Item = Stranger> + '_ {
        let strangers = self.peers.values().filter(|peer| !peer.configured);
        strangers
            .filter(|peer| peer.link.is_up())
            .map(move |peer| Stranger::of(peer, now))
    }

    /// Returns the number of neighbours that are not configured and have proven their identity.
    fn strangers(&self) -> usize {
        let strangers = self.peers.values().filter(|peer| !peer.configured);
        strangers.filter(|peer| peer.link.is_up()).count()
    }

    /// Evicts the oldest of the nodes that have proven nothing if there are too many. Returns
    /// `false` if all are too young for that.
    fn make_room_for_unproven(&mut self, now: u64) -> bool {
        let unproven = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.configured && !peer.link.is_up());
        if unproven.clone().count() < MAX_UNPROVEN {
            return true;
        }
        let oldest = unproven.map(|(addr, peer)| (peer.link.begun(), *addr)).min();
        let Some((_, addr)) = oldest.filter(|(begun, _)| now.saturating_sub(*begun) >= UNPROVEN_GRACE) else {
            return false;
        };
        self.with_peer(addr, |ctx, peer| peer.link.give_up(ctx));
        self.forget_strangers();
        true
    }

    /// Turns away a node that is not configured and has proven its identity, if others have taken
    /// the last place meanwhile. Returns whether it did.
    pub(super) fn turn_away_stranger(&mut self, now: u64, addr: NodeAddr) -> bool {
        let over = self.strangers() > MAX_STRANGERS;
        let turned_away = over && self.peers.get(&addr).is_some_and(|peer| !peer.configured);
        if turned_away {
            self.counters.strangers += 1;
            self.with_peer(addr, |ctx, peer| peer.link.turn_away(ctx, now));
            self.forget_strangers();
        }
        turned_away
    }

    pub(super) fn insert_peer(&mut self, now: u64, key: PublicKey, addresses: &[Hint], configured: bool) {
        let (addr, id) = (key.node_addr(), LinkId(self.next_link));
        self.next_link += 1;
        let link = Link::new(&mut self.ctx, now, id, key, addresses);
        let session = Session::new(self.ctx.me < addr, key, link.id);
        self.by_link.insert(id, addr);
        self.peers.insert(
            addr,
            Peer {
                link,
                session,
                paths: PathHistory::default(),
                progress: Progress::new(now),
                expected: None,
                configured,
                guest: None,
                asides: None,
                queued: u64::MAX,
            },
        );
    }

    /// Forgets neighbours that are not configured and whose links have ended.
    pub(super) fn forget_strangers(&mut self) {
        for addr in self.peers.take_gone(&self.ctx) {
            if !self.peers.get(&addr).is_some_and(Peer::is_gone) {
                continue;
            }
            let Some(mut peer) = self.peers.remove(&addr) else {
                continue;
            };
            if peer.expected.is_some() {
                self.ctx.lane(TableCommand::Unexpect { peer: addr });
            }
            // A guest has a session beside its link. Its keys have to go, or they stand in the way of those of its next
            // session.
            if peer.guest.is_some() {
                peer.session.take_down(&mut self.ctx, SessionDown::Removed);
                self.counters.services_dropped += peer.session.drop_services();
            }
            peer.link.abandon_attempt(&mut self.ctx);
            peer.link.forget_messages(&mut self.ctx);
            self.by_link.remove(&peer.link.id);
            self.routes.forget_asker(peer.link.id);
            self.lanes.forget(addr, peer.link.id);
        }
    }

    pub(super) fn neighbour_up(&mut self, now: u64, addr: NodeAddr) {
        let in_mesh = |peer: &&Peer| self.ctx.config.mesh && !peer.guest.is_some_and(|guest| guest.apart);
        let Some(peer) = self.peers.get(&addr).filter(in_mesh) else {
            return;
        };
        self.mesh.neighbour_up(now, addr, peer.key());
        self.run_mesh(now);
    }

    pub(super) fn neighbour_down(&mut self, now: u64, addr: NodeAddr) {
        if let Some(link) = self.peers.get(&addr).map(|peer| peer.link.id) {
            self.forget_labels(now, link);
        }
        self.reroute_one(now, addr);
        self.mesh.neighbour_down(now, addr);
        self.run_mesh(now);
    }

    /// Handles a new measurement of a link: its cost may change the parent and the next hops.
    pub(super) fn note_cost(&mut self, now: u64, link: LinkId) {
        let Some(addr) = self.by_link.get(&link).copied().filter(|_| self.ctx.config.mesh) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let quality = peer.hop_quality(now);
        if self.ctx.config.transit {
            peer.link.review_congestion(&mut self.ctx, &quality);
        }
        if let Some(cost) = quality.link_cost() {
            if self.mesh.set_cost(now, addr, cost) {
                self.withdraw_routes_over(link);
            }
            self.run_mesh(now);
        }
    }

    /// Handles gossip or a look-up of the neighbour on `link`.
    pub(super) fn handle_mesh_message(&mut self, now: u64, link: LinkId, kind: LinkMessageType, body: &[u8]) {
        let in_mesh = self.ctx.config.mesh && !self.is_apart(link);
        let Some(from) = self.by_link.get(&link).copied().filter(|_| in_mesh) else {
            return;
        };
        let (peers, identity) = (&self.peers, &self.ctx.identity);
        let key_of = |addr: &NodeAddr| peers.get(addr).map(Peer::key);
        match self.mesh.handle_message(now, from, kind, body, identity, key_of) {
            Ok(()) => {}
            Err(Refused::Malformed) => self.counters.messages_malformed += 1,
            Err(Refused::Announcement) => self.counters.announcements_refused += 1,
        }
        self.run_mesh(now);
    }

    /// Sends the messages that the mesh has ready, and applies the changes that it reports.
    pub(super) fn run_mesh(&mut self, now: u64) {
        let unix = self.unix(now);
        self.mesh.poll_gossip(now, unix, &self.ctx.identity);
        let mut changed = false;
        while let Some(output) = self.mesh.poll_output() {
            match output {
                MeshOutput::Send { to, msg_type, body } => self.send_to_neighbour(to, msg_type, body),
                MeshOutput::Changed => changed = true,
                MeshOutput::Filtered { neighbour, was } => self.follow_filter(now, neighbour, &was),
                MeshOutput::Failed(target) => self.handle_lookup_failed(target),
            }
        }
        if changed {
            self.reroute_soon(now);
        }
    }

    /// Handles a changed filter of a neighbour: only the routes of nodes for which the filter's
    /// answer changed are chosen again. With many peers, the next round does that.
    fn follow_filter(&mut self, now: u64, neighbour: NodeAddr, was: &Was) {
        let round = Rounds::of(self.peers.len()).next(now);
        if round > now {
            self.reroute_at = self.reroute_at.min(round);
            return;
        }
        let differs = |dest: &NodeAddr| self.mesh.filter_differs(&neighbour, was, dest);
        let next_hops: Vec<NodeAddr> = self.routes.dests().filter(|dest| differs(dest)).collect();
        let configured = self.peers.iter().filter(|(_, p)| p.configured);
        let sessions: Vec<NodeAddr> = configured.map(|(addr, _)| *addr).filter(|dest| differs(dest)).collect();
        for dest in next_hops {
            self.withdraw_route(now, dest);
        }
        for addr in sessions {
            self.reroute_one(now, addr);
        }
    }

    pub(super) fn unix(&self, now: u64) -> u64 {
        self.ctx.config.unix_at_zero + now / 1000
    }

    pub(super) fn send_to_neighbour(&mut self, to: NodeAddr, msg_type: u8, body: Vec<u8>) {
        if let Some(link) = self.peers.get(&to).filter(|p| p.link.is_up()).map(|p| p.link.id) {
            self.ctx.lane(SendCommand::OnLink {
                link,
                epoch: None,
                msg_type,
                body,
            });
        }
    }

    /// Forwards a message of another node for which the lane has no route, or which contains
    /// coordinates.
    pub(super) fn handle_transit(&mut self, now: u64, link: LinkId, mut body: Vec<u8>) {
        if self.is_apart(link) {
            return;
        }
        let Some(from) = self.by_link.get(&link).copied() else {
            return;
        };
        let Ok(datagram) = SessionDatagram::parse(&body) else {
            return;
        };
        let (src, dest, path_mtu) = (datagram.src, datagram.dest, datagram.path_mtu);
        // Like the lane: a larger TTL only makes loops longer.
        let ttl = datagram.ttl.min(SessionDatagram::DEFAULT_TTL);
        self.learn_from(now, &datagram, from);
        let len = body.len();
        let cause = Cause { link, src, dest, len };
        let Some(next) = self.forward_to(now, src, dest, link) else {
            self.signal_no_way(now, cause);
            return;
        };
        if self.mesh.is_doubted(now, next, dest) {
            // The message may still arrive. The source may know a better path.
            self.signal_no_way(now, cause);
        } else if self.mesh.coords_of(now, src).is_none() {
            // Nodes forget coordinates when the tree changes, and so does the FIPS daemon at the
            // destination. It cannot answer then, and never asks. The coordinates that the source
            // sends in reply pass through that daemon.
            self.signal_lost_source(now, cause);
        }
        let mtu = self.ctx.config.mtu;
        if body.len() + fmp::LINK_OVERHEAD > usize::from(mtu) {
            self.signal_too_big(now, cause, mtu);
            return;
        }
        if ttl <= 1 || SessionDatagram::rewrite_hop(&mut body, ttl - 1, path_mtu.min(mtu)).is_err() {
            return;
        }
        self.send_to_neighbour(next, LinkMessageType::SessionDatagram.to_byte(), body);
    }

    /// Handles a message of another node that is larger than the links of this node take. The lane
    /// has dropped it.
    pub(super) fn handle_too_large(&mut self, now: u64, cause: Cause) {
        let Some(from) = self.by_link.get(&cause.link).copied() else {
            return;
        };
        self.mesh.learn_next_hop(now, cause.src, from);
        if self.forward_to(now, cause.src, cause.dest, cause.link).is_some() {
            self.signal_too_big(now, cause, self.ctx.config.mtu);
        } else {
            self.signal_no_way(now, cause);
        }
    }

    /// Learns coordinates that are sent in the clear, and the neighbour that leads back to the
    /// source.
    pub(super) fn learn_from(&mut self, now: u64, datagram: &SessionDatagram<'_>, from: NodeAddr) {
        self.mesh.learn_next_hop(now, datagram.src, from);
        let payload = datagram.payload;
        let Ok(prefix) = fsp::FspPrefix::parse(payload) else {
            return;
        };
        let pair = match fsp::FspPhase::from_nibble(prefix.phase) {
            Some(fsp::FspPhase::Setup) => SessionSetup::parse(payload).ok().map(|m| (m.src, m.dest)),
            Some(fsp::FspPhase::Ack) => SessionAck::parse(payload).ok().map(|m| (m.src, m.dest)),
            Some(fsp::FspPhase::Established) if !prefix.is_signal() => {
                let message = fsp::EncryptedMessage::parse(payload).ok();
                message.and_then(|m| m.coords).map(|pair| (pair.src, pair.dest))
            }
            _ => None,
        };
        let Some((src, dest)) = pair else { return };
        for (addr, coords) in [(datagram.src, src), (datagram.dest, dest)] {
            let path: Vec<NodeAddr> = coords.iter().collect();
            // Coordinates that begin with another address say nothing about this node. Neither do
            // coordinates of a single address, unless it is the root's.
            if path.first() == Some(&addr) && (path.len() > 1 || addr == self.mesh.place().root()) {
                self.mesh.learn_coords(now, addr, &path, from);
            }
        }
    }
}
