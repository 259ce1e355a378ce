//! UDP sockets over the loopback of a namespace of their own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass};
use weft_os::netlink::Netlink;
use weft_os::netns::NetNs;
use weft_os::test_support::{in_namespaces, send_without_checksum, wait_until};
use weft_os::udp::{
    BindError, BindOptions, LocalEnd, MAX_SEGMENTS, RECEIVE_BUFFER_LEN, Received, UdpSocket, is_too_long,
};

fn bind(address: &str, options: BindOptions) -> UdpSocket {
    UdpSocket::bind(address.parse().unwrap(), options).unwrap()
}

fn to(ip: &str, socket: &UdpSocket) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), socket.local_address().port())
}

fn receive(socket: &UdpSocket, buf: &mut [u8]) -> Received {
    common::wait_readable(socket);
    socket.recv(buf).unwrap()
}

/// The next `count` datagrams.
fn datagrams(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut buf = vec![0; RECEIVE_BUFFER_LEN];
    let mut list = Vec::new();
    while list.len() < count {
        let received = receive(socket, &mut buf);
        assert!(!received.truncated);
        list.extend(received.datagrams(&mut buf).map(|datagram| datagram.to_vec()));
    }
    list
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) >> 3) as u8).collect()
}

/// A socket that the standard library bound and connected works like one of this crate.
#[test]
fn a_socket_bound_elsewhere_is_taken_over() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_adopted).unwrap();
    });
}

fn check_adopted() {
    for ip in ["127.0.0.1", "::1"] {
        let sockets = [(); 2].map(|()| std::net::UdpSocket::bind((ip, 0)).unwrap());
        let addresses = [0, 1].map(|n: usize| sockets[n].local_addr().unwrap());
        sockets[0].connect(addresses[1]).unwrap();
        sockets[1].connect(addresses[0]).unwrap();
        let [a, b] = sockets.map(|socket| UdpSocket::adopt(socket, BindOptions::default()).unwrap());
        assert_eq!((a.local_address(), b.local_address()), (addresses[0], addresses[1]));
        let nothing = b.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        let bytes = payload(5 * 1200);
        assert_eq!(a.send(addresses[1], &bytes, Some(1200)).unwrap(), bytes.len());
        assert_eq!(datagrams(&b, 5).concat(), bytes);
        if a.gso() {
            assert_eq!(a.counters().gso_sends, 1);
        }
    }
}

#[test]
fn segments_leave_and_arrive_in_one_call() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_segments).unwrap();
    });
}

fn check_segments() {
    let plain = BindOptions {
        gso: false,
        gro: false,
        ..BindOptions::default()
    };
    let bytes = payload(9 * 1200 + 500);
    let expected: Vec<Vec<u8>> = bytes.chunks(1200).map(<[u8]>::to_vec).collect();
    for address in ["[::]:0", "127.0.0.1:0", "[::1]:0"] {
        let loopback = if address == "127.0.0.1:0" { "127.0.0.1" } else { "::1" };
        for (sending, receiving) in [
            (BindOptions::default(), BindOptions::default()),
            (BindOptions::default(), plain),
            (plain, BindOptions::default()),
            (plain, plain),
        ] {
            let (a, b) = (bind(address, sending), bind(address, receiving));
            assert_eq!((a.gso(), b.gro()), (sending.gso, receiving.gro));
            assert_eq!(a.send(to(loopback, &b), &bytes, Some(1200)).unwrap(), bytes.len());
            assert_eq!(datagrams(&b, 10), expected);

            let (sent, received) = (a.counters(), b.counters());
            let expected_sends = if sending.gso { (1, 0) } else { (0, 10) };
            assert_eq!((sent.gso_sends, sent.plain_sends), expected_sends);
            assert_eq!((sent.gso_refusals, received.segments_received), (0, 10));
            if sending.gso && receiving.gro {
                assert_eq!((received.gro_receives, received.plain_receives), (1, 0));
            }
            if !receiving.gro {
                assert_eq!((received.gro_receives, received.plain_receives), (0, 10));
            }
        }
    }
}

/// Receives of several datagrams and of single ones report the ECN marks, over both IP versions.
#[test]
fn a_receive_tells_the_ecn_bits() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_ecn).unwrap();
    });
}

fn set_traffic_class(socket: &UdpSocket, ipv6: bool, class: u8) {
    match ipv6 {
        true => set_ipv6_tclass(socket, class.into()).unwrap(),
        false => set_ip_tos(socket, class).unwrap(),
    }
}

fn check_ecn() {
    let mut buf = vec![0; RECEIVE_BUFFER_LEN];
    let bytes = payload(5 * 1200);
    for (receiver, sender, ip) in [
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "[::1]:0", "::1"),
        ("[::]:0", "[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1:0", "127.0.0.1"),
    ] {
        for gro in [true, false] {
            let options = BindOptions {
                gro,
                ..BindOptions::default()
            };
            let (a, b) = (bind(sender, BindOptions::default()), bind(receiver, options));
            // The DSCP in the same byte is not reported.
            for class in [0, 1, 2, 3, 0xb8 | 3, 0xb8, 0] {
                set_traffic_class(&a, sender.starts_with('['), class);
                for segment in [Some(1200), None] {
                    let len = segment.map_or(1200, |_| bytes.len());
                    a.send(to(ip, &b), &bytes[..len], segment).unwrap();
                    let mut got = 0;
                    while got < len {
                        let received = receive(&b, &mut buf);
                        assert_eq!(received.ecn, class & 3, "{receiver} {sender} {gro} {class}");
                        got += received.len;
                    }
                }
            }
        }
    }
}

