//! The hostile datagrams and their rates: at least ten times the rates at which the attacks were
//! first shown.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng};
use weft_fuzz::forged;
use weft_noise::{Identity, PublicKey, SecretKey, ik, xk};
use weft_wire::fmp::{EstablishedHeader, Msg1, Msg2};
use weft_wire::link::LinkMessageType;
use weft_wire::session::{SessionAck, SessionSetup};
use weft_wire::{Coords, NodeAddr};

use super::member::{Member, key};
use super::scene::{A, ABSENT, ATTACKER, B, C, PORT, Scene, at};
use crate::common::spoof::{Flood, Tap, from_anywhere};

/// Number of distinct handshake messages; their keys are points of the curve, so that each costs a
/// Diffie-Hellman.
const POOL: usize = 256;

/// Number of configured peers that are always absent, in whose names frames are sent.
pub(crate) const CROWD: u64 = 100;

/// Bytes of a frame that is to wait for its keys; the datagram around it is nearly of the maximum
/// size.
const LONG: usize = 60_000;
/// Bytes of a frame that may wait.
const SHORT: usize = 1_200;

/// A kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Forged msg1 from the attacker's own address.
    Msg1,
    /// The same; the peer that restarts uses an address that it never had before.
    Msg1PeerMoves,
    /// Forged msg1 from addresses in 256 networks.
    Msg1Spoofed,
    /// Forged msg1 from the address of a peer that stays.
    Msg1OfPeer,
    /// Forged msg1 from the address of the peer that restarts.
    Msg1OfReturner,
    /// Msg2 for the index of a msg1 that is not answered.
    Msg2,
    /// Forged msg1 at both ends of a link in each other's name, and frames for the index of each
    /// msg1 between them.
    RekeyIndex,
    /// Earlier msg1 of the peer that restarts, from its address.
    Recorded,
    /// SessionSetup in the names of peers, to both ends of their sessions.
    SessionSetup,
    /// SessionAck in the names of peers, to both ends of their sessions.
    SessionAck,
    /// Sealed session messages in the names of peers that do not open under any key.
    Junk,
    /// Error signals about peers, and datagrams in their names that cause some.
    Signals,
    /// A different filter each time.
    Filters,
    /// SessionMsg3 in the names of peers without a session, and long frames that are to wait for
    /// the keys.
    EarlyFrames,
}

