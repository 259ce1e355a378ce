//! WireGuard in user space: wireguard-go, boringtun-cli, gotatun. All use the same configuration
//! protocol (<https://www.wireguard.com/xplatform/>) on a socket in `/run/wireguard`, of which each
//! end has its own.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{DriverError, EndPoint, POLL, READY, Running, Stage, Tunnel, UNDERLAY, with_own_run};
use crate::bench::arm::{Arm, Kind};

/// Both ends' keys, private and public, in hexadecimal digits. They are not secret: they protect
/// benchmark bytes between namespaces of one machine.
const KEYS: [[&str; 2]; 2] = [
    [
        "4848484848484848484848484848484848484848484848484848484848484848",
        "9177b23278cbf0f3d17c36f2acc9b55e9c85f87b220a5386ec370d663e20e337",
    ],
    [
        "5050505050505050505050505050505050505050505050505050505050505050",
        "ef38b4abd14b0a919cbe6839f6185b97d32607bee359c6c53c12cc7597867d59",
    ],
];

/// MTU inside, bytes: 1,500 less 80, as wg-quick sets it.
const MTU: u32 = 1420;
const PORT: u16 = 51820;
const DEVICE: &str = "wg0";

/// Time limit of an answer on the socket.
const ANSWER: Duration = Duration::from_secs(5);

pub(super) fn start(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let (mut ends, mut children) = (Vec::new(), Vec::new());
    for end in 0..2 {
        let mut child = stage.start(end, command(arm, program))?;
        let index = stage.wait_interface(end, DEVICE, &mut child)?;
        configure(child.pid(), end)?;
        let address = std::net::Ipv4Addr::new(10, 98, 0, end as u8 + 1).into();
        stage.address(end, index, (address, 24), MTU)?;
        ends.push(EndPoint {
            address,
            device: DEVICE.to_owned(),
            processes: vec![child.pid()],
        });
        children.push(child);
    }
    super::both(ends, MTU, Running::Children(children))
}

fn command(arm: &Arm, program: &Path) -> Command {
    let mut command = with_own_run(program);
    command.env("LOG_LEVEL", "error").env("WG_LOG_LEVEL", "error");
    match arm.kind {
        Kind::WireguardGo => command.args(["-f", DEVICE]),
        // Without this boringtun would become another user, which may not exist in the namespace.
        _ => command.args(["--foreground", "--disable-drop-privileges", DEVICE]),
    };
    for setting in &arm.settings {
        match arm.kind {
            // GOMAXPROCS, GOGC and others.
            Kind::WireguardGo => command.env(&setting.key, &setting.value),
            _ => command.arg(format!("--{}", setting.key)).arg(&setting.value),
        };
    }
    command
}

/// Configures one end: its key, its peer, and the addresses allowed for the peer.
fn configure(pid: u32, end: usize) -> Result<(), DriverError> {
    let [own, _] = KEYS[end];
    let [_, peer] = KEYS[1 - end];
    let text = format!(
        "set=1\nprivate_key={own}\nlisten_port={PORT}\nreplace_peers=true\npublic_key={peer}\n\
         endpoint={}:{PORT}\nallowed_ip=10.98.0.{}/32\n\n",
        UNDERLAY[1 - end],
        2 - end,
    );
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
