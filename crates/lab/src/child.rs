//! A process under test: its log, its exit, its resource use.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use weft_os::process::{Usage, usage_of};
use weft_os::test_support::note_strict;

use crate::host::Host;

/// A process on a host whose output goes to a file. It is killed when this is dropped.
#[derive(Debug)]
pub struct LoggedChild {
    child: Child,
    program: String,
    log: PathBuf,
    /// Length of the log at the start of the process: the file continues over restarts.
    log_start: u64,
}

impl LoggedChild {
    /// Starts `command` on `host`; both outputs are appended to the file `log`. It runs in a
    /// process group of its own, so that a Ctrl-C in the terminal reaches only the lab, which then
    /// ends the process.
    ///
    /// # Errors
    /// If the log cannot be opened or the program cannot be started.
    pub fn start(host: &Host, mut command: Command, log: &Path) -> Result<Self, ChildError> {
        let program = program(&command);
        let no_log = |source| ChildError::Log {
            path: log.to_owned(),
            source,
        };
        let file = open_log(log).map_err(no_log)?;
        let log_start = file.metadata().map_err(no_log)?.len();
        let second = file.try_clone().map_err(no_log)?;
        command.stdin(Stdio::null()).stdout(file).stderr(second);
        command.process_group(0);
        let child = tracked(|| host.spawn(command)).map_err(|source| ChildError::Start {
            program: program.clone(),
            source,
        })?;
        Ok(Self {
            child,
            program,
            log: log.to_owned(),
            log_start,
        })
    }

    /// The process id, as this process sees it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// [`ChildError::Wait`].
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, ChildError> {
        self.child.try_wait().map_err(|e| self.wait_failed(e))
    }

    /// Asks it to stop (SIGTERM) and waits.
    ///
    /// # Errors
    /// [`ChildError::DidNotStop`] after `limit`; it is killed then.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus, ChildError> {
        self.signal(Signal::TERM)?;
        self.wait(limit)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`ChildError::DidNotStop`] after `limit`; it is killed then.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, ChildError> {
        if wait_for_end(&mut self.child, limit).map_err(|e| self.wait_failed(e))? {
            return self.child.wait().map_err(|e| self.wait_failed(e));
        }
        self.kill()?;
        Err(ChildError::DidNotStop {
            program: self.program.clone(),
            after: limit,
        })
    }

    /// Suspends all its threads (SIGSTOP); no effect if it has ended.
    ///
    /// # Errors
    /// [`ChildError::Wait`].
    pub fn suspend(&mut self) -> Result<(), ChildError> {
        self.signal(Signal::STOP)
    }

    /// Lets it run again (SIGCONT); no effect if it has ended.
    ///
    /// # Errors
    /// [`ChildError::Wait`].
    pub fn resume(&mut self) -> Result<(), ChildError> {
        self.signal(Signal::CONT)
    }

    /// Kills it (SIGKILL) and waits.
    ///
    /// # Errors
    /// [`ChildError::Wait`].
    pub fn kill(&mut self) -> Result<ExitStatus, ChildError> {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let status = self.child.wait().map_err(|e| self.wait_failed(e));
        running().retain(|pid| *pid != self.pid());
        status
    }

    /// Sends a signal; no effect if it has ended.
    fn signal(&mut self, signal: Signal) -> Result<(), ChildError> {
        if self.ended()?.is_none() {
            // It has not been waited for, so the process id cannot belong to another process.
            let pid = Pid::from_child(&self.child);
            let sent = rustix::process::kill_process(pid, signal);
            sent.map_err(|error| self.wait_failed(error.into()))?;
        }
        Ok(())
    }

    /// Its output since this start.
    ///
    /// # Errors
    /// [`ChildError::Log`].
    pub fn log(&self) -> Result<String, ChildError> {
        let bytes = std::fs::read(&self.log).map_err(|source| ChildError::Log {
            path: self.log.clone(),
            source,
        })?;
        let start = usize::try_from(self.log_start).unwrap_or(usize::MAX);
        let own = bytes.get(start..).unwrap_or_default();
        Ok(String::from_utf8_lossy(own).into_owned())
    }

    /// The path of its log.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Its resource use so far.
    ///
    /// # Errors
    /// [`ChildError::Usage`] if it has ended.
    pub fn usage(&self) -> Result<Usage, ChildError> {
        usage_of(self.pid()).map_err(|source| ChildError::Usage {
            program: self.program.clone(),
            source,
        })
    }

    fn wait_failed(&self, source: io::Error) -> ChildError {
        ChildError::Wait {
            program: self.program.clone(),
            source,
        }
    }
}

impl Drop for LoggedChild {
    fn drop(&mut self) {
        // It makes the failure of a test final: no second run excuses a crash.
        if thread::panicking()
            && let Ok(Some(status)) = self.child.try_wait()
            && is_crash(status)
        {
            note_strict(format_args!("{} ended with {status}", self.program));
        }
        let _ = self.kill();
    }
}

