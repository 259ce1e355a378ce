//! Registration with systemd-resolved of the server for `.fips`, so that `ping server.fips` works.
//!
//! systemd-resolved keeps such settings for each interface and removes them with the interface,
//! which lives no longer than the daemon. Therefore nothing has to be undone at the end, even after
//! SIGKILL, and no file is changed.
//!
//! `resolvectl` makes the D-Bus calls. It may hang on a bus that does not answer, so each call is
//! bounded in time, and no call is made from a thread that serves packets.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::search::Search;
use super::zone::{DOMAIN, NETWORKS};

/// Where systemd-resolved keeps its run-time state.
const RUN_DIRECTORY: &str = "/run/systemd/resolve";

/// How long one call of `resolvectl` may take.
const LIMIT: Duration = Duration::from_secs(10);

/// systemd-resolved as seen from one interface.
#[derive(Clone, Debug)]
pub struct Resolved {
    resolvectl: OsString,
    interface: u32,
    /// How long one call may take.
    limit: Duration,
}

/// The reason why `.fips` is not set up in the system. Its text is half a line for the user.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The configuration disables it.
    #[error("dns.register is false")]
    TurnedOff,
    /// The system uses another resolver.
    #[error("systemd-resolved does not run here")]
    NotRunning,
    /// It may run, but in another network namespace, where the index of this node's interface has
    /// another meaning.
    #[error("systemd-resolved, if there is one, belongs to another network namespace")]
    OtherNamespace,
    /// Settings of the interface are not those that were made.
    #[error("the {0} of the interface are others than before")]
    Lost(&'static str),
    /// The program `resolvectl` cannot be started.
    #[error("resolvectl cannot be run: {0}")]
    NoProgram(String),
    /// `resolvectl` ended with an error.
    #[error("`resolvectl {command}` said: {said}")]
    Failed {
        /// Its arguments.
        command: String,
        /// The first line of its output.
        said: String,
    },
    /// The address that resolv.conf(5) would name is not available.
    #[error("{address} cannot be bound ({why}), so {} is not replaced; docs/names.md says how other resolvers lead here", .path.display())]
    Port {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        why: String,
        /// The file.
        path: PathBuf,
    },
    /// The directory of the file does not exist.
    #[error("{} does not exist; correct dns.resolv_conf", .0.display())]
    NoDirectory(PathBuf),
    /// The broker failed.
    #[error("{0}")]
    Broker(String),
    /// The node's own address cannot be bound.
    #[error("{address}: {why}")]
    Bind {
        /// The address that systemd-resolved would have queried.
        address: SocketAddr,
        /// The error of the system.
        why: String,
    },
    /// `resolvectl` did not end in time.
    #[error("`resolvectl {command}` took more than {} s", .limit.as_secs())]
    TooSlow {
        /// Its arguments.
        command: String,
        /// The time that it had.
        limit: Duration,
    },
}

impl Resolved {
    /// The instance that the program `resolvectl` (a path, or a name to look up in `PATH`)
    /// controls; `interface` is the index of the node's interface.
    #[must_use]
    pub fn new(resolvectl: impl Into<OsString>, interface: u32) -> Self {
        Self {
            resolvectl: resolvectl.into(),
            interface,
            limit: LIMIT,
        }
    }

    /// True if systemd-resolved runs on this system.
    #[must_use]
    pub fn is_running() -> bool {
        Path::new(RUN_DIRECTORY).is_dir()
    }

    /// True if the programs of this system query systemd-resolved: through its address in
    /// `/etc/resolv.conf`, or through its module of the C library.
    #[must_use]
    pub fn is_asked() -> bool {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        leads_to_resolved(&read("/etc/resolv.conf"), &read("/etc/nsswitch.conf"))
    }

    /// Configures `server` for queries below `.fips` and `.weft`, and for no others, `search` as the
    /// networks below which short names are looked up, and makes one query: `probe`, a name that has
    /// an address.
    ///
    /// # Errors
    /// [`RegisterError`]; then no setting remains.
    pub async fn register(&self, server: SocketAddr, search: &Search, probe: &str) -> Result<(), RegisterError> {
        let registered = self.try_register(server, search, probe).await;
        if registered.is_err() {
            let _ = self.call(&["revert", &self.interface.to_string()]).await;
        }
        registered
    }

    /// Reads the settings of the interface back.
    ///
    /// # Errors
    /// [`RegisterError::Lost`] if they are not those of [`register`](Self::register), or another one if
    /// they cannot be read.
    pub async fn check(&self, server: SocketAddr, search: &Search) -> Result<(), RegisterError> {
        let interface = self.interface.to_string();
        let domains = self.call(&["domain", &interface]).await?;
        let servers = self.call(&["dns", &interface]).await?;
        let wanted: BTreeSet<String> = domains_of(search).collect();
        if values(&domains) != wanted {
            return Err(RegisterError::Lost("domains"));
        }
        if values(&servers) != BTreeSet::from([server.to_string()]) {
            return Err(RegisterError::Lost("server"));
        }
        Ok(())
    }

    async fn try_register(&self, server: SocketAddr, search: &Search, probe: &str) -> Result<(), RegisterError> {
        let interface = self.interface.to_string();
        let domains: Vec<String> = domains_of(search).collect();
        let words = ["domain", &interface]
            .into_iter()
            .chain(domains.iter().map(String::as_str));
        // The server is set last: before it nothing is sent, and then only queries of the domain.
        // Names below .fips and .weft cannot be signed, so validation would refuse every answer; and
        // the path to the server stays on this host.
        self.call(&words.collect::<Vec<_>>()).await?;
        for setting in [
            ["default-route", &interface, "no"],
            ["dnssec", &interface, "no"],
            ["dnsovertls", &interface, "no"],
            ["llmnr", &interface, "no"],
            ["mdns", &interface, "no"],
            ["dns", &interface, &server.to_string()],
        ] {
            self.call(&setting).await?;
        }
        self.call(&["query", probe]).await.map(drop)
    }

