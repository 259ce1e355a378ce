//! The socket of the process of a user, at the side of the process: a thread for each client, blocking.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use serde::Serialize;
use weft_os::process::{effective_uid, peer_uid};

use crate::api::{Answer, Refusal, RefusalCode, Request, Transfers};

/// Clients at a time.
pub const MAX_CLIENTS: usize = 16;
/// Clients that follow a transfer at a time. Others find a place while all of these wait.
pub const MAX_FOLLOWERS: usize = 12;
/// The longest request in bytes, with its newline.
pub const MAX_REQUEST: usize = 1 << 20;

/// How long a client may stay without a complete request.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit for a client to read an answer.
const WRITE: Duration = Duration::from_secs(5);
/// The pause after the system refuses to accept, for instance because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What carries requests out.
pub trait Handler: Send + Sync {
    /// Carries a request out. [`Request::Follow`] never comes here. After a [`Request::Stop`] that is carried out the
    /// server ends.
    ///
    /// # Errors
    /// A [`Refusal`]
    fn handle(&self, request: Request) -> Result<Answer, Refusal>;

    /// Calls `each` with a transfer at each change, until it has ended or waits for the user, or `each` returns false:
    /// the client is gone. To find that out it is called every few seconds, too; what did not change is not sent.
    ///
    /// # Errors
    /// A [`Refusal`]
    fn follow(&self, id: &str, each: &mut dyn FnMut(Transfers) -> bool) -> Result<(), Refusal>;
}

/// The socket. A drop removes it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket.
    identity: (u64, u64),
    stopper: Stopper,
}

/// Ends a [`Server`] from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    stopped: AtomicBool,
    listener: UnixListener,
}

impl Stopper {
    /// Lets [`Server::serve`] return. Clients that are connected get their answers.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Release);
        // What waits for a client ends then (unix(7)).
        let _ = shutdown(&self.0.listener, Shutdown::Both);
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }
}

