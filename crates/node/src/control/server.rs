//! The daemon's side of the control socket.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::{ControlCommand, ErrorCode, MAX_CONNECTIONS, MAX_REQUEST, Refusal, answer_line};

/// The longest path of a Unix socket, in bytes (`sun_path` without its terminating zero).
pub(super) const MAX_PATH: usize = 107;

/// How long a connection may stay without a complete request.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit of the daemon's answer; longer than that of any ping.
const ANSWER: Duration = Duration::from_secs(20);
/// Time limit for a client to read an answer.
const WRITE: Duration = Duration::from_secs(5);
/// Time limit for the possible owner of an old socket to accept a connection.
const PROBE: Duration = Duration::from_secs(1);
/// The pause after the system refuses to accept, for instance because no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long [`ControlServer::close`] waits for clients.
const CLOSE: Duration = Duration::from_secs(1);

/// The socket, and the tasks that serve it. They run on the runtime on which [`bind`](Self::bind)
/// ran.
///
/// A drop closes every connection and removes the socket; [`close`](Self::close) first sends the
/// answers that are pending.
#[derive(Debug)]
pub struct ControlServer {
    requests: mpsc::Receiver<ControlRequest>,
    accept: JoinHandle<()>,
    stop: watch::Sender<bool>,
    socket: SocketFile,
}

impl ControlServer {
    /// Listens at `path`, mode 0600. A socket of a daemon that no longer runs is replaced: the
    /// caller holds the lock of the state directory, so no other process does the same meanwhile.
    ///
    /// # Errors
    /// [`BindError`]; a socket at which a process answers is left unchanged.
    pub async fn bind(path: &Path) -> Result<Self, BindError> {
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
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let (sender, requests) = mpsc::channel(MAX_CONNECTIONS);
        let (stop, stopped) = watch::channel(false);
        let owner = socket.owner;
        let accept = tokio::spawn(accept(listener, owner, sender, stopped));
        Ok(Self {
            requests,
            accept,
            stop,
            socket,
        })
    }

    /// Returns the next request; never `None` while the server lives. Safe to cancel.
    pub async fn next(&mut self) -> Option<ControlRequest> {
        self.requests.recv().await
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
pub struct Reply(oneshot::Sender<Result<Value, Refusal>>);

impl Reply {
    /// Answers with a document. A client that has disconnected is ignored.
    pub fn ok(self, document: &impl Serialize) {
        let answer = serde_json::to_value(document)
            .map_err(|error| Refusal::new(ErrorCode::Other, format!("the answer cannot be written: {error}")));
        let _ = self.0.send(answer);
    }

    /// Answers that the request cannot be carried out.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.0.send(Err(refusal));
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
    /// The user that created it, and that may connect.
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
    owner: u32,
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
        if let Some(refusal) = turned_away(&stream, owner, connections.len()) {
            // Only what fits into the socket's buffer is sent; the server does not wait for this
            // client.
            let _ = stream.try_write(answer_line(Err(refusal)).as_bytes());
            continue;
        }
        connections.spawn(serve(stream, requests.clone(), stopped.clone()));
    }
    while connections.join_next().await.is_some() {}
}

/// The reason why the connection is not served, if there is one.
fn turned_away(stream: &UnixStream, owner: u32, connections: usize) -> Option<Refusal> {
    let uid = stream.peer_cred().map(|peer| peer.uid());
    if !uid.is_ok_and(|uid| uid == 0 || uid == owner) {
        return Some(Refusal::new(
            ErrorCode::Forbidden,
            "only the daemon's own user and root may ask",
        ));
    }
    (connections >= MAX_CONNECTIONS).then(|| {
        Refusal::new(
            ErrorCode::Busy,
            format!("{MAX_CONNECTIONS} clients are connected already; try again"),
        )
    })
}

/// Answers one client until it disconnects, exceeds the idle time, or breaks a rule.
async fn serve(stream: UnixStream, requests: mpsc::Sender<ControlRequest>, mut stopped: watch::Receiver<bool>) {
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
            answer(&line, &requests).await
        };
        let written = timeout(WRITE, write.write_all(answer_line(answer).as_bytes())).await;
        if too_long || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

/// Passes one request to the daemon and waits for its answer.
async fn answer(line: &[u8], requests: &mpsc::Sender<ControlRequest>) -> Result<Value, Refusal> {
    let command = ControlCommand::from_request(line)?;
    let gone = || Refusal::new(ErrorCode::Unavailable, "the daemon is about to end");
    let (reply, answer) = oneshot::channel();
    let request = ControlRequest {
        command,
        reply: Reply(reply),
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