impl Attack {
    pub(crate) const ALL: [Self; 14] = [
        Self::Msg1,
        Self::Msg1PeerMoves,
        Self::Msg1Spoofed,
        Self::Msg1OfPeer,
        Self::Msg1OfReturner,
        Self::Msg2,
        Self::RekeyIndex,
        Self::Recorded,
        Self::SessionSetup,
        Self::SessionAck,
        Self::Junk,
        Self::Signals,
        Self::Filters,
        Self::EarlyFrames,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Msg1 => "forged msg1, one address",
            Self::Msg1PeerMoves => "the same, the peer has a new address",
            Self::Msg1Spoofed => "forged msg1, 256 networks",
            Self::Msg1OfPeer => "forged msg1 from another peer's address",
            Self::Msg1OfReturner => "forged msg1 from that very peer's address",
            Self::Msg2 => "forged msg2 for a waiting index",
            Self::RekeyIndex => "forged msg1 both ways, frames for each rekey's index",
            Self::Recorded => "recorded msg1 from the peer's address",
            Self::SessionSetup => "SessionSetup in peers' names",
            Self::SessionAck => "SessionAck in peers' names",
            Self::Junk => "junk frames in peers' names",
            Self::Signals => "error signals",
            Self::Filters => "FilterAnnounce",
            Self::EarlyFrames => "SessionMsg3 and frames of 60 KB in peers' names",
        }
    }

    /// Datagrams a second.
    pub(crate) fn rate(self) -> u64 {
        match self {
            Self::Msg2 => 40_000,
            // The same 1,700 in three seconds, again and again; 140 Mbit/s.
            Self::EarlyFrames => 560,
            _ => 5_000,
        }
    }

    /// Whether the attacker has links with the nodes.
    pub(crate) fn is_members(self) -> bool {
        matches!(
            self,
            Self::SessionSetup | Self::SessionAck | Self::Junk | Self::Signals | Self::Filters | Self::EarlyFrames
        )
    }

    /// Counters of the node that show the effect of the attack: the sum of those of the first row
    /// increased by a good part of the hostile datagrams, and the sum of each other row by at least
    /// one. Otherwise the attack did not take place.
    pub(crate) fn traces(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Msg1 | Self::Msg1PeerMoves | Self::Msg1Spoofed | Self::Msg1OfPeer | Self::Msg1OfReturner => {
                &[&["handshakes_refused", "handshakes_forged"], &["handshakes_forged"]]
            }
            Self::Msg2 | Self::Recorded => &[&["handshakes_refused"]],
            // A frame that arrives after the answer to the msg1 is one for the new keys.
            Self::RekeyIndex => &[&["handshakes_refused"], &["early_frames", "link_open_failed"]],
            Self::SessionSetup => &[&["clear_refused", "unproven_refused"], &["unproven_refused"]],
            Self::SessionAck => &[&["clear_refused", "unproven_refused"]],
            Self::Junk => &[&["session_open_failed"]],
            Self::Signals => &[&["clear_refused", "signals_refused"], &["signals_refused"]],
            Self::Filters => &[&["announcements_refused"]],
            Self::EarlyFrames => &[&["early_dropped"]],
        }
    }

    /// Prepares the hostile datagrams, in a scene that is not attacked yet.
    pub(crate) fn prepare(self, scene: &Scene) -> Box<dyn Flood> {
        let node = at(A, PORT);
        match self {
            Self::Msg1 | Self::Msg1PeerMoves => msg1s(scene, &[(at(ATTACKER, 4_000), node)]),
            Self::Msg1Spoofed => {
                let source = |n: u8| SocketAddr::from((Ipv4Addr::new(10, n, 7, 7), 2121));
                msg1s(scene, &(0..=u8::MAX).map(|n| (source(n), node)).collect::<Vec<_>>())
            }
            Self::Msg1OfPeer => msg1s(scene, &[(at(C, PORT), node)]),
            Self::Msg1OfReturner => msg1s(scene, &[(at(B, PORT), node)]),
            Self::Msg2 => Box::new(Msg2s::new(scene)),
            Self::RekeyIndex => Box::new(RekeyIndexes::new(scene)),
            Self::Recorded => recorded(scene),
            Self::SessionSetup => said(scene, session_setup),
            Self::SessionAck => said(scene, session_ack),
            Self::Junk => said(scene, |_, n, src, dest| {
                let mut junk = vec![0; 34];
                junk[2] = 6;
                junk[4..8].copy_from_slice(&n.to_le_bytes());
                forged::datagram(src, dest, 64, &junk)
            }),
            Self::Signals => said(scene, |_, n, src, dest| {
                let me = key(0).node_addr();
                match n % 4 {
                    0 => forged::datagram(me, dest, 64, &forged::signal(me, src, &[])),
                    1 => forged::datagram(me, dest, 64, &forged::signal(me, src, &[src, me])),
                    // No node has a route to it, and the error signal goes to the peer.
                    _ => forged::datagram(src, absent_node(n), 64, &[0; 65]),
                }
            }),
            Self::Filters => {
                let (mut member, mut n) = (scene.member(A), 0_u64);
                Box::new(move || {
                    n += 1;
                    let filter = forged::filter(1_000_000 + n, 8 + n as usize % 900);
                    member.say(LinkMessageType::FilterAnnounce.to_byte(), &filter);
                    1
                })
            }
            Self::EarlyFrames => early_frames(scene),
        }
    }
}

/// Forged msg1, each from the next source to its target.
fn msg1s(scene: &Scene, ways: &[(SocketAddr, SocketAddr)]) -> Box<dyn Flood> {
    let pool = forged_msg1s(scene.key_of(A));
    let open = |(source, target): &(SocketAddr, SocketAddr)| (from_anywhere(&scene.x, *source), *target);
    let ways: Vec<_> = ways.iter().map(open).collect();
    let mut n = 0_usize;
    Box::new(move || {
        n += 1;
        let (socket, target) = &ways[n % ways.len()];
        sent(socket, &pool[n % pool.len()], *target)
    })
}

