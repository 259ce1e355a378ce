//! `do = "send"`: a folder goes from the user of one node to that of another, by their own processes. The sending one is
//! killed on the way; what it had sent must not come again.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use weft_scenario::units::Size;

use super::expect::{Finding, LookError};
use super::topology::{Stage, StageError};
use crate::child::LoggedChild;
use crate::daemon::Daemon;

/// Time limit of each part.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// The bytes of each small file.
const SMALL: usize = 1_000;
/// How many small files there are.
const FILES: usize = 20;

/// `do = "send"`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Its name, as the sender knows it.
    pub peer: String,
    /// The bytes of the large file of the folder.
    pub bytes: Size,
    /// The limit of the sender until it is killed, as `weft send --limit` takes it.
    pub limit: String,
}

impl fmt::Display for Send {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}$ weft send folder {}; kill -9 on the way", self.from, self.peer)
    }
}

/// The user of a node.
struct User<'a> {
    daemon: &'a Daemon,
    process: LoggedChild,
    folder: PathBuf,
}

impl<'a> User<'a> {
    fn start(stage: &'a Stage, node: &str) -> Result<Self, StageError> {
        let daemon = stage.daemon(node)?;
        let process = begin(daemon)?;
        let folder = daemon.identity().state.join("files");
        Ok(Self {
            daemon,
            process,
            folder,
        })
    }

    fn weft(&self, arguments: &[&str]) -> Result<Value, LookError> {
        let output = self.daemon.attempt(arguments, PATIENCE).map_err(StageError::Daemon)?;
        let said = serde_json::from_slice(&output.stdout);
        said.map_err(|_| LookError::Plain(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Looks at a transfer until it is as wanted.
    fn wait(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, LookError> {
        let start = Instant::now();
        loop {
            let list = self.weft(&["transfers", "--history", "--json"])?;
            let all = list["transfers"].as_array().cloned().unwrap_or_default();
            let one = all.into_iter().find(|one| one["id"] == id).unwrap_or_default();
            if wanted(&one) {
                return Ok(one);
            }
            if start.elapsed() > PATIENCE || one["state"] == "failed" {
                return Err(LookError::Plain(format!(
                    "the transfer is {}: {}",
                    one["state"], one["why"]
                )));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn begin(daemon: &Daemon) -> Result<LoggedChild, StageError> {
    let state = &daemon.identity().state;
    let mut weft = Command::new(daemon.program());
    weft.arg("--state").arg(state).arg("transferd");
    let log = state.join("transferd.log");
    LoggedChild::start(daemon.host(), weft, &log).map_err(|error| StageError::Daemon(error.into()))
}

/// Makes the folder. Returns how many bytes its files have.
fn fill(folder: &Path, large: u64) -> std::io::Result<u64> {
    fs::create_dir_all(folder.join("small"))?;
    let mut state = 1_u64;
    let mut bytes = |len: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(next).collect()
    };
    for number in 0..FILES {
        fs::write(folder.join(format!("small/{number}")), bytes(SMALL))?;
    }
    fs::write(
        folder.join("large"),
        bytes(usize::try_from(large).unwrap_or(usize::MAX)),
    )?;
    Ok(large + (FILES * SMALL) as u64)
}

/// Whether two folders have the same files.
fn are_equal(one: &Path, other: &Path) -> std::io::Result<bool> {
    let names = (0..FILES)
        .map(|number| format!("small/{number}"))
        .chain(["large".to_owned()]);
    for name in names {
        if fs::read(one.join(&name))? != fs::read(other.join(&name))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends the folder, kills the sending process once half of it is there, and starts it again.
pub(super) fn run(stage: &Stage, step: &Send) -> Result<Finding, LookError> {
    let io = |error: std::io::Error| LookError::Plain(format!("the folder to send: {error}"));
    let receiver = User::start(stage, &step.to)?;
    let mut sender = User::start(stage, &step.from)?;
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let from = sender.folder.join("folder");
    let all = fill(&from, step.bytes.0).map_err(io)?;
    receiver.weft(&["receive", "members", "--to", &path(&receiver.folder), "--json"])?;
    let sent = [
        "send",
        "--no-follow",
        "--json",
        "--limit",
        &step.limit,
        &path(&from),
        &step.peer,
    ];
    let sent = sender.weft(&sent)?;
    let id = sent["transfers"][0]["id"].as_str().unwrap_or_default().to_owned();
    let done = |one: &Value| one["bytes"]["done"].as_u64().unwrap_or(0);
    let half = receiver.wait(&id, |one| done(one) >= all / 2)?;
    sender
        .process
        .kill()
        .map_err(|error| StageError::Daemon(error.into()))?;
    sender.process = begin(sender.daemon)?;
    let start = Instant::now();
    let sent = sender.wait(&id, |one| one["state"] == "done")?;
    let received = receiver.wait(&id, |one| one["state"] == "done")?;
    let moved = received["moved"].as_u64().unwrap_or(0);
    let equal = are_equal(&from, &receiver.folder.join("folder")).map_err(io)?;
    Ok(Finding {
        holds: equal && moved == all && sent["state"] == "done",
        seen: format!(
            "killed with {:.1} of {:.1} MB stored, done {:.1} s later; {:.1} MB moved in all, the contents are {}",
            done(&half) as f64 / 1e6,
            all as f64 / 1e6,
            start.elapsed().as_secs_f64(),
            moved as f64 / 1e6,
            if equal { "equal" } else { "not equal" }
        ),
    })
}
