//! The flows that are known: the end that began each, and whether it may go on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_wire::NodeAddr;
use weft_wire::ip::{PROTOCOL_TCP, PROTOCOL_UDP};

use super::flow_key::FlowKey;
use super::held::Held;
use crate::counters::DropReason;

/// Flows of a node, at most.
pub const MAX_FLOWS: usize = SHARDS * OF_SHARD;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;
/// Flows in one part.
const OF_SHARD: usize = 1_024;
/// Flows in one part that peers began. The others are kept for this host.
const OF_PEERS: usize = OF_SHARD / 4 * 3;
/// Flows in one part that one peer began.
const OF_PEER: u16 = (OF_SHARD / 4) as u16;
/// The shortest interval between two searches of a full part for flows that have ended, in ms.
const SWEEP_AGAIN: u64 = 1_000;

/// How long a TCP connection is kept that is silent, in ms (RFC 5382 section 5).
const TCP_IDLE: u64 = (2 * 60 + 4) * 60_000;
/// The same before the other end has answered, and after one has ended it.
const TCP_TRANSITORY: u64 = 4 * 60_000;
/// How long a UDP flow with packets of both ends is kept (RFC 4787 section 4.3).
const UDP_IDLE: u64 = 5 * 60_000;
/// How long all others are kept, and UDP before an answer.
const IDLE: u64 = 60_000;
/// How long fragments wait for the rest of their packet (RFC 8200 section 4.5).
const FRAGMENTS: u64 = 60_000;
/// Fragmented packets that one part remembers. They are apart from the flows, because a host may send
/// thousands a second, and each of them needs a place of its own.
const FRAGMENTED: usize = 64;

/// The flows of a node, shared by its lanes.
pub struct FlowTable {
    hash_key: u64,
    shards: Vec<Mutex<Shard>>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Shard {
    flows: BTreeMap<FlowKey, Flow>,
    /// The packets whose first fragment has passed, and the last millisecond of each. Its hash picks
    /// the place, and a new one displaces the old.
    fragmented: Vec<(FlowKey, u64)>,
    /// How many flows each peer began.
    of_peers: BTreeMap<NodeAddr, u16>,
    /// How many flows peers began.
    peers: usize,
    swept: u64,
}

/// What the table forgets with a flow that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    Nothing,
    /// That a peer began the connection, which may be open still.
    Beginner,
    /// That the rules have denied it.
    Denial,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    /// The last millisecond of the flow, unless a packet passes.
    until: u64,
    /// The peer that began the flow, unless this host did.
    begun_by: Option<NodeAddr>,
    /// The policy that decided about it.
    generation: u64,
    /// A policy has ended it. It is kept so that packets of this host do not begin it again.
    denied: bool,
    /// Packets of both ends have passed.
    answered: bool,
    /// An end has ended the connection.
    ended: bool,
}

/// A packet of this host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    /// Whether the packet can be the first one of a flow: each can, but those of an open TCP connection.
    pub(super) begins: bool,
    /// Whether the packet ends its connection.
    pub(super) ends: bool,
}

/// A packet from a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// The peer.
    pub(super) peer: NodeAddr,
    /// The present policy.
    pub(super) generation: u64,
    /// Whether the packet ends its connection.
    pub(super) ends: bool,
}

impl FlowTable {
    /// Makes an empty table. `hash_key` is random, so that no peer can choose the part that its
    /// flows are in.
    pub(crate) fn new(hash_key: u64) -> Self {
        Self {
            hash_key,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            held: Mutex::new(Held::new()),
        }
    }

