//! The kernel's lists of sockets and of tracked connections, in namespaces of their own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::process::Command;

use weft_os::netlink::{
    InetSocket, Tracked, TrackedEnds, end_connections, flush_connections, forget_connections, sockets,
    tracked_connections,
};
use weft_os::netns::NetNs;
use weft_os::test_support::{in_namespaces, require_nft};

const TCP: u8 = 6;
const UDP: u8 = 17;
const LOOPBACKS: [&str; 2] = ["127.0.0.1", "[::1]"];

fn all_sockets() -> Vec<InetSocket> {
    let mut all = Vec::new();
    sockets(|socket| {
        all.push(socket);
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn all_tracked() -> Vec<Tracked> {
    let mut all = Vec::new();
    tracked_connections(|tracked| {
        all.push(tracked);
        ControlFlow::Continue(())
    })
    .unwrap();
    all
}

fn track() {
    const RULES: &str = "table inet track {
        chain enter { type filter hook input priority filter; ct state new accept; }
        chain leave { type filter hook output priority filter; ct state new accept; }
    }";
    assert!(Command::new("nft").arg(RULES).status().unwrap().success());
}

/// Two ends of a connection: a listener with the accepted one, and the one that has asked.
fn connection(host: &str) -> (TcpListener, TcpStream, TcpStream) {
    let listener = TcpListener::bind(format!("{host}:0")).unwrap();
    let asks = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    (listener, accepted, asks)
}

#[test]
fn sockets_are_listed_with_both_ends() {
    in_namespaces(|| {
        for host in LOOPBACKS {
            // A namespace each: a child of another test may hold sockets that were closed for a moment.
            let work = || {
                let (listener, accepted, asks) = connection(host);
                let at = listener.local_addr().unwrap();
                let udp = UdpSocket::bind(format!("{host}:0")).unwrap();
                let unconnected = UdpSocket::bind(format!("{host}:0")).unwrap();
                udp.connect(unconnected.local_addr().unwrap()).unwrap();
                let of = |protocol, local: SocketAddr, remote: Option<SocketAddr>| InetSocket {
                    protocol,
                    local,
                    remote,
                };
                let mut expected = vec![
                    of(TCP, at, None),
                    of(TCP, at, Some(asks.local_addr().unwrap())),
                    of(TCP, asks.local_addr().unwrap(), Some(at)),
                    of(UDP, udp.local_addr().unwrap(), Some(unconnected.local_addr().unwrap())),
                ];
                let mut found = all_sockets();
                for list in [&mut expected, &mut found] {
                    list.sort_by_key(|socket| (socket.protocol, socket.local, socket.remote));
                }
                assert_eq!(found, expected);
                drop(accepted);
            };
            NetNs::new().unwrap().run(work).unwrap();
        }
    });
}

#[test]
fn an_ipv4_connection_of_an_ipv6_socket_has_its_ipv4_addresses() {
    in_namespaces(|| {
        let work = || {
            let listener = TcpListener::bind("[::]:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let _asks = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let _accepted = listener.accept().unwrap();
            let of_port = all_sockets().into_iter().filter(|socket| socket.local.port() == port);
            let connected: Vec<InetSocket> = of_port.filter(|socket| socket.remote.is_some()).collect();
            assert_eq!(connected.len(), 1);
            assert!(connected[0].local.is_ipv4() && connected[0].remote.unwrap().is_ipv4());
        };
        NetNs::new().unwrap().run(work).unwrap();
    });
}

#[test]
fn tracked_connections_are_listed_with_the_end_that_began() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let work = || {
            track();
            for host in LOOPBACKS {
                flush_connections().unwrap();
                let (listener, _accepted, asks) = connection(host);
                let (of_asks, at) = (asks.local_addr().unwrap(), listener.local_addr().unwrap());
                let [one, other] = [(); 2].map(|()| UdpSocket::bind(format!("{host}:0")).unwrap());
                one.send_to(b"x", other.local_addr().unwrap()).unwrap();
                let of = |protocol, source, dest| Tracked {
                    protocol,
                    original: TrackedEnds { source, dest },
                    reply: TrackedEnds {
                        source: dest,
                        dest: source,
                    },
                };
                let mut found = all_tracked();
                found.sort_by_key(|tracked| tracked.protocol);
                let expected = [
                    of(TCP, of_asks, at),
                    of(UDP, one.local_addr().unwrap(), other.local_addr().unwrap()),
                ];
                assert_eq!(found, expected);
            }
        };
        NetNs::new().unwrap().run(work).unwrap();
    });
}

