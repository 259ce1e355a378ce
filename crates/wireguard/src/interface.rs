//! One private key and its peers.
//!
//! A handshake is begun when a packet waits ([`Interface::want`]), when keys are old, and when the peer has not answered
//! packets for 15 s. Data messages go past this module: it hears what has passed under which keys
//! ([`Interface::note_traffic`]) and says which keys there are ([`Output::Install`], [`Output::Use`],
//! [`Output::Retire`]). A peer is where its last message under keys, or its last response, came from.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use rand_core::CryptoRng;

use crate::handshake::{Own, Remote};
use crate::keys::{PresharedKey, PrivateKey, PublicKey, WeakKey};
use crate::transport::Keys;

mod admission;
mod handshakes;
mod peer;
mod timers;
mod timestamp;

pub use admission::{ALL_PROVEN, MAX_PROVEN, PROVEN, REPLIES, UNPROVEN};
pub use peer::{ASTRAY, ATTEMPTS, FLOOD, JITTER, KEEPALIVE, REJECT_AFTER, REKEY_AFTER, REKEY_TIMEOUT, RESPONSES};

use admission::Admission;
use peer::Peer;

/// The time, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Milliseconds on a clock that never goes back and runs while the machine sleeps: keys end by it.
    pub now: u64,
    /// The time since 1970. It stands in initiations: a peer takes none with an earlier time than it has seen.
    pub unix: Duration,
}

/// What is set for a peer.
#[derive(Debug, Clone, Default)]
pub struct PeerSetup {
    /// A secret beside the keys.
    pub preshared: Option<PresharedKey>,
    /// Where it is, until it comes from elsewhere.
    pub endpoint: Option<SocketAddr>,
    /// The interval in which something is sent in any case, in seconds.
    pub keepalive: Option<u16>,
}

/// What has passed under the keys of one handshake since the last report. What was received counts as the answer to what was
/// sent: what was sent after it belongs in the next report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Data messages with a packet that were sent.
    pub sent: u64,
    /// Authentic data messages with a packet that were received.
    pub received: u64,
    /// Authentic data messages without one that were received.
    pub keepalives: u64,
    /// Where the last of those that were received came from.
    pub from: Option<SocketAddr>,
}

/// What the interface calls for.
#[derive(Debug, Clone)]
pub enum Output {
    /// A handshake message, or a cookie reply.
    Send {
        /// The receiver.
        to: SocketAddr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// There are new keys.
    Install {
        /// Whose.
        peer: PublicKey,
        /// The keys. Messages under them are taken from now on.
        keys: Keys,
        /// Whether this end sends under them at once. Otherwise it waits for [`Output::Use`].
        use_now: bool,
    },
    /// The peer has used keys, so this end does as well.
    Use {
        /// The peer.
        peer: PublicKey,
        /// The index of the keys.
        local: u32,
    },
    /// Keys have ended.
    Retire {
        /// Whose.
        peer: PublicKey,
        /// The index of the keys.
        local: u32,
    },
    /// A data message without a packet is due, under the keys that are used.
    Keepalive {
        /// The receiver.
        peer: PublicKey,
    },
    /// The peer is somewhere else.
    Moved {
        /// The peer.
        peer: PublicKey,
        /// Where it is.
        to: SocketAddr,
    },
    /// A peer has not answered for [`ATTEMPTS`], or its address is not known: packets do not wait for it.
    Unreachable {
        /// The peer.
        peer: PublicKey,
    },
}

/// Messages that were dropped, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Of no known form.
    pub malformed: u64,
    /// With a wrong MAC1: for another node.
    pub not_for_us: u64,
    /// Beyond the rates of [`UNPROVEN`], [`PROVEN`], [`ALL_PROVEN`], [`REPLIES`] and [`RESPONSES`].
    pub too_many: u64,
    /// Answered with a cookie and not read.
    pub cookies: u64,
    /// Not authentic.
    pub forged: u64,
    /// From keys that are no peer's.
    pub strangers: u64,
    /// Initiations that have come before, or too soon after another one.
    pub replayed: u64,
    /// Responses and cookie replies to nothing.
    pub unasked: u64,
}

