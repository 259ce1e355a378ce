//! Two members of a network, with a process for transfers each.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::host::Host;
use weft_lab::spec::NodeSpec;
use weft_lab::world::{EmulatedLink, Link, World};

use crate::{LIMIT, Result};

const READY: Duration = Duration::from_secs(30);
/// Time in which the session moves to its final frames.
const SETTLE: Duration = Duration::from_secs(5);

/// The cable between the two; it stays as long as this does.
enum Between {
    Plain { _link: Link },
    Emulated { _link: EmulatedLink },
}

/// Two members, desk and nas, the second of which takes what the first one sends.
pub(crate) struct Mesh {
    nodes: [Daemon; 2],
    processes: [LoggedChild; 2],
    folder: PathBuf,
    address: IpAddr,
    _between: Between,
}

impl Mesh {
    /// Starts both, whose TCP uses this congestion control; what comes goes to `folder`.
    pub(crate) fn start(
        world: &World,
        weft: &Path,
        cable: Option<Impairments>,
        congestion: &str,
        folder: &Path,
    ) -> Result<Self> {
        let (desk, nas) = (world.host("desk")?, world.host("nas")?);
        for host in [&desk, &nas] {
            host.run(|| fs::write("/proc/sys/net/ipv4/tcp_congestion_control", congestion))??;
        }
        let ends = ((&desk, &["192.0.2.1/24"][..]), (&nas, &["192.0.2.2/24"][..]));
        let between = match cable {
            None => Between::Plain {
                _link: world.link(ends.0, ends.1)?,
            },
            Some(bad) => Between::Emulated {
                _link: world.emulated_link(ends.0, ends.1, Cable::both(bad))?,
            },
        };
        let start = |host: &Host| -> Result<Daemon> {
            let id = Identity::create(weft, world.directory(), host.name())?;
            let spec = NodeSpec {
                extra_toml: "\n[perf]\nallow = \"open\"\n".to_owned(),
                ..NodeSpec::default()
            };
            let mut node = Daemon::start(host, weft, &id, &spec)?;
            node.wait_ready(READY)?;
            Ok(node)
        };
        let nodes = [start(&desk)?, start(&nas)?];
        nodes[0].command(&["create", "home", "--host", "desk"])?;
        let invited = nodes[0].command(&["invite", "--json", "--name", "nas"])?;
        let invited: Value = serde_json::from_slice(&invited.stdout)?;
        nodes[1].command(&["join", invited["code"].as_str().ok_or("no code")?])?;
        fs::create_dir_all(folder)?;
        let processes = [
            serve(&nodes[0], weft, "off", folder)?,
            serve(&nodes[1], weft, "members", folder)?,
        ];
        let mesh = Self {
            address: nodes[1].identity().address.into(),
            nodes,
            processes,
            folder: folder.to_owned(),
            _between: between,
        };
        mesh.wait_until_it_receives()?;
        thread::sleep(SETTLE);
        Ok(mesh)
    }

    fn wait_until_it_receives(&self) -> Result<()> {
        let end = Instant::now() + READY;
        loop {
            let list = self.nodes[1].attempt(&["transfers", "--json"], READY)?;
            let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
            if list["receive"]["mode"] == "members" && list["receive"]["why_not"].is_null() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("the receiving end is not ready: {list}").into());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// The host that receives.
    pub(crate) fn receiver(&self) -> &Host {
        self.nodes[1].host()
    }

    /// The host that sends.
    pub(crate) fn sender(&self) -> &Host {
        self.nodes[0].host()
    }

    /// The folder into which files come.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The receiver's mesh address.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Listens at the receiver and connects from the sender, which gets the first stream.
    pub(crate) fn connect(&self) -> Result<(std::net::TcpStream, std::net::TcpStream)> {
        let address = self.address;
        let listener = self
            .receiver()
            .run(move || std::net::TcpListener::bind((address, 0)))??;
        let to: SocketAddr = listener.local_addr()?;
        let sender = self
            .sender()
            .run(move || std::net::TcpStream::connect_timeout(&to, READY))??;
        Ok((sender, listener.accept()?.0))
    }

    /// Sends a folder with `weft send`, until it is stored and synced in a folder of the other end.
    pub(crate) fn send(&self, folder: &Path, into: &str) -> Result<()> {
        let folder = folder.to_str().ok_or("a path outside of UTF-8")?;
        let sent = self.nodes[0].attempt(&["send", "--follow", folder, &format!("nas:{into}")], LIMIT)?;
        match sent.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&sent.stderr).into_owned().into()),
        }
    }

    /// Measures with `weft perf --quic` for some seconds. Returns the bytes that arrived.
    pub(crate) fn quic(&self) -> Result<f64> {
        let measured = self.nodes[0].attempt(
            &["perf", "nas", "--quic", "--time", "5", "--no-stages", "--json"],
            LIMIT,
        )?;
        let report: Value = serde_json::from_slice(&measured.stdout)?;
        report["directions"][0]["bytes"]
            .as_f64()
            .ok_or_else(|| format!("no bytes: {report}").into())
    }

    /// The most memory that the processes of both ends have held.
    pub(crate) fn memory(&self) -> Result<String> {
        let [desk, nas] = [0, 1].map(|end: usize| -> Result<String> {
            let process = self.processes.get(end).ok_or("no such end")?;
            let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            Ok(peak.unwrap_or("unknown").trim().to_owned())
        });
        Ok(format!("the sending process {}, the receiving one {}", desk?, nas?))
    }
}

/// Starts the process of a user with these settings.
fn serve(node: &Daemon, weft: &Path, mode: &str, folder: &Path) -> Result<LoggedChild> {
    let state = &node.identity().state;
    fs::DirBuilder::new().mode(0o700).create(state.join("transfer"))?;
    let settings = serde_json::json!({"schema": "weft.transfer-settings/1", "mode": mode, "folder": folder});
    fs::write(state.join("transfer/settings.json"), settings.to_string())?;
    let mut command = Command::new(weft);
    command.arg("--state").arg(state).arg("transferd");
    let process = LoggedChild::start(node.host(), command, &state.join("transferd.log"))?;
    let end = Instant::now() + READY;
    // A command that finds no socket would start a process of its own.
    while UnixStream::connect(state.join("transfer/socket")).is_err() {
        if Instant::now() > end {
            return Err(process.log()?.into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}
