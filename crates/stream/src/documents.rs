//! All transfers of one service.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use thiserror::Error;

use crate::Port;
use crate::budget::Budget;
use crate::limits::Limits;
use crate::receiver::{Received, Receiver, STEP};
use crate::segment::{DEFAULT_MSS, Flags, Segment, VERSION};
use crate::sender::{LEAST_MSS, Progress, Sender};

/// The ports of connections that are opened: the dynamic ones (RFC 6335).
const FIRST_LOCAL: u16 = 49_152;
const LOCALS: u16 = 16_384;
/// While connections are open, a peer may open this part of those that are free.
const OPEN_OF_FREE: usize = 4;

/// A document that was given to [`Documents::send`]. Unique in its `Documents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(u64);

/// Why a document did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cause {
    /// The peer did not answer.
    #[error("the peer did not answer in time")]
    NotReached,
    /// The peer answered that it takes none.
    #[error("the peer has no such service")]
    Refused,
    /// The peer speaks another version, or wants segments that are too small.
    #[error("the peer speaks another version of TCP/FIPS")]
    Incompatible,
    /// The other end does not know the transfer, because it restarted or gave up.
    #[error("the peer ended the transfer, or restarted")]
    Reset,
    /// No byte passed for too long.
    #[error("nothing passed for too long")]
    Stalled,
    /// Bytes passed, too slowly for the whole.
    #[error("the transfer was too slow")]
    TooSlow,
    /// The document that arrives is larger than allowed.
    #[error("the document is too large")]
    TooLarge,
    /// The peer sent data where there are none.
    #[error("the peer sent data in the wrong direction")]
    Unexpected,
    /// Its memory was needed for peers that hold less.
    #[error("memory was needed for other peers")]
    Displaced,
    /// [`Documents::remove_peer`].
    #[error("the peer was removed")]
    PeerRemoved,
}

/// Why a document is not taken for sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// It is larger than [`Limits::document`].
    #[error("a document of {0} bytes is too large")]
    TooLarge(usize),
    /// As many documents are on their way to this peer as may be. One of them will end.
    #[error("too many documents are on their way to this peer")]
    PeerBusy,
    /// As many documents are on their way as may be. One of them will end.
    #[error("too many documents are on their way")]
    Busy,
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<P> {
    /// Send this segment to the peer, as data between the service's ports. It may get lost.
    Segment {
        /// To which peer.
        peer: P,
        /// The segment.
        bytes: Vec<u8>,
    },
    /// A document is here, whole. It arrives once.
    Received {
        /// From which peer.
        peer: P,
        /// The document.
        document: Vec<u8>,
    },
    /// A document of ours was acknowledged to its end by the other end, which then has it.
    Sent {
        /// By which peer.
        peer: P,
        /// Which document.
        id: DocumentId,
    },
    /// A document of ours is not acknowledged. The peer may have it nevertheless, if only the last
    /// acknowledgment was lost.
    Failed {
        /// To which peer.
        peer: P,
        /// Which document.
        id: DocumentId,
        /// Why.
        cause: Cause,
    },
    /// The rest of a document that was arriving will not come. What was there is discarded.
    Incomplete {
        /// From which peer.
        peer: P,
        /// The bytes that were there.
        bytes: usize,
        /// Why.
        cause: Cause,
    },
}

/// What was ignored or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that are no segment, or not for this service.
    pub malformed: u64,
    /// Segments of connections that are not known.
    pub unknown: u64,
    /// Connections that were refused, by limit or version.
    pub refused: u64,
}

/// The documents that a service sends and receives. `P` names a peer of an authenticated session.
///
/// After each call that takes `now`, [`Documents::poll_output`] has to be called until it returns
/// `None`, and [`Documents::handle_timeout`] at [`Documents::poll_timeout`].
#[derive(Debug)]
pub struct Documents<P> {
    limits: Limits,
    port: Port,
    /// By peer and our port.
    outgoing: BTreeMap<(P, u16), (DocumentId, Sender)>,
    /// By peer and its port.
    incoming: BTreeMap<(P, u16), Receiver>,
    /// Memory for what arrives, and for what is sent.
    arriving: Budget<P>,
    leaving: Budget<P>,
    outputs: VecDeque<Output<P>>,
    counts: Counts,
    seed: [u8; 16],
    drawn: u64,
    next_id: u64,
}

impl<P: Ord + Copy> Documents<P> {
    /// Makes the documents of the service at `port`, which is not 0. The `seed` is random; initial
    /// sequence numbers and ports follow from it, so that segments of an earlier process belong to
    /// no connection of this one.
    #[must_use]
    pub fn new(port: Port, limits: Limits, seed: [u8; 16]) -> Self {
        Self {
            limits,
            port,
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            arriving: Budget::new(limits.bytes, limits.peer_bytes),
            leaving: Budget::new(limits.send_bytes, limits.peer_bytes),
            outputs: VecDeque::new(),
            counts: Counts::default(),
            seed,
            drawn: 0,
            next_id: 0,
        }
    }

