//! Setting up each kind of tunnel between the hosts of a stage, detecting that it is up, and
//! finding its processes.
//!
//! A driver writes its program's configuration into the stage's folder, starts the program on each
//! host, and returns the inner addresses of clients and server and the interfaces that must carry
//! the traffic. Each run measures whether they do.

mod mesh;
mod meshguard;
mod nebula;
mod null;
mod nvpn;
mod wireguard;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weft_os::netlink::NetlinkError;

use super::arm::{Arm, Kind};
use super::stage::{POLL, Stage};
use crate::child::{ChildError, LoggedChild};
use crate::daemon::DaemonError;
use crate::world::WorldError;

/// How long a tunnel may take until it is up.
pub const READY: Duration = Duration::from_secs(20);

/// How long a weft daemon may take until its session has its final frames.
const SETTLE: Duration = Duration::from_secs(8);

/// What is measured: an arm and its programs.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The arm.
    pub arm: &'a Arm,
    /// Its program.
    pub program: &'a Path,
    /// The weft program, which creates identities for arms that have none of their own.
    pub weft: &'a Path,
}

/// A client or the server of a tunnel.
pub struct EndPoint {
    /// Its inner address.
    pub address: IpAddr,
    /// The interface that carries the traffic.
    pub device: String,
    /// Its processes; empty without a tunnel.
    pub processes: Vec<u32>,
}

/// A running tunnel. Its processes end when it is dropped.
pub struct Tunnel {
    /// The clients, then the server.
    pub ends: Vec<EndPoint>,
    /// The processes at the relay.
    pub relay: Vec<u32>,
    /// MTU inside, bytes: the smallest of all ends' interfaces.
    pub mtu: u32,
    running: Running,
}

impl Tunnel {
    /// The current paths of the packets of clients and server, for display; empty for programs that
    /// do not report them.
    ///
    /// # Errors
    /// If a daemon that reports them does not answer.
    pub fn paths(&self) -> Result<Vec<String>, DaemonError> {
        match &self.running {
            Running::Daemons(daemons) => daemons.paths(self.ends.len().saturating_sub(1)),
            Running::Nothing | Running::Children(_) => Ok(Vec::new()),
        }
    }

    /// The kind of frames that the first client sends to the server; `None` for programs that do
    /// not report it.
    ///
    /// # Errors
    /// If a daemon that reports it does not answer.
    pub fn frames(&self) -> Result<Option<String>, DaemonError> {
        match &self.running {
            Running::Daemons(daemons) => daemons.frames(self.ends.len().saturating_sub(1)),
            Running::Nothing | Running::Children(_) => Ok(None),
        }
    }

