//! What is open when an exit begins to be used, is not reached, or is left: it goes on, or ends with an error.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use simple_dns::TYPE;
use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::netlink::{Tracked, tracked_connections};
use weft_os::test_support::{require_nft, uninterrupted};
use weft_wire::internet::EXIT_NAMES;

use super::exit::Capture;
use super::exit_inbound::Bridged;
use super::exit_strict::is_gone;
use super::internet::{EXIT, Internet, LAPTOP, RESOLVER, TARGET, TARGET6, WHO, done, run, seen};
use super::names::{read, request};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// A server of datagrams: it tells each client by which address it comes.
const TELLS: &str = "192.0.2.80:9999";
/// A server of connections that echoes.
const ECHOES: [&str; 2] = ["192.0.2.80:8024", "[2001:db8:2::80]:8024"];
/// How long one answer may take.
const ANSWER: Duration = Duration::from_millis(300);

fn tell(host: &Host) {
    let socket = host.run(|| UdpSocket::bind(TELLS)).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 100];
        while let Ok((_, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
        }
    });
}

fn echo(host: &Host, at: &str) {
    let at: SocketAddr = at.parse().unwrap();
    let listener = host.run(|| TcpListener::bind(at)).unwrap().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 100];
                while let Ok(len @ 1..) = stream.read(&mut bytes) {
                    let _ = stream.write_all(&bytes[..len]);
                }
            });
        }
    });
}

/// A socket that keeps its port.
struct Client(UdpSocket);

impl Client {
    fn start(host: &Host) -> Self {
        let socket = host.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(ANSWER)).unwrap();
        Self(socket)
    }

    fn exchange(&self, to: &str, request: &[u8]) -> Option<Vec<u8>> {
        self.0.send_to(request, to).ok()?;
        let mut answer = [0; 100];
        let len = uninterrupted(|| self.0.recv(&mut answer)).ok()?;
        Some(answer[..len].to_vec())
    }

    /// The address by which it comes to the server.
    fn seen(&self) -> Option<String> {
        Some(String::from_utf8(self.exchange(TELLS, b"who")?).unwrap())
    }

    /// The address by which its query for a name comes to the server that answers it.
    fn asked(&self) -> Option<String> {
        let answer = self.exchange(&format!("{RESOLVER}:53"), &request(WHO, TYPE::A))?;
        read(&answer).1.map(|ip| ip.to_string())
    }
}

/// An open connection to an echo.
fn connect(from: &Host, to: &str) -> TcpStream {
    let to: SocketAddr = to.parse().unwrap();
    let mut stream = from.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(echoes(&mut stream).is_ok());
    stream
}

fn echoes(stream: &mut TcpStream) -> std::io::Result<usize> {
    stream.write_all(b"x")?;
    uninterrupted(|| stream.read(&mut [0]))
}

/// The end of a connection as its program gets it: an error within the time for an answer, and no silence.
fn error(mut stream: TcpStream) -> ErrorKind {
    echoes(&mut stream).unwrap_err().kind()
}

const ENDED: [ErrorKind; 3] = [
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::BrokenPipe,
];

/// The frames with an address of the mesh as their source, as their first bytes.
fn inner_sources(capture: &Capture) -> Vec<String> {
    let is_inner = |frame: &String| match &frame[24..28] {
        "0800" => frame[52..56] == *"0a2c",
        "86dd" => frame[44..46] == *"fd",
        _ => false,
    };
    capture.leaks().into_iter().filter(is_inner).collect()
}