    /// Sends a document to `peer`. Exactly one [`Output::Sent`] or [`Output::Failed`] follows,
    /// within the sum of [`Limits::connect_ms`] and [`Limits::total_ms`].
    ///
    /// # Errors
    ///
    /// [`SendError`]: the document is not taken.
    pub fn send(&mut self, now: u64, peer: P, document: Vec<u8>) -> Result<DocumentId, SendError> {
        // Positions in a stream have 31 bits.
        if document.len() > self.limits.document.min(1 << 30) {
            return Err(SendError::TooLarge(document.len()));
        }
        self.make_room_to_send(peer)?;
        if !self.leaving.take(peer, document.len()) {
            return Err(SendError::PeerBusy);
        }
        let drawn = self.draw();
        let local = (0..LOCALS)
            .map(|offset| FIRST_LOCAL + (((drawn >> 32) as u16).wrapping_add(offset)) % LOCALS)
            .find(|local| !self.outgoing.contains_key(&(peer, *local)));
        let Some(local) = local else {
            self.leaving.give(peer, document.len());
            return Err(SendError::PeerBusy);
        };
        let id = DocumentId(self.next_id);
        self.next_id += 1;
        let mut segments = Vec::new();
        let ports = (local, self.port);
        let sender = Sender::new(now, ports, drawn as u32, document, &self.limits, &mut segments);
        self.outgoing.insert((peer, local), (id, sender));
        self.emit(peer, segments);
        Ok(id)
    }

    /// Processes a segment that arrived from `peer`.
    pub fn handle_segment(&mut self, now: u64, peer: P, bytes: &[u8]) {
        match Segment::parse(bytes) {
            Ok(segment) if segment.destination == self.port => self.handle_incoming(now, peer, &segment),
            Ok(segment) if segment.source == self.port => self.handle_outgoing(now, peer, &segment),
            Ok(_) | Err(_) => self.counts.malformed += 1,
        }
    }

    fn handle_incoming(&mut self, now: u64, peer: P, segment: &Segment<'_>) {
        let key = (peer, segment.source);
        let mut segments = Vec::new();
        if let Some(receiver) = self.incoming.get_mut(&key) {
            let account = (&mut self.arriving, peer);
            let mut received = receiver.handle_segment(now, segment, account, &self.limits, &mut segments);
            if receiver.short()
                && self.displace_for(peer)
                && let Some(receiver) = self.incoming.get_mut(&key)
            {
                segments.clear();
                let account = (&mut self.arriving, peer);
                received = receiver.handle_segment(now, segment, account, &self.limits, &mut segments);
            }
            self.emit(peer, segments);
            self.received(key, received);
        } else if segment.flags == Flags::SYN && segment.acknowledgment.is_none() {
            let least = LEAST_MSS.min(self.limits.mss);
            if segment.version != Some(VERSION) || segment.mss.unwrap_or(DEFAULT_MSS) < least {
                self.counts.refused += 1;
                segments.extend(segment.reset().map(|reset| reset.emit()));
            } else if self.has_room(peer) {
                let iss = self.draw() as u32;
                let receiver = Receiver::new(now, segment, iss, &self.limits, &mut segments);
                self.incoming.insert(key, receiver);
            } else {
                // No answer: the peer asks again, and may find room.
                self.counts.refused += 1;
            }
            self.emit(peer, segments);
        } else {
            self.refuse(peer, segment);
        }
    }

    /// Ends the largest transfer of the peer that holds most, if `peer` holds little and found no
    /// memory. Returns whether it did.
    fn displace_for(&mut self, peer: P) -> bool {
        let Some(other) = self.arriving.displaces(peer, STEP) else {
            return false;
        };
        let of_other = self.incoming.range((other, 0)..=(other, u16::MAX));
        let Some((key, receiver)) = of_other.max_by_key(|(_, receiver)| receiver.granted()) else {
            return false;
        };
        let (key, mut segments) = (*key, Vec::new());
        let received = receiver.abort(Cause::Displaced, &mut segments);
        self.emit(other, segments);
        self.received(key, received);
        true
    }

    fn handle_outgoing(&mut self, now: u64, peer: P, segment: &Segment<'_>) {
        let key = (peer, segment.destination);
        let Some((_, sender)) = self.outgoing.get_mut(&key) else {
            return self.refuse(peer, segment);
        };
        let mut segments = Vec::new();
        let held = sender.held();
        let progress = sender.handle_segment(now, segment, &self.limits, &mut segments);
        self.emit(peer, segments);
        self.progressed(key, held, progress);
    }

