//! Frames of sessions that came before their keys, which the core is about to install.
//!
//! Anybody who has a link with us, or whose messages a neighbour carries, may say that keys are on their way. So what waits for
//! them is bounded over all sessions, shared among the links that it came over, and given up after [`EXPECT_KEYS`].

use std::collections::VecDeque;
use std::ops::Range;

use weft_wire::NodeAddr;

use super::{EXPECT_KEYS, Lane};
use crate::bounds;
use crate::control::LinkId;
use crate::inbound::Inbound;
use crate::shares::{Load, Shares};
use crate::train::{Train, Transmit};

struct EarlyFrame {
    since: u64,
    link: LinkId,
    peer: NodeAddr,
    /// The datagram, opened at link level.
    datagram: Vec<u8>,
    /// Where its FSP message lies.
    at: Range<usize>,
}

/// See the module.
pub(super) struct Early {
    /// The oldest first.
    frames: VecDeque<EarlyFrame>,
    shares: Shares<LinkId>,
}

impl Early {
    pub(super) const fn new() -> Self {
        Self {
            frames: VecDeque::new(),
            shares: Shares::new(bounds::EARLY),
        }
    }

    fn push(&mut self, frame: EarlyFrame) -> bool {
        let of_session = self.frames.iter().filter(|other| other.peer == frame.peer).count();
        let taken = of_session < bounds::EARLY_OF_SESSION && self.shares.take(frame.link, frame.datagram.len());
        if taken {
            self.frames.push_back(frame);
        }
        taken
    }

    /// Takes out the frames of one session.
    fn take(&mut self, peer: NodeAddr) -> VecDeque<EarlyFrame> {
        if !self.frames.iter().any(|frame| frame.peer == peer) {
            return VecDeque::new();
        }
        let (taken, left): (VecDeque<_>, VecDeque<_>) = self.frames.drain(..).partition(|frame| frame.peer == peer);
        self.frames = left;
        for frame in &taken {
            self.shares.give_back(frame.link, frame.datagram.len());
        }
        taken
    }

    /// Drops the frames of one session.
    pub(super) fn forget(&mut self, peer: NodeAddr) {
        drop(self.take(peer));
    }

    /// Drops what waits in vain, and returns how many frames that were.
    pub(super) fn expire(&mut self, now: u64) -> u64 {
        let old = |frame: &EarlyFrame| now.saturating_sub(frame.since) >= EXPECT_KEYS;
        let mut count = 0;
        while let Some(frame) = self.frames.pop_front_if(|frame| old(frame)) {
            self.shares.give_back(frame.link, frame.datagram.len());
            count += 1;
        }
        count
    }

    /// What waits.
    pub(super) fn load(&self) -> Load {
        self.shares.load()
    }
}

impl Lane {
    /// Keeps a frame whose keys the core is about to install.
    pub(crate) fn keep_early(&mut self, now: u64, link: LinkId, peer: NodeAddr, datagram: &[u8], at: Range<usize>) {
        let longest = bounds::EARLY_LONGEST.max(self.config.mtu.into());
        let kept = datagram.len() <= longest
            && self.early.push(EarlyFrame {
                since: now,
                link,
                peer,
                datagram: datagram.to_vec(),
                at,
            });
        self.counters.early_dropped += u64::from(!kept);
    }

    /// Opens what came before the keys of this session.
    pub(super) fn take_early<T: Transmit>(&mut self, now: u64, peer: NodeAddr, train: &mut Train<T>) {
        for mut frame in self.early.take(peer) {
            let inbound = self.session_frame(now, frame.link, peer, &mut frame.datagram, frame.at, train);
            if let Some(Inbound::Packet(range, _)) = inbound {
                self.push_reply(frame.datagram[range].to_vec());
            }
        }
    }

    /// What came before its keys and waits, for tests.
    #[doc(hidden)]
    pub fn early_load(&self) -> Load {
        self.early.load()
    }
}