#[test]
fn flows_of_containers_follow_the_exit() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::start(false);
        let laptop = net.laptop.host();
        let bridged = Bridged::start(laptop);
        let container = &bridged.container;
        let target = net.host("target");
        tell(target);
        echo(target, ECHOES[0]);
        let rules = "table ip q { chain q { type nat hook prerouting priority -100; \
                         fib daddr type local tcp dport 8023 dnat to 172.17.0.2:8023; }; }";
        run(laptop, "nft", &[rules]);
        let published = container.run(|| TcpListener::bind("172.17.0.2:8023")).unwrap().unwrap();
        let mut client = target.run(|| TcpStream::connect((LAPTOP, 8023))).unwrap().unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut pushes, _) = uninterrupted(|| published.accept()).unwrap();
        let [server, client_udp] = [(laptop, "192.168.1.10:8030"), (target, "192.0.2.80:8030")]
            .map(|(host, at)| host.run(|| UdpSocket::bind(at)).unwrap().unwrap());
        client_udp.set_read_timeout(Some(PATIENCE)).unwrap();
        client_udp.send_to(b"x", "192.168.1.10:8030").unwrap();
        let (_, pushed_to) = uninterrupted(|| server.recv_from(&mut [0])).unwrap();
        let (flow, asks) = (Client::start(container), Client::start(container));
        assert_eq!(flow.seen().as_deref(), Some(LAPTOP));
        let _ = asks.asked();
        let mut open = connect(container, ECHOES[0]);
        net.approve();
        done(&net.laptop, &["set", "--exit", "nas", "--exit-lan"]);
        wait_until(MINUTE, "packets leave by the exit", || net.passes());
        let capture = Capture::start(laptop, &net.lan());
        // The first packet since is the server's.
        pushes.write_all(b"x").unwrap();
        assert_eq!(uninterrupted(|| client.read(&mut [0])).unwrap(), 1, "a published port");
        server.send_to(b"x", pushed_to).unwrap();
        assert_eq!(uninterrupted(|| client_udp.recv(&mut [0])).unwrap(), 1, "UDP");
        wait_until(PATIENCE, "datagrams of one socket", || {
            flow.seen().as_deref() == Some(EXIT)
        });
        wait_until(PATIENCE, "queries of one socket", || {
            asks.asked().as_deref() == Some(EXIT)
        });
        assert!(ENDED.contains(&error(open)), "from before");
        open = connect(container, ECHOES[0]);
        done(&net.laptop, &["set", "--no-exit"]);
        assert!(ENDED.contains(&error(open)), "by the exit");
        wait_until(PATIENCE, "datagrams leave directly", || {
            flow.seen().as_deref() == Some(LAPTOP)
        });
        pushes.write_all(b"x").unwrap();
        assert_eq!(uninterrupted(|| client.read(&mut [0])).unwrap(), 1);
        assert_strict!(inner_sources(&capture).is_empty(), "{:?}", inner_sources(&capture));
        net.finish();
    });
}

/// Whether the exit answers a query that the kernel tracks.
fn is_asked(host: &Host) -> bool {
    has_tracked(host, |tracked| tracked.reply.source.port() == EXIT_NAMES)
}

#[test]
fn no_query_goes_on_to_an_exit_that_was_left() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut net = Internet::by_exit(false);
        let bridged = Bridged::start(net.laptop.host());
        let ends = Arc::new(AtomicBool::new(false));
        let asking: Vec<_> = [net.laptop.host(), &bridged.container]
            .map(|host| {
                let (client, ends) = (Client::start(host), ends.clone());
                std::thread::spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        let _ = client.0.send_to(&request(WHO, TYPE::A), (RESOLVER, 53));
                        std::thread::sleep(Duration::from_millis(1));
                    }
                })
            })
            .into();
        let capture = Capture::start(net.laptop.host(), &net.lan());
        for round in 0..6 {
            let strict = format!("--exit-strict={}", round % 2 == 1);
            done(&net.laptop, &["set", "--exit", "nas", &strict]);
            wait_until(MINUTE, "packets leave by the exit", || net.passes());
            wait_until(PATIENCE, "queries go to the exit", || is_asked(net.laptop.host()));
            if round < 4 {
                done(&net.laptop, &["set", "--no-exit"]);
                assert!(!is_asked(net.laptop.host()), "round {round}");
            } else {
                done(&net.laptop, &["down"]);
                wait_until(PATIENCE, "the daemon ends", || is_gone(net.laptop.pid()));
                assert!(!is_asked(net.laptop.host()), "round {round}");
                net.laptop.restart().unwrap();
                net.laptop.wait_ready(PATIENCE).unwrap();
            }
        }
        ends.store(true, Ordering::Relaxed);
        for asks in asking {
            asks.join().unwrap();
        }
        assert_strict!(inner_sources(&capture).is_empty(), "{:?}", inner_sources(&capture));
        drop(net.warnings());
    });
}

