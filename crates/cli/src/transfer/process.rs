//! The process of the user: `weft transferd`, which the verbs start and then ask.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setsid;
use serde_json::Value;
use weft_config::log::{LogFilter, LogFormat};
use weft_node::logging;
use weft_os::process::{effective_uid, peer_pid, peer_uid};
use weft_store::state::StatePaths;
use weft_transfer::api::Request;
use weft_transfer::client::{self, ClientError};
use weft_transfer::process::{self, Options};
use weft_transfer::server::make_private;

use super::TransferFailure;
use crate::failure::Failure;
use crate::human;
use crate::output::Out;
use crate::start::{PROGRAM, Place};

/// How long the process has until it answers.
const START: Duration = Duration::from_secs(10);
/// How long another process that two verbs started at once has, after this one's has ended.
const OF_ANOTHER: Duration = Duration::from_secs(2);
/// The interval between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// The length from which on the log begins again, in bytes.
const LONGEST_LOG: u64 = 1 << 20;
/// The end of the log that is searched for its last line.
const END_OF_LOG: u64 = 4096;

/// Returns the socket of the process, which is started if it does not answer.
pub(super) fn ensure(place: &Place) -> Result<PathBuf, Failure> {
    let directory = directory(place)?;
    let socket = client::socket(&directory)?;
    let log = directory.join("transferd.log");
    if let Ok(stream) = UnixStream::connect(&socket) {
        match of_gone_executable(&stream) {
            None => return Ok(socket),
            Some(pid) => {
                // One that ends already does not answer. The answer of another version need not be known here.
                let _ = client::call::<Value>(&socket, &Request::Stop {});
                wait_for_end(Some(pid), &log)?;
            }
        }
    }
    let failed = |source| TransferFailure::Start {
        path: directory.clone(),
        source,
    };
    let mut child = start(place, &directory, &log).map_err(failed)?;
    let mut end = Instant::now() + START;
    let mut ended = None;
    while Instant::now() < end {
        if answers(&socket) {
            return Ok(socket);
        }
        if ended.is_none() {
            ended = child.try_wait().map_err(failed)?;
            if ended.is_some() {
                end = Instant::now() + OF_ANOTHER;
            }
        }
        thread::sleep(LOOK);
    }
    let why = match ended {
        Some(status) => last_line(&log).unwrap_or_else(|| format!("it has ended with {status}")),
        None => format!("it does not answer within {} s", START.as_secs()),
    };
    Err(TransferFailure::NotStarted { why, log }.into())
}

/// Returns the process that answers, if that is seen here.
fn transferd(stream: &UnixStream) -> Option<u32> {
    let pid = peer_pid(stream).ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_so = line.split(|byte| *byte == 0).any(|argument| argument == b"transferd");
    is_so.then_some(pid)
}

/// Returns the process that answers if it is one of this user whose executable is gone: the one before an upgrade.
fn of_gone_executable(stream: &UnixStream) -> Option<u32> {
    let pid = transferd(stream)?;
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    // The words of the kernel (proc_pid_exe(5)).
    let is_gone = path.as_os_str().as_bytes().ends_with(b" (deleted)");
    let is_own = peer_uid(stream).is_ok_and(|uid| uid == effective_uid());
    (is_gone && is_own).then_some(pid)
}

/// Device and inode of the executable of a process, also if its file was removed; `None` if it has ended.
fn executable(pid: &str) -> Option<(u64, u64)> {
    let found = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((found.dev(), found.ino()))
}

/// Waits until a process that was told to end has ended: the next one needs its lock.
fn wait_for_end(pid: Option<u32>, log: &Path) -> Result<(), Failure> {
    let pid = pid.map(|pid| pid.to_string()).unwrap_or_default();
    let was = executable(&pid);
    let limit = Instant::now() + START;
    while was.is_some() && executable(&pid) == was {
        if Instant::now() >= limit {
            let why = format!("the one that runs does not end; end the process {pid}");
            let log = log.to_owned();
            return Err(TransferFailure::NotStarted { why, log }.into());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// `weft transferd`: runs the process itself.
pub(super) fn run(place: &Place) -> Result<(), Failure> {
    // The end of the terminal, and Ctrl-C at the verb, are not for this process. A job of a shell leads its group and
    // stays in its session.
    let _ = setsid();
    let filter: LogFilter = "info".parse().map_err(|error| Failure::Usage(format!("{error}")))?;
    logging::init(&filter, LogFormat::Text)?;
    let daemon = match &place.0 {
        Some(state) => StatePaths::new(state),
        None => StatePaths::of_later_daemon(),
    };
    let options = Options {
        directory: directory(place)?,
        control: daemon.control(),
        home: std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute()),
    };
    Ok(process::run(options).map_err(TransferFailure::from)?)
}

/// `weft transferd --stop`: ends it, if it runs.
pub(super) fn stop(place: &Place) -> Result<(), Failure> {
    let directory = directory(place)?;
    let socket = client::socket(&directory)?;
    let pid = UnixStream::connect(&socket).ok().as_ref().and_then(transferd);
    match client::call::<Value>(&socket, &Request::Stop {}) {
        Ok(_) => {
            wait_for_end(pid, &directory.join("transferd.log"))?;
            Out::new().text("stopped\n")
        }
        Err(ClientError::NotRunning(_)) => Out::new().text("it does not run\n"),
        Err(error) => Err(error.into()),
    }
}

/// The state of the process: that of this user, also if the commands ask root's daemon.
fn directory(place: &Place) -> Result<PathBuf, Failure> {
    let directory = place.own()?.transfer();
    Ok(std::path::absolute(&directory).unwrap_or(directory))
}

fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Starts the process detached from the terminal, with its log beside its state.
fn start(place: &Place, directory: &Path, log: &Path) -> io::Result<Child> {
    // What others can put there could be a link in the place of the log.
    make_private(directory)?;
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log)?;
    if log.metadata()?.len() > LONGEST_LOG {
        log.set_len(0)?;
    }
    let mut command = Command::new(PROGRAM);
    command.arg0("weft").arg("transferd");
    if let Some(state) = &place.0 {
        command.arg("--state").arg(std::path::absolute(state)?);
    }
    // It must not keep a file system in use.
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

/// The last line of the log, without what leads it in.
fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let from = fs::metadata(log).ok()?.len().saturating_sub(END_OF_LOG);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut end = Vec::new();
    file.take(END_OF_LOG).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end).into_owned();
    let line = end.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(human::plain(line.strip_prefix("weft: ").unwrap_or(line)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn the_last_line_of_a_log_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        assert_eq!(last_line(&log), None);
        fs::write(&log, "x".repeat(10_000) + "\nweft: no \x1b[31mdisk\n\n").unwrap();
        assert_eq!(last_line(&log).unwrap(), "no ?[31mdisk");
        fs::write(&log, "\n").unwrap();
        assert_eq!(last_line(&log), None);
    }
}
