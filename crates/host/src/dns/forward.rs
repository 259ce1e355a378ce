//! Queries for names of others, passed on to the servers that the system had before.
//!
//! Every query has a socket of its own with a port that the kernel chooses, and a random id, so that
//! an attacker off the path has to guess both. A response counts only if it comes from the address
//! that was asked, with this id and this question. Nothing is cached. All of it is bounded:
//! [`MAX_IN_FLIGHT`], [`MAX_SAME`], [`MAX_OF_ONE`], [`MAX_UDP`] and [`LIMIT`].

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use weft_os::random::random_bytes;
use weft_os::udp::mark;

use super::message::{Query, Rcode};
use super::servers::SystemServers;

/// The most queries that wait for servers at once. Each holds at most three sockets.
pub const MAX_IN_FLIGHT: usize = 128;

/// The most queries for the same name and type among them: more of them mean that a server sends them
/// back here.
pub const MAX_SAME: usize = 16;

/// The most queries of one member among them, where others share an exit.
pub const MAX_OF_ONE: usize = 32;

/// The longest response over UDP that is passed on, in bytes. A longer one is passed on as a truncated
/// one, and the client asks again over TCP.
pub const MAX_UDP: usize = 4096;

/// How long a query may take: less than the 5 s after which the C library asks the next server.
pub const LIMIT: Duration = Duration::from_millis(4500);

/// How long a server has before another one is asked as well.
const STEP: Duration = Duration::from_millis(1500);

/// The number of times that servers are asked.
const TRIES: usize = 3;

const HEADER_LEN: usize = 12;
/// `TC` in the third byte: the response is truncated.
const TRUNCATED: u8 = 0x02;

/// The protocol by which the client asked, and by which servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// How long queries wait.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// For all servers together.
    limit: Duration,
    /// For one server, before another one is asked as well.
    step: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            limit: LIMIT,
            step: STEP,
        }
    }
}

/// The servers, and the queries that wait for them.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    servers: RwLock<Vec<SocketAddr>>,
    times: Times,
    /// Whether its sockets are marked as those between nodes.
    marked: bool,
    /// Where the servers are read from again; otherwise they are those that were set.
    system: Option<SystemServers>,
    waiting: Mutex<Waiting>,
    pub(super) counters: Counters,
}

/// The queries in flight.
#[derive(Debug, Default)]
struct Waiting {
    /// How many have each question.
    questions: BTreeMap<Vec<u8>, usize>,
    /// How many are of each member.
    sources: BTreeMap<IpAddr, usize>,
}

/// Results of queries since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    answered: AtomicU64,
    failed: AtomicU64,
    turned_away: AtomicU64,
}

impl Counters {
    pub(super) fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("dns_forwarded", &self.answered),
            ("dns_forward_failed", &self.failed),
            ("dns_forward_turned_away", &self.turned_away),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// A query that is in flight; it ends with this value.
#[derive(Debug)]
pub(super) struct Ticket {
    forwarder: Arc<Forwarder>,
    request: Vec<u8>,
    /// The question, in lower case.
    question: Vec<u8>,
    /// The member that asks.
    source: Option<IpAddr>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.forwarder.lock_waiting();
        one_less(&mut waiting.questions, &self.question);
        if let Some(source) = &self.source {
            one_less(&mut waiting.sources, source);
        }
    }
}

/// Counts one of these less.
fn one_less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

impl Forwarder {
    /// One that asks the servers which the system has at present, as programs of this host do.
    pub(super) fn of_system(servers: SystemServers, marked: bool) -> Self {
        Self {
            system: Some(servers),
            marked,
            ..Self::default()
        }
    }

