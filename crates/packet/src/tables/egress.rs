//! The frames that packets to a node go in: their encapsulation, path and size.
//!
//! They follow from the tables. The result is kept with the session until the tables change:
//! [`Tables::changed`].

use weft_contract::{PathSize, Relay};
use weft_wire::fast::{
    self, FULL_OVERHEAD, Fragment, IPV6_OVERHEAD, IPV6_RELAYED_OVERHEAD, SMALL_PAYLOAD, SURE_PAYLOAD,
};

use super::{LinkKey, SessionKey, Tables};
use crate::fast::{ELIDED, FastEpoch, MAX_FRAGMENTED};
use crate::fips;
use crate::link::Link;
use crate::mss;
use crate::session::Session;

/// The size of a packet that every IPv6 path takes, in bytes (RFC 8200 section 5).
const IPV6_LEAST: usize = 1_280;
/// The assumed size of a path before probes have shown any.
const UNKNOWN: PathSize = PathSize {
    payload: SURE_PAYLOAD,
    settled: false,
};

/// The encapsulation of packets and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    /// FIPS frames, over a link with any neighbour.
    Fips,
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
    pub(crate) fn is_fast(self) -> bool {
        self != Self::Fips
    }

    /// Returns the offset of the frame to the peer in what is sent over the link, in bytes.
    pub(crate) fn inner_at(self) -> usize {
        match self {
            Self::Fips | Self::Fast => 0,
            Self::Relayed { .. } => fast::INNER_AT,
        }
    }

    /// Returns the difference between the length of a frame and that of the IPv6 packet in it, in
    /// bytes.
    fn overhead(self) -> usize {
        match self {
            Self::Fips => fips::IPV6_OVERHEAD,
            Self::Fast => IPV6_OVERHEAD,
            Self::Relayed { .. } => IPV6_RELAYED_OVERHEAD,
        }
    }
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
    reads_full: bool,
    /// Whether this value describes packets with their whole header.
    full: bool,
    /// The largest UDP payload, in bytes.
    payload: u16,
    /// Whether no larger payload is expected soon.
    settled: bool,
    /// Whether each flow has one of several paths.
    pub(crate) bonded: bool,
}

impl Egress {
    /// Returns the same value for packets with their whole header.
    pub(crate) fn full(self) -> Self {
        Self { full: true, ..self }
    }

    /// Returns the same value over another link, for a FIPS frame.
    pub(crate) fn over(self, link: LinkKey) -> Self {
        Self {
            link: Some(link),
            ..self
        }
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
        usize::from(self.payload).saturating_sub(self.frames.inner_at() + Fragment::OVERHEAD)
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
    /// [`crate::Lane::max_tcp`].
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
        match (self.frames.is_fast(), self.settled) {
            (false, _) => self.max_inner(),
            (true, true) => self.joinable(self.max_inner().max(IPV6_LEAST)),
            (true, false) => self.joinable(MAX_FRAGMENTED),
        }
    }

    /// Returns whether frames with packets of this length, in bytes, do not count as small.
    pub(crate) fn is_large(self, packet: usize) -> bool {
        packet + self.overhead() > usize::from(SMALL_PAYLOAD)
    }

    /// Returns the size of the largest frame, in bytes.
    pub(crate) fn payload(self) -> u16 {
        self.payload
    }

    /// Returns the difference between the length of a frame and that of its packet, in bytes.
    fn overhead(self) -> usize {
        let more = if self.full { FULL_OVERHEAD - IPV6_OVERHEAD } else { 0 };
        self.frames.overhead() + more
    }
}

impl Tables {
    /// Returns the frames that packets of a session go in.
    #[inline]
    pub(crate) fn egress(&mut self, key: SessionKey) -> Egress {
        let known = self.sessions.get(key).and_then(|session| session.egress);
        match known {
            Some((version, egress)) if version == self.version => egress,
            _ => self.publish_egress(key),
        }
    }

    #[cold]
    fn publish_egress(&mut self, key: SessionKey) -> Egress {
        let (version, egress) = (self.version, self.resolve_egress(key));
        if let Some(session) = self.sessions.get_mut(key) {
            session.egress = Some((version, egress));
        }
        egress
    }

