//! The control protocol: JSON, one message a line, over one TCP connection inside the tunnel.
//!
//! Client: [`Hello`]. Server: [`FromServer::Ready`], or [`FromServer::Refused`] and the end. The client
//! opens its flows, each of which begins with the token, and measures round trips on the idle path.
//! Then client [`ToServer::Start`], server [`FromServer::Started`], and a [`FromServer::Second`] each
//! second; client [`ToServer::Stop`], server [`FromServer::Done`]. An end that loses the connection
//! aborts the run. If the server sends datagrams outside the tunnel, the client returns their
//! numbers once a second ([`ToServer::Came`], [`challenge`](crate::challenge)). With [`Hello::stages`]
//! both ends make their daemons measure the stages of the packet path meanwhile, and report them at
//! the end ([`EndpointReport::stages`]).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::account::{EndpointReport, EndpointSecond};
use crate::challenge::Challenge;
use crate::plan::Plan;
use crate::token::Token;

/// The schema of the first message; the number changes when client and server could misunderstand
/// each other.
pub const SCHEMA: &str = "weft.perf-control/1";

/// The longest message, in bytes, its newline included.
pub const MAX_LINE: usize = 64 << 10;
/// Maximum time between the first and the last byte of a message: a client that sends a byte now
/// and then must not block the only test that is served.
const LONGEST: Duration = Duration::from_secs(10);

/// The first message of the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`SCHEMA`]
    pub schema: String,
    /// The requested run.
    pub plan: Plan,
    /// Whether both daemons measure the stages of their packet paths meanwhile. A server that does
    /// not know the field serves the run without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stages: bool,
    /// Whether the client returns the server's [`Challenge`]s. A server that does not know the
    /// field sends none; without them nothing goes outside the tunnel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub challenges: bool,
}

impl Hello {
    /// A request for a run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            plan,
            stages: false,
            challenges: true,
        }
    }

    /// Sets whether the stages of both packet paths are measured.
    #[must_use]
    pub fn with_stages(self, stages: bool) -> Self {
        Self { stages, ..self }
    }
}

/// Later messages of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToServer {
    /// Every flow is open: start the load.
    Start,
    /// Time is up.
    Stop,
    /// This number was received in the flow.
    Came(Challenge),
}

/// Messages of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FromServer {
    /// The run is refused, for the reason in the text.
    Refused(String),
    /// The ports and the token of the flows.
    Ready(Ready),
    /// The load runs.
    Started,
    /// One second of it.
    Second(Box<EndpointSecond>),
    /// The account of the whole run.
    Done(Box<EndpointReport>),
    /// The run failed, for the reason in the text.
    Failed(String),
}

/// The ports of the flows, at the server's mesh address or at the address of [`Plan::raw`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// TCP connections.
    pub tcp: u16,
    /// Datagrams of the load.
    pub udp: u16,
    /// Datagrams that the server returns.
    pub probe: u16,
    /// The token with which every flow begins.
    pub token: Token,
}

/// Writes one message.
///
/// # Errors
/// The error of the connection, and `InvalidData` for a value that is not JSON.
pub fn write(mut stream: &TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads messages of a connection.
#[derive(Debug)]
pub struct Messages {
    stream: BufReader<TcpStream>,
}

impl Messages {
    /// Reads the messages of `stream`. Its read timeout bounds the wait for each.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the connection, `TimedOut` for a message in parts that take
    /// longer than 10 s, `InvalidData` for a message that is too long or not understood, and the
    /// errors of the connection.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = Vec::new();
        let mut begun: Option<Instant> = None;
        // The read timeout bounds the wait for each part of a message, and LONGEST the time from its first to its last.
        while line.last() != Some(&b'\n') && line.len() < MAX_LINE {
            if begun.is_some_and(|begun| begun.elapsed() > LONGEST) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let part = self.stream.fill_buf()?;
            begun.get_or_insert_with(Instant::now);
            let end = part
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(part.len(), |at| at + 1);
            let taken = end.min(MAX_LINE - line.len());
            line.extend_from_slice(part.get(..taken).unwrap_or_default());
            self.stream.consume(taken);
            if taken == 0 {
                break;
            }
        }
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.last() != Some(&b'\n') {
            let kind = if line.len() < MAX_LINE {
                io::ErrorKind::UnexpectedEof
            } else {
                io::ErrorKind::InvalidData
            };
            return Err(kind.into());
        }
        Ok(serde_json::from_slice(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    #[test]
    fn a_run_without_stages_is_asked_for_as_ever() {
        let plan = r#"{"load":{"kind":"none"},"direction":"forward","seconds":1}"#;
        let old = format!(r#"{{"schema":"{SCHEMA}","plan":{plan}}}"#);
        let hello: Hello = serde_json::from_str(&old).unwrap();
        assert!(!hello.stages && !hello.challenges);
        assert_eq!(serde_json::to_string(&hello).unwrap(), old);
        let with = hello.with_stages(true);
        let text = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<Hello>(&text).unwrap(), with);
    }

    #[test]
    fn messages_pass_one_by_one() {
        let (a, b) = pair();
        let token = Token([7; Token::LEN]);
        let ready = FromServer::Ready(Ready {
            tcp: 1,
            udp: 2,
            probe: 3,
            token,
        });
        write(&a, &ready).unwrap();
        write(&a, &FromServer::Started).unwrap();
        drop(a);
        let mut messages = Messages::new(b);
        assert_eq!(messages.receive::<FromServer>().unwrap(), ready);
        assert_eq!(messages.receive::<FromServer>().unwrap(), FromServer::Started);
        let end = messages.receive::<FromServer>().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn long_and_invalid_messages_are_refused() {
        for (bytes, kind) in [
            (vec![b'x'; MAX_LINE + 5], io::ErrorKind::InvalidData),
            (b"{\"plan\"\n".to_vec(), io::ErrorKind::InvalidData),
            (b"\"dance\"\n".to_vec(), io::ErrorKind::InvalidData),
            (b"\"start".to_vec(), io::ErrorKind::UnexpectedEof),
        ] {
            let (mut a, b) = pair();
            let writer = std::thread::spawn(move || a.write_all(&bytes));
            let error = Messages::new(b).receive::<ToServer>().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            // The reader may have closed before everything was written.
            let _ = writer.join().unwrap();
        }
    }
}
