//! What goes on when a daemon starts anew, or gets its first rules, under rules that let nothing in.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_os::assert_strict;
use weft_os::test_support::require_nft;

use super::internet::{Internet, run};
use super::join::{Net, code, done, ipv4, members, network};
use super::rights::broker;
use super::routes::counter;
use crate::common::{MINUTE, PATIENCE, address, beside, wait_until};

const PORT: u16 = 9000;
const OPEN: u16 = 9001;
/// The interval at which a server sends.
const EVERY: Duration = Duration::from_millis(100);
/// The pause until a connection attempt counts as lost, where rules deny it.
const SILENCE: Duration = Duration::from_secs(3);

/// Counts.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether it counts on, from here.
    fn goes_on(&self, what: &str) {
        let before = self.now();
        wait_until(MINUTE, what, || self.now() > before + 3);
    }
}

/// Sends to each TCP client without an end. Returns how often one has sent something.
fn send_tcp(host: &Host, at: SocketAddr) -> Count {
    let (listener, heard) = (host.run(|| TcpListener::bind(at)).unwrap().unwrap(), Count::default());
    let counted = heard.clone();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (mut from, mut to, heard) = (client.try_clone().unwrap(), client, counted.clone());
            thread::spawn(move || {
                while to.write_all(b"x").is_ok() {
                    thread::sleep(EVERY);
                }
            });
            thread::spawn(move || {
                while from.read(&mut [0; 64]).is_ok_and(|len| len > 0) {
                    heard.add();
                }
            });
        }
    });
    heard
}

/// Sends to the first UDP client without an end.
fn send_udp(host: &Host, at: SocketAddr) {
    let socket = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    thread::spawn(move || {
        let client = socket.recv_from(&mut [0; 64]).unwrap().1;
        loop {
            let _ = socket.send_to(b"x", client);
            thread::sleep(EVERY);
        }
    });
}

fn connect(from: &Host, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    from.run(|| TcpStream::connect_timeout(&to, limit)).unwrap()
}

/// Counts what a connection receives, and sends nothing.
fn receive_tcp(from: &Host, to: SocketAddr) -> Count {
    let (mut client, count) = (connect(from, to, PATIENCE).unwrap(), Count::default());
    let counted = count.clone();
    thread::spawn(move || {
        while client.read(&mut [0; 64]).is_ok_and(|len| len > 0) {
            counted.add();
        }
    });
    count.goes_on("the server sends");
    count
}

/// The same over UDP, after one packet.
fn receive_udp(from: &Host, to: SocketAddr) -> Count {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let (client, count) = (from.run(|| UdpSocket::bind(any)).unwrap().unwrap(), Count::default());
    from.run(|| client.connect(to)).unwrap().unwrap();
    client.send(b"x").unwrap();
    let counted = count.clone();
    thread::spawn(move || {
        loop {
            // An error is about a packet that was not sent by this socket.
            if client.recv(&mut [0; 64]).is_ok() {
                counted.add();
            }
        }
    });
    count.goes_on("the server sends");
    count
}

fn stop_and_start(node: &mut Daemon) {
    assert_eq!(node.stop().unwrap().code(), Some(0));
    node.restart().unwrap();
    node.wait_ready(PATIENCE).unwrap();
}

fn kill_and_start(node: &mut Daemon) {
    node.kill().unwrap();
    node.restart().unwrap();
    node.wait_ready(PATIENCE).unwrap();
}

/// A nas and a laptop in one network.
fn joined() -> Net {
    let net = Net::start(&["a", "b"]);
    let [nas, laptop] = &net.nodes[..] else { panic!() };
    done(nas, &["create", "home", "--host", "nas"]);
    done(laptop, &["join", &code(nas, &["--name", "laptop"])]);
    for node in [nas, laptop] {
        wait_until(PATIENCE, "both know both", || members(node) == ["laptop", "nas"]);
    }
    net
}

fn deny(net: &Net) {
    done(&net.nodes[0], &["rule", "default", "deny"]);
    for node in &net.nodes {
        wait_until(PATIENCE, "the rule is known", || network(node)["default"] == "deny");
    }
}

