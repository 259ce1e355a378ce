//! Routes of relayed fast frames: labels requested from the next hop, and labels served to the
//! previous hop.
//!
//! A path is bound from its destination: a neighbour accepts a label once it is the destination
//! itself or its next hop has accepted one. Until then, and when any part of the path is lost, data
//! goes in FIPS frames, which have routes of their own. docs/protocol/fast.md, "Labels".

use weft_contract::{EpochId, Label, LabelRoute, LinkCommand, LinkId, Relay, relayed_payload};
use weft_wire::NodeAddr;
use weft_wire::fast::{Bind, Bound, LEAST_PAYLOAD, Refusal, Unbind, UnbindBy};
use weft_wire::link::{BIND, BOUND, UNBIND};

use super::{Node, Peer};
use crate::Event;
use crate::labels::{Incoming, LIFE, MAX_REQUESTS, REFRESH, REQUEST_AGAIN, RETRY, RETRY_SOON, Stage, USE};

impl Node {
    /// Handles a session in use: if its path is relayed, its fast frames need a label from the next
    /// hop.
    pub(super) fn relay_session(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr).filter(|peer| peer.configured) else {
            return;
        };
        let Some(link) = peer.session.wants_label().filter(|_| self.ctx.config.mesh) else {
            return;
        };
        let arrives = peer.session.hears_over(now, link);
        self.want_label(now, link, addr, now + USE);
        if arrives {
            self.labels.retry_early(now, link, addr);
        }
        let relay = self
            .labels
            .bound(link, addr)
            .map(|(label, mtu)| Relay { link, label, mtu });
        self.with_peer(addr, |ctx, peer| {
            peer.session.set_relay(ctx, now, relay);
            peer.session.follow_path(ctx, now, peer.link.path());
        });
    }

    /// Handles proven keys for relayed frames of a neighbour: label requests that waited for them
    /// continue.
    pub(super) fn handle_hop_proven(&mut self, now: u64, link: LinkId, id: EpochId) {
        self.with_link(link, |_, peer| peer.link.handle_hop_proven(id));
        let waits = |incoming: &Incoming| incoming.to == Some(link) && !incoming.told;
        let incoming = self.labels.incoming.iter().filter(|(_, incoming)| waits(incoming));
        for (from, label) in incoming.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.serve(now, from, label);
        }
        let sessions = self.peers.iter().filter(|(_, p)| p.session.next_hop() == Some(link));
        for addr in sessions.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            self.relay_session(now, addr);
        }
    }

    /// Handles a neighbour's request to forward frames.
    pub(super) fn handle_bind(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Ok(Bind { label, dest }) = Bind::parse(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        if !self.ctx.config.mesh || !self.ctx.config.fast || self.is_apart(link) {
            return;
        }
        let (label, until) = (Label(label), now + LIFE);
        match self.labels.incoming.get_mut(&(link, label)) {
            Some(incoming) if incoming.dest == dest => incoming.until = until,
            other => {
                if other.is_some() {
                    self.remove_incoming(link, label);
                }
                let (to, told) = (None, false);
                let incoming = Incoming { dest, to, told, until };
                if !self.labels.admit(link, label, incoming) {
                    self.counters.labels_refused += 1;
                    self.answer_bind(link, label, Err(Refusal::Quota));
                    return;
                }
            }
        }
        self.serve(now, link, label);
    }

    /// Handles a neighbour's answer to a bind of this node.
    pub(super) fn handle_bound(&mut self, now: u64, link: LinkId, body: &[u8]) {
        let Ok(Bound { label, answer }) = Bound::parse(body) else {
            self.counters.messages_malformed += 1;
            return;
        };
        let Some(dest) = self.labels.dest_of(link, Label(label)) else {
            return;
        };
        match answer {
            Err(why) => {
                self.lose_label(now, link, dest, RETRY);
                if why == Refusal::NoWay {
                    self.labels.may_hurry(now, link, dest);
                }
            }
            Ok(told) if told < LEAST_PAYLOAD => {
                self.ctx.path_counters.refused += 1;
                if let Some(peer) = self.by_link.get(&link).and_then(|addr| self.peers.get(addr))
                    && self.labels.may_tell_refusal(now)
                {
                    let peer = peer.key();
                    self.ctx.event(Event::SizeRefused { peer, told });
                }
                self.lose_label(now, link, dest, RETRY);
            }
            Ok(mtu) => {
                let Some(outgoing) = self.labels.outgoing.get_mut(&(link, dest)) else {
                    return;
                };
                let known = outgoing.stage == Stage::Bound(mtu);
                (outgoing.stage, outgoing.hurried) = (Stage::Bound(mtu), 0);
                outgoing.next = now + REFRESH;
                if !known {
                    // Frames that take another route go directly to the destination from now on.
                    let straight = self.by_link.get(&link) == Some(&dest);
                    let incoming = match straight {
                        true => self.labels.towards(dest),
                        false => self.labels.leading(link, dest),
                    };
                    for (from, label) in incoming {
                        self.serve(now, from, label);
                    }
                    self.relay_session(now, dest);
                }
            }
        }
    }

    /// Handles the end of a label that the neighbour requested, or that this node did.
    pub(super) fn handle_unbind(&mut self, now: u64, link: LinkId, body: &[u8]) {
        match Unbind::parse(body) {
            Ok(Unbind {
                label,
                by: UnbindBy::Upstream,
            }) => self.remove_incoming(link, Label(label)),
            Ok(Unbind {
                label,
                by: UnbindBy::Downstream,
            }) => {
                if let Some(dest) = self.labels.dest_of(link, Label(label)) {
                    self.lose_label(now, link, dest, RETRY_SOON);
                    self.labels.may_hurry(now, link, dest);
                }
            }
            Err(_) => self.counters.messages_malformed += 1,
        }
    }

    /// Handles a neighbour's frames whose label has no route.
    pub(super) fn handle_label_failed(&mut self, link: LinkId, label: Label) {
        self.remove_incoming(link, label);
        self.unbind(link, label, UnbindBy::Downstream);
    }

    /// Binds the labels in use again, and ends those that are not.
    pub(super) fn drive_labels(&mut self, now: u64) {
        if now < self.labels.deadline() {
            return;
        }
        let expired = self
            .labels
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.until <= now);
        for (link, label) in expired.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.counters.labels_expired += 1;
            self.remove_incoming(link, label);
        }
        let due = self.labels.outgoing.iter().filter(|(_, outgoing)| outgoing.next <= now);
        for (link, dest) in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.drive_label(now, link, dest);
        }
        self.labels.settle();
    }

    fn drive_label(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        let wanted = self.labels.is_wanted(now, link, dest);
        let Some(label) = self.labels.outgoing.get(&(link, dest)).map(|outgoing| outgoing.label) else {
            return;
        };
        if wanted {
            self.bind_label(now, link, dest);
        } else {
            self.lose_label(now, link, dest, 0);
            self.labels.outgoing.remove(&(link, dest));
            self.unbind(link, label, UnbindBy::Upstream);
        }
    }

    /// Requests a label from the next hop, or requests that it keep one.
    fn bind_label(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        let Some(outgoing) = self.labels.outgoing.get_mut(&(link, dest)) else {
            return;
        };
        let label = outgoing.label.0;
        match outgoing.stage {
            Stage::Requesting(MAX_REQUESTS) => {
                self.lose_label(now, link, dest, RETRY);
                return;
            }
            Stage::Requesting(asks) => {
                outgoing.stage = Stage::Requesting(asks + 1);
                outgoing.next = now + (REQUEST_AGAIN << asks);
            }
            // The answer postpones the next request.
            Stage::Bound(_) => outgoing.next = now + RETRY_SOON,
            Stage::Refused => {
                (outgoing.stage, outgoing.hurried) = (Stage::Requesting(1), 0);
                outgoing.next = now + REQUEST_AGAIN;
            }
        }
        let mut body = vec![0; Bind::LEN];
        if (Bind { label, dest }).emit(&mut body).is_ok() {
            self.send_label_message(link, BIND, body);
        }
    }

    /// Installs the route for frames with a neighbour's label once the next hop is known to accept
    /// them, and reports it to the neighbour.
    fn serve(&mut self, now: u64, link: LinkId, label: Label) {
        let (Some(incoming), Some(from)) = (
            self.labels.incoming.get(&(link, label)).copied(),
            self.by_link.get(&link).copied(),
        ) else {
            return;
        };
        let most = relayed_payload(self.ctx.config.probe, self.ctx.config.mtu);
        if incoming.dest == self.ctx.me {
            self.carry(link, label, None, LabelRoute::Here);
            self.answer_bind(link, label, Ok(most));
            return;
        }
        if !self.ctx.config.transit {
            return self.refuse(link, label, Refusal::NoTransit);
        }
        let Some(to) = self.next_link(now, &incoming, from) else {
            return self.refuse(link, label, Refusal::NoWay);
        };
        if !self.want_label(now, to, incoming.dest, 0) {
            return self.refuse(link, label, Refusal::Quota);
        }
        let refused = |outgoing: &crate::labels::Outgoing| outgoing.stage == Stage::Refused;
        if let Some((next, mtu)) = self.labels.bound(to, incoming.dest) {
            self.carry(link, label, Some(to), LabelRoute::On { link: to, label: next });
            self.answer_bind(link, label, Ok(mtu.min(most)));
        } else if self.labels.outgoing.get(&(to, incoming.dest)).is_some_and(refused) {
            self.refuse(link, label, Refusal::NoWay);
        } else if !incoming.told
            && let Some(incoming) = self.labels.incoming.get_mut(&(link, label))
        {
            incoming.to = Some(to);
        }
    }

    /// Returns the link for frames to a destination. A route that works is kept, unless the
    /// destination itself has become a neighbour.
    fn next_link(&mut self, now: u64, incoming: &Incoming, from: NodeAddr) -> Option<LinkId> {
        let dest = incoming.dest;
        let preferred = self.mesh.next_hop(now, dest, Some(from));
        let used = self.next_hop_in_use(now, dest, Some(from)).map(|(_, via)| via);
        let via = if preferred == Some(dest) {
            preferred
        } else {
            used.or(preferred)
        };
        let answers = |peer: &&Peer| peer.link.is_up() && !peer.link.health.is_silent();
        let link = |via: NodeAddr| self.peers.get(&via).filter(answers).map(|p| p.link.id);
        let next = via.and_then(link);
        match incoming.to.filter(|_| incoming.told) {
            Some(to) if next.is_none_or(|next| preferred != Some(dest) || self.labels.bound(next, dest).is_none()) => {
                if let Some(next) = next.filter(|_| preferred == Some(dest)) {
                    self.want_label(now, next, dest, 0);
                }
                Some(to)
            }
            _ => next,
        }
    }

    /// Requests a label from a neighbour that will be the next hop of a session.
    pub(super) fn prepare_relay(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        let fast = self
            .peers
            .get(&dest)
            .is_some_and(|peer| peer.session.wants_label().is_some());
        if fast {
            self.want_label(now, link, dest, now + USE);
        }
    }

    /// Requests a label from the next hop, if it can have one. Returns `false` if labels for other
    /// nodes have used up their limit there.
    fn want_label(&mut self, now: u64, link: LinkId, dest: NodeAddr, ours: u64) -> bool {
        let Some(hop) = self.by_link.get(&link).and_then(|hop| self.peers.get_mut(hop)) else {
            return true;
        };
        if !hop.link.carries_relayed() {
            hop.link.want_relayed(&mut self.ctx, now);
            return true;
        }
        let news = !self.labels.outgoing.contains_key(&(link, dest));
        let admitted = self.labels.ask(now, link, dest, ours);
        if news && admitted {
            // No served label uses it before it is bound, so nothing shows yet that it is wanted.
            self.bind_label(now, link, dest);
        }
        admitted
    }

    fn carry(&mut self, link: LinkId, label: Label, to: Option<LinkId>, carry: LabelRoute) {
        if let Some(incoming) = self.labels.incoming.get_mut(&(link, label)) {
            (incoming.to, incoming.told) = (to, true);
            self.ctx.change_link(link, LinkCommand::SetLabel { label, to: carry });
        }
    }

    fn refuse(&mut self, link: LinkId, label: Label, why: Refusal) {
        self.counters.labels_refused += 1;
        self.remove_incoming(link, label);
        self.answer_bind(link, label, Err(why));
    }

    fn remove_incoming(&mut self, link: LinkId, label: Label) {
        if self
            .labels
            .incoming
            .remove(&(link, label))
            .is_some_and(|incoming| incoming.told)
        {
            self.ctx.change_link(link, LinkCommand::RemoveLabel { label });
        }
    }

    /// Handles a requested label that has become unusable: the neighbours that used it receive an
    /// unbind, and the label is requested again in `again` ms.
    fn lose_label(&mut self, now: u64, link: LinkId, dest: NodeAddr, again: u64) {
        if let Some(outgoing) = self.labels.outgoing.get_mut(&(link, dest)) {
            (outgoing.stage, outgoing.next, outgoing.early) = (Stage::Refused, now + again, u64::MAX);
            self.labels.wake(now + again);
        }
        for (from, label) in self.labels.leading(link, dest) {
            let told = self
                .labels
                .incoming
                .get(&(from, label))
                .is_some_and(|incoming| incoming.told);
            if told {
                self.remove_incoming(from, label);
                self.unbind(from, label, UnbindBy::Downstream);
            } else {
                self.refuse(from, label, Refusal::NoWay);
            }
        }
        self.with_peer(dest, |ctx, peer| {
            if peer.session.relay().is_some_and(|relay| relay.link == link) {
                peer.session.set_relay(ctx, now, None);
            }
        });
    }

    /// Ends all labels over a link that can forward no more: it is down, silent, or without keys
    /// for relayed frames.
    pub(super) fn lose_next_hop(&mut self, now: u64, link: LinkId) {
        let over = self.labels.outgoing.keys().filter(|(over, _)| *over == link);
        for (link, dest) in over.copied().collect::<Vec<_>>() {
            self.lose_label(now, link, dest, 0);
            self.labels.outgoing.remove(&(link, dest));
        }
        // Some served labels may still wait for its keys.
        let waits = self
            .labels
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.to == Some(link));
        for (from, label) in waits.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.refuse(from, label, Refusal::NoWay);
        }
    }

    /// Forgets the labels of a link whose neighbour has come up or gone down and has lost its own
    /// state.
    pub(super) fn forget_labels(&mut self, now: u64, link: LinkId) {
        self.lose_next_hop(now, link);
        let from = self.labels.incoming.range((link, Label(0))..=(link, Label(u32::MAX)));
        for (link, label) in from.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove_incoming(link, label);
        }
    }

    fn answer_bind(&mut self, link: LinkId, label: Label, answer: Result<u16, Refusal>) {
        let mut body = vec![0; Bound::LEN];
        if (Bound { label: label.0, answer }).emit(&mut body).is_ok() {
            self.send_label_message(link, BOUND, body);
        }
    }

    fn unbind(&mut self, link: LinkId, label: Label, by: UnbindBy) {
        let mut body = vec![0; Unbind::LEN];
        if (Unbind { label: label.0, by }).emit(&mut body).is_ok() {
            self.send_label_message(link, UNBIND, body);
        }
    }

    fn send_label_message(&mut self, link: LinkId, msg_type: u8, body: Vec<u8>) {
        if let Some(to) = self.by_link.get(&link).copied() {
            self.send_to_neighbour(to, msg_type, body);
        }
    }
}

#[cfg(test)]
mod tests;
