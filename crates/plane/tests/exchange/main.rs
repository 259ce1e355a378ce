//! Two lanes with threads of their own exchange packets in this process: their devices and the
//! network between them are queues in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_contract::{
    Command, Endpoint, EpochId, EpochUse, HandshakeLimits, LaneConfig, LinkCommand, LinkId, LinkKeys, ReceiverIndex,
    SendCommand, SessionCommand, SessionKeys, SocketId, TableCommand,
};
use weft_noise::Key;
use weft_os::tun::Offloads;
use weft_packet::{Lane, Train, Transmit};
use weft_plane::{LaneSetup, Lanes};
use weft_wire::NodeAddr;
use weft_wire::virtio::{GSO_UDP_L4, NEEDS_CSUM, VirtioNetHdr};

use self::memory::{Address, MemoryBind, System};

const A: NodeAddr = NodeAddr::new([1; 16]);
const B: NodeAddr = NodeAddr::new([2; 16]);
const LINK: LinkId = LinkId(1);
const PLAIN: Offloads = Offloads {
    checksum: false,
    tcp: false,
    udp: false,
};
const ALL: Offloads = Offloads {
    checksum: true,
    tcp: true,
    udp: true,
};
const ICMPV6: u8 = 58;
const DESTINATION_UNREACHABLE: u8 = 1;
/// A time that no test comes near.
const LONG: Duration = Duration::from_mins(1);

struct Nowhere;

impl Transmit for Nowhere {
    fn transmit(&mut self, _: Endpoint, _: &[u8], _: usize) {}
}

/// A node of one lane, and what is at both ends of it.
struct Node {
    lanes: Lanes,
    system: System,
    address: Arc<Address>,
}

impl Node {
    /// Starts a node that has a link and a session with the other one.
    fn start(me: NodeAddr, other: NodeAddr, network: [&Arc<Address>; 2], offloads: Offloads) -> Self {
        Self::start_with_path(me, other, network, offloads, network[1].address)
    }

    /// The same, with a link over this path.
    fn start_with_path(
        me: NodeAddr,
        other: NodeAddr,
        network: [&Arc<Address>; 2],
        offloads: Offloads,
        path: Endpoint,
    ) -> Self {
        let mut lane = Lane::new(LaneConfig {
            me,
            mtu: 1_280,
            probe: false,
            transit: false,
            handshakes: HandshakeLimits::default(),
        });
        let mut nowhere = Train::new(Nowhere, 64);
        for command in commands(me, other, path) {
            lane.apply(0, command, &mut nowhere);
        }
        let (tun, system) = memory::device(offloads);
        let bind = MemoryBind {
            own: network[0].clone(),
            other: network[1].clone(),
        };
        let setup = LaneSetup {
            lane,
            tun,
            sockets: vec![bind],
            batch: 64,
            preferred: false,
            reports: Box::new(|_| Vec::new()),
        };
        Self {
            lanes: Lanes::start(vec![setup]).unwrap(),
            system,
            address: network[0].clone(),
        }
    }

    /// The next packet that the system receives, with its virtio header.
    fn receive(&self) -> Vec<u8> {
        self.system.writes.recv_timeout(LONG).unwrap()
    }
}

/// The commands with which the core gives a lane its keys.
fn commands(me: NodeAddr, other: NodeAddr, path: Endpoint) -> [Command; 4] {
    let key = |kind, from: NodeAddr| {
        Key::from_bytes(core::array::from_fn(|i| match i {
            0 => kind,
            _ => from.as_bytes()[0],
        }))
    };
    let index = |of: NodeAddr| ReceiverIndex(of.as_bytes()[0].into());
    let install = LinkCommand::Install {
        peer: other,
        path,
        proven: true,
        keys: LinkKeys {
            our_index: index(me),
            their_index: index(other),
            send: key(1, me),
            recv: key(1, other),
        },
        usage: EpochUse::Send,
    };
    let keys = SessionKeys {
        id: EpochId(0),
        initiator: me == A,
        send: key(2, me),
        recv: key(2, other),
    };
    let usage = EpochUse::Send;
    [
        Command::Table(TableCommand::AllowPeer { peer: other }),
        Command::Link(LINK, install),
        Command::Session(other, SessionCommand::Install { keys, usage }),
        Command::Session(other, SessionCommand::Bind { link: LINK }),
    ]
}

