//! Cables, and the interfaces at their ends.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use weft_os::ethtool;
use weft_os::netlink::{InterfaceAddress, NetlinkError};

use crate::emulator::{Emulator, Impairments, PipeCounts, Witness};
use crate::firewall::FirewallCounts;
use crate::host::Host;
use crate::world::WorldError;

/// A cable between two hosts.
#[derive(Debug)]
pub struct Link {
    a: Port,
    b: Port,
}

impl Link {
    /// Brings both ends of a cable up.
    pub(crate) fn bring_up(
        (a, a_addresses): (Socket, Vec<Cidr>),
        (b, b_addresses): (Socket, Vec<Cidr>),
    ) -> Result<Self, WorldError> {
        let link = Self {
            a: Port::bring_up(a.clone(), Some(b.clone()), a_addresses)?,
            b: Port::bring_up(b, Some(a), b_addresses)?,
        };
        link.a.wait_until_usable()?;
        Ok(link)
    }

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

    /// Makes the cable carry UDP like a wire, datagram by datagram: the sender's kernel splits a
    /// train, and the receiver's coalesces datagrams for sockets with GRO (L24b). TCP is still
    /// carried in super-packets, because real network cards split and coalesce it too.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn like_a_wire(&self) -> Result<(), WorldError> {
        for port in [&self.a, &self.b] {
            port.set_feature("tx-udp-segmentation", false)?;
            port.set_feature("rx-gro", true)?;
            // Without it a veth's GRO ignores everything from a sender that has TSO:
            // `veth_skb_is_eligible_for_gro` in the kernel's `drivers/net/veth.c`.
            port.set_feature("rx-udp-gro-forwarding", true)?;
        }
        self.a.wait_until_usable()
    }

    /// Cuts the cable: the second host's interface goes down, the first host's has no carrier.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn cut(&self) -> Result<(), WorldError> {
        self.b.cut()
    }

    /// Restores the cable. When this returns, packets pass in both directions.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn heal(&self) -> Result<(), WorldError> {
        self.b.heal()?;
        self.a.wait_until_usable()
    }
}

/// A direction on a cable, or through a middlebox between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the first host to the second.
    AToB,
    /// From the second host to the first.
    BToA,
}

/// A cable between two hosts whose frames pass through a program; see [`crate::emulator`].
#[derive(Debug)]
pub struct EmulatedLink {
    a: Port,
    b: Port,
    emulator: Emulator,
}

impl EmulatedLink {
    pub(crate) fn new(a: Port, b: Port, emulator: Emulator) -> Self {
        Self { a, b, emulator }
    }

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

    /// Sets the impairments of one direction from now on.
    pub fn set(&self, direction: Direction, impairments: Impairments) {
        self.emulator.set(direction, impairments);
    }

    /// Sets the impairments of both directions from now on.
    pub fn set_both(&self, impairments: Impairments) {
        self.set(Direction::AToB, impairments);
        self.set(Direction::BToA, impairments);
    }

    /// The counters of one direction so far.
    #[must_use]
    pub fn counts(&self, direction: Direction) -> PipeCounts {
        self.emulator.counts(direction)
    }

    /// The frames that its firewall has dropped so far; `None` without a firewall.
    #[must_use]
    pub fn firewall(&self) -> Option<FirewallCounts> {
        self.emulator.firewall()
    }

    /// Makes `witness` see all frames from now on. The first witness stays.
    pub fn watch(&self, witness: &Arc<dyn Witness>) {
        self.emulator.watch(witness);
    }
}

/// An interface of a host.
#[derive(Debug, Clone)]
pub(crate) struct Socket {
    host: Host,
    name: String,
}

impl Socket {
    pub(crate) fn new(host: &Host, name: &str) -> Self {
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

    /// Deletes the neighbour entries, as of a new cable: no packet then waits for the answer to an
    /// earlier query.
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
    /// The interface at the other end of the cable, if there is one.
    other: Option<Socket>,
    index: u32,
    /// Its addresses, which it gets again after a cut.
    addresses: Mutex<Vec<Cidr>>,
}

impl Port {
    pub(crate) fn bring_up(socket: Socket, other: Option<Socket>, addresses: Vec<Cidr>) -> Result<Self, WorldError> {
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

    /// Sets the interface down: IPv6 addresses and all routes through it are removed, and the other
    /// end loses its carrier.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn cut(&self) -> Result<(), WorldError> {
        Ok(self.socket.host.netlink(|netlink| netlink.set_down(self.index))?)
    }

