//! The end that has services: members use them by name, or at the mesh addresses of the node.

mod published;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

pub use self::published::Mesh;
use self::published::Published;
use crate::keep::{Beat, keep};
use crate::pipe::{Group, Stream};
use crate::services::{Service, Target};
use crate::wire::message::{self, Ended};
use crate::wire::request::{Answer, Request};

/// The most connections of a service, of all of them, and of one peer.
const OF_SERVICE: usize = 64;
const OF_ALL: usize = 256;
const OF_PEER: usize = 32;
/// Time limit of a connection to the target.
const CONNECT: Duration = Duration::from_secs(10);
/// Time limit of a look whether the target answers.
const PROBE: Duration = Duration::from_secs(1);
/// How long an answer of the daemon counts.
const KNOWN: Duration = Duration::from_secs(5);
/// The most answers of the daemon that are kept.
const MAX_KNOWN: usize = 256;
/// The answer for a service that does not exist, and for one that the peer may not use.
const NO_SERVICE: &str = "no such service, or not for this node";

/// A node that uses services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its address in the mesh.
    pub address: IpAddr,
    /// Its npub.
    pub npub: String,
    /// The networks in which both nodes are members.
    pub networks: Vec<String>,
    /// Its tags in them.
    pub tags: Vec<String>,
}

/// Finds out which node has an address; `None` if none has it, an error if that is not known at present.
pub type Who = Box<dyn Fn(IpAddr) -> Result<Option<User>, String> + Send + Sync>;

/// All services of a user, and who uses them.
pub struct Serving {
    who: Who,
    known: Mutex<BTreeMap<IpAddr, (Instant, Option<User>)>>,
    /// The lock of questions to the daemon: one at a time.
    asking: Mutex<()>,
    beat: Beat,
    inner: Mutex<Inner>,
    places: Places,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Inner {
    services: Vec<(Service, Published)>,
    sessions: Vec<Arc<Session>>,
    /// The interface and the addresses of the node, while it has them.
    mesh: Option<Mesh>,
    why_not: Option<String>,
}

/// What is under way of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The addresses at which the process listens for it.
    pub at: Vec<std::net::SocketAddr>,
    /// Why it does not listen at all of them.
    pub why: Option<String>,
    /// Its connections.
    pub connections: usize,
}

/// A peer that uses a service: by its name, or with one connection to a mesh address.
#[derive(Debug)]
pub struct Session {
    service: Service,
    user: User,
    request: Option<Arc<TcpStream>>,
    pairs: Group,
    places: Places,
}

