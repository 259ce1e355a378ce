//! A world: hosts in namespaces, virtual cables and switches between them, and a directory for what the
//! daemons write. Nothing of it has a name in the system, so nothing is left when the process ends.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;
use weft_os::netlink::{InterfaceAddress, NetlinkError, VethEnd};
use weft_os::netns::{self, Access, NamespaceError};
use weft_os::sysctl::SysctlError;

use crate::host::Host;

/// Where hosts come from. Its directory is removed when it is dropped, unless it is kept.
#[derive(Debug)]
pub struct World {
    directory: TempDir,
}

impl World {
    /// Makes sure that this process may make worlds: a user without root's rights moves to a user
    /// namespace first. Call it before the process has a second thread.
    ///
    /// # Errors
    /// [`WorldError::Namespace`], whose text names the setting that forbids it.
    pub fn enter() -> Result<Access, WorldError> {
        Ok(netns::enter()?)
    }

    /// An empty world.
    ///
    /// # Errors
    /// When there is no room for its directory.
    pub fn new() -> Result<Self, WorldError> {
        let directory = tempfile::Builder::new().prefix("weft-lab-").tempdir();
        let directory = directory.map_err(WorldError::Directory)?;
        Ok(Self { directory })
    }

    /// The directory for state, configuration and logs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// From now on the directory stays when the world ends.
    pub fn keep_directory(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// A new host without any interface but loopback.
    ///
    /// # Errors
    /// When the system gives no namespace.
    pub fn host(&self, name: &str) -> Result<Host, WorldError> {
        Host::new(name)
    }

    /// Lays a cable between two hosts and gives each end its addresses (`192.0.2.1/24`). When this returns, packets
    /// pass both ways.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`], or what the kernel refused.
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
        let (a_end, b_end) = (Socket::new(a, &a_name), Socket::new(b, &b_name));
        let link = Link {
            a: Port::bring_up(a_end.clone(), b_end.clone(), a_addresses)?,
            b: Port::bring_up(b_end, a_end, b_addresses)?,
        };
        link.a.wait_until_usable()?;
        Ok(link)
    }

    /// A switch, to which any number of hosts can be connected.
    ///
    /// # Errors
    /// When the system gives no namespace or no bridge.
    pub fn switch(&self, name: &str) -> Result<Switch, WorldError> {
        const BRIDGE: &str = "br0";
        let host = Host::new(name)?;
        let bridge = host.netlink(|netlink| {
            netlink.create_bridge(BRIDGE)?;
            let bridge = netlink.interface(BRIDGE)?.index;
            netlink.set_up(bridge)?;
            Ok(bridge)
        })?;
        Ok(Switch { host, bridge })
    }
}

/// A cable between two hosts.
#[derive(Debug)]
pub struct Link {
    a: Port,
    b: Port,
}

impl Link {
    /// The first host's end.
    #[must_use]
    pub fn a(&self) -> &Port {
        &self.a
    }

    /// The second host's end.
    #[must_use]
    pub fn b(&self) -> &Port {
        &self.b
    }

    /// Cuts the cable: the second host's interface goes down, the first host's has no carrier.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn cut(&self) -> Result<(), WorldError> {
        self.b.cut()
    }

    /// Mends the cable. When this returns, packets pass both ways.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn heal(&self) -> Result<(), WorldError> {
        self.b.heal()?;
        self.a.wait_until_usable()
    }
}

/// A switch (a bridge on a host of its own).
#[derive(Debug)]
pub struct Switch {
    host: Host,
    bridge: u32,
}

impl Switch {
    /// Lays a cable from `host` to the switch; the port is the host's end. When this returns, packets pass both ways.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`], or what the kernel refused.
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
        Port::bring_up(Socket::new(host, &name), Socket::new(&self.host, &socket), addresses)
    }
}

/// An interface of a host.
#[derive(Debug, Clone)]
struct Socket {
    host: Host,
    name: String,
}

impl Socket {
    fn new(host: &Host, name: &str) -> Self {
        Self {
            host: host.clone(),
            name: name.to_owned(),
        }
    }

    fn is_up(&self) -> Result<bool, NetlinkError> {
        Ok(self.host.netlink(|netlink| netlink.interface(&self.name))?.up)
    }

    fn wait_until_usable(&self) -> Result<(), NetlinkError> {
        self.host.netlink(|netlink| netlink.wait_until_usable(&self.name))
    }

    /// As if the cable were new: nobody waits for the answer to a question of before.
    fn forget_neighbours(&self) -> Result<(), NetlinkError> {
        self.host.netlink(|netlink| {
            let index = netlink.interface(&self.name)?.index;
            netlink.flush_neighbours(index)
        })
    }
}

/// A host's end of a cable.
#[derive(Debug)]
pub struct Port {
    socket: Socket,
    /// Where the cable ends.
    other: Socket,
    index: u32,
    /// What it has, or will have again after a cut.
    addresses: Mutex<Vec<Cidr>>,
}