    /// Brings the interface up with all its addresses. Routes through a gateway are not restored.
    /// When this returns, packets pass in both directions, unless the other end of the cable is
    /// down.
    ///
    /// # Errors
    /// The kernel's error.
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

    /// The kernel detects carriers and activates IPv6 addresses in the background. Packets sent
    /// before are lost, and the next neighbour query follows a second later.
    fn wait_until_usable(&self) -> Result<(), WorldError> {
        if let Some(other) = &self.other {
            if !other.is_up()? {
                return Ok(());
            }
            other.wait_until_usable()?;
        }
        self.socket.wait_until_usable()?;
        for cidr in self.addresses().iter() {
            self.socket
                .host
                .netlink(|netlink| netlink.wait_until_local(cidr.address))?;
        }
        for end in std::iter::once(&self.socket).chain(&self.other) {
            end.forget_neighbours()?;
        }
        Ok(())
    }

    /// Replaces an address of the interface: the host roams. For a moment it has neither address.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`]; the kernel's error, also if `old` is not set.
    pub fn change_address(&self, old: &str, new: &str) -> Result<(), WorldError> {
        let new = new.parse()?;
        self.remove_address(old.parse()?)?;
        self.add(new)?;
        self.addresses().push(new);
        self.wait_until_usable()
    }

    /// Replaces an address of the interface while it is down.
    ///
    /// # Errors
    /// The kernel's error, also if `old` is not set.
    pub(crate) fn prepare_address(&self, old: Cidr, new: Cidr) -> Result<(), WorldError> {
        self.remove_address(old)?;
        self.addresses().push(new);
        Ok(())
    }

    fn remove_address(&self, old: Cidr) -> Result<(), WorldError> {
        let gone = self.interface_address(old);
        self.socket.host.netlink(|netlink| netlink.delete_address(gone))?;
        self.addresses().retain(|address| *address != old);
        Ok(())
    }

    /// The first address of the same IP version as `like`, with its prefix length.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`] if there is none, or if `like` is not an address.
    pub(crate) fn first_like(&self, like: &str) -> Result<String, WorldError> {
        let version = like.parse::<Cidr>()?.address.is_ipv4();
        let addresses = self.addresses();
        let first = addresses.iter().find(|cidr| cidr.address.is_ipv4() == version);
        let first = first.ok_or_else(|| WorldError::BadAddress(like.to_owned()))?;
        Ok(format!("{}/{}", first.address, first.prefix_len))
    }

    /// Isolates the host from the other isolated hosts of its switch, or ends the isolation. Frames
    /// between them are dropped silently, as by a firewall.
    ///
    /// # Errors
    /// [`WorldError::NotOnASwitch`], or the kernel's error.
    pub fn isolate(&self, apart: bool) -> Result<(), WorldError> {
        let Some(Socket { host, name }) = &self.other else {
            return Err(WorldError::NotOnASwitch(self.socket.name.clone()));
        };
        Ok(host.netlink(|netlink| {
            let index = netlink.interface(name)?.index;
            netlink.set_isolated(index, apart)
        })?)
    }

    /// Takes the carrier from the interface, as if the cable were pulled out at the switch, or gives it
    /// back. Addresses and routes stay.
    ///
    /// # Errors
    /// [`WorldError::NotOnASwitch`], or the kernel's error.
    pub fn set_carrier(&self, on: bool) -> Result<(), WorldError> {
        let Some(Socket { host, name }) = &self.other else {
            return Err(WorldError::NotOnASwitch(self.socket.name.clone()));
        };
        Ok(host.netlink(|netlink| {
            let index = netlink.interface(name)?.index;
            match on {
                true => netlink.set_up(index),
                false => netlink.set_down(index),
            }
        })?)
    }

    /// Sets the largest IP packet in bytes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), WorldError> {
        Ok(self.socket.host.netlink(|netlink| netlink.set_mtu(self.index, mtu))?)
    }

    fn set_feature(&self, name: &str, on: bool) -> Result<(), WorldError> {
        let Socket { host, name: port } = &self.socket;
        Ok(host.run(|| ethtool::set_feature(port, name, on))??)
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

/// An address with the prefix length of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
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

pub(crate) fn parse_all(texts: &[&str]) -> Result<Vec<Cidr>, WorldError> {
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
