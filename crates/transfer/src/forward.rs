//! The end that brings a service of a peer to this machine: a request connection that stays, and a data connection for
//! each local one.

mod local;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::local::Listeners;
use crate::keep::{Beat, keep};
use crate::link::Opened;
use crate::live::Failure;
use crate::pipe::{Group, Stream};
use crate::queue::backoff;
use crate::send::plain;
use crate::services::Local;
use crate::wire::Connection;
use crate::wire::message;
use crate::wire::request::{Answer, Request};

/// The most local connections of a forward.
const MAX_CONNECTIONS: usize = 64;
/// The most of them that connect at a time: the other end takes few connections without a token at once.
const CONNECTING: usize = 4;
/// Time limit of an answer. The other end has 10 s to connect to its service.
const ANSWER: Duration = Duration::from_secs(15);
/// How long ago the last failure is when a local connection causes a new try at once.
const FRESH: Duration = Duration::from_secs(2);
/// How late a sign of life may come.
const SLACK: Duration = Duration::from_secs(1);
/// How long a local connection waits for that.
const WAIT: Duration = Duration::from_secs(15);
/// How often a data connection is tried that ends before its answer, and the first pause before the next one.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// A user of the peer that may have the service.
pub trait Way: Send + Sync {
    /// Returns a new connection.
    ///
    /// # Errors
    /// Why there is none.
    fn connect(&self, connection: Connection) -> Result<Arc<TcpStream>, Failure>;
}

impl Way for Opened {
    fn connect(&self, connection: Connection) -> Result<Arc<TcpStream>, Failure> {
        Self::connect(self, connection)
    }
}

/// Finds the users of the peer, or says why it finds none.
pub type Dial = Box<dyn Fn() -> Result<Vec<Arc<dyn Way>>, Failure> + Send + Sync>;

/// How a forward is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether the peer has granted it, and is there.
    pub up: bool,
    /// Why not; while it is up, why the service does not answer.
    pub why: Option<String>,
    /// Its connections.
    pub connections: usize,
    /// The time until the next try.
    pub next_try: Option<Duration>,
}

/// A forward that runs.
pub struct Forwarding {
    local: Local,
    service: String,
    dial: Dial,
    beat: Beat,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    listeners: Option<Listeners>,
    up: Option<Arc<Up>>,
    /// When the peer was heard last.
    heard: Option<Instant>,
    /// Why it is not up.
    why: Option<String>,
    /// Why the last connection had no service.
    trouble: Option<String>,
    failed: Option<Instant>,
    tries: u32,
    next: Option<Instant>,
    /// A try is wanted before its time.
    wanted: bool,
    stopped: bool,
    /// Local connections, and those of them that connect.
    connections: usize,
    connecting: usize,
}

/// What the peer has granted, while it is there.
struct Up {
    way: Arc<dyn Way>,
    request: Arc<TcpStream>,
    pairs: Group,
}

