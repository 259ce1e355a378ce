//! The state that a node keeps of one other node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_contract::Bucket;
use weft_noise::PublicKey;

use super::guests::Guest;
use crate::Quality;
use crate::context::Context;
use crate::link::Link;
use crate::path::PathHistory;
use crate::progress::Progress;
use crate::session::Session;

/// A configured peer, or a neighbour that is not configured.
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) session: Session,
    pub(crate) paths: PathHistory,
    /// The state of the connection at the last look.
    pub(crate) progress: Progress,
    /// The hosts from which the lane expects the peer's handshakes.
    pub(crate) expected: Option<Vec<IpAddr>>,
    /// The configuration names this peer, so IP packets may pass. Other nodes are neighbours only
    /// while they are linked.
    pub(crate) configured: bool,
    /// The stay of a guest.
    pub(crate) guest: Option<Guest>,
    /// What offers, answers and control frames of the peer may still cost, once one came.
    pub(crate) asides: Option<Box<Bucket>>,
    /// When the peer is due, as the queue of [`Peers`] has it; `u64::MAX` if it is not in the
    /// queue.
    pub(crate) queued: u64,
}

impl Peer {
    /// The peer's public key.
    pub(crate) fn key(&self) -> PublicKey {
        self.link.peer
    }

    /// Returns when something authentic was last received, if it ever was.
    pub(crate) fn last_heard(&self) -> Option<u64> {
        let link = self.link.liveness.totals().last_rx;
        Some(link.max(self.session.liveness.last_heard())).filter(|at| *at > 0)
    }

    /// Returns when the peer next needs attention, and for what.
    pub(super) fn due(&self, ctx: &Context) -> (u64, &'static str) {
        let look = if self.configured { self.progress.next } else { u64::MAX };
        let stay = self.guest.map_or(u64::MAX, |guest| guest.until);
        let times = [
            self.link.deadline(ctx),
            self.session.deadline(ctx),
            (stay, "stay of a guest"),
            (look, "state of a peer"),
        ];
        times.into_iter().min_by_key(|(at, _)| *at).unwrap_or((u64::MAX, ""))
    }

    /// Whether messages of services pass: it is configured, or a guest.
    pub(super) fn speaks(&self) -> bool {
        self.configured || self.guest.is_some()
    }

    /// Returns the hosts where the peer is expected, in order.
    pub(super) fn hosts(&self) -> Vec<IpAddr> {
        let hosts: BTreeSet<IpAddr> = self.link.expected().iter().map(|at| at.ip().to_canonical()).collect();
        hosts.into_iter().collect()
    }

    /// Whether this is a neighbour that is not configured and whose link has ended.
    pub(super) fn is_gone(&self) -> bool {
        !self.configured && self.link.epochs_held() == 0
    }

    /// Returns the quality of the hop to this peer. The link does not count data in fast frames,
    /// but the session does.
    pub(crate) fn hop_quality(&self, now: u64) -> Quality {
        let link = self.link.metrics.quality(now);
        if !self.session.is_fast() {
            return link;
        }
        let session = self.session.metrics.quality(now);
        // Reports about sessions may be disabled while those about links are enabled.
        Quality {
            rtt_us: session.rtt_us.or(link.rtt_us),
            rtt_variation_us: session.rtt_variation_us.or(link.rtt_variation_us),
            loss_out: session.loss_out.or(link.loss_out),
            etx: session.etx.or(link.etx),
            ..session
        }
    }
}
