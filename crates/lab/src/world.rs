//! A world: hosts in namespaces, virtual cables and switches between them, and a directory for the
//! daemons' files. Nothing in it has a name in the system, so everything is removed when the
//! process ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use weft_os::ethtool::EthtoolError;
use weft_os::netlink::{Interface, Netlink, NetlinkError, VethEnd};
use weft_os::netns::{self, Access, NamespaceError};
use weft_os::sysctl::SysctlError;
use weft_os::tap::Tap;
use weft_os::test_support::{keep_after_failure, note_strict};
use weft_os::tun::TunError;

use crate::cable::{Cidr, Socket, parse_all};
pub use crate::cable::{EmulatedLink, Link, Port};
use crate::emulator::{Cable, Emulator, Protection};
use crate::host::Host;
use crate::nat::{NatBox, NatConfig};

/// Frames that may wait for the program at the other end of a TAP: 120 ms of 1 Gbit/s.
const TAP_QUEUE: u32 = 10_000;

/// The factory of hosts. All that it makes exists as long as it does: a switch without a
/// handle still switches. Its directory is removed when it is dropped, unless it is kept, or a test
/// panics meanwhile: then it stays and is named ([`keep_after_failure`]).
#[derive(Debug)]
pub struct World {
    directory: TempDir,
    hosts: Mutex<Vec<Host>>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            note_panics(self.directory());
            self.keep_directory();
            keep_after_failure(self.directory());
        }
    }
}

/// Makes the failure of a test final if a process under test has panicked: no second run excuses that.
fn note_panics(directory: &Path) {
    for line in panics(directory) {
        note_strict(format_args!("{line}"));
    }
}

/// The panics in the logs of a directory, each with its log.
fn panics(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let logs = paths.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let in_log = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_panic = |line: &&str| line.starts_with("thread '") && line.contains(" panicked at ");
        let named = |line: &str| format!("{}: {line}", path.display());
        text.lines().filter(is_panic).map(named).collect::<Vec<_>>()
    };
    logs.flat_map(in_log).collect()
}

impl World {
    /// Ensures that this process may create worlds: a user without root's rights moves to a user
    /// namespace first. Call it before the process has a second thread.
    ///
    /// # Errors
    /// [`WorldError::Namespace`], whose text names the setting that forbids it.
    pub fn enter() -> Result<Access, WorldError> {
        Ok(netns::enter()?)
    }

    /// Creates an empty world.
    ///
    /// # Errors
    /// If its directory cannot be created.
    pub fn new() -> Result<Self, WorldError> {
        let directory = tempfile::Builder::new().prefix("weft-lab-").tempdir();
        let directory = directory.map_err(WorldError::Directory)?;
        Ok(Self {
            directory,
            hosts: Mutex::default(),
        })
    }

    /// The directory for state, configuration and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the directory when the world ends.
    pub fn keep_directory(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// Creates a host with only a loopback interface.
    ///
    /// # Errors
    /// If the system provides no namespace.
    pub fn host(&self, name: &str) -> Result<Host, WorldError> {
        let host = Host::new(name)?;
        self.hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(host.clone());
        Ok(host)
    }

    /// Creates a cable between two hosts and sets each end's addresses (`192.0.2.1/24`). When this
    /// returns, packets pass in both directions.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`], or the kernel's error.
    pub fn link(
        &self,
        (a, a_addresses): (&Host, &[&str]),
        (b, b_addresses): (&Host, &[&str]),
    ) -> Result<Link, WorldError> {
        let (a_addresses, b_addresses) = (parse_all(a_addresses)?, parse_all(b_addresses)?);
        let (a_name, b_name) = (a.next_port(), b.next_port());
        a.netlink(|netlink| {
            let one = VethEnd {
                name: &a_name,
                namespace: None,
            };
            let other = VethEnd {
                name: &b_name,
                namespace: Some(b.namespace()),
            };
            netlink.create_veth(one, other)
        })?;
        Link::bring_up(
            (Socket::new(a, &a_name), a_addresses),
            (Socket::new(b, &b_name), b_addresses),
        )
    }

    /// Creates a cable between two hosts whose frames pass through a program with the impairments
    /// of `cable`; see [`crate::emulator`].
    ///
    /// # Errors
    /// [`WorldError::BadAddress`], [`WorldError::Tap`], or the kernel's error.
    pub fn emulated_link(
        &self,
        (a, a_addresses): (&Host, &[&str]),
        (b, b_addresses): (&Host, &[&str]),
        cable: Cable,
    ) -> Result<EmulatedLink, WorldError> {
        self.protected_link((a, a_addresses), (b, b_addresses), cable, None)
    }

    /// Like [`World::emulated_link`], with a firewall at one end.
    ///
    /// # Errors
    /// Like [`World::emulated_link`].
    pub fn protected_link(
        &self,
        (a, a_addresses): (&Host, &[&str]),
        (b, b_addresses): (&Host, &[&str]),
        cable: Cable,
        protection: Option<Protection>,
    ) -> Result<EmulatedLink, WorldError> {
        let (a_tap, b_tap) = (tap(a)?, tap(b)?);
        let bring_up = |host, tap: &Tap, addresses| {
            let addresses = parse_all(addresses)?;
            Port::bring_up(Socket::new(host, tap.name()), None, addresses)
        };
        let (a, b) = (bring_up(a, &a_tap, a_addresses)?, bring_up(b, &b_tap, b_addresses)?);
        let emulator = Emulator::start(a_tap, b_tap, cable, protection).map_err(WorldError::Thread)?;
        Ok(EmulatedLink::new(a, b, emulator))
    }

    /// Creates a NAT box between two switches, with its address on each (`10.0.0.1/24`); see
    /// [`crate::nat`].
    ///
    /// # Errors
    /// [`WorldError::BadAddress`] for anything but an IPv4 address with a prefix length,
    /// [`WorldError::Tap`], or the kernel's error.
    pub fn nat(
        &self,
        config: NatConfig,
        (inside, inner): (&Switch, &str),
        (outside, outer): (&Switch, &str),
    ) -> Result<NatBox, WorldError> {
        let (inner, outer) = (parse_v4(inner)?, parse_v4(outer)?);
        let inside = (inside.plug()?, inner.0, inner.1);
        let outside = (outside.plug()?, outer.0, outer.1);
        NatBox::start(config, inside, outside).map_err(WorldError::Thread)
    }

    /// Creates a switch, to which any number of hosts can be connected.
    ///
    /// # Errors
    /// If the system provides no namespace or no bridge.
    pub fn switch(&self, name: &str) -> Result<Switch, WorldError> {
        const BRIDGE: &str = "br0";
        let host = self.host(name)?;
        let bridge = host.netlink(|netlink| {
            netlink.create_bridge(BRIDGE)?;
            let bridge = netlink.interface(BRIDGE)?.index;
            netlink.set_up(bridge)?;
            Ok(bridge)
        })?;
        Ok(Switch { host, bridge })
    }
}

/// A switch (a bridge on a host of its own).
#[derive(Debug)]
pub struct Switch {
    host: Host,
    bridge: u32,
}

impl Switch {
    /// Creates a cable from `host` to the switch; the port is the host's end. When this returns,
    /// packets pass in both directions.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`], or the kernel's error.
    pub fn connect(&self, host: &Host, addresses: &[&str]) -> Result<Port, WorldError> {
        let addresses = parse_all(addresses)?;
        let (name, socket) = (host.next_port(), self.host.next_port());
        host.netlink(|netlink| {
            let one = VethEnd {
                name: &name,
                namespace: None,
            };
            let other = VethEnd {
                name: &socket,
                namespace: Some(self.host.namespace()),
            };
            netlink.create_veth(one, other)
        })?;
        self.host.netlink(|netlink| {
            let index = netlink.interface(&socket)?.index;
            netlink.set_bridge(index, Some(self.bridge))?;
            netlink.set_up(index)
        })?;
        let other = Socket::new(&self.host, &socket);
        Port::bring_up(Socket::new(host, &name), Some(other), addresses)
    }