#[test]
fn flows_that_this_host_began_survive_restarts_and_crashes() {
    beside(|| {
        let mut net = joined();
        done(&net.nodes[0], &["rule", "add", "allow from laptop to nas"]);
        deny(&net);
        let [nas, laptop] = &net.nodes[..] else { panic!() };
        let mut counts = Vec::new();
        for ip in [address(nas), IpAddr::V4(ipv4(nas))] {
            let at = SocketAddr::new(ip, PORT);
            send_tcp(nas.host(), at);
            send_udp(nas.host(), at);
            counts.push((format!("TCP {at}"), receive_tcp(laptop.host(), at)));
            counts.push((format!("UDP {at}"), receive_udp(laptop.host(), at)));
        }
        send_tcp(laptop.host(), SocketAddr::new(address(laptop), OPEN));
        for start_again in [stop_and_start, kill_and_start, stop_and_start] {
            start_again(&mut net.nodes[1]);
            counts.iter().for_each(|(what, count)| count.goes_on(what));
        }
        let [nas, laptop] = &net.nodes[..] else { panic!() };
        let slips = connect(nas.host(), SocketAddr::new(address(laptop), OPEN), SILENCE);
        assert_strict!(slips.is_err(), "the laptop lets nothing else in");
        net.finish();
    });
}

#[test]
fn a_connection_that_was_denied_stays_denied_over_a_restart() {
    beside(|| {
        let mut net = joined();
        let [nas, laptop] = &net.nodes[..] else { panic!() };
        let at = SocketAddr::new(address(nas), PORT);
        let heard = send_tcp(nas.host(), at);
        let mut client = connect(laptop.host(), at, PATIENCE).unwrap();
        client.write_all(b"x").unwrap();
        wait_until(PATIENCE, "the server hears", || heard.now() > 0);
        // This end goes on to send, and the server, too.
        thread::spawn(move || {
            while client.write_all(b"x").is_ok() {
                thread::sleep(EVERY);
            }
        });
        deny(&net);
        wait_until(PATIENCE, "it is denied", || {
            counter(&net.nodes[0], "denied_by_rules") > 2
        });
        for start_again in [stop_and_start, kill_and_start] {
            let before = heard.now();
            start_again(&mut net.nodes[0]);
            let nas = &net.nodes[0];
            wait_until(MINUTE, "it is denied again", || counter(nas, "denied_by_rules") > 2);
            assert_strict!(heard.now() == before, "the server hears again");
        }
        net.finish();
    });
}

#[test]
fn the_first_rules_of_a_running_node_end_nothing_that_it_began() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [nas, laptop] = &net.nodes[..] else { panic!() };
        let npub = |node: &Daemon| node.identity().npub.clone();
        done(nas, &["peer", "add", &npub(laptop)]);
        done(laptop, &["peer", "add", &npub(nas), "--address", "192.0.2.1:2121"]);
        let at = SocketAddr::new(address(nas), PORT);
        send_tcp(nas.host(), at);
        send_udp(nas.host(), at);
        send_tcp(laptop.host(), SocketAddr::new(address(laptop), OPEN));
        wait_until(PATIENCE, "packets pass", || connect(laptop.host(), at, SILENCE).is_ok());
        let counts = [receive_tcp(laptop.host(), at), receive_udp(laptop.host(), at)];
        done(laptop, &["set", "rules.local", "[\"deny from any to any\"]"]);
        let to_laptop = SocketAddr::new(address(laptop), OPEN);
        wait_until(PATIENCE, "the rule is in force", || {
            connect(nas.host(), to_laptop, SILENCE).is_err()
        });
        counts.iter().for_each(|count| count.goes_on("what the laptop began"));
        net.finish();
    });
}

#[test]
fn flows_through_an_exit_survive_a_restart() {
    beside(|| {
        if !require_nft() {
            return;
        }
        let mut net = Internet::by_exit(false);
        for rule in ["allow from laptop to exit", "allow from laptop to nas"] {
            done(&net.nas, &["rule", "add", rule]);
        }
        done(&net.nas, &["rule", "default", "deny"]);
        wait_until(PATIENCE, "the rules are known", || {
            network(&net.laptop)["default"] == "deny"
        });
        let at: SocketAddr = "192.0.2.80:9000".parse().unwrap();
        send_tcp(net.host("target"), at);
        let count = receive_tcp(net.laptop.host(), at);
        for start_again in [stop_and_start, kill_and_start] {
            start_again(&mut net.laptop);
            count.goes_on("the download");
        }
        net.finish();
    });
}

#[test]
fn a_network_has_its_address_once_its_creation_is_done() {
    beside(|| {
        let net = Net::start(&["desk"]);
        let desk = &net.nodes[0];
        // The first rules wait for the broker, and after a while they hold without its answer.
        let broker = broker(desk).to_string();
        run(desk.host(), "kill", &["-STOP", &broker]);
        done(desk, &["create", "home", "--host", "desk"]);
        let shown = run(desk.host(), "ip", &["-4", "-o", "address", "show", "dev", "weft0"]);
        assert!(shown.contains(" 10.44."), "{shown}");
        done(desk, &["why", "desk", "desk", "tcp/22"]);
        run(desk.host(), "kill", &["-CONT", &broker]);
        net.finish();
    });
}
