//! A weft daemon on a host, as its user sees it: its command line, its status, its log.

use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
pub use weft_core::PeerState;
use weft_os::process::Usage;

use crate::child::{ChildError, LoggedChild, run_command};
use crate::host::{Host, HostCommandError};
use crate::log;
use crate::spec::NodeSpec;

/// Time limit of a command. `weft join` waits longest, up to a minute.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

/// How long a daemon may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Polling interval of the status.
const POLL: Duration = Duration::from_millis(50);

/// The key of a node, in a state directory of its own.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The node's name in the lab.
    pub name: String,
    /// Its public key, `npub1...`.
    pub npub: String,
    /// Its address in the mesh.
    pub address: Ipv6Addr,
    /// Its state directory.
    pub state: PathBuf,
}

impl Identity {
    /// Creates a random key in `parent/name` with `weft`.
    ///
    /// # Errors
    /// If the command fails or its answer cannot be parsed.
    pub fn create(weft: &Path, parent: &Path, name: &str) -> Result<Self, DaemonError> {
        let state = make_state(parent, name)?;
        run_weft(weft, &state, &["identity", "new"])?;
        Self::load(weft, &state, name)
    }

    /// Stores a key in `parent/name` with `weft` that is the SHA-256 digest of `seed`, a zero byte and
    /// the name. Each run with this seed has the same keys. Such a key protects nothing outside a lab.
    ///
    /// # Errors
    /// Like [`Identity::create`].
    pub fn derive(weft: &Path, parent: &Path, seed: &str, name: &str) -> Result<Self, DaemonError> {
        let state = make_state(parent, name)?;
        let digest = Sha256::digest([seed.as_bytes(), &[0], name.as_bytes()].concat());
        let secret: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = parent.join(format!("{name}.secret"));
        let failed = |source| DaemonError::File {
            path: file.clone(),
            source,
        };
        std::fs::write(&file, secret).map_err(failed)?;
        let imported = run_weft(weft, &state, &["identity", "import", &file.to_string_lossy()]);
        std::fs::remove_file(&file).map_err(failed)?;
        imported?;
        Self::load(weft, &state, name)
    }

    /// Reads the key in the directory `state` with `weft`.
    ///
    /// # Errors
    /// Like [`Identity::create`].
    pub fn load(weft: &Path, state: &Path, name: &str) -> Result<Self, DaemonError> {
        const COMMAND: &[&str] = &["identity", "show", "--json"];
        let shown: Shown = answer(COMMAND, &run_weft(weft, state, COMMAND)?)?;
        Ok(Self {
            name: name.to_owned(),
            npub: shown.npub,
            address: shown.address,
            state: state.to_owned(),
        })
    }

    /// The secret key as text (`nsec1...`), for another daemon with this identity.
    ///
    /// # Errors
    /// [`DaemonError::NoSecret`] if no file of the state directory contains one.
    pub fn nsec(&self) -> Result<String, DaemonError> {
        let entries = std::fs::read_dir(&self.state).map_err(|source| DaemonError::File {
            path: self.state.clone(),
            source,
        })?;
        let texts = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        let mut secrets =
            texts.filter_map(|text| Some(text.lines().find(|line| line.starts_with("nsec1"))?.to_owned()));
        secrets.next().ok_or_else(|| DaemonError::NoSecret(self.state.clone()))
    }
}

#[derive(Deserialize)]
struct Shown {
    npub: String,
    address: Ipv6Addr,
}

/// A weft daemon. It is killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    host: Host,
    weft: PathBuf,
    identity: Identity,
    config: PathBuf,
    log: PathBuf,
    environment: Vec<(String, String)>,
    child: LoggedChild,
}

