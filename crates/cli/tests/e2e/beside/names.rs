//! Names, queried from the real daemon.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;

use serde_json::Value;
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QTYPE, Question, RCODE, TYPE};
use weft_lab::daemon::Daemon;
use weft_lab::spec::NodeSpec;
use weft_lab::world::World;

use crate::common::{PATIENCE, Pair, Underlay, WEFT, address, assert_pings, beside, identity, wait_until};
use weft_os::assert_strict;
use weft_os::test_support::uninterrupted;

pub(crate) const LISTEN: [&str; 2] = ["127.0.0.1:5354", "[::1]:5354"];

/// The content of a response: its code, and the address in it.
pub(crate) type Answer = (RCODE, Option<IpAddr>);

pub(crate) fn request(name: &str, qtype: TYPE) -> Vec<u8> {
    let mut packet = Packet::new_query(4711);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let question = Question::new(Name::new_unchecked(name), QTYPE::TYPE(qtype), CLASS::IN.into(), false);
    packet.questions.push(question);
    packet.build_bytes_vec().unwrap()
}

pub(crate) fn read(response: &[u8]) -> Answer {
    let response = Packet::parse(response).unwrap();
    assert_eq!(response.id(), 4711);
    let mut addresses = response.answers.iter().map(|answer| match &answer.rdata {
        RData::AAAA(aaaa) => IpAddr::V6(Ipv6Addr::from(aaaa.address)),
        RData::A(a) => IpAddr::V4(Ipv4Addr::from(a.address)),
        other => panic!("{other:?}"),
    });
    let address = addresses.next();
    assert!(addresses.next().is_none());
    (response.rcode(), address)
}

pub(crate) fn exchange_udp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let local = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(local).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(request, server).unwrap();
    let mut response = [0; 1500];
    let (len, from) = uninterrupted(|| socket.recv_from(&mut response)).unwrap();
    assert_eq!(from, server);
    response[..len].to_vec()
}

pub(crate) fn exchange_tcp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = u16::try_from(request.len()).unwrap();
    stream.write_all(&[&len.to_be_bytes(), request].concat()).unwrap();
    let mut len = [0; 2];
    stream.read_exact(&mut len).unwrap();
    let mut response = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut response).unwrap();
    response
}

/// Queries every address over both transports, on the daemon's host; all responses are equal, unless the
/// name changes meanwhile.
pub(crate) fn ask(daemon: &Daemon, name: &str, qtype: TYPE) -> Answer {
    let request = request(name, qtype);
    let ask_all = || {
        let answers = daemon.host().run(|| {
            let servers = LISTEN.map(|text| text.parse::<SocketAddr>().unwrap());
            servers.map(|server| {
                [exchange_udp(server, &request), exchange_tcp(server, &request)].map(|bytes| read(&bytes))
            })
        });
        answers.unwrap().concat()
    };
    let are_equal = |answers: &[Answer]| answers.iter().all(|answer| *answer == answers[0]);
    let mut answers = ask_all();
    if !are_equal(&answers) {
        answers = ask_all();
    }
    assert!(are_equal(&answers), "{answers:?}");
    answers[0]
}

/// The status of names, as soon as the daemon has tried to set them up in the system.
fn dns_status(daemon: &Daemon) -> Value {
    let mut status = Value::Null;
    wait_until(PATIENCE, "the daemon has tried", || {
        status = daemon.status().unwrap()["node"]["dns"].clone();
        !status["why"].as_str().unwrap_or_default().contains("being set up")
    });
    status
}

#[test]
fn names_are_answered_and_others_refused() {
    beside(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let (a, b) = (&pair.a, &pair.b);
        let peer = (RCODE::NoError, Some(address(b)));
        for name in ["b.fips", "B.FIPS", &format!("{}.fips", b.identity().npub)] {
            assert_eq!(ask(a, name, TYPE::AAAA), peer, "{name}");
            assert_eq!(ask(a, name, TYPE::A), (RCODE::NoError, None), "{name}");
        }
        let own = format!("{}.fips", a.identity().npub);
        assert_eq!(ask(a, &own, TYPE::AAAA), (RCODE::NoError, Some(address(a))));
        assert_eq!(ask(a, "c.fips", TYPE::AAAA), (RCODE::NameError, None));
        for name in ["example.com", "b", "b.local"] {
            assert_eq!(ask(a, name, TYPE::AAAA), (RCODE::Refused, None), "{name}");
        }
        assert_pings(a, b);

        let status = dns_status(a);
        assert_eq!(status["state"], "local", "{status}");
        assert_eq!(status["listen"], serde_json::json!(LISTEN));
        // The lab's hosts have a network of their own, and the machine's resolver must not be
        // configured for it.
        assert_eq!(
            status["why"],
            "answered on 127.0.0.1:5354, [::1]:5354; the system's resolver does not ask weft: systemd-resolved, if there is one, \
             belongs to another network namespace"
        );
        let text = String::from_utf8(a.command(&["status"]).unwrap().stdout).unwrap();
        assert!(
            text.contains(
                "\nnames: answered on 127.0.0.1:5354, [::1]:5354\n       the system's resolver does not ask weft"
            ),
            "{text}"
        );

        // No other node of the mesh gets an answer: the sockets are those of loopback.
        let from_mesh = b.host().run(|| {
            let server = SocketAddr::new(address(a), 5354);
            TcpStream::connect_timeout(&server, PATIENCE).map_err(|error| error.kind())
        });
        let refused = from_mesh.unwrap();
        assert_strict!(refused.is_err(), "another node reaches the resolver");
        assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused);
        pair.finish();
    });
}

/// Another program has the port: the node runs, and reports what is missing.
#[test]
fn a_port_in_use_costs_names_alone() {
    beside(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let id = identity(&world, "a");
        let other = host.run(|| TcpListener::bind(LISTEN[0]).unwrap()).unwrap();
        let mut node = Daemon::start(&host, Path::new(WEFT), &id, &NodeSpec::default()).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        let status = dns_status(&node);
        assert_eq!(
            (&status["state"], &status["listen"]),
            (&"local".into(), &serde_json::json!([LISTEN[1]]))
        );
        let why = status["why"].as_str().unwrap();
        assert!(why.starts_with("answered on [::1]:5354; "), "{why}");
        assert!(
            why.contains("; not answered on 127.0.0.1:5354: Address already in use"),
            "{why}"
        );
        drop(other);
        assert_eq!(node.stop().unwrap().code(), Some(0));
        let [warning] = &node.warnings().unwrap()[..] else {
            panic!("{:?}", node.warnings());
        };
        assert!(warning.contains("change dns.listen in the configuration"), "{warning}");
        assert!(warning.contains("127.0.0.1:5354"), "{warning}");
    });
}

#[test]
fn names_can_be_turned_off() {
    beside(|| {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let id = identity(&world, "a");
        let spec = NodeSpec {
            extra_toml: "\n[dns]\nenabled = false\n".to_owned(),
            ..NodeSpec::default()
        };
        let mut node = Daemon::start(&host, Path::new(WEFT), &id, &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        assert_eq!(dns_status(&node)["state"], "off");
        let kind = host.run(|| TcpStream::connect(LISTEN[0]).unwrap_err().kind()).unwrap();
        assert_eq!(kind, ErrorKind::ConnectionRefused);
        assert_eq!(node.stop().unwrap().code(), Some(0));
        assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
    });
}
