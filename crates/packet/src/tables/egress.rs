//! The frames that packets to a node go in: their encapsulation, path and size.
//!
//! They follow from the tables (`resolve`).

use weft_wire::fast::{self, FULL_OVERHEAD, Fragment, IPV6_OVERHEAD, IPV6_RELAYED_OVERHEAD, SMALL_PAYLOAD};
use weft_wire::ip::Ipv6Header;

use super::slab::{LinkKey, SessionKey};
use crate::fips::{IPV6_OVERHEAD as FIPS_OVERHEAD, SESSION_OVERHEAD};
use crate::mss;
use crate::wireguard::MESSAGE_OVERHEAD;

/// The size of a packet that every IPv6 path takes, in bytes (RFC 8200 section 5).
const IPV6_LEAST: usize = 1_280;

/// The largest packet with its whole header in a FIPS frame, in bytes: the MTU of nvpn's interface, its
/// UDP payload of 1,280 less 130 (nvpn 4.1.19).
pub(crate) const MAX_WHOLE: usize = 1_150;
/// How many bytes the content of a packet's frame is shorter than the packet: the IPv6 header less
/// the part of it that remains.
pub(crate) const ELIDED: usize = Ipv6Header::LEN - fast::IPV6_REST;
/// The longest packet that can be cut, in bytes.
pub(crate) const MAX_FRAGMENTED: usize = Fragment::MAX_TOTAL + ELIDED;
/// The encapsulation of packets and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    /// FIPS frames, over a link with any neighbour.
    Fips,
    /// FIPS frames of packets with their whole header, as nodes of nvpn read them.
    FipsWhole,
    /// Direct records of packets with their whole header, between neighbours.
    Direct,
    /// Data messages of WireGuard, whose packets have their whole header.
    WireGuard,
    /// Fast frames, over the link with the peer itself.
    Fast,
    /// Fast frames, relayed by the neighbour under this label.
    Relayed {
        /// The label by which the neighbour knows the peer.
        label: u32,
    },
}

impl Encapsulation {
    /// Returns whether these are fast frames, relayed or not.
    #[inline]
    pub(crate) const fn is_fast(self) -> bool {
        self.properties().fast
    }

    /// Returns whether these have packets with their whole header, in no other form.
    #[inline]
    pub(crate) const fn is_whole(self) -> bool {
        matches!(self, Self::FipsWhole | Self::Direct | Self::WireGuard)
    }

    /// Returns the offset of the frame to the peer in what is sent over the link, in bytes.
    #[inline]
    pub(crate) const fn inner_at(self) -> usize {
        self.properties().inner_at
    }

    /// Returns what is known of these frames: every encapsulation states all of it here.
    #[inline]
    const fn properties(self) -> Properties {
        match self {
            Self::Fips => Properties {
                fast: false,
                inner_at: 0,
                overhead: FIPS_OVERHEAD,
                whole: FULL_OVERHEAD - IPV6_OVERHEAD,
            },
            // Packets for direct records are as large as those for frames, in which some of them go.
            Self::FipsWhole | Self::Direct => Properties {
                fast: false,
                inner_at: 0,
                overhead: SESSION_OVERHEAD,
                whole: FULL_OVERHEAD - IPV6_OVERHEAD,
            },
            Self::WireGuard => Properties {
                fast: false,
                inner_at: 0,
                overhead: MESSAGE_OVERHEAD,
                whole: 0,
            },
            Self::Fast => Properties {
                fast: true,
                inner_at: 0,
                overhead: IPV6_OVERHEAD,
                whole: FULL_OVERHEAD - IPV6_OVERHEAD,
            },
            Self::Relayed { .. } => Properties {
                fast: true,
                inner_at: fast::INNER_AT,
                overhead: IPV6_RELAYED_OVERHEAD,
                whole: FULL_OVERHEAD - IPV6_OVERHEAD,
            },
        }
    }
}

/// The properties of the frames of an encapsulation.
struct Properties {
    /// Whether keys of fast frames seal them.
    fast: bool,
    /// The offset of the frame to the peer in what is sent over the link, in bytes.
    inner_at: usize,
    /// The difference between the length of a frame and that of the IPv6 packet in it, in bytes.
    overhead: usize,
    /// What a packet with its whole header adds to that, in bytes.
    whole: usize,
}

