//! Several UDP sockets with one port, over the loopback of a namespace of their own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use weft_os::netns::NetNs;
use weft_os::test_support::in_namespaces;
use weft_os::udp::{BindError, BindOptions, RECEIVE_BUFFER_LEN, Steering, UdpSocket};

const LANES: u8 = 4;
/// The rule of fast frames: version 10, and the lane in the low bits of a little-endian index
/// behind four bytes.
const BY_INDEX: Steering = Steering {
    version: 0xa,
    at: 4,
    mask: 0x0f,
};

fn options() -> BindOptions {
    BindOptions {
        ipv6_only: true,
        ..BindOptions::default()
    }
}

fn shared(address: &str) -> Vec<UdpSocket> {
    let mut first = UdpSocket::bind(address.parse().unwrap(), options()).unwrap();
    let more = first.share(LANES, options(), BY_INDEX).unwrap();
    let sockets: Vec<UdpSocket> = std::iter::once(first).chain(more).collect();
    assert_eq!(sockets.len(), usize::from(LANES));
    for socket in &sockets {
        assert_eq!(socket.local_address(), sockets[0].local_address());
    }
    sockets
}

/// A datagram of one repeated byte, except for the version and the byte that selects a socket.
fn datagram(version: u8, lane: u8, mark: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![mark; len];
    for (at, byte) in [(0, version << 4 | mark & 3), (4, 0xf0 & mark << 4 | lane)] {
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
    }
    bytes
}

/// All datagrams that wait in a socket.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut buf = vec![0; RECEIVE_BUFFER_LEN];
    let mut all = Vec::new();
    while let Ok(received) = socket.recv(&mut buf) {
        all.extend(received.datagrams(&mut buf).map(|datagram| datagram.to_vec()));
    }
    all
}

/// The next `count` datagrams, and those that came with them. Some kernels deliver a while after the
/// send has returned.
fn receive(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while all.len() < count {
        common::wait_readable(socket);
        all.extend(drain(socket));
    }
    all
}

#[test]
fn datagrams_reach_the_socket_that_they_name() {
    in_namespaces(|| NetNs::new().unwrap().run(check_steering).unwrap());
}

fn check_steering() {
    for (ip, any) in [("127.0.0.1", "0.0.0.0:0"), ("::1", "[::]:0")] {
        let sockets = shared(any);
        let to = SocketAddr::new(ip.parse().unwrap(), sockets[0].local_address().port());
        // From several ports: without the rule the kernel would spread these over the sockets.
        let mut expected = vec![Vec::new(); usize::from(LANES)];
        for mark in 0..20 {
            let sender = UdpSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0), options()).unwrap();
            let mut send = |owner: u8, bytes: Vec<u8>| {
                assert_eq!(sender.send(to, &bytes, None).unwrap(), bytes.len());
                expected[usize::from(owner)].push(bytes);
            };
            for lane in 0..16 {
                let owner = if lane < LANES { lane } else { 0 };
                send(owner, datagram(0xa, lane, mark, 100));
                for other in [0, 1, 4, 0xb] {
                    send(0, datagram(other, lane, mark, 100));
                }
                send(0, datagram(0xa, lane, mark, 4));
            }
            send(0, Vec::new());
        }
        for (socket, expected) in sockets.iter().zip(expected) {
            // An empty datagram yields nothing.
            let mut expected: Vec<_> = expected.into_iter().filter(|bytes| !bytes.is_empty()).collect();
            let mut came = receive(socket, expected.len());
            came.sort();
            expected.sort();
            assert_eq!(came.len(), expected.len(), "{any}");
            assert!(came == expected, "{any}");
        }
        // They send from the port that they share.
        let far = UdpSocket::bind(SocketAddr::new(ip.parse().unwrap(), 0), options()).unwrap();
        for socket in &sockets {
            socket.send(far.local_address(), b"back", None).unwrap();
            common::wait_readable(&far);
            assert_eq!(far.recv(&mut [0; 100]).unwrap().from, to);
        }
    }
}

#[test]
fn a_taken_port_is_refused_before_and_after_it_is_shared() {
    in_namespaces(|| NetNs::new().unwrap().run(check_taken).unwrap());
}

