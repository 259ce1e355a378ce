//! Sockets that serve a [`Zone`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use weft_os::socket::bind_to_interface;

use super::forward::{Forwarder, Ticket, Transport};
use super::message::{MAX_RESPONSE, Query};
use super::zone::{Outcome, Zone};

/// The longest request that is read, in bytes. A question takes 271; EDNS options and signatures
/// take the rest.
pub const MAX_REQUEST: usize = 4096;

/// Maximum number of TCP connections that each address serves at once; a further one is closed.
pub const MAX_CONNECTIONS: usize = 32;

/// Maximum number of them that one member holds at an exit.
pub const MAX_CONNECTIONS_OF_ONE: usize = 8;

/// Time limit of a TCP connection from one request to the end of the next (RFC 7766, 6.2.3: a few
/// seconds).
const IDLE: Duration = Duration::from_secs(10);
/// Number of ports to try if the system chooses them.
const MAX_PORTS: usize = 16;
/// The pause after the system refuses to receive or accept, for instance because no memory or
/// descriptors are left.
const PAUSE: Duration = Duration::from_millis(200);

/// One address, bound for UDP and TCP, that is not served yet.
#[derive(Debug)]
pub struct Endpoint {
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
    address: SocketAddr,
}

impl Endpoint {
    /// Binds `address` for both. Port 0 selects a port that is free for both.
    ///
    /// # Errors
    /// The error of the system: the address is in use, not available, or not permitted.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        // The system chooses a port that is free for UDP; it may be in use for TCP, so further
        // ports are tried.
        let tries = if address.port() == 0 { MAX_PORTS } else { 1 };
        let taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        let mut bound = Self::bind_once(address);
        for _ in 1..tries {
            if !bound.as_ref().is_err_and(taken) {
                break;
            }
            bound = Self::bind_once(address);
        }
        bound
    }

    fn bind_once(address: SocketAddr) -> io::Result<Self> {
        let udp = std::net::UdpSocket::bind(address)?;
        let address = udp.local_addr()?;
        let tcp = std::net::TcpListener::bind(address)?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        Ok(Self { udp, tcp, address })
    }

    /// Receives and sends by one interface alone: hosts that reach the address by another one get no answer.
    ///
    /// # Errors
    /// As [`bind_to_interface`].
    pub(super) fn only_by(self, interface: &str) -> io::Result<Self> {
        bind_to_interface(&self.udp, interface)?;
        bind_to_interface(&self.tcp, interface)?;
        Ok(self)
    }

    /// The address, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves it to `clients` on the current runtime, as a part of `tasks`.
    pub(super) fn serve(self, tasks: &mut JoinSet<()>, shared: &Arc<Shared>, clients: Clients) -> io::Result<()> {
        let udp = UdpSocket::from_std(self.udp)?;
        let tcp = TcpListener::from_std(self.tcp)?;
        tasks.spawn(serve_udp(Arc::new(udp), Arc::clone(shared), clients.clone()));
        tasks.spawn(serve_tcp(tcp, Arc::clone(shared), clients));
        Ok(())
    }
}

/// Those that get answers, and to which questions.
#[derive(Clone, Debug)]
pub(super) enum Clients {
    /// All, about the names of the zone.
    All,
    /// One address, about the names of the zone.
    Only(IpAddr),
    /// This host, about all names: those of others are passed on.
    Host(Arc<Forwarder>),
    /// Members that use this host as exit, about all names. Who they are is decided before: the socket
    /// receives by the interface of weft alone, and the rules let no others through.
    Members(Arc<Forwarder>),
}

impl Clients {
    /// True if this address gets no answer.
    fn is_stranger(&self, from: SocketAddr) -> bool {
        match self {
            Self::All | Self::Members(_) => false,
            Self::Only(only) => from.ip() != *only,
            Self::Host(_) => !from.ip().is_loopback(),
        }
    }

    /// The query to pass on in place of the response, if there is one.
    fn forward(&self, outcome: Outcome, from: SocketAddr, request: &[u8]) -> Option<Ticket> {
        match (self, outcome) {
            (Self::Host(forwarder), Outcome::Foreign) => forwarder.admit(request),
            (Self::Members(forwarder), Outcome::Foreign) => forwarder.admit_of(Some(from.ip()), request),
            _ => None,
        }
    }

    /// How many connections one of them may hold.
    const fn connections_of_one(&self) -> usize {
        match self {
            Self::Members(_) => MAX_CONNECTIONS_OF_ONE,
            _ => MAX_CONNECTIONS,
        }
    }
}

