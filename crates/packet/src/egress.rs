//! The frames that packets to a node go in: their kind, path and size.
//!
//! They follow from the tables. The result is kept with the session until the tables change:
//! [`Lane::tables_changed`].

use weft_wire::NodeAddr;
use weft_wire::fast::{FULL_OVERHEAD, Fragment, IPV6_OVERHEAD as FAST_OVERHEAD, SURE_PAYLOAD};

use crate::control::PathSize;
use crate::fast::{ELIDED, MAX_FRAGMENTED, Way};
use crate::frame::IPV6_OVERHEAD;
use crate::lane::Lane;
use crate::mss;
use crate::session::Session;

/// The size of a packet that every IPv6 path takes, in bytes (RFC 8200 section 5).
const IPV6_LEAST: usize = 1_280;
/// The assumed size of a path before probes have shown any.
const UNKNOWN: PathSize = PathSize {
    payload: SURE_PAYLOAD,
    settled: false,
};

/// The frames that packets to a node go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Whether the session and the link under it can both seal FIPS frames.
    pub(crate) ready: bool,
    /// The path of fast frames, or `None` if packets go in FIPS frames.
    pub(crate) fast: Option<Way>,
    /// Whether TCP segments that are too large are cut smaller, here and at the peer, so that the
    /// hosts need not know the size that fits.
    pub(crate) splits: bool,
    /// Whether the peer reads frames of packets with their whole header.
    reads_full: bool,
    /// Whether this value describes packets with their whole header.
    full: bool,
    /// The largest UDP payload, in bytes.
    payload: u16,
    /// Whether no larger payload is expected soon.
    settled: bool,
}

impl Egress {
    /// Returns the same value for packets with their whole header.
    pub(crate) fn full(self) -> Self {
        Self { full: true, ..self }
    }

    /// Returns whether this value describes packets with their whole header.
    pub(crate) fn is_full(self) -> bool {
        self.full
    }

    /// Returns whether the peer reads packets with their whole header.
    pub(crate) fn reads_full(self) -> bool {
        self.reads_full
    }

    /// Like [`Egress::max_fragmented`] for a packet with its whole header, by its IP version and
    /// whether its sender allows fragmentation. IPv4 guarantees no size, and a packet that may be
    /// fragmented may always go in pieces.
    pub(crate) fn max_in_pieces(self, ipv6: bool, may_be_cut: bool) -> usize {
        let longest = match (ipv6, may_be_cut, self.settled) {
            (_, true, _) | (_, _, false) => Fragment::MAX_TOTAL,
            (true, false, true) => self.max_inner().max(IPV6_LEAST),
            (false, false, true) => self.max_inner(),
        };
        self.joinable(longest)
    }

    /// Returns how many bytes of a packet one frame with a piece holds.
    pub(crate) fn max_piece(self) -> usize {
        let before = self.fast.map_or(0, |way| way.link().1);
        usize::from(self.payload).saturating_sub(before + Fragment::OVERHEAD)
    }

    /// Returns the longest packet of at most `longest` bytes that the peer reassembles, or that
    /// fits one frame.
    fn joinable(self, longest: usize) -> usize {
        let elided = if self.full { 0 } else { ELIDED };
        let most = Fragment::MAX_PIECES * self.max_piece() + elided;
        longest.min(most.max(self.max_inner()))
    }

    /// Returns the size of the largest IP packet in one frame, in bytes.
    pub(crate) fn max_inner(self) -> usize {
        usize::from(self.payload).saturating_sub(self.overhead())
    }

    /// Returns the size of the largest TCP packet that the hosts shall agree on, in bytes; see
    /// [`Lane::max_tcp`].
    pub(crate) fn max_tcp(self) -> usize {
        if self.splits {
            return usize::from(u16::MAX);
        }
        usize::from(mss::cautious_payload(self.payload)).saturating_sub(self.overhead())
    }

    /// Returns the size of the largest IP packet that can be sent at all, in bytes: in pieces if
    /// necessary. While probes of the path are under way, no host receives a Packet Too Big for
    /// what pieces can hold, because systems remember it for minutes.
    pub(crate) fn max_fragmented(self) -> usize {
        match (self.fast, self.settled) {
            (None, _) => self.max_inner(),
            (Some(_), true) => self.joinable(self.max_inner().max(IPV6_LEAST)),
            (Some(_), false) => self.joinable(MAX_FRAGMENTED),
        }
    }

    /// Returns whether frames with packets of this length, in bytes, are larger than what every
    /// path takes.
    pub(crate) fn is_large(self, packet: usize) -> bool {
        packet + self.overhead() > usize::from(SURE_PAYLOAD)
    }

    /// Returns the size of the largest frame, in bytes.
    pub(crate) fn payload(self) -> u16 {
        self.payload
    }

    /// Returns the difference between the length of a frame and that of its packet, in bytes.
    fn overhead(self) -> usize {
        let more = if self.full { FULL_OVERHEAD - FAST_OVERHEAD } else { 0 };
        self.fast.map_or(IPV6_OVERHEAD, Way::overhead) + more
    }
}

impl Lane {
    /// Returns the size of the largest IP packet in one frame to this node, in bytes.
    pub fn max_inner_to(&self, peer: &NodeAddr) -> usize {
        self.resolve_egress(peer).max_inner()
    }

    /// Returns the frames that packets to this node go in.
    #[inline]
    pub(crate) fn egress(&mut self, peer: &NodeAddr) -> Egress {
        let version = self.version;
        let known = self.sessions.get(peer).and_then(|session| session.egress);
        match known {
            Some((known, egress)) if known == version => egress,
            _ => self.publish_egress(peer),
        }
    }

    /// Records that the tables, or the keys in them, have changed: kept values are resolved again.
    pub(crate) fn tables_changed(&mut self) {
        self.version = self.version.wrapping_add(1);
    }

    /// Records that keys are spent, so that they are not chosen again.
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

    /// Like [`Lane::egress`], from the tables alone.
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
            // Each hop has announced its size, which is more exact than what FIPS frames have met
            // on the path.
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