#[test]
fn a_refused_super_datagram_is_sent_one_by_one() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_fallback).unwrap();
    });
}

fn check_fallback() {
    let (a, b) = (
        bind("127.0.0.1:0", BindOptions::default()),
        bind("127.0.0.1:0", BindOptions::default()),
    );
    // Without checksums the kernel does not split.
    send_without_checksum(&a).unwrap();
    let bytes = payload(2500);
    let expected: Vec<Vec<u8>> = bytes.chunks(1000).map(<[u8]>::to_vec).collect();
    for round in 1..=2 {
        assert_eq!(a.send(b.local_address(), &bytes, Some(1000)).unwrap(), 2500);
        assert_eq!(datagrams(&b, 3), expected);
        let sent = a.counters();
        assert_eq!((sent.gso_sends, sent.gso_refusals, sent.plain_sends), (0, 1, 3 * round));
        assert!(!a.gso());
    }
}

#[test]
fn nothing_is_fragmented() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_too_long).unwrap();
    });
}

fn check_too_long() {
    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.interface("lo").unwrap();
    netlink.set_mtu(loopback.index, 1500).unwrap();
    let bytes = payload(6000);
    for (address, target, longest) in [
        ("[::]:0", "::1", 1452),
        ("[::]:0", "127.0.0.1", 1472),
        ("127.0.0.1:0", "127.0.0.1", 1472),
        ("[::1]:0", "::1", 1452),
    ] {
        let (a, b) = (
            bind(address, BindOptions::default()),
            bind(address, BindOptions::default()),
        );
        let to = to(target, &b);
        assert_eq!(a.send(to, &bytes[..longest], None).unwrap(), longest);
        let size = longest as u16;
        assert_eq!(a.send(to, &bytes, Some(size)).unwrap(), bytes.len());
        assert!(is_too_long(&a.send(to, &bytes[..longest + 1], None).unwrap_err()));
        assert!(is_too_long(&a.send(to, &bytes, Some(size + 1)).unwrap_err()));
        // The path was the cause, not the kernel.
        assert!(a.gso());
        let mut expected = vec![bytes[..longest].to_vec()];
        expected.extend(bytes.chunks(longest).map(<[u8]>::to_vec));
        assert_eq!(datagrams(&b, expected.len()), expected);
    }
}

#[test]
fn both_ip_versions_on_one_socket() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_dual_stack).unwrap();
    });
}

fn check_dual_stack() {
    let both = bind("[::]:0", BindOptions::default());
    let mut buf = [0; 100];
    for ip in ["127.0.0.1", "::1"] {
        let local = SocketAddr::new(ip.parse().unwrap(), 0);
        let one = UdpSocket::bind(local, BindOptions::default()).unwrap();
        one.send(to(ip, &both), b"out", None).unwrap();
        let received = receive(&both, &mut buf);
        assert_eq!(
            (received.from, received.segments(), &buf[..3]),
            (one.local_address(), 1, &b"out"[..])
        );
        both.send(received.from, b"back", None).unwrap();
        let received = receive(&one, &mut buf);
        assert_eq!((received.from, received.len), (to(ip, &both), 4));
    }
    // The port is taken in both versions.
    let taken = UdpSocket::bind(to("127.0.0.1", &both), BindOptions::default()).unwrap_err();
    assert!(matches!(taken, BindError::InUse(address) if address == to("127.0.0.1", &both)));
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_local_ends).unwrap();
    });
}

fn check_local_ends() {
    let mut netlink = Netlink::open().unwrap();
    let loopback = netlink.interface("lo").unwrap().index;
    let ipv6 = common::address(loopback, "fd00::9/128");
    netlink.add_address(ipv6).unwrap();
    netlink.wait_until_local(ipv6.address).unwrap();
    let mut buf = vec![0; RECEIVE_BUFFER_LEN];
    for (any, client, asked) in [
        ("0.0.0.0:0", "127.0.0.1:0", "127.0.0.2"),
        ("[::]:0", "127.0.0.1:0", "127.0.0.3"),
        ("[::]:0", "[::1]:0", "fd00::9"),
    ] {
        let [server, client] = [any, client].map(|at| bind(at, BindOptions::default()));
        client.send(to(asked, &server), b"question", None).unwrap();
        let question = receive(&server, &mut buf);
        let local = question.local.unwrap();
        assert_eq!((local.ip, local.device), (asked.parse().unwrap(), loopback), "{any}");
        // One datagram, and several that the kernel cuts.
        for size in [None, Some(600)] {
            let sent = server.send_from(Some(local), question.from, &payload(1_500), size);
            assert_eq!(sent.unwrap(), 1_500);
            let mut len = 0;
            while len < 1_500 {
                let answer = receive(&client, &mut buf);
                assert_eq!(answer.from, to(asked, &server));
                assert_eq!(answer.local, None, "the socket has an address of its own");
                len += answer.len;
            }
        }
        assert_eq!(server.counters().local_ends_gone, 0);
        // An address that no interface has: the answer leaves from another one.
        let gone = if local.ip.is_ipv6() { "fd00::10" } else { "192.0.2.1" };
        let gone = LocalEnd {
            ip: gone.parse().unwrap(),
            ..local
        };
        for size in [None, Some(600)] {
            assert_eq!(
                server
                    .send_from(Some(gone), question.from, &payload(1_200), size)
                    .unwrap(),
                1_200
            );
        }
        assert_eq!(datagrams(&client, 3).concat().len(), 2_400);
        assert_eq!(server.counters().local_ends_gone, 2);
        assert!(
            server.gso() || server.counters().gso_refusals == 0,
            "an address switched GSO off"
        );
    }
}

