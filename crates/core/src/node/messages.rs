//! Handshake datagrams and link messages: each goes to the part of the node that it is for.

use weft_contract::{Endpoint, LinkId, ReceiverIndex};
use weft_noise::ik;
use weft_wire::keepalive::Keepalive;
use weft_wire::link::{
    BIND, BOUND, Disconnect, HOP, HOP_CAPABILITIES, HOP_CAPABILITIES_ACK, HOPS_REQUEST, KEY_IN_TWO, LinkMessageType,
    MOVED, OBSERVED, PROBE, PROBE_ANSWER, SIGHTING, SIGHTING_REQUEST, SessionDatagram, UNBIND,
};
use weft_wire::session::{SessionAck, SessionMsg3, SessionSetup};
use weft_wire::signal::Signal;
use weft_wire::{fmp, fsp};

use super::{Node, Peer};
use crate::link::First;

impl Node {
    pub(super) fn handle_handshake(&mut self, now: u64, from: Endpoint, datagram: &[u8]) {
        if let Ok(msg1) = fmp::Msg1::parse(datagram) {
            self.handle_msg1(now, from, &msg1);
        } else if let Ok(msg2) = fmp::Msg2::parse(datagram) {
            let asker = self
                .peers
                .iter()
                .find(|(_, p)| p.link.awaits(ReceiverIndex(msg2.receiver_idx)));
            let Some(addr) = asker.map(|(addr, _)| *addr) else {
                return;
            };
            let Some(peer) = self.peers.get_mut(&addr) else { return };
            let effect = peer.link.handle_msg2(&mut self.ctx, now, from, &msg2);
            self.apply(now, addr, effect);
        }
    }

    fn handle_msg1(&mut self, now: u64, from: Endpoint, msg1: &fmp::Msg1<'_>) {
        match self.ctx.first_messages.get(msg1.noise) {
            Some(First::Spent) => {
                self.counters.handshakes_replayed += 1;
                return;
            }
            Some(First::Answered(link)) => {
                let peer = self.by_link.get(&link).and_then(|addr| self.peers.get_mut(addr));
                if peer.is_some_and(|peer| peer.link.repeat_answer(&mut self.ctx, from, msg1.noise)) {
                    return;
                }
            }
            None => {}
        }
        let Ok(received) = ik::Responder::read(&self.ctx.identity, msg1.noise) else {
            self.counters.handshakes_forged += 1;
            return;
        };
        let addr = received.remote.node_addr();
        if addr == self.ctx.me {
            // Only a holder of this node's own key can have sent it, and only to this node.
            self.note_twin(now, None, from.remote());
            return;
        }
        if !self.peers.contains_key(&addr) && !self.admit_stranger(now, received.remote) {
            self.note_turned_away(now, received.remote, from);
            return;
        }
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.link.handle_msg1(
            &mut self.ctx,
            now,
            from,
            ReceiverIndex(msg1.sender_idx),
            msg1.noise,
            received,
        );
    }

