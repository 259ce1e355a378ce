//! How often an idle link shows that it is there, and how long a silent peer counts as present.
//!
//! A link without payload for [`IDLE_AFTER`] is idle. Weft nodes then tell each other how often they
//! will send ([`Keepalive`]): each end what its own NAT or firewall needs, nothing if there is none. An
//! end sends less often than FIPS demands only while it knows that the peer has its interval, and that
//! interval decides how long it may be silent.
//!
//! What ends the agreement is seen by both ends, or makes both exchange frames: payload, a probe, new
//! keys. An end with payload is not idle and answers no keepalive, so the other one sends as often as
//! before. So a peer that is needed and gone is noticed as soon. A late peer is probed before it counts
//! as gone, so that no lost datagram ends a link.

use weft_wire::keepalive::Keepalive;
use weft_wire::link::{LinkMessageType, PROBE};

use super::Link;
use crate::Config;
use crate::context::Context;

/// A link without payload for this long is idle, in ms.
const IDLE_AFTER: u64 = 60_000;
/// What a keepalive may be late, in ms. Then the peer is probed.
const LATE: u64 = 2_000;
/// The time between two such probes, and since the last frame that was sent, in ms.
const PROBE_AGAIN: u64 = 1_000;
/// A peer that has answered none of them is gone after this, in ms.
const GONE: u64 = 8_000;

/// What the ends of an idle link have told each other, since there was an agreement for the first time.
/// Times are ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Idle {
    /// The interval of the peer, in s.
    theirs: Option<u16>,
    /// The interval of this node that the peer has, in s.
    ours: Option<u16>,
    /// Whether there was an agreement when the mesh was last told.
    mesh_knows: bool,
    /// When payload, or a jump of the clock, has ended an agreement last.
    active: u64,
}

impl Idle {
    /// Whether both ends have told each other.
    const fn is_agreed(&self) -> bool {
        self.theirs.is_some() && self.ours.is_some()
    }

    /// The keepalive of this node, if its interval is `wanted`, in s.
    fn message(&self, wanted: u16) -> Keepalive {
        Keepalive {
            interval: wanted,
            heard: self.theirs,
            asks: self.ours != Some(wanted),
        }
    }
}

impl Link {
    fn idle(&self) -> Idle {
        self.idle.as_deref().copied().unwrap_or_default()
    }

    /// Whether the link is idle, and both ends know how often the other one sends.
    pub(super) fn is_agreed(&self) -> bool {
        self.idle().is_agreed()
    }

    /// Ends the agreement: the ends make another one if the link is idle.
    pub(super) fn renew_agreement(&mut self) {
        if let Some(idle) = &mut self.idle {
            (idle.theirs, idle.ours) = (None, None);
        }
    }

    /// Ends the agreement, if there is one, since the link is not idle at `now`.
    pub(super) fn end_agreement(&mut self, now: u64) {
        if let Some(idle) = self.idle.as_mut().filter(|idle| idle.theirs.or(idle.ours).is_some()) {
            (idle.theirs, idle.ours, idle.active) = (None, None, now);
        }
    }

    /// Whether the link is one between weft nodes, and idle.
    fn is_idle(&self, now: u64) -> bool {
        let active = self.liveness.last_payload().max(self.idle().active);
        self.observed.is_told() && now >= active.max(self.up_since.unwrap_or(0)) + IDLE_AFTER
    }

    /// Whether both ends have agreed, if that has changed since the last call.
    pub(crate) fn agreement_change(&mut self) -> Option<bool> {
        let idle = self.idle.as_mut()?;
        let agreed = idle.is_agreed();
        (std::mem::replace(&mut idle.mesh_knows, agreed) != agreed).then_some(agreed)
    }

    /// The interval that this node's own NAT needs on the way to the peer, in s.
    fn wanted_interval(&self, ctx: &Context) -> u16 {
        self.path
            .map_or(ctx.keepalive.ipv4, |path| ctx.keepalive.to(path.remote()))
    }

