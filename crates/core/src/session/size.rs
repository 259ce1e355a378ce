//! How large the frames of a session may be: what we send, and what the other end is told of what it sends.

use weft_packet::Command;
use weft_wire::session::{PathMtuNotification, SessionMessageType};

use super::Session;
use crate::context::Context;
use crate::path_mtu::PathMtu;

impl Session {
    /// The largest UDP payload that we send in this session, bytes, if it was ever in question.
    pub(crate) fn path_mtu_out(&self) -> Option<u16> {
        self.mtu.as_ref().map(PathMtu::current)
    }

    /// The smallest link on the way to us, as the last frame told.
    pub(crate) fn path_mtu_in(&self) -> Option<u16> {
        self.watch.seen()
    }

    /// The other end tells what our frames have met on their way.
    pub(crate) fn handle_path_mtu(&mut self, ctx: &mut Context, now: u64, told: u16) {
        let srtt = self.metrics.srtt();
        if self.size(ctx).handle_told(now, told, srtt) {
            self.limit(ctx);
        }
    }

    /// A node on the way claims that a frame of ours was too large.
    pub(crate) fn handle_mtu_exceeded(&mut self, ctx: &mut Context, now: u64, claimed: u16) {
        if self.is_up() && self.size(ctx).handle_hint(now, claimed) {
            self.limit(ctx);
        }
    }

    /// The path is another one.
    pub(super) fn handle_moved(&mut self, ctx: &mut Context) {
        self.metrics.handle_moved();
        if self.mtu.as_mut().is_some_and(PathMtu::handle_moved) {
            self.limit(ctx);
        }
    }

    /// When the other end is told of the path to us.
    pub(super) fn told_at(&self) -> u64 {
        if !self.is_up() || self.link.is_none() || self.finishing.is_some() {
            return u64::MAX;
        }
        let packets = self.liveness.totals().rx_payload;
        self.watch.due(packets, self.metrics.srtt())
    }

    pub(super) fn tell_path_mtu(&mut self, ctx: &mut Context, now: u64) {
        let Some(path_mtu) = self.watch.tell(now, self.liveness.totals().rx_payload) else {
            return;
        };
        let mut body = vec![0; PathMtuNotification::LEN];
        if (PathMtuNotification { path_mtu }).emit(&mut body).is_ok() {
            self.liveness.said(now);
            ctx.lane(Command::SendOnSession {
                peer: self.peer.node_addr(),
                epoch: None,
                msg_type: SessionMessageType::PathMtuNotification.to_byte(),
                body,
            });
        }
    }

    fn size(&mut self, ctx: &Context) -> &mut PathMtu {
        self.mtu.get_or_insert_with(|| PathMtu::new(ctx.config.mtu))
    }

    fn limit(&self, ctx: &mut Context) {
        if let Some(mtu) = self.path_mtu_out() {
            let peer = self.peer.node_addr();
            ctx.lane(Command::LimitSession { peer, mtu });
        }
    }
}
