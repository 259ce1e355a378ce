//! Connections to relays of Nostr: WebSockets (RFC 6455) over TLS, each in a task of its own. What is
//! said there is `weft_nostr`'s.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use thiserror::Error;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use weft_config::host_name::PeerAddress;
use weft_config::relay::RelayUrl;
use weft_nostr::json;
use weft_os::udp::mark;

use weft_host::dns::Lookups;

mod tls;

pub use tls::{Tls, TlsError};

/// How long the name servers, the TCP handshake with one address, and TLS with the request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a relay is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// A relay that sends nothing for so long is gone.
const SILENT: Duration = Duration::from_secs(75);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Bytes that are read at once, and bytes a second from then on. What a relay sends beyond that waits
/// in the buffers of TCP, and so at the relay.
const READ: (usize, usize) = (1 << 20, 128 << 10);
/// Texts in each direction that wait. A relay that reads none for so long is given up.
const QUEUE: usize = 64;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What happens at a relay.
#[derive(Debug)]
pub enum RelayEvent {
    /// It is connected.
    Open,
    /// It has sent a text.
    Text(String),
    /// It has answered a ping after this time.
    RoundTrip(Duration),
    /// The connection has ended or was not made.
    Closed(RelayError),
}

/// The reason why a relay is not connected.
#[derive(Debug, Error)]
pub enum RelayError {
    /// The name has no address.
    #[error("its name has no address")]
    NoAddress,
    /// TCP.
    #[error("{0}")]
    Connect(io::Error),
    /// One of the steps took too long.
    #[error("it does not answer")]
    Late,
    /// TLS or the WebSocket.
    #[error("{0}")]
    WebSocket(Box<WebSocketError>),
    /// No trust in any certificate.
    #[error("{0}")]
    Tls(TlsError),
    /// It has closed the connection.
    #[error("it has closed the connection")]
    Ended,
    /// It has sent nothing for too long.
    #[error("it is silent")]
    Silent,
}

impl From<WebSocketError> for RelayError {
    fn from(error: WebSocketError) -> Self {
        Self::WebSocket(Box::new(error))
    }
}

/// A connection. It ends when this is dropped.
#[derive(Debug)]
pub struct Relay {
    sender: mpsc::Sender<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Connects to a relay. Its events go to `events` with `number`; the last one is
    /// [`RelayEvent::Closed`].
    #[must_use]
    pub fn connect(
        number: usize,
        url: RelayUrl,
        tls: Arc<Tls>,
        lookups: Lookups,
        events: mpsc::Sender<(usize, RelayEvent)>,
    ) -> Self {
        let (sender, texts) = mpsc::channel(QUEUE);
        let task = tokio::spawn(async move {
            let error = match open(&url, &tls, &lookups).await {
                Ok(socket) => serve(socket, number, texts, &events).await,
                Err(error) => error,
            };
            // Without a receiver the daemon has ended.
            let _ = events.send((number, RelayEvent::Closed(error))).await;
        });
        Self { sender, task }
    }

    /// Sends a text. Returns whether there was room; if not, the relay reads too slowly.
    #[must_use]
    pub fn send(&self, text: String) -> bool {
        self.sender.try_send(text).is_ok()
    }
}

async fn open(url: &RelayUrl, tls: &Tls, lookups: &Lookups) -> Result<Socket, RelayError> {
    let connector = match url.is_secure() {
        true => Connector::Rustls(tls.config().map_err(RelayError::Tls)?),
        false => Connector::Plain,
    };
    let stream = dial(&addresses(url, lookups).await?).await?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(json::MESSAGE.bytes))
        .max_frame_size(Some(json::MESSAGE.bytes))
        .read_buffer_size(16 << 10)
        .max_write_buffer_size(4 * json::MESSAGE.bytes);
    let upgrade = client_async_tls_with_config(url.as_str(), stream, Some(limits), Some(connector));
    let (socket, _) = timeout(PATIENCE, upgrade).await.map_err(|_| RelayError::Late)??;
    Ok(socket)
}

async fn addresses(url: &RelayUrl, lookups: &Lookups) -> Result<Vec<SocketAddr>, RelayError> {
    let (name, port) = match url.address() {
        PeerAddress::At(at) => return Ok(vec![*at]),
        PeerAddress::Named { host, port } => (host, *port),
    };
    let answers = timeout(PATIENCE, lookups.ask(name))
        .await
        .map_err(|_| RelayError::Late)?;
    let found = answers.into_iter().flatten().flat_map(|answer| answer.addresses);
    Ok(found.map(|ip| SocketAddr::new(ip, port)).take(MAX_ADDRESSES).collect())
}

