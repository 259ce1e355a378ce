//! How large packets to a node may be, and what becomes of those that are larger.

use weft_wire::NodeAddr;
use weft_wire::fast::{FULL_OVERHEAD, Fragment, IPV6_OVERHEAD as FAST_OVERHEAD, SURE_PAYLOAD};

use super::Lane;
use crate::control::PathSize;
use crate::fast::{ELIDED, MAX_FRAGMENTED, Way};
use crate::frame::IPV6_OVERHEAD;
use crate::mss;

/// A packet of this length passes wherever there is IPv6 (RFC 8200 section 5), bytes.
const IPV6_LEAST: usize = 1_280;
/// A path that nothing is known of.
const UNKNOWN: PathSize = PathSize {
    payload: SURE_PAYLOAD,
    settled: false,
};

/// What frames to a node have room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// They are fast frames, which go this way.
    pub(crate) fast: Option<Way>,
    /// TCP segments that are too large are cut anew, here and at the other end, so the hosts need not know what fits.
    pub(crate) splits: bool,
    /// The other end reads frames of packets with all of their header.
    reads_full: bool,
    /// This is about such packets.
    full: bool,
    /// The largest UDP payload, bytes.
    payload: u16,
    /// That will not be more in a moment.
    settled: bool,
}

impl Room {
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

    /// What [`Room::max_fragmented`] is for a packet with all of its header, by its IP version and whether its sender lets it
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
        self.room_to(peer).max_inner()
    }

    /// What a frame to this node has room for.
    pub(crate) fn room_to(&self, peer: &NodeAddr) -> Room {
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
            // Each hop has told what it takes, which is better than what FIPS frames have met on the way.
            Some((_, Way::Relayed(relay))) => PathSize {
                payload: self.config.mtu.min(relay.mtu),
                settled: true,
            },
            _ => set,
        };
        Room {
            fast: keys.map(|(_, way)| way),
            reads_full: keys.is_some_and(|(keys, _)| keys.reads_full),
            full: false,
            splits: self.config.probe && session.is_some_and(|session| session.splits),
            payload: keys.map_or(size.payload, |(keys, _)| size.payload.min(keys.max_payload)),
            settled: size.settled,
        }
    }
}
