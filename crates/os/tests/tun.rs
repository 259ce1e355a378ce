//! TUN interfaces, each in a namespace of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod common;

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weft_os::netlink::{Netlink, NetlinkError, Route, VethEnd};
use weft_os::netns::NetNs;
use weft_os::poll::{EventFd, Events, Interest, Poller};
use weft_os::sysctl;
use weft_os::test_support::{in_namespaces, uninterrupted};
use weft_os::tun::{READ_BUFFER_LEN, Tun, TunError, TunOptions, VNET_HEADER_LEN};
use weft_os::udp;

const ONE: &str = "fd00::1";
const OTHER: &str = "fd00::2";

/// Sets the interface up, with `ip` as its only address and a route for all of fd00::/8.
fn configure(tun: &Tun, ip: &str) {
    let mut netlink = Netlink::open().unwrap();
    sysctl::disable_router_advertisements(tun.name()).unwrap();
    netlink.disable_link_local(tun.index()).unwrap();
    netlink.set_mtu(tun.index(), 1280).unwrap();
    netlink.set_up(tun.index()).unwrap();
    let address = common::address(tun.index(), &format!("{ip}/128"));
    netlink.add_address(address).unwrap();
    let network = "fd00::".parse().unwrap();
    netlink.add_route(Route::to_interface(network, 8, tun.index())).unwrap();
    netlink.wait_until_local(address.address).unwrap();
    assert_eq!(netlink.addresses(tun.index()).unwrap(), [address]);
}

/// The fields of the virtio header: flags, kind of super-packet, segment size, checksum start and
/// offset.
fn virtio(packet: &[u8]) -> (u8, u8, u16, u16, u16) {
    let word = |at: usize| u16::from_ne_bytes([packet[at], packet[at + 1]]);
    (packet[0], packet[1], word(4), word(6), word(8))
}

#[test]
fn names() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_names).unwrap();
    });
}

fn check_names() {
    let options = TunOptions::default();
    let Some(tun) = common::tun("weft%d", options) else {
        return;
    };
    assert_eq!(tun.name(), "weft0");
    let taken = Tun::create("weft0", options).unwrap_err();
    assert!(matches!(taken, TunError::NameTaken(name) if name == "weft0"));
    assert!(matches!(tun.add_queue(), Err(TunError::NoFurtherQueue(_))));
    // An interface of another kind.
    let mut netlink = Netlink::open().unwrap();
    let end = |name| VethEnd { name, namespace: None };
    netlink.create_veth(end("cable"), end("cable2")).unwrap();
    assert!(matches!(Tun::create("cable", options), Err(TunError::NameTaken(_))));

    for name in ["", "sixteen-letters-", "a/b", "a b", "..", "a:b", "a\0b"] {
        assert!(
            matches!(Tun::create(name, options), Err(TunError::InvalidName(_))),
            "{name:?}"
        );
    }

    assert_eq!(netlink.interface("weft0").unwrap().index, tun.index());
    drop(tun);
    assert!(matches!(netlink.interface("weft0"), Err(NetlinkError::NotFound { .. })));
    Tun::create("weft0", options).unwrap();
}

#[test]
fn several_queues() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_queues).unwrap();
    });
}

fn check_queues() {
    let options = TunOptions {
        multi_queue: true,
        ..TunOptions::default()
    };
    let Some(first) = common::tun("weft0", options) else {
        return;
    };
    let second = first.add_queue().unwrap();
    assert_eq!((second.index(), second.offloads()), (first.index(), first.offloads()));
    drop(first);
    // The interface lives as long as one of its queues.
    let mut netlink = Netlink::open().unwrap();
    assert_eq!(netlink.interface("weft0").unwrap().index, second.index());
}

#[test]
fn udp_out_and_in() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_udp).unwrap();
    });
}

