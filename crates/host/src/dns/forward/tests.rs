use tokio::time::timeout;

use super::*;

/// More than any test takes.
const NEVER: Duration = Duration::from_secs(3600);
/// A query for `www.example` with type A, and the id 0x1234.
const REQUEST: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07eXample\0\0\x01\0\x01";

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let minute = Duration::from_secs(60);
        timeout(minute, work).await.expect("no end within a minute")
    })
}

async fn server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// An address that is closed to UDP as long as the socket exists: it keeps the port from others, and
/// takes datagrams from itself only.
async fn closed() -> (UdpSocket, SocketAddr) {
    let (socket, address) = server().await;
    socket.connect(address).await.unwrap();
    (socket, address)
}

/// The same over TCP: the socket does not listen.
fn closed_tcp() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Without a limit, and without a step: only a failure leads to the next server.
fn forwarder(servers: &[SocketAddr]) -> Arc<Forwarder> {
    let times = Times {
        limit: NEVER,
        step: NEVER,
    };
    waiting(servers, times)
}

fn waiting(servers: &[SocketAddr], times: Times) -> Arc<Forwarder> {
    let forwarder = Arc::new(Forwarder {
        times,
        ..Forwarder::default()
    });
    forwarder.set_servers(servers.to_vec());
    forwarder
}

/// Receives a query, and returns it with the address of its sender.
async fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 600];
    let (len, from) = socket.recv_from(&mut bytes).await.unwrap();
    bytes.truncate(len);
    (bytes, from)
}

/// The response to `query` with this code.
fn response(query: &[u8], rcode: u8) -> Vec<u8> {
    let mut response = query.to_vec();
    response[2] |= 0x80;
    response[3] = rcode;
    response
}

#[test]
fn only_the_matching_response_counts() {
    run(async {
        let (socket, address) = server().await;
        let ticket = forwarder(&[address]).admit(REQUEST).unwrap();
        let asked = tokio::spawn(ticket.ask(Transport::Udp));
        let (query, from) = receive(&socket).await;
        assert_eq!(query[2..], REQUEST[2..]);
        let good = response(&query, 0);
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] ^= byte;
            bytes
        };
        // Another id, no response, another name, no question, cut short; and another server.
        for bad in [
            changed(0, 1),
            changed(1, 0x80),
            changed(2, 0x80),
            changed(13, 1),
            changed(5, 1),
        ] {
            socket.send_to(&bad, from).await.unwrap();
        }
        socket.send_to(&good[..good.len() - 1], from).await.unwrap();
        let (other, _) = server().await;
        other.send_to(&good, from).await.unwrap();
        // The case of letters may differ.
        let mut last = good.clone();
        last[17] ^= 0x20;
        last[3] = 3;
        socket.send_to(&last, from).await.unwrap();
        let answer = asked.await.unwrap();
        assert_eq!((&answer[..2], answer[3]), (&REQUEST[..2], 3));
        assert_eq!(answer[2..], last[2..]);
    });
}

#[test]
fn ids_and_ports_differ() {
    run(async {
        let (socket, address) = server().await;
        let forwarder = forwarder(&[address]);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..8 {
            let asked = tokio::spawn(forwarder.admit(REQUEST).unwrap().ask(Transport::Udp));
            let (query, from) = receive(&socket).await;
            seen.insert((query[..2].to_vec(), from.port()));
            socket.send_to(&response(&query, 0), from).await.unwrap();
            asked.await.unwrap();
        }
        let ids: std::collections::BTreeSet<_> = seen.iter().map(|(id, _)| id).collect();
        let ports: std::collections::BTreeSet<_> = seen.iter().map(|(_, port)| port).collect();
        assert!(ids.len() > 4 && ports.len() > 4, "{seen:?}");
        assert!(forwarder.lock_waiting().questions.is_empty());
    });
}

#[test]
fn a_server_that_fails_is_followed_by_the_next() {
    run(async {
        let (failing, first) = server().await;
        let (good, last) = server().await;
        let (_held, closed) = closed().await;
        let ticket = forwarder(&[closed, first, last]).admit(REQUEST).unwrap();
        let asked = tokio::spawn(ticket.ask(Transport::Udp));
        let (query, from) = receive(&failing).await;
        failing.send_to(&response(&query, 2), from).await.unwrap();
        let (query, from) = receive(&good).await;
        good.send_to(&response(&query, 0), from).await.unwrap();
        assert_eq!(asked.await.unwrap()[3], 0);
    });
}

