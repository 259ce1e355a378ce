//! Setting up each kind of tunnel between two hosts, detecting that it is up, and finding its
//! processes.
//!
//! A driver writes its program's configuration into the stage's folder, starts both ends, and
//! returns their inner addresses and the interfaces that must carry the traffic. Each run measures
//! whether they do.

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
use std::time::{Duration, Instant};

use weft_os::netlink::{InterfaceAddress, NetlinkError};

use super::arm::{Arm, Kind};
use crate::cable::Link;
use crate::child::{ChildError, LoggedChild};
use crate::daemon::DaemonError;
use crate::host::Host;
use crate::world::{World, WorldError};

/// The hosts' addresses in the underlay: private ones, as nvpn refuses the ranges for
/// documentation.
pub const UNDERLAY: [&str; 2] = ["10.96.0.1", "10.96.0.2"];

/// How long a tunnel may take until it is up.
pub const READY: Duration = Duration::from_secs(20);

/// Polling interval while waiting.
const POLL: Duration = Duration::from_millis(50);

/// Two hosts and a cable, new for every run of an arm.
pub struct Stage {
    /// The hosts.
    pub hosts: [Host; 2],
    /// The cable between them.
    pub link: Link,
    /// The folder for configurations and logs.
    pub folder: PathBuf,
}

impl Stage {
    /// Builds the hosts and the cable, which carries UDP [like a wire](Link::like_a_wire) if `wire`
    /// is set. Files go to `folder`, which is created.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn set(world: &World, folder: PathBuf, wire: bool) -> Result<Self, DriverError> {
        std::fs::create_dir(&folder).map_err(|source| DriverError::file(&folder, source))?;
        let hosts = [world.host("a")?, world.host("b")?];
        let [a, b] = UNDERLAY.map(|address| format!("{address}/24"));
        let link = world.link((&hosts[0], &[a.as_str()]), (&hosts[1], &[b.as_str()]))?;
        if wire {
            link.like_a_wire()?;
        }
        Ok(Self { hosts, link, folder })
    }

    /// Starts one end's program; its output goes to a file of its own.
    fn start(&self, end: usize, command: Command) -> Result<LoggedChild, DriverError> {
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default()
            .to_owned();
        let log = self.folder.join(format!("{}-{end}.log", name.to_string_lossy()));
        Ok(LoggedChild::start(&self.hosts[end], command, &log)?)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, DriverError> {
        let path = self.folder.join(name);
        std::fs::write(&path, text).map_err(|source| DriverError::file(&path, source))?;
        Ok(path)
    }

    /// Waits until an interface exists; programs create theirs at different times.
    fn wait_interface(&self, end: usize, name: &str, child: &mut LoggedChild) -> Result<u32, DriverError> {
        let limit = Instant::now() + READY;
        loop {
            match self.hosts[end].netlink(|netlink| netlink.interface(name)) {
                Ok(interface) => return Ok(interface.index),
                Err(_) if Instant::now() < limit && child.ended()?.is_none() => std::thread::sleep(POLL),
                Err(_) => return Err(DriverError::not_up(child)),
            }
        }
    }

    /// Sets an interface's address and MTU, and brings it up.
    fn address(
        &self,
        end: usize,
        index: u32,
        (address, prefix_len): (IpAddr, u8),
        mtu: u32,
    ) -> Result<(), DriverError> {
        let address = InterfaceAddress {
            index,
            address,
            prefix_len,
        };
        self.hosts[end].netlink(|netlink| {
            netlink.set_mtu(index, mtu)?;
            netlink.add_address(address)?;
            netlink.set_up(index)
        })?;
        Ok(())
    }
}

/// One end of a tunnel.
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
    /// Both ends.
    pub ends: [EndPoint; 2],
    /// MTU inside, bytes.
    pub mtu: u32,
    running: Running,
}

impl Tunnel {
    /// The current paths of both ends' packets, for display; empty for programs that do not report
    /// them.
    ///
    /// # Errors
    /// If a daemon that reports them does not answer.
    pub fn paths(&self) -> Result<Vec<String>, DaemonError> {
        match &self.running {
            Running::Daemons(daemons) => daemons.paths(),
            Running::Nothing | Running::Children(_) => Ok(Vec::new()),
        }
    }
}

/// Everything that must live as long as the tunnel.
enum Running {
    Nothing,
    Children(#[expect(dead_code, reason = "killed when dropped")] Vec<LoggedChild>),
    Daemons(Box<mesh::Daemons>),
}

/// Starts `arm`'s tunnel on `stage`; `weft` creates identities for arms that have none of their
/// own. It may take a moment until packets pass.
///
/// # Errors
/// [`DriverError`].
pub fn start(arm: &Arm, program: &Path, weft: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    match arm.kind {
        Kind::Direct => Ok(direct(stage)),
        Kind::Null => null::start(arm, program, stage),
        Kind::Weft => mesh::start_weft(arm, program, stage),
        Kind::Fips => mesh::start_fips(program, weft, stage),
        Kind::WireguardGo | Kind::Boringtun | Kind::Gotatun => wireguard::start(arm, program, stage),
        Kind::Nebula => nebula::start(program, stage),
        Kind::Nvpn => nvpn::start(program, stage),
        Kind::Meshguard => meshguard::start(program, stage),
    }
}

fn direct(stage: &Stage) -> Tunnel {
    let end = |end: usize, port: &crate::cable::Port| EndPoint {
        address: IpAddr::V4(underlay(end)),
        device: port.name().to_owned(),
        processes: Vec::new(),
    };
    Tunnel {
        ends: [end(0, stage.link.a()), end(1, stage.link.b())],
        mtu: 1500,
        running: Running::Nothing,
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

/// A tunnel of exactly two ends.
fn both(ends: Vec<EndPoint>, mtu: u32, running: Running) -> Result<Tunnel, DriverError> {
    let ends = ends
        .try_into()
        .map_err(|_| DriverError::NotUp("it has not two ends".to_owned()))?;
    Ok(Tunnel { ends, mtu, running })
}

/// The underlay address of an end's host.
pub(super) fn underlay(end: usize) -> std::net::Ipv4Addr {
    [10, 96, 0, end as u8 + 1].into()
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
}

impl DriverError {
    fn file(path: &Path, source: io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            source,
        }
    }

    fn not_up(child: &LoggedChild) -> Self {
        let log = child.log().unwrap_or_default();
        Self::NotUp(log.lines().last().unwrap_or("it says nothing").to_owned())
    }
}