fn check_udp() {
    let Some(tun) = common::tun("weft0", TunOptions::default()) else {
        return;
    };
    configure(&tun, ONE);
    let socket = UdpSocket::bind((ONE, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.send_to(b"hello weft", (OTHER, 9)).unwrap();

    let mut buf = vec![0; READ_BUFFER_LEN];
    common::wait_readable(&tun);
    let len = tun.read(&mut buf).unwrap();
    let (header, packet) = buf[..len].split_at(VNET_HEADER_LEN);
    // NEEDS_CSUM for the UDP header behind 40 bytes of IPv6; no super-packet.
    assert_eq!(virtio(header), (1, 0, 0, 40, 6));
    assert_eq!(packet.len(), 40 + 8 + 10);
    let (one, other): (Ipv6Addr, Ipv6Addr) = (ONE.parse().unwrap(), OTHER.parse().unwrap());
    assert_eq!((packet[0] >> 4, packet[6]), (6, 17));
    assert_eq!(
        (&packet[8..24], &packet[24..40]),
        (&one.octets()[..], &other.octets()[..])
    );
    assert_eq!(&packet[48..], b"hello weft");
    assert_eq!(
        tun.read(&mut [0; 2048]).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock
    );

    // The answer: swapping addresses and ports leaves the partial sum unchanged.
    let mut answer = packet.to_vec();
    answer[8..24].copy_from_slice(&other.octets());
    answer[24..40].copy_from_slice(&one.octets());
    answer[40..42].copy_from_slice(&packet[42..44]);
    answer[42..44].copy_from_slice(&packet[40..42]);
    let parts = [
        IoSlice::new(header),
        IoSlice::new(&answer[..40]),
        IoSlice::new(&answer[40..]),
    ];
    assert_eq!(tun.writev(&parts).unwrap(), len);
    let mut got = [0; 64];
    let (got_len, from) = uninterrupted(|| socket.recv_from(&mut got)).unwrap();
    assert_eq!(
        (&got[..got_len], from.to_string()),
        (&b"hello weft"[..], format!("[{OTHER}]:9"))
    );
}

#[test]
fn udp_super_packet() {
    in_namespaces(|| {
        NetNs::new().unwrap().run(check_udp_super_packet).unwrap();
    });
}

fn check_udp_super_packet() {
    let Some(tun) = common::tun("weft0", TunOptions::default()) else {
        return;
    };
    configure(&tun, ONE);
    let local = format!("[{ONE}]:0").parse().unwrap();
    let socket = udp::UdpSocket::bind(local, udp::BindOptions::default()).unwrap();
    let payload: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
    let to = format!("[{OTHER}]:9").parse().unwrap();
    assert_eq!(socket.send(to, &payload, Some(1000)).unwrap(), 5000);

    let mut buf = vec![0; READ_BUFFER_LEN];
    let mut got = Vec::new();
    while got.len() < payload.len() {
        common::wait_readable(&tun);
        let len = tun.read(&mut buf).unwrap();
        let (flags, kind, size, start, offset) = virtio(&buf);
        assert_eq!((flags, start, offset), (1, 40, 6));
        if tun.offloads().udp {
            // VIRTIO_NET_HDR_GSO_UDP_L4
            assert_eq!((kind, size, len), (5, 1000, VNET_HEADER_LEN + 48 + 5000));
        } else {
            assert_eq!((kind, len), (0, VNET_HEADER_LEN + 48 + 1000));
        }
        got.extend_from_slice(&buf[VNET_HEADER_LEN + 48..len]);
    }
    assert_eq!(got, payload);
}

/// Forwards packets between two TUN interfaces, with their headers, until `stop`; counts
/// super-packets.
fn carry(one: &Tun, other: &Tun, stop: &EventFd, supers: &AtomicUsize) {
    let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(3));
    poller.add(one, 0, Interest::Readable).unwrap();
    poller.add(other, 1, Interest::Readable).unwrap();
    poller.add(stop, 2, Interest::Readable).unwrap();
    let mut buf = vec![0; READ_BUFFER_LEN];
    loop {
        poller.wait(&mut events, None).unwrap();
        for event in events.iter() {
            let (from, to) = match event.token {
                0 => (one, other),
                1 => (other, one),
                _ => return,
            };
            let len = from.read(&mut buf).unwrap();
            // VIRTIO_NET_HDR_GSO_TCPV6
            if buf[1] & 0x7f == 4 && len > 1280 + VNET_HEADER_LEN {
                supers.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(to.writev(&[IoSlice::new(&buf[..len])]).unwrap(), len);
        }
    }
}

#[test]
fn tcp_in_super_packets() {
    in_namespaces(|| {
        let (here, there) = (NetNs::new().unwrap(), NetNs::new().unwrap());
        let make =
            |ip: &'static str| move || common::tun("weft0", TunOptions::default()).inspect(|tun| configure(tun, ip));
        let (Some(one), Some(other)) = (here.run(make(ONE)).unwrap(), there.run(make(OTHER)).unwrap()) else {
            return;
        };
        assert!(one.offloads().checksum && one.offloads().tcp);
        let (stop, supers, failed) = (EventFd::new().unwrap(), AtomicUsize::new(0), AtomicBool::new(true));
        let data: Vec<u8> = (0..2_000_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        thread::scope(|scope| {
            scope.spawn(|| carry(&one, &other, &stop, &supers));
            let listener = there.run(|| TcpListener::bind((OTHER, 4000)).unwrap()).unwrap();
            let writer = scope.spawn(|| {
                here.run(|| {
                    let to = format!("[{OTHER}]:4000").parse().unwrap();
                    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap();
                    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
                    stream.write_all(&data).unwrap();
                })
                .unwrap();
            });
            common::wait_readable(&listener);
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut got = Vec::new();
            failed.store(stream.read_to_end(&mut got).is_err() || got != data, Ordering::Relaxed);
            writer.join().unwrap();
            stop.wake();
        });
        assert!(!failed.into_inner(), "the stream arrived changed");
        assert!(supers.into_inner() > 0, "no super-packet came");
    });
}