impl Serving {
    /// Without services.
    #[must_use]
    pub fn new(who: Who, beat: Beat) -> Self {
        Self {
            who,
            known: Mutex::default(),
            asking: Mutex::default(),
            beat,
            inner: Mutex::default(),
            places: Places::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a service, whose name and port no other one has.
    pub fn add(self: &Arc<Self>, service: Service) {
        self.lock().services.push((service, Published::default()));
        self.publish();
    }

    /// Removes a service, and ends its connections.
    pub fn remove(&self, name: &str) {
        let mut inner = self.lock();
        // The listeners end with it.
        inner.services.retain(|(service, _)| service.name != name);
        inner.end(|session| session.service.name == name);
    }

    /// Ends all connections of services.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.services.clear();
        inner.end(|_| true);
    }

    /// Ends the connections of those that may not use their service any more.
    pub fn sweep(&self) {
        let sessions = self.lock().sessions.clone();
        for session in sessions {
            let allowed = match self.who(session.user.address) {
                Ok(user) => user.is_some_and(|user| session.service.is_for(&user)),
                // What is known holds until the daemon says something else.
                Err(_) => continue,
            };
            if !allowed {
                self.lock().end(|one| std::ptr::eq(one, &raw const *session));
            }
        }
    }

    /// Returns what is under way of a service.
    #[must_use]
    pub fn state(&self, name: &str) -> State {
        let inner = self.lock();
        let of_it = inner.sessions.iter().filter(|session| session.service.name == name);
        let connections = of_it.map(|session| session.pairs.count()).sum();
        match inner.services.iter().find(|(service, _)| service.name == name) {
            Some((service, published)) => State {
                at: published.at(),
                why: published.why(service).or_else(|| {
                    let is_wanted = service.port.is_some();
                    inner.why_not.clone().filter(|_| is_wanted)
                }),
                connections,
            },
            None => State::default(),
        }
    }

    /// Finds a service that a node may use.
    fn find(&self, name: &str, user: &User) -> Option<Service> {
        let inner = self.lock();
        let mut all = inner.services.iter().map(|(service, _)| service);
        all.find(|service| service.name == name && service.is_for(user))
            .cloned()
    }

    /// Adds a session, unless its service was removed meanwhile.
    fn enter(&self, service: Service, user: User, request: Option<&Arc<TcpStream>>) -> Option<Arc<Session>> {
        let mut inner = self.lock();
        let is_there = inner.services.iter().any(|(one, _)| *one == service);
        let session = Arc::new(Session {
            service,
            user,
            request: request.map(Arc::clone),
            pairs: Group::default(),
            places: self.places.clone(),
        });
        is_there.then(|| {
            inner.sessions.push(Arc::clone(&session));
            session
        })
    }

    fn leave(&self, session: &Arc<Session>) {
        self.lock().end(|one| std::ptr::eq(one, &raw const **session));
    }

    /// Serves the request connection of a node that uses a service, until its end. `begin` learns who takes the data
    /// connections.
    pub fn serve(&self, stream: &Arc<TcpStream>, name: &str, user: User, begin: impl FnOnce(Arc<Session>)) {
        let service = self.find(name, &user);
        let Some(session) = service.and_then(|service| self.enter(service, user, Some(stream))) else {
            // The other end may have gone.
            let refusal = Answer::Refused(Ended::Rejected, NO_SERVICE.to_owned());
            let _ = message::write(&mut &**stream, &refusal.to_bytes());
            return;
        };
        begin(Arc::clone(&session));
        if message::write(&mut &**stream, &Answer::Granted.to_bytes()).is_ok() {
            let alive = Answer::Alive.to_bytes();
            let why = keep(stream, self.beat, &alive, |message| match Request::parse(message) {
                Ok(Request::Alive) => Ok(()),
                Ok(_) => Err("a second request".to_owned()),
                Err(error) => Err(error.to_string()),
            });
            tracing::debug!(
                npub = session.user.npub,
                service = session.service.name,
                why,
                "a use ends"
            );
        }
        self.leave(&session);
    }

    /// Returns the node of an address, from memory or from the daemon.
    fn who(&self, address: IpAddr) -> Result<Option<User>, String> {
        let now = Instant::now();
        // No code panics while it holds the lock.
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, user)) = known().get(&address)
            && now < *at + KNOWN
        {
            return Ok(user.clone());
        }
        // One at a time: the daemon answers few questions of a user at once, and the next one may be known by then.
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, user)) = known().get(&address)
            && Instant::now() < *at + KNOWN
        {
            return Ok(user.clone());
        }
        let user = (self.who)(address)?;
        let mut known = known();
        known.retain(|_, (at, _)| now < *at + KNOWN);
        if known.len() < MAX_KNOWN {
            known.insert(address, (now, user.clone()));
        }
        Ok(user)
    }
}

impl Inner {
    /// Ends sessions: their connections are closed.
    fn end(&mut self, which: impl Fn(&Session) -> bool) {
        self.sessions.retain(|session| {
            let ends = which(session);
            if ends {
                session.end();
            }
            !ends
        });
    }
}

impl Service {
    fn is_for(&self, user: &User) -> bool {
        self.to.allows(&user.npub, &user.networks, &user.tags)
    }
}

impl Session {
    fn end(&self) {
        self.pairs.end();
        if let Some(request) = &self.request {
            let _ = request.shutdown(Shutdown::Both);
        }
    }

    /// Serves a data connection until its end: the first message says whether the service answers.
    pub fn take(&self, stream: &Arc<TcpStream>) {
        let connected = match self.places.take(&self.service.name, &self.user.npub) {
            Some(place) => connect(&self.service.target)
                .map(|target| (place, target))
                .map_err(|error| format!("the service there does not answer ({})", words(&error))),
            None => Err("too many connections at present".to_owned()),
        };
        let say = |answer: &Answer| message::write(&mut &**stream, &answer.to_bytes());
        match connected {
            Ok((_place, target)) => {
                if say(&Answer::Granted).is_ok() {
                    self.pairs.pass(Stream::Tcp(Arc::clone(stream)), target);
                }
            }
            Err(why) => {
                tracing::debug!(npub = self.user.npub, service = self.service.name, why, "refused");
                // The other end may have gone.
                let _ = say(&Answer::Refused(Ended::NotNow, why));
            }
        }
    }
}

