//! nebula: certificates from its own tool, one YAML file for each end.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{DriverError, Stage, Tunnel, log_name};
use crate::child::run_command;

const DEVICE: &str = "nebula0";
const PORT: u16 = 4242;

/// MTU inside, bytes: the default is 1300; this value fits in 1,500 with its 16 bytes of header and
/// 16 of tag.
const MTU: u32 = 1420;

/// Time limit of the certificate tool.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn start(program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let certify = program.with_file_name("nebula-cert");
    run(
        stage,
        &certify,
        &["ca", "-name", "bench", "-out-crt", "ca.crt", "-out-key", "ca.key"],
    )?;
    let (mut addresses, mut children) = (Vec::new(), Vec::new());
    for end in 0..2 {
        let address = std::net::Ipv4Addr::new(10, 97, 0, end as u8 + 1);
        let (network, certificate, key) = (format!("{address}/24"), format!("{end}.crt"), format!("{end}.key"));
        let sign = ["sign", "-name", if end == 0 { "a" } else { "b" }, "-ip", &network];
        let sign = [
            &sign[..],
            &[
                "-ca-crt",
                "ca.crt",
                "-ca-key",
                "ca.key",
                "-out-crt",
                &certificate,
                "-out-key",
                &key,
            ],
        ];
        run(stage, &certify, &sign.concat())?;
        let config = stage.write(&format!("{end}.yml"), &configuration(stage, end)?)?;
        let mut command = Command::new(program);
        command.arg("-config").arg(config);
        if let Some(threads) = stage.conditions.threads {
            command.env("GOMAXPROCS", threads.to_string());
        }
        let mut child = stage.start(end, &log_name(program), command)?;
        stage.wait_interface(end, DEVICE, &mut child)?;
        addresses.push(address.into());
        children.push((end, child));
    }
    Ok(Tunnel::of_children(stage, children, addresses, DEVICE))
}

/// Each is configured with the other's address; no lighthouse is used.
fn configuration(stage: &Stage, end: usize) -> Result<String, DriverError> {
    let folder = stage.folder.display();
    let (peer, underlay, mtu) = (2 - end, stage.underlay(1 - end)?, stage.conditions.mtu.unwrap_or(MTU));
    Ok(format!(
        "pki: {{ca: {folder}/ca.crt, cert: {folder}/{end}.crt, key: {folder}/{end}.key}}\n\
         static_host_map: {{\"10.97.0.{peer}\": [\"{underlay}:{PORT}\"]}}\n\
         lighthouse: {{am_lighthouse: false, hosts: []}}\n\
         listen: {{host: 0.0.0.0, port: {PORT}}}\n\
         tun: {{dev: {DEVICE}, mtu: {mtu}}}\n\
         cipher: aes\nlogging: {{level: error}}\n\
         firewall: {{outbound: [{{port: any, proto: any, host: any}}], inbound: [{{port: any, proto: any, host: any}}]}}\n"
    ))
}

fn run(stage: &Stage, tool: &Path, arguments: &[&str]) -> Result<(), DriverError> {
    let mut command = Command::new(tool);
    command.args(arguments).current_dir(&stage.folder);
    let output = run_command(command, LIMIT)?;
    if output.status.success() {
        return Ok(());
    }
    Err(DriverError::Configuration(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}
