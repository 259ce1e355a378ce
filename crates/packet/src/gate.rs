//! The gate: the handshake messages of links that reach the core, before anything of them is
//! authenticated.
//!
//! A forged message costs the core one or two Diffie-Hellmans. An attacker cannot forge the tag of
//! a node that this one knows ([`weft_noise::tag`]): a message with a valid tag passes once, and
//! again as a repeat. All others share a budget. Messages from hosts where peers are expected have
//! one pool, messages from elsewhere a second one, and in each pool no host and no network prefix
//! gets all. If there are too many, some pass by a random draw ([`Bucket::take_by_lot`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use siphasher::sip::SipHasher24;
use weft_contract::{Bucket, Expected, HandshakeLimits, Rate};
use weft_noise::tag::{Digest, TAG_MASK, TagKey};
use weft_wire::{NodeAddr, fmp};

/// The number of Diffie-Hellmans that a forged msg1 costs at most.
const DIFFIE_HELLMANS: u64 = 2;
/// One known host gets at most a pool divided by this.
const OF_HOST: u64 = 2;
/// One network prefix gets at most a pool divided by this.
const OF_PREFIX: u64 = 8;
/// The rate of messages from a known host that pass although its pool is empty.
const RESERVE: Rate = Rate {
    per_second: 2,
    burst: 4,
};
/// The number of buckets that network prefixes, IPv4 /24 and IPv6 /56, share by a keyed hash.
const PREFIXES: usize = 256;
/// The rate of tag comparisons for messages from hosts where their sender is not expected: 16 ns
/// each.
const TRIALS: Rate = Rate {
    per_second: 1_000_000,
    burst: 100_000,
};
/// The rate of messages of one peer that have a valid tag and were never received before.
const TAGGED: Rate = Rate {
    per_second: 8,
    burst: 32,
};
/// The number of messages of each peer that may be repeats of its own.
const RECENT: usize = 32;
/// The number of older messages of each peer that are known as recordings, 4 bytes each. That
/// covers a day and more, if both ends rekey each two minutes.
const RECORDED: usize = 1_024;
/// The shortest time after which a sender repeats a message, in ms.
const REPEAT_AFTER: u64 = 200;
/// The rate of answers without a tag to one message of this node, each for known hosts and for
/// others. An honest peer sends one.
const ANSWERS: Rate = Rate {
    per_second: 8,
    burst: 16,
};

/// The budget for messages that prove nothing. Times are ms on the caller's clock.
#[derive(Debug)]
pub(crate) struct Gate {
    key: [u8; 16],
    draws: u64,
    pool: Rate,
    known: Bucket,
    reserve: Bucket,
    others: Bucket,
    answers: Bucket,
    trials: Bucket,
    prefixes: Vec<Bucket>,
    hosts: BTreeMap<IpAddr, Host>,
    peers: BTreeMap<NodeAddr, Peer>,
    armed: BTreeMap<u32, Armed>,
    /// Where the next search for the sender of a tag begins.
    next: NodeAddr,
}

/// A host where peers are expected.
#[derive(Debug)]
struct Host {
    peers: Vec<NodeAddr>,
    bucket: Bucket,
    reserve: Bucket,
}

/// A node that this one knows.
#[derive(Debug)]
pub(crate) struct Peer {
    hosts: Vec<IpAddr>,
    tag: Option<TagKey>,
    fresh: Bucket,
    /// Messages that passed by their tag, and when they last did, in ms.
    recent: Vec<(Digest, u64)>,
    /// Older messages, by the start of their digest.
    recorded: VecDeque<u32>,
}

/// A msg1 of this node that waits for its answer.
#[derive(Debug)]
struct Armed {
    peer: NodeAddr,
    tagged: Bucket,
    known: Bucket,
    others: Bucket,
}