/// The frames that packets to a node go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Egress {
    /// The session.
    pub(crate) session: SessionKey,
    /// The link to the next hop: the one that the session is bound to.
    pub(crate) link: Option<LinkKey>,
    /// The encapsulation of packets.
    pub(crate) frames: Encapsulation,
    /// Whether the session and the link under it can both seal FIPS frames.
    pub(crate) ready: bool,
    /// Whether TCP segments that are too large are cut smaller, here and at the peer, so that the
    /// hosts need not know the size that fits.
    pub(crate) splits: bool,
    /// Whether the peer reads frames of packets with their whole header.
    pub(super) reads_full: bool,
    /// Whether the peer reads packets with their whole header in FIPS frames.
    pub(super) reads_whole: bool,
    /// Whether the peer reads direct records, and the link is with it.
    pub(super) reads_direct: bool,
    /// Whether this value describes packets with their whole header.
    pub(super) full: bool,
    /// The largest UDP payload, in bytes.
    pub(super) payload: u16,
    /// Whether no larger payload is expected soon.
    pub(super) settled: bool,
    /// Whether each flow has one of several paths.
    pub(crate) bonded: bool,
}

impl Egress {
    /// Returns the same value for packets with their whole header.
    #[inline]
    pub(crate) fn full(self) -> Self {
        Self { full: true, ..self }
    }

    /// Returns the same value for packets with their whole header in FIPS frames, if the peer reads those.
    /// No probe finds the size of the path to such a peer.
    pub(crate) fn in_fips_whole(self) -> Option<Self> {
        let largest = (SESSION_OVERHEAD + MAX_WHOLE) as u16;
        let whole = Self {
            frames: match self.reads_direct {
                true => Encapsulation::Direct,
                false => Encapsulation::FipsWhole,
            },
            full: false,
            payload: self.payload.min(largest),
            ..self
        };
        (self.reads_whole && !self.frames.is_fast()).then_some(whole)
    }

    /// Returns the same value for packets with their whole header, in whichever frames they go.
    pub(crate) fn whole(self) -> Self {
        self.in_fips_whole().unwrap_or_else(|| self.full())
    }

    /// Returns the same value over another link, for a FIPS frame.
    pub(crate) fn over(self, link: LinkKey) -> Self {
        Self {
            link: Some(link),
            ..self
        }
    }

    /// Returns whether this value describes packets with their whole header.
    #[inline]
    pub(crate) fn is_full(self) -> bool {
        self.full
    }

    /// Returns whether the peer reads packets with their whole header.
    #[inline]
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
    #[inline]
    pub(crate) fn max_piece(self) -> usize {
        usize::from(self.payload).saturating_sub(self.frames.inner_at() + Fragment::OVERHEAD)
    }

    /// Returns the longest packet of at most `longest` bytes that the peer reassembles, or that
    /// fits one frame.
    #[inline]
    fn joinable(self, longest: usize) -> usize {
        let elided = if self.full { 0 } else { ELIDED };
        let most = Fragment::MAX_PIECES * self.max_piece() + elided;
        longest.min(most.max(self.max_inner()))
    }

    /// Returns the size of the largest IP packet in one frame, in bytes.
    #[inline]
    pub(crate) fn max_inner(self) -> usize {
        usize::from(self.payload).saturating_sub(self.overhead())
    }

    /// Returns the size of the largest TCP packet that the hosts shall agree on, in bytes; see
    /// [`crate::Lane::max_tcp`].
    #[inline]
    pub(crate) fn max_tcp(self) -> usize {
        if self.splits {
            return usize::from(u16::MAX);
        }
        usize::from(mss::cautious_payload(self.payload)).saturating_sub(self.overhead())
    }

    /// Returns the size of the largest IP packet that can be sent at all, in bytes: in pieces if
    /// necessary. While probes of the path are under way, no host receives a Packet Too Big for
    /// what pieces can hold, because systems remember it for minutes.
    #[inline]
    pub(crate) fn max_fragmented(self) -> usize {
        match (self.frames.is_fast(), self.settled) {
            (false, _) => self.max_inner(),
            (true, true) => self.joinable(self.max_inner().max(IPV6_LEAST)),
            (true, false) => self.joinable(MAX_FRAGMENTED),
        }
    }

    /// Returns whether frames with packets of this length, in bytes, do not count as small.
    #[inline]
    pub(crate) fn is_large(self, packet: usize) -> bool {
        packet + self.overhead() > usize::from(SMALL_PAYLOAD)
    }

    /// Returns the size of the largest frame, in bytes.
    #[inline]
    pub(crate) fn payload(self) -> u16 {
        self.payload
    }

    /// Returns the difference between the length of a frame and that of its packet, in bytes.
    #[inline]
    fn overhead(self) -> usize {
        let properties = self.frames.properties();
        let more = if self.full { properties.whole } else { 0 };
        properties.overhead + more
    }
}