/// The state that all sockets share.
#[derive(Debug)]
pub(super) struct Shared {
    zone: RwLock<Zone>,
    /// Time limit of a TCP connection from one request to the end of the next.
    idle: Duration,
    pub(super) counters: Counters,
    /// The first label of a query that a probe waits for, and whether it came.
    expected: Mutex<Option<(String, bool)>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(Zone::default())
    }
}

impl Shared {
    pub(super) fn new(zone: Zone) -> Self {
        Self {
            zone: RwLock::new(zone),
            idle: IDLE,
            counters: Counters::default(),
            expected: Mutex::default(),
        }
    }

    /// Waits for a query with this first label. Returns whether the one before came.
    pub(super) fn expect(&self, label: Option<String>) -> bool {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *expected, label.map(|label| (label, false)));
        before.is_some_and(|(_, came)| came)
    }

    /// Notes that a query came.
    fn note(&self, request: &[u8]) {
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((label, came)) = &mut *expected {
            let first = Query::parse(request)
                .ok()
                .map(|query| query.question().to_ascii_lowercase());
            let first = first.as_deref().and_then(<[u8]>::split_first);
            *came |= first.is_some_and(|(_, name)| name.starts_with(label.as_bytes()));
        }
    }

    /// Replaces the names.
    pub(super) fn set_zone(&self, zone: Zone) {
        *self.zone.write().unwrap_or_else(PoisonError::into_inner) = zone;
    }

    /// Returns the query to pass on, or writes the response to `request`, which is counted then.
    fn respond(
        &self,
        (clients, from): (&Clients, SocketAddr),
        request: &[u8],
        response: &mut Vec<u8>,
    ) -> Option<Ticket> {
        let zone = self.zone.read().unwrap_or_else(PoisonError::into_inner);
        self.note(request);
        let outcome = zone.respond(request, response);
        if let Some(ticket) = clients.forward(outcome, from, request) {
            return Some(ticket);
        }
        let counter = match outcome {
            Outcome::Answered => &self.counters.answered,
            Outcome::NoSuchName => &self.counters.no_such_name,
            Outcome::Foreign | Outcome::Refused => &self.counters.refused,
            Outcome::Malformed => &self.counters.malformed,
            Outcome::Ignored => &self.counters.ignored,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// Results of requests since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    answered: AtomicU64,
    no_such_name: AtomicU64,
    refused: AtomicU64,
    malformed: AtomicU64,
    ignored: AtomicU64,
    strangers: AtomicU64,
    turned_away: AtomicU64,
}

impl Counters {
    pub(super) fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("dns_answered", &self.answered),
            ("dns_no_such_name", &self.no_such_name),
            ("dns_refused", &self.refused),
            ("dns_malformed", &self.malformed),
            ("dns_ignored", &self.ignored),
            ("dns_strangers", &self.strangers),
            ("dns_turned_away", &self.turned_away),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

async fn serve_udp(socket: Arc<UdpSocket>, shared: Arc<Shared>, clients: Clients) {
    let mut request = vec![0; MAX_REQUEST];
    let mut response = Vec::with_capacity(MAX_RESPONSE);
    let mut forwarded = JoinSet::new();
    loop {
        while forwarded.try_join_next().is_some() {}
        match socket.recv_from(&mut request).await {
            Ok((_, from)) if clients.is_stranger(from) => {
                shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
            }
            Ok((len, from)) => {
                // If the buffer is full, a response is lost as in a network; the client repeats its
                // request.
                let request = request.get(..len).unwrap_or_default();
                if let Some(ticket) = shared.respond((&clients, from), request, &mut response) {
                    let socket = Arc::clone(&socket);
                    forwarded.spawn(async move {
                        let response = ticket.ask(Transport::Udp).await;
                        let _ = socket.try_send_to(&response, from);
                    });
                } else if !response.is_empty() {
                    let _ = socket.try_send_to(&response, from);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "DNS: receive");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>, clients: Clients) {
    let mut connections = JoinSet::new();
    // Who holds each.
    let mut holders: Vec<IpAddr> = Vec::new();
    let end = |holders: &mut Vec<IpAddr>, ended: Result<IpAddr, JoinError>| {
        let at = ended
            .ok()
            .and_then(|ip| holders.iter().position(|holder| *holder == ip));
        at.map(|at| holders.swap_remove(at));
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                end(&mut holders, ended);
                continue;
            }
        };
        while let Some(ended) = connections.try_join_next() {
            end(&mut holders, ended);
        }
        let held = |from: SocketAddr| holders.iter().filter(|holder| **holder == from.ip()).count();
        match accepted {
            Ok((_, from)) if clients.is_stranger(from) => {
                shared.counters.strangers.fetch_add(1, Ordering::Relaxed);
            }
            Ok((_, from)) if connections.len() >= MAX_CONNECTIONS || held(from) >= clients.connections_of_one() => {
                shared.counters.turned_away.fetch_add(1, Ordering::Relaxed);
            }
            Ok((mut stream, from)) => {
                let (shared, clients) = (Arc::clone(&shared), clients.clone());
                holders.push(from.ip());
                connections.spawn(async move {
                    while exchange(&mut stream, &shared, (&clients, from)).await.is_ok() {}
                    from.ip()
                });
            }
            Err(error) => {
                tracing::debug!(%error, "DNS: accept");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Reads one request and writes its response, each behind its length (RFC 1035, 4.2.2). An error
/// ends the connection.
async fn exchange(stream: &mut TcpStream, shared: &Shared, client: (&Clients, SocketAddr)) -> io::Result<()> {
    let exchange = async {
        let len = usize::from(stream.read_u16().await?);
        if len > MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut request = vec![0; len];
        stream.read_exact(&mut request).await?;
        let mut response = Vec::with_capacity(MAX_RESPONSE);
        if let Some(ticket) = shared.respond(client, &request, &mut response) {
            response = ticket.ask(Transport::Tcp).await;
        }
        if response.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut framed = (response.len() as u16).to_be_bytes().to_vec();
        framed.append(&mut response);
        stream.write_all(&framed).await
    };
    timeout(shared.idle, exchange).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test);
    }

    /// An endpoint on loopback, and its address.
    fn endpoint() -> (Endpoint, SocketAddr) {
        let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = endpoint.address();
        (endpoint, address)
    }

    #[test]
    fn a_silent_connection_ends() {
        run(async {
            let shared = Arc::new(Shared {
                idle: Duration::from_millis(50),
                ..Shared::default()
            });
            let (endpoint, server) = endpoint();
            let mut tasks = JoinSet::new();
            endpoint.serve(&mut tasks, &shared, Clients::All).unwrap();
            let mut silent = TcpStream::connect(server).await.unwrap();
            silent.write_all(&[0]).await.unwrap();
            let mut byte = [0];
            let read = timeout(Duration::from_secs(60), silent.read(&mut byte));
            let read = read.await.expect("the connection is open after a minute");
            // A connection that is closed with unread bytes is reset.
            assert!(!matches!(read, Ok(1)), "{read:?}");
        });
    }

    /// The socket that the mesh reaches: clients with other addresses get no answer, on either
    /// transport.
    #[test]
    fn strangers_are_not_answered() {
        run(async {
            let shared = Arc::new(Shared::default());
            let (endpoint, server) = endpoint();
            let mut tasks = JoinSet::new();
            let friend: IpAddr = "127.0.0.2".parse().unwrap();
            endpoint.serve(&mut tasks, &shared, Clients::Only(friend)).unwrap();
            // Any request that is answered: a header without a question.
            let request = [0; 12];
            let stranger = UdpSocket::bind("127.0.0.3:0").await.unwrap();
            let known = UdpSocket::bind(SocketAddr::new(friend, 0)).await.unwrap();
            stranger.send_to(&request, server).await.unwrap();
            known.send_to(&request, server).await.unwrap();
            let mut response = [0; 512];
            assert_eq!(known.recv_from(&mut response).await.unwrap(), (12, server));
            // The socket serves in order, so the stranger's request was already handled.
            assert!(stranger.try_recv_from(&mut response).is_err());
            let mut tcp = TcpStream::connect(server).await.unwrap();
            assert_eq!(tcp.read(&mut response).await.unwrap(), 0);
            let strangers = shared.counters.strangers.load(Ordering::Relaxed);
            assert_eq!((strangers, shared.counters.malformed.load(Ordering::Relaxed)), (2, 1));
        });
    }

    /// A member that holds connections to an exit takes them from no other one.
    #[test]
    fn one_member_holds_a_few_connections() {
        run(async {
            let shared = Arc::new(Shared::default());
            let (endpoint, server) = endpoint();
            let mut tasks = JoinSet::new();
            endpoint
                .serve(&mut tasks, &shared, Clients::Members(Arc::default()))
                .unwrap();
            // Whether a request is answered; the connection stays open.
            let ask = async |from: &str| {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
                let mut stream = socket.connect(server).await.unwrap();
                let _ = stream.write_all(&[&[0, 12][..], &[0; 12]].concat()).await;
                let answered = stream.read_u16().await.is_ok();
                (answered, stream)
            };
            let mut held = Vec::new();
            for _ in 0..MAX_CONNECTIONS_OF_ONE {
                held.push(ask("127.0.0.2").await);
            }
            assert!(held.iter().all(|(answered, _)| *answered));
            assert!(!ask("127.0.0.2").await.0);
            assert!(ask("127.0.0.3").await.0);
            held.pop();
            while !ask("127.0.0.2").await.0 {}
        });
    }
}
