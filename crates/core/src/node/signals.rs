//! Error signals: what this node reports to the source of a message that it could not forward, and
//! how it reacts to the signals of others.
//!
//! The source of a message may be forged, and then a signal goes to a node that asked for nothing.
//! So a signal is never longer than the message that caused it, and the number of signals is
//! bounded for each incoming link and in total. A received signal proves nothing. It makes this
//! node look the peer up and send the coordinates of both ends to the nodes on the path, at most
//! once a second.

use std::collections::BTreeMap;

use weft_contract::{Bucket, LinkId, Rate, SendCommand};
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::signal::{CoordsRequired, MtuExceeded, PathBroken, Signal};
use weft_wire::{Coords, NodeAddr};

use super::Node;

/// Minimum time between two error signals about one destination that messages of one link cause, in
/// ms (FIPS: 100 for a destination).
const PAUSE: u64 = 100;
/// Maximum number of destinations for which that time is remembered.
const MAX_DESTINATIONS: usize = 1_024;
/// The rate of signals that messages of one link cause.
const OF_LINK: Rate = Rate {
    per_second: 32,
    burst: 64,
};
/// The rate of all signals together.
const ALL: Rate = Rate {
    per_second: 128,
    burst: 256,
};
/// Number of links above which those whose budget has filled up again are forgotten.
const MANY: usize = 128;
/// A session whose payload was answered within this time has a working path, whatever signals
/// report, in ms. Time without traffic proves nothing.
const SILENCE: u64 = 500;

/// The budgets of signals. Times are ms on the caller's clock.
#[derive(Debug)]
pub(super) struct Signals {
    /// When a signal about a destination was last sent, by link: a neighbour that names a
    /// destination does not delay signals about it to others.
    sent: BTreeMap<(LinkId, NodeAddr), u64>,
    of_link: BTreeMap<LinkId, Bucket>,
    all: Bucket,
}

/// Why nodes on the path are sent the coordinates of both ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// An error signal was received.
    Asked,
    /// The path changed, or the coordinates of an end did.
    Moved,
}

/// The message that caused a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// The link that it was received over.
    pub(super) link: LinkId,
    /// The source in its header.
    pub(super) src: NodeAddr,
    /// Its destination.
    pub(super) dest: NodeAddr,
    /// Its length as the body of a link message, in bytes.
    pub(super) len: usize,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            sent: BTreeMap::new(),
            of_link: BTreeMap::new(),
            all: Bucket::new(ALL, 0),
        }
    }
}

impl Signals {
    /// Takes a signal from the budgets and returns whether it may be sent. Returns `Some(false)` if
    /// too many were caused, and `None` if the source has just received one.
    fn take(&mut self, now: u64, cause: Cause) -> Option<bool> {
        let last = self.sent.get(&(cause.link, cause.dest)).copied();
        if last.is_some_and(|at| now.saturating_sub(at) < PAUSE) {
            return None;
        }
        if self.of_link.len() >= MANY && !self.of_link.contains_key(&cause.link) {
            self.of_link.retain(|_, share| !share.is_full(OF_LINK, now));
        }
        let share = self.of_link.entry(cause.link);
        let share = share.or_insert_with(|| Bucket::new(OF_LINK, now));
        if share.take(OF_LINK, now, 1) == 0 || self.all.take(ALL, now, 1) == 0 {
            return Some(false);
        }
        if self.sent.len() >= MAX_DESTINATIONS {
            self.sent.retain(|_, at| now.saturating_sub(*at) < PAUSE);
        }
        self.sent.insert((cause.link, cause.dest), now);
        Some(true)
    }
}

impl Node {
    /// Handles the report of a node on the path that it could not forward a message of this node.
    /// The report is not proven. So it causes a look-up, and another path only if nothing of the
    /// session was heard lately.
    pub(super) fn handle_signal(&mut self, now: u64, link: LinkId, signal: &Signal<'_>) {
        let dest = match signal {
            Signal::CoordsRequired(s) => s.dest,
            Signal::PathBroken(s) => s.dest,
            Signal::MtuExceeded(s) => return self.handle_mtu_exceeded(now, link, s.dest, s.mtu),
        };
        let Some(peer) = self.peers.get_mut(&dest) else { return };
        if peer.link.is_healthy() || !peer.session.needs_route() {
            return;
        }
        let silent = now >= peer.session.liveness.unanswered_at(SILENCE);
        let via = peer
            .session
            .next_hop()
            .and_then(|link| self.by_link.get(&link))
            .copied();
        let broken = via.filter(|_| silent && matches!(signal, Signal::PathBroken(_)));
        let doubted = broken.filter(|_| peer.session.doubts.take(now));
        let asks = peer.session.asks.take(now);
        if let Some(via) = doubted {
            self.mesh.suspect_route(now, dest, via);
            self.reroute_one(now, dest);
        }
        if asks {
            self.warm(now, dest, Why::Asked);
        }
        if asks || doubted.is_some() {
            self.look_up(now, dest);
        }
        self.run_mesh(now);
    }

    /// Handles the claim of a node on the path that a frame of this node is too large for it. The
    /// claim has to come over the link of the path.
    fn handle_mtu_exceeded(&mut self, now: u64, link: LinkId, dest: NodeAddr, mtu: u16) {
        let Some(peer) = self.peers.get_mut(&dest) else { return };
        if peer.session.next_hop() == Some(link) && peer.link.id != link {
            peer.session.handle_mtu_exceeded(&mut self.ctx, now, mtu);
        }
    }

