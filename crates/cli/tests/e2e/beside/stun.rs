//! STUN servers: a real coturn, and one that answers wrongly.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use weft_lab::daemon::Daemon;
use weft_lab::nat::{NatBox, NatConfig, NatKind};
use weft_lab::spec::NodeSpec;
use weft_lab::world::World;
use weft_os::test_support::require_turnserver;
use weft_reach::stun::{Message, TransactionId};

use super::homes::{Homes, OUTER, kind_of_path, why};
use super::join::done;
use crate::common::servers::coturn;
use crate::common::{MINUTE, PATIENCE, WEFT, beside, identity, wait_until};

/// What the STUN servers of a node say.
fn servers(node: &Daemon) -> Vec<Value> {
    let status = node.status().unwrap();
    status["node"]["stun"].as_array().cloned().unwrap_or_default()
}

/// No neighbour sees the two from outside, so that they have no address to tell before they ask a
/// server, each of them when it is told to.
#[test]
fn two_nodes_with_only_stun_servers_as_observers_become_direct() {
    beside(|| {
        if !require_turnserver() {
            return;
        }
        let nat = |world: &World, number, inside: (&_, &str), outside: (&_, &str)| {
            let mut config = NatConfig::new(NatKind::PortRestricted);
            config.behaviour.hairpin = number == 0;
            world.nat(config, inside, outside).unwrap()
        };
        let homes = Homes::start(nat, [""; 2]);
        let server = homes.world.host("server").unwrap();
        homes.wan.connect(&server, &["11.0.0.7/8", "11.0.0.8/8"]).unwrap();
        let _coturn = coturn(&homes.world, &server, &["11.0.0.7", "11.0.0.8"]);
        homes.wait_payload();
        let (a, b) = (&homes.a, &homes.b);
        wait_until(MINUTE, "an attempt fails", || {
            let attempts = why(a, b)["attempts"].as_array().cloned().unwrap_or_default();
            attempts
                .iter()
                .any(|attempt| attempt["outcome"] == "found no address that answers")
        });
        assert_eq!(kind_of_path(a, b), "relayed");
        assert_eq!(why(a, b)["nat"]["ipv4"], "unknown");

        let list = r#"["11.0.0.7:3478", "11.0.0.8:3478"]"#;
        for node in [a, b] {
            done(node, &["set", "reach.stun", list]);
        }
        wait_until(MINUTE, "the path is direct", || {
            kind_of_path(a, b) == "direct" && kind_of_path(b, a) == "direct"
        });
        for (node, nat) in [a, b].into_iter().zip(&homes.boxes) {
            for server in servers(node) {
                assert_eq!(server["seen"], format!("{}:2121", nat.outer()), "{server}");
                assert_eq!(server["why"], Value::Null);
            }
            assert_eq!(servers(node).len(), 2);
        }
        let why = why(a, b);
        assert_eq!(why["nat"]["ipv4"], "endpoint-independent");
        assert!(why["own"].to_string().contains(OUTER[0]), "{why}");
        check(a, &homes.boxes[0], "yes");
        check(b, &homes.boxes[1], "no");
        let text = done(a, &["status"]);
        assert!(text.contains("STUN: 11.0.0.7:3478 sees 11.0.0.101:2121"), "{text}");

        homes.finish();
    });
}

/// What `weft netcheck` says behind a box that turns datagrams to itself back inside, or does not.
fn check(node: &Daemon, nat: &NatBox, turns_back: &str) {
    let found: Value = serde_json::from_str(&done(node, &["netcheck", "--json"])).unwrap();
    let outer = format!("{}:2121", nat.outer());
    assert_eq!(found["udp"]["state"], "works", "{found}");
    assert_eq!(found["captive_portal"]["state"], "no-sign");
    assert_eq!(found["ipv4"]["mapping"]["state"], "endpoint-independent");
    assert_eq!(found["ipv4"]["outer"][0], outer);
    assert_eq!(found["ipv4"]["public"], serde_json::json!([]));
    let hairpin = &found["ipv4"]["hairpin"];
    assert!(hairpin["because"].as_str().unwrap().contains(&outer), "{hairpin}");
    assert_eq!(hairpin["state"], turns_back);
    assert_eq!(found["ipv6"]["mapping"]["state"], "unknown");
    assert!(
        found["neighbours"]
            .as_array()
            .unwrap()
            .iter()
            .any(|each| each["name"] == "p"),
        "{found}"
    );
    assert_eq!(found["stun"].as_array().unwrap().len(), 2);
    let text = done(node, &["netcheck"]);
    assert!(text.contains("mapping       endpoint-independent: observers"), "{text}");
}

