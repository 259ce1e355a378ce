//! Packets that wait in a session, for its keys or for those of its fast frames.

use std::collections::VecDeque;

use weft_contract::{LinkId, SessionReport, bounds::QUEUED_OF_SESSION};
use weft_wire::NodeAddr;

use crate::counters::DropReason;
use crate::icmp::IcmpError;
use crate::sender::Sender;
use crate::session::Waiting;
use crate::tables::{Egress, SessionKey};
use crate::train::Transmit;
use crate::tun::TunPacket;

/// How long fast keys are waited for after new keys of a session, in ms.
const EXPECT_FAST: u64 = 3000;
/// The shortest interval between reports that a session is wanted, in ms.
const WANT_AGAIN: u64 = 1000;

impl<T: Transmit> Sender<'_, T> {
    /// Queues a packet until the session can take it, and reports that the session is wanted.
    pub(crate) fn enqueue(&mut self, key: SessionKey, packet: TunPacket<'_>) {
        self.keep(key, packet, false);
        let Some(session) = self.tables.sessions.get_mut(key) else {
            return;
        };
        if session
            .wanted
            .is_none_or(|at| self.now.saturating_sub(at) >= WANT_AGAIN)
        {
            session.wanted = Some(self.now);
            self.out.report_session(session.peer, SessionReport::Wanted);
        }
    }

    /// Queues a packet until it may go in a fast frame, if it may go in no other. Returns whether
    /// it does.
    pub(crate) fn waits_for_fast(&mut self, key: SessionKey, packet: TunPacket<'_>) -> bool {
        let waits = self.tables.is_fast_only(key);
        if waits {
            self.out.counters.fast_waited += 1;
            self.keep(key, packet, true);
        }
        waits
    }

    /// Keeps a packet that fits no FIPS frame until the peer, which has fast frames, has agreed on
    /// them again. Returns false if the time for that is over, or if the peer must be a neighbour
    /// and is not. An error at once would be premature: systems remember a Packet Too Big for
    /// minutes.
    pub(crate) fn hold(&mut self, egress: Egress, packet: TunPacket<'_>, must_be_direct: bool) -> bool {
        let Some(session) = self.tables.sessions.get(egress.session) else {
            return false;
        };
        let link = egress.link.and_then(|link| self.tables.links.get(link));
        let direct = link.is_some_and(|link| link.peer == session.peer);
        let age = session
            .epochs
            .current()
            .map(|epoch| u64::from(epoch.timestamp(self.now)));
        if must_be_direct && !direct || age.is_none_or(|age| age >= EXPECT_FAST) {
            return false;
        }
        self.keep(egress.session, packet, false);
        true
    }

    fn keep(&mut self, key: SessionKey, packet: TunPacket<'_>, for_fast: bool) {
        let Some(session) = self.tables.sessions.get_mut(key) else {
            return;
        };
        // The oldest packets to the same destination make room.
        while session.queue.len() >= QUEUED_OF_SESSION || !self.queued.take(session.peer, packet.bytes.len()) {
            self.out.count(DropReason::Queue);
            let Some(oldest) = session.queue.pop_front() else {
                return;
            };
            self.queued.give_back(session.peer, oldest.packet.len());
        }
        session.queue.push_back(Waiting {
            hdr: packet.hdr,
            packet: packet.bytes.to_vec(),
            for_fast,
        });
        self.out.counters.queued += 1;
    }

    /// Sends the packets that wait for a session, if they can go now.
    pub(crate) fn flush_queue(&mut self, key: SessionKey) {
        let egress = self.tables.egress(key);
        if !egress.ready {
            return;
        }
        let must_wait = !egress.frames.is_fast() && self.tables.is_fast_only(key);
        let Some(session) = self.tables.sessions.get_mut(key) else {
            return;
        };
        if must_wait {
            // The session keys that they waited for are installed. From now on they wait for fast
            // ones.
            for waiting in session.queue.iter_mut().filter(|waiting| !waiting.for_fast) {
                waiting.for_fast = true;
                self.out.counters.fast_waited += 1;
            }
            return;
        }
        session.wanted = None;
        let peer = session.peer;
        for waiting in self.take_queue(peer) {
            self.send(waiting.packet());
        }
    }

    /// Sends the packets that wait for any session over `link`.
    pub(crate) fn flush_queues(&mut self, link: LinkId) {
        let sessions = self.tables.sessions.iter();
        let waiting: Vec<SessionKey> = sessions
            .filter(|(_, s)| s.link == Some(link) && !s.queue.is_empty())
            .map(|(key, _)| key)
            .collect();
        for key in waiting {
            self.flush_queue(key);
        }
    }

    /// Removes and returns the packets that wait for a session.
    pub(crate) fn take_queue(&mut self, peer: NodeAddr) -> VecDeque<Waiting> {
        let Some(session) = self.tables.sessions.find_mut(&peer) else {
            return VecDeque::new();
        };
        let queue = std::mem::take(&mut session.queue);
        for waiting in &queue {
            self.queued.give_back(peer, waiting.packet.len());
        }
        queue
    }

    /// Drops the packets that wait for a session, and answers each with an ICMPv6 error.
    pub(crate) fn drop_queue(&mut self, peer: NodeAddr) {
        let Some(session) = self.tables.sessions.find_mut(&peer) else {
            return;
        };
        session.wanted = None;
        for waiting in self.take_queue(peer) {
            self.out.count(DropReason::Queue);
            self.out
                .answer(self.now, IcmpError::AddressUnreachable, &waiting.packet);
        }
    }
}