/// Messages that are well-formed like a handshake with `remote` up to the sealed key in them.
fn forged_msg1s(remote: PublicKey) -> Vec<[u8; Msg1::LEN]> {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let stranger = Identity::new(SecretKey::generate(&mut rng));
    let forged = |index: usize| {
        let (_, mut noise) = ik::Initiator::start(&stranger, remote, [0; 8], &mut rng);
        noise[40] ^= 1;
        let mut message = [0; Msg1::LEN];
        let msg1 = Msg1 {
            sender_idx: index as u32,
            noise: &noise,
        };
        msg1.emit(&mut message).unwrap();
        message
    };
    (0..POOL).map(forged).collect()
}

/// The first messages of session handshakes with a key that no node has: points of the curve.
fn points() -> Vec<[u8; xk::MSG1_LEN]> {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    let remote = SecretKey::generate(&mut rng).public();
    (0..POOL).map(|_| xk::Initiator::start(remote, &mut rng).1).collect()
}

/// Number of datagrams sent.
fn sent(socket: &UdpSocket, datagram: &[u8], target: SocketAddr) -> u64 {
    u64::from(socket.send_to(datagram, target).is_ok())
}

/// The attacker has an address at which the node dials an absent peer, so it receives msg1 of the
/// node.
struct Msg2s {
    socket: UdpSocket,
    points: Vec<[u8; xk::MSG1_LEN]>,
    index: Option<u32>,
    n: usize,
}

impl Msg2s {
    fn new(scene: &Scene) -> Self {
        Self {
            socket: from_anywhere(&scene.x, at(ABSENT, PORT)),
            points: points(),
            index: None,
            n: 0,
        }
    }
}

impl Flood for Msg2s {
    fn next(&mut self) -> u64 {
        self.n += 1;
        // The latest msg1 contains the index; there is none for at most half a second.
        if self.n.is_multiple_of(64) || self.index.is_none() {
            let mut msg1 = [0; 2_048];
            while let Ok((len, _)) = self.socket.recv_from(&mut msg1) {
                self.index = Msg1::parse(&msg1[..len]).map_or(self.index, |msg1| Some(msg1.sender_idx));
            }
        }
        let Some(receiver_idx) = self.index else { return 0 };
        let mut noise = [0; ik::MSG2_LEN];
        let point = &self.points[self.n % self.points.len()];
        noise[..point.len()].copy_from_slice(point);
        noise[point.len()..][..8].copy_from_slice(&self.n.to_le_bytes());
        let mut message = [0; Msg2::LEN];
        let msg2 = Msg2 {
            sender_idx: self.n as u32,
            receiver_idx,
            noise: &noise,
        };
        msg2.emit(&mut message).unwrap();
        sent(&self.socket, &message, at(A, PORT))
    }
}

/// Rekeys between A and C are to stay unanswered, and each of their indices gets frames that were
/// never sealed.
struct RekeyIndexes {
    msg1s: Box<dyn Flood>,
    frames: UdpSocket,
    seen: Arc<Mutex<VecDeque<u32>>>,
    _tap: Tap,
}

impl RekeyIndexes {
    /// Ten times the number that is needed.
    const FRAMES: u64 = 10;

    fn new(scene: &Scene) -> Self {
        let seen = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::clone(&seen);
        // The flood towards C has the same source; its indices are small numbers.
        let tap = Tap::start(scene.host(C), move |source, payload| {
            if source == at(A, PORT)
                && let Ok(msg1) = Msg1::parse(payload)
                && msg1.sender_idx as usize >= POOL
            {
                keep.lock().unwrap().push_back(msg1.sender_idx);
            }
        });
        let [a, c] = [A, C].map(|name| at(name, PORT));
        Self {
            msg1s: msg1s(scene, &[(c, a), (a, c)]),
            frames: from_anywhere(&scene.x, at(ATTACKER, 4_000)),
            seen,
            _tap: tap,
        }
    }
}

impl Flood for RekeyIndexes {
    fn next(&mut self) -> u64 {
        let index = self.seen.lock().unwrap().pop_front();
        let mut count = self.msg1s.next();
        if let Some(receiver_idx) = index {
            for counter in 0..Self::FRAMES {
                let header = EstablishedHeader {
                    flags: 0,
                    payload_len: 0,
                    receiver_idx,
                    counter,
                };
                let mut frame = [0x55; EstablishedHeader::MIN_FRAME];
                header.emit(&mut frame).unwrap();
                count += sent(&self.frames, &frame, at(A, PORT));
            }
        }
        count
    }
}

