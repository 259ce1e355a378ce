//! Connections that come in: nothing of one is read beyond its token unless the daemons agreed on that.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_control::status::{TransferEvent, TransferEventKind};
use weft_control::{ControlCommand, EventStream, TransferCommand};

use super::Process;
use super::grants::Grant;
use crate::api::TransferId;
use crate::link::{self, Opened};
use crate::wire::{Connection, Prelude};

/// How long a connection may take for its first bytes.
const FIRST: Duration = Duration::from_secs(2);
/// The pause between two looks whether a token is known by now.
const GRANT_LOOK: Duration = Duration::from_millis(20);
/// The most connections that have not sent their first bytes, and those of one address.
const MAX_UNPROVEN: usize = 32;
const OWN_UNPROVEN: usize = 8;
/// The most connections at a time, and those of one address.
const MAX_CONNECTIONS: usize = 256;
const OWN: usize = 64;
/// The pause before the daemon is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// The pause after the system refuses to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Connections of each address: those that have not sent their first bytes, and all.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<Ipv6Addr, [usize; 2]>>);

/// A place, until it is dropped.
struct Place<'a> {
    places: &'a Places,
    of: Ipv6Addr,
    unproven: bool,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ipv6Addr, [usize; 2]>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a new connection; `None` if there is none, also for this address. Half of the places for
    /// connections without a token are for addresses that have a grant.
    fn take(&self, of: Ipv6Addr, is_expected: bool) -> Option<Place<'_>> {
        let mut places = self.lock();
        let [unproven, all] = places
            .values()
            .fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
        let own = places.get(&of).copied().unwrap_or_default();
        let places_for_it = if is_expected { MAX_UNPROVEN } else { MAX_UNPROVEN / 2 };
        let full = unproven >= places_for_it || all >= MAX_CONNECTIONS || own[0] >= OWN_UNPROVEN || own[1] >= OWN;
        if full {
            return None;
        }
        let own = places.entry(of).or_default();
        *own = own.map(|count| count + 1);
        Some(Place {
            places: self,
            of,
            unproven: true,
        })
    }
}

impl Place<'_> {
    /// Notes that the first bytes have come.
    fn prove(&mut self) {
        if std::mem::take(&mut self.unproven)
            && let Some([unproven, _]) = self.places.lock().get_mut(&self.of)
        {
            *unproven -= 1;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.prove();
        let mut places = self.places.lock();
        match places.get_mut(&self.of) {
            Some([_, all]) if *all > 1 => *all -= 1,
            _ => drop(places.remove(&self.of)),
        }
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
        let (listener, place) = link::listen(control)?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let command = ControlCommand::Transfer(TransferCommand::Receive { port });
        let mut events = EventStream::open_with(control, &command).map_err(|error| error.to_string())?;
        let closer = listener.try_clone().map_err(|error| error.to_string())?;
        let process = Arc::clone(self);
        let accepting = thread::spawn(move || process.accept(&listener));
        self.services.enter_mesh(place);
        let ended = loop {
            match events.next_event() {
                Ok(Some(event)) => self.take_event(event),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.to_string()),
            }
        };
        self.services.leave_mesh("the daemon has ended");
        // What waits for a connection ends then (shutdown(2) of a socket that listens).
        let _ = socket2::SockRef::from(&closer).shutdown(Shutdown::Both);
        let _ = accepting.join();
        ended
    }

    fn take_event(self: &Arc<Self>, event: serde_json::Value) {
        let Ok(event) = serde_json::from_value::<TransferEvent>(event) else {
            return;
        };
        match event.kind {
            TransferEventKind::Registered => {
                *self.why_not() = None;
                *self.user() = event.user.unwrap_or_default();
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
                    let back = event
                        .back
                        .map(|port| Opened::back(&grant, token.0, port, (event.own, event.interface)));
                    self.grants.add(token.0, grant.clone(), Instant::now());
                    if let Some(back) = back {
                        self.call_back(&grant, back);
                    }
                }
            }
            TransferEventKind::Other => {}
        }
    }

    pub(super) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let places = Arc::new(Places::default());
        loop {
            match listener.accept() {
                Ok((stream, from)) => {
                    let IpAddr::V6(from) = from.ip() else { continue };
                    let (process, places) = (Arc::clone(self), Arc::clone(&places));
                    let serve = move || process.serve_connection(stream, from, &places);
                    if let Err(error) = thread::Builder::new().spawn(serve) {
                        tracing::info!(%error, "a connection has no thread, and is closed");
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
        // A connection may come before the daemon has told of its grant, but takes no place of those that have one.
        let Some(mut place) = places.take(from, self.grants.expects(from)) else {
            return;
        };
        let prelude = match self.read_prelude(&stream) {
            Ok(prelude) => {
                place.prove();
                prelude
            }
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
                    self.take_offer(&stream, prelude.token, &grant, None);
                    self.grants.end(&prelude.token);
                } else if let Some(bulk) = self.grants.bulk(&prelude.token, from) {
                    bulk.take_control(&stream);
                }
            }
            Connection::Request => {
                if let Some(grant) = self.grants.take(&prelude.token, from) {
                    self.serve_request(&stream, prelude.token, &grant);
                    self.grants.end(&prelude.token);
                }
            }
            Connection::Data => {
                if let Some(bulk) = self.grants.bulk(&prelude.token, from) {
                    bulk.take(&stream);
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
            let left = end.saturating_duration_since(Instant::now());
            if token.is_some_and(|token| !self.grants.knows(token)) && !left.is_zero() {
                thread::sleep(GRANT_LOOK.min(left));
                continue;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_for_others() {
        let places = Places::default();
        let [one, other] = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        let mut held: Vec<Place<'_>> = std::iter::from_fn(|| places.take(one, true)).collect();
        assert_eq!(held.len(), OWN_UNPROVEN);
        while held.len() < OWN {
            held.iter_mut().for_each(Place::prove);
            held.extend(std::iter::from_fn(|| places.take(one, true)).take(OWN_UNPROVEN));
        }
        held.iter_mut().for_each(Place::prove);
        assert!(places.take(one, true).is_none());
        assert!(places.take(other, false).is_some());
        drop(held);
        assert!(places.lock().is_empty());
    }
}
