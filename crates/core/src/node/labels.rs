//! Routes of relayed fast frames: labels requested from the next hop, and labels served to the
//! previous hop.
//!
//! A path is bound from its destination: a neighbour accepts a label once it is the destination
//! itself or its next hop has accepted one. Until then, and when any part of the path is lost, data
//! goes in FIPS frames, which have routes of their own. docs/protocol/fast.md, "Labels".

use weft_packet::{Carry, EpochId, Label, LinkCommand, LinkId, Relay};
use weft_wire::NodeAddr;
use weft_wire::fast::{Bind, Bound, LEAST_PAYLOAD, Refusal, Unbind, UnbindBy};
use weft_wire::link::{BIND, BOUND, UNBIND};

use super::Node;
use crate::Event;
use crate::labels::{ASK_AGAIN, LIFE, MAX_ASKS, REFRESH, RETRY, RETRY_SOON, Served, Stage, USE};

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
        self.want_label(now, link, addr, now + USE);
        let relay = self
            .labels
            .bound(link, addr)
            .map(|(label, mtu)| Relay { link, label, mtu });
        self.with_peer(addr, |ctx, peer| peer.session.set_relay(ctx, now, relay));
    }

    /// Handles proven keys for relayed frames of a neighbour: label requests that waited for them
    /// continue.
    pub(super) fn handle_hop_proven(&mut self, now: u64, link: LinkId, id: EpochId) {
        self.with_link(link, |_, peer| peer.link.handle_hop_proven(id));
        let waits = |served: &Served| served.to == Some(link) && !served.told;
        let served = self.labels.served.iter().filter(|(_, served)| waits(served));
        for (from, label) in served.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.serve(now, from, label);
        }
        let sessions = self.peers.iter().filter(|(_, p)| p.session.route() == Some(link));
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
        if !self.ctx.config.mesh || !self.ctx.config.fast {
            return;
        }
        let (label, until) = (Label(label), now + LIFE);
        match self.labels.served.get_mut(&(link, label)) {
            Some(served) if served.dest == dest => served.until = until,
            other => {
                if other.is_some() {
                    self.unserve(link, label);
                }
                let (to, told) = (None, false);
                let served = Served { dest, to, told, until };
                if !self.labels.admit(link, label, served) {
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
            Err(_) => self.lose_label(now, link, dest, RETRY),
            Ok(told) if told < LEAST_PAYLOAD => {
                self.ctx.path_counters.refused += 1;
                if let Some(peer) = self.by_link.get(&link).and_then(|addr| self.peers.get(addr))
                    && self.labels.may_tell_refusal(now)
                {
                    let peer = peer.key;
                    self.ctx.event(Event::SizeRefused { peer, told });
                }
                self.lose_label(now, link, dest, RETRY);
            }
            Ok(mtu) => {
                let Some(asked) = self.labels.asked.get_mut(&(link, dest)) else {
                    return;
                };
                let known = asked.stage == Stage::Bound(mtu);
                asked.stage = Stage::Bound(mtu);
                asked.next = now + REFRESH;
                if !known {
                    // Frames that take another route go directly to the destination from now on.
                    let straight = self.by_link.get(&link) == Some(&dest);
                    let served = match straight {
                        true => self.labels.towards(dest),
                        false => self.labels.leading(link, dest),
                    };
                    for (from, label) in served {
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
            }) => self.unserve(link, Label(label)),
            Ok(Unbind {
                label,
                by: UnbindBy::Downstream,
            }) => {
                if let Some(dest) = self.labels.dest_of(link, Label(label)) {
                    self.lose_label(now, link, dest, RETRY_SOON);
                }
            }
            Err(_) => self.counters.messages_malformed += 1,
        }
    }

    /// Handles a neighbour's frames whose label has no route.
    pub(super) fn handle_label_failed(&mut self, link: LinkId, label: Label) {
        self.unserve(link, label);
        self.unbind(link, label, UnbindBy::Downstream);
    }

    /// Binds the labels in use again, and ends those that are not.
    pub(super) fn drive_labels(&mut self, now: u64) {
        if now < self.labels.deadline() {
            return;
        }
        let expired = self.labels.served.iter().filter(|(_, served)| served.until <= now);
        for (link, label) in expired.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.counters.labels_expired += 1;
            self.unserve(link, label);
        }
        let due = self.labels.asked.iter().filter(|(_, asked)| asked.next <= now);
        for (link, dest) in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.drive_label(now, link, dest);
        }
        self.labels.settle();
    }

    fn drive_label(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        let wanted = self.labels.is_wanted(now, link, dest);
        let Some(label) = self.labels.asked.get(&(link, dest)).map(|asked| asked.label) else {
            return;
        };
        if wanted {
            self.bind_label(now, link, dest);
        } else {
            self.lose_label(now, link, dest, 0);
            self.labels.asked.remove(&(link, dest));
            self.unbind(link, label, UnbindBy::Upstream);
        }
    }

    /// Requests a label from the next hop, or requests that it keep one.
    fn bind_label(&mut self, now: u64, link: LinkId, dest: NodeAddr) {
        let Some(asked) = self.labels.asked.get_mut(&(link, dest)) else {
            return;
        };
        let label = asked.label.0;
        match asked.stage {
            Stage::Asking(MAX_ASKS) => {
                self.lose_label(now, link, dest, RETRY);
                return;
            }
            Stage::Asking(asks) => {
                asked.stage = Stage::Asking(asks + 1);
                asked.next = now + (ASK_AGAIN << asks);
            }
            // The answer postpones the next request.
            Stage::Bound(_) => asked.next = now + RETRY_SOON,
            Stage::Refused => {
                asked.stage = Stage::Asking(1);
                asked.next = now + ASK_AGAIN;
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
        let (Some(served), Some(from)) = (
            self.labels.served.get(&(link, label)).copied(),
            self.by_link.get(&link).copied(),
        ) else {
            return;
        };
        if served.dest == self.ctx.me {
            self.carry(link, label, None, Carry::Here);
            self.answer_bind(link, label, Ok(self.ctx.config.mtu));
            return;
        }
        if !self.ctx.config.transit {
            return self.refuse(link, label, Refusal::NoTransit);
        }
        let Some(to) = self.next_link(now, &served, from) else {
            return self.refuse(link, label, Refusal::NoWay);
        };
        if !self.want_label(now, to, served.dest, 0) {
            return self.refuse(link, label, Refusal::Quota);
        }
        let refused = |asked: &crate::labels::Asked| asked.stage == Stage::Refused;
        if let Some((next, mtu)) = self.labels.bound(to, served.dest) {
            self.carry(link, label, Some(to), Carry::On { link: to, label: next });
            self.answer_bind(link, label, Ok(mtu.min(self.ctx.config.mtu)));
        } else if self.labels.asked.get(&(to, served.dest)).is_some_and(refused) {
            self.refuse(link, label, Refusal::NoWay);
        } else if !served.told
            && let Some(served) = self.labels.served.get_mut(&(link, label))
        {
            served.to = Some(to);
        }
    }

    /// Returns the link for frames to a destination. A route that works is kept, unless the
    /// destination itself has become a neighbour.
    fn next_link(&mut self, now: u64, served: &Served, from: NodeAddr) -> Option<LinkId> {
        let dest = served.dest;
        let preferred = self.mesh.next_hop(now, dest, Some(from));
        let used = self.way_in_use(now, dest, Some(from)).map(|(_, via)| via);
        let via = if preferred == Some(dest) {
            preferred
        } else {
            used.or(preferred)
        };
        let link = |via: NodeAddr| self.peers.get(&via).filter(|p| p.link.is_trusted()).map(|p| p.link.id);
        let next = via.and_then(link);
        match served.to.filter(|_| served.told) {
            Some(to) if next.is_none_or(|next| preferred != Some(dest) || self.labels.bound(next, dest).is_none()) => {
                if let Some(next) = next.filter(|_| preferred == Some(dest)) {
                    self.want_label(now, next, dest, 0);
                }
                Some(to)
            }
            _ => next,
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
        let news = !self.labels.asked.contains_key(&(link, dest));
        let asked = self.labels.ask(now, link, dest, ours);
        if news && asked {
            // No served label uses it before it is bound, so nothing shows yet that it is wanted.
            self.bind_label(now, link, dest);
        }
        asked
    }

    fn carry(&mut self, link: LinkId, label: Label, to: Option<LinkId>, carry: Carry) {
        if let Some(served) = self.labels.served.get_mut(&(link, label)) {
            (served.to, served.told) = (to, true);
            self.ctx.to_link(link, LinkCommand::SetLabel { label, to: carry });
        }
    }

    fn refuse(&mut self, link: LinkId, label: Label, why: Refusal) {
        self.counters.labels_refused += 1;
        self.unserve(link, label);
        self.answer_bind(link, label, Err(why));
    }

    fn unserve(&mut self, link: LinkId, label: Label) {
        if self
            .labels
            .served
            .remove(&(link, label))
            .is_some_and(|served| served.told)
        {
            self.ctx.to_link(link, LinkCommand::RemoveLabel { label });
        }
    }

    /// Handles a requested label that has become unusable: the neighbours that used it receive an
    /// unbind, and the label is requested again in `again` ms.
    fn lose_label(&mut self, now: u64, link: LinkId, dest: NodeAddr, again: u64) {
        if let Some(asked) = self.labels.asked.get_mut(&(link, dest)) {
            (asked.stage, asked.next) = (Stage::Refused, now + again);
            self.labels.wake(now + again);
        }
        for (from, label) in self.labels.leading(link, dest) {
            let told = self.labels.served.get(&(from, label)).is_some_and(|served| served.told);
            if told {
                self.unserve(from, label);
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
        let over = self.labels.asked.keys().filter(|(over, _)| *over == link);
        for (link, dest) in over.copied().collect::<Vec<_>>() {
            self.lose_label(now, link, dest, 0);
            self.labels.asked.remove(&(link, dest));
        }
        // Some served labels may still wait for its keys.
        let waits = self.labels.served.iter().filter(|(_, served)| served.to == Some(link));
        for (from, label) in waits.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.refuse(from, label, Refusal::NoWay);
        }
    }

    /// Forgets the labels of a link whose neighbour has come up or gone down and has lost its own
    /// state.
    pub(super) fn forget_labels(&mut self, now: u64, link: LinkId) {
        self.lose_next_hop(now, link);
        let from = self.labels.served.range((link, Label(0))..=(link, Label(u32::MAX)));
        for (link, label) in from.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.unserve(link, label);
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