fn check_taken() {
    let refused = |address, options| matches!(UdpSocket::bind(address, options), Err(BindError::InUse(_)));
    let sharing = BindOptions {
        reuse_port: true,
        ..options()
    };
    // Another socket that would share has the port; this one requests it exclusively.
    let theirs = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), sharing).unwrap();
    assert!(refused(theirs.local_address(), options()));

    let sockets = shared("127.0.0.1:0");
    let address = sockets[0].local_address();
    assert!(refused(address, options()), "a second node gets what it got before");
    // A program of the same user may share the port, and receives nothing.
    let intruder = UdpSocket::bind(address, sharing).unwrap();
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), options()).unwrap();
    for lane in 0..16 {
        for version in [0, 0xa] {
            sender.send(address, &datagram(version, lane, 1, 60), None).unwrap();
        }
    }
    let end = Instant::now() + Duration::from_secs(60);
    let mut came = 0;
    while came < 32 {
        let late = Instant::now() >= end;
        came += sockets.iter().map(|socket| drain(socket).len()).sum::<usize>();
        assert!(came >= 32 || !late, "{came} of 32 datagrams within a minute");
    }
    assert_eq!((came, drain(&intruder).len()), (32, 0));
}

#[test]
fn a_datagram_that_left_wakes_no_receiving_thread() {
    in_namespaces(|| NetNs::new().unwrap().run(check_room).unwrap());
}

fn check_room() {
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), options()).unwrap();
    let mut near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), options()).unwrap();
    let room = Edges::of_room(&near);
    let told = |near: &UdpSocket| {
        near.send(far.local_address(), &[1; 4 * 1000], Some(1000)).unwrap();
        assert_eq!(receive(&far, 4).len(), 4);
        room.came()
    };
    assert!(!near.sends_apart() && told(&near));
    near.share(1, options(), BY_INDEX).unwrap();
    assert!(near.sends_apart() && !told(&near));
    assert!(near.wait_for_room(Duration::ZERO).unwrap());

    // All datagrams are for the one receiver, whatever they select.
    for lane in 0..16 {
        for version in [0, 0xa] {
            far.send(near.local_address(), &datagram(version, lane, 1, 60), None)
                .unwrap();
        }
    }
    assert_eq!(receive(&near, 32).len(), 32);
}

#[test]
fn broadcasts_are_dropped_by_sockets_that_only_send() {
    in_namespaces(|| NetNs::new().unwrap().run(check_broadcasts).unwrap());
}

fn check_broadcasts() {
    for lanes in [1, LANES] {
        let mut first = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), options()).unwrap();
        let more = first.share(lanes, options(), BY_INDEX).unwrap();
        let port = first.local_address().port();
        let shouting = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        shouting.set_broadcast(true).unwrap();
        for _ in 0..5 {
            shouting.send_to(&[0xff; 500], ("127.255.255.255", port)).unwrap();
        }
        let sockets: Vec<&UdpSocket> = std::iter::once(&first).chain(&more).collect();
        for socket in &sockets {
            assert_eq!(receive(socket, 5).len(), 5);
        }
        let waiting = waiting_on(port);
        assert_eq!(waiting.len(), 2 * sockets.len());
        assert!(waiting.iter().all(|bytes| *bytes == 0), "{waiting:?}");
    }
}

/// The bytes that wait in each IPv4 socket with this port, as the kernel reports.
fn waiting_on(port: u16) -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
    let fields = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields[1].ends_with(&format!(":{port:04X}")));
    let waiting = |queues: &str| u64::from_str_radix(queues.split_once(':').unwrap().1, 16).unwrap();
    ours.map(|fields| waiting(fields[4])).collect()
}

/// Detects each notification of the kernel that a socket has room.
struct Edges(OwnedFd);

impl Edges {
    fn of_room(socket: &UdpSocket) -> Self {
        let epoll = epoll::create(CreateFlags::empty()).unwrap();
        epoll::add(&epoll, socket, EventData::new_u64(0), EventFlags::OUT | EventFlags::ET).unwrap();
        let edges = Self(epoll);
        assert!(edges.came(), "there is room to begin with");
        edges
    }

    /// Whether a notification arrived since the last call.
    fn came(&self) -> bool {
        let mut events = Vec::with_capacity(1);
        let at_once = Some(&Timespec::default());
        epoll::wait(&self.0, spare_capacity(&mut events), at_once).unwrap() == 1
    }
}