impl Daemon {
    /// Writes the configuration into the identity's state directory and starts `weft up` on `host`.
    ///
    /// # Errors
    /// If the files cannot be written or the program cannot be started. The daemon may still end at
    /// once, which [`Daemon::wait_ready`] reports.
    pub fn start(host: &Host, weft: &Path, identity: &Identity, spec: &NodeSpec) -> Result<Self, DaemonError> {
        let config = identity.state.join("config.toml");
        let text = spec.to_toml().map_err(DaemonError::Spec)?;
        std::fs::write(&config, text).map_err(|source| DaemonError::File {
            path: config.clone(),
            source,
        })?;
        let log = identity.state.with_extension("log");
        let environment = spec.environment.clone();
        let child = start(host, weft, &identity.state, &config, &log, &environment)?;
        Ok(Self {
            host: host.clone(),
            weft: weft.to_owned(),
            identity: identity.clone(),
            config,
            log,
            environment,
            child,
        })
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The path of its log, which continues over restarts.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Waits until it answers `weft status`.
    ///
    /// # Errors
    /// [`DaemonError::Ended`] with the last line of its log as soon as it has ended;
    /// [`DaemonError::NotReady`] after `limit`.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), DaemonError> {
        self.poll(limit, "answer", |daemon| match daemon.status() {
            Ok(_) => Ok(true),
            Err(DaemonError::Command { .. }) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Waits until `peer` is at least in `state`.
    ///
    /// # Errors
    /// Like [`Daemon::wait_ready`].
    pub fn wait_peer(&mut self, peer: &str, state: PeerState, limit: Duration) -> Result<(), DaemonError> {
        let reached = |daemon: &mut Self| Ok(daemon.peer_state(peer)? >= Some(state));
        self.poll(limit, "link with its peer", reached)
    }

    /// Waits until `peer` is only known.
    ///
    /// # Errors
    /// Like [`Daemon::wait_ready`].
    pub fn wait_peer_gone(&mut self, peer: &str, limit: Duration) -> Result<(), DaemonError> {
        let gone = |daemon: &mut Self| Ok(daemon.peer_state(peer)? < Some(PeerState::Linked));
        self.poll(limit, "notice that its peer is gone", gone)
    }

    /// The answer of `weft status --json`, of schema `weft.status/1`.
    ///
    /// # Errors
    /// [`DaemonError::Command`] if the daemon does not answer.
    pub fn status(&self) -> Result<Value, DaemonError> {
        const COMMAND: &[&str] = &["status", "--json"];
        let status: Value = answer(COMMAND, &self.command(COMMAND)?)?;
        match status.get("schema").and_then(Value::as_str) {
            Some("weft.status/1") => Ok(status),
            _ => Err(DaemonError::Schema(status)),
        }
    }

    /// The status of one peer, by npub; `None` if it is not listed.
    ///
    /// # Errors
    /// Like [`Daemon::status`].
    pub fn peer(&self, npub: &str) -> Result<Option<Value>, DaemonError> {
        let mut status = self.status()?;
        let peers = status.get_mut("peers").and_then(Value::as_array_mut);
        let peers = peers.map(std::mem::take).unwrap_or_default();
        let mut peers = peers.into_iter();
        Ok(peers.find(|peer| peer.get("npub").and_then(Value::as_str) == Some(npub)))
    }

    /// The state of a peer; `None` if it is not listed.
    ///
    /// # Errors
    /// Like [`Daemon::status`], and [`DaemonError::Schema`] for an unknown state.
    pub fn peer_state(&self, npub: &str) -> Result<Option<PeerState>, DaemonError> {
        let Some(peer) = self.peer(npub)? else {
            return Ok(None);
        };
        let state = peer.get("state").cloned().unwrap_or_default();
        match serde_json::from_value(state) {
            Ok(state) => Ok(Some(state)),
            Err(_) => Err(DaemonError::Schema(peer)),
        }
    }

    /// The program that it runs.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.weft
    }

    /// Runs a `weft` command against this daemon.
    ///
    /// # Errors
    /// [`DaemonError::Command`] if the exit status is not 0.
    pub fn command(&self, arguments: &[&str]) -> Result<Output, DaemonError> {
        run_weft(&self.weft, &self.identity.state, arguments)
    }

    /// Runs a `weft` command against this daemon on its host to its end, whatever its exit status.
    ///
    /// # Errors
    /// If the command cannot be run, or takes longer than `limit`.
    pub fn attempt(&self, arguments: &[&str], limit: Duration) -> Result<Output, DaemonError> {
        let mut command = Command::new(&self.weft);
        command.args(arguments).arg("--state").arg(&self.identity.state);
        Ok(self.host.command(command, limit)?)
    }

    /// The process's resource use since its last start.
    ///
    /// # Errors
    /// If it has ended.
    pub fn usage(&self) -> Result<Usage, DaemonError> {
        Ok(self.child.usage()?)
    }

    /// Stops it (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// If it takes more than a minute; it is killed then.
    pub fn stop(&mut self) -> Result<ExitStatus, DaemonError> {
        Ok(self.child.stop(STOP_LIMIT)?)
    }

    /// Suspends it (SIGSTOP): none of its threads runs until [`Daemon::resume`].
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn suspend(&mut self) -> Result<(), DaemonError> {
        Ok(self.child.suspend()?)
    }

    /// Lets it run again (SIGCONT).
    ///
    /// # Errors
    /// If it cannot be signalled.
    pub fn resume(&mut self) -> Result<(), DaemonError> {
        Ok(self.child.resume()?)
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> Result<(), DaemonError> {
        self.child.kill()?;
        Ok(())
    }

    /// Starts it again with the same files, after [`Daemon::stop`] or [`Daemon::kill`].
    ///
    /// # Errors
    /// Like [`Daemon::start`].
    pub fn restart(&mut self) -> Result<(), DaemonError> {
        self.kill()?;
        let (state, config) = (&self.identity.state, &self.config);
        self.child = start(&self.host, &self.weft, state, config, &self.log, &self.environment)?;
        Ok(())
    }

    /// The lines of its log at WARN or ERROR, over all starts. A passing test has none.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn warnings(&self) -> Result<Vec<String>, DaemonError> {
        let text = std::fs::read(&self.log).map_err(|source| DaemonError::File {
            path: self.log.clone(),
            source,
        })?;
        Ok(log::warnings(&String::from_utf8_lossy(&text)))
    }

    fn poll(
        &mut self,
        limit: Duration,
        what: &'static str,
        mut done: impl FnMut(&mut Self) -> Result<bool, DaemonError>,
    ) -> Result<(), DaemonError> {
        let end = Instant::now() + limit;
        loop {
            // The last look begins after the end, so that a machine that stands still between two
            // looks fails no test.
            let late = Instant::now() >= end;
            if let Some(status) = self.child.ended()? {
                return Err(DaemonError::Ended {
                    name: self.identity.name.clone(),
                    status,
                    last_line: self.child.log()?.lines().last().unwrap_or("").to_owned(),
                });
            }
            if done(self)? {
                return Ok(());
            }
            if late {
                return Err(DaemonError::NotReady {
                    name: self.identity.name.clone(),
                    what,
                    after: limit,
                });
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Why a daemon failed.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Its process could not be run.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A command could not be run on its host.
    #[error(transparent)]
    Host(#[from] HostCommandError),
    /// A file or directory of it could not be used.
    #[error("{} could not be used", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration could not be written as TOML.
    #[error("the node's configuration cannot be written as TOML")]
    Spec(#[source] toml::ser::Error),
    /// A `weft` command failed.
    #[error("`weft {command}` ended with {status}: {stderr}")]
    Command {
        /// The command and its arguments.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its standard error.
        stderr: String,
    },
    /// The answer of a `weft` command is not the expected JSON.
    #[error("the answer of `weft {command}` is not understood")]
    Answer {
        /// The command and its arguments.
        command: String,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The reference daemon did not answer on its control socket.
    #[error("fips does not answer {command:?}")]
    Query {
        /// The query.
        command: String,
        /// The reason.
        source: io::Error,
    },
    /// The status does not have the schema `weft.status/1`.
    #[error("the status is not of schema weft.status/1: {0}")]
    Schema(Value),
    /// The secret key is missing.
    #[error("no file in {} holds a secret key", .0.display())]
    NoSecret(PathBuf),
    /// The daemon ended by itself.
    #[error("daemon {name} ended with {status}: {last_line}")]
    Ended {
        /// The node's name.
        name: String,
        /// Its exit status.
        status: ExitStatus,
        /// The last line of its log.
        last_line: String,
    },
    /// A condition was not met within the time limit.
    #[error("daemon {name} did not {what} within {} s", .after.as_secs_f32())]
    NotReady {
        /// The node's name.
        name: String,
        /// The condition: "answer", for example.
        what: &'static str,
        /// The time limit.
        after: Duration,
    },
}

/// Makes the state directory of a node.
fn make_state(parent: &Path, name: &str) -> Result<PathBuf, DaemonError> {
    let state = parent.join(name);
    // Parents are not created: a world that is being removed must not reappear.
    match std::fs::create_dir(&state) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made.map_err(|source| DaemonError::File {
            path: state.clone(),
            source,
        })?,
    }
    Ok(state)
}

fn start(
    host: &Host,
    weft: &Path,
    state: &Path,
    config: &Path,
    log: &Path,
    environment: &[(String, String)],
) -> Result<LoggedChild, DaemonError> {
    let mut command = Command::new(weft);
    command.arg("up").arg("--state").arg(state);
    command.arg("--config").arg(config);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Ok(LoggedChild::start(host, command, log)?)
}

fn run_weft(weft: &Path, state: &Path, arguments: &[&str]) -> Result<Output, DaemonError> {
    let mut command = Command::new(weft);
    command.args(arguments).arg("--state").arg(state);
    let output = run_command(command, COMMAND_LIMIT)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(DaemonError::Command {
        command: arguments.join(" "),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn answer<T: for<'a> Deserialize<'a>>(command: &[&str], output: &Output) -> Result<T, DaemonError> {
    serde_json::from_slice(&output.stdout).map_err(|source| DaemonError::Answer {
        command: command.join(" "),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_of_the_schema_and_an_order() {
        let names = ["known", "linking", "linked", "session", "payload"];
        let states: Vec<PeerState> = names
            .iter()
            .map(|name| serde_json::from_value(Value::from(*name)).unwrap())
            .collect();
        assert!(states.is_sorted());
        assert_eq!(states[2], PeerState::Linked);
        assert!(Some(PeerState::Known) > None);
    }

    #[test]
    fn finds_the_secret_by_its_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let identity = Identity {
            name: "x".to_owned(),
            npub: String::new(),
            address: Ipv6Addr::LOCALHOST,
            state: directory.path().to_owned(),
        };
        assert!(matches!(identity.nsec(), Err(DaemonError::NoSecret(_))));
        std::fs::write(directory.path().join("config.toml"), "# nsec1no\n").unwrap();
        std::fs::write(directory.path().join("key"), "nsec1yes\n").unwrap();
        assert_eq!(identity.nsec().unwrap(), "nsec1yes");
    }
}
