//! The frames that packets of a session go in, from the tables. The result is kept with the session
//! until the tables change: [`Tables::changed`].

use weft_contract::{PathSize, Relay};
use weft_wire::fast::SURE_PAYLOAD;

use super::{Egress, Encapsulation, SessionKey, Tables};
use crate::fast::FastEpoch;
use crate::link::Link;
use crate::session::Session;
use crate::wireguard::{MESSAGE_OVERHEAD, Tunnel};

/// The assumed size of a path before probes have shown any.
const UNKNOWN: PathSize = PathSize {
    payload: SURE_PAYLOAD,
    settled: false,
};

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
        if let Some(tunnel) = session.and_then(|session| session.wireguard.as_deref()) {
            return self.wireguard_egress(key, tunnel);
        }
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
            reads_whole: self.takes_whole && session.is_some_and(|session| session.reads_whole),
            reads_direct: bound.is_some_and(|(session, link)| session.reads_direct && link.peer == session.peer),
            full: false,
            payload: fast.map_or(size.payload, |(keys, _)| size.payload.min(keys.max_payload)),
            settled: size.settled,
            bonded: matches!(fast, Some((_, FastPath::Direct)))
                && bound.is_some_and(|(_, link)| link.paths.is_bonded()),
        }
    }

    /// Returns what packets to a peer that speaks WireGuard go in. The device has told its host the size that its
    /// interface takes, and hosts on both sides learn it from that: TCP needs no smaller segments.
    fn wireguard_egress(&self, key: SessionKey, tunnel: &Tunnel) -> Egress {
        Egress {
            session: key,
            link: None,
            frames: Encapsulation::WireGuard,
            ready: tunnel.is_ready(),
            splits: true,
            reads_full: true,
            reads_whole: false,
            reads_direct: false,
            full: true,
            payload: self.wireguard.mtu.saturating_add(MESSAGE_OVERHEAD as u16),
            settled: true,
            bonded: false,
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
