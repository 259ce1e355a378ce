//! What every state machine of the node receives with an event, and where its effects go.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rand_core::{CryptoRng, Rng};
use weft_contract::{Command, Endpoint, LANE_MASK, LinkCommand, LinkId, ReceiverIndex, SessionCommand, SocketId};
use weft_noise::tag::TAG_MASK;
use weft_noise::{Identity, PublicKey};
use weft_wire::NodeAddr;
use weft_wire::session::{DataPorts, TraversalType};

use crate::link::{Dials, FirstMessages};
use crate::unconfirmed::Unconfirmed;
use crate::unproven::{Arrival, Unproven};
use crate::uplinks::Uplinks;
use crate::{Config, Event, KeepaliveIntervals};

/// An effect of the node.
#[derive(Debug)]
pub enum Output {
    /// A command for the lane that owns the link or session.
    Lane(Command),
    /// An event for the daemon or its user.
    Event(Event),
    /// A datagram outside of links, with a token that this node awaits. Nothing of it is
    /// authenticated.
    Outside {
        /// The source of the datagram.
        from: Endpoint,
        /// The whole datagram.
        datagram: Vec<u8>,
    },
    /// A message of a peer for a service of this node.
    Service {
        /// The peer. Its session authenticates the message.
        peer: PublicKey,
        /// The ports of sender and service.
        ports: DataPorts,
        /// What is behind the ports.
        bytes: Vec<u8>,
    },
    /// An offer or answer of a peer about traversing NATs, at most [`TRAVERSALS`](crate::TRAVERSALS) of
    /// each peer.
    Traversal {
        /// The peer. Its session authenticates the document.
        peer: PublicKey,
        /// What it claims to be.
        kind: TraversalType,
        /// The document, as it came.
        text: Vec<u8>,
    },
    /// A control frame of a peer, as nodes of nvpn send them among their packets; of each peer as many
    /// as offers and answers.
    Control {
        /// The peer. Its session authenticates the frame.
        peer: PublicKey,
        /// The frame, as it came.
        bytes: Vec<u8>,
    },
}

/// Counters of path probes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathCounters {
    pub(crate) probes: u64,
    pub(crate) raises: u64,
    pub(crate) black_holes: u64,
    /// Sizes that were reported and refused, because they are below those of any usable path.
    pub(crate) refused: u64,
}

/// The state that all peers share: configuration, identity, randomness, and the effects so far.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) identity: Arc<Identity>,
    /// The node's own address, so that it is derived only once.
    pub(crate) me: NodeAddr,
    /// The random number that distinguishes this start of the node from its others.
    pub(crate) epoch: [u8; 8],
    pub(crate) rng: Box<dyn CryptoRng + Send>,
    /// The receiver indices in use at this node, so that none is assigned twice.
    indices: BTreeSet<ReceiverIndex>,
    /// The same for fast frames, which have indices of their own.
    fast_indices: BTreeSet<ReceiverIndex>,
    pub(crate) path_counters: PathCounters,
    /// What unproven handshake messages of sessions may cost.
    pub(crate) unproven: Unproven,
    /// First handshake messages of links that were answered.
    pub(crate) first_messages: FirstMessages,
    /// When handshakes with peers may begin.
    pub(crate) dials: Dials,
    /// How often this node sends on idle links.
    pub(crate) keepalive: KeepaliveIntervals,
    /// What went to addresses that have not answered.
    pub(crate) unconfirmed: Unconfirmed,
    /// The further uplinks of the host.
    pub(crate) uplinks: Uplinks,
    /// Whether packets with their whole header pass in FIPS frames, and control frames of nvpn are passed on.
    pub(crate) takes_whole: bool,
    /// A socket with another port for IPv4, by which peers that do not answer are dialled, too.
    pub(crate) other_port: Option<SocketId>,
    outputs: VecDeque<Output>,
}

impl Context {
    pub(crate) fn new(config: Config, identity: impl Into<Arc<Identity>>, mut rng: Box<dyn CryptoRng + Send>) -> Self {
        let mut epoch = [0; 8];
        rng.fill_bytes(&mut epoch);
        let identity = identity.into();
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
            dials: Dials::default(),
            keepalive: KeepaliveIntervals::default(),
            unconfirmed: Unconfirmed::default(),
            uplinks: Uplinks::default(),
            takes_whole: false,
            other_port: None,
            outputs: VecDeque::new(),
        }
    }

    /// Whether a handshake message of a session that was received over this link is worth its
    /// Diffie-Hellman operations.
    pub(crate) fn admits(&mut self, now: u64, link: LinkId, arrival: Arrival) -> bool {
        self.unproven.admits(now, link, arrival, &mut *self.rng)
    }

    pub(crate) fn lane(&mut self, command: impl Into<Command>) {
        self.outputs.push_back(Output::Lane(command.into()));
    }

    pub(crate) fn change_link(&mut self, link: LinkId, command: LinkCommand) {
        self.lane(Command::Link(link, command));
    }

    pub(crate) fn change_session(&mut self, peer: NodeAddr, command: SessionCommand) {
        self.lane(Command::Session(peer, command));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn service(&mut self, peer: PublicKey, ports: DataPorts, bytes: Vec<u8>) {
        self.outputs.push_back(Output::Service { peer, ports, bytes });
    }

    pub(crate) fn output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn outside(&mut self, from: Endpoint, datagram: Vec<u8>) {
        self.outputs.push_back(Output::Outside { from, datagram });
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Allocates a receiver index that no epoch of this node uses.
    pub(crate) fn allocate_index(&mut self) -> ReceiverIndex {
        loop {
            let index = ReceiverIndex(self.rng.next_u32());
            if self.indices.insert(index) {
                return index;
            }
        }
    }

    /// The same with a tag in its upper bits, as [`weft_noise::tag`] specifies. If all 16 indices
    /// of a tag are in use, the index has no tag.
    pub(crate) fn allocate_tagged(&mut self, tag: u32) -> ReceiverIndex {
        let first = self.rng.next_u32();
        let tagged = (0..=!TAG_MASK).map(|n| ReceiverIndex(tag & TAG_MASK | first.wrapping_add(n) & !TAG_MASK));
        for index in tagged {
            if self.indices.insert(index) {
                return index;
            }
        }
        self.allocate_index()
    }

    /// Reports the peer and the address of a link to the lanes that do not own it.
    pub(crate) fn place_link(&mut self, link: LinkId, peer: NodeAddr, path: Endpoint) {
        if self.config.lanes > 1 {
            let left = None;
            self.change_link(link, LinkCommand::Place { peer, path, left });
        }
    }

    /// Allocates a receiver index for the first lane that no fast keys of this node use. The other
    /// lanes have the numbers that follow.
    pub(crate) fn allocate_fast_index(&mut self) -> ReceiverIndex {
        loop {
            let index = ReceiverIndex(self.rng.next_u32() & !LANE_MASK);
            if self.fast_indices.insert(index) {
                return index;
            }
        }
    }

    pub(crate) fn free_fast_index(&mut self, index: ReceiverIndex) {
        self.fast_indices.remove(&index);
    }

    pub(crate) fn free_index(&mut self, index: ReceiverIndex) {
        self.indices.remove(&index);
    }

    pub(crate) fn indices_held(&self) -> usize {
        self.indices.len()
    }

    /// Returns `base` ms, changed by up to an eighth in either direction, so that the two ends do
    /// not act at the same moment.
    pub(crate) fn jittered(&mut self, base: u64) -> u64 {
        let span = base / 4;
        base - base / 8 + u64::from(self.rng.next_u32()) % span.max(1)
    }
}
