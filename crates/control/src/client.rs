//! The client's side of the control socket: blocking, one connection for each request.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::server::MAX_PATH;
use super::{Answer, ControlCommand, MAX_ANSWER, Refusal};
use crate::status::{Document, is_public};

/// Time limit of an answer that needs no peer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time limit of the end of a daemon.
const STOP: Duration = Duration::from_secs(20);

/// Sends `command` to the daemon at the socket `path` and reads its answer as a `T`.
///
/// # Errors
/// [`ControlError`], one line that says what to do.
pub fn call<T: Document>(path: &Path, command: &ControlCommand) -> Result<T, ControlError> {
    typed(path, call_raw(path, command)?)
}

/// A document in one of its two forms.
#[derive(Clone, Debug)]
pub enum Visible<T, P> {
    /// That for owners of the daemon.
    Full(T),
    /// That for all users.
    Public(P),
}

/// As [`call`], for a document that has a form for all users.
///
/// # Errors
/// [`ControlError`]
pub fn call_visible<T: Document, P: Document>(
    path: &Path,
    command: &ControlCommand,
) -> Result<Visible<T, P>, ControlError> {
    let document = call_raw(path, command)?;
    match schema(&document) == Some(P::SCHEMA) {
        true => typed(path, document).map(Visible::Public),
        false => typed(path, document).map(Visible::Full),
    }
}

/// As [`call`], but returns the document as it is received.
///
/// # Errors
/// [`ControlError`]
pub fn call_raw(path: &Path, command: &ControlCommand) -> Result<Value, ControlError> {
    Call::open(path, command)?.answer()
}

/// As [`call`], with the document as it is received beside it.
///
/// # Errors
/// [`ControlError`]
pub fn call_with_raw<T: Document>(path: &Path, command: &ControlCommand) -> Result<(T, Value), ControlError> {
    let document = call_raw(path, command)?;
    Ok((typed(path, document.clone())?, document))
}

/// As [`call`], then waits until the daemon closes the connection. After [`ControlCommand::Down`]
/// the daemon closes it when it has stopped.
///
/// # Errors
/// [`ControlError`]; also [`ControlError::Timeout`] if the daemon does not stop.
pub fn call_and_wait<T: Document>(path: &Path, command: &ControlCommand) -> Result<T, ControlError> {
    let mut call = Call::open(path, command)?;
    let document = typed(path, call.answer()?)?;
    call.wait_for_end()?;
    Ok(document)
}

/// The events of a daemon, as they come.
#[derive(Debug)]
pub struct EventStream {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// The daemon has sent an event.
    answered: bool,
}

