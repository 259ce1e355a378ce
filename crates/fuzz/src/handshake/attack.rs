//! The attacker's observations, and its attacks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::OnceLock;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use weft_noise::{Identity, PublicKey, SecretKey, ik, xk};
use weft_wire::link::LinkMessageType;
use weft_wire::session::{NOISE_ACK_LEN, NOISE_MSG3_LEN, SessionAck, SessionMsg3, SessionSetup};
use weft_wire::signal::{MtuExceeded, Signal};
use weft_wire::{Coords, NodeAddr, fast, fmp};

use super::super::input::Input;
use super::{A, B, MALLORY};
use weft_sim::{Datagram, HostId, World};

use crate::forged;

/// Maximum number of datagrams kept for replay.
const MAX_KEPT: usize = 64;
/// Maximum number of indices of either kind that are remembered.
const MAX_INDICES: usize = 8;
/// Points of the attacker, computed once.
const POINTS: usize = 64;

/// The datagrams between the honest nodes, and what any observer learns from them.
#[derive(Default)]
pub(super) struct Seen {
    /// Sender and datagram.
    datagrams: VecDeque<Datagram>,
    /// Observed msg1, the latest last.
    calls: VecDeque<Datagram>,
    /// Indices in frames, and the senders of these frames: the holder of an index is the receiver.
    frames: VecDeque<(HostId, u32, bool)>,
}

impl Seen {
    pub(super) fn take(&mut self, datagram: &Datagram) {
        if fmp::Msg1::parse(&datagram.bytes).is_ok() {
            keep(&mut self.calls, datagram.clone(), MAX_INDICES);
        } else if let Some(index) = frame_index(&datagram.bytes) {
            let is_fast = datagram.bytes[0] >> 4 == fast::VERSION;
            let frame = (datagram.from, index, is_fast);
            if !self.frames.contains(&frame) {
                keep(&mut self.frames, frame, MAX_INDICES);
            }
        }
        keep(&mut self.datagrams, datagram.clone(), MAX_KEPT);
    }
}

/// The receiver index in an established frame, or in a fast one: both have it behind four bytes.
fn frame_index(bytes: &[u8]) -> Option<u32> {
    let established = bytes.first().is_some_and(|first| *first == 0);
    let is_fast = bytes.first().is_some_and(|first| first >> 4 == fast::VERSION);
    let index = bytes.get(fast::Header::INDEX_AT..)?.first_chunk()?;
    (established || is_fast).then_some(u32::from_le_bytes(*index))
}

fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

/// One action of the attacker, which it can repeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attack {
    how: How,
    /// The target.
    on: HostId,
    /// The apparent source.
    source: u8,
    /// The chosen observation, counted from the latest, and the variation.
    which: u8,
    variant: u8,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Replay,
    Msg1,
    Msg2,
    Early,
    Frame,
    Setup,
    Ack,
    Msg3,
    Sealed,
    Signal,
    Coords,
}

impl Attack {
    pub(super) fn read(input: &mut Input<'_>) -> Self {
        use How::{Ack, Coords, Early, Frame, Msg1, Msg2, Msg3, Replay, Sealed, Setup, Signal};
        let all = [
            Replay, Msg1, Msg1, Msg2, Msg2, Early, Early, Frame, Setup, Setup, Ack, Ack, Msg3, Sealed, Signal, Coords,
        ];
        let how = all[input.below(all.len())];
        let shape = input.u8();
        Self {
            how,
            on: usize::from(shape & 1),
            source: shape >> 1 & 7,
            which: shape >> 4,
            variant: input.u8(),
        }
    }
}

pub(super) struct Attacker {
    seen: Rc<RefCell<Seen>>,
    /// Whether it has a node in the mesh.
    neighbour: bool,
    /// The action that it repeats while time passes, and how often in each step.
    pub(super) flood: Option<(Attack, u32)>,
    /// Number of messages that it has forged so far.
    pub(super) forged: u32,
    /// Time of its last action, ms.
    pub(super) last: u64,
    /// Valid first messages for each honest node, of an identity that the node does not know.
    strangers: [Option<[u8; fmp::NOISE_MSG1_LEN]>; 2],
}

impl Attacker {
    pub(super) fn new(seen: Rc<RefCell<Seen>>, neighbour: bool) -> Self {
        Self {
            seen,
            neighbour,
            flood: None,
            forged: 0,
            last: 0,
            strangers: [None; 2],
        }
    }