    /// The number of flows, ended ones included that no packet has displaced yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).flows.len()).sum()
    }

    /// Whether there are no flows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn hash_key(&self) -> u64 {
        self.hash_key
    }

    /// Makes the flow of a packet of this host known. Returns false if there is no room for it.
    ///
    /// No packet of this host makes the flow of a peer one of this host while it lasts. It lasts while
    /// this host goes on to send, if it is denied, and so does a TCP connection of a peer.
    pub(super) fn outbound(&self, now: u64, key: &FlowKey, departure: Departure) -> bool {
        let mut shard = self.shard(key);
        let goes_on = |flow: &&mut Flow| now <= flow.until || !departure.begins && flow.begun_by.is_some();
        if let Some(flow) = shard.flows.get_mut(key).filter(goes_on) {
            if !flow.denied {
                flow.answered |= flow.begun_by.is_some();
                flow.ended |= departure.ends;
            }
            flow.until = now + flow.idle(key);
            return true;
        }
        shard.insert(now, *key, Flow::new(None, 0, departure.ends))
    }

    /// Admits a packet of a peer. `decide` asks the rules about its flow.
    pub(super) fn inbound(
        &self,
        now: u64,
        key: &FlowKey,
        arrival: Arrival,
        decide: impl FnOnce() -> bool,
    ) -> Result<(), DropReason> {
        let mut shard = self.shard(key);
        let Some(flow) = shard.live(now, key) else {
            let new = Flow::new(Some(arrival.peer), arrival.generation, arrival.ends);
            return match decide() {
                true if shard.insert(now, *key, new) => Ok(()),
                true => Err(DropReason::FlowsFull),
                false => Err(DropReason::Denied),
            };
        };
        if flow.begun_by.is_none() {
            flow.answered = true;
        } else if flow.generation != arrival.generation {
            flow.generation = arrival.generation;
            let denied = !decide();
            if denied && !flow.denied {
                flow.denied = true;
                flow.until = now + flow.idle(key);
            }
            flow.denied = denied;
        }
        if flow.denied {
            return Err(DropReason::Denied);
        }
        flow.ended |= arrival.ends;
        flow.until = now + flow.idle(key);
        Ok(())
    }

    /// Adds an open flow, unless it is known. `begun_by`: the peer that began it, unless this host did. Its
    /// next packet asks the present rules.
    pub(super) fn enter(&self, now: u64, key: FlowKey, begun_by: Option<NodeAddr>) {
        let mut shard = self.shard(&key);
        if shard.live(now, &key).is_none() {
            let flow = Flow {
                answered: true,
                ..Flow::new(begun_by, 0, false)
            };
            shard.insert(now, key, flow);
        }
    }

    /// Lets the other fragments of a packet pass, of which the first has. Returns those that waited,
    /// and the number of others that were given up.
    pub(super) fn pass_fragments(&self, now: u64, peer: NodeAddr, key: &FlowKey) -> (Vec<Vec<u8>>, u64) {
        self.note_first(now, key);
        lock(&self.held).take(now, peer, key)
    }

    /// Drops the fragments of a packet that waited for its first one. Returns the number of all that were
    /// given up.
    pub(super) fn drop_fragments(&self, now: u64, peer: NodeAddr, key: &FlowKey) -> u64 {
        let (waited, expired) = lock(&self.held).take(now, peer, key);
        waited.len() as u64 + expired
    }

    /// Keeps a later fragment until the first one of its packet is decided about. Returns `None` if it
    /// was in the meantime, and has passed; otherwise the number of fragments that were given up.
    pub(super) fn hold_fragment(&self, now: u64, peer: NodeAddr, key: FlowKey, packet: &[u8]) -> Option<u64> {
        // Other lanes note the first one before they ask for what waits.
        let mut held = lock(&self.held);
        (!self.has_fragments(now, &key)).then(|| held.push(now, peer, key, packet))
    }

    fn note_first(&self, now: u64, key: &FlowKey) {
        let mut shard = self.shard(key);
        shard.fragmented.resize(FRAGMENTED, (FlowKey::NONE, 0));
        if let Some(place) = shard.fragmented.get_mut(self.place(key)) {
            *place = (*key, now + FRAGMENTS);
        }
    }

    /// Whether the first fragment of a packet has passed.
    pub(super) fn has_fragments(&self, now: u64, key: &FlowKey) -> bool {
        let shard = self.shard(key);
        let place = shard.fragmented.get(self.place(key));
        place.is_some_and(|(first, until)| first == key && now <= *until)
    }

    /// The place of a fragmented packet in its part.
    fn place(&self, key: &FlowKey) -> usize {
        key.hash(self.hash_key) as usize % FRAGMENTED
    }

    /// Whether a flow is known and may go on.
    pub(super) fn has(&self, now: u64, key: &FlowKey) -> bool {
        self.shard(key).live(now, key).is_some_and(|flow| !flow.denied)
    }

    fn shard(&self, key: &FlowKey) -> MutexGuard<'_, Shard> {
        // The low bits pick the place in the memory of a lane.
        let shard = (key.hash(self.hash_key) >> 32) as usize % SHARDS;
        lock(&self.shards[shard])
    }
}

