//! `weft service`: the daemon as a service of systemd.
//!
//! | module | what it is |
//! |---|---|
//! | `unit` | the text of the unit, and what it records about the installation |
//! | `program` | the program at a place that stays: the copy, and what may be replaced |
//! | `systemd` | calls of `systemctl` |
//! | `error` | why a step was not done |

mod error;
mod program;
mod systemd;
mod unit;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use weft_control::status::Version;
use weft_control::{ControlCommand, ControlError};
use weft_store::state::StatePaths;

pub(crate) use error::ServiceError;
use program::Program;
use unit::Unit;

use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::output::{Out, tell};
use crate::strict;

/// The unit that `install` writes.
const UNIT: &str = "/etc/systemd/system/weft.service";
/// The unit that keeps packets in at boot.
const UNIT_AT_BOOT: &str = "/etc/systemd/system/weft-closed.service";
/// Units of packages, which have precedence over no other.
const PACKAGED: [&str; 2] = [
    "/usr/lib/systemd/system/weft.service",
    "/lib/systemd/system/weft.service",
];
/// The directory of the program, unless it runs from a directory of the system already.
const DIRECTORY: &str = "/usr/local/bin";

/// Time limit of the first answer of a daemon that was started.
const START: Duration = Duration::from_secs(30);
/// The interval between two questions whether it answers.
const POLL: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Copy this program to /usr/local/bin, write a unit for systemd, enable and start it
    Install(Print),
    /// Show whether the service is installed, enabled and running, and in which version
    Status(Print),
    /// Restart the service, with the program that is installed now
    Restart(Print),
    /// Stop the service and remove what `install` wrote; key and configuration stay
    Uninstall(Print),
    /// Keep packets in until the daemon runs, if its exit is strict: what systemd does at boot
    #[command(hide = true)]
    KeepClosed,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    /// Print the document weft.service/1
    #[arg(long)]
    json: bool,
}

/// What changes the service, and says so: on standard error, if standard output is for a document.
type Step = fn(aside: bool) -> Result<(), Failure>;

/// `has_state`: the command line names a state directory.
pub(crate) fn run(action: &Action, has_state: bool) -> Result<(), Failure> {
    if has_state {
        return Err(Failure::Usage(
            "the service has its state in /var/lib/weft; leave out --state".to_owned(),
        ));
    }
    if !systemd::runs() {
        return Err(ServiceError::NoSystemd(program::running()).into());
    }
    let (name, step, print): (_, Step, _) = match action {
        Action::Status(print) => return status(print.json),
        Action::KeepClosed => return need_root("keep-closed").and_then(|()| keep_closed()),
        Action::Install(print) => ("install", install, print),
        Action::Restart(print) => ("restart", restart, print),
        Action::Uninstall(print) => ("uninstall", uninstall, print),
    };
    need_root(name)?;
    step(print.json)?;
    match print.json {
        true => Out::new().document(&Found::look()?.document()),
        false => Ok(()),
    }
}

fn need_root(action: &'static str) -> Result<(), Failure> {
    match geteuid().is_root() {
        true => Ok(()),
        false => Err(ServiceError::NotRoot(action).into()),
    }
}

/// Whether systemd runs here, so that the daemon can be its service.
pub(crate) fn is_possible() -> bool {
    systemd::runs()
}

