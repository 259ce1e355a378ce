//! The reference daemon on a host. Its binary is not part of the project: tests get its path from
//! the environment.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weft_os::process::Usage;

use crate::child::LoggedChild;
use crate::daemon::{DaemonError, Identity};
use crate::host::Host;
use crate::log;
use crate::spec::NodeSpec;

/// The environment variable with the path of a `fips` binary.
pub const ENVIRONMENT: &str = "WEFT_FIPS";

/// Time limit of the daemon's exit.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Time limit of an answer on the control socket.
const QUERY_LIMIT: Duration = Duration::from_secs(5);

/// The address of its DNS responder, if enabled: its own default.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 5354);

/// Interval between two queries.
const POLL: Duration = Duration::from_millis(50);

/// The binary in the environment variable; `None` if it is not set.
#[must_use]
pub fn binary() -> Option<PathBuf> {
    std::env::var_os(ENVIRONMENT).map(PathBuf::from)
}

/// A reference daemon. It is killed when this is dropped.
#[derive(Debug)]
pub struct FipsDaemon {
    host: Host,
    fips: PathBuf,
    identity: Identity,
    config: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    child: LoggedChild,
}

impl FipsDaemon {
    /// Writes the configuration next to the identity's key and starts the daemon `fips` on `host`.
    /// With the identity's key it also has its npub and its address.
    ///
    /// # Errors
    /// If there is no key, the files cannot be written or the program cannot be started.
    pub fn start(host: &Host, fips: &Path, identity: &Identity, spec: &NodeSpec) -> Result<Self, DaemonError> {
        let config = identity.state.join("fips.yaml");
        let socket = identity.state.join("fips.sock");
        let text = spec.to_fips_yaml(&identity.nsec()?, &socket);
        std::fs::write(&config, text).map_err(|source| DaemonError::File {
            path: config.clone(),
            source,
        })?;
        let log = identity.state.with_extension("log");
        let child = start(host, fips, &config, &log)?;
        Ok(Self {
            host: host.clone(),
            fips: fips.to_owned(),
            identity: identity.clone(),
            config,
            socket,
            log,
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

    /// The text of its log, over all starts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn log(&self) -> Result<String, DaemonError> {
        let bytes = std::fs::read(&self.log).map_err(|source| DaemonError::File {
            path: self.log.clone(),
            source,
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The lines of its log at WARN or ERROR, over all starts.
    ///
    /// # Errors
    /// Like [`FipsDaemon::log`].
    pub fn warnings(&self) -> Result<Vec<String>, DaemonError> {
        Ok(log::warnings(&self.log()?))
    }

    /// Sends a query to its control socket, such as `show_peers`, and returns the `data` of the
    /// answer.
    ///
    /// # Errors
    /// [`DaemonError::Query`] if it does not answer, or answers with an error.
    pub fn query(&self, command: &str) -> Result<Value, DaemonError> {
        ask(&self.socket, command).map_err(|source| DaemonError::Query {
            command: command.to_owned(),
            source,
        })
    }

    /// Asks it for the address of `npub` by name, `npub1....fips`. This query is necessary: the
    /// daemon sends a packet only to an address whose key it knows, and learns keys that it does
    /// not know from links and sessions only from names. It forgets them when it ends.
    ///
    /// # Errors
    /// [`DaemonError::Query`] if it does not answer (see
    /// [`FipsSettings::dns`](crate::spec::FipsSettings::dns)) or does not know the name.
    pub fn resolve(&self, npub: &str) -> Result<(), DaemonError> {
        let query = name_query(npub);
        let answered = self.host.run(|| exchange(&query)).map_err(io::Error::other);
        answered
            .and_then(|answered| answered)
            .map_err(|source| DaemonError::Query {
                command: format!("{npub}.fips"),
                source,
            })
    }

    /// Waits until it answers and its interface is up.
    ///
    /// # Errors
    /// [`DaemonError::Ended`] as soon as it has ended; [`DaemonError::NotReady`] after `limit`.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), DaemonError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.ended()? {
                return Err(DaemonError::Ended {
                    name: self.identity.name.clone(),
                    status,
                    last_line: self.child.log()?.lines().last().unwrap_or("").to_owned(),
                });
            }
            let ready = |status: Value| status.get("tun_state").and_then(Value::as_str) == Some("active");
            if self.query("show_status").is_ok_and(ready) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(DaemonError::NotReady {
                    name: self.identity.name.clone(),
                    what: "answer",
                    after: limit,
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, DaemonError> {
        Ok(self.child.ended()?)
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
    /// If it takes more than 10 s; it is killed then.
    pub fn stop(&mut self) -> Result<ExitStatus, DaemonError> {
        Ok(self.child.stop(STOP_LIMIT)?)
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> Result<(), DaemonError> {
        self.child.kill()?;
        Ok(())
    }

    /// Starts it again with the same files.
    ///
    /// # Errors
    /// Like [`FipsDaemon::start`].
    pub fn restart(&mut self) -> Result<(), DaemonError> {
        self.kill()?;
        self.child = start(&self.host, &self.fips, &self.config, &self.log)?;
        Ok(())
    }
}

/// One query, one answer: a line of JSON each.
fn ask(socket: &Path, command: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(QUERY_LIMIT))?;
    writeln!(stream, "{}", json!({ "command": command }))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line)?;
    match answer.get_mut("data") {
        Some(data) => Ok(data.take()),
        None => Err(io::Error::other(line.trim().to_owned())),
    }
}

/// A query for the AAAA record of `npub.fips` (RFC 1035, section 4.1).
fn name_query(npub: &str) -> Vec<u8> {
    const HEADER: [u8; 12] = [0x57, 0xef, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    const AAAA_IN: [u8; 4] = [0, 28, 0, 1];
    let mut query = HEADER.to_vec();
    for label in [npub, "fips"] {
        // An npub has 63 characters, the maximum of a label.
        query.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
        query.extend_from_slice(label.as_bytes());
    }
    query.push(0);
    query.extend_from_slice(&AAAA_IN);
    query
}

/// Sends a query from the namespace of this thread and waits for an answer with a record.
fn exchange(query: &[u8]) -> io::Result<()> {
    const NO_ERROR: u8 = 0;
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(QUERY_LIMIT))?;
    socket.connect(RESOLVER)?;
    socket.send(query)?;
    let mut answer = [0; 512];
    let len = socket.recv(&mut answer)?;
    match answer.get(..len) {
        Some([a, b, _, flags, _, _, 0, 1, ..]) if [*a, *b] == query[..2] && flags & 0xf == NO_ERROR => Ok(()),
        _ => Err(io::Error::other("no such name")),
    }
}

fn start(host: &Host, fips: &Path, config: &Path, log: &Path) -> Result<LoggedChild, DaemonError> {
    let mut command = Command::new(fips);
    command.arg("--config").arg(config);
    Ok(LoggedChild::start(host, command, log)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_a_name_in_two_labels() {
        let query = name_query("npub1x");
        assert_eq!(query.len(), 12 + 1 + 6 + 1 + 4 + 1 + 4);
        assert!(query.ends_with(b"\x06npub1x\x04fips\0\0\x1c\0\x01"));
    }
}