fn recorded(scene: &Scene) -> Box<dyn Flood> {
    let socket = from_anywhere(&scene.x, at(B, PORT));
    let msg1s = scene.recorded();
    assert!(!msg1s.is_empty(), "B did not dial before");
    let mut n = 0;
    Box::new(move || {
        n += 1;
        sent(&socket, &msg1s[n % msg1s.len()], at(A, PORT))
    })
}

/// The address of a node that does not exist.
fn absent_node(n: u32) -> NodeAddr {
    let mut bytes = [0x90; 16];
    bytes[1..5].copy_from_slice(&n.to_be_bytes());
    NodeAddr::new(bytes)
}

/// Generates the n-th SessionDatagram of an attack from its forged source to its destination.
type Lie = fn(&[[u8; xk::MSG1_LEN]], u32, NodeAddr, NodeAddr) -> Vec<u8>;

/// Session datagrams to A in the names of B and C, and to C in A's name.
fn said(scene: &Scene, lie: Lie) -> Box<dyn Flood> {
    let (mut to_a, mut to_c) = (scene.member(A), scene.member(C));
    let [a, b, c] = [A, B, C].map(|name| scene.key_of(name).node_addr());
    let (points, mut n) = (points(), 0_u32);
    Box::new(move || {
        n += 1;
        let (member, src, dest): (&mut Member, _, _) = match n % 4 {
            0 | 1 => (&mut to_a, c, a),
            2 => (&mut to_a, b, a),
            _ => (&mut to_c, a, c),
        };
        member.say(
            LinkMessageType::SessionDatagram.to_byte(),
            &lie(&points, n / 4, src, dest),
        );
        1
    })
}

fn session_setup(points: &[[u8; xk::MSG1_LEN]], n: u32, src: NodeAddr, dest: NodeAddr) -> Vec<u8> {
    let (src_path, dest_path) = ([src], [dest]);
    let setup = SessionSetup {
        flags: 0,
        src: Coords::new(&src_path),
        dest: Coords::new(&dest_path),
        noise: &points[n as usize % points.len()],
    };
    let mut out = vec![0; setup.wire_len()];
    setup.emit(&mut out).unwrap();
    forged::datagram(src, dest, 64, &out)
}

fn session_ack(points: &[[u8; xk::MSG1_LEN]], n: u32, src: NodeAddr, dest: NodeAddr) -> Vec<u8> {
    let (src_path, dest_path, mut noise) = ([src], [dest], [0; xk::MSG2_LEN]);
    let point = &points[n as usize % points.len()];
    noise[..point.len()].copy_from_slice(point);
    noise[point.len()..][..4].copy_from_slice(&n.to_le_bytes());
    let ack = SessionAck {
        flags: 0,
        src: Coords::new(&src_path),
        dest: Coords::new(&dest_path),
        noise: &noise,
    };
    let mut out = vec![0; ack.wire_len()];
    ack.emit(&mut out).unwrap();
    forged::datagram(src, dest, 64, &out)
}

/// For each of the crowd in turn a SessionMsg3, and 16 frames behind it.
fn early_frames(scene: &Scene) -> Box<dyn Flood> {
    const FRAMES: u64 = 16;
    let (mut member, to) = (scene.member(A), scene.key_of(A).node_addr());
    let names: Vec<NodeAddr> = (1..=CROWD).map(|number| key(number).node_addr()).collect();
    let (mut n, mut rng) = (0_u64, ChaCha20Rng::seed_from_u64(3));
    Box::new(move || {
        let from = names[(n / (FRAMES + 1)) as usize % names.len()];
        let payload = if n.is_multiple_of(FRAMES + 1) {
            let mut msg3 = vec![3, 0, 76, 0, 0, 73, 0];
            msg3.extend([9; xk::MSG3_LEN]);
            rng.fill_bytes(&mut msg3[7..]);
            msg3
        } else {
            // The header of a sealed message with a length of its own.
            let mut frame = vec![0; if n.is_multiple_of(2) { LONG } else { SHORT }];
            frame[2..4].copy_from_slice(&1_u16.to_le_bytes());
            frame[4..12].copy_from_slice(&n.to_le_bytes());
            frame
        };
        n += 1;
        member.say(
            LinkMessageType::SessionDatagram.to_byte(),
            &forged::datagram(from, to, 64, &payload),
        );
        1
    })
}