/// A node without NAT, both versions of IP, and two names of the servers.
#[test]
fn a_server_is_asked_in_both_versions_of_ip() {
    beside(|| {
        if !require_turnserver() {
            return;
        }
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let [server, host] = ["server", "n"].map(|name| world.host(name).unwrap());
        wan.connect(&server, &["11.0.0.7/8", "2001:db8::7/64"]).unwrap();
        wan.connect(&host, &["11.0.0.50/8", "2001:db8::50/64"]).unwrap();
        let _coturn = coturn(&world, &server, &["11.0.0.7", "2001:db8::7"]);
        let spec = NodeSpec {
            listen: ["0.0.0.0:2121", "[::]:2121"].map(|at| at.parse().unwrap()).to_vec(),
            extra_toml: "\n[reach]\nstun = [\"11.0.0.7:3478\", \"[2001:db8::7]:3478\"]\n".to_owned(),
            ..NodeSpec::default()
        };
        let mut node = Daemon::start(&host, Path::new(WEFT), &identity(&world, "n"), &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        wait_until(MINUTE, "both have answered", || {
            let seen: Vec<_> = servers(&node).iter().map(|server| server["seen"].clone()).collect();
            seen == ["11.0.0.50:2121", "[2001:db8::50]:2121"]
        });
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    });
}

/// The next datagram. A signal of another test's process may interrupt a call.
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.unwrap(),
        }
    }
}

/// The next request of the node. The test can read it, which an attacker beside the path cannot.
fn request(server: &UdpSocket) -> (Vec<u8>, SocketAddr, TransactionId) {
    let mut buffer = [0; 1_500];
    let (length, from) = receive(server, &mut buffer);
    let request = buffer[..length].to_vec();
    let id = Message::parse(&request).unwrap().id;
    (request, from, id)
}

/// Neither what another address sends with the right ID, nor another ID, nor the node's own request
/// changes anything; the right answer does, once.
#[test]
fn forged_and_reflected_answers_change_nothing() {
    beside(|| {
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let [host, server] = ["n", "server"].map(|name| world.host(name).unwrap());
        wan.connect(&host, &["11.0.0.50/8"]).unwrap();
        wan.connect(&server, &["11.0.0.7/8", "11.0.0.8/8"]).unwrap();
        let bind = |at: &str| {
            let at: SocketAddr = at.parse().unwrap();
            let socket = server.run(|| UdpSocket::bind(at).unwrap()).unwrap();
            socket.set_read_timeout(Some(MINUTE)).unwrap();
            socket
        };
        let [right, port, address] = ["11.0.0.7:3478", "11.0.0.7:3479", "11.0.0.8:3478"].map(bind);
        let spec = NodeSpec {
            extra_toml: "\n[reach]\nstun = [\"11.0.0.7:3478\"]\n".to_owned(),
            ..NodeSpec::default()
        };
        let mut node = Daemon::start(&host, Path::new(WEFT), &identity(&world, "n"), &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        let victim: SocketAddr = "11.0.0.66:66".parse().unwrap();
        let (bytes, from, id) = request(&right);
        assert_eq!(from, "11.0.0.50:2121".parse().unwrap(), "the ordinary socket asks");
        let forged = Message::success(id, victim);
        for socket in [&port, &address] {
            socket.send_to(&forged, from).unwrap();
        }
        right.send_to(&bytes, from).unwrap();
        let other = Message::success(TransactionId([7; 12]), victim);
        for _ in 0..1_000 {
            right.send_to(&other, from).unwrap();
        }
        right.send_to(&forged[..forged.len() - 4], from).unwrap();
        // The request comes again, since none of these was an answer.
        let (again, ..) = request(&right);
        assert_eq!(again, bytes);
        assert_eq!(servers(&node)[0]["seen"], Value::Null);
        right.send_to(&Message::success(id, from), from).unwrap();
        wait_until(PATIENCE, "the answer counts", || {
            servers(&node)[0]["seen"] == from.to_string()
        });
        // The transaction is over: the same server with the same ID no longer counts.
        right.send_to(&forged, from).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(servers(&node)[0]["seen"], from.to_string());
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    });
}