/// Installs the service and starts it. The caller is root. `aside`: standard output is for a document.
pub(crate) fn install(aside: bool) -> Result<(), Failure> {
    let say = |text: &str| tell(aside, text);
    let before = read_unit()?;
    if let Some(packaged) = PACKAGED.iter().find(|path| Path::new(path).exists()) {
        return Err(ServiceError::Packaged(packaged.into()).into());
    }
    // Everything that can be refused is refused before the first change.
    let active = before.is_some() && systemd::is_active();
    let paths = StatePaths::system();
    if !active {
        refuse_another_daemon(&StatePaths::of_daemon())?;
    }
    let program = Program::find(Path::new(DIRECTORY), before.as_ref())?;
    let unit = match program {
        Program::InPlace(unit) => {
            say(&format!("program   {} stays where it is\n", unit.program.display()))?;
            unit
        }
        Program::ToCopy(copy) => {
            let unit = copy.make()?;
            say(&format!(
                "program   {} copied to {}\n",
                copy.from.display(),
                unit.program.display()
            ))?;
            unit
        }
    };
    if make_state(paths.directory())? {
        say(&format!("state     {} made\n", paths.directory().display()))?;
    }
    program::write(Path::new(UNIT), 0o644, &mut unit.text().as_bytes())
        .map_err(|source| ServiceError::file("written", UNIT, source))?;
    program::write(Path::new(UNIT_AT_BOOT), 0o644, &mut unit.text_at_boot().as_bytes())
        .map_err(|source| ServiceError::file("written", UNIT_AT_BOOT, source))?;
    say(&format!("unit      {UNIT} written\n"))?;
    systemd::call(&["daemon-reload"])?;
    systemd::call(&["enable", "--now", systemd::NAME])?;
    say("service   enabled and started\n")?;
    let running = wait_for_answer(&paths)?;
    say(&format!("running   weft {}\n", line(&running)))?;
    if active {
        return say("The daemon was not restarted: `weft service restart` starts the program that was installed.\n");
    }
    say("`weft status` shows the node, `weft service uninstall` removes the service.\n")
}

/// The document about the service.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Service<'a> {
    /// Whether the unit of `weft service install` is there.
    installed: bool,
    /// Whether it starts with the system, in the word of systemd.
    enabled: &'a str,
    /// Whether it runs, in the word of systemd.
    active: &'a str,
    /// The program of the unit.
    program: Option<&'a Path>,
    /// The version of the installed program.
    program_version: Option<&'a Version>,
    /// The version of the running daemon.
    running_version: Option<&'a Version>,
}

impl OfCommand for Service<'_> {
    const NAME: &'static str = "weft.service/1";
}

/// What there is of the service.
struct Found {
    unit: Option<Unit>,
    enabled: String,
    active: String,
    installed: Option<Version>,
    running: Option<Version>,
}

impl Found {
    fn look() -> Result<Self, ServiceError> {
        let unit = read_unit()?;
        Ok(Self {
            enabled: systemd::state("is-enabled")?,
            active: systemd::state("is-active")?,
            installed: unit.as_ref().and_then(|unit| installed_version(&unit.program)),
            running: version(&StatePaths::system()).ok(),
            unit,
        })
    }

    fn document(&self) -> Service<'_> {
        Service {
            installed: self.unit.is_some(),
            enabled: &self.enabled,
            active: &self.active,
            program: self.unit.as_ref().map(|unit| unit.program.as_path()),
            program_version: self.installed.as_ref(),
            running_version: self.running.as_ref(),
        }
    }

    fn text(&self) -> String {
        let of = |version: Option<&Version>| version.map_or_else(|| "unknown version".to_owned(), line);
        let program = self.unit.as_ref().map_or_else(
            || "-".to_owned(),
            |unit| format!("{}, {}", unit.program.display(), of(self.installed.as_ref())),
        );
        let installed = if self.unit.is_some() { UNIT } else { "not installed" };
        let running = self.running.as_ref();
        let differ = match (&self.installed, running) {
            (Some(installed), Some(running)) if installed != running => {
                "The daemon runs another version than the installed program: `sudo weft service restart`.\n"
            }
            _ => "",
        };
        format!(
            "unit      {installed}\nenabled   {}\nactive    {}\nprogram   {program}\nrunning   {}\n{differ}",
            self.enabled,
            self.active,
            running.map_or_else(|| "no daemon answers".to_owned(), line),
        )
    }
}

