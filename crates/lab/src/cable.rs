//! Cables, and the interfaces at their ends.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use weft_os::ethtool;
use weft_os::netlink::{InterfaceAddress, NetlinkError};

use crate::emulator::{Emulator, Impairments, PipeCounts, Witness};
use crate::host::Host;
use crate::relay::Direction;
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

    /// Makes the cable carry UDP as a wire does, each datagram by itself: the sender's kernel cuts what was handed over
    /// in one piece, the receiver's joins what arrives together for sockets that take it so (L24b). TCP goes on in
    /// super-packets, as real cards cut and join it too.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn like_a_wire(&self) -> Result<(), WorldError> {
        for port in [&self.a, &self.b] {
            port.set_feature("tx-udp-segmentation", false)?;
            port.set_feature("rx-gro", true)?;
            // Without it a veth's GRO passes over whatever comes from a sender that has TSO: `veth_skb_is_eligible_for_gro`
            // in the kernel's `drivers/net/veth.c`.
            port.set_feature("rx-udp-gro-forwarding", true)?;
        }
        self.a.wait_until_usable()
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

/// A cable between two hosts whose frames pass a program; see [`crate::emulator`].
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

    /// From now on frames of this direction meet these.
    pub fn set(&self, direction: Direction, impairments: Impairments) {
        self.emulator.set(direction, impairments);
    }

    /// The same for both directions.
    pub fn set_both(&self, impairments: Impairments) {
        self.set(Direction::AToB, impairments);
        self.set(Direction::BToA, impairments);
    }

    /// What became of the frames of this direction so far.
    #[must_use]
    pub fn counts(&self, direction: Direction) -> PipeCounts {
        self.emulator.counts(direction)
    }

    /// From now on `witness` sees all frames. The first one stays.
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

    /// As if the cable were new: no packet waits for the answer to an old neighbour query.
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
    /// Where the cable ends, if that is an interface.
    other: Option<Socket>,
    index: u32,
    /// What it has, or will have again after a cut.
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

    /// The first address of the same IP version as `like`, with its prefix length.
    ///
    /// # Errors
    /// [`WorldError::BadAddress`] if there is none, or if `like` is none.
    pub(crate) fn first_like(&self, like: &str) -> Result<String, WorldError> {
        let version = like.parse::<Cidr>()?.address.is_ipv4();
        let addresses = self.addresses();
        let first = addresses.iter().find(|cidr| cidr.address.is_ipv4() == version);
        let first = first.ok_or_else(|| WorldError::BadAddress(like.to_owned()))?;
        Ok(format!("{}/{}", first.address, first.prefix_len))
    }

    /// Keeps the host apart from the others of its switch that are kept apart, or no longer. Frames between them are
    /// lost without a sign, as where a firewall drops them.
    ///
    /// # Errors
    /// [`WorldError::NotOnASwitch`], or what the kernel refused.
    pub fn isolate(&self, apart: bool) -> Result<(), WorldError> {
        let Some(Socket { host, name }) = &self.other else {
            return Err(WorldError::NotOnASwitch(self.socket.name.clone()));
        };
        Ok(host.netlink(|netlink| {
            let index = netlink.interface(name)?.index;
            netlink.set_isolated(index, apart)
        })?)
    }

    /// Sets the largest IP packet in bytes.
    ///
    /// # Errors
    /// What the kernel refused.
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

/// An address and the length of its network's prefix.
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