/// True for the end by a signal that a defect of the program leads to.
fn is_crash(status: ExitStatus) -> bool {
    let crashes = [
        Signal::SEGV,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
        Signal::ABORT,
        Signal::SYS,
    ];
    let signal = status.signal().and_then(Signal::from_named_raw);
    signal.is_some_and(|signal| crashes.contains(&signal))
}

/// Kills every process under test and waits for its end, for a process that is about to end itself.
/// While the returned value lives, no other is started: a thread that tries to waits.
#[must_use]
pub fn kill_all() -> impl Sized {
    let mut running = running();
    for pid in running.drain(..) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            continue;
        };
        // Both fail only if it has ended already.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let _ = pidfd.map(|pidfd| ended(pidfd.as_fd(), LAST));
    }
    running
}

/// How long a killed process may take to end.
const LAST: Duration = Duration::from_secs(1);

/// Starts a process and registers it for [`kill_all`].
fn tracked(spawn: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    let mut running = running();
    let child = spawn()?;
    running.push(child.id());
    Ok(child)
}

/// The processes that are not known to have ended.
fn running() -> MutexGuard<'static, Vec<u32>> {
    static RUNNING: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a short command to its end and returns its outputs, which must be under 64 KiB each.
///
/// # Errors
/// If it cannot be started, or [`ChildError::DidNotStop`] after `limit`.
pub fn run_command(mut command: Command, limit: Duration) -> Result<Output, ChildError> {
    let program = program(&command);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = tracked(|| command.spawn()).map_err(|source| ChildError::Start {
        program: program.clone(),
        source,
    })?;
    let pid = child.id();
    let result = finish(child, program, limit);
    running().retain(|other| *other != pid);
    result
}

fn finish(mut child: Child, program: String, limit: Duration) -> Result<Output, ChildError> {
    // A pipe that is not read holds 64 KiB, and a program with more output blocks.
    let output = (drain(child.stdout.take()), drain(child.stderr.take()));
    let wait_failed = |source| ChildError::Wait {
        program: program.clone(),
        source,
    };
    if wait_for_end(&mut child, limit).map_err(wait_failed)? {
        let read = |thread: JoinHandle<io::Result<Vec<u8>>>| {
            let ended = thread.join().map_err(|_| io::Error::other("a thread has panicked"));
            ended.flatten().map_err(wait_failed)
        };
        return Ok(Output {
            status: child.wait().map_err(wait_failed)?,
            stdout: read(output.0)?,
            stderr: read(output.1)?,
        });
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(ChildError::DidNotStop { program, after: limit })
}

/// Reads a pipe to its end.
fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<io::Result<Vec<u8>>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut all))?;
        Ok(all)
    })
}

/// Why a process under test could not be run.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program could not be started.
    #[error("{program} could not be started")]
    Start {
        /// Its path.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The log could not be opened or read.
    #[error("the log {} could not be used", .path.display())]
    Log {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It could not be signalled or waited for.
    #[error("{program} could not be signalled or waited for")]
    Wait {
        /// Its path.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// It did not end within the time limit.
    #[error("{program} did not end within {} s", .after.as_secs_f32())]
    DidNotStop {
        /// Its path.
        program: String,
        /// The time limit.
        after: Duration,
    },
    /// Its figures are no longer available.
    #[error("the figures of {program} cannot be read")]
    Usage {
        /// Its path.
        program: String,
        /// The system's error.
        source: io::Error,
    },
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Returns true if the process ended within `limit`.
fn wait_for_end(child: &mut Child, limit: Duration) -> io::Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    let pidfd = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    ended(pidfd.as_fd(), limit)
}

/// Returns true if the process behind a pidfd ended within `limit`.
fn ended(pidfd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(limit).ok();
    let mut set = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    match rustix::event::poll(&mut set, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_told_from_another_end() {
        let ended = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        for crash in ["kill -SEGV $$", "kill -ABRT $$"] {
            assert!(is_crash(ended(crash)), "{crash}");
        }
        for other in ["exit 0", "exit 101", "kill -KILL $$", "kill -TERM $$"] {
            assert!(!is_crash(ended(other)), "{other}");
        }
    }

    #[test]
    fn a_command_runs_to_its_end_or_its_limit() {
        let mut echo = Command::new("sh");
        echo.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = run_command(echo, Duration::from_secs(10)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"out\n"[..], &b"err\n"[..]));

        // More than a pipe holds.
        let mut long = Command::new("sh");
        long.args(["-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"]);
        let output = run_command(long, Duration::from_secs(10)).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 200_000));

        let mut endless = Command::new("sh");
        endless.args(["-c", "read x < /dev/zero"]);
        let result = run_command(endless, Duration::from_millis(50));
        assert!(matches!(result, Err(ChildError::DidNotStop { .. })));
    }
}