    /// Returns when this node will have sent nothing for too long.
    pub(super) fn quiet_at(&self, ctx: &Context) -> u64 {
        let wanted = self.wanted_interval(ctx);
        match self.idle().ours {
            Some(0) if wanted == 0 => u64::MAX,
            Some(ours) if ours == wanted => self.liveness.quiet_at(u64::from(ours) * 1_000),
            _ => self.liveness.quiet_at(ctx.config.heartbeat),
        }
    }

    /// Returns when the peer will have been silent for too long.
    pub(super) fn dead_at(&self, ctx: &Context) -> u64 {
        let heard = self.liveness.last_heard();
        self.while_up(match self.idle().theirs {
            None => heard.max(self.idle().active) + ctx.config.link_dead,
            Some(0) => u64::MAX,
            Some(theirs) => heard + u64::from(theirs) * 1_000 + GONE,
        })
    }

    /// Returns when a peer whose keepalive is late is probed.
    pub(super) fn late_at(&self) -> u64 {
        let heard = self.liveness.last_heard();
        self.while_up(match self.idle().theirs {
            None | Some(0) => u64::MAX,
            Some(theirs) => (heard + u64::from(theirs) * 1_000 + LATE).max(self.liveness.quiet_at(PROBE_AGAIN)),
        })
    }

    /// Probes a peer whose keepalive is late.
    pub(super) fn probe_late(&mut self, ctx: &mut Context, now: u64) {
        self.liveness.said(now);
        self.send(ctx, PROBE, Vec::new());
    }

    /// Returns when the keys are replaced, if those of a link with payload are replaced at `plain`.
    pub(super) fn rekey_unless_idle(&self, ctx: &Context, plain: u64) -> u64 {
        if !self.is_agreed() {
            return plain;
        }
        let later = (ctx.config.key_life() * 9 / 10).saturating_sub(ctx.config.rekey);
        plain.saturating_add(later)
    }

    /// Returns when keys that were born at `born` are reported as overdue.
    pub(super) fn overdue_unless_idle(&self, config: &Config, born: u64) -> u64 {
        if self.is_agreed() {
            return born + config.key_life() * 19 / 20;
        }
        // The keys of a link that was idle may be older, and are replaced now.
        let grace = config.key_overdue().saturating_sub(config.rekey);
        (born + config.key_overdue()).max(self.idle().active + grace)
    }

    /// Returns the keepalive that takes the place of a heartbeat that is due now. Once both ends know
    /// both intervals, any frame does.
    pub(super) fn keepalive_due(&self, ctx: &Context, now: u64) -> Option<Keepalive> {
        let message = self.idle().message(self.wanted_interval(ctx));
        let is_news = message.asks || message.heard.is_none();
        (is_news && self.is_idle(now)).then_some(message)
    }

    /// Sends a keepalive.
    pub(super) fn send_keepalive(&mut self, ctx: &mut Context, now: u64, message: Keepalive) {
        self.liveness.said(now);
        self.send(ctx, LinkMessageType::Heartbeat.to_byte(), message.to_bytes().to_vec());
    }

    /// Handles a keepalive of the peer.
    pub(crate) fn handle_keepalive(&mut self, ctx: &mut Context, now: u64, said: Keepalive) {
        if !self.is_up() || !self.is_idle(now) {
            return;
        }
        let wanted = self.wanted_interval(ctx);
        let idle = self.idle.get_or_insert_default();
        (idle.theirs, idle.ours) = (Some(said.interval), said.heard);
        if said.asks {
            let answer = idle.message(wanted);
            self.send_keepalive(ctx, now, answer);
        }
    }

    /// Ends the agreement if payload has passed since `before`.
    pub(super) fn note_payload(&mut self, before: u64) {
        let last = self.liveness.last_payload();
        if last > before {
            self.end_agreement(last);
        }
        if let Some(choice) = &mut self.choice {
            choice.note_payload(before, last);
        }
    }
}
