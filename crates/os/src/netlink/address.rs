//! The addresses of interfaces.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};

use super::{Netlink, NetlinkError};

/// An address in one of these states is not the host's: it is being checked, or another host has it.
const UNCHECKED: AddressHeaderFlags = AddressHeaderFlags::Tentative.union(AddressHeaderFlags::Dadfailed);
/// An IPv6 address in one of these states goes soon. The second flag is that of temporary addresses (IFA_F_TEMPORARY);
/// it has its name from IPv4, for which it means another thing.
const PASSING: AddressHeaderFlags = AddressHeaderFlags::Deprecated.union(AddressHeaderFlags::Secondary);

/// An address with the prefix length of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceAddress {
    /// The interface that has it.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix: 0 to 32 or 128.
    pub prefix_len: u8,
}

impl Netlink {
    /// Adds an address to an interface. For IPv6, duplicate address detection is disabled; even so
    /// the kernel accepts packets for the address only a moment later: see
    /// [`Netlink::wait_until_local`].
    ///
    /// # Errors
    /// A [`NetlinkError`]; `Exists` if the interface has it.
    pub fn add_address(&mut self, address: InterfaceAddress) -> Result<(), NetlinkError> {
        let mut message = address_message(address);
        if address.address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change("add the address", Message::NewAddress(message), flags)
    }

    /// Waits, up to twenty seconds, until the kernel accepts packets for `address` as its own. For
    /// IPv6 that happens in the background once the address is set and its interface has a carrier,
    /// which a veth may take a second to detect.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotFound` if it does not happen.
    pub fn wait_until_local(&mut self, address: IpAddr) -> Result<(), NetlinkError> {
        let local = self.poll(|netlink| netlink.is_local(address))?;
        local.then_some(()).ok_or(NetlinkError::NotFound {
            what: "reach the own address",
        })
    }

    /// Removes an address from an interface.
    ///
    /// # Errors
    /// A [`NetlinkError`]; `NotFound` if the interface does not have it.
    pub fn delete_address(&mut self, address: InterfaceAddress) -> Result<(), NetlinkError> {
        let message = Message::DelAddress(address_message(address));
        self.change("delete the address", message, 0)
    }

    /// Removes all addresses from an interface.
    ///
    /// # Errors
    /// A [`NetlinkError`].
    pub fn flush_addresses(&mut self, index: u32) -> Result<(), NetlinkError> {
        for address in self.addresses(index)? {
            match self.delete_address(address) {
                // Removing a primary IPv4 address also removes its secondary ones.
                Ok(()) | Err(NetlinkError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The addresses of an interface.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn addresses(&mut self, index: u32) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let all = Message::GetAddress(AddressMessage::default());
        self.dump("list the addresses", all, |message| {
            interface_address_of(&message).filter(|address| address.index == index)
        })
    }

    /// The addresses of all interfaces.
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn all_addresses(&mut self) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let all = Message::GetAddress(AddressMessage::default());
        self.dump("list the addresses", all, |message| interface_address_of(&message))
    }

    /// The addresses of all interfaces that the kernel has checked, and those among them that are
    /// [passing](super::Change::Address::passing).
    ///
    /// # Errors
    /// Only if the exchange with the kernel fails.
    pub fn checked_addresses(&mut self) -> Result<(Vec<InterfaceAddress>, BTreeSet<InterfaceAddress>), NetlinkError> {
        let all = Message::GetAddress(AddressMessage::default());
        let listed = self.dump("list the addresses", all, |message| match message {
            Message::NewAddress(message) if is_checked(&message) => {
                Some((interface_address(&message)?, is_passing(&message)))
            }
            _ => None,
        })?;
        let passing = listed.iter().filter(|(_, passing)| *passing);
        let passing = passing.map(|(address, _)| *address).collect();
        Ok((listed.into_iter().map(|(address, _)| address).collect(), passing))
    }
}

/// Whether the host may use the address: the kernel has checked that no other host has it.
pub(super) fn is_checked(message: &AddressMessage) -> bool {
    !message.header.flags.intersects(UNCHECKED)
}

/// Whether the address goes soon.
pub(super) fn is_passing(message: &AddressMessage) -> bool {
    message.header.family == AddressFamily::Inet6 && message.header.flags.intersects(PASSING)
}

fn address_message(address: InterfaceAddress) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.address);
    message.header.index = address.index;
    message.header.prefix_len = address.prefix_len;
    message.attributes = vec![
        AddressAttribute::Local(address.address),
        AddressAttribute::Address(address.address),
    ];
    message
}

/// The kernel's constant for the IP version of `address`.
pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn interface_address_of(message: &Message) -> Option<InterfaceAddress> {
    match message {
        Message::NewAddress(message) => interface_address(message),
        _ => None,
    }
}

pub(super) fn interface_address(message: &AddressMessage) -> Option<InterfaceAddress> {
    // `Local` is the address itself; IPv6 has only `Address`.
    let local = message.attributes.iter().find_map(|a| match a {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    Some(InterfaceAddress {
        index: message.header.index,
        address,
        prefix_len: message.header.prefix_len,
    })
}