impl Gate {
    pub(crate) fn new(limits: HandshakeLimits) -> Self {
        let per_second = (limits.per_second / DIFFIE_HELLMANS / 2).max(1);
        let pool = Rate {
            per_second,
            burst: per_second,
        };
        Self {
            key: limits.key,
            draws: 0,
            pool,
            known: Bucket::new(pool, 0),
            reserve: Bucket::new(pool, 0),
            others: Bucket::new(pool, 0),
            answers: Bucket::new(pool, 0),
            trials: Bucket::new(TRIALS, 0),
            prefixes: vec![Bucket::new(part(pool, OF_PREFIX), 0); PREFIXES],
            hosts: BTreeMap::new(),
            peers: BTreeMap::new(),
            armed: BTreeMap::new(),
            next: NodeAddr::new([0; 16]),
        }
    }

    /// Replaces the hosts and the tag key of a peer. The state of its buckets stays.
    pub(crate) fn expect(&mut self, now: u64, expected: Expected) {
        let before = self.forget(expected.peer);
        for host in &expected.hosts {
            let known = self.hosts.entry(*host).or_insert_with(|| Host {
                peers: Vec::new(),
                bucket: Bucket::new(part(self.pool, OF_HOST), now),
                reserve: Bucket::new(RESERVE, now),
            });
            known.peers.reserve_exact(1);
            known.peers.push(expected.peer);
        }
        let (hosts, tag) = (expected.hosts, expected.tag);
        let peer = match before {
            Some(before) => Peer { hosts, tag, ..before },
            None => Peer {
                hosts,
                tag,
                fresh: Bucket::new(TAGGED, now),
                recent: Vec::new(),
                recorded: VecDeque::new(),
            },
        };
        self.peers.insert(expected.peer, peer);
    }

    /// Removes a peer and returns it.
    pub(crate) fn forget(&mut self, peer: NodeAddr) -> Option<Peer> {
        let known = self.peers.remove(&peer)?;
        for host in &known.hosts {
            if let Some(at) = self.hosts.get_mut(host) {
                at.peers.retain(|other| *other != peer);
                if at.peers.is_empty() {
                    self.hosts.remove(host);
                }
            }
        }
        Some(known)
    }

    /// Records that this node sent a msg1 with this sender index to `peer`.
    pub(crate) fn arm(&mut self, now: u64, index: u32, peer: NodeAddr) {
        let bucket = Bucket::new(ANSWERS, now);
        let armed = Armed {
            peer,
            tagged: bucket,
            known: bucket,
            others: bucket,
        };
        self.armed.insert(index, armed);
    }

    /// Records that the msg1 with this sender index no longer waits for an answer.
    pub(crate) fn disarm(&mut self, index: u32) {
        self.armed.remove(&index);
    }

    /// Returns whether a msg1 goes to the core.
    pub(crate) fn admits_msg1(&mut self, now: u64, host: IpAddr, msg1: &fmp::Msg1<'_>) -> bool {
        let digest = Digest::of_msg1(msg1.noise);
        let known = self.sender_of(now, host, msg1.sender_idx, digest);
        if known.is_some_and(|peer| self.admits_tagged(now, peer, digest)) {
            return true;
        }
        let draws = [self.draw(), self.draw()];
        let pool = self.pool;
        if let Some(host) = self.hosts.get_mut(&host) {
            let of_host = host.bucket.take_by_lot(part(pool, OF_HOST), now, draws[0]);
            let admitted = of_host && self.known.take_by_lot(pool, now, draws[1]);
            return admitted || host.reserve.take(RESERVE, now, 1) == 1 && self.reserve.take(pool, now, 1) == 1;
        }
        let slot = self.hash(&prefix(host)) as usize % PREFIXES;
        let Some(bucket) = self.prefixes.get_mut(slot) else {
            return false;
        };
        bucket.take_by_lot(part(pool, OF_PREFIX), now, draws[0]) && self.others.take_by_lot(pool, now, draws[1])
    }

    /// Returns whether a msg2 goes to the core.
    pub(crate) fn admits_msg2(&mut self, now: u64, host: IpAddr, msg2: &fmp::Msg2<'_>) -> bool {
        let draws = [self.draw(), self.draw()];
        let pool = self.pool;
        let Some(armed) = self.armed.get_mut(&msg2.receiver_idx) else {
            return false;
        };
        let tag = self.peers.get(&armed.peer).and_then(|peer| peer.tag.as_ref());
        let digest = || Digest::of_msg2(msg2.noise, msg2.receiver_idx);
        if tag.is_some_and(|tag| tag.tag(digest()) == msg2.sender_idx & TAG_MASK) {
            return armed.tagged.take(ANSWERS, now, 1) == 1;
        }
        let known = self.hosts.contains_key(&host);
        let bucket = if known { &mut armed.known } else { &mut armed.others };
        bucket.take_by_lot(ANSWERS, now, draws[0]) && self.answers.take_by_lot(pool, now, draws[1])
    }