/// The addresses of the two nodes in the network.
fn network() -> [Arc<Address>; 2] {
    [1, 2].map(|n| Address::new(Endpoint::from(([192, 0, 2, n], 2121))))
}

fn pair(offloads: Offloads) -> [Node; 2] {
    let [a, b] = &network();
    [Node::start(A, B, [a, b], offloads), Node::start(B, A, [b, a], offloads)]
}

/// An IPv6 packet without an upper layer that could have a checksum, behind a virtio header: the
/// number `n` and some bytes.
fn packet(from: NodeAddr, to: NodeAddr, n: u16) -> Vec<u8> {
    const NO_NEXT_HEADER: u8 = 59;
    let mut payload = n.to_be_bytes().to_vec();
    payload.resize(100 + usize::from(n) % 3, n as u8);
    let mut packet = VirtioNetHdr::default().to_bytes().to_vec();
    packet.extend([0x60, 0, 0, 0]);
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([NO_NEXT_HEADER, 64]);
    packet.extend(from.to_ipv6().octets());
    packet.extend(to.to_ipv6().octets());
    packet.extend(payload);
    packet
}

fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

#[test]
fn packets_into_one_device_come_out_of_the_other_in_order() {
    let [a, b] = pair(PLAIN);
    for n in 0..500 {
        a.system.send(packet(A, B, n));
        b.system.send(packet(B, A, n));
    }
    for n in 0..500 {
        assert_eq!(b.receive(), packet(A, B, n));
        assert_eq!(a.receive(), packet(B, A, n));
    }
    // A packet for a node that is no peer is answered, and those behind it arrive.
    a.system.send(packet(A, NodeAddr::new([3; 16]), 0));
    a.system.send(packet(A, B, 7));
    assert_eq!(b.receive(), packet(A, B, 7));
    let answer = a.receive();
    let (_, answer) = VirtioNetHdr::parse(&answer).unwrap();
    assert_eq!((answer[6], answer[40]), (ICMPV6, DESTINATION_UNREACHABLE));
    for node in [a, b] {
        assert!(!node.lanes.is_finished());
        node.lanes.stop();
        assert!(node.system.is_closed());
        assert!(node.system.writes.try_recv().is_err(), "nothing else was written");
    }
}

/// Tracing moves all that the thread owns to another type, and back.
#[test]
fn tracing_begins_and_ends_between_packets() {
    let [a, b] = pair(PLAIN);
    for n in 0..300 {
        for node in [&a, &b] {
            node.lanes.set_traced(n / 50 % 2 == 1);
        }
        a.system.send(packet(A, B, n));
        assert_eq!(b.receive(), packet(A, B, n));
        b.system.send(packet(B, A, n));
        assert_eq!(a.receive(), packet(B, A, n));
    }
    a.lanes.set_traced(true);
    until(|| a.lanes.traces()[0].is_some());
}

/// The system sends ten datagrams of UDP in one read. They go to the network in one call, and to
/// the other system in one write.
#[test]
fn a_super_packet_stays_one_call_on_its_way() {
    const SEGMENT: usize = 500;
    let [a, b] = &network();
    // The network has no reader yet.
    let sender = Node::start(A, B, [a, b], ALL);
    let payload: Vec<u8> = (0..10 * SEGMENT).map(|n| (n / 7) as u8).collect();
    let udp_len = (8 + payload.len()) as u16;
    let header = VirtioNetHdr {
        flags: NEEDS_CSUM,
        gso_type: GSO_UDP_L4,
        gso_size: SEGMENT as u16,
        csum_start: 40,
        csum_offset: 6,
        ..VirtioNetHdr::default()
    };
    let mut read = header.to_bytes().to_vec();
    read.extend([0x60, 0, 0, 0]);
    read.extend(udp_len.to_be_bytes());
    read.extend([17, 64]);
    read.extend(A.to_ipv6().octets());
    read.extend(B.to_ipv6().octets());
    read.extend([0xc0, 1, 0, 53]);
    read.extend(udp_len.to_be_bytes());
    read.extend([0, 0]);
    read.extend(&payload);
    sender.system.send(read);
    let receiver = Node::start(B, A, [b, a], ALL);
    let written = receiver.receive();
    let (header, packet) = VirtioNetHdr::parse(&written).unwrap();
    assert_eq!((header.gso_type, usize::from(header.gso_size)), (GSO_UDP_L4, SEGMENT));
    assert_eq!(packet[48..], payload);
    assert!(receiver.system.writes.try_recv().is_err());
    drop((sender, receiver));
}