    /// The number of ports in use.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn ports(&self) -> Result<usize, WorldError> {
        let interfaces = self.host.netlink(Netlink::interfaces)?;
        let ours = |interface: &&Interface| interface.controller == Some(self.bridge);
        Ok(interfaces.iter().filter(ours).count())
    }

    /// Creates a port whose other end is a program of this process, which gets plain frames.
    pub(crate) fn plug(&self) -> Result<Tap, WorldError> {
        let tap = tap_by(&self.host, Tap::create)?;
        self.host.netlink(|netlink| {
            netlink.set_bridge(tap.index(), Some(self.bridge))?;
            netlink.set_up(tap.index())?;
            netlink.wait_until_usable(tap.name())
        })?;
        Ok(tap)
    }
}

/// Why a world could not be created or changed.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The system provides no namespaces, or a thread could not enter one.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused an interface, an address or a route.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel refused a setting.
    #[error(transparent)]
    Setting(SysctlError),
    /// An interface does not support a requested feature.
    #[error(transparent)]
    Feature(#[from] EthtoolError),
    /// No TAP interface is available for an emulated cable or a NAT box.
    #[error(transparent)]
    Tap(#[from] TunError),
    /// The system provides no thread, or no descriptor, for an emulated cable or a NAT box.
    #[error("the program in the middle cannot be started")]
    Thread(#[source] io::Error),
    /// The directory for the world's files cannot be created.
    #[error("no directory for the files of the daemons")]
    Directory(#[source] io::Error),
    /// Only ports of a switch can be isolated.
    #[error("{0} is not connected to a switch")]
    NotOnASwitch(String),
    /// Not an address with a prefix length.
    #[error("{0:?} is not an address with a prefix length, such as 192.0.2.1/24")]
    BadAddress(String),
}

/// Creates an interface of `host`, down, whose other end is this process: one for super-frames, if
/// the kernel supports them.
pub(crate) fn tap(host: &Host) -> Result<Tap, WorldError> {
    tap_by(host, Tap::with_offloads)
}

fn tap_by(host: &Host, create: fn(&str) -> Result<Tap, TunError>) -> Result<Tap, WorldError> {
    let name = host.next_port();
    let tap = host.run(|| create(&name))??;
    host.netlink(|netlink| netlink.set_tx_queue_len(tap.index(), TAP_QUEUE))?;
    Ok(tap)
}

pub(crate) fn parse_v4(text: &str) -> Result<(Ipv4Addr, u8), WorldError> {
    let cidr: Cidr = text.parse()?;
    match cidr.address {
        IpAddr::V4(address) => Ok((address, cidr.prefix_len)),
        IpAddr::V6(_) => Err(WorldError::BadAddress(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_found_in_logs() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write(
            "a.log",
            "2026-08-02T10:00:00.1Z  INFO thread 'main' panicked at the disco\n",
        );
        write("a.toml", "thread 'lane' panicked at src/a.rs:1:2:\n");
        assert_eq!(panics(directory.path()), Vec::<String>::new());
        write(
            "b.log",
            "up\nthread 'lane-1' panicked at src/b.rs:1:2:\nindex out of range\n",
        );
        let found = panics(directory.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].ends_with("b.log: thread 'lane-1' panicked at src/b.rs:1:2:"),
            "{found:?}"
        );
    }
}