    /// Takes over the servers of the system, if it is time to read them again.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn read_servers(&self) -> Result<(), String> {
        if let Some(system) = &self.system
            && let Some(servers) = system.read().await?
        {
            self.set_servers(servers);
        }
        Ok(())
    }

    /// Replaces the servers.
    pub(super) fn set_servers(&self, servers: Vec<SocketAddr>) {
        *self.servers.write().unwrap_or_else(PoisonError::into_inner) = servers;
    }

    /// Admits a request, which must be a query; `None` if there is no server or a bound is reached.
    pub(super) fn admit(self: &Arc<Self>, request: &[u8]) -> Option<Ticket> {
        self.admit_of(None, request)
    }

    /// The same for a member that shares this host with others.
    pub(super) fn admit_of(self: &Arc<Self>, source: Option<IpAddr>, request: &[u8]) -> Option<Ticket> {
        let question = Query::parse(request).ok()?.question().to_ascii_lowercase();
        let has_servers = self.system.is_some() || !self.servers().is_empty();
        let mut waiting = self.lock_waiting();
        let in_flight: usize = waiting.questions.values().sum();
        let same = waiting.questions.get(&question).copied().unwrap_or(0);
        let of_one = source.map_or(0, |source| waiting.sources.get(&source).copied().unwrap_or(0));
        if !has_servers || in_flight >= MAX_IN_FLIGHT || same >= MAX_SAME || of_one >= MAX_OF_ONE {
            self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        waiting.questions.insert(question.clone(), same + 1);
        if let Some(source) = source {
            waiting.sources.insert(source, of_one + 1);
        }
        Some(Ticket {
            forwarder: Arc::clone(self),
            request: request.to_vec(),
            question,
            source,
        })
    }

    /// The servers.
    pub(super) fn servers(&self) -> Vec<SocketAddr> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Asks the servers, and returns the response for the client: that of the first server that has
    /// one, or SERVFAIL.
    pub(super) async fn ask(self, transport: Transport) -> Vec<u8> {
        let counters = &self.forwarder.counters;
        // If the broker is busy, the servers are those of before.
        let read = timeout(STEP, self.forwarder.read_servers()).await;
        if let Ok(Err(why)) = read {
            tracing::debug!(why, "DNS: the servers of the system");
        }
        let answer = self.first_answer(transport).await;
        let (counter, mut response) = match answer {
            Some(response) => (&counters.answered, response),
            None => (&counters.failed, self.failure()),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let (Some(id), Some(asked)) = (response.first_chunk_mut::<2>(), self.request.first_chunk::<2>()) {
            *id = *asked;
        }
        response
    }

    fn failure(&self) -> Vec<u8> {
        let mut response = Vec::new();
        if let Ok(query) = Query::parse(&self.request) {
            query.emit_code(&mut response, Rcode::ServFail);
        }
        response
    }

    /// Asks one server after the other: the next one when a server fails, or has not answered for
    /// a [`step`](Times::step). Servers that were asked may still answer.
    async fn first_answer(&self, transport: Transport) -> Option<Vec<u8>> {
        let servers = self.forwarder.servers();
        let mut left: Vec<SocketAddr> = servers.iter().copied().cycle().take(TRIES).collect();
        left.reverse();
        let Times { limit, step } = self.forwarder.times;
        let end = Instant::now() + limit;
        let mut asked = JoinSet::new();
        // A response that says that this server has no answer, if no other one has.
        let mut failure = None;
        loop {
            let server = left.pop();
            if let Some(server) = server {
                let (request, question) = (self.request.clone(), self.question.clone());
                let marked = self.forwarder.marked;
                asked.spawn(async move {
                    let answer = exchange((transport, marked), server, request, &question).await;
                    (server, answer)
                });
            } else if asked.is_empty() {
                return failure;
            }
            let next = async {
                match server {
                    Some(_) => sleep(step).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Some(done) = asked.join_next() => {
                    let Ok((server, answer)) = done else { continue };
                    match answer {
                        Ok(answer) if !is_failure(&answer) => return Some(answer),
                        Ok(answer) => failure = failure.or(Some(answer)),
                        Err(error) => tracing::debug!(%server, %error, "DNS: a server"),
                    }
                    left.retain(|other| *other != server);
                }
                () = next => {}
                () = sleep_until(end) => return failure,
            }
        }
    }
}

/// Whether a server answers this query within a time. The socket is not marked: a query goes as those of
/// programs do, by an exit if there is one.
pub(super) async fn answers(server: SocketAddr, request: &[u8], limit: Duration) -> bool {
    let Ok(query) = Query::parse(request) else {
        return false;
    };
    let question = query.question().to_ascii_lowercase();
    let asked = exchange((Transport::Udp, false), server, request.to_vec(), &question);
    matches!(timeout(limit, asked).await, Ok(Ok(_)))
}

/// Asks one server once, from a socket that is `marked` or not.
async fn exchange(
    (transport, marked): (Transport, bool),
    server: SocketAddr,
    mut request: Vec<u8>,
    question: &[u8],
) -> io::Result<Vec<u8>> {
    let mut id = [0; 2];
    random_bytes(&mut id)?;
    if let Some(front) = request.first_chunk_mut() {
        *front = id;
    }
    match transport {
        Transport::Udp => exchange_udp((server, marked), &request, (id, question)).await,
        Transport::Tcp => exchange_tcp((server, marked), &request, (id, question)).await,
    }
}

async fn exchange_udp(
    (server, marked): (SocketAddr, bool),
    request: &[u8],
    expected: ([u8; 2], &[u8]),
) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    if marked {
        mark(&socket);
    }
    // The kernel then drops what other addresses send, and reports a closed port.
    socket.connect(server).await?;
    socket.send(request).await?;
    let mut response = vec![0; MAX_UDP + 1];
    loop {
        let len = socket.recv(&mut response).await?;
        let received = response.get(..len).unwrap_or_default();
        if is_answer(received, expected) {
            return Ok(if len > MAX_UDP {
                truncated(received, expected.1.len())
            } else {
                received.to_vec()
            });
        }
    }
}

async fn exchange_tcp(
    (server, marked): (SocketAddr, bool),
    request: &[u8],
    expected: ([u8; 2], &[u8]),
) -> io::Result<Vec<u8>> {
    let socket = match server {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if marked {
        mark(&socket);
    }
    let mut stream = socket.connect(server).await?;
    let mut framed = (request.len() as u16).to_be_bytes().to_vec();
    framed.extend(request);
    stream.write_all(&framed).await?;
    let mut response = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut response).await?;
    if is_answer(&response, expected) {
        Ok(response)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// True for a response with this id and this question, which is in lower case.
fn is_answer(response: &[u8], (id, question): ([u8; 2], &[u8])) -> bool {
    let Some((header, body)) = response.split_first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let &[i0, i1, flags, _, qd0, qd1, ..] = header;
    let echoed = body.get(..question.len());
    [i0, i1] == id
        && flags & 0x80 != 0
        && [qd0, qd1] == [0, 1]
        && echoed.is_some_and(|echoed| echoed.eq_ignore_ascii_case(question))
}

/// SERVFAIL, NOTIMP and REFUSED, after which the C library asks the next server.
fn is_failure(response: &[u8]) -> bool {
    response.get(3).is_some_and(|flags| matches!(flags & 0x0f, 2 | 4 | 5))
}

/// The header and the question, with the flag for a truncated response.
fn truncated(response: &[u8], question: usize) -> Vec<u8> {
    let mut short = response.get(..HEADER_LEN + question).unwrap_or_default().to_vec();
    if let Some(flags) = short.get_mut(2) {
        *flags |= TRUNCATED;
    }
    if let Some(counts) = short.get_mut(6..HEADER_LEN) {
        counts.fill(0);
    }
    short
}

#[cfg(test)]
mod tests;
