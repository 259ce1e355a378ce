//! Session frames that arrived before their keys, which the core is about to install.
//!
//! Any neighbour, and any node whose messages a neighbour forwards, may claim that keys are on
//! their way. So the store for such frames is bounded over all sessions, shared among the links
//! that they arrived over, and frames are given up after [`EXPECT_KEYS`].

use std::collections::VecDeque;
use std::ops::Range;

use weft_contract::{LinkId, Load, Shares, bounds};
use weft_wire::NodeAddr;

use crate::session::EXPECT_KEYS;

/// A frame of a session, in a datagram that is open at link level or is a direct record.
#[derive(Clone, Debug)]
pub(crate) struct SessionFrame {
    /// The link that the datagram arrived over, or whose address it came from.
    pub(crate) link: LinkId,
    /// The source that the datagram names, or the peer of that link.
    pub(crate) src: NodeAddr,
    /// The path MTU that the datagram reports, in bytes.
    pub(crate) path_mtu: u16,
    /// Whether the underlay or a node on the path has marked it as having experienced congestion.
    pub(crate) marked: bool,
    /// Whether it is a direct record.
    pub(crate) direct: bool,
    /// The range of the frame in the datagram.
    pub(crate) at: Range<usize>,
}

/// A frame that waits.
pub(crate) struct EarlyFrame {
    pub(crate) since: u64,
    pub(crate) frame: SessionFrame,
    /// The datagram, opened at link level.
    pub(crate) datagram: Vec<u8>,
}

impl EarlyFrame {
    fn is_of(&self, peer: NodeAddr) -> bool {
        self.frame.src == peer
    }
}

/// The frames that wait for keys; see the module.
pub(crate) struct Early {
    /// The frames, the oldest first.
    frames: VecDeque<EarlyFrame>,
    shares: Shares<LinkId>,
}

impl Early {
    pub(crate) const fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            shares: Shares::new(bounds::EARLY),
        }
    }

    /// Keeps a frame. Returns how many frames found no room: this one, or the newest of links that
    /// hold more than their share.
    pub(crate) fn push(&mut self, frame: EarlyFrame) -> u64 {
        let mut dropped = 0;
        let (link, peer) = (frame.frame.link, frame.frame.src);
        // Any neighbour may claim that its messages are of this session. One neighbour takes no
        // places of another.
        let of_session = |other: &&EarlyFrame| other.is_of(peer) && other.frame.link == link;
        if self.frames.iter().filter(of_session).count() >= bounds::EARLY_OF_SESSION {
            return 1;
        }
        let bytes = frame.datagram.len();
        while !self.shares.take(link, bytes) {
            dropped += 1;
            let most = self.shares.displaces(link, bytes);
            if !most.is_some_and(|most| self.drop_newest(most)) {
                return dropped;
            }
        }
        self.frames.push_back(frame);
        dropped
    }

    fn drop_newest(&mut self, of: LinkId) -> bool {
        let at = self.frames.iter().rposition(|frame| frame.frame.link == of);
        let newest = at.and_then(|at| self.frames.remove(at));
        if let Some(frame) = &newest {
            self.shares.give_back(of, frame.datagram.len());
        }
        newest.is_some()
    }

    /// Removes and returns the frames of one session.
    pub(crate) fn take(&mut self, peer: NodeAddr) -> VecDeque<EarlyFrame> {
        if !self.frames.iter().any(|frame| frame.is_of(peer)) {
            return VecDeque::new();
        }
        let (taken, left): (VecDeque<_>, VecDeque<_>) = self.frames.drain(..).partition(|frame| frame.is_of(peer));
        self.frames = left;
        for frame in &taken {
            self.shares.give_back(frame.frame.link, frame.datagram.len());
        }
        taken
    }

    /// Drops the frames of one session.
    pub(crate) fn forget(&mut self, peer: NodeAddr) {
        drop(self.take(peer));
    }

    /// Drops the frames that have waited for too long, and returns their number.
    pub(crate) fn expire(&mut self, now: u64) -> u64 {
        let old = |frame: &EarlyFrame| now.saturating_sub(frame.since) >= EXPECT_KEYS;
        let mut count = 0;
        while let Some(frame) = self.frames.pop_front_if(|frame| old(frame)) {
            self.shares.give_back(frame.frame.link, frame.datagram.len());
            count += 1;
        }
        count
    }

    /// Returns the number and size of the frames that wait.
    pub(crate) fn load(&self) -> Load {
        self.shares.load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeAddr = NodeAddr::new([1; 16]);

    fn frame(link: u32, peer: NodeAddr) -> EarlyFrame {
        EarlyFrame {
            since: 0,
            frame: SessionFrame {
                link: LinkId(link),
                src: peer,
                path_mtu: 0,
                marked: false,
                direct: false,
                at: 0..1_000,
            },
            datagram: vec![0; 1_000],
        }
    }

    #[test]
    fn a_link_takes_no_places_of_a_session_from_another_link() {
        let mut early = Early::new();
        let flood = (0..100).map(|_| early.push(frame(1, PEER))).sum::<u64>();
        assert_eq!(flood, 100 - bounds::EARLY_OF_SESSION as u64);
        assert_eq!(early.push(frame(2, PEER)), 0);
    }

    #[test]
    fn a_link_with_few_frames_displaces_those_of_the_fullest() {
        let mut early = Early::new();
        let mut links = 0..1_000;
        let full = links.find(|link| {
            let peer = NodeAddr::new([u8::try_from(*link % 200).unwrap_or_default() + 2; 16]);
            (0..20).map(|_| early.push(frame(*link, peer))).sum::<u64>() > 0
                && early.load().count == bounds::EARLY.count
        });
        assert!(full.is_some());
        let before = early.load();
        assert_eq!(early.push(frame(2_000, PEER)), 1);
        assert_eq!(early.load(), before);
        assert_eq!(early.take(PEER).len(), 1);
    }
}