    pub(super) fn handle_link_message(
        &mut self,
        now: u64,
        link: LinkId,
        index: ReceiverIndex,
        msg_type: u8,
        body: &[u8],
    ) {
        match LinkMessageType::from_byte(msg_type) {
            Some(LinkMessageType::Disconnect) => {
                let Ok(disconnect) = Disconnect::parse(body) else {
                    return;
                };
                let Some(addr) = self.by_link.get(&link).copied() else {
                    return;
                };
                let Some(peer) = self.peers.get_mut(&addr) else { return };
                if peer
                    .link
                    .handle_disconnect(&mut self.ctx, now, index, disconnect.reason)
                {
                    self.neighbour_down(now, addr);
                }
            }
            Some(LinkMessageType::SessionDatagram) => {
                let Ok(datagram) = SessionDatagram::parse(body) else {
                    self.counters.messages_malformed += 1;
                    return;
                };
                self.handle_session_handshake(now, link, &datagram);
            }
            Some(LinkMessageType::Heartbeat) => {
                if body.first() == Some(&MOVED) {
                    self.with_link(link, |_, p| p.link.handle_moving(now));
                } else if let Ok(said) = Keepalive::parse(body) {
                    self.handle_keepalive(now, link, said);
                }
            }
            Some(kind) => self.handle_mesh_message(now, link, kind, body),
            None if msg_type == PROBE => self.with_link(link, |ctx, p| p.link.handle_probe(ctx, now, body)),
            None if msg_type == PROBE_ANSWER => {
                let path = self.proven_path_of(link);
                self.with_link(link, |ctx, p| p.link.handle_probe_answer(ctx, now, body));
                if self.proven_path_of(link) != path {
                    self.follow_move(now, link);
                }
                self.follow_health_of(now, link);
            }
            None if msg_type == OBSERVED => self.with_link(link, |ctx, p| p.link.handle_observed(ctx, now, body)),
            None if msg_type == SIGHTING_REQUEST => self.handle_sighting_request(now, link, body),
            None if msg_type == SIGHTING => self.handle_sighting(now, link, body),
            None if msg_type == HOPS_REQUEST => self.handle_hops_request(now, link, body),
            None if msg_type == HOP => self.handle_hop(now, link, body),
            None if msg_type == KEY_IN_TWO => self.handle_key_in_two(now, link, body),
            None if msg_type == HOP_CAPABILITIES => {
                self.with_link(link, |ctx, p| p.link.handle_hop_capabilities(ctx, now, index, body));
            }
            None if msg_type == HOP_CAPABILITIES_ACK => {
                self.with_link(link, |_, p| p.link.handle_hop_capabilities_ack(index, body));
            }
            None if msg_type == BIND => self.handle_bind(now, link, body),
            None if msg_type == BOUND => self.handle_bound(now, link, body),
            None if msg_type == UNBIND => self.handle_unbind(now, link, body),
            None => self.counters.messages_unknown += 1,
        }
    }

    /// A node that is not configured keeps its place only while it sends as often as FIPS does.
    fn handle_keepalive(&mut self, now: u64, link: LinkId, said: Keepalive) {
        self.with_link(link, |ctx, p| {
            if p.configured {
                p.link.handle_keepalive(ctx, now, said);
            }
        });
        self.follow_idleness(now, link);
    }

    /// Has the mesh repeat what it announces less often where both ends send as little as they can.
    pub(super) fn follow_idleness(&mut self, now: u64, link: LinkId) {
        let Some(addr) = self.by_link.get(&link).copied() else {
            return;
        };
        let changed = self.peers.get_mut(&addr).and_then(|peer| peer.link.agreement_change());
        if let Some(agreed) = changed {
            self.mesh.set_idle(now, addr, agreed);
        }
    }

    fn handle_session_handshake(&mut self, now: u64, link: LinkId, datagram: &SessionDatagram<'_>) {
        let payload = datagram.payload;
        let Ok(prefix) = fsp::FspPrefix::parse(payload) else {
            self.counters.messages_malformed += 1;
            return;
        };
        if prefix.is_signal() {
            match Signal::parse(payload) {
                Ok(signal) => self.handle_signal(now, link, &signal),
                Err(_) => self.counters.messages_malformed += 1,
            }
            return;
        }
        let src = datagram.src;
        let Some(from) = self.by_link.get(&link).copied() else {
            return;
        };
        if from != src && (!self.ctx.config.mesh || self.is_apart(link)) {
            return;
        }
        if !self.is_apart(link) {
            self.learn_from(now, datagram, from);
            self.reroute_one(now, src);
        }
        // A guest speaks for itself alone, over its own link.
        let speaks = |p: &&mut Peer| p.configured || p.guest.is_some() && from == src;
        let Some(peer) = self.peers.get_mut(&src).filter(speaks) else {
            return;
        };
        let (ctx, session) = (&mut self.ctx, &mut peer.session);
        let handled = match fsp::FspPhase::from_nibble(prefix.phase) {
            Some(fsp::FspPhase::Setup) => {
                SessionSetup::parse(payload).map(|m| session.handle_setup(ctx, now, link, &m))
            }
            Some(fsp::FspPhase::Ack) => SessionAck::parse(payload).map(|m| session.handle_ack(ctx, now, link, &m)),
            Some(fsp::FspPhase::Msg3) => SessionMsg3::parse(payload).map(|m| session.handle_msg3(ctx, now, link, &m)),
            _ => Ok(()),
        };
        self.counters.messages_malformed += u64::from(handled.is_err());
        self.follow_other_end(now, src);
        self.note_progress(now, src);
    }
}
