use super::*;

/// A query for `www.example` with type A, and the id 0x1234.
const REQUEST: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07eXample\0\0\x01\0\x01";

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(work)
}

async fn server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// An address at which nothing listens.
async fn closed() -> SocketAddr {
    server().await.1
}

fn forwarder(servers: &[SocketAddr]) -> Arc<Forwarder> {
    let forwarder = Arc::new(Forwarder::default());
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
        assert!(forwarder.lock_waiting().is_empty());
    });
}

#[test]
fn a_server_that_fails_is_followed_by_the_next() {
    run(async {
        let (failing, first) = server().await;
        let (good, last) = server().await;
        let begun = Instant::now();
        let ticket = forwarder(&[closed().await, first, last]).admit(REQUEST).unwrap();
        let asked = tokio::spawn(ticket.ask(Transport::Udp));
        let (query, from) = receive(&failing).await;
        failing.send_to(&response(&query, 2), from).await.unwrap();
        let (query, from) = receive(&good).await;
        good.send_to(&response(&query, 0), from).await.unwrap();
        assert_eq!(asked.await.unwrap()[3], 0);
        assert!(begun.elapsed() < STEP, "{:?}", begun.elapsed());
    });
}

#[test]
fn without_an_answer_the_client_gets_a_failure_in_time() {
    run(async {
        let (silent, address) = server().await;
        let servers = forwarder(&[address]);
        let begun = Instant::now();
        let answer = servers.admit(REQUEST).unwrap().ask(Transport::Udp).await;
        assert_eq!((answer[3] & 0x0f, &answer[..2]), (2, &REQUEST[..2]));
        assert!((LIMIT..LIMIT * 2).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        for _ in 0..TRIES {
            receive(&silent).await;
        }
        // All ports are closed: at once.
        for transport in [Transport::Udp, Transport::Tcp] {
            let begun = Instant::now();
            let answer = forwarder(&[closed().await])
                .admit(REQUEST)
                .unwrap()
                .ask(transport)
                .await;
            assert_eq!(answer[3] & 0x0f, 2);
            assert!(begun.elapsed() < STEP, "{:?}", begun.elapsed());
        }
    });
}

#[test]
fn queries_in_flight_are_bounded() {
    run(async {
        let servers = forwarder(&[closed().await]);
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
        assert!(servers.lock_waiting().is_empty() && servers.admit(REQUEST).is_some());
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