fn status(json: bool) -> Result<(), Failure> {
    let found = Found::look()?;
    match json {
        true => Out::new().document(&found.document())?,
        false => Out::new().text(&found.text())?,
    }
    match found.unit.is_some() && found.active == "active" && found.running.is_some() {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

fn restart(aside: bool) -> Result<(), Failure> {
    let unit = read_unit()?.ok_or(ServiceError::NotInstalled)?;
    // A daemon that runs is not stopped for one that would not start.
    program::would_start(&unit.program)?;
    systemd::call(&["restart", systemd::NAME])?;
    let running = wait_for_answer(&StatePaths::system())?;
    tell(aside, &format!("restarted, running weft {}\n", line(&running)))
}

/// Whether systemd has a unit of weft.
pub(crate) fn is_installed() -> bool {
    Path::new(UNIT).exists()
}

fn uninstall(aside: bool) -> Result<(), Failure> {
    let unit = read_unit()?.ok_or(ServiceError::NotInstalled)?;
    let say = |text: &str| tell(aside, text);
    systemd::call(&["disable", "--now", systemd::NAME])?;
    say("service   stopped and disabled\n")?;
    fs::remove_file(UNIT).map_err(|source| ServiceError::file("removed", UNIT, source))?;
    match fs::remove_file(UNIT_AT_BOOT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.map_err(|source| ServiceError::file("removed", UNIT_AT_BOOT, source))?,
    }
    systemd::call(&["daemon-reload"])?;
    say(&format!("unit      {UNIT} removed\n"))?;
    if strict::open(&StatePaths::system().config())? {
        say(&format!("exit      {}", strict::OPENED))?;
    }
    let program = unit.program.display();
    say(&match unit.remove_copy()? {
        true => format!("program   {program} removed\n"),
        false => format!("program   {program} kept: it is not the file that `weft service install` copied\n"),
    })?;
    let state = StatePaths::system();
    let state = state.directory().display();
    say(&format!(
        "kept      {state}: the node's key and configuration; without the key this node does not come back\n"
    ))
}

fn keep_closed() -> Result<(), Failure> {
    match strict::close_at_boot(&StatePaths::system())? {
        true => Out::new().text("the exit is strict: packets are kept in until weft runs\n"),
        false => Ok(()),
    }
}

/// Whether the service is enabled and active, in the words of systemd; `None` if it is not installed.
pub(crate) fn states() -> Option<(String, String)> {
    if !systemd::runs() || !Path::new(UNIT).exists() {
        return None;
    }
    let state = |question| systemd::state(question).unwrap_or_else(|_| "unknown".to_owned());
    Some((state("is-enabled"), state("is-active")))
}

/// Returns the installed unit; `None` if there is none.
fn read_unit() -> Result<Option<Unit>, ServiceError> {
    // A link is the administrator's: `systemctl mask` makes one.
    let found = match fs::symlink_metadata(UNIT) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(|source| ServiceError::file("read", UNIT, source))?,
    };
    let text = match found.is_file() {
        true => fs::read_to_string(UNIT).map_err(|source| ServiceError::file("read", UNIT, source))?,
        false => String::new(),
    };
    Unit::parse(&text).map(Some).ok_or(ServiceError::Foreign(UNIT.into()))
}

/// Refuses to install beside a daemon that is not the service: it has the key, the ports and the
/// interface.
fn refuse_another_daemon(paths: &StatePaths) -> Result<(), ServiceError> {
    match version(paths) {
        Err(ControlError::NotRunning(_)) => Ok(()),
        _ => Err(ServiceError::Running(paths.control())),
    }
}

/// Creates the state directory; false if it exists. systemd needs it before the daemon starts.
fn make_state(directory: &Path) -> Result<bool, ServiceError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(source) => Err(ServiceError::file("made", directory, source)),
    }
}

/// The version of the daemon that answers.
fn version(paths: &StatePaths) -> Result<Version, ControlError> {
    weft_control::call(&paths.control(), &ControlCommand::Version {})
}

fn wait_for_answer(paths: &StatePaths) -> Result<Version, ServiceError> {
    let end = Instant::now() + START;
    loop {
        match version(paths) {
            Ok(version) => return Ok(version),
            // One that ended for a wrong configuration is not started again.
            Err(_) if systemd::state("is-failed")? == "failed" => {
                return Err(match systemd::last_error() {
                    Some(why) => ServiceError::EndedBy(why),
                    None => ServiceError::Ended,
                });
            }
            Err(_) if Instant::now() >= end => return Err(ServiceError::Silent),
            Err(_) => sleep(POLL),
        }
    }
}

/// What the program at `path` says of itself.
fn installed_version(path: &Path) -> Option<Version> {
    let output = std::process::Command::new(path)
        .args(["version", "--json"])
        .output()
        .ok()?;
    let document: Value = serde_json::from_slice(&output.stdout).ok()?;
    serde_json::from_value(document).ok()
}

/// Version and commit, as `weft version` shows them.
fn line(version: &Version) -> String {
    format!("{} ({})", version.version, version.commit)
}
