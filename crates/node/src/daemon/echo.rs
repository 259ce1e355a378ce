//! Echoes in flight, for `weft ping` and for inquiries about the nodes of a path.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_contract::{Command, SendCommand};
use weft_os::random::random_bytes;
use weft_wire::NodeAddr;

use weft_control::Reply;

/// Returns a number that others cannot guess. A system without randomness gives a constant, with which
/// the answers of others may match.
pub(super) fn random_number() -> u64 {
    let mut bytes = [0; 8];
    let _ = random_bytes(&mut bytes);
    u64::from_ne_bytes(bytes)
}

/// An echo without an answer so far.
pub(super) struct Waiting {
    pub(super) peer: NodeAddr,
    /// The client that waits for it; `None` for an inquiry about the nodes of the path.
    pub(super) reply: Option<Reply>,
    sent: Instant,
    until: Instant,
}

impl Waiting {
    pub(super) fn elapsed(&self) -> Duration {
        self.sent.elapsed()
    }
}

/// Echoes by sequence number. Their count is bounded by the connections of the control server, each
/// of which requests one echo, or one inquiry, at a time.
pub(super) struct Echoes {
    token: u64,
    next: u16,
    waiting: BTreeMap<u16, Waiting>,
}

impl Echoes {
    /// Creates an empty list. `token` is random, so that answers to other echoes do not match.
    pub(super) fn new(token: u64) -> Self {
        Self {
            token,
            next: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Returns the token that distinguishes these echoes from others.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Registers an echo and returns the command that sends it.
    pub(super) fn send(&mut self, peer: NodeAddr, timeout: Duration, reply: Option<Reply>) -> Command {
        let seq = self.expect(peer, timeout, reply);
        Command::Send(SendCommand::Echo {
            peer,
            token: self.token,
            seq,
        })
    }

    /// Registers an echo that is sent otherwise, and returns its number.
    pub(super) fn expect(&mut self, peer: NodeAddr, timeout: Duration, reply: Option<Reply>) -> u16 {
        let seq = self.next;
        self.next = self.next.wrapping_add(1);
        let sent = Instant::now();
        self.waiting.insert(
            seq,
            Waiting {
                peer,
                reply,
                sent,
                until: sent + timeout,
            },
        );
        seq
    }

    /// Takes the oldest echo to a peer whose answers have no number.
    pub(super) fn answered_by(&mut self, peer: NodeAddr) -> Option<Waiting> {
        let of_peer = |(_, waiting): &(&u16, &Waiting)| waiting.peer == peer;
        let oldest = self
            .waiting
            .iter()
            .filter(of_peer)
            .min_by_key(|(_, waiting)| waiting.sent);
        let seq = *oldest?.0;
        self.waiting.remove(&seq)
    }

    /// Takes the echo that an answer belongs to.
    pub(super) fn answered(&mut self, peer: NodeAddr, seq: u16) -> Option<Waiting> {
        if self.waiting.get(&seq)?.peer != peer {
            return None;
        }
        self.waiting.remove(&seq)
    }

    /// Removes and returns the next echo whose time limit has passed.
    pub(super) fn expired(&mut self, now: Instant) -> Option<Waiting> {
        let seq = self.waiting.iter().find(|(_, w)| w.until <= now).map(|(seq, _)| *seq)?;
        self.waiting.remove(&seq)
    }

    /// Returns the earliest time limit of an echo.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.values().map(|w| w.until).min()
    }
}