    pub(super) fn act(&mut self, world: &mut World, attack: Attack) {
        self.forged += 1;
        self.last = world.now();
        let target = world.host(attack.on).addr;
        let source = self.source(world, attack);
        match attack.how {
            How::Replay => {
                let Some(mut old) = self.latest(|seen| &seen.datagrams, attack.which) else {
                    return;
                };
                let (src, dst) = match attack.variant & 3 {
                    0 => (old.src, old.dst),
                    1 => (source, old.dst),
                    2 => (old.src, target),
                    _ => {
                        self.spoil(&mut old.bytes, attack.variant);
                        (source, old.dst)
                    }
                };
                world.inject(src, dst, old.bytes);
            }
            How::Msg1 => {
                if let Some(bytes) = self.msg1(world, attack) {
                    world.inject(source, target, bytes);
                }
            }
            How::Msg2 => {
                let call = self.latest(|seen| &seen.calls, attack.which);
                let Some(call) = call else { return };
                world.inject(source, call.src, self.msg2(&call.bytes));
            }
            How::Early => {
                let Some(call) = self.latest(|seen| &seen.calls, attack.which) else {
                    return;
                };
                let index = call.bytes.get(4..8).unwrap_or_default().to_vec();
                world.inject(source, call.src, self.frame(&index, attack.variant));
            }
            How::Frame => {
                let Some((from, index, is_fast)) = self.latest(|seen| &seen.frames, attack.which) else {
                    return;
                };
                let variant = if is_fast {
                    attack.variant | 1
                } else {
                    attack.variant & !1
                };
                let to = world.host(1 - from).addr;
                world.inject(source, to, self.frame(&index.to_le_bytes(), variant));
            }
            How::Setup | How::Ack | How::Msg3 | How::Sealed | How::Signal | How::Coords => self.say(world, attack),
        }
    }

    /// Sends a message to the target from the attacker's own node, in the name of a node that the
    /// bytes choose.
    fn say(&mut self, world: &mut World, attack: Attack) {
        if !self.neighbour {
            return;
        }
        let nodes = [A, B, MALLORY].map(|id| world.host(id).node_addr());
        let (me, other) = (nodes[attack.on], nodes[1 - attack.on]);
        let src = match attack.source {
            0..=4 => other,
            5 => nodes[MALLORY],
            6 => me,
            _ => NodeAddr::new([self.forged as u8; 16]),
        };
        let (here, there) = ([src], [me]);
        let coords = |path| Coords::new(path);
        let mut payload = Vec::new();
        let written = match attack.how {
            How::Setup => {
                let noise = self.point();
                let (src, dest) = (coords(&here), coords(&there));
                let setup = SessionSetup {
                    flags: 0,
                    src,
                    dest,
                    noise,
                };
                payload.resize(setup.wire_len(), 0);
                setup.emit(&mut payload)
            }
            How::Ack => {
                let noise = self.behind_a_point(NOISE_ACK_LEN);
                let (src, dest) = (coords(&here), coords(&there));
                let ack = SessionAck {
                    flags: 0,
                    src,
                    dest,
                    noise: &noise,
                };
                payload.resize(ack.wire_len(), 0);
                ack.emit(&mut payload)
            }
            How::Msg3 => {
                let noise = self.behind_a_point(NOISE_MSG3_LEN);
                let msg3 = SessionMsg3 {
                    flags: 0,
                    noise: &noise,
                };
                payload.resize(msg3.wire_len(), 0);
                msg3.emit(&mut payload)
            }
            // A header, and content that no key opens.
            How::Sealed => {
                payload = vec![0; 34 + usize::from(attack.variant & 0x3f)];
                payload[1] = attack.variant >> 6 & 2;
                payload[2] = 6;
                payload[4..8].copy_from_slice(&self.forged.to_le_bytes());
                Ok(0)
            }
            How::Signal if attack.variant & 3 == 3 => {
                let mtu = [0, 100, 256, 1_000][usize::from(attack.variant >> 2 & 3)];
                let told = Signal::MtuExceeded(MtuExceeded {
                    dest: other,
                    reporter: src,
                    mtu,
                });
                payload.resize(MtuExceeded::LEN + 16, 0);
                let len = told.emit(&mut payload);
                payload.truncate(len.unwrap_or_default());
                len
            }
            How::Signal => {
                let path = &nodes[..usize::from(attack.variant & 3)];
                payload = forged::signal(src, other, path);
                Ok(0)
            }
            _ => {
                payload = forged::setup(&[src, nodes[MALLORY]], &[me, nodes[MALLORY]]);
                Ok(0)
            }
        };
        if written.is_ok() {
            let body = forged::datagram(src, me, 64, &payload);
            world.say(MALLORY, attack.on, LinkMessageType::SessionDatagram, body);
        }
    }