    /// Returns the peer whose tag is on a msg1. Peers that are expected at this host are tried
    /// first.
    fn sender_of(&mut self, now: u64, host: IpAddr, index: u32, digest: Digest) -> Option<NodeAddr> {
        let fits = |peer: &Peer| {
            let tag = peer.tag.as_ref();
            tag.is_some_and(|tag| tag.tag(digest) == index & TAG_MASK)
        };
        let here = self.hosts.get(&host).map_or(&[][..], |host| &host.peers);
        if let Some(peer) = here.iter().find(|peer| self.peers.get(peer).is_some_and(fits)) {
            return Some(*peer);
        }
        let trials = self.trials.take(TRIALS, now, self.peers.len());
        let (before, behind) = (self.peers.range(..self.next), self.peers.range(self.next..));
        let mut last = None;
        for (peer, known) in behind.chain(before).take(trials) {
            if fits(known) {
                return Some(*peer);
            }
            last = Some(*peer);
        }
        // If not all peers could be compared, the next search begins with the rest.
        if let Some(last) = last.filter(|_| trials < self.peers.len()) {
            let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            self.next = self
                .peers
                .range(after)
                .next()
                .map_or(NodeAddr::new([0; 16]), |(peer, _)| *peer);
        }
        None
    }

    /// Admits a message with a valid tag once, and again when its sender may have repeated it.
    /// Recordings and copies have valid tags too, under sixteen indices each. They are recognised
    /// by their digest, and only messages that were never received before use up the peer's rate. A
    /// message that does not pass here is treated as one without a tag.
    fn admits_tagged(&mut self, now: u64, peer: NodeAddr, digest: Digest) -> bool {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return false;
        };
        if let Some((_, at)) = peer.recent.iter_mut().find(|(recent, _)| *recent == digest) {
            let repeated = now.saturating_sub(*at) >= REPEAT_AFTER;
            if repeated {
                *at = now;
            }
            return repeated;
        }
        if peer.recorded.contains(&digest.start()) || peer.fresh.take(TAGGED, now, 1) == 0 {
            return false;
        }
        if peer.recent.len() >= RECENT {
            let (oldest, _) = peer.recent.remove(0);
            if peer.recorded.len() >= RECORDED {
                peer.recorded.pop_front();
            }
            peer.recorded.push_back(oldest.start());
        }
        peer.recent.reserve_exact(1);
        peer.recent.push((digest, now));
        true
    }

    /// Returns a number that the senders of messages cannot predict.
    fn draw(&mut self) -> u32 {
        self.draws += 1;
        self.hash(&self.draws.to_le_bytes()) as u32
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.key).hash(bytes)
    }

    #[cfg(test)]
    fn len(&self) -> (usize, usize, usize) {
        (self.hosts.len(), self.peers.len(), self.armed.len())
    }
}

/// Returns the rate of a pool divided by `of`, and at least 1.
fn part(pool: Rate, of: u64) -> Rate {
    Rate {
        per_second: (pool.per_second / of).max(1),
        burst: (pool.burst / of).max(1),
    }
}

/// Returns what hosts of one owner have in common: the first 24 bits of an IPv4 address, the first
/// 56 of an IPv6 address.
fn prefix(host: IpAddr) -> [u8; 8] {
    let mut prefix = [0; 8];
    match host.to_canonical() {
        IpAddr::V4(host) => prefix[..3].copy_from_slice(&host.octets()[..3]),
        IpAddr::V6(host) => {
            prefix[..7].copy_from_slice(&host.octets()[..7]);
            prefix[7] = 6;
        }
    }
    prefix
}

#[cfg(test)]
mod tests;