/// The kernel takes the first packet that it sees for the first one of the connection.
#[test]
fn a_connection_that_was_tracked_late_is_not_listed() {
    use std::io::{Read as _, Write as _};

    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let work = || {
            let (_listener, mut accepted, mut asks) = connection("127.0.0.1");
            track();
            accepted.write_all(b"x").unwrap();
            asks.read_exact(&mut [0]).unwrap();
            let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
            assert_eq!((count.trim(), all_tracked()), ("1", Vec::new()));
        };
        NetNs::new().unwrap().run(work).unwrap();
    });
}

#[test]
fn a_connection_that_is_forgotten_begins_anew() {
    in_namespaces(|| {
        if !require_nft() {
            return;
        }
        let work = || {
            track();
            for host in LOOPBACKS {
                flush_connections().unwrap();
                let [one, other, kept] = [(); 3].map(|()| UdpSocket::bind(format!("{host}:0")).unwrap());
                let at = other.local_addr().unwrap();
                let sources = [&one, &kept].map(|socket| {
                    socket.send_to(b"x", at).unwrap();
                    socket.local_addr().unwrap()
                });
                let is_one = |tracked: &Tracked| tracked.original.source == sources[0];
                assert_eq!(forget_connections(is_one).unwrap(), 1, "{host}");
                let left: Vec<_> = all_tracked().iter().map(|tracked| tracked.original.source).collect();
                assert_eq!(left, sources[1..]);
                assert_eq!(forget_connections(is_one).unwrap(), 0);
                // The answer begins one of its own, whose addresses nothing of the former one translates.
                other.send_to(b"x", sources[0]).unwrap();
                assert!(
                    all_tracked().iter().any(|tracked| tracked.original.source == at),
                    "{host}"
                );
            }
            // One whose beginning was not seen is forgotten, too.
            let (_listener, mut accepted, _asks) = connection("127.0.0.1");
            flush_connections().unwrap();
            accepted.write_all(b"x").unwrap();
            let source = accepted.local_addr().unwrap();
            assert_eq!(
                forget_connections(|tracked| tracked.original.source == source).unwrap(),
                1
            );
        };
        NetNs::new().unwrap().run(work).unwrap();
    });
}

#[test]
fn a_list_ends_when_its_reader_has_enough() {
    in_namespaces(|| {
        let work = || {
            let listeners: Vec<TcpListener> = (0..50).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let mut count = 0;
            sockets(|_| {
                count += 1;
                if count == 10 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
            assert_eq!((count, listeners.len()), (10, 50));
        };
        NetNs::new().unwrap().run(work).unwrap();
    });
}

#[test]
fn a_connection_is_ended_with_an_error_and_others_go_on() {
    in_namespaces(|| {
        let namespace = NetNs::new().unwrap();
        let work = || {
            for host in LOOPBACKS {
                let (_first, mut accepted, mut asks) = connection(host);
                let (_second, mut kept, mut keeps) = connection(host);
                let udp = UdpSocket::bind(format!("{host}:0")).unwrap();
                udp.connect(udp.local_addr().unwrap()).unwrap();
                let ended = [asks.local_addr().unwrap(), udp.local_addr().unwrap()];
                assert_eq!(
                    end_connections(|socket| ended.contains(&socket.local)).unwrap(),
                    2,
                    "{host}"
                );
                let error = asks.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{host}");
                assert!(accepted.read(&mut [0]).is_err(), "it is reset, {host}");
                keeps.write_all(b"x").unwrap();
                assert_eq!(kept.read(&mut [0]).unwrap(), 1);
                assert_eq!(end_connections(|socket| ended.contains(&socket.local)).unwrap(), 0);
            }
        };
        namespace.run(work).unwrap();
    });
}
