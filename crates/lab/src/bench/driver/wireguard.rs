//! WireGuard in user space: wireguard-go, boringtun-cli, gotatun. All use the same configuration
//! protocol (<https://www.wireguard.com/xplatform/>) on a socket in `/run/wireguard`, of which each
//! end has its own.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{DriverError, POLL, READY, Stage, Tunnel, log_name, with_own_run};
use crate::bench::arm::{Arm, Kind};
use crate::bench::conditions::MAX_CLIENTS;
use crate::child::LoggedChild;

/// The hosts' public keys in hexadecimal digits, those of [`private_key`]. They are not secret: they
/// protect benchmark bytes between namespaces of one machine.
const PUBLIC_KEYS: [&str; MAX_CLIENTS as usize + 2] = [
    "52cfb2028d5adb79cd7b900e93cf313c52ee2f23a98208efa8f8fc0d2c70ea6c",
    "f92bf00d2297b55f3327548f59a992f6f060eaddf4207551fcd32d076cf1b918",
    "24ccb4d82c8c5ca0b75e14b2306910c0dfeb1a8c56075d5ebb78438a68df0d2a",
    "8d59d33f0a46442b0c862168a1061070511371a73518a54b5b55353ce8770f1e",
    "001a4b696948a71a619537132d17259b2927df64a626fa07a4e8dd13eecb8610",
    "76f2b213cc71b1ca38e11587cd1bf72cd8ab88af69b81e1b644ce415be073863",
    "ba5f11d271ca3b6d23382292310a845bebaab1def8f43c3237e2231876a51b07",
    "7c77b08d0e51d50f90144c96854f45c425c6566300d634e12e6e56272992c06f",
    "9177b23278cbf0f3d17c36f2acc9b55e9c85f87b220a5386ec370d663e20e337",
    "1dd1ee5181bb6368472c99215065108c9515ae645e71080a917d21238f7b4f2b",
];

/// The private key of a host: 8 times its number, then 31 bytes of 0x48.
fn private_key(host: usize) -> String {
    format!("{:02x}{}", 8 * (host + 1), "48".repeat(31))
}

/// MTU inside, bytes: 1,500 less 80, as wg-quick sets it.
const MTU: u32 = 1420;
const PORT: u16 = 51820;
const DEVICE: &str = "wg0";

/// Time limit of an answer on the socket.
const ANSWER: Duration = Duration::from_secs(5);

pub(super) fn start(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let mut children = Vec::new();
    for host in 0..stage.hosts.len() {
        children.push((host, start_host(arm, program, stage, host)?));
    }
    stage.forward_at_relay()?;
    let addresses = (0..=stage.server()).map(|host| inner(host).into());
    Ok(Tunnel::of_children(stage, children, addresses, DEVICE))
}

/// The inner address of a host.
fn inner(host: usize) -> Ipv4Addr {
    [10, 98, 0, host as u8 + 1].into()
}

/// Starts the process of one host.
pub(super) fn start_host(arm: &Arm, program: &Path, stage: &Stage, host: usize) -> Result<LoggedChild, DriverError> {
    let command = command(arm, program, stage.conditions.threads);
    let mut child = stage.start(host, &log_name(program), command)?;
    let index = stage.wait_interface(host, DEVICE, &mut child)?;
    configure(child.pid(), stage, host)?;
    stage.address(host, index, (inner(host), 24), stage.conditions.mtu.unwrap_or(MTU))?;
    Ok(child)
}

fn command(arm: &Arm, program: &Path, threads: Option<u16>) -> Command {
    let mut command = with_own_run(program);
    command.env("LOG_LEVEL", "error").env("WG_LOG_LEVEL", "error");
    match arm.kind {
        Kind::WireguardGo => command.args(["-f", DEVICE]),
        // Without this boringtun would become another user, which may not exist in the namespace.
        _ => command.args(["--foreground", "--disable-drop-privileges", DEVICE]),
    };
    match (threads, arm.kind) {
        (Some(threads), Kind::WireguardGo) => drop(command.env("GOMAXPROCS", threads.to_string())),
        (Some(threads), Kind::Boringtun) => drop(command.arg("--threads").arg(threads.to_string())),
        _ => {}
    }
    for setting in &arm.settings {
        match arm.kind {
            // GOMAXPROCS, GOGC and others.
            Kind::WireguardGo => command.env(&setting.key, &setting.value),
            _ => command.arg(format!("--{}", setting.key)).arg(&setting.value),
        };
    }
    command
}

/// Configures one host: its key, and its neighbours with the addresses allowed for each. Behind a
/// relay are all.
fn configure(pid: u32, stage: &Stage, host: usize) -> Result<(), DriverError> {
    let mut text = format!(
        "set=1\nprivate_key={}\nlisten_port={PORT}\nreplace_peers=true\n",
        private_key(host)
    );
    for (other, address) in stage.neighbours(host) {
        let key = PUBLIC_KEYS.get(other).copied().unwrap_or_default();
        let allowed = match stage.relay() == Some(other) {
            true => "10.98.0.0/24".to_owned(),
            false => format!("{}/32", inner(other)),
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "public_key={key}\nendpoint={address}:{PORT}\nallowed_ip={allowed}\n"
        );
    }
    text.push('\n');
    let path = PathBuf::from(format!("/proc/{pid}/root/run/wireguard/{DEVICE}.sock"));
    let limit = Instant::now() + READY;
    let mut stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) if Instant::now() < limit => std::thread::sleep(POLL),
            Err(source) => return Err(DriverError::file(&path, source)),
        }
    };
    let mut answer = [0; 256];
    let exchanged = stream
        .set_read_timeout(Some(ANSWER))
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| stream.read(&mut answer));
    let len = exchanged.map_err(|source| DriverError::file(&path, source))?;
    let answer = String::from_utf8_lossy(answer.get(..len).unwrap_or_default());
    if answer.lines().any(|line| line == "errno=0") {
        Ok(())
    } else {
        Err(DriverError::Configuration(answer.trim().to_owned()))
    }
}
