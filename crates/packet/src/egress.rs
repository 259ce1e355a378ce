//! What packets to a node go in: which frames, over which path, how large.
//!
//! It follows from the tables and is kept with the session until they change: [`Lane::tables_changed`].

use weft_wire::NodeAddr;
use weft_wire::fast::{FULL_OVERHEAD, Fragment, IPV6_OVERHEAD as FAST_OVERHEAD, SURE_PAYLOAD};

use crate::control::PathSize;
use crate::fast::{ELIDED, MAX_FRAGMENTED, Way};
use crate::frame::IPV6_OVERHEAD;
use crate::lane::Lane;
use crate::mss;
use crate::session::Session;

/// A packet of this length passes wherever there is IPv6 (RFC 8200 section 5), bytes.
const IPV6_LEAST: usize = 1_280;
/// A path that nothing is known of.
const UNKNOWN: PathSize = PathSize {
    payload: SURE_PAYLOAD,
    settled: false,
};

/// What packets to a node go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    /// The session and the link under it can both seal FIPS frames.
    pub(crate) ready: bool,
    /// They go in fast frames, by this path.
    pub(crate) fast: Option<Way>,
    /// TCP segments that are too large are cut anew, here and at the peer, so the hosts need not know what fits.
    pub(crate) splits: bool,
    /// The peer reads frames of packets with all of their header.
    reads_full: bool,
    /// This is about such packets.
    full: bool,
    /// The largest UDP payload, bytes.
    payload: u16,
    /// That will not be more in a moment.
    settled: bool,
}

impl Egress {
    /// The same for packets with all of their header.
    pub(crate) fn full(self) -> Self {
        Self { full: true, ..self }
    }

    /// Whether this is about such packets.
    pub(crate) fn is_full(self) -> bool {
        self.full
    }

    /// Whether such can go.
    pub(crate) fn reads_full(self) -> bool {
        self.reads_full
    }

    /// What [`Egress::max_fragmented`] is for a packet with all of its header, by its IP version and whether its sender lets it
    /// be cut. IPv4 promises no size, and what may be cut may always go in pieces.
    pub(crate) fn max_in_pieces(self, ipv6: bool, may_be_cut: bool) -> usize {
        let longest = match (ipv6, may_be_cut, self.settled) {
            (_, true, _) | (_, _, false) => Fragment::MAX_TOTAL,
            (true, false, true) => self.max_inner().max(IPV6_LEAST),
            (false, false, true) => self.max_inner(),
        };
        self.joinable(longest)
    }

    /// What a frame with a piece has room for, bytes.
    pub(crate) fn max_piece(self) -> usize {
        let before = self.fast.map_or(0, |way| way.link().1);
        usize::from(self.payload).saturating_sub(before + Fragment::OVERHEAD)
    }

    /// The longest packet of at most `longest` bytes that the other end puts together, or that fits one frame.
    fn joinable(self, longest: usize) -> usize {
        let elided = if self.full { 0 } else { ELIDED };
        let most = Fragment::MAX_PIECES * self.max_piece() + elided;
        longest.min(most.max(self.max_inner()))
    }

    /// The largest IP packet in one frame, bytes.
    pub(crate) fn max_inner(self) -> usize {
        usize::from(self.payload).saturating_sub(self.overhead())
    }

    /// The largest TCP packet that the hosts shall agree on, bytes; see [`Lane::max_tcp`].
    pub(crate) fn max_tcp(self) -> usize {
        if self.splits {
            return usize::from(u16::MAX);
        }
        usize::from(mss::cautious_payload(self.payload)).saturating_sub(self.overhead())
    }

    /// The largest IP packet at all, bytes: in pieces if need be. While it is being found out what the path takes, no host is
    /// told that a packet is too big, because systems remember that for minutes.
    pub(crate) fn max_fragmented(self) -> usize {
        match (self.fast, self.settled) {
            (None, _) => self.max_inner(),
            (Some(_), true) => self.joinable(self.max_inner().max(IPV6_LEAST)),
            (Some(_), false) => self.joinable(MAX_FRAGMENTED),
        }
    }

    /// Whether frames with packets of this length, bytes, are above what every path takes.
    pub(crate) fn is_large(self, packet: usize) -> bool {
        packet + self.overhead() > usize::from(SURE_PAYLOAD)
    }

    /// The largest frame, bytes.
    pub(crate) fn payload(self) -> u16 {
        self.payload
    }

    /// What a frame has more than the packet in it, bytes.
    fn overhead(self) -> usize {
        let more = if self.full { FULL_OVERHEAD - FAST_OVERHEAD } else { 0 };
        self.fast.map_or(IPV6_OVERHEAD, Way::overhead) + more
    }
}

impl Lane {
    /// The largest IP packet that fits one frame to this node, bytes.
    pub fn max_inner_to(&self, peer: &NodeAddr) -> usize {
        self.resolve_egress(peer).max_inner()
    }

    /// What packets to this node go in.
    #[inline]
    pub(crate) fn egress(&mut self, peer: &NodeAddr) -> Egress {
        let version = self.version;
        let known = self.sessions.get(peer).and_then(|session| session.egress);
        match known {
            Some((known, egress)) if known == version => egress,
            _ => self.publish_egress(peer),
        }
    }

    /// The tables, or the keys in them, have changed: what packets go in is resolved anew.
    pub(crate) fn tables_changed(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Keys that may seal nothing more are not chosen again.
    pub(crate) fn note_spent(&mut self, spent: bool) {
        if spent {
            self.tables_changed();
        }
    }

    #[cold]
    fn publish_egress(&mut self, peer: &NodeAddr) -> Egress {
        let egress = self.resolve_egress(peer);
        if let Some(session) = self.sessions.get_mut(peer) {
            session.egress = Some((self.version, egress));
        }
        egress
    }

    /// The same from the tables alone.
    pub(crate) fn resolve_egress(&self, peer: &NodeAddr) -> Egress {
        let session = self.sessions.get(peer);
        let keys = session.and_then(|session| self.fast_keys(session, peer));
        let limit = session.and_then(|session| session.limit).unwrap_or(u16::MAX);
        let set = PathSize {
            payload: self.config.mtu.min(limit),
            settled: true,
        };
        let size = match keys {
            Some((_, Way::Direct(_))) if self.config.probe => {
                session.and_then(|session| session.size).unwrap_or(UNKNOWN)
            }
            // Each hop has told what it takes, which is better than what FIPS frames have met on the path.
            Some((_, Way::Relayed(relay))) => PathSize {
                payload: self.config.mtu.min(relay.mtu),
                settled: true,
            },
            _ => set,
        };
        Egress {
            ready: session.is_some_and(|session| self.is_ready(session)),
            fast: keys.map(|(_, way)| way),
            reads_full: keys.is_some_and(|(keys, _)| keys.reads_full),
            full: false,
            splits: self.config.probe && session.is_some_and(|session| session.splits),
            payload: keys.map_or(size.payload, |(keys, _)| size.payload.min(keys.max_payload)),
            settled: size.settled,
        }
    }

    fn is_ready(&self, session: &Session) -> bool {
        let link = session.link.and_then(|id| self.links.get(&id));
        session.epochs.current().is_some() && link.is_some_and(|link| link.epochs.current().is_some())
    }
}