    /// Waits until a session that packets have set up has its final frames, at most 8 s: a daemon
    /// may be configured to stay with FIPS frames.
    ///
    /// # Errors
    /// If a daemon does not answer.
    pub fn settle(&self) -> Result<(), DaemonError> {
        let end = std::time::Instant::now() + SETTLE;
        while self.frames()?.is_some_and(|kind| kind != "fast" && kind != "relayed") && std::time::Instant::now() < end
        {
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Kills the processes of the tunnel on one host.
    ///
    /// # Errors
    /// [`DriverError::Restart`] if there are none.
    pub fn stop(&mut self, host: usize) -> Result<(), DriverError> {
        match &mut self.running {
            Running::Nothing => Err(DriverError::Restart),
            Running::Children(children) => {
                for (_, child) in children.iter_mut().filter(|(of, _)| *of == host) {
                    child.kill()?;
                }
                children.retain(|(of, _)| *of != host);
                Ok(())
            }
            Running::Daemons(daemons) => daemons.stop(host),
        }
    }

    /// Starts them again, with the same configuration.
    ///
    /// # Errors
    /// [`DriverError::Restart`] for programs that the bench does not restart.
    pub fn start_again(&mut self, subject: &Subject<'_>, stage: &Stage, host: usize) -> Result<(), DriverError> {
        let Subject { arm, program, .. } = *subject;
        let started = match (&mut self.running, arm.kind) {
            (Running::Daemons(daemons), _) => return daemons.start_again(host),
            (Running::Children(children), Kind::Null) => {
                children.extend(
                    null::start_host(arm, program, stage, host)?
                        .into_iter()
                        .map(|child| (host, child)),
                );
                children
            }
            (Running::Children(children), Kind::WireguardGo | Kind::Boringtun | Kind::Gotatun) => {
                children.push((host, wireguard::start_host(arm, program, stage, host)?));
                children
            }
            _ => return Err(DriverError::Restart),
        };
        let pids = pids(started, host);
        if let Some(end) = self.ends.get_mut(host) {
            end.processes = pids;
        }
        Ok(())
    }
}

/// Everything that must live as long as the tunnel.
enum Running {
    Nothing,
    /// Each with its host.
    Children(Vec<(usize, LoggedChild)>),
    Daemons(Box<mesh::Daemons>),
}

fn pids(children: &[(usize, LoggedChild)], host: usize) -> Vec<u32> {
    let ours = children.iter().filter(|(of, _)| *of == host);
    ours.map(|(_, child)| child.pid()).collect()
}

/// Starts the arm's tunnel on `stage`. It may take a moment until packets pass.
///
/// # Errors
/// [`DriverError`].
pub fn start(subject: &Subject<'_>, stage: &Stage) -> Result<Tunnel, DriverError> {
    let Subject { arm, program, weft } = *subject;
    let mut tunnel = match arm.kind {
        Kind::Direct => direct(stage)?,
        Kind::Null => null::start(arm, program, stage)?,
        Kind::Weft => mesh::start_weft(arm, program, stage)?,
        Kind::Fips => mesh::start_fips(program, weft, stage)?,
        Kind::WireguardGo | Kind::Boringtun | Kind::Gotatun => wireguard::start(arm, program, stage)?,
        Kind::Nebula => nebula::start(program, stage)?,
        Kind::Nvpn => nvpn::start(program, stage)?,
        Kind::Meshguard => meshguard::start(program, stage)?,
    };
    tunnel.mtu = mtu(&tunnel.ends, stage)?;
    Ok(tunnel)
}

/// Gives every end the MTU of the conditions, and returns the one that it has.
fn mtu(ends: &[EndPoint], stage: &Stage) -> Result<u32, DriverError> {
    let mut least = u32::MAX;
    for (end, host) in ends.iter().zip(&stage.hosts) {
        let found = host.netlink(|netlink| {
            let interface = netlink.interface(&end.device)?;
            if let Some(wanted) = stage.conditions.mtu.filter(|wanted| *wanted != interface.mtu) {
                netlink.set_mtu(interface.index, wanted)?;
            }
            Ok(netlink.interface(&end.device)?.mtu)
        })?;
        least = least.min(found);
    }
    Ok(least)
}

/// Without a tunnel; a relay is a router.
fn direct(stage: &Stage) -> Result<Tunnel, DriverError> {
    let mut ends = Vec::new();
    for host in 0..=stage.server() {
        let (_, address, port) = stage.port(host)?;
        ends.push(EndPoint {
            address: IpAddr::V4(address),
            device: port.name().to_owned(),
            processes: Vec::new(),
        });
        if stage.relay().is_some()
            && let Some((_, gateway)) = stage.neighbours(host).next()
        {
            stage.hosts[host].add_default_route(gateway.into())?;
        }
    }
    stage.forward_at_relay()?;
    Ok(Tunnel::new(ends, Vec::new(), Running::Nothing))
}

impl Tunnel {
    fn new(ends: Vec<EndPoint>, relay: Vec<u32>, running: Running) -> Self {
        Self {
            ends,
            relay,
            mtu: 0,
            running,
        }
    }

    /// Of processes, each with its host; `addresses` and `device` are those of clients and server.
    fn of_children(
        stage: &Stage,
        children: Vec<(usize, LoggedChild)>,
        addresses: impl IntoIterator<Item = IpAddr>,
        device: &str,
    ) -> Self {
        let end = |(host, address): (usize, IpAddr)| EndPoint {
            address,
            device: device.to_owned(),
            processes: pids(&children, host),
        };
        let ends = addresses.into_iter().enumerate().map(end).collect();
        let relay = stage.relay().map_or_else(Vec::new, |relay| pids(&children, relay));
        Self::new(ends, relay, Running::Children(children))
    }
}

/// Runs a program with a `/run` of its own, in which it finds no other daemon and leaves nothing.
/// The process id stays that of the started process.
fn with_own_run(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs tmpfs /run && exec \"$@\"", "sh"]);
    command.arg(program);
    command
}

/// The name of a program's log.
fn log_name(program: &Path) -> String {
    program.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Why a tunnel did not come up.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The lab could not build the network.
    #[error(transparent)]
    World(#[from] WorldError),
    /// An interface could not be set up.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Its process could not be run.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A daemon failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A file could not be used.
    #[error("{} cannot be used ({source})", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The program ended, or did not create its interface.
    #[error("its interface did not appear: {0}")]
    NotUp(String),
    /// It refused its configuration.
    #[error("it does not take its configuration: {0}")]
    Configuration(String),
    /// A setting that it does not have.
    #[error("{0:?} is not a setting of this arm")]
    Setting(String),
    /// The bench cannot restart it.
    #[error("it has no process that the bench can restart")]
    Restart,
}

impl DriverError {
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn not_up(child: &LoggedChild) -> Self {
        let log = child.log().unwrap_or_default();
        Self::NotUp(log.lines().last().unwrap_or("its log is empty").to_owned())
    }
}