impl EventStream {
    /// Asks the daemon at the socket `path` for its events.
    ///
    /// # Errors
    /// [`ControlError`]
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        Self::open_with(path, &ControlCommand::Events {})
    }

    /// Asks the daemon at the socket `path` for the answers to `command`, which are a stream:
    /// [`ControlCommand::Events`] or [`TransferCommand::Receive`](crate::TransferCommand::Receive).
    ///
    /// # Errors
    /// [`ControlError`]
    pub fn open_with(path: &Path, command: &ControlCommand) -> Result<Self, ControlError> {
        let call = Call::open(path, command)?;
        Ok(Self {
            path: path.to_owned(),
            stream: call.stream,
            answered: false,
        })
    }

    /// Returns another handle of the connection. Its shutdown ends a wait for an event.
    ///
    /// # Errors
    /// [`ControlError`]
    pub fn connection(&self) -> Result<UnixStream, ControlError> {
        let connection = self.stream.get_ref().try_clone();
        connection.map_err(|source| failed(&self.path, source))
    }

    /// Waits for the next event, a document `weft.event/1` or `weft.public-event/1`, or that of the
    /// command; `None` if the daemon has ended the connection. The first one has the time limit of an answer,
    /// as a daemon sends it at once.
    ///
    /// # Errors
    /// [`ControlError`]; [`ControlError::Refused`] is the last of its stream; also [`ControlError::Timeout`] if the first event does not come.
    pub fn next_event(&mut self) -> Result<Option<Value>, ControlError> {
        let event = match read_line(&self.path, &mut self.stream) {
            Ok(line) if line.is_empty() => return Ok(None),
            Ok(line) => parse(&self.path, &line)?,
            Err(ControlError::Stopped(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !self.answered {
            // A node without changes is silent for long.
            let unlimited = self.stream.get_ref().set_read_timeout(None);
            unlimited.map_err(|source| failed(&self.path, source))?;
            self.answered = true;
        }
        Ok(Some(event))
    }
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No daemon listens.
    #[error("no daemon is running: {}; `weft create`, `weft join` or `weft up` starts one, and --state names the directory of another", .0.display())]
    NotRunning(PathBuf),
    /// The socket, or its directory, belongs to another user.
    #[error("permission denied: the daemon belongs to {owner}: {}; use {instead}", .0.display(), owner = owner(.0).0, instead = owner(.0).1)]
    Permission(PathBuf),
    /// The answer, or the end of the daemon, did not arrive within the time limit.
    #[error("the daemon does not answer in time: {}; look at its log", .0.display())]
    Timeout(PathBuf),
    /// An answer that cannot be parsed.
    #[error("the answer cannot be read ({why}): {}; is the daemon of the same version?", .path.display())]
    BadAnswer {
        /// The socket.
        path: PathBuf,
        /// The problem with it.
        why: String,
    },
    /// The path is too long for a Unix socket.
    #[error("the path is longer than {MAX_PATH} bytes: {}; choose a shorter state directory", .0.display())]
    PathTooLong(PathBuf),
    /// The daemon ended before it answered.
    #[error("the daemon has stopped: {}; its log says why, and `weft up` starts it", .0.display())]
    Stopped(PathBuf),
    /// Another error of the system.
    #[error("the daemon cannot be asked ({source}): {}; check the path", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The owner of a daemon by its socket, and how to act as that user. A directory that this user
/// cannot read usually belongs to root.
fn owner(socket: &Path) -> (&'static str, &'static str) {
    use std::os::unix::fs::MetadataExt as _;
    let directory = socket.parent().and_then(|directory| std::fs::metadata(directory).ok());
    match directory.map(|directory| directory.uid()) {
        None | Some(0) => ("root", "sudo"),
        Some(_) => ("another user", "that user's account, or sudo"),
    }
}

/// A request that was sent.
struct Call<'a> {
    path: &'a Path,
    stream: BufReader<UnixStream>,
}

impl<'a> Call<'a> {
    fn open(path: &'a Path, command: &ControlCommand) -> Result<Self, ControlError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(ControlError::PathTooLong(path.to_owned()));
        }
        let failed = |source| failed(path, source);
        let mut stream = UnixStream::connect(path).map_err(failed)?;
        let extra = match command {
            ControlCommand::Ping { timeout_ms, .. } => Duration::from_millis((*timeout_ms).into()),
            _ => Duration::ZERO,
        };
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE + extra)).map_err(failed)?;
        match stream.write_all(command.to_request().as_bytes()) {
            // The server closed the connection before the request; its reason can still be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            sent => sent.map_err(failed)?,
        }
        Ok(Self {
            path,
            stream: BufReader::new(stream),
        })
    }

    fn answer(&mut self) -> Result<Value, ControlError> {
        let line = read_line(self.path, &mut self.stream)?;
        match line.is_empty() {
            true => Err(self.bad("the connection was closed")),
            false => parse(self.path, &line),
        }
    }

    fn wait_for_end(&mut self) -> Result<(), ControlError> {
        let failed = |source| failed(self.path, source);
        self.stream.get_ref().set_read_timeout(Some(STOP)).map_err(failed)?;
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.bad("more than one line")),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn bad(&self, why: impl ToString) -> ControlError {
        bad(self.path, why)
    }
}

/// Reads a line with its newline; an empty one at the end of the connection.
fn read_line(path: &Path, stream: &mut BufReader<UnixStream>) -> Result<Vec<u8>, ControlError> {
    let mut line = Vec::new();
    let mut bounded = stream.take(MAX_ANSWER as u64);
    bounded
        .read_until(b'\n', &mut line)
        .map_err(|source| failed(path, source))?;
    Ok(line)
}

fn parse(path: &Path, line: &[u8]) -> Result<Value, ControlError> {
    match serde_json::from_slice(line).map_err(|error| bad(path, error))? {
        Answer {
            ok: true,
            data: Some(data),
            ..
        } => Ok(data),
        Answer {
            ok: false,
            error: Some(refusal),
            ..
        } => Err(refusal.into()),
        Answer { .. } => Err(bad(path, "neither done nor refused")),
    }
}

fn typed<T: Document>(path: &Path, document: Value) -> Result<T, ControlError> {
    match schema(&document) {
        Some(schema) if is_public(schema) && !is_public(T::SCHEMA) => Err(Refusal::owners_only().into()),
        Some(schema) if schema == T::SCHEMA => serde_json::from_value(document).map_err(|error| bad(path, error)),
        schema => Err(bad(
            path,
            format!("{} where {} is expected", schema.unwrap_or("no schema"), T::SCHEMA),
        )),
    }
}

fn schema(document: &Value) -> Option<&str> {
    document.get("schema").and_then(Value::as_str)
}

#[expect(clippy::needless_pass_by_value, reason = "takes errors and texts alike")]
fn bad(path: &Path, why: impl ToString) -> ControlError {
    ControlError::BadAnswer {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

fn failed(path: &Path, source: io::Error) -> ControlError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning(path)
        }
        io::ErrorKind::PermissionDenied => ControlError::Permission(path),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ControlError::Stopped(path),
        // A read that exceeds its timeout returns WouldBlock.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Timeout(path),
        _ => ControlError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_the_first_event_has_a_time_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut events = EventStream::open(&path).unwrap();
        let limit = |events: &EventStream| events.stream.get_ref().read_timeout().unwrap();
        assert_eq!(
            limit(&events),
            Some(PATIENCE),
            "the daemon may be one that never answers"
        );
        let (mut daemon, _) = listener.accept().unwrap();
        daemon.write_all(b"{\"ok\":true,\"data\":{}}\n").unwrap();
        assert!(events.next_event().unwrap().is_some());
        assert_eq!(limit(&events), None, "a node without changes is silent for long");
    }
}
