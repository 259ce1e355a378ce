//! What every state machine of the node is handed with an event, and where its effects go.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use rand_core::{CryptoRng, Rng};
use weft_noise::Identity;
use weft_noise::tag::TAG_MASK;
use weft_packet::{Command, LANE_MASK, LinkId};
use weft_wire::NodeAddr;

use crate::link::FirstMessages;
use crate::unproven::{Arrival, Unproven};
use crate::{Config, Event};

/// What the node wants done.
#[derive(Debug)]
pub enum Output {
    /// For the lane that owns the link or session.
    Lane(Command),
    /// Something a person or the daemon may want to know.
    Event(Event),
}

/// What probes of paths did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    pub(crate) probes: u64,
    pub(crate) raises: u64,
    pub(crate) black_holes: u64,
    /// Sizes that others told and that are below what any path has.
    pub(crate) refused: u64,
}

/// The node without its peers: who we are, how we are set up, chance, and the effects so far.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
    /// Our own address, so that it need not be derived again.
    pub(crate) me: NodeAddr,
    /// The random number that tells our starts apart.
    pub(crate) epoch: [u8; 8],
    pub(crate) rng: Box<dyn CryptoRng + Send>,
    /// Receiver indices in use on our side, so that none is given twice.
    indices: BTreeSet<u32>,
    /// The same for fast frames, which have indices of their own.
    fast_indices: BTreeSet<u32>,
    pub(crate) path_counters: PathCounters,
    /// What handshake messages of sessions may cost that prove nothing.
    pub(crate) unproven: Unproven,
    /// First handshake messages of links that were answered.
    pub(crate) first_messages: FirstMessages,
    outputs: VecDeque<Output>,
}

impl Context {
    pub(crate) fn new(config: Config, identity: Identity, mut rng: Box<dyn CryptoRng + Send>) -> Self {
        let mut epoch = [0; 8];
        rng.fill_bytes(&mut epoch);
        let me = identity.public().node_addr();
        Self {
            unproven: Unproven::new(config.unproven_per_second),
            config,
            identity,
            me,
            epoch,
            rng,
            indices: BTreeSet::new(),
            fast_indices: BTreeSet::new(),
            path_counters: PathCounters::default(),
            first_messages: FirstMessages::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Whether a handshake message of a session that came over this link is worth its Diffie-Hellmans.
    pub(crate) fn admits(&mut self, now: u64, link: LinkId, arrival: Arrival) -> bool {
        self.unproven.admits(now, link, arrival, &mut *self.rng)
    }

    pub(crate) fn lane(&mut self, command: Command) {
        self.outputs.push_back(Output::Lane(command));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A receiver index that no epoch of ours uses.
    pub(crate) fn allocate_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32();
            if self.indices.insert(index) {
                return index;
            }
        }
    }

    /// The same with a tag in its upper bits, as [`weft_noise::tag`] says. A tag all of whose 16 indices are in use gives any.
    pub(crate) fn allocate_tagged(&mut self, tag: u32) -> u32 {
        let first = self.rng.next_u32();
        let tagged = (0..=!TAG_MASK).map(|n| tag & TAG_MASK | first.wrapping_add(n) & !TAG_MASK);
        for index in tagged {
            if self.indices.insert(index) {
                return index;
            }
        }
        self.allocate_index()
    }

    /// Where a link leads, for the lanes that do not own it.
    pub(crate) fn place_link(&mut self, link: LinkId, peer: NodeAddr, path: SocketAddr) {
        if self.config.lanes > 1 {
            let left = None;
            self.lane(Command::PlaceLink { link, peer, path, left });
        }
    }

    /// A receiver index that no fast keys of ours use, for the first lane. Those of the others are the numbers behind it.
    pub(crate) fn allocate_fast_index(&mut self) -> u32 {
        loop {
            let index = self.rng.next_u32() & !LANE_MASK;
            if self.fast_indices.insert(index) {
                return index;
            }
        }
    }

    pub(crate) fn free_fast_index(&mut self, index: u32) {
        self.fast_indices.remove(&index);
    }

    pub(crate) fn free_index(&mut self, index: u32) {
        self.indices.remove(&index);
    }

    pub(crate) fn indices_held(&self) -> usize {
        self.indices.len()
    }

    /// `base` ms, moved by up to an eighth either way, so that two ends do not act at the same moment.
    pub(crate) fn jittered(&mut self, base: u64) -> u64 {
        let span = base / 4;
        base - base / 8 + u64::from(self.rng.next_u32()) % span.max(1)
    }
}