#[test]
fn without_an_answer_the_client_gets_a_failure_in_time() {
    run(async {
        let (_silent, address) = server().await;
        let limit = Duration::from_millis(100);
        let begun = Instant::now();
        let ticket = waiting(&[address], Times { limit, step: NEVER })
            .admit(REQUEST)
            .unwrap();
        let answer = ticket.ask(Transport::Udp).await;
        assert_eq!((answer[3] & 0x0f, &answer[..2]), (2, &REQUEST[..2]));
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
        // All ports are closed: at once.
        let ((_udp, udp), (_tcp, tcp)) = (closed().await, closed_tcp());
        for (transport, address) in [(Transport::Udp, udp), (Transport::Tcp, tcp)] {
            let ticket = forwarder(&[address]).admit(REQUEST).unwrap();
            assert_eq!(ticket.ask(transport).await[3] & 0x0f, 2);
        }
    });
}

#[test]
fn a_silent_server_is_asked_as_often_as_the_limit_permits() {
    let Times { limit, step } = Times::default();
    assert!(step * (TRIES as u32 - 1) < limit);
    run(async {
        let (silent, address) = server().await;
        let step = Duration::from_millis(1);
        let ticket = waiting(&[address], Times { limit: NEVER, step })
            .admit(REQUEST)
            .unwrap();
        let asked = tokio::spawn(ticket.ask(Transport::Udp));
        for _ in 0..TRIES {
            receive(&silent).await;
        }
        assert!(!asked.is_finished());
    });
}

#[test]
fn queries_in_flight_are_bounded() {
    run(async {
        // It is not asked.
        let servers = forwarder(&["127.0.0.1:53".parse().unwrap()]);
        let same: Vec<_> = (0..MAX_SAME).map(|_| servers.admit(REQUEST).unwrap()).collect();
        assert!(servers.admit(&REQUEST.to_ascii_lowercase()).is_none());
        let name = |i: u8| {
            let mut request = REQUEST.to_vec();
            request[13..16].copy_from_slice(format!("{i:03}").as_bytes());
            request
        };
        let others: Vec<_> = (0..200).filter_map(|i| servers.admit(&name(i))).collect();
        assert_eq!(same.len() + others.len(), MAX_IN_FLIGHT);
        assert_eq!(servers.counters.named()[2].1, 1 + 200 - others.len() as u64);
        drop((same, others));
        assert!(servers.lock_waiting().questions.is_empty() && servers.admit(REQUEST).is_some());
        assert!(forwarder(&[]).admit(REQUEST).is_none());
        assert!(servers.admit(&REQUEST[..20]).is_none());
    });
}

#[test]
fn a_response_that_is_too_long_is_truncated() {
    run(async {
        let (socket, address) = server().await;
        for (len, truncated) in [(MAX_UDP, false), (MAX_UDP + 1, true), (60_000, true)] {
            let asked = tokio::spawn(forwarder(&[address]).admit(REQUEST).unwrap().ask(Transport::Udp));
            let (query, from) = receive(&socket).await;
            let mut long = response(&query, 0);
            long[7] = 9;
            long.resize(len, 0);
            socket.send_to(&long, from).await.unwrap();
            let answer = asked.await.unwrap();
            assert_eq!(answer[2] & TRUNCATED != 0, truncated);
            if truncated {
                assert_eq!((answer.len(), answer[7]), (REQUEST.len(), 0));
            } else {
                assert_eq!((answer.len(), answer[7]), (len, 9));
            }
        }
    });
}

#[test]
fn one_member_fills_no_more_than_its_share() {
    run(async {
        let (_socket, address) = server().await;
        let forwarder = forwarder(&[address]);
        let request = |n: usize| {
            let mut request = REQUEST.to_vec();
            request[13..16].copy_from_slice(format!("{n:03}").as_bytes());
            request
        };
        let [one, other]: [Option<IpAddr>; 2] = ["10.44.0.2", "10.44.0.3"].map(|ip| ip.parse().ok());
        let mut tickets: Vec<Ticket> = (0..MAX_OF_ONE)
            .map(|n| forwarder.admit_of(one, &request(n)).unwrap())
            .collect();
        assert!(forwarder.admit_of(one, &request(99)).is_none());
        assert!(forwarder.admit_of(other, &request(99)).is_some());
        tickets.pop();
        assert!(forwarder.admit_of(one, &request(99)).is_some());
        drop(tickets);
        assert!(forwarder.lock_waiting().sources.is_empty());
    });
}