    /// Runs the program; returns what it printed.
    async fn call(&self, arguments: &[&str]) -> Result<String, RegisterError> {
        let child = Command::new(&self.resolvectl)
            .args(arguments)
            // A daemon has no terminal for a password prompt.
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let command = || arguments.join(" ");
        match timeout(self.limit, child).await {
            Err(_) => Err(RegisterError::TooSlow {
                command: command(),
                limit: self.limit,
            }),
            Ok(Err(error)) => Err(RegisterError::NoProgram(error.to_string())),
            Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Ok(output)) => Err(RegisterError::Failed {
                command: command(),
                said: first_line(&output.stderr),
            }),
        }
    }
}

/// The domains of the interface. Never one of reverse names: the ranges of these addresses are those of
/// other private networks, too, and their queries would come here.
fn domains_of(search: &Search) -> impl Iterator<Item = String> {
    let own = [DOMAIN, NETWORKS].map(|domain| format!("~{domain}"));
    own.into_iter().chain(search.domains())
}

/// The values in what `resolvectl` prints of one interface: `Link 3 (weft0): VALUE VALUE`.
fn values(printed: &str) -> BTreeSet<String> {
    let (_, values) = printed.split_once("): ").unwrap_or_default();
    values.split_whitespace().map(str::to_owned).collect()
}

/// What identifies the files in which systemd-resolved keeps its state, and that of the settings of an
/// interface. Their content is none of this program's business.
pub(super) fn stamp(interface: u32) -> [Option<(u64, i64, i64)>; 2] {
    let run = Path::new(RUN_DIRECTORY);
    let of = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec()))
    };
    [of(run), of(&run.join("netif").join(interface.to_string()))]
}

/// True if programs ask systemd-resolved with these texts of `/etc/resolv.conf` and
/// `/etc/nsswitch.conf`.
pub(super) fn leads_to_resolved(resolv_conf: &str, nsswitch: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let by_address = resolv_conf.lines().map(words).any(|line| {
        matches!(&line[..], [key, server, ..]
            if key == "nameserver" && ["127.0.0.53", "127.0.0.54"].contains(&server.as_str()))
    });
    let by_module = nsswitch.lines().map(words).any(|line| {
        let mut words = line.iter();
        words.next().is_some_and(|key| key == "hosts:") && words.any(|word| word == "resolve")
    });
    by_address || by_module
}

/// The first line of a message, without control characters.
fn first_line(said: &[u8]) -> String {
    const LONGEST: usize = 200;
    let text = String::from_utf8_lossy(said);
    let line = text.lines().next().unwrap_or("nothing");
    line.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::test_support::write_program;

    #[test]
    fn a_program_that_hangs_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let (program, calls) = (directory.path().join("resolvectl"), directory.path().join("calls"));
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> '{}'\n[ \"$1\" != domain ] || exec sleep 1000\n",
            calls.display()
        );
        write_program(&program, &script);
        let resolved = Resolved {
            // The settings are taken back under the same limit.
            limit: Duration::from_secs(5),
            ..Resolved::new(program, 7)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let search = Search::new(["home", "work"]);
        let registered = resolved.register("[fd00::1]:5354".parse().unwrap(), &search, "npub1x.fips");
        let error = runtime.block_on(registered).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`resolvectl domain 7 ~fips ~weft home.weft work.weft` took more than 5 s"
        );
        assert_eq!(fs::read_to_string(calls).unwrap().lines().last().unwrap(), "revert 7");
    }

    #[test]
    fn settings_are_read_back() {
        for (domains, servers, expected) in [
            ("home.weft ~fips ~weft", "[fd00::1]:5354", Ok(())),
            ("~fips ~weft", "[fd00::1]:5354", Err("domains")),
            ("~. ~fips ~weft home.weft", "[fd00::1]:5354", Err("domains")),
            ("", "", Err("domains")),
            ("~fips ~weft home.weft", "", Err("server")),
            ("~fips ~weft home.weft", "192.0.2.53", Err("server")),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("resolvectl");
            let script = format!(
                "#!/bin/sh\n[ \"$1\" = dns ] && echo 'Link 7 (weft0): {servers}' || echo 'Link 7 (weft0): {domains}'\n"
            );
            write_program(&program, &script);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let (resolved, search) = (Resolved::new(program, 7), Search::new(["home"]));
            let checked = runtime.block_on(resolved.check("[fd00::1]:5354".parse().unwrap(), &search));
            assert_eq!(checked, expected.map_err(RegisterError::Lost), "{domains} {servers}");
        }
    }

    #[test]
    fn a_system_that_asks_resolved_is_recognised() {
        let stub = "# made by hand\nnameserver 127.0.0.53\noptions edns0\n";
        let other = "nameserver 192.0.2.53\n#nameserver 127.0.0.53\n";
        assert!(leads_to_resolved(stub, ""));
        assert!(!leads_to_resolved(other, "hosts: files dns"));
        assert!(leads_to_resolved(
            other,
            "passwd: files\nhosts: files resolve [!UNAVAIL=return] dns\n"
        ));
        assert!(!leads_to_resolved("", "passwd: resolve\n"));
    }

    #[test]
    fn messages_are_short_and_plain() {
        assert_eq!(first_line(b"no\x1b[1m bus\nmore"), "no[1m bus");
        assert_eq!(first_line(b""), "nothing");
        assert_eq!(first_line(&[b'x'; 5000]).len(), 200);
    }
}
