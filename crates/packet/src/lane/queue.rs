//! Packets that wait in a session, for its keys or for those of its fast frames.

use std::collections::VecDeque;

use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use super::Lane;
use crate::bounds::QUEUED_OF_SESSION;
use crate::control::{LinkId, Report, SessionReport};
use crate::counters::DropReason;
use crate::icmp::IcmpError;
use crate::session::Waiting;
use crate::train::{Train, Transmit};

/// How long fast keys are waited for after new keys of a session, in ms.
const EXPECT_FAST: u64 = 3000;
/// The shortest interval between reports that a session is wanted, in ms.
const WANT_AGAIN: u64 = 1000;

impl Lane {
    /// Returns the number of packets that wait for a session with `peer`.
    pub fn queued(&self, peer: &NodeAddr) -> usize {
        self.sessions.get(peer).map_or(0, |s| s.queue.len())
    }

    /// Queues a packet until the session can take it, and reports that the session is wanted.
    pub(crate) fn enqueue(&mut self, now: u64, peer: NodeAddr, hdr: VirtioNetHdr, packet: &[u8]) {
        self.keep(peer, hdr, packet, false);
        let session = self.sessions.entry(peer).or_default();
        if session.wanted.is_none_or(|at| now.saturating_sub(at) >= WANT_AGAIN) {
            session.wanted = Some(now);
            self.report(Report::Session(peer, SessionReport::Wanted));
        }
    }

    /// Queues a packet until it may go in a fast frame, if it may go in no other. Returns whether
    /// it does.
    pub(crate) fn waits_for_fast(&mut self, peer: NodeAddr, hdr: VirtioNetHdr, packet: &[u8]) -> bool {
        let waits = self.fast_only.contains(&peer);
        if waits {
            self.counters.fast_waited += 1;
            self.keep(peer, hdr, packet, true);
        }
        waits
    }

    /// Keeps a packet that fits no FIPS frame until the peer, which has fast frames, has agreed on
    /// them again. Returns false if the time for that is over, or if the peer must be a neighbour
    /// and is not. An error at once would be premature: systems remember a Packet Too Big for
    /// minutes.
    pub(crate) fn hold(
        &mut self,
        now: u64,
        peer: NodeAddr,
        hdr: VirtioNetHdr,
        packet: &[u8],
        must_be_direct: bool,
    ) -> bool {
        let Some(session) = self.sessions.get(&peer) else {
            return false;
        };
        let link = session.link.and_then(|id| self.links.get(&id));
        let direct = link.is_some_and(|link| link.peer == peer);
        let age = session.epochs.current().map(|epoch| u64::from(epoch.timestamp(now)));
        if must_be_direct && !direct || age.is_none_or(|age| age >= EXPECT_FAST) {
            return false;
        }
        self.keep(peer, hdr, packet, false);
        true
    }

    fn keep(&mut self, peer: NodeAddr, hdr: VirtioNetHdr, packet: &[u8], for_fast: bool) {
        let session = self.sessions.entry(peer).or_default();
        // The oldest packets to the same destination make room.
        while session.queue.len() >= QUEUED_OF_SESSION || !self.queued.take(peer, packet.len()) {
            self.counters.drops.count(DropReason::Queue);
            let Some(oldest) = session.queue.pop_front() else {
                return;
            };
            self.queued.give_back(peer, oldest.packet.len());
        }
        session.queue.push_back(Waiting {
            hdr,
            packet: packet.to_vec(),
            for_fast,
        });
        self.counters.queued += 1;
    }

    /// Sends the packets that wait for a session, if they can go now.
    pub(crate) fn flush_queue<T: Transmit>(&mut self, now: u64, peer: NodeAddr, train: &mut Train<T>) {
        let egress = self.egress(&peer);
        if !egress.ready {
            return;
        }
        let must_wait = self.fast_only.contains(&peer) && egress.fast.is_none();
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        if must_wait {
            // The session keys that they waited for are installed. From now on they wait for fast
            // ones.
            for waiting in session.queue.iter_mut().filter(|waiting| !waiting.for_fast) {
                waiting.for_fast = true;
                self.counters.fast_waited += 1;
            }
            return;
        }
        session.wanted = None;
        for waiting in self.take_queue(peer) {
            self.send_packet(now, waiting.hdr, &waiting.packet, train);
        }
    }

    /// Sends the packets that wait for any session over `link`.
    pub(crate) fn flush_queues<T: Transmit>(&mut self, now: u64, link: LinkId, train: &mut Train<T>) {
        let waiting: Vec<NodeAddr> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.link == Some(link) && !s.queue.is_empty())
            .map(|(peer, _)| *peer)
            .collect();
        for peer in waiting {
            self.flush_queue(now, peer, train);
        }
    }

    /// Removes and returns the packets that wait for a session.
    pub(super) fn take_queue(&mut self, peer: NodeAddr) -> VecDeque<Waiting> {
        let session = self.sessions.get_mut(&peer);
        let queue = session
            .map(|session| std::mem::take(&mut session.queue))
            .unwrap_or_default();
        for waiting in &queue {
            self.queued.give_back(peer, waiting.packet.len());
        }
        queue
    }

    /// Drops the packets that wait for a session, and answers each with an ICMPv6 error.
    pub(super) fn drop_queue(&mut self, now: u64, peer: NodeAddr) {
        let Some(session) = self.sessions.get_mut(&peer) else {
            return;
        };
        session.wanted = None;
        for waiting in self.take_queue(peer) {
            self.counters.drops.count(DropReason::Queue);
            self.answer(now, IcmpError::AddressUnreachable, &waiting.packet);
        }
    }
}