/// An error without the number that the system has for it.
fn words(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn connect(target: &Target) -> io::Result<Stream> {
    connect_within(target, CONNECT)
}

/// Returns why a service does not answer now, in words; `None` if it does. It sees a connection that ends at once.
pub fn why_silent(target: &Target) -> Option<String> {
    let error = connect_within(target, PROBE).err()?;
    Some(format!("nothing answers at {target} at present ({})", words(&error)))
}

fn connect_within(target: &Target, limit: Duration) -> io::Result<Stream> {
    match target {
        Target::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, limit)?;
            Ok(Stream::Tcp(Arc::new(stream)))
        }
        Target::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            // Also the limit of the wait for a place in a full queue (unix(7)).
            socket.set_write_timeout(Some(limit))?;
            socket.connect(&SockAddr::unix(PathBuf::from(path))?)?;
            Ok(Stream::Unix(UnixStream::from(socket)))
        }
    }
}

/// Connections of services: of which service, and of whom.
#[derive(Clone, Debug, Default)]
struct Places(Arc<Mutex<Vec<(String, String)>>>);

/// A place, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Places,
    of: (String, String),
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a member, or for an address whose member is not known yet.
    fn take(&self, service: &str, user: &str) -> Option<Place> {
        let mut all = self.lock();
        let of_service = all.iter().filter(|(one, _)| one == service).count();
        let of_user = all.iter().filter(|(_, one)| one == user).count();
        if all.len() >= OF_ALL || of_service >= OF_SERVICE || of_user >= OF_PEER {
            return None;
        }
        let of = (service.to_owned(), user.to_owned());
        all.push(of.clone());
        Some(Place {
            places: self.clone(),
            of,
        })
    }
}

impl Place {
    /// Passes the place on from an address to its member; false if that has too many.
    fn pass_to(&mut self, member: &str) -> bool {
        let mut all = self.places.lock();
        let own = all.iter().filter(|(_, one)| one == member).count();
        let place = all.iter_mut().find(|one| **one == self.of);
        match place.filter(|_| own < OF_PEER) {
            Some(place) => {
                member.clone_into(&mut place.1);
                member.clone_into(&mut self.of.1);
                true
            }
            None => false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.lock();
        if let Some(at) = all.iter().position(|one| *one == self.of) {
            all.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn one_peer_leaves_places_for_others() {
        let places = Places::default();
        let take = |service: &str, last: u8| places.take(service, &format!("10.0.0.{last}"));
        let mut held: Vec<Place> = std::iter::from_fn(|| take("a", 1)).collect();
        assert_eq!(held.len(), OF_PEER);
        assert!(take("b", 1).is_none());
        held.extend(std::iter::from_fn(|| take("a", 2)));
        assert_eq!(held.len(), OF_SERVICE);
        assert!(take("a", 3).is_none());
        let more = ["b", "c", "d", "e"].into_iter().zip(3..);
        held.extend(more.flat_map(|(service, last)| {
            std::iter::from_fn(move || take(service, last)).chain(std::iter::from_fn(move || take(service, last + 10)))
        }));
        assert_eq!(held.len(), OF_ALL);
        held.pop();
        assert!(take("f", 40).is_some());
        // The second address of a member gives it no more.
        held.truncate(OF_PEER);
        assert!(held.iter_mut().all(|place| place.pass_to("npub1")));
        let mut other = take("a", 50).unwrap();
        assert!(!other.pass_to("npub1") && other.pass_to("npub2"));
        drop((held, other));
        assert!(places.lock().is_empty());
    }

    #[test]
    fn a_target_without_a_listener_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let unix = Target::Unix(crate::api::RawPath::from(&*path));
        let why = why_silent(&unix).unwrap();
        assert!(
            why.starts_with("nothing answers at /") && why.ends_with("(no such file or directory)"),
            "{why}"
        );
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        listener.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        assert!(why_silent(&unix).unwrap().ends_with("(connection refused)"));
        listener.listen(0).unwrap();
        assert_eq!(why_silent(&unix), None);
        // Nothing accepts, so its queue gets full.
        let held: Vec<_> = std::iter::from_fn(|| connect_within(&unix, Duration::from_millis(1)).ok()).collect();
        assert!(why_silent(&unix).is_some(), "{}", held.len());
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(tcp.local_addr().unwrap());
        assert_eq!(why_silent(&target), None);
        drop(tcp);
        assert!(why_silent(&target).is_some());
    }

    #[test]
    fn an_error_has_words_for_people() {
        let error = io::Error::from_raw_os_error(111);
        assert_eq!(words(&error), "connection refused");
    }
}