    /// A msg1: of a stranger that knows its target's key, of the other honest node with a wrong
    /// end, or of random content.
    fn msg1(&mut self, world: &World, attack: Attack) -> Option<Vec<u8>> {
        let other = world.host(1 - attack.on).addr;
        let seen = self
            .latest(|seen| &seen.calls, attack.which)
            .filter(|call| call.src == other);
        let mut bytes = match (seen, attack.variant & 3) {
            (Some(call), 0 | 1) => {
                let mut bytes = call.bytes;
                let end = bytes.len().checked_sub(1)?;
                bytes[end] ^= (self.forged as u8).max(1);
                bytes
            }
            (_, 2) => {
                let noise = self.strangers[attack.on].get_or_insert_with(|| strange_call(world.host(attack.on).key));
                let mut bytes = vec![0; fmp::Msg1::LEN];
                let msg1 = fmp::Msg1 { sender_idx: 0, noise };
                msg1.emit(&mut bytes).ok()?;
                bytes
            }
            _ => {
                let noise = self.behind_a_point(fmp::NOISE_MSG1_LEN);
                let mut bytes = vec![0; fmp::Msg1::LEN];
                let msg1 = fmp::Msg1 {
                    sender_idx: 0,
                    noise: noise.first_chunk()?,
                };
                msg1.emit(&mut bytes).ok()?;
                bytes
            }
        };
        if attack.variant & 4 == 0 {
            bytes[4..8].copy_from_slice(&self.forged.to_le_bytes());
        }
        Some(bytes)
    }

    /// An invalid answer to a first message.
    fn msg2(&self, msg1: &[u8]) -> Vec<u8> {
        let noise = self.behind_a_point(fmp::NOISE_MSG2_LEN);
        let index = msg1.get(4..8).and_then(|index| <[u8; 4]>::try_from(index).ok());
        let mut bytes = vec![0; fmp::Msg2::LEN];
        if let Some(noise) = noise.first_chunk() {
            let msg2 = fmp::Msg2 {
                sender_idx: self.forged,
                receiver_idx: u32::from_le_bytes(index.unwrap_or_default()),
                noise,
            };
            let _ = msg2.emit(&mut bytes);
        }
        bytes
    }

    /// A frame for this index that was never sealed: an FMP frame or a fast frame.
    fn frame(&self, index: &[u8], variant: u8) -> Vec<u8> {
        let more = usize::from(variant >> 3) * 8;
        let mut bytes = vec![0x5a; fast::Header::LEN + 24 + more];
        bytes[..4].fill(0);
        if variant & 1 != 0 {
            bytes[0] = fast::VERSION << 4 | variant >> 1 & 3;
            bytes[1] = variant >> 3 & 1;
        }
        let length = (24 + more) as u16;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(index);
        bytes[8..16].copy_from_slice(&u64::from(self.forged).to_le_bytes());
        bytes
    }

    fn source(&self, world: &World, attack: Attack) -> SocketAddr {
        let here = |id: HostId| world.host(id).addr;
        match attack.source {
            0 | 1 => here(1 - attack.on),
            2 => here(MALLORY),
            3 => here(attack.on),
            4 => SocketAddr::from(([198, 51, 100, 66], 4_444)),
            5 => SocketAddr::from((here(1 - attack.on).ip(), 4_444)),
            // A different one each time.
            6 => SocketAddr::from(([198, 51, 100, self.forged as u8], 4_444)),
            _ => SocketAddr::from(([198, self.forged as u8, (self.forged >> 8) as u8, 1], 4_444)),
        }
    }

    fn latest<T: Clone>(&self, of: impl Fn(&Seen) -> &VecDeque<T>, which: u8) -> Option<T> {
        let seen = self.seen.borrow();
        let list = of(&seen);
        let back = usize::from(which) % list.len().max(1);
        list.iter().rev().nth(back).cloned()
    }

    fn spoil(&self, bytes: &mut [u8], variant: u8) {
        let at = usize::from(variant >> 2) * 7 + self.forged as usize;
        if let Some(byte) = bytes
            .len()
            .checked_sub(1)
            .and_then(|last| bytes.get_mut(at % (last + 1)))
        {
            *byte ^= 1 << (variant >> 2 & 7);
        }
    }

    /// A different one each time, until they repeat.
    fn point(&self) -> &'static [u8; xk::MSG1_LEN] {
        let points = points();
        &points[self.forged as usize % points.len()]
    }

    fn behind_a_point(&self, len: usize) -> Vec<u8> {
        let mut noise = vec![self.forged as u8; len];
        noise[..xk::MSG1_LEN].copy_from_slice(self.point());
        noise
    }
}

/// Points of the curve whose secret keys are unknown.
fn points() -> &'static [[u8; xk::MSG1_LEN]] {
    static ONCE: OnceLock<Vec<[u8; xk::MSG1_LEN]>> = OnceLock::new();
    ONCE.get_or_init(|| {
        let mut rng = ChaCha20Rng::seed_from_u64(0xe11e);
        let to = SecretKey::generate(&mut rng).public();
        (0..POINTS).map(|_| xk::Initiator::start(to, &mut rng).1).collect()
    })
}

/// A valid first message to this node, of an identity that it does not know.
fn strange_call(to: PublicKey) -> [u8; fmp::NOISE_MSG1_LEN] {
    let mut rng = ChaCha20Rng::seed_from_u64(0x57a9e);
    let identity = Identity::new(SecretKey::generate(&mut rng));
    ik::Initiator::start(&identity, to, [7; 8], &mut rng).1
}
