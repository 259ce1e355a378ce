//! `weft lab up`, `exec` and `down`: a topology that persists, held by a process in the background.
//!
//! The holder is the program itself. It builds the topology as a run does, reports that on its
//! standard output, and waits for a signal. Everything depends on it: namespaces are its
//! descriptors, cables and NAT boxes its threads, and the kernel kills the nodes when it ends for
//! any reason. Its folder has a lock, which it holds while it lives, and `lab.json`, by which the
//! other commands find it. A user has one lab at a time.

use std::fs;
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use weft_os::lock::{FileLock, LockError};
use weft_os::netns::{NamespaceError, NetNs};

use super::source::Source;
use super::topology::{Stage, StageError, installed};
use crate::interrupt::Interrupts;
use crate::world::{World, WorldError};

/// Time limit of taking a lab down.
const DOWN: Duration = Duration::from_secs(30);

/// A running lab: the document `weft.lab-up/1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// `weft.lab-up/1`.
    pub schema: String,
    /// The scenario's name.
    pub scenario: String,
    /// The process id of the holder.
    pub pid: u32,
    /// The directory with states and logs of its nodes.
    pub directory: PathBuf,
    /// Its hosts by name.
    pub hosts: Vec<LabHost>,
}

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabHost {
    /// Its name.
    pub name: String,
    /// The holder's descriptor of its network namespace.
    pub fd: i32,
    /// Its node, if it has one.
    pub node: Option<LabNode>,
}

/// A node of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabNode {
    /// Its public key.
    pub npub: String,
    /// Its address in the mesh.
    pub address: Ipv6Addr,
    /// Its state directory.
    pub state: PathBuf,
}