    /// Answers a segment whose connection is not known with a reset.
    fn refuse(&mut self, peer: P, segment: &Segment<'_>) {
        self.counts.unknown += 1;
        self.emit(peer, segment.reset().map(|reset| reset.emit()));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        let limits = self.limits;
        let due = self
            .outgoing
            .iter()
            .filter(|(_, (_, sender))| sender.timeout(&limits) <= now);
        for key in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            let mut segments = Vec::new();
            if let Some((_, sender)) = self.outgoing.get_mut(&key) {
                let held = sender.held();
                let progress = sender.handle_timeout(now, &limits, &mut segments);
                self.emit(key.0, segments);
                self.progressed(key, held, progress);
            }
        }
        let due = self
            .incoming
            .iter()
            .filter(|(_, receiver)| receiver.timeout(&limits) <= now);
        for key in due.map(|(key, _)| *key).collect::<Vec<_>>() {
            let mut segments = Vec::new();
            if let Some(receiver) = self.incoming.get_mut(&key) {
                let received = receiver.handle_timeout(now, &limits, &mut segments);
                self.emit(key.0, segments);
                self.received(key, received);
            }
        }
    }

    /// Returns when [`Documents::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let outgoing = self.outgoing.values().map(|(_, sender)| sender.timeout(&self.limits));
        let incoming = self.incoming.values().map(|receiver| receiver.timeout(&self.limits));
        outgoing.chain(incoming).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output<P>> {
        self.outputs.pop_front()
    }

    /// Ends all transfers with `peer`. Nothing is sent to it.
    pub fn remove_peer(&mut self, peer: P) {
        let of_peer = |key: &(P, u16)| key.0 == peer;
        for key in self.outgoing.keys().copied().filter(of_peer).collect::<Vec<_>>() {
            if let Some((_, sender)) = self.outgoing.get(&key) {
                let (held, progress) = (sender.held(), sender.over(Cause::PeerRemoved));
                self.progressed(key, held, progress);
            }
        }
        for key in self.incoming.keys().copied().filter(of_peer).collect::<Vec<_>>() {
            if let Some(receiver) = self.incoming.get(&key) {
                let received = receiver.over(Cause::PeerRemoved);
                self.received(key, received);
            }
        }
    }

    /// Returns what was ignored or refused.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the bytes that incomplete documents hold, and those of documents that are sent.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.arriving.held(), self.leaving.held())
    }

    /// Returns the number of connections that peers opened, and of ours.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        (self.incoming.len(), self.outgoing.len())
    }

    fn progressed(&mut self, key: (P, u16), held: usize, progress: Progress) {
        let Some(&(id, _)) = self.outgoing.get(&key) else {
            return;
        };
        let peer = key.0;
        if progress != Progress::Open {
            self.leaving.give(peer, held);
        }
        match progress {
            Progress::Open => return,
            Progress::Sent => {
                self.outputs.push_back(Output::Sent { peer, id });
                return;
            }
            Progress::Closed => {}
            Progress::Failed(cause) => self.outputs.push_back(Output::Failed { peer, id, cause }),
        }
        self.outgoing.remove(&key);
    }

    fn received(&mut self, key: (P, u16), received: Received) {
        let peer = key.0;
        match received {
            Received::Open => return,
            Received::Document(document) => {
                self.outputs.push_back(Output::Received { peer, document });
                return;
            }
            Received::Closed => {}
            Received::Incomplete(cause, bytes) => self.outputs.push_back(Output::Incomplete { peer, bytes, cause }),
        }
        if let Some(mut receiver) = self.incoming.remove(&key) {
            receiver.release(&mut self.arriving, peer);
        }
    }

    /// Forgets connections whose document has passed, if they are what is in the way.
    fn make_room_to_send(&mut self, peer: P) -> Result<(), SendError> {
        let of_peer = self.outgoing.range((peer, 0)..=(peer, u16::MAX));
        let (mut count, mut over) = (0, None);
        for (key, (_, sender)) in of_peer {
            count += 1;
            over = over.or(sender.closing().then_some(*key));
        }
        if count >= self.limits.peer_connections {
            self.outgoing.remove(&over.ok_or(SendError::PeerBusy)?);
        }
        if self.outgoing.len() >= self.limits.connections {
            let over = self.outgoing.iter().find(|(_, (_, sender))| sender.closing());
            let key = *over.ok_or(SendError::Busy)?.0;
            self.outgoing.remove(&key);
        }
        Ok(())
    }

    /// Returns whether `peer` may open one more connection. Its own that have delivered their
    /// document make room.
    fn has_room(&mut self, peer: P) -> bool {
        let of_peer = self.incoming.range((peer, 0)..=(peer, u16::MAX));
        let (mut count, mut over) = (0, None);
        for (key, receiver) in of_peer {
            count += 1;
            over = over.or(receiver.closing().then_some(*key));
        }
        let free = self.limits.connections.saturating_sub(self.incoming.len());
        // The first one needs only room.
        let part = (free / OPEN_OF_FREE).max(1);
        if free > 0 && count < self.limits.peer_connections.min(part) {
            return true;
        }
        over.is_some_and(|key| self.incoming.remove(&key).is_some())
    }

    fn emit(&mut self, peer: P, segments: impl IntoIterator<Item = Vec<u8>>) {
        let outputs = segments.into_iter().map(|bytes| Output::Segment { peer, bytes });
        self.outputs.extend(outputs);
    }

    /// Returns a number that looks random and is another each time.
    fn draw(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        hasher.finish()
    }
}
