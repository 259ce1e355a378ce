//! The daemon's side of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::clients::{Audience, Client, Clients, Owners};
use super::stream::{self, Subscriber};
use super::{ControlCommand, ErrorCode, MAX_CONNECTIONS, MAX_REQUEST, Refusal, answer_line};
use crate::status::Document;

/// The longest path of a Unix socket, in bytes (`sun_path` without its terminating zero).
pub(super) const MAX_PATH: usize = 107;

/// How long a connection may stay without a complete request.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit of the daemon's answer; longer than that of any ping.
const ANSWER: Duration = Duration::from_secs(20);
/// Time limit for a client to read an answer.
pub(super) const WRITE: Duration = Duration::from_secs(5);
/// Time limit for the possible owner of an old socket to accept a connection.
const PROBE: Duration = Duration::from_secs(1);
/// The pause after the system refuses to accept, for instance because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long [`ControlServer::close`] waits for clients.
const CLOSE: Duration = Duration::from_secs(1);

/// The users that may connect, and the owners among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// The owners besides root and the user of the daemon.
    pub owners: Owners,
    /// Whether all users may connect (mode 0666): [`Audience`] then limits what each may request.
    /// Otherwise only root and the user of the daemon may (mode 0600).
    pub all_users: bool,
}

/// The socket, and the tasks that serve it. They run on the runtime on which [`bind`](Self::bind)
/// ran.
///
/// A drop closes every connection and removes the socket; [`close`](Self::close) first sends the
/// answers that are pending.
#[derive(Debug)]
pub struct ControlServer {
    requests: mpsc::Receiver<ControlRequest>,
    clients: Arc<Clients>,
    accept: JoinHandle<()>,
    stop: watch::Sender<bool>,
    socket: SocketFile,
}

impl ControlServer {
    /// Listens at `path` for the users that `access` permits. A socket of a daemon that no longer runs is replaced: the
    /// caller holds the lock of the state directory, so no other process does the same meanwhile.
    ///
    /// # Errors
    /// [`BindError`]; a socket at which a process answers is left unchanged.
    pub async fn bind(path: &Path, access: Access) -> Result<Self, BindError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(BindError::PathTooLong(path.to_owned()));
        }
        remove_stale(path).await?;
        let failed = |source| BindError::Io {
            path: path.to_owned(),
            source,
        };
        let listener = UnixListener::bind(path).map_err(failed)?;
        let socket = SocketFile::new(path).map_err(failed)?;
        let mode = if access.all_users { 0o666 } else { 0o600 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        let (sender, requests) = mpsc::channel(MAX_CONNECTIONS);
        let (stop, stopped) = watch::channel(false);
        let clients = Clients::new(access.owners, socket.owner);
        let accept = tokio::spawn(accept(listener, Arc::clone(&clients), sender, stopped));
        Ok(Self {
            requests,
            clients,
            accept,
            stop,
            socket,
        })
    }

    /// Returns the next request; never `None` while the server lives. Safe to cancel.
    pub async fn next(&mut self) -> Option<ControlRequest> {
        self.requests.recv().await
    }

    /// Makes `operator` the operator for each connection from now on.
    pub fn set_operator(&self, operator: Option<u32>) {
        self.clients.set_operator(operator);
    }

    /// Closes every connection after the given answers are written, or after one second, and
    /// removes the socket. A client of `down` takes the end of its connection for the end of the
    /// daemon, so this is the last step.
    pub async fn close(mut self) {
        self.requests.close();
        while self.requests.try_recv().is_ok() {}
        self.stop.send_replace(true);
        // A timeout means that a client does not read; the drop ends its connection.
        let _ = timeout(CLOSE, &mut self.accept).await;
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.accept.abort();
        self.socket.remove();
    }
}

/// One request, which is answered once.
#[derive(Debug)]
pub struct ControlRequest {
    /// The command.
    pub command: ControlCommand,
    /// Accepts the answer, now or later. If it is dropped unused, the client is refused.
    pub reply: Reply,
}

/// Accepts the answer to one request.
#[derive(Debug)]
pub struct Reply {
    to: oneshot::Sender<Result<Answered, Refusal>>,
    audience: Audience,
    uid: u32,
}

/// What the daemon answers.
#[derive(Debug)]
enum Answered {
    /// One document.
    Once(Value),
    /// The events to come.
    Stream(mpsc::Receiver<Result<Value, Refusal>>),
}

impl Reply {
    /// Answers with a document, in the form that the client may read. A client that has disconnected
    /// is ignored.
    pub fn ok(self, document: &impl Document) {
        let answer = match self.audience {
            Audience::Owners => serde_json::to_value(document)
                .map_err(|error| Refusal::new(ErrorCode::Other, format!("the answer cannot be written: {error}"))),
            Audience::AllUsers => document.for_all_users().ok_or_else(Refusal::owners_only),
        };
        let _ = self.to.send(answer.map(Answered::Once));
    }

