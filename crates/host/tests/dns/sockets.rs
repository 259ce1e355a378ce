//! The responder's sockets, on loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use simple_dns::{Packet, TYPE};
use weft_host::dns::DnsState;
use weft_host::dns::{Endpoint, MAX_CONNECTIONS, MAX_REQUEST, RegisterError, Responder, Setup};
use weft_os::test_support::{uninterrupted, wait_until};

use super::{key, query, zone};

/// A time limit above that of any answer.
const PATIENCE: Duration = Duration::from_secs(60);

fn responder(endpoints: Vec<Endpoint>, failed: Vec<String>) -> Responder {
    Responder::start(Setup {
        zone: zone(),
        endpoints,
        failed,
        me: key(3),
        interface: 1,
        system: Err(RegisterError::TurnedOff),
    })
    .unwrap()
}

/// A responder at a free port of loopback, and its address.
fn serving() -> (Responder, SocketAddr) {
    serving_at("127.0.0.1")
}

fn serving_at(ip: &str) -> (Responder, SocketAddr) {
    let endpoint = Endpoint::bind(format!("{ip}:0").parse().unwrap()).unwrap();
    let address = endpoint.address();
    (responder(vec![endpoint], Vec::new()), address)
}

/// About one of a hundred ports that the system chooses for UDP is not free for TCP.
#[test]
fn a_free_port_is_free_for_both() {
    let bind = |_| TcpListener::bind("127.0.0.1:0").unwrap();
    let _taken: Vec<TcpListener> = (0..300).map(bind).collect();
    for _ in 0..1_000 {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_ne!(endpoint.address().port(), 0);
    }
}

fn counter(responder: &Responder, name: &str) -> u64 {
    let mut counters = responder.counters();
    counters.find(|(known, _)| *known == name).unwrap().1
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap();
    [&len.to_be_bytes(), message].concat()
}

fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut message).unwrap();
    message
}

/// True if the responder has closed without another byte.
fn is_closed(stream: &mut TcpStream) -> bool {
    // A connection that is closed with unread bytes is reset.
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn both_transports_say_the_same() {
    let (responder, address) = serving();
    let request = query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    udp.send_to(&request, address).unwrap();
    let mut by_udp = [0; 600];
    let (len, from) = uninterrupted(|| udp.recv_from(&mut by_udp)).unwrap();
    assert_eq!(from, address);
    let mut tcp = connect(address);
    // Two requests, in pieces that do not match their bounds.
    let both = [framed(&request), framed(&request)].concat();
    tcp.write_all(&both[..3]).unwrap();
    tcp.write_all(&both[3..]).unwrap();
    for _ in 0..2 {
        assert_eq!(receive(&mut tcp), by_udp[..len]);
    }
    assert_eq!(Packet::parse(&by_udp[..len]).unwrap().answers.len(), 1);
    assert_eq!(counter(&responder, "dns_answered"), 3);
    let status = responder.status();
    assert_eq!((status.state, &status.listen[..]), (DnsState::Local, &[address][..]));
    assert_eq!(
        status.why,
        format!("answered on {address}; the system's resolver does not ask weft: dns.register is false")
    );
}

/// Malformed bytes only increase a counter. Requests between them are answered.
#[test]
fn a_flood_of_rubbish_stops_nothing() {
    let (responder, address) = serving();
    let request = query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap();
    let rubbish = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    for round in 0..200_u32 {
        for i in 0..100_u32 {
            let byte = (round * 100 + i) as u8;
            // A response, which gets no answer, or bytes that are too short for a header.
            let datagram = [byte, 0, 0x80, byte, byte, byte, byte, byte, byte, byte, byte, byte];
            rubbish.send_to(&datagram[..(i % 13) as usize], address).unwrap();
        }
    }
    // The flood may have filled the socket's buffer, in which case requests are lost as in any
    // network.
    let mut buffer = [0; 600];
    wait_until(PATIENCE, "a request among the rubbish is answered", || {
        udp.send_to(&request, address).unwrap();
        udp.recv_from(&mut buffer).is_ok()
    });
    assert!(counter(&responder, "dns_ignored") > 0);
    rubbish.set_nonblocking(true).unwrap();
    assert!(rubbish.recv_from(&mut buffer).is_err(), "rubbish was answered");
}

#[test]
fn connections_that_break_a_rule_are_closed() {
    let (_responder, address) = serving();
    let too_long = u16::try_from(MAX_REQUEST + 1).unwrap().to_be_bytes().to_vec();
    for bytes in [too_long, framed(&[]), framed(&[0; 11]), framed(&[0xff; 12])] {
        let mut tcp = connect(address);
        tcp.write_all(&bytes).unwrap();
        assert!(is_closed(&mut tcp), "{bytes:?}");
    }
    // A malformed request gets an error response, and the connection stays open.
    let mut tcp = connect(address);
    let request = query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap();
    tcp.write_all(&framed(&request[..20])).unwrap();
    assert_eq!(receive(&mut tcp).len(), 12);
    tcp.write_all(&framed(&request)).unwrap();
    assert!(receive(&mut tcp).len() > 12);
}

#[test]
fn connections_are_bounded() {
    let (responder, address) = serving();
    let request = framed(&query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap());
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut tcp = connect(address);
        tcp.write_all(&request).unwrap();
        receive(&mut tcp);
        held.push(tcp);
    }
    let mut refused = connect(address);
    assert!(is_closed(&mut refused));
    assert_eq!(counter(&responder, "dns_turned_away"), 1);
    // A connection that closes makes room for another.
    drop(held.pop());
    wait_until(PATIENCE, "the place of a closed connection is free", || {
        let mut tcp = connect(address);
        let written = tcp.write_all(&request).is_ok();
        let mut byte = [0];
        written && matches!(tcp.read(&mut byte), Ok(1))
    });
}

/// The responder ends at once, even with clients connected.
#[test]
fn connections_end_with_the_responder() {
    // At an address of its own, no other test takes the port once it is free.
    let (responder, address) = serving_at("127.0.0.3");
    let mut held = connect(address);
    let request = framed(&query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap());
    held.write_all(&request).unwrap();
    receive(&mut held);
    drop(responder);
    assert!(is_closed(&mut held));
    // A process that another test forks has its sockets until it runs its program.
    wait_until(PATIENCE, "a refusal", || TcpStream::connect(address).is_err());
    wait_until(PATIENCE, "a free address", || Endpoint::bind(address).is_ok());
}

#[test]
fn an_address_in_use_is_an_error_of_its_own() {
    let taken = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = Endpoint::bind(taken.address()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let responder = responder(Vec::new(), vec!["not answered on [::1]:5354: in use".to_owned()]);
    let status = responder.status();
    assert_eq!((status.state, status.listen.len()), (DnsState::Failed, 0));
    assert_eq!(status.why, "not answered on [::1]:5354: in use");
}
