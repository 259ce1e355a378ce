//! The reports of the lanes: each goes to the link or session that it is about.

use weft_contract::{
    EpochId, Layer, LinkActivity, LinkId, LinkReport, Measured, Report, SessionActivity, SessionReport,
};
use weft_wire::session::SessionKind;
use weft_wire::{NodeAddr, fast};

use super::Node;
use super::progress::Subject;
use super::signals::Cause;

impl Node {
    /// Handles a report of the lane with this number, from 0. The lanes other than the first report
    /// on fast frames only: the same as the first one does, for frames of their own.
    pub fn handle_report_of(&mut self, now: u64, lane: u8, report: Report) {
        if self.ctx.config.lanes <= 1 {
            return self.handle_report(now, report);
        }
        let merged = match report {
            Report::Activity { links, sessions } => {
                let links = links.into_iter().map(|told| self.lanes.link(lane, told)).collect();
                let sessions = sessions.into_iter().map(|told| self.lanes.session(lane, told));
                let sessions = sessions.collect();
                Report::Activity { links, sessions }
            }
            Report::Measured(Layer::Session(peer), measured) => {
                let Some(all) = self.lanes.measured(peer, lane, measured) else {
                    return;
                };
                Report::Measured(Layer::Session(peer), all)
            }
            Report::Session(peer, SessionReport::FastProven { id, .. }) if lane > 0 => {
                return self.with_peer(peer, |_, p| p.session.handle_lane_proven(now, id, lane));
            }
            other => other,
        };
        self.handle_report(now, merged);
    }

    /// Handles one report of a lane.
    pub fn handle_report(&mut self, now: u64, report: Report) {
        let subject = Subject::of(&report);
        match report {
            Report::Handshake { from, datagram } => self.handle_handshake(now, from, &datagram),
            Report::Outside { from, datagram } => self.ctx.outside(from, datagram),
            Report::Link(link, report) => self.handle_link_report(now, link, report),
            Report::Session(peer, report) => self.handle_session_report(now, peer, report),
            Report::Measured(on, measured) => self.handle_measured(now, on, &measured),
            Report::Activity { links, sessions } => self.handle_activity(now, &links, &sessions),
            // Peers that speak WireGuard are none of the core's.
            Report::WireGuard { .. } | Report::WireGuardTraffic(..) => {}
        }
        self.note_progress_of(now, &subject);
    }

    fn handle_link_report(&mut self, now: u64, link: LinkId, report: LinkReport) {
        match report {
            LinkReport::EarlyFrame { index } => {
                self.with_link(link, |_, peer| peer.link.handle_early_frame(now, index));
            }
            LinkReport::Proven { index, path, proven } => {
                let Some(addr) = self.by_link.get(&link).copied() else {
                    return;
                };
                let Some(peer) = self.peers.get_mut(&addr) else { return };
                let effect = peer.link.handle_proven(&mut self.ctx, now, index, path, proven);
                self.apply(now, addr, effect);
            }
            LinkReport::Roamed { path, room } => {
                self.with_link(link, |ctx, peer| peer.link.handle_roamed(ctx, now, path, room));
            }
            LinkReport::Message { index, msg_type, body } => {
                self.handle_link_message(now, link, index, msg_type, &body);
            }
            LinkReport::Probed { from, number, kind } => {
                self.with_link(link, |ctx, peer| {
                    peer.link.handle_path_probe(ctx, now, from, (number, kind));
                });
            }
            LinkReport::HopProven { id } => self.handle_hop_proven(now, link, id),
            LinkReport::LabelFailed { label } => self.handle_label_failed(link, label),
            LinkReport::Transit { body } => self.handle_transit(now, link, body),
            LinkReport::TransitTooLarge { src, dest, len } => {
                self.handle_too_large(now, Cause { link, src, dest, len });
            }
            LinkReport::UnknownSession { src } => self.handle_unknown_session(now, link, src),
        }
    }