#[test]
fn a_full_send_queue_holds_packets_back_and_loses_none() {
    let [a, b] = &network();
    b.set_most(2);
    let sender = Node::start(A, B, [a, b], PLAIN);
    let count = 1_000;
    for n in 0..count {
        sender.system.send(packet(A, B, n));
    }
    // Nothing reads, so the lane tries again and again.
    until(|| b.refused() >= 10);
    let receiver = Node::start(B, A, [b, a], PLAIN);
    for n in 0..count {
        assert_eq!(receiver.receive(), packet(A, B, n));
    }
    sender.lanes.stop();
}

#[test]
fn a_device_that_fails_ends_its_lane_and_no_other() {
    let [a, b] = pair(PLAIN);
    a.system.send(packet(A, B, 1));
    a.system.remove();
    a.system.send(packet(A, B, 2));
    until(|| a.lanes.is_finished());
    assert!(a.system.is_closed());
    assert_eq!(a.lanes.snapshots()[0].plane.tun_reads, 1);
    // What was read before the failure is not lost.
    assert_eq!(b.receive(), packet(A, B, 1));
    assert!(!b.lanes.is_finished());
    b.system.send(packet(B, A, 3));
    until(|| a.address.take().is_some());
}

#[test]
fn a_lane_executes_what_was_commanded_before_it_is_stopped() {
    let [a, b] = &network();
    let node = Node::start(A, B, [a, b], PLAIN);
    let datagrams = [vec![1; 50], vec![2; 60]];
    let transmit = |datagram: &Vec<u8>| {
        Command::Send(SendCommand::Transmit {
            to: b.address,
            datagram: datagram.clone(),
        })
    };
    node.lanes.send(datagrams.iter().map(transmit).collect());
    node.lanes.stop();
    assert!(node.system.is_closed());
    for datagram in datagrams {
        let (from, bytes, _) = b.take().unwrap();
        assert_eq!((from, bytes), (a.address, datagram));
    }
    assert!(b.take().is_none());
}

/// A link over a further socket: both directions go through it, and its peer sees its address. When
/// it is gone, what was to go through it is counted, and nothing goes through the ordinary one.
#[test]
fn a_link_goes_through_a_further_socket_while_there_is_one() {
    let [ordinary, b] = &network();
    let own = Address::new(Endpoint::from(([192, 0, 2, 1], 40_001)));
    let id = SocketId::ORDINARY.following();
    let path = id.path(b.address);
    let a = Node::start_with_path(A, B, [ordinary, b], PLAIN, path);
    let socket = MemoryBind {
        own: own.clone(),
        other: b.clone(),
    };
    a.lanes.add_socket(id, socket);
    let b = Node::start(B, A, [b, &own], PLAIN);
    for n in 0..1_000 {
        a.system.send(packet(A, B, n));
        b.system.send(packet(B, A, n));
    }
    for n in 0..1_000 {
        assert_eq!(b.receive(), packet(A, B, n));
        assert_eq!(a.receive(), packet(B, A, n));
    }
    assert!(ordinary.take().is_none());
    a.lanes.remove_socket(id);
    let gone = |count: u64| a.lanes.snapshots()[0].plane.send_no_socket == count;
    until(|| {
        a.system.send(packet(A, B, 7));
        !gone(0)
    });
    drop(b);
    assert!(ordinary.take().is_none());
}