#[test]
fn binding_fails_by_cause() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_bind_errors).unwrap();
    });
}

fn check_bind_errors() {
    let first = bind("127.0.0.1:0", BindOptions::default());
    let again = UdpSocket::bind(first.local_address(), BindOptions::default());
    assert!(matches!(again, Err(BindError::InUse(_))));
    let nowhere = "192.0.2.1:0".parse().unwrap();
    let elsewhere = UdpSocket::bind(nowhere, BindOptions::default());
    assert!(matches!(elsewhere, Err(BindError::NotAvailable(address)) if address == nowhere));

    let shared = BindOptions {
        reuse_port: true,
        ..BindOptions::default()
    };
    let one = bind("[::]:0", shared);
    let two = UdpSocket::bind(one.local_address(), shared).unwrap();
    assert_eq!(one.local_address(), two.local_address());
}

#[test]
fn limits() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_limits).unwrap();
    });
}

fn check_limits() {
    let small = BindOptions {
        receive_buffer: 100_000,
        send_buffer: 100_000,
        ..BindOptions::default()
    };
    let (a, b) = (bind("127.0.0.1:0", small), bind("127.0.0.1:0", BindOptions::default()));
    assert_eq!((a.buffers().receive, a.buffers().send), (100_000, 100_000));
    assert_eq!(
        (a.buffers().receive_shortfall(), a.buffers().send_shortfall()),
        (None, None)
    );
    let granted = b.buffers();
    assert_eq!(granted.receive_shortfall().is_some(), granted.receive < 4 << 20);

    let to = b.local_address();
    let bytes = payload(70_000);
    let most = 1000 * MAX_SEGMENTS;
    assert_eq!(a.send(to, &bytes[..most], Some(1000)).unwrap(), most);
    assert_eq!(datagrams(&b, MAX_SEGMENTS).concat(), &bytes[..most]);
    for (len, size) in [(most + 1, 1000), (65_508, 2000), (10, 0)] {
        let error = a.send(to, &bytes[..len], Some(size)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{len} {size}");
    }
    let v6 = a.send("[::1]:9".parse().unwrap(), b"x", None).unwrap_err();
    assert_eq!(v6.raw_os_error(), Some(libc::EAFNOSUPPORT));
    assert!(is_too_long(&a.send(to, &bytes, None).unwrap_err()));

    // An empty datagram, then one that the buffer truncates.
    a.send(to, b"", None).unwrap();
    a.send(to, b"twelve bytes", Some(12)).unwrap();
    let mut buf = [0; 8];
    let empty = receive(&b, &mut buf);
    assert_eq!(
        (empty.len, empty.segments(), empty.datagrams(&mut buf).count()),
        (0, 1, 0)
    );
    let cut = receive(&b, &mut buf);
    assert_eq!((cut.len, cut.truncated, &buf), (8, true, b"twelve b"));
    assert_eq!(b.recv(&mut buf).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn drops_of_a_full_queue_are_counted() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_full_queue).unwrap();
    });
}

fn check_full_queue() {
    let small = BindOptions {
        receive_buffer: 16 << 10,
        gro: false,
        ..BindOptions::default()
    };
    let (sender, receiver) = (bind("127.0.0.1:0", BindOptions::default()), bind("127.0.0.1:0", small));
    for _ in 0..200 {
        sender.send(receiver.local_address(), &payload(1200), None).unwrap();
    }
    // Some kernels deliver a while after the send has returned.
    let dropped = || receiver.counters().queue_dropped;
    wait_until(Duration::from_secs(60), "the full queue has dropped some", || {
        dropped() > 0
    });
    let mut buf = vec![0; RECEIVE_BUFFER_LEN];
    let mut received = 0;
    wait_until(Duration::from_secs(60), "all were received or dropped", || {
        received += std::iter::from_fn(|| receiver.recv(&mut buf).ok()).count() as u64;
        dropped() + received >= 200
    });
    assert!(received > 0, "{received}");
    assert_eq!(dropped() + received, 200);
    assert_eq!(sender.counters().queue_dropped, 0);
}