/// One private key and its peers.
pub struct Interface {
    own: Own,
    peers: BTreeMap<PublicKey, Peer>,
    /// The peers of indices that are in use.
    indices: HashMap<u32, PublicKey>,
    admission: Admission,
    counters: Counters,
    rng: Box<dyn CryptoRng + Send>,
    out: VecDeque<Output>,
}

impl Interface {
    /// Makes an interface without peers.
    #[must_use]
    pub fn new(private: PrivateKey, rng: Box<dyn CryptoRng + Send>) -> Self {
        let own = Own::new(private);
        Self {
            admission: Admission::new(own.public()),
            own,
            peers: BTreeMap::new(),
            indices: HashMap::new(),
            counters: Counters::default(),
            rng,
            out: VecDeque::new(),
        }
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        self.own.public()
    }

    /// Returns the messages that were dropped.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns where a peer is.
    #[must_use]
    pub fn endpoint(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.peers.get(peer)?.endpoint
    }

    /// Adds a peer, or changes what is set for it. A peer with another preshared key loses its keys, and nothing else that is
    /// known of it.
    ///
    /// # Errors
    /// [`WeakKey`]: no handshake with such a peer is secret. Nothing changes.
    pub fn set_peer(&mut self, at: At, peer: PublicKey, setup: PeerSetup) -> Result<(), WeakKey> {
        let remote = Remote::new(&self.own, peer, setup.preshared)?;
        if self.peers.get(&peer).is_some_and(|known| !known.remote.is_as(&remote)) {
            self.forget_keys(&peer);
        }
        let known = match self.peers.entry(peer) {
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                known.remote = remote;
                known
            }
            Entry::Vacant(entry) => entry.insert(Peer::new(at.now, remote)),
        };
        known.persistent = setup.keepalive.filter(|s| *s > 0).map(|s| u64::from(s) * 1_000);
        let moved = setup.endpoint.filter(|_| setup.endpoint != known.home);
        known.home = setup.endpoint;
        let begins = known.persistent.is_some() && known.usable(at.now).is_none();
        if let Some(to) = moved {
            self.follow(&peer, to);
        }
        if begins {
            self.want(at, &peer);
        }
        Ok(())
    }

    /// Ends the keys of a peer, and its handshake.
    fn forget_keys(&mut self, peer: &PublicKey) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        let slots = known.slots().map(Option::take);
        (known.attempt, known.answered, known.until) = (None, None, None);
        (known.silent_at, known.alive_at) = (None, None);
        for slot in slots.into_iter().flatten() {
            self.out.push_back(Output::Retire {
                peer: *peer,
                local: slot.local,
            });
        }
        self.indices.retain(|_, of| of != peer);
    }

    /// Removes a peer with its keys.
    pub fn remove_peer(&mut self, peer: &PublicKey) {
        self.forget_keys(peer);
        self.peers.remove(peer);
    }

    /// Notes that a packet for a peer waits, because there are no keys.
    pub fn want(&mut self, at: At, peer: &PublicKey) {
        match self.peers.get(peer) {
            Some(known) if known.usable(at.now).is_some() => {}
            Some(_) => self.start(at, peer),
            None => self.out.push_back(Output::Unreachable { peer: *peer }),
        }
    }

    fn follow(&mut self, key: &PublicKey, from: SocketAddr) {
        if let Some(peer) = self.peers.get_mut(key)
            && peer.endpoint.replace(from) != Some(from)
        {
            self.out.push_back(Output::Moved { peer: *key, to: from });
        }
    }

    /// Removes and returns what is next to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }
}

/// Returns an address in the form that it has on an IPv4 socket, if it is one of IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Returns an index that is not in use.
fn free_index(indices: &HashMap<u32, PublicKey>, rng: &mut dyn CryptoRng) -> u32 {
    loop {
        let index = rng.next_u32();
        if !indices.contains_key(&index) {
            return index;
        }
    }
}

#[cfg(test)]
mod tests;
