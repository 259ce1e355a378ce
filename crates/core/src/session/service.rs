//! Messages of services: what waits for the session, and what they mean for it.
//!
//! Those that arrive keep the session from becoming idle. Those that are sent do not: the peer may be
//! gone. They count for nothing else: neither as data whose path has to be found to work, nor as an
//! answer of the peer.

use weft_contract::SendCommand;
use weft_wire::session::DataPorts;

use super::Session;
use crate::context::Context;

/// Messages of services that wait for one session.
const MAX_WAITING: usize = 16;
/// The bytes of those messages.
const MAX_WAITING_BYTES: usize = 4_096;
/// How long a message waits, in ms. Its sender has sent it again by then.
const WAIT: u64 = 10_000;

/// Messages that wait for a session, and since when the first one does.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    since: u64,
    bytes: usize,
    messages: Vec<(DataPorts, Vec<u8>)>,
}

impl Session {
    /// Sends a message of a service. Returns false while the session is not up or has no link.
    pub(crate) fn send_service(&self, ctx: &mut Context, ports: DataPorts, bytes: &[u8]) -> bool {
        let ready = self.is_up() && self.link.is_some();
        if ready {
            self.emit_service(ctx, ports, bytes.to_vec());
        }
        ready
    }

    /// Sends a message with a type of its own: an offer or answer about NATs, or a control frame. Returns
    /// false while the session is not up or has no link.
    pub(crate) fn send_aside(&self, ctx: &mut Context, msg_type: u8, body: &[u8]) -> bool {
        let ready = self.is_up() && self.link.is_some();
        if ready {
            ctx.lane(SendCommand::OnSession {
                peer: self.peer.node_addr(),
                epoch: None,
                msg_type,
                body: body.to_vec(),
            });
        }
        ready
    }

    /// Keeps a message until the session is up. Returns whether there was room, and how many
    /// messages were dropped.
    pub(crate) fn keep_service(&mut self, now: u64, ports: DataPorts, bytes: &[u8]) -> (bool, u64) {
        let old = self.services.as_ref().is_some_and(|waiting| waiting.is_old(now));
        let mut dropped = if old { self.drop_services() } else { 0 };
        let waiting = self.services.get_or_insert_with(|| {
            let since = now;
            Box::new(Waiting {
                since,
                ..Waiting::default()
            })
        });
        let room = waiting.messages.len() < MAX_WAITING && waiting.bytes + bytes.len() <= MAX_WAITING_BYTES;
        if room {
            waiting.bytes += bytes.len();
            waiting.messages.push((ports, bytes.to_vec()));
        } else {
            dropped += 1;
        }
        (room, dropped)
    }

    /// Sends what waits, if the session can carry it now.
    pub(super) fn flush_services(&mut self, ctx: &mut Context, now: u64) {
        if !self.is_up() || self.link.is_none() {
            return;
        }
        let Some(waiting) = self.services.take() else { return };
        if waiting.is_old(now) {
            return;
        }
        for (ports, bytes) in waiting.messages {
            self.emit_service(ctx, ports, bytes);
        }
    }

    /// Drops what waits, and returns how many messages that were.
    pub(crate) fn drop_services(&mut self) -> u64 {
        self.services.take().map_or(0, |waiting| waiting.messages.len() as u64)
    }

    /// Notes that a message of a service or a control frame arrived: the session is in use. A node of nvpn
    /// that gets no report of it for 5 s takes the session for broken, and makes new keys.
    pub(crate) fn note_service(&mut self, now: u64) {
        self.last_data = self.last_data.max(now);
        if !self.is_with_weft() {
            self.reports.want();
        }
    }

    fn emit_service(&self, ctx: &mut Context, ports: DataPorts, bytes: Vec<u8>) {
        let peer = self.peer.node_addr();
        ctx.lane(SendCommand::Service { peer, ports, bytes });
    }
}

impl Waiting {
    fn is_old(&self, now: u64) -> bool {
        now.saturating_sub(self.since) > WAIT
    }
}
