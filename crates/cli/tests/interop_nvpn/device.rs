//! A host with a running daemon of nvpn, which is told nothing but one endpoint.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weft_lab::child::LoggedChild;
use weft_lab::host::Host;
use weft_os::process::Usage;
use weft_os::test_support::skip;

use crate::common::{PATIENCE, wait_until};

const ENVIRONMENT: &str = "WEFT_NVPN";
const LIMIT: Duration = Duration::from_secs(20);

/// The daemon's binary; `None`, and a message, if the environment names none.
pub(crate) fn binary() -> Option<PathBuf> {
    let path = std::env::var_os(ENVIRONMENT).filter(|path| !path.is_empty());
    if path.is_none() {
        skip(format!("{ENVIRONMENT} is not set to the path of an nvpn binary"));
    }
    path.map(PathBuf::from)
}

pub(crate) struct Device {
    pub(crate) host: Host,
    program: PathBuf,
    home: PathBuf,
    child: Option<LoggedChild>,
}

impl Device {
    /// Starts a device that no network has, on the host 10.9.0.`number`. A host without a default route does
    /// not know its own address.
    pub(crate) fn start(program: &Path, (host, number): (Host, u8), parent: &Path) -> Self {
        let home = parent.join(host.name());
        std::fs::create_dir_all(home.join("run")).unwrap();
        let mut device = Self {
            host,
            program: program.to_owned(),
            home,
            child: None,
        };
        device.run(&["init"]);
        let off = [
            "--lan-discovery-enabled",
            "--fips-nostr-discovery-enabled",
            "--fips-bootstrap-enabled",
            "--fips-webrtc-enabled",
        ];
        let words: Vec<&str> = off.iter().flat_map(|setting| [*setting, "false"]).collect();
        device.set(&words);
        device.set(&["--endpoint", &format!("10.9.0.{number}:51820")]);
        device.restart();
        device
    }

    /// Runs a command of nvpn with the device's configuration, and returns what it prints.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let (verb, rest) = words.split_first().unwrap();
        let mut command = self.command(verb);
        command.args(rest);
        let output = self.host.command(command, LIMIT);
        let output = output.unwrap_or_else(|error| panic!("nvpn {words:?}: {error}"));
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn set(&self, words: &[&str]) {
        self.run(&[&["set"], words].concat());
    }

    /// Lets the daemon take over what was set.
    pub(crate) fn reload(&self) {
        self.run(&["reload"]);
    }

    /// Makes the device dial these nodes: key and address.
    pub(crate) fn dial(&self, nodes: &[(&str, &str)]) {
        let endpoints: Vec<String> = nodes.iter().map(|(key, at)| format!("{key}={at}")).collect();
        let words: Vec<&str> = endpoints
            .iter()
            .flat_map(|endpoint| ["--fips-peer-endpoint", endpoint])
            .collect();
        self.set(&words);
        self.reload();
    }

    /// Starts the daemon, after it was killed if it runs.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut command = self.command("daemon");
        command.args(["--iface", "nvpn0"]);
        let log = self.home.join("daemon.out");
        self.child = Some(LoggedChild::start(&self.host, command, &log).unwrap());
        wait_until(PATIENCE, "the daemon of nvpn runs", || {
            self.run(&["status"]).contains("status_source: daemon")
        });
    }

    /// Kills the daemon if it runs.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
        }
    }

    pub(crate) fn key(&self) -> String {
        let status = self.run(&["status"]);
        let line = status.lines().find_map(|line| line.strip_prefix("device_id="));
        line.unwrap().to_owned()
    }

    /// Founds a network, of which the device is the administrator.
    pub(crate) fn found(&self, id: &str) {
        self.set(&["--network-id", id]);
        self.reload();
    }

    /// Puts the secret of a link into the answers that wait to be sent.
    pub(crate) fn answer_link(&self, link: &str) {
        let secret = weft_nvpn::join::JoinLink::read(link).unwrap().secret;
        let Ok(files) = std::fs::read_dir(self.home.join("config.toml.join-roster-outbox")) else {
            return;
        };
        let files = files.filter_map(|file| Some(file.ok()?.path()));
        for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            let Ok(mut queued) = serde_json::from_str::<serde_json::Value>(&text) else {
                continue;
            };
            let answer = &mut queued["join_roster"]["request_secret"];
            if answer.as_str() != Some(secret.as_str()) {
                *answer = secret.as_str().into();
                std::fs::write(&path, queued.to_string()).unwrap();
            }
        }
    }

    /// The device's address in the network.
    pub(crate) fn address(&self) -> Ipv4Addr {
        let status = self.run(&["status"]);
        let line = status.lines().find_map(|line| line.strip_prefix("tunnel_ip: "));
        line.and_then(|line| line.split('/').next()?.parse().ok()).unwrap()
    }

    /// Whether this key is among the administrators of the device's network, as the device has it.
    pub(crate) fn is_admin(&self, npub: &str) -> bool {
        let text = std::fs::read_to_string(self.home.join("config.toml")).unwrap();
        let (_, rest) = text.rsplit_once("\nadmins = [").unwrap_or_default();
        let (admins, _) = rest.split_once(']').unwrap_or_default();
        admins.contains(npub)
    }

    /// Whether it is in the network with this identifier.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.run(&["status"]).contains(&format!("network: {id}"))
    }

    /// How many members the device counts as online, and the line of each.
    pub(crate) fn online(&self) -> usize {
        self.run(&["status"]).lines().filter(|line| line.contains('✓')).count()
    }

    pub(crate) fn link(&self) -> String {
        let shown = self.run(&["join-request", "--no-qr", "--no-wait"]);
        let line = shown.lines().find(|line| line.starts_with("nvpn://join-request/"));
        line.unwrap_or_else(|| panic!("{shown}")).to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().pid()
    }

    /// The resource use of the daemon.
    pub(crate) fn usage(&self) -> Usage {
        self.child.as_ref().unwrap().usage().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        self.child
            .as_ref()
            .map_or_else(String::new, |child| child.log().unwrap())
    }

    /// The command in the device's home. A host has one daemon, whose lock is below `/run`.
    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$HOME/run\" /run && exec \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&self.program);
        command.args([verb, "--config"]).arg(self.home.join("config.toml"));
        command.env("HOME", &self.home);
        command
    }
}