/// Connects to the first address that answers. The socket is marked as those between nodes: an exit
/// does not need the relay to find the exit.
async fn dial(addresses: &[SocketAddr]) -> Result<TcpStream, RelayError> {
    let mut last = RelayError::NoAddress;
    for at in addresses {
        let socket = match at {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.map_err(RelayError::Connect)?;
        mark(&socket);
        match timeout(PATIENCE, socket.connect(*at)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = RelayError::Connect(error),
            Err(_) => last = RelayError::Late,
        }
    }
    Err(last)
}

/// Passes texts on in both directions until the connection ends.
async fn serve(
    mut socket: Socket,
    number: usize,
    mut texts: mpsc::Receiver<String>,
    events: &mpsc::Sender<(usize, RelayEvent)>,
) -> RelayError {
    let (mut pings, mut heard, mut pace) = (interval(PING), Instant::now(), Pace::new());
    let mut pinger = Pinger::default();
    if events.send((number, RelayEvent::Open)).await.is_err() {
        return RelayError::Ended;
    }
    loop {
        tokio::select! {
            text = texts.recv() => {
                let Some(text) = text else { return RelayError::Ended };
                // A relay that does not read ends the connection by its silence.
                match timeout(SILENT, socket.send(Message::text(text))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error.into(),
                    Err(_) => return RelayError::Silent,
                }
            }
            message = async { sleep_until(pace.next).await; socket.next().await } => {
                let message = match message {
                    Some(Ok(message)) => message,
                    Some(Err(error)) => return error.into(),
                    None => return RelayError::Ended,
                };
                heard = Instant::now();
                pace.spend(heard, message.len());
                let event = match message {
                    Message::Text(text) => Some(RelayEvent::Text(text.as_str().to_owned())),
                    Message::Pong(content) => pinger.answered(heard, &content).map(RelayEvent::RoundTrip),
                    _ => None,
                };
                if let Some(event) = event && events.send((number, event)).await.is_err() {
                    return RelayError::Ended;
                }
            }
            _ = pings.tick() => {
                if heard.elapsed() > SILENT {
                    return RelayError::Silent;
                }
                if let Err(error) = socket.send(Message::Ping(pinger.ping(Instant::now()).into())).await {
                    return error.into();
                }
            }
        }
    }
}

/// The ping whose answer is awaited.
#[derive(Default)]
struct Pinger {
    number: u64,
    sent: Option<Instant>,
}

impl Pinger {
    /// Returns the content of the next ping.
    fn ping(&mut self, now: Instant) -> Vec<u8> {
        self.number += 1;
        self.sent = Some(now);
        self.number.to_be_bytes().to_vec()
    }

    /// Returns the round trip if this is the answer to the last ping, once.
    fn answered(&mut self, now: Instant, content: &[u8]) -> Option<Duration> {
        if content != self.number.to_be_bytes() {
            return None;
        }
        Some(now.saturating_duration_since(self.sent.take()?))
    }
}

/// When the next message may be read.
struct Pace {
    /// When the burst is free again.
    free: Instant,
    next: Instant,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { free: now, next: now }
    }

    /// Notes that so many bytes were read.
    fn spend(&mut self, now: Instant, bytes: usize) {
        // What a frame costs beside its content counts, too.
        let bytes = bytes + 64;
        let part = |bytes: usize| Duration::from_secs_f64(bytes as f64 / READ.1 as f64);
        self.free = self.free.max(now) + part(bytes);
        self.next = self.free.checked_sub(part(READ.0)).unwrap_or(now).max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_the_last_ping_counts_once() {
        let (mut pinger, start) = (Pinger::default(), Instant::now());
        assert_eq!(pinger.answered(start, &[0; 8]), None, "no ping was sent");
        let first = pinger.ping(start);
        let second = pinger.ping(start + Duration::from_secs(30));
        let at = start + Duration::from_secs(31);
        assert_eq!(pinger.answered(at, &first), None);
        assert_eq!(pinger.answered(at, b""), None);
        assert_eq!(pinger.answered(at, &second), Some(Duration::from_secs(1)));
        assert_eq!(pinger.answered(at, &second), None);
    }

    #[test]
    fn a_burst_is_read_at_once_and_then_a_rate() {
        let mut pace = Pace::new();
        let start = Instant::now();
        let mut now = start;
        let mut read = 0;
        while now < start + Duration::from_secs(10) {
            pace.spend(now, 1_000);
            read += 1_064;
            now = pace.next.max(now);
        }
        let most = READ.0 + 10 * READ.1;
        assert!(read <= most + 2_000 && read >= most - 100_000, "{read} of {most}");
    }
}