    /// Sends the coordinates of both ends of a session to the nodes on the path: at once, or when a
    /// second has passed since the last time for this reason.
    pub(super) fn warm(&mut self, now: u64, addr: NodeAddr, why: Why) {
        let Some(peer) = self.peers.get_mut(&addr).filter(|p| p.session.is_up()) else {
            return;
        };
        let session = &mut peer.session;
        let (src, dest) = session.coords.clone();
        let pace = match why {
            Why::Asked => &mut session.warms,
            Why::Moved => &mut session.moves,
        };
        if src.is_empty() || dest.is_empty() || !pace.take(now) {
            return;
        }
        self.ctx.lane(SendCommand::Warm { peer: addr, src, dest });
    }

    /// Sends them if that was postponed and is due.
    pub(super) fn drive_warm(&mut self, now: u64, addr: NodeAddr) {
        let Some(session) = self.peers.get_mut(&addr).map(|peer| &mut peer.session) else {
            return;
        };
        if session.warms.due().min(session.moves.due()) <= now {
            session.warms.forget();
            session.moves.forget();
            self.warm(now, addr, Why::Asked);
        }
    }

    /// Reports that no route leads on, or none that answers.
    pub(super) fn signal_no_way(&mut self, now: u64, cause: Cause) {
        let (dest, reporter) = (cause.dest, self.ctx.me);
        match self.mesh.coords_of(now, dest).map(<[NodeAddr]>::to_vec) {
            None => self.signal_lost_source(now, cause),
            Some(coords) => {
                let broken = |coords| {
                    let last_coords = Coords::new(coords);
                    Signal::PathBroken(PathBroken {
                        dest,
                        reporter,
                        last_coords,
                    })
                };
                // A signal without coordinates is better than no signal.
                if !self.signal(now, cause, broken(&coords)) {
                    self.signal(now, cause, broken(&[]));
                }
            }
        }
    }

    /// Reports that the coordinates of an end are not known here.
    pub(super) fn signal_lost_source(&mut self, now: u64, cause: Cause) {
        let (dest, reporter) = (cause.dest, self.ctx.me);
        self.signal(now, cause, Signal::CoordsRequired(CoordsRequired { dest, reporter }));
    }

    /// Reports that the message does not fit the next link.
    pub(super) fn signal_too_big(&mut self, now: u64, cause: Cause, mtu: u16) {
        let (dest, reporter) = (cause.dest, self.ctx.me);
        self.signal(now, cause, Signal::MtuExceeded(MtuExceeded { dest, reporter, mtu }));
    }

    /// Reports to the source of a message that it could not be forwarded, at a bounded rate.
    /// Returns `false` if the signal would be longer than the message.
    fn signal(&mut self, now: u64, cause: Cause, signal: Signal<'_>) -> bool {
        let mut payload = vec![0; 64 + 16 * 64];
        let Ok(len) = signal.emit(&mut payload) else {
            return false;
        };
        let datagram = SessionDatagram {
            ttl: SessionDatagram::DEFAULT_TTL,
            path_mtu: self.ctx.config.mtu,
            src: self.ctx.me,
            dest: cause.src,
            payload: payload.get(..len).unwrap_or_default(),
        };
        if datagram.wire_len() > cause.len {
            return false;
        }
        let Some(next) = self.mesh.next_hop(now, cause.src, None) else {
            return true;
        };
        match self.signals.take(now, cause) {
            Some(true) => {}
            Some(false) => {
                self.counters.signals_refused += 1;
                return true;
            }
            None => return true,
        }
        let mut body = vec![0; datagram.wire_len()];
        if datagram.emit(&mut body).is_ok() {
            self.send_to_neighbour(next, LinkMessageType::SessionDatagram.to_byte(), body);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(link: u32, dest: u32) -> Cause {
        let mut addr = [9; 16];
        addr[..4].copy_from_slice(&dest.to_be_bytes());
        Cause {
            link: LinkId(link),
            src: NodeAddr::new([1; 16]),
            dest: NodeAddr::new(addr),
            len: 100,
        }
    }

    #[test]
    fn one_link_causes_a_bounded_number_and_leaves_others_theirs() {
        let mut signals = Signals::default();
        // 10,000 a second for 10 s, each about another destination.
        let sent = |signals: &mut Signals, link| {
            let causes = (0..100_000).map(|n| (n / 10, cause(link, n as u32)));
            causes
                .filter(|(now, cause)| signals.take(*now, *cause) == Some(true))
                .count()
        };
        assert_eq!(sent(&mut signals, 1), 64 + 319);
        assert!(signals.sent.len() <= MAX_DESTINATIONS);
        assert_eq!(signals.take(10_000, cause(2, 1)), Some(true));
        assert_eq!(signals.take(10_050, cause(2, 1)), None);
        assert_eq!(
            signals.take(10_050, cause(3, 1)),
            Some(true),
            "another link has its own"
        );
        for link in 0..1_000 {
            signals.take(20_000 + u64::from(link) * 10_000, cause(link, link));
        }
        assert!(signals.of_link.len() <= MANY);
    }

    #[test]
    fn all_links_together_cause_a_bounded_number() {
        let mut signals = Signals::default();
        let causes = (0..100_000).map(|n| (n / 10, cause(n as u32 % 20, n as u32)));
        let sent = causes.filter(|(now, cause)| signals.take(*now, *cause) == Some(true));
        assert!(sent.count() <= 256 + 1_280);
    }
}