impl std::fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarding")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl Forwarding {
    /// Starts a forward of a service. It listens at once if that is possible.
    ///
    /// # Errors
    /// Why it does not listen, for the user; then it is tried again until it is stopped.
    pub fn start(local: Local, service: String, dial: Dial, beat: Beat) -> (Arc<Self>, Result<(), String>) {
        let forwarding = Arc::new(Self {
            local,
            service,
            dial,
            beat,
            inner: Mutex::default(),
            changed: Condvar::new(),
        });
        let listens = forwarding.listen();
        if let Err(why) = &listens {
            forwarding.fail(why.clone());
        }
        let runs = Arc::clone(&forwarding);
        let spawned = thread::Builder::new().spawn(move || runs.run());
        let spawned = spawned.map(drop).map_err(|error| format!("no thread for it ({error})"));
        (forwarding, listens.and(spawned))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how it is.
    #[must_use]
    pub fn state(&self) -> State {
        let inner = self.lock();
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        // The connection lasts longer without a sign of the peer.
        let silence = inner.heard.map_or(Duration::ZERO, |at| at.elapsed());
        let is_silent = inner.up.is_some() && silence > 2 * self.beat.alive + SLACK;
        let up = inner.up.is_some() && !is_silent;
        State {
            up,
            why: match up {
                true => inner.trouble.clone(),
                false if is_silent => Some(format!("nothing has come from the peer for {} s", silence.as_secs())),
                false => inner.why.clone(),
            },
            connections: inner.up.as_ref().map_or(0, |up| up.pairs.count()),
            next_try: inner.next.filter(|_| inner.up.is_none()).map(left),
        }
    }

    /// Tries again at once, if it is not up.
    pub fn nudge(&self) {
        self.lock().wanted = true;
        self.changed.notify_all();
    }

    /// Ends it with all its connections.
    pub fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.listeners = None;
        if let Some(up) = &inner.up {
            up.end();
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn listen(self: &Arc<Self>) -> Result<(), String> {
        if self.lock().listeners.is_some() {
            return Ok(());
        }
        let here = Arc::downgrade(self);
        let take = move |stream: Stream| {
            if let Some(forwarding) = here.upgrade() {
                forwarding.admit(stream);
            }
        };
        let listeners = Listeners::open(&self.local, &Arc::new(take))?;
        let mut inner = self.lock();
        if !inner.stopped {
            inner.listeners = Some(listeners);
        }
        Ok(())
    }

    /// Keeps it up until it is stopped.
    fn run(self: &Arc<Self>) {
        while !self.lock().stopped {
            let why = match self.listen().and_then(|()| self.ask()) {
                Ok(up) => self.keep(&up),
                Err(why) => why,
            };
            self.fail(why);
            let inner = self.lock();
            let pause = inner
                .next
                .map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            // No code panics while it holds the lock.
            let _ = self
                .changed
                .wait_timeout_while(inner, pause, |inner| !inner.wanted && !inner.stopped);
        }
    }

    fn fail(&self, why: String) {
        let mut inner = self.lock();
        if inner.up.take().is_some() {
            inner.tries = 0;
        }
        inner.tries = inner.tries.saturating_add(1);
        let now = Instant::now();
        (inner.failed, inner.next) = (Some(now), Some(now + backoff(inner.tries)));
        inner.why = Some(why);
        (inner.trouble, inner.wanted) = (None, false);
        drop(inner);
        self.changed.notify_all();
    }

    /// Asks each user of the peer for the service.
    fn ask(&self) -> Result<Arc<Up>, String> {
        let words = |failure: Failure| failure.words().to_owned();
        let mut why = "the peer has no user that serves".to_owned();
        let mut granted = Vec::new();
        for way in (self.dial)().map_err(words)? {
            match ask_one(&*way, &self.service) {
                Ok(request) => granted.push((way, request)),
                Err(refused) => why = refused,
            }
        }
        match (granted.pop(), granted.pop()) {
            (Some((way, request)), None) => Ok(Arc::new(Up {
                way,
                request,
                pairs: Group::default(),
            })),
            (Some(_), Some(_)) => {
                let service = &self.service;
                Err(format!(
                    "several users there serve {service}; forward USER@PEER:{service} for one of them"
                ))
            }
            (None, _) => Err(why),
        }
    }

    /// Stays connected. Returns why that ends.
    fn keep(&self, up: &Arc<Up>) -> String {
        let mut inner = self.lock();
        if inner.stopped {
            return "it is removed".to_owned();
        }
        inner.up = Some(Arc::clone(up));
        inner.heard = Some(Instant::now());
        (inner.trouble, inner.why, inner.wanted) = (None, None, false);
        drop(inner);
        self.changed.notify_all();
        let alive = Request::Alive.to_bytes();
        let why = keep(&up.request, self.beat, &alive, |message| match Answer::parse(message) {
            Ok(Answer::Alive) => {
                self.lock().heard = Some(Instant::now());
                Ok(())
            }
            Ok(Answer::Refused(_, why)) => Err(plain(&why)),
            Ok(_) => Err("the other end sent a second answer".to_owned()),
            Err(error) => Err(error.to_string()),
        });
        up.end();
        why
    }

    /// Takes a local connection, unless there are too many.
    fn admit(self: &Arc<Self>, stream: Stream) {
        let mut inner = self.lock();
        if inner.connections >= MAX_CONNECTIONS {
            tracing::debug!(local = %self.local, "too many connections; one is closed");
            return;
        }
        inner.connections += 1;
        drop(inner);
        let forwarding = Arc::clone(self);
        let serve = move || {
            if let Err(why) = forwarding.serve(stream) {
                tracing::debug!(local = %forwarding.local, why, "a connection is closed");
            }
            forwarding.lock().connections -= 1;
        };
        if let Err(error) = thread::Builder::new().spawn(serve) {
            tracing::info!(%error, "a connection has no thread, and is closed");
            self.lock().connections -= 1;
        }
    }

    fn serve(&self, stream: Stream) -> Result<(), String> {
        let up = self.wait_until_up().inspect_err(|_| stream.reset())?;
        let far = {
            let mut inner = self.lock();
            while inner.connecting >= CONNECTING {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
            }
            inner.connecting += 1;
            drop(inner);
            let far = self.connect(&up);
            self.lock().connecting -= 1;
            self.changed.notify_all();
            far
        };
        self.lock().trouble = far.as_ref().err().cloned();
        let far = far.inspect_err(|_| stream.reset())?;
        up.pairs.pass(stream, Stream::Tcp(far));
        Ok(())
    }

    /// Returns what is granted, after a try if the last one is some time ago.
    fn wait_until_up(&self) -> Result<Arc<Up>, String> {
        let mut inner = self.lock();
        if let Some(up) = &inner.up {
            return Ok(Arc::clone(up));
        }
        let failed = inner.failed;
        if failed.is_some_and(|at| Instant::now() < at + FRESH) {
            return Err(inner.why.clone().unwrap_or_default());
        }
        inner.wanted = true;
        self.changed.notify_all();
        let is_open = |inner: &mut Inner| inner.up.is_none() && inner.failed == failed && !inner.stopped;
        let waited = self.changed.wait_timeout_while(inner, WAIT, is_open);
        let inner = match waited {
            Ok((inner, _)) => inner,
            Err(error) => error.into_inner().0,
        };
        match &inner.up {
            Some(up) => Ok(Arc::clone(up)),
            None => Err(inner.why.clone().unwrap_or_else(|| "no answer in time".to_owned())),
        }
    }

    /// Connects to the service.
    fn connect(&self, up: &Up) -> Result<Arc<TcpStream>, String> {
        let mut pause = PAUSE;
        for left in (0..TRIES).rev() {
            let stream = up
                .way
                .connect(Connection::Data)
                .map_err(|error| error.words().to_owned())?;
            match answer(&stream) {
                Ok(Answer::Granted) => return Ok(stream),
                Ok(Answer::Refused(_, why)) => return Err(plain(&why)),
                Ok(_) => return Err("the other end sent something else than an answer".to_owned()),
                // It had no place for the connection at that moment.
                Err(error) if left > 0 && is_closed(&error) => {
                    let inner = self.lock();
                    // No code panics while it holds the lock.
                    let _ = self.changed.wait_timeout_while(inner, pause, |inner| !inner.stopped);
                    pause *= 2;
                }
                Err(error) => return Err(lost(&error)),
            }
        }
        Err("the other end takes no connection".to_owned())
    }
}

impl Up {
    fn end(&self) {
        self.pairs.end();
        let _ = self.request.shutdown(Shutdown::Both);
    }
}

/// Asks one user of the peer.
fn ask_one(way: &dyn Way, service: &str) -> Result<Arc<TcpStream>, String> {
    let request = Request::Use {
        service: service.to_owned(),
    };
    let stream = way
        .connect(Connection::Request)
        .map_err(|error| error.words().to_owned())?;
    message::write(&mut &*stream, &request.to_bytes()).map_err(|error| lost(&error))?;
    match answer(&stream).map_err(|error| lost(&error))? {
        Answer::Granted => Ok(stream),
        Answer::Refused(_, why) => Err(plain(&why)),
        _ => Err("the other end sent something else than an answer".to_owned()),
    }
}

/// Reads the first message of the other end.
fn answer(stream: &TcpStream) -> io::Result<Answer> {
    stream.set_read_timeout(Some(ANSWER))?;
    Ok(Answer::parse(&message::read(&mut &*stream)?)?)
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => "the other end does not answer in time".to_owned(),
        _ if is_closed(error) => "the other end has closed the connection".to_owned(),
        _ => format!("the connection is lost ({error})"),
    }
}
