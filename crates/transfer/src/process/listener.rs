//! Connections that come in: nothing of one is read beyond its token unless the daemons agreed on that.

use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_control::status::{TransferEvent, TransferEventKind};
use weft_control::{ControlCommand, EventStream, TransferCommand};

use super::Process;
use super::grants::Grant;
use crate::api::TransferId;
use crate::link;
use crate::wire::{Connection, Prelude};

/// How long a connection may take for its first bytes.
const FIRST: Duration = Duration::from_secs(2);
/// The most connections that have not sent their first bytes.
const MAX_UNPROVEN: usize = 16;
/// The most connections at a time.
const MAX_CONNECTIONS: usize = 128;
/// The pause before the daemon is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause after the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Places of connections.
#[derive(Debug, Default)]
struct Places {
    unproven: AtomicUsize,
    all: AtomicUsize,
}

/// A place, until it is dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(of: &'a AtomicUsize, most: usize) -> Option<Self> {
        let taken = Self(of);
        (of.fetch_add(1, Ordering::AcqRel) < most).then_some(taken)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Process {
    /// Registers with the daemon again and again, and takes connections while it is registered.
    pub(super) fn receive(self: &Arc<Self>) {
        while !self.is_stopping() {
            let why = match self.receive_once() {
                Ok(()) => "the daemon has ended".to_owned(),
                Err(why) => why,
            };
            *self.why_not() = Some(why);
            let version = self.plan().version;
            self.wait_for_change(version, AGAIN);
        }
    }

    fn receive_once(self: &Arc<Self>) -> Result<(), String> {
        let control = &self.options.control;
        let (listener, _) = link::listen(control)?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let command = ControlCommand::Transfer(TransferCommand::Receive { port });
        let mut events = EventStream::open_with(control, &command).map_err(|error| error.to_string())?;
        let closer = listener.try_clone().map_err(|error| error.to_string())?;
        let process = Arc::clone(self);
        let accepting = thread::spawn(move || process.accept(&listener));
        let ended = loop {
            match events.next_event() {
                Ok(Some(event)) => self.take_event(event),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.to_string()),
            }
        };
        // What waits for a connection ends then (shutdown(2) of a socket that listens).
        let _ = socket2::SockRef::from(&closer).shutdown(Shutdown::Both);
        let _ = accepting.join();
        ended
    }

    fn take_event(&self, event: serde_json::Value) {
        let Ok(event) = serde_json::from_value::<TransferEvent>(event) else {
            return;
        };
        match event.kind {
            TransferEventKind::Registered => {
                *self.why_not() = None;
                self.note_change();
            }
            TransferEventKind::Granted => {
                let token = event.token.and_then(|token| token.parse::<TransferId>().ok());
                let parts = (token, event.purpose, event.npub, event.address);
                if let (Some(token), Some(purpose), Some(npub), Some(address)) = parts {
                    let grant = Grant {
                        purpose,
                        name: event.name.unwrap_or_else(|| npub.clone()),
                        npub,
                        address,
                        networks: event.networks,
                        tags: event.tags,
                    };
                    self.grants.add(token.0, grant, Instant::now());
                }
            }
            TransferEventKind::Other => {}
        }
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let places = Arc::new(Places::default());
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    let IpAddr::V6(from) = from.ip() else { continue };
                    let (process, places) = (Arc::clone(self), Arc::clone(&places));
                    // Beyond the limits a connection is closed unread.
                    let full = places.unproven.load(Ordering::Acquire) >= MAX_UNPROVEN
                        || places.all.load(Ordering::Acquire) >= MAX_CONNECTIONS;
                    if !full {
                        thread::spawn(move || process.serve_connection(stream, from, &places));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn serve_connection(self: &Arc<Self>, stream: TcpStream, from: Ipv6Addr, places: &Places) {
        let Some(_place) = Place::take(&places.all, MAX_CONNECTIONS) else {
            return;
        };
        let prelude = {
            let Some(_unproven) = Place::take(&places.unproven, MAX_UNPROVEN) else {
                return;
            };
            self.read_prelude(&stream)
        };
        let prelude = match prelude {
            Ok(prelude) => prelude,
            Err(error) => {
                tracing::debug!(%from, %error, "a connection without a token is closed");
                return;
            }
        };
        if link::prepare(&stream).is_err() {
            return;
        }
        let stream = Arc::new(stream);
        match prelude.connection {
            Connection::Control => {
                if let Some(grant) = self.grants.take(&prelude.token, from) {
                    self.take_offer(&stream, prelude.token, &grant);
                    self.grants.end(&prelude.token);
                }
            }
            Connection::Data => {
                if let Some(session) = self.grants.session(&prelude.token, from) {
                    session.serve_data(&stream);
                }
            }
        }
    }

    /// Reads the first bytes of a connection: the token, and the rest only if it is known.
    fn read_prelude(&self, mut stream: &TcpStream) -> io::Result<Prelude> {
        let end = Instant::now() + FIRST;
        let mut bytes = [0; Prelude::LEN];
        let mut have = 0;
        while have < bytes.len() {
            let token = bytes.first_chunk::<16>().filter(|_| have >= 16);
            if token.is_some_and(|token| !self.grants.knows(token)) {
                return Err(io::Error::other("the token is not known"));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left))?;
            let until = if have < 16 { 16 } else { Prelude::LEN };
            let Some(room) = bytes.get_mut(have..until) else {
                break;
            };
            match stream.read(room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => have += more,
            }
        }
        Ok(Prelude::parse(&bytes)?)
    }
}