impl Port {
    fn bring_up(socket: Socket, other: Socket, addresses: Vec<Cidr>) -> Result<Self, WorldError> {
        let interface = socket.host.netlink(|netlink| netlink.interface(&socket.name))?;
        let port = Self {
            socket,
            other,
            index: interface.index,
            addresses: Mutex::new(addresses),
        };
        port.heal()?;
        Ok(port)
    }

    /// The name of the interface on its host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.socket.name
    }

    /// The index of the interface on its host.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes the interface down: addresses of IPv6 and all routes through it go, the other end loses
    /// its carrier.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn cut(&self) -> Result<(), WorldError> {
        Ok(self.socket.host.netlink(|netlink| netlink.set_down(self.index))?)
    }

    /// Brings the interface up with all its addresses. Routes by way of a gateway do not come back. When this
    /// returns, packets pass both ways, unless the other end of the cable is down.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn heal(&self) -> Result<(), WorldError> {
        self.socket.host.netlink(|netlink| netlink.set_up(self.index))?;
        for address in self.addresses().iter() {
            match self.add(*address) {
                Err(WorldError::Netlink(NetlinkError::Exists { .. })) => {}
                result => result?,
            }
        }
        self.wait_until_usable()
    }

    /// The kernel notices carriers and starts IPv6 addresses in the background. What is sent before is lost, and the
    /// next question for a neighbour comes a second later.
    fn wait_until_usable(&self) -> Result<(), WorldError> {
        if !self.other.is_up()? {
            return Ok(());
        }
        self.socket.wait_until_usable()?;
        self.other.wait_until_usable()?;
        for cidr in self.addresses().iter() {
            self.socket
                .host
                .netlink(|netlink| netlink.wait_until_local(cidr.address))?;
        }
        self.other.forget_neighbours()?;
        self.socket.forget_neighbours()?;
        Ok(())
    }

    /// Moves the interface from one address to another: the host roams. For a moment it has neither.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`]; what the kernel refused, for one that `old` is not there.
    pub fn change_address(&self, old: &str, new: &str) -> Result<(), WorldError> {
        let (old, new): (Cidr, Cidr) = (old.parse()?, new.parse()?);
        let mut addresses = self.addresses();
        let gone = self.interface_address(old);
        self.socket.host.netlink(|netlink| netlink.delete_address(gone))?;
        addresses.retain(|address| *address != old);
        self.add(new)?;
        addresses.push(new);
        drop(addresses);
        self.wait_until_usable()
    }

    /// Sets the largest IP packet in bytes.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), WorldError> {
        Ok(self.socket.host.netlink(|netlink| netlink.set_mtu(self.index, mtu))?)
    }

    fn add(&self, address: Cidr) -> Result<(), WorldError> {
        let address = self.interface_address(address);
        Ok(self.socket.host.netlink(|netlink| netlink.add_address(address))?)
    }

    fn interface_address(&self, cidr: Cidr) -> InterfaceAddress {
        InterfaceAddress {
            index: self.index,
            address: cidr.address,
            prefix_len: cidr.prefix_len,
        }
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<Cidr>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a world could not be made or changed.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The system gives no namespaces, or a thread could not enter one.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused an interface, an address or a route.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel refused a setting.
    #[error(transparent)]
    Setting(SysctlError),
    /// There is no directory for the world's files.
    #[error("no directory for the files of the daemons")]
    Directory(#[source] io::Error),
    /// Not an address with a prefix length.
    #[error("{0:?} is no address with a prefix length, like 192.0.2.1/24")]
    BadAddress(String),
}

/// An address and the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    prefix_len: u8,
}

impl FromStr for Cidr {
    type Err = WorldError;

    fn from_str(text: &str) -> Result<Self, WorldError> {
        let parse = || {
            let (address, prefix_len) = text.split_once('/')?;
            let cidr = Self {
                address: address.parse().ok()?,
                prefix_len: prefix_len.parse().ok()?,
            };
            let longest = if cidr.address.is_ipv4() { 32 } else { 128 };
            (cidr.prefix_len <= longest).then_some(cidr)
        };
        parse().ok_or_else(|| WorldError::BadAddress(text.to_owned()))
    }
}

fn parse_all(texts: &[&str]) -> Result<Vec<Cidr>, WorldError> {
    texts.iter().map(|text| text.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_with_their_prefix() {
        let cidr: Cidr = "2001:db8::1/64".parse().unwrap();
        assert_eq!((cidr.address, cidr.prefix_len), ("2001:db8::1".parse().unwrap(), 64));
        for bad in [
            "192.0.2.1",
            "192.0.2.1/33",
            "2001:db8::1/129",
            "x/8",
            "192.0.2.1/-1",
            "/",
        ] {
            let result = bad.parse::<Cidr>();
            assert!(matches!(result, Err(WorldError::BadAddress(text)) if text == bad));
        }
    }
}