impl Shard {
    fn live(&mut self, now: u64, key: &FlowKey) -> Option<&mut Flow> {
        self.flows.get_mut(key).filter(|flow| now <= flow.until)
    }

    /// Adds a flow, in place of one that has ended. Returns false if there is no room.
    fn insert(&mut self, now: u64, key: FlowKey, mut flow: Flow) -> bool {
        flow.until = now + flow.idle(&key);
        self.remove(&key);
        if !self.has_room(flow.begun_by) {
            if now < self.swept.saturating_add(SWEEP_AGAIN) && self.swept != 0 {
                return false;
            }
            self.swept = now.max(1);
            for dearest in [Loss::Nothing, Loss::Beginner, Loss::Denial] {
                self.remove_if(|key, flow| flow.until < now && flow.loss(key) <= dearest);
                if self.has_room(flow.begun_by) {
                    break;
                }
            }
            if !self.has_room(flow.begun_by) {
                return false;
            }
        }
        if let Some(peer) = flow.begun_by {
            *self.of_peers.entry(peer).or_default() += 1;
            self.peers += 1;
        }
        self.flows.insert(key, flow);
        true
    }

    fn has_room(&self, begun_by: Option<NodeAddr>) -> bool {
        let of_peer =
            |peer: NodeAddr| self.peers < OF_PEERS && self.of_peers.get(&peer).is_none_or(|flows| *flows < OF_PEER);
        self.flows.len() < OF_SHARD && begun_by.is_none_or(of_peer)
    }

    fn remove_if(&mut self, ended: impl Fn(&FlowKey, &Flow) -> bool) {
        let ended = self.flows.iter().filter(|(key, flow)| ended(key, flow));
        let ended: Vec<FlowKey> = ended.map(|(key, _)| *key).collect();
        for key in ended {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &FlowKey) {
        let Some(peer) = self.flows.remove(key).and_then(|flow| flow.begun_by) else {
            return;
        };
        self.peers = self.peers.saturating_sub(1);
        match self.of_peers.get_mut(&peer) {
            Some(flows @ 2..) => *flows -= 1,
            _ => drop(self.of_peers.remove(&peer)),
        }
    }
}

impl Flow {
    const fn new(begun_by: Option<NodeAddr>, generation: u64, ended: bool) -> Self {
        Self {
            until: 0,
            begun_by,
            generation,
            denied: false,
            answered: false,
            ended,
        }
    }

    const fn loss(&self, key: &FlowKey) -> Loss {
        match self.begun_by {
            _ if self.denied => Loss::Denial,
            Some(_) if key.protocol() == PROTOCOL_TCP => Loss::Beginner,
            _ => Loss::Nothing,
        }
    }

    /// How long the flow is kept after a packet, in ms. A denied flow is kept for the longest pause
    /// between two packets of a host that continues to send.
    const fn idle(&self, key: &FlowKey) -> u64 {
        match key.protocol() {
            PROTOCOL_TCP if self.denied => TCP_IDLE,
            _ if self.denied => UDP_IDLE,
            PROTOCOL_TCP if self.answered && !self.ended => TCP_IDLE,
            PROTOCOL_TCP => TCP_TRANSITORY,
            PROTOCOL_UDP if self.answered => UDP_IDLE,
            _ => IDLE,
        }
    }
}

const _: () = assert!(
    size_of::<FlowKey>() + size_of::<Flow>() <= 96,
    "as docs/protocol/security.md says"
);

pub(super) fn lock<T>(part: &Mutex<T>) -> MutexGuard<'_, T> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for FlowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowTable")
            .field("flows", &self.len())
            .finish_non_exhaustive()
    }
}