    /// Like [`Tables::egress`], from the tables alone.
    pub(crate) fn resolve_egress(&self, key: SessionKey) -> Egress {
        let session = self.sessions.get(key);
        let link = session.and_then(|session| self.links.key(&session.link?));
        let bound = session.zip(link.and_then(|key| self.links.get(key)));
        let fast = bound.and_then(|(session, link)| usable_fast(session, link));
        let limit = session.and_then(|session| session.limit).unwrap_or(u16::MAX);
        let set = PathSize {
            payload: self.config.mtu.min(limit),
            settled: true,
        };
        let size = match fast {
            Some((_, path)) if self.config.probe => {
                let found = session.and_then(|session| session.size).unwrap_or(UNKNOWN);
                PathSize {
                    payload: found.payload.min(path.limit()),
                    ..found
                }
            }
            // Each hop has announced its size, which is more exact than what FIPS frames have met
            // on the path.
            Some((_, FastPath::Relayed(relay))) => PathSize {
                payload: self.config.mtu.min(relay.mtu),
                settled: true,
            },
            _ => set,
        };
        let ready =
            |(session, link): (&Session, &Link)| session.epochs.current().is_some() && link.epochs.current().is_some();
        Egress {
            session: key,
            link,
            frames: fast.map_or(Encapsulation::Fips, |(_, path)| path.frames()),
            ready: bound.is_some_and(ready),
            splits: self.config.probe && session.is_some_and(|session| session.splits),
            reads_full: fast.is_some_and(|(keys, _)| keys.reads_full),
            full: false,
            payload: fast.map_or(size.payload, |(keys, _)| size.payload.min(keys.max_payload)),
            settled: size.settled,
            bonded: matches!(fast, Some((_, FastPath::Direct)))
                && bound.is_some_and(|(_, link)| link.paths.is_bonded()),
        }
    }

    /// Checks that what a session keeps follows from the tables.
    pub(crate) fn check_egress(&self, key: SessionKey) -> Result<(), String> {
        let kept = self.sessions.get(key).and_then(|session| session.egress);
        let kept = kept.filter(|(version, _)| *version == self.version);
        let resolved = self.resolve_egress(key);
        match kept {
            Some((_, kept)) if kept != resolved => Err(format!("a session keeps {kept:?} instead of {resolved:?}")),
            _ => Ok(()),
        }
    }
}

/// A path that fast frames of a session can take.
#[derive(Clone, Copy)]
pub(crate) enum FastPath {
    /// The link with the peer itself.
    Direct,
    /// Through other nodes.
    Relayed(Relay),
}

impl FastPath {
    /// Returns the path of a session's fast frames over the link that the session is bound to, if
    /// that link is with the peer itself or has keys for relayed frames.
    pub(crate) fn of(session: &Session, link: &Link) -> Option<Self> {
        if link.peer == session.peer {
            return Some(Self::Direct);
        }
        let relay = session.relay.filter(|relay| relay.link == link.id)?;
        let keys = link.hop.current().filter(|keys| !keys.is_spent());
        keys.map(|_| Self::Relayed(relay))
    }

    /// Returns the largest frame that the nodes on the path have announced to forward, in bytes of UDP
    /// payload.
    fn limit(self) -> u16 {
        match self {
            Self::Direct => u16::MAX,
            Self::Relayed(relay) => relay.mtu,
        }
    }

    /// Returns the encapsulation on this path.
    pub(crate) fn frames(self) -> Encapsulation {
        match self {
            Self::Direct => Encapsulation::Fast,
            Self::Relayed(relay) => Encapsulation::Relayed { label: relay.label.0 },
        }
    }

    /// Returns whether data may go under these keys. A frame that reached the peer through other
    /// nodes proves nothing about the direct path. For a relayed path any proof is enough, because
    /// each hop has been proven by itself.
    pub(crate) fn takes_data(self, keys: &FastEpoch) -> bool {
        keys.direct || matches!(self, Self::Relayed(_))
    }
}

/// Returns the keys and the path for data in fast frames, if both ends hold the keys and there is a
/// path that is proven for data.
fn usable_fast<'s>(session: &'s Session, link: &Link) -> Option<(&'s FastEpoch, FastPath)> {
    let keys = session.fast.current().filter(|keys| !keys.is_spent())?;
    let path = FastPath::of(session, link)?;
    path.takes_data(keys).then_some((keys, path))
}
