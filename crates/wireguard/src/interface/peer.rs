//! One peer: its keys, its handshake, and when something is due (paper, section 6).

use std::net::SocketAddr;

use weft_contract::{Bucket, Rate};

use super::timestamp::Timestamps;
use crate::cookie::Jar;
use crate::handshake::{Initiating, Remote};
use crate::message::TIMESTAMP_LEN;

/// The age of keys at which their initiator makes new ones when it sends, in ms.
pub const REKEY_AFTER: u64 = 120_000;
/// The age at which keys end, in ms.
pub const REJECT_AFTER: u64 = 180_000;
/// For how long a handshake is tried, in ms.
pub const ATTEMPTS: u64 = 90_000;
/// The shortest interval between two initiations to one peer, and how long an answer is waited for, in ms.
pub const REKEY_TIMEOUT: u64 = 5_000;
/// The longest that is added at random to that interval, in ms.
pub const JITTER: u64 = 333;
/// After this time without sending, an end that has received a packet says that it is there, in ms.
pub const KEEPALIVE: u64 = 10_000;
/// The shortest interval between two initiations of one peer that are answered, in ms.
pub const FLOOD: u64 = 20;

/// Responses of one peer with the index of an attempt. A node elsewhere cannot know that index.
pub const RESPONSES: Rate = Rate {
    per_second: 2,
    burst: 8,
};
/// After this number of attempts, each second one goes where the peer was set to be.
pub const ASTRAY: u32 = 3;

/// The place of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// The index in messages to this end.
    pub(super) local: u32,
    pub(super) born: u64,
    /// Whether this end began the handshake.
    pub(super) initiator: bool,
}

impl Slot {
    pub(super) const fn ends(&self) -> u64 {
        self.born + REJECT_AFTER
    }
}

/// A handshake of this end that has no answer.
pub(super) struct Attempt {
    pub(super) handshake: Initiating,
    pub(super) local: u32,
}

pub(super) struct Peer {
    pub(super) remote: Remote,
    pub(super) jar: Jar,
    /// Where it is, as far as it is known.
    pub(super) endpoint: Option<SocketAddr>,
    /// Where it is by what was set.
    pub(super) home: Option<SocketAddr>,
    /// The interval in which something is sent in any case, in ms.
    pub(super) persistent: Option<u64>,
    /// The latest timestamp of its initiations.
    pub(super) timestamp: Option<[u8; TIMESTAMP_LEN]>,
    /// Before this time its initiations are not answered.
    pub(super) answer_from: u64,
    pub(super) attempt: Option<Attempt>,
    /// The index of the last response, for a cookie reply to it.
    pub(super) answered: Option<u32>,
    /// Until when the present series of attempts goes on; `None` if there is none.
    pub(super) until: Option<u64>,
    /// When the next attempt is due.
    pub(super) next: u64,
    /// How many attempts the present series has had.
    pub(super) tries: u32,
    /// When the last initiation was sent.
    pub(super) initiated: Option<u64>,
    /// The times in its initiations.
    pub(super) times: Timestamps,
    /// Keys that were in use before, the newest first: what is under way under them still counts.
    pub(super) previous: [Option<Slot>; 2],
    pub(super) current: Option<Slot>,
    /// Keys of a handshake that the peer began, until it uses them.
    pub(super) coming: Option<Slot>,
    /// When the peer has said nothing for too long after a packet of this end.
    pub(super) silent_at: Option<u64>,
    /// When this end says that it is there, since it has received a packet and sent nothing.
    pub(super) alive_at: Option<u64>,
    /// When something was last sent under keys.
    pub(super) sent: u64,
    /// Responses that are computed with.
    responses: Bucket,
}

impl Peer {
    pub(super) fn new(now: u64, remote: Remote) -> Self {
        Self {
            jar: Jar::new(remote.public()),
            remote,
            endpoint: None,
            home: None,
            persistent: None,
            timestamp: None,
            answer_from: 0,
            attempt: None,
            answered: None,
            until: None,
            next: 0,
            tries: 0,
            initiated: None,
            times: Timestamps::default(),
            previous: [None; 2],
            current: None,
            coming: None,
            silent_at: None,
            alive_at: None,
            sent: now,
            responses: Bucket::new(RESPONSES, now),
        }
    }

    /// Returns the keys under which is sent.
    pub(super) fn usable(&self, now: u64) -> Option<&Slot> {
        self.current.as_ref().filter(|slot| now < slot.ends())
    }

    /// Returns where the next attempt goes. After some of them each second one goes where the peer was set to be: an attacker
    /// between both ends can have shown each that the other one is elsewhere.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        match self.tries {
            tries if tries >= ASTRAY && tries % 2 == 1 => self.home.or(self.endpoint),
            _ => self.endpoint,
        }
    }

    /// Takes one response out of the budget of the peer.
    pub(super) fn may_read_response(&mut self, now: u64) -> bool {
        self.responses.take(RESPONSES, now, 1) == 1
    }

    /// Makes keys those that were in use before, and returns those for which there is no room.
    pub(super) const fn retreat(&mut self, slot: Option<Slot>) -> Option<Slot> {
        let [newest, oldest] = self.previous;
        if slot.is_none() {
            return None;
        }
        self.previous = [slot, newest];
        oldest
    }

    /// Returns the places of keys, so that those that end can be taken out.
    pub(super) const fn slots(&mut self) -> [&mut Option<Slot>; 4] {
        let [newest, oldest] = &mut self.previous;
        [newest, oldest, &mut self.current, &mut self.coming]
    }

    /// Returns whether this end renews keys under which it has sent at `now`, or received. What is received is a
    /// reason for it later than what is sent.
    pub(super) fn is_worn(&self, now: u64, slot: &Slot, sent: bool) -> bool {
        let age = match sent {
            true => REKEY_AFTER,
            false => REJECT_AFTER - KEEPALIVE - REKEY_TIMEOUT,
        };
        slot.initiator && now >= slot.born + age && self.current.as_ref() == Some(slot)
    }

    /// Returns when the next persistent keepalive is due.
    pub(super) fn persistent_at(&self) -> Option<u64> {
        let at = self.sent + self.persistent?;
        // Without keys a handshake takes its place, and that has times of its own.
        self.until.is_none().then_some(at)
    }

    /// Returns when something is due.
    pub(super) fn due(&self) -> Option<u64> {
        let attempt = self.until.map(|until| self.next.min(until));
        let slots = self.previous.iter().chain([&self.current, &self.coming]);
        let ends = slots.flatten().map(Slot::ends).min();
        [attempt, ends, self.silent_at, self.alive_at, self.persistent_at()]
            .into_iter()
            .flatten()
            .min()
    }
}
