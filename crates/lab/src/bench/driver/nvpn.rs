//! nvpn: one network of two devices with each other's endpoints configured; neither asks a relay, a
//! bootstrap peer or STUN.
//!
//! It requires `iptables`, refuses addresses that are reserved for documentation, and permits one
//! daemon on a machine: its lock is in `/run`, so each end gets a `/run` of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{DriverError, Stage, Tunnel, log_name, with_own_run};
use crate::child::run_command;

const DEVICE: &str = "nvpn0";
const PORT: u16 = 51820;

/// Time limit of a command that only writes the configuration.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn start(program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let homes = [home(program, stage, 0)?, home(program, stage, 1)?];
    let [a, b] = [public_key(&homes[0])?, public_key(&homes[1])?];
    let keys = [a, b];
    let (mut addresses, mut children) = (Vec::new(), Vec::new());
    for (end, home) in homes.iter().enumerate() {
        let (endpoint, peer) = (
            format!("{}:{PORT}", stage.underlay(end)?),
            format!("{}:{PORT}", stage.underlay(1 - end)?),
        );
        let peer = format!("{}={peer}", keys[1 - end]);
        let mut set = vec![
            "set",
            "--network-id",
            "bench",
            "--device",
            &keys[0],
            "--device",
            &keys[1],
        ];
        set.extend(["--endpoint", &endpoint, "--fips-peer-endpoint", &peer]);
        for off in [
            "--fips-nostr-discovery-enabled",
            "--fips-bootstrap-enabled",
            "--fips-webrtc-enabled",
        ] {
            set.extend([off, "false"]);
        }
        run(program, home, &set)?;
        let mut child = stage.start(end, &log_name(program), daemon(program, home))?;
        stage.wait_interface(end, DEVICE, &mut child)?;
        addresses.push(tunnel_address(home)?);
        children.push((end, child));
    }
    Ok(Tunnel::of_children(stage, children, addresses, DEVICE))
}

/// Creates a folder with a new key and its configuration.
fn home(program: &Path, stage: &Stage, end: usize) -> Result<PathBuf, DriverError> {
    let home = stage.folder.join(end.to_string());
    std::fs::create_dir(&home).map_err(|source| DriverError::file(&home, source))?;
    run(program, &home, &["init"])?;
    Ok(home)
}

fn config(home: &Path) -> PathBuf {
    home.join("config.toml")
}

fn run(program: &Path, home: &Path, arguments: &[&str]) -> Result<(), DriverError> {
    let (verb, rest) = arguments.split_first().unwrap_or((&"help", &[]));
    let mut command = Command::new(program);
    command
        .arg(verb)
        .arg("--config")
        .arg(config(home))
        .args(rest)
        .env("HOME", home);
    let output = run_command(command, LIMIT)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(DriverError::Configuration(
        said.lines().next().unwrap_or_default().to_owned(),
    ))
}

fn daemon(program: &Path, home: &Path) -> Command {
    let mut command = with_own_run(program);
    command.arg("connect").arg("--config").arg(config(home));
    command.args(["--iface", DEVICE]).env("HOME", home);
    command
}

fn public_key(home: &Path) -> Result<String, DriverError> {
    setting(home, "nostr", "public_key")
}

fn tunnel_address(home: &Path) -> Result<std::net::IpAddr, DriverError> {
    let text = setting(home, "node", "tunnel_ip")?;
    let address = text.split('/').next().and_then(|address| address.parse().ok());
    address.ok_or_else(|| DriverError::Configuration(format!("tunnel_ip is {text:?}")))
}

/// Reads a text that the program has written into its configuration.
fn setting(home: &Path, table: &str, key: &str) -> Result<String, DriverError> {
    let path = config(home);
    let text = std::fs::read_to_string(&path).map_err(|source| DriverError::file(&path, source))?;
    let missing = || DriverError::Configuration(format!("its configuration has no {table}.{key}"));
    let file: toml::Table = text.parse().map_err(|_| missing())?;
    let value = file
        .get(table)
        .and_then(|table| table.get(key))
        .and_then(toml::Value::as_str);
    value.map(str::to_owned).ok_or_else(missing)
}
