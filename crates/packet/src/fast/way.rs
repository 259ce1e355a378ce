//! The path of a session's fast frames, and the session's messages on it.

use weft_wire::NodeAddr;
use weft_wire::fast::{self, IPV6_OVERHEAD, IPV6_RELAYED_OVERHEAD};

use super::FastEpoch;
use crate::control::{LinkId, Relay};
use crate::counters::DropReason;
use crate::lane::Lane;
use crate::session::Session;
use crate::train::{Train, Transmit};

/// The path of fast frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Direct, over the link with the peer itself.
    Direct(LinkId),
    /// Relayed, through other nodes.
    Relayed(Relay),
}

impl Way {
    /// Returns the link of the next hop, and the offset of the frame to the peer in what is sent
    /// over that link.
    pub(crate) fn link(self) -> (LinkId, usize) {
        match self {
            Self::Direct(link) => (link, 0),
            Self::Relayed(relay) => (relay.link, fast::INNER_AT),
        }
    }

    /// Returns the difference between the length of a frame and that of the IPv6 packet in it, in
    /// bytes.
    pub(crate) fn overhead(self) -> usize {
        match self {
            Self::Direct(_) => IPV6_OVERHEAD,
            Self::Relayed(_) => IPV6_RELAYED_OVERHEAD,
        }
    }
}

impl Lane {
    /// Returns the keys and the path of fast frames to this node, if both ends hold the keys and
    /// there is a path that is proven for data.
    pub(crate) fn fast_keys<'s>(&self, session: &'s Session, peer: &NodeAddr) -> Option<(&'s FastEpoch, Way)> {
        let keys = session.fast.current().filter(|keys| !keys.is_spent())?;
        let way = self.fast_way(session, peer)?;
        may_carry_data(keys, way).then_some((keys, way))
    }

    fn fast_way(&self, session: &Session, peer: &NodeAddr) -> Option<Way> {
        let id = session.link?;
        let link = self.links.get(&id)?;
        if link.peer == *peer {
            return Some(Way::Direct(id));
        }
        let relay = session.relay.filter(|relay| relay.link == id)?;
        let keys = link.hop.current().filter(|keys| !keys.is_spent());
        keys.map(|_| Way::Relayed(relay))
    }

    /// Seals a session message in a fast frame under the keys of `id`, or the present ones, and
    /// returns whether it was sent.
    pub(crate) fn send_fast<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: Option<u32>,
        (msg_type, body): (u8, &[u8]),
        train: &mut Train<T>,
    ) -> bool {
        let way = self.sessions.get(&peer).and_then(|s| self.fast_way(s, &peer));
        let (Some(way), Some(session)) = (way, self.sessions.get_mut(&peer)) else {
            return false;
        };
        let epoch = match id {
            Some(id) => session.fast.get_mut(id),
            None => session.fast.current_mut().filter(|keys| may_carry_data(keys, way)),
        };
        let Some(epoch) = epoch else { return false };
        let (link, inner_at) = way.link();
        let Some(link) = self.links.get_mut(&link) else {
            return false;
        };
        let slot = train.reserve(inner_at + fast::MESSAGE_OVERHEAD + body.len());
        let Some(inner) = slot.get_mut(inner_at..) else {
            return false;
        };
        let Some(mut len) = epoch.seal_message(now, msg_type, body, inner) else {
            self.counters.drops.count(DropReason::EpochSpent);
            return false;
        };
        len += inner_at;
        if let Way::Relayed(relay) = way
            && link.seal_relayed(relay, self.whole, slot, len).is_none()
        {
            self.counters.drops.count(DropReason::EpochSpent);
            return false;
        }
        link.sent(now, 1, len, true);
        session.sent_message(now);
        link.paths.commit(train, &mut self.counters, len);
        let spent = session.fast.current().is_some_and(FastEpoch::is_spent) || inner_at != 0 && link.hop_is_spent();
        self.note_spent(spent);
        true
    }
}

/// A frame that reached the peer through other nodes proves nothing about the direct path. For a
/// relayed path any proof is enough, because each hop has been proven by itself.
fn may_carry_data(keys: &FastEpoch, way: Way) -> bool {
    keys.direct || matches!(way, Way::Relayed(_))
}