/// Why a lab is not running, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The system does not permit namespaces.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The topology could not be built.
    #[error("the topology cannot be built")]
    Build(#[from] StageError),
    /// The scenario needs a program that is not installed.
    #[error(transparent)]
    Skipped(StageError),
    /// Another lab of this user is up.
    #[error("a lab is up already; `weft lab down` ends it")]
    Up,
    /// No lab is up.
    #[error("no lab is up; `weft lab up NAME` starts one")]
    None,
    /// It has no host of this name.
    #[error("the lab has no host {0:?}; it has {1}")]
    NoHost(String, String),
    /// The folder belongs to another user.
    #[error("{} is not a directory of this user alone; remove it, or set TMPDIR", .0.display())]
    Foreign(PathBuf),
    /// A file could not be used.
    #[error("{} cannot be used", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The lock could not be taken.
    #[error(transparent)]
    Lock(LockError),
    /// Its document cannot be parsed.
    #[error("{} is not understood; `weft lab down` removes it", .0.display())]
    Document(PathBuf, #[source] serde_json::Error),
    /// The holder ended before it reported that the lab is up.
    #[error("the lab did not come up: {0}")]
    NotUp(String),
    /// The holder does not end.
    #[error("the lab of process {0} does not end; kill -9 {0} ends it")]
    Stuck(u32),
    /// The namespaces of the holder cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A process could not be started, signalled or waited for.
    #[error("{what}")]
    Process {
        /// The operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> HoldError {
    let path = path.to_owned();
    move |source| HoldError::File { path, source }
}

fn process(what: impl Into<String>) -> impl FnOnce(io::Error) -> HoldError {
    let what = what.into();
    move |source| HoldError::Process { what, source }
}

/// The folder of this user's lab. Created, with access for this user alone, if it does not exist.
///
/// # Errors
/// [`HoldError::Foreign`], or [`HoldError::File`].
pub fn folder() -> Result<PathBuf, HoldError> {
    let user = rustix::process::getuid().as_raw();
    let path = std::env::temp_dir().join(format!("weft-lab-of-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(file(&path)(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&path).map_err(file(&path))?;
    match found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        true => Ok(path),
        false => Err(HoldError::Foreign(path)),
    }
}

/// Builds a topology and holds it until a signal arrives. Writes the document to `tell` when all
/// nodes answer. Call it first in the process.
///
/// # Errors
/// [`HoldError`]; everything is removed then.
pub fn hold(source: &Source, weft: &Path, folder: &Path, tell: &mut dyn Write) -> Result<(), HoldError> {
    // Closing the terminal must not end it.
    let _ = rustix::process::setsid();
    let path = folder.join("lock");
    let _lock = FileLock::acquire(&path).map_err(|error| match error {
        LockError::Held(_) => HoldError::Up,
        error => HoldError::Lock(error),
    })?;
    sweep(folder)?;
    installed(&source.scenario).map_err(HoldError::Skipped)?;
    World::enter()?;
    let world = World::new()?;
    let interrupts = Interrupts::catch(world.directory().to_owned()).map_err(process("signals cannot be caught"))?;
    let stage = Stage::set(&source.scenario, &world, weft)?;
    let lab = describe(source, &stage, world.directory());
    let document = document(folder);
    let text = serde_json::to_string(&lab).map_err(|error| file(&document)(error.into()))? + "\n";
    fs::write(&document, &text).map_err(file(&document))?;
    // The requesting process may have ended: then the lab is not wanted.
    let told = tell.write_all(text.as_bytes()).and_then(|()| tell.flush());
    if told.is_ok() {
        interrupts.wait();
    }
    drop(stage);
    fs::remove_file(&document).map_err(file(&document))
}

fn document(folder: &Path) -> PathBuf {
    folder.join("lab.json")
}

fn describe(source: &Source, stage: &Stage, directory: &Path) -> Lab {
    let hosts = stage.places().map(|(name, place)| LabHost {
        name: name.clone(),
        fd: place.host.namespace_number(),
        node: place.node.as_ref().map(|node| LabNode {
            npub: node.identity.npub.clone(),
            address: node.identity.address,
            state: node.identity.state.clone(),
        }),
    });
    Lab {
        schema: "weft.lab-up/1".to_owned(),
        scenario: source.scenario.name.clone(),
        pid: std::process::id(),
        directory: directory.to_owned(),
        hosts: hosts.collect(),
    }
}

/// Removes what a killed holder has left. Only the holder of the lock may do it.
fn sweep(folder: &Path) -> Result<bool, HoldError> {
    let path = document(folder);
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(false);
    };
    if let Ok(lab) = serde_json::from_str::<Lab>(&text) {
        // It may have been removed already.
        let _ = fs::remove_dir_all(lab.directory);
    }
    fs::remove_file(&path).map_err(file(&path))?;
    Ok(true)
}

impl Lab {
    /// Finds the running lab.
    ///
    /// # Errors
    /// [`HoldError::None`].
    pub fn find(folder: &Path) -> Result<Self, HoldError> {
        if FileLock::acquire(&folder.join("lock")).is_ok() {
            return Err(HoldError::None);
        }
        let path = document(folder);
        let text = fs::read_to_string(&path).map_err(|_| HoldError::None)?;
        serde_json::from_str(&text).map_err(|error| HoldError::Document(path, error))
    }

    /// Runs a command on a host until it ends, or the lab does. Standard input and output are those
    /// of this process, which must have one thread; `ready` is called when it may have more.
    ///
    /// # Errors
    /// If there is no such host, or the command cannot be started.
    pub fn exec(&self, host: &str, mut command: Command, ready: impl FnOnce()) -> Result<ExitStatus, HoldError> {
        let found = self.hosts.iter().find(|own| own.name == host);
        let found = found.ok_or_else(|| {
            let names: Vec<_> = self.hosts.iter().map(|own| own.name.as_str()).collect();
            HoldError::NoHost(host.to_owned(), names.join(", "))
        })?;
        let holder = pidfd(self.pid)?;
        let namespace = NetNs::visit(self.pid, found.fd)?;
        ready();
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = process(format!("{program} cannot be started"));
        let mut child = namespace.spawn(&mut command).map_err(failed)?;
        let ended = pidfd(child.id())?;
        if !first(&[&ended, &holder], None)? {
            // The lab has ended; processes in it would keep its network.
            let _ = child.kill();
        }
        wait(&mut child)
    }

    /// Ends the lab and waits until it has ended.
    ///
    /// # Errors
    /// [`HoldError::Stuck`].
    pub fn down(&self) -> Result<(), HoldError> {
        let holder = pidfd(self.pid)?;
        rustix::process::pidfd_send_signal(&holder, Signal::TERM)
            .map_err(|error| process("the lab cannot be asked to end")(error.into()))?;
        match first(&[&holder], Some(DOWN))? {
            true => Ok(()),
            false => Err(HoldError::Stuck(self.pid)),
        }
    }
}

/// Ends the lab of this user. Returns false if only the remains of a killed one existed, which are
/// removed.
///
/// # Errors
/// [`HoldError::None`] if there is nothing.
pub fn down(folder: &Path) -> Result<bool, HoldError> {
    match Lab::find(folder) {
        Ok(lab) => lab.down().map(|()| true),
        Err(HoldError::None) => {
            let lock = FileLock::acquire(&folder.join("lock"));
            // Another process is bringing a lab up.
            let _lock = lock.map_err(|_| HoldError::None)?;
            match sweep(folder)? {
                true => Ok(false),
                false => Err(HoldError::None),
            }
        }
        Err(error) => Err(error),
    }
}

fn pidfd(pid: u32) -> Result<OwnedFd, HoldError> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(HoldError::None)?;
    rustix::process::pidfd_open(number, PidfdFlags::empty())
        .map_err(|error| process(format!("process {pid} cannot be watched"))(error.into()))
}

/// Waits until one of the processes has ended, at most for `limit`. Returns whether the first has.
fn first(processes: &[&OwnedFd], limit: Option<Duration>) -> Result<bool, HoldError> {
    let end = limit.map(|limit| Instant::now() + limit);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut set: Vec<_> = processes
            .iter()
            .map(|process| PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            // Ctrl-C is for the command.
            Err(Errno::INTR) => {}
            Err(error) => return Err(process("a process cannot be waited for")(error.into())),
            Ok(_) => return Ok(set.first().is_some_and(|first| !first.revents().is_empty())),
        }
    }
}

fn wait(child: &mut Child) -> Result<ExitStatus, HoldError> {
    child.wait().map_err(process("the command cannot be waited for"))
}