impl Server {
    /// Listens at `path` with mode 0600. Its directory is made with mode 0700 if it does not exist. A socket that is
    /// there is replaced: the caller holds the lock of this user, so it belongs to a process that has ended.
    ///
    /// # Errors
    /// That of the system; `PermissionDenied` if the directory is of another user or open to others; `AlreadyExists` if
    /// the path is no socket.
    pub fn bind(path: &Path) -> io::Result<Self> {
        make_private(path.parent().unwrap_or(Path::new(".")))?;
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => {
                let why = format!("{} is no socket; move it away", path.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let stop = Stop {
            stopped: AtomicBool::new(false),
            listener: listener.try_clone()?,
        };
        Ok(Self {
            identity: identity(path)?,
            path: path.to_owned(),
            listener,
            stopper: Stopper(Arc::new(stop)),
        })
    }

    /// Returns what ends this server.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Serves clients until a [`Request::Stop`], or a [`Stopper`], ends it. A client that is connected then is not
    /// waited for.
    #[expect(clippy::needless_pass_by_value, reason = "each thread of a client has it")]
    pub fn serve(self, handler: Arc<dyn Handler>) {
        let places = Arc::new(Places::default());
        while !self.stopper.is_stopped() {
            let accepted = self.listener.accept();
            if self.stopper.is_stopped() {
                return;
            }
            let served = accepted.and_then(|(stream, _)| self.admit(stream, &places, &handler));
            if let Err(error) = served {
                tracing::debug!(%error, "a client of the transfers cannot be served");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Starts the thread of a client, if it is of this user or root and a place is left.
    fn admit(&self, stream: UnixStream, places: &Arc<Places>, handler: &Arc<dyn Handler>) -> io::Result<()> {
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(WRITE))?;
        let uid = peer_uid(&stream)?;
        let mut client = Client {
            stream,
            stopper: self.stopper.clone(),
            handler: Arc::clone(handler),
            places: Arc::clone(places),
        };
        if uid != 0 && uid != effective_uid() {
            drop(client.answer(Err(refused(
                "this process serves the user that it belongs to, and root",
            ))));
            return Ok(());
        }
        let Some(place) = places.clients.take(MAX_CLIENTS) else {
            let why = format!("{MAX_CLIENTS} commands are connected already; end one, or try again");
            drop(client.answer(Err(refused(&why))));
            return Ok(());
        };
        let thread = thread::Builder::new().name("weft-client".to_owned());
        thread.spawn(move || {
            let _place = place;
            // The client is gone, or too slow.
            let _ = client.serve();
        })?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Another process may have replaced it.
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Makes a directory of this user alone, or makes sure that it is one: in any other one, others could put their own
/// socket into the place of this one.
///
/// # Errors
/// That of the system; `PermissionDenied` if it is of another user or open to others.
pub fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == effective_uid() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!(
        "{} is no directory of this user alone; remove it, or `chmod 700` it",
        directory.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// How many clients there are.
#[derive(Debug, Default)]
struct Places {
    clients: Count,
    followers: Count,
}

#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicUsize>);

/// A place, until it is dropped.
struct Place(Count);

impl Count {
    fn take(&self, most: usize) -> Option<Place> {
        let place = Place(self.clone());
        (self.0.fetch_add(1, Ordering::AcqRel) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One connection.
struct Client {
    stream: UnixStream,
    handler: Arc<dyn Handler>,
    stopper: Stopper,
    places: Arc<Places>,
}

impl Client {
    /// Answers requests until the client disconnects, exceeds the idle time, or breaks a rule.
    fn serve(&mut self) -> io::Result<()> {
        let mut read = BufReader::new(self.stream.try_clone()?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut read).take(MAX_REQUEST as u64);
            bounded.read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                let why = format!("a request is one line of at most {MAX_REQUEST} bytes");
                return self.answer(Err(Refusal {
                    code: RefusalCode::BadRequest,
                    message: why,
                }));
            }
            match serde_json::from_slice(&line) {
                Ok(Request::Follow { id }) => return self.follow(&id),
                Ok(request) => {
                    let stops = request == Request::Stop {};
                    let answer = self.handler.handle(request);
                    let stops = stops && answer.is_ok();
                    let written = self.answer(answer);
                    if stops {
                        self.stopper.stop();
                    }
                    written?;
                }
                Err(error) => self.answer(Err(Refusal {
                    code: RefusalCode::BadRequest,
                    message: format!("the request is none that this version knows: {error}"),
                }))?,
            }
        }
    }

    fn follow(&mut self, id: &str) -> io::Result<()> {
        let Some(_place) = self.places.followers.take(MAX_FOLLOWERS) else {
            let why = format!("{MAX_FOLLOWERS} commands follow transfers already; end one, or try again");
            return self.answer(Err(refused(&why)));
        };
        let mut last = None;
        let handler = Arc::clone(&self.handler);
        let followed = handler.follow(id, &mut |transfers| {
            if self.is_gone() {
                return false;
            }
            if last.as_ref() == Some(&transfers) {
                return true;
            }
            last = Some(transfers.clone());
            self.answer(Ok(transfers.into())).is_ok()
        });
        match followed {
            Ok(()) => Ok(()),
            Err(refusal) => self.answer(Err(refusal)),
        }
    }

    /// Whether the client has closed the connection.
    fn is_gone(&self) -> bool {
        let mut socket = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        poll(&mut socket, Some(&at_once)).is_err() || socket[0].revents().intersects(closed)
    }

    fn answer(&mut self, answer: Result<Answer, Refusal>) -> io::Result<()> {
        let answer = match answer {
            Ok(data) => Line {
                ok: true,
                data: Some(data),
                error: None,
            },
            Err(refusal) => Line {
                ok: false,
                data: None,
                error: Some(refusal),
            },
        };
        let mut line = serde_json::to_vec(&answer).map_err(io::Error::from)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }
}

#[derive(Serialize)]
struct Line {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Answer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

fn refused(why: &str) -> Refusal {
    Refusal {
        code: RefusalCode::Other,
        message: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
