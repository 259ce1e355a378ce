//! How the two ends talk: JSON, one message a line, over one TCP connection inside the tunnel.
//!
//! Near: [`Hello`]. Far: [`FromFar::Ready`], or [`FromFar::Refused`] and the end. Near opens its flows, each of which
//! begins with the token, and measures round trips on the idle path. Then near [`ToFar::Start`], far
//! [`FromFar::Started`], and a [`FromFar::Second`] each second; near [`ToFar::Stop`], far [`FromFar::Done`]. An end that
//! loses the connection gives the run up. Where the far end sends datagrams outside the tunnel, near returns their numbers
//! once a second ([`ToFar::Came`], [`challenge`](crate::challenge)). With [`Hello::stages`] both ends have their daemons measure the stages of the
//! packet path meanwhile, and tell them at the end ([`EndReport::stages`]).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::challenge::Challenge;
use crate::end::{EndReport, EndSecond};
use crate::plan::Plan;

/// The schema of the first message; the number changes when the ends could misunderstand each other.
pub const SCHEMA: &str = "weft.perf-control/1";

/// The longest message, in bytes, its newline included.
pub const MAX_LINE: usize = 64 << 10;
/// The longest that one message may take from its first byte to its last: an end that sends a byte now and then must not hold
/// the one test that is served.
const LONGEST: Duration = Duration::from_secs(10);

/// The first message of the near end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`SCHEMA`]
    pub schema: String,
    /// What it would like.
    pub plan: Plan,
    /// Both daemons measure the stages of their packet paths meanwhile. A far end that does not know of it serves the run
    /// without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stages: bool,
    /// The near end returns the far end's [`Challenge`]s. A far end that does not know of them sends none; without them
    /// nothing goes outside the tunnel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub challenges: bool,
}

impl Hello {
    /// Asks for a run.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            plan,
            stages: false,
            challenges: true,
        }
    }

    /// The same run with the stages of both packet paths measured, or without.
    #[must_use]
    pub fn with_stages(self, stages: bool) -> Self {
        Self { stages, ..self }
    }
}

/// Later messages of the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToFar {
    /// Every flow is open: begin.
    Start,
    /// Time is up.
    Stop,
    /// This number came in the flow.
    Came(Challenge),
}

/// Messages of the far end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FromFar {
    /// Not this time, and why, for people.
    Refused(String),
    /// Where the flows go.
    Ready(Ready),
    /// The load runs.
    Started,
    /// One second of it.
    Second(Box<EndSecond>),
    /// All of it.
    Done(Box<EndReport>),
    /// It went wrong, for people.
    Failed(String),
}

/// Where the flows go: ports at the far end's mesh address, or at the address of [`Plan::raw`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// TCP connections.
    pub tcp: u16,
    /// Datagrams of the load.
    pub udp: u16,
    /// Datagrams that are sent back.
    pub probe: u16,
    /// What every flow begins with.
    pub token: Token,
}

/// A secret of one run, which proves that a flow belongs to it: the tunnel does not where the run goes outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Token(pub [u8; Self::LEN]);

impl Token {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Whether `bytes` begin with it. In constant time, since a stranger may try.
    #[must_use]
    pub fn begins(&self, bytes: &[u8]) -> bool {
        let Some(found) = bytes.first_chunk::<{ Self::LEN }>() else {
            return false;
        };
        self.0.iter().zip(found).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        hex::encode(token.0)
    }
}

impl TryFrom<String> for Token {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, hex::FromHexError> {
        let mut token = [0; Self::LEN];
        hex::decode_to_slice(text, &mut token)?;
        Ok(Self(token))
    }
}

/// Writes one message.
///
/// # Errors
/// What the connection gives, and `InvalidData` for what is no JSON.
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
    /// Those that come from `stream`. Its read timeout bounds the wait for each.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the connection, `TimedOut` for a message in parts that take longer than 10 s, `InvalidData` for a message that is too long or not
    /// understood, and what the connection gives.
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

/// Text of the other end as it may be shown: one line of printable characters, at most `longest` of them.
#[must_use]
pub fn printable(text: &str, longest: usize) -> String {
    let shown = |c: char| if c.is_control() || is_direction(c) { ' ' } else { c };
    text.chars().take(longest).map(shown).collect()
}

/// Marks that turn the direction of the text around them (Unicode, UAX #9).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
        let ready = FromFar::Ready(Ready {
            tcp: 1,
            udp: 2,
            probe: 3,
            token,
        });
        write(&a, &ready).unwrap();
        write(&a, &FromFar::Started).unwrap();
        drop(a);
        let mut messages = Messages::new(b);
        assert_eq!(messages.receive::<FromFar>().unwrap(), ready);
        assert_eq!(messages.receive::<FromFar>().unwrap(), FromFar::Started);
        let end = messages.receive::<FromFar>().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_too_long_or_nonsense_is_refused() {
        for (bytes, kind) in [
            (vec![b'x'; MAX_LINE + 5], io::ErrorKind::InvalidData),
            (b"{\"plan\"\n".to_vec(), io::ErrorKind::InvalidData),
            (b"\"dance\"\n".to_vec(), io::ErrorKind::InvalidData),
            (b"\"start".to_vec(), io::ErrorKind::UnexpectedEof),
        ] {
            let (mut a, b) = pair();
            let writer = std::thread::spawn(move || a.write_all(&bytes));
            let error = Messages::new(b).receive::<ToFar>().unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            // The reader may have left before all was written.
            let _ = writer.join().unwrap();
        }
    }

    #[test]
    fn only_the_token_begins_a_flow() {
        let token = Token([3; Token::LEN]);
        assert!(token.begins(&[3; Token::LEN]));
        assert!(token.begins(&[3; 40]));
        assert!(!token.begins(&[3; Token::LEN - 1]));
        let mut other = [3; Token::LEN];
        other[15] = 4;
        assert!(!token.begins(&other));
    }

    #[test]
    fn text_of_others_is_tamed() {
        assert_eq!(printable("a\x1b[31m\nb\u{202e}c", 100), "a [31m b c");
        assert_eq!(printable("abcdef", 3), "abc");
    }
}