    fn handle_session_report(&mut self, now: u64, peer: NodeAddr, report: SessionReport) {
        match report {
            SessionReport::Proven { id } => self.with_peer(peer, |ctx, p| p.session.handle_proven(ctx, now, id)),
            SessionReport::Confirmed { id } => self.with_peer(peer, |ctx, p| p.session.handle_confirmed(ctx, now, id)),
            SessionReport::FastProven { id, direct } => self.with_peer(peer, |ctx, p| {
                p.session.handle_fast_proven(ctx, now, id, direct);
                p.session.follow_path(ctx, now, p.link.path());
            }),
            SessionReport::Message { id, msg_type, body } => self.handle_session_message(now, peer, id, msg_type, body),
            SessionReport::Service { ports, bytes } => self.handle_service(now, peer, ports, bytes),
            SessionReport::Wanted => self.handle_wanted(now, peer),
            SessionReport::Arrives { link } => self.handle_arrival(now, peer, link),
            // The reply is for the caller that asked the lane.
            SessionReport::EchoReply { .. } => {}
        }
    }

    /// Handles a sealed session message. Each kind has its place here, and a type that no kind has is
    /// counted.
    fn handle_session_message(&mut self, now: u64, peer: NodeAddr, id: EpochId, msg_type: u8, body: Vec<u8>) {
        let Some(kind) = SessionKind::from_byte(msg_type) else {
            self.counters.messages_unknown += 1;
            return;
        };
        match kind {
            SessionKind::Capabilities => {
                self.with_peer(peer, |ctx, p| p.session.handle_capabilities(ctx, now, id, &body));
            }
            SessionKind::CapabilitiesAck => {
                self.with_peer(peer, |_, p| p.session.handle_capabilities_ack(id, &body));
            }
            SessionKind::ProbeAnswer => {
                self.with_peer(peer, |ctx, p| p.session.handle_probe_answer(ctx, now, &body));
                self.follow_size(now, peer);
            }
            SessionKind::RelayProbeAnswer => self.handle_relay_answer(now, peer, &body),
            SessionKind::PathMtuNotification => self.handle_path_mtu(now, peer, &body),
            SessionKind::Traversal(kind) => self.handle_traversal(now, peer, kind, body),
            SessionKind::WholePacket => self.handle_control(now, peer, body),
            // The lane has accounted for them, or they ask nothing of this node.
            SessionKind::Alive
            | SessionKind::Data
            | SessionKind::SenderReport
            | SessionKind::ReceiverReport
            | SessionKind::CoordsWarmup => {}
            // In another frame than the one that they are for.
            SessionKind::Confirm | SessionKind::Phase | SessionKind::Probe | SessionKind::RelayProbe => {
                self.counters.messages_unknown += 1;
            }
        }
    }

    fn handle_measured(&mut self, now: u64, on: Layer, measured: &Measured) {
        match on {
            Layer::Link(link) => {
                self.with_link(link, |_, p| {
                    p.link.metrics.handle_report(now, measured);
                });
                self.note_cost(now, link);
            }
            Layer::Session(addr) => {
                self.with_peer(addr, |_, p| p.session.handle_report(now, measured));
                self.note_relayed_quality(now, addr);
                let fast = self.peers.get(&addr).filter(|p| p.session.is_fast());
                if let Some(link) = fast.map(|p| p.link.id) {
                    self.note_cost(now, link);
                }
            }
        }
    }

    /// Handles a frame from a neighbour that no session of this node opens. The neighbour is
    /// authenticated, but may have forged the frame. So it leads only to a handshake, at a low
    /// rate.
    fn handle_unknown_session(&mut self, now: u64, link: LinkId, src: NodeAddr) {
        let Some(from) = self.by_link.get(&link).copied() else {
            return;
        };
        if from != src && !self.ctx.config.mesh {
            return;
        }
        self.mesh.learn_next_hop(now, src, from);
        self.reroute_one(now, src);
        self.with_peer(src, |ctx, p| {
            if p.configured {
                p.session.handle_unknown(ctx, now, link);
            }
        });
    }

    fn handle_activity(&mut self, now: u64, links: &[LinkActivity], sessions: &[SessionActivity]) {
        for activity in links {
            self.with_link(activity.link, |_, p| p.link.handle_activity(now, activity));
            self.follow_health_of(now, activity.link);
            self.follow_idleness(now, activity.link);
        }
        for activity in sessions {
            self.with_peer(activity.peer, |ctx, p| {
                let refused = activity.path_mtu.is_some_and(|mtu| mtu < fast::LEAST_PAYLOAD);
                ctx.path_counters.refused += u64::from(refused);
                p.session.handle_activity(now, activity);
            });
            self.confirm_route(now, activity.peer);
            self.relay_session(now, activity.peer);
            self.note_relayed(now, activity.peer);
        }
    }
}