#[test]
fn the_lan_takes_no_part_in_flows_by_the_exit() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let net = Internet::by_exit(false);
        let laptop = net.laptop.host();
        let bridged = Bridged::start(laptop);
        let home = net.host("home");
        wait_until(PATIENCE, "the container leaves by the exit", || {
            seen(&bridged.container, TARGET).as_deref() == Some(EXIT)
        });
        let text = run(laptop, "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
        let mesh = text.split_whitespace().nth(3).unwrap().split('/').next().unwrap();
        for network in [&format!("{mesh}/32"), "172.17.0.0/16"] {
            run(home, "ip", &["route", "add", network, "via", LAPTOP]);
        }
        // In the place of a server by the exit.
        run(home, "ip", &["address", "add", "192.0.2.80/32", "dev", "lo"]);
        let forged = home.run(|| UdpSocket::bind(TELLS)).unwrap().unwrap();
        let service = laptop.run(|| UdpSocket::bind((mesh, 6001))).unwrap().unwrap();
        service.set_read_timeout(Some(ANSWER)).unwrap();
        for strict in [false, true] {
            done(
                &net.laptop,
                &[
                    "set",
                    &format!("--exit-strict={strict}"),
                    &format!("--exit-inbound={strict}"),
                ],
            );
            wait_until(MINUTE, "packets leave by the exit", || {
                forged.send_to(b"x", (mesh, 6001)).unwrap();
                net.exit()["pass"] == true
            });
            assert!(uninterrupted(|| service.recv(&mut [0])).is_err(), "strict: {strict}");
            // A flow of a container whose first packet is forged.
            let port = if strict { 6003 } else { 6002 };
            forged.send_to(b"x", ("172.17.0.2", port)).unwrap();
            let begun = |tracked: &Tracked| tracked.original.dest.port() == port;
            wait_until(PATIENCE, "the forged packet is tracked", || has_tracked(laptop, begun));
            let socket = bridged.container.run(|| UdpSocket::bind(("172.17.0.2", port)));
            let capture = Capture::start(laptop, &net.lan());
            for _ in 0..5 {
                let _ = socket
                    .as_ref()
                    .unwrap()
                    .as_ref()
                    .unwrap()
                    .send_to(b"SECRETSECRET", TELLS);
            }
            let secret = |frame: &String| frame.contains("534543524554");
            let leaked: Vec<String> = capture.leaks().into_iter().filter(secret).collect();
            assert_strict!(leaked.is_empty(), "strict: {strict}: {leaked:?}");
        }
        // Under the address of a container.
        run(home, "ip", &["address", "add", "172.17.0.66/32", "dev", "lo"]);
        run(home, "ip", &["route", "add", "192.0.2.1/32", "via", LAPTOP]);
        let sink = net
            .host("core")
            .run(|| UdpSocket::bind("192.0.2.1:6005"))
            .unwrap()
            .unwrap();
        sink.set_read_timeout(Some(ANSWER)).unwrap();
        let forged = home.run(|| UdpSocket::bind("172.17.0.66:99")).unwrap().unwrap();
        forged.send_to(b"x", "192.0.2.1:6005").unwrap();
        assert!(uninterrupted(|| sink.recv(&mut [0])).is_err(), "it leaves by the exit");
        drop(net.warnings());
    });
}

/// Whether the kernel tracks a connection that a condition holds for.
fn has_tracked(host: &Host, condition: impl Fn(&Tracked) -> bool + Sync) -> bool {
    let mut found = false;
    let all = host.run(|| {
        tracked_connections(|tracked| {
            found |= condition(&tracked);
            ControlFlow::Continue(())
        })
    });
    all.unwrap().unwrap();
    found
}

#[test]
fn an_exit_that_goes_leaves_no_flow_silent() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut net = Internet::by_exit(true);
        let laptop = net.laptop.host();
        let bridged = Bridged::start(laptop);
        let container = &bridged.container;
        tell(net.host("target"));
        for at in ECHOES {
            echo(net.host("target"), at);
        }
        wait_until(MINUTE, "IPv6 leaves by the exit", || seen(laptop, TARGET6).is_some());
        let flow = Client::start(container);
        wait_until(PATIENCE, "the container leaves by the exit", || {
            flow.seen().as_deref() == Some(EXIT)
        });
        let mut open: Vec<TcpStream> = ECHOES.iter().map(|at| connect(laptop, at)).collect();
        open.push(connect(container, ECHOES[0]));
        let capture = Capture::start(laptop, &net.lan());
        assert_eq!(net.nas.stop().unwrap().code(), Some(0));
        wait_until(MINUTE, "packets leave directly", || {
            flow.seen().as_deref() == Some(LAPTOP)
        });
        for stream in open {
            let kind = error(stream);
            assert!(ENDED.contains(&kind), "{kind:?}");
        }
        let why = net.exit()["why"].as_str().unwrap().to_owned();
        assert!(
            why.starts_with("nas is not reached: ") && why.ends_with("packets leave without it until that ends"),
            "{why}"
        );

        net.nas.restart().unwrap();
        net.nas.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "packets leave by the exit again", || net.passes());
        wait_until(PATIENCE, "datagrams, too", || flow.seen().as_deref() == Some(EXIT));
        // The kernel would send IPv6 under the address that goes with the interface.
        let kept = connect(net.laptop.host(), ECHOES[1]);
        let of_container = connect(container, ECHOES[0]);
        assert_eq!(net.laptop.stop().unwrap().code(), Some(0));
        assert!(ENDED.contains(&error(kept)));
        assert!(ENDED.contains(&error(of_container)));
        assert_eq!(flow.seen().as_deref(), Some(LAPTOP));
        assert_strict!(inner_sources(&capture).is_empty(), "{:?}", inner_sources(&capture));
        drop(net.warnings());
    });
}