    /// Those whose form of the document the client gets.
    #[must_use]
    pub const fn audience(&self) -> Audience {
        self.audience
    }

    /// The user of the client, as the kernel recorded it when the client connected.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Answers with events, until the subscriber or the client ends.
    #[must_use]
    pub fn stream(self) -> Subscriber {
        let (subscriber, events) = Subscriber::new(self.audience);
        let _ = self.to.send(Ok(Answered::Stream(events)));
        subscriber
    }

    /// Answers with a document that is JSON already, and that only owners may read.
    pub fn json(self, document: Value) {
        let answer = match self.audience {
            Audience::Owners => Ok(document),
            Audience::AllUsers => Err(Refusal::owners_only()),
        };
        let _ = self.to.send(answer.map(Answered::Once));
    }

    /// Answers that the request cannot be carried out.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.to.send(Err(refusal));
    }
}

/// The reason why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A running process answers there.
    #[error("another daemon answers at {}; stop it with `weft down`", .0.display())]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("{} is no socket; move it away", .0.display())]
    NotASocket(PathBuf),
    /// The path exceeds the limit of a Unix socket.
    #[error("the path {} is longer than {MAX_PATH} bytes; choose a shorter state directory", .0.display())]
    PathTooLong(PathBuf),
    /// Another error of the system.
    #[error("the control socket {} cannot be made ({source}); check its directory", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The file of the socket, recognised by device and inode.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// The user that created it.
    owner: u32,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
        })
    }

    /// Removes it, unless another file has replaced it.
    fn remove(&self) {
        let same = Self::new(&self.path).is_ok_and(|now| now.identity == self.identity);
        if same {
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let io = |source| BindError::Io {
        path: path.to_owned(),
        source,
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match timeout(PROBE, UnixStream::connect(path)).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(io),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A socket with a full queue (WouldBlock) has an owner as well.
        Ok(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(io(error)),
        Ok(_) | Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}

async fn accept(
    listener: UnixListener,
    clients: Arc<Clients>,
    requests: mpsc::Sender<ControlRequest>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "control socket: accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        match clients.admit(&stream) {
            Ok(client) => drop(connections.spawn(serve(stream, client, requests.clone(), stopped.clone()))),
            // Only what fits into the socket's buffer is sent; the server does not wait for this
            // client.
            Err(refusal) => drop(stream.try_write(answer_line(Err(refusal)).as_bytes())),
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Answers one client until it disconnects, exceeds the idle time, or breaks a rule.
async fn serve(
    stream: UnixStream,
    client: Client,
    requests: mpsc::Sender<ControlRequest>,
    mut stopped: watch::Receiver<bool>,
) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than allowed distinguishes a line that is too long from a line of the
        // maximum length.
        let mut bounded = (&mut read).take(MAX_REQUEST as u64 + 1);
        let complete = tokio::select! {
            read = timeout(IDLE, bounded.read_until(b'\n', &mut line)) => read,
            _ = stopped.wait_for(|stopped| *stopped) => return,
        };
        if !matches!(complete, Ok(Ok(len)) if len > 0) {
            return;
        }
        let too_long = line.len() > MAX_REQUEST;
        let answer = if too_long {
            Err(Refusal::new(
                ErrorCode::TooLong,
                format!("a request has at most {MAX_REQUEST} bytes"),
            ))
        } else {
            match answer(&line, &client, &requests).await {
                Ok(Answered::Stream(events)) => return stream::serve(read, write, events, stopped).await,
                Ok(Answered::Once(document)) => Ok(document),
                Err(refusal) => Err(refusal),
            }
        };
        let written = timeout(WRITE, write.write_all(answer_line(answer).as_bytes())).await;
        if too_long || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

/// Passes one request to the daemon and waits for its answer.
async fn answer(line: &[u8], client: &Client, requests: &mpsc::Sender<ControlRequest>) -> Result<Answered, Refusal> {
    let command = ControlCommand::from_request(line)?;
    client.permit(&command, Instant::now())?;
    let gone = || Refusal::new(ErrorCode::Unavailable, "the daemon is about to end");
    let (reply, answer) = oneshot::channel();
    let request = ControlRequest {
        command,
        reply: Reply {
            to: reply,
            audience: client.audience(),
            uid: client.uid(),
        },
    };
    requests.send(request).await.map_err(|_| gone())?;
    match timeout(ANSWER, answer).await {
        Ok(answer) => answer.unwrap_or_else(|_| Err(gone())),
        Err(_) => Err(Refusal::new(
            ErrorCode::Unavailable,
            "the daemon is too busy to answer; look at its log",
        )),
    }
}
