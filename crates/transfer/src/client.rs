//! The socket of the process of a user, at the side of the verbs: blocking, one connection for each request.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::api::{Refusal, Request, Transfers};

/// The longest path of a socket, in bytes. The system allows 107.
const MAX_PATH: usize = 100;
/// The longest answer, in bytes.
const MAX_ANSWER: u64 = 256 << 20;
/// Time limit of an answer: the process may have to ask the daemon, and to wait for the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// An error of a request. Its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens.
    #[error("the process that moves files does not run: {}; a verb such as `weft transfers` starts it", .0.display())]
    NotRunning(PathBuf),
    /// The path of the socket exceeds its limit, and `XDG_RUNTIME_DIR` gives no shorter one.
    #[error(
        "the path of the socket is longer than {MAX_PATH} bytes, and XDG_RUNTIME_DIR names no directory for it: {}; choose a shorter state directory", .0.display()
    )]
    PathTooLong(PathBuf),
    /// An error of the system, also that the answer did not come in time.
    #[error("the process that moves files cannot be asked ({source}): {}; transferd.log beside it may say why", .path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The request was not carried out.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The bytes of the process are not an answer.
    #[error("the answer of the process that moves files cannot be read ({why}): {}; is it of the same version?", .path.display())]
    BadAnswer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Returns the path of the socket of the process whose state is in `directory`: `socket` there, or in
/// `$XDG_RUNTIME_DIR/weft` if that path is too long for a socket.
///
/// # Errors
/// [`ClientError::PathTooLong`] if both are too long.
pub fn socket(directory: &Path) -> Result<PathBuf, ClientError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    socket_in(directory, runtime.as_deref())
}

fn socket_in(directory: &Path, runtime: Option<&Path>) -> Result<PathBuf, ClientError> {
    let fits = |path: &PathBuf| path.as_os_str().len() <= MAX_PATH;
    let beside = directory.join("socket");
    if fits(&beside) {
        return Ok(beside);
    }
    // Each state directory has a socket of its own.
    let name = blake3::hash(directory.as_os_str().as_bytes()).to_hex();
    let short = name.get(..16).unwrap_or_default();
    let there = runtime
        .filter(|runtime| runtime.is_absolute())
        .map(|runtime| runtime.join("weft").join(format!("transfer-{short}")));
    there.filter(fits).ok_or(ClientError::PathTooLong(beside))
}

/// Sends `request` to the process at the socket `path`, and reads its answer.
///
/// # Errors
/// [`ClientError`]
pub fn call<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, ClientError> {
    let mut stream = open(path, request)?;
    match read(path, &mut stream)? {
        Some(data) => Ok(data),
        None => Err(bad(path, "the connection was closed")),
    }
}

/// Calls `each` with a transfer at each change, until it returns false or the process ends the connection: the
/// transfer has ended, or waits for the user, or the process has ended.
///
/// # Errors
/// [`ClientError`]
pub fn follow(path: &Path, id: &str, each: &mut dyn FnMut(Transfers) -> bool) -> Result<(), ClientError> {
    let mut stream = open(path, &Request::Follow { id: id.to_owned() })?;
    while let Some(transfers) = read(path, &mut stream)? {
        if !each(transfers) {
            return Ok(());
        }
        // The first one comes at once; a transfer may then be silent for long.
        let unlimited = stream.get_ref().set_read_timeout(None);
        unlimited.map_err(|source| failed(path, source))?;
    }
    Ok(())
}

fn open(path: &Path, request: &Request) -> Result<BufReader<UnixStream>, ClientError> {
    let failed = |source| failed(path, source);
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    match stream.write_all(&line) {
        // The process has refused the connection; its reason can still be read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent.map_err(failed)?,
    }
    Ok(BufReader::new(stream))
}

#[derive(Deserialize)]
struct Answer<T> {
    ok: bool,
    data: Option<T>,
    error: Option<Refusal>,
}

/// Reads an answer; `None` at the end of the connection.
fn read<T: DeserializeOwned>(path: &Path, stream: &mut BufReader<UnixStream>) -> Result<Option<T>, ClientError> {
    let mut line = Vec::new();
    match stream.take(MAX_ANSWER).read_until(b'\n', &mut line) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        read => read.map_err(|source| failed(path, source))?,
    };
    if line.is_empty() {
        return Ok(None);
    }
    let answer: Answer<T> = serde_json::from_slice(&line).map_err(|error| bad(path, &error.to_string()))?;
    match answer {
        Answer {
            ok: true,
            data: Some(data),
            ..
        } => Ok(Some(data)),
        Answer {
            ok: false,
            error: Some(refusal),
            ..
        } => Err(refusal.into()),
        Answer { .. } => Err(bad(path, "neither done nor refused")),
    }
}

fn bad(path: &Path, why: &str) -> ClientError {
    ClientError::BadAnswer {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn failed(path: &Path, source: io::Error) -> ClientError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused => {
            ClientError::NotRunning(path)
        }
        // A read that exceeds its timeout returns WouldBlock.
        io::ErrorKind::WouldBlock => ClientError::Io {
            path,
            source: io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time"),
        },
        _ => ClientError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn a_long_path_has_its_socket_elsewhere() {
        let short = Path::new("/home/a/.local/state/weft/transfer");
        assert_eq!(socket_in(short, None).unwrap(), short.join("socket"));
        let long = PathBuf::from("/home").join("x".repeat(100));
        let runtime = Path::new("/run/user/1000");
        let there = socket_in(&long, Some(runtime)).unwrap();
        assert!(there.starts_with("/run/user/1000/weft") && there.as_os_str().len() <= MAX_PATH);
        assert_ne!(there, socket_in(&long.join("y"), Some(runtime)).unwrap());
        for runtime in [None, Some(Path::new("run")), Some(&*long)] {
            let error = socket_in(&long, runtime).unwrap_err();
            assert!(matches!(error, ClientError::PathTooLong(_)), "{error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
