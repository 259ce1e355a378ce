//! meshguard: two nodes that trust each other's keys, each the other's seed. Neither asks STUN, as
//! each is configured with its own address.
//!
//! It derives its addresses from its keys, its ports are fixed, and its control socket is in
//! `/run`, so each end gets a `/run` of its own.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{DriverError, POLL, READY, Stage, Tunnel, log_name, with_own_run};
use crate::child::{LoggedChild, run_command};

const DEVICE: &str = "mg0";
/// The port of its discovery, over which everything goes.
const PORT: u16 = 51821;
/// Time limit of a command that only reads or writes keys.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn start(program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let homes = [home(program, stage, 0)?, home(program, stage, 1)?];
    for (end, home) in homes.iter().enumerate() {
        let key = homes[1 - end].join("identity.pub");
        let mut trust = command(Command::new(program), home, &["trust"]);
        trust.arg(key).args(["--name", "peer"]);
        run(trust)?;
    }
    let (mut addresses, mut children) = (Vec::new(), Vec::new());
    for (end, home) in homes.iter().enumerate() {
        let seed = format!("{}:{PORT}", stage.underlay(1 - end)?);
        let own = stage.underlay(end)?.to_string();
        let up = ["up", "--announce", &own, "--seed", &seed];
        let mut child = stage.start(end, &log_name(program), command(with_own_run(program), home, &up))?;
        let index = stage.wait_interface(end, DEVICE, &mut child)?;
        addresses.push(wait_address(stage, end, index, &mut child)?);
        children.push((end, child));
    }
    Ok(Tunnel::of_children(stage, children, addresses, DEVICE))
}

/// Creates a folder with a new key.
fn home(program: &Path, stage: &Stage, end: usize) -> Result<PathBuf, DriverError> {
    let home = stage.folder.join(end.to_string());
    std::fs::create_dir(&home).map_err(|source| DriverError::file(&home, source))?;
    run(command(Command::new(program), &home, &["keygen"]))?;
    Ok(home)
}

fn command(mut command: Command, home: &Path, arguments: &[&str]) -> Command {
    command
        .args(arguments)
        .env("MESHGUARD_CONFIG_DIR", home)
        .env("HOME", home);
    command
}

fn run(command: Command) -> Result<(), DriverError> {
    let output = run_command(command, LIMIT)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(DriverError::Configuration(
        said.lines().next().unwrap_or_default().to_owned(),
    ))
}

/// Waits for its IPv4 address, which it sets on its interface itself.
fn wait_address(stage: &Stage, end: usize, index: u32, child: &mut LoggedChild) -> Result<IpAddr, DriverError> {
    let limit = Instant::now() + READY;
    loop {
        let all = stage.hosts[end].netlink(|netlink| netlink.addresses(index))?;
        if let Some(found) = all.into_iter().find(|found| found.address.is_ipv4()) {
            return Ok(found.address);
        }
        if Instant::now() >= limit || child.ended()?.is_some() {
            return Err(DriverError::not_up(child));
        }
        std::thread::sleep(POLL);
    }
}
