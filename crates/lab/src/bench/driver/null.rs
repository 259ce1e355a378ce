//! The null tunnel, which is part of weft: `weft lab null`. It joins two hosts, so a relay has one
//! for each of its cables, and forwards between them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use super::{DriverError, Stage, Tunnel, log_name};
use crate::bench::arm::Arm;
use crate::child::LoggedChild;

/// UDP payload of a datagram, bytes: 1,500 less IPv4 and UDP headers, less the overhead of a tunnel
/// with keys.
const SEGMENT: u16 = 1452;

/// MTU inside, bytes, equal to that of the WireGuard arms.
const MTU: u32 = 1420;

/// The port of the first cable's tunnel; the others follow.
const PORT: u16 = 7000;
const DEVICE: &str = "null0";

pub(super) fn start(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let mut children = Vec::new();
    for host in 0..stage.hosts.len() {
        let started = start_host(arm, program, stage, host)?;
        children.extend(started.into_iter().map(|child| (host, child)));
    }
    stage.forward_at_relay()?;
    let addresses = (0..=stage.server()).map(|host| inner(host).into());
    Ok(Tunnel::of_children(stage, children, addresses, DEVICE))
}

/// The inner address of a host.
fn inner(host: usize) -> Ipv4Addr {
    [10, 99, 0, host as u8 + 1].into()
}

/// Starts the processes of one host.
pub(super) fn start_host(
    arm: &Arm,
    program: &Path,
    stage: &Stage,
    host: usize,
) -> Result<Vec<LoggedChild>, DriverError> {
    let (mut segment, mut seal) = (SEGMENT.to_string(), None);
    for setting in &arm.settings {
        match setting.key.as_str() {
            "segment" => segment.clone_from(&setting.value),
            "seal" => seal = Some(&setting.value),
            other => return Err(DriverError::Setting(other.to_owned())),
        }
    }
    let mut children = Vec::new();
    for (n, leg) in stage.cables.iter().enumerate() {
        let (other, address) = match leg.ends {
            [a, b] if a == host => (b, leg.addresses[1]),
            [a, b] if b == host => (a, leg.addresses[0]),
            _ => continue,
        };
        let (port, device) = (PORT + n as u16, format!("null{}", children.len()));
        let mut command = Command::new(program);
        command.args(["lab", "null", "--tun", &device, "--port", &port.to_string()]);
        command.args(["--peer", &format!("{address}:{port}"), "--segment", &segment]);
        if let Some(suite) = seal {
            command.args(["--seal", suite]);
        }
        let log = format!("{}-{n}", log_name(program));
        let mut child = stage.start(host, &log, command)?;
        let index = stage.wait_interface(host, &device, &mut child)?;
        let mtu = stage.conditions.mtu.unwrap_or(MTU);
        if stage.relay() == Some(host) {
            stage.address(host, index, (inner(host), 32), mtu)?;
            stage.route(host, inner(other), index)?;
        } else {
            stage.address(host, index, (inner(host), 24), mtu)?;
        }
        children.push(child);
    }
    Ok(children)
}
