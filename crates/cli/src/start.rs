//! The daemon for a command that needs one: the one that runs, otherwise the service, or a daemon in
//! the foreground that ends with the command.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use weft_control::status::Version;
use weft_control::{ControlCommand, ControlError};
use weft_store::state::{StateError, StatePaths};

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output::Out;
use crate::service;

/// The file of this process, also if it was replaced since.
pub(crate) const PROGRAM: &str = "/proc/self/exe";
/// The interval between two looks at a daemon in the foreground.
const LOOK: Duration = Duration::from_millis(100);
/// How long a daemon in the foreground has to stop.
const STOP: Duration = Duration::from_secs(20);

/// The state directory that the command line or `WEFT_STATE` names, if one does.
#[derive(Clone, Debug)]
pub(crate) struct Place(pub(crate) Option<PathBuf>);

impl Place {
    /// The state of this user's own node.
    pub(crate) fn own(&self) -> Result<StatePaths, StateError> {
        self.0
            .as_ref()
            .map_or_else(StatePaths::default_place, |directory| Ok(StatePaths::new(directory)))
    }

    /// The state of the daemon that a command addresses.
    pub(crate) fn daemon(&self) -> StatePaths {
        self.0.as_ref().map_or_else(StatePaths::of_daemon, StatePaths::new)
    }
}

/// Runs `work` with a daemon, which is started if none runs. `command` is the name of the command,
/// for messages.
pub(crate) fn with_daemon(
    place: &Place,
    command: &'static str,
    work: impl FnOnce(&StatePaths) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let paths = place.daemon();
    if !matches!(version(&paths), Err(ControlError::NotRunning(_))) {
        return work(&paths);
    }
    if !geteuid().is_root() {
        return Err(Failure::NoDaemon(command));
    }
    if place.0.is_none() && service::is_possible() {
        service::install(false)?;
        return work(&place.daemon());
    }
    let why = match &place.0 {
        Some(_) => "The state directory is not the service's",
        None => "systemd does not run here",
    };
    Out::new().text(&format!(
        "{why}: the daemon runs in the foreground, and ends with Ctrl-C.\n"
    ))?;
    Foreground::start(place)?.run(place.own()?, work)
}

fn version(paths: &StatePaths) -> Result<Version, ControlError> {
    weft_control::call(&paths.control(), &ControlCommand::Version {})
}

/// A daemon that is a child of this process. Signals that end this process end the daemon.
struct Foreground {
    daemon: Child,
    interrupt: Interrupt,
}

impl Foreground {
    fn start(place: &Place) -> Result<Self, Failure> {
        // From here on the signals of the terminal go to the daemon first.
        let interrupt = Interrupt::catch_all()?;
        let mut command = Command::new(PROGRAM);
        command.args(["up", "--for-network"]);
        if let Some(directory) = &place.0 {
            command.arg("--state").arg(Path::new(directory));
        }
        let daemon = command.spawn().map_err(Failure::Start)?;
        Ok(Self { daemon, interrupt })
    }

    fn run(
        mut self,
        paths: StatePaths,
        work: impl FnOnce(&StatePaths) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        while version(&paths).is_err() {
            if let Some(status) = self.ended()? {
                return exit(status);
            }
            if !self.interrupt.pause(LOOK) {
                return exit(self.stop()?);
            }
        }
        match self.interrupt.run(move || work(&paths)) {
            None | Some(Err(Failure::Interrupted)) => exit(self.stop()?),
            // The node goes on asking.
            Some(Err(failure @ Failure::Join(_))) => {
                failure.report(false);
                self.wait()?;
                Err(Failure::Told)
            }
            Some(Err(failure)) => {
                self.stop()?;
                Err(failure)
            }
            Some(Ok(())) => {
                Out::new().text("The daemon goes on in the foreground until Ctrl-C.\n")?;
                exit(self.wait()?)
            }
        }
    }

    /// Waits until the daemon ends, or a signal ends it.
    fn wait(&mut self) -> Result<ExitStatus, Failure> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if !self.interrupt.pause(LOOK) {
                return self.stop();
            }
        }
    }

    fn stop(&mut self) -> Result<ExitStatus, Failure> {
        let end = Instant::now() + STOP;
        // It has not been waited for, so the process id cannot be another one's.
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        while Instant::now() < end {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.daemon.kill();
        self.daemon.wait().map_err(Failure::Start)
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.daemon.try_wait().map_err(Failure::Start)
    }
}

/// The end of a daemon, which has said why.
fn exit(status: ExitStatus) -> Result<(), Failure> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Failure::Ended(u8::try_from(code).unwrap_or(1))),
        (None, signal) => Err(Failure::Killed(signal.unwrap_or_default())),
    }
}
