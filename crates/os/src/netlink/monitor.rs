//! Notifications of changed interfaces, addresses, routes, rules, settings and tables of nftables.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with, sockopt};

use super::address::{interface_address, is_checked, is_passing};
use super::link::interface;
use super::policy::is_own;
use super::route::{any_route, table_of};
use super::{InterfaceAddress, NetlinkError, Route, open_socket};

/// Room for one notification in bytes; that of an interface with many virtual functions is the longest.
const NOTICE_LEN: usize = 32_768;
/// Room in bytes for notifications that wait, as the kernel counts them: about 5,000 changed routes.
const WAITING_LEN: usize = 4 << 20;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Interfaces, addresses and routes (`linux/rtnetlink.h`).
const NETWORK: u32 = (libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE) as u32;
/// Settings: `RTNLGRP_IPV4_NETCONF` and `RTNLGRP_IPV6_NETCONF` of `linux/rtnetlink.h`, as bits.
const SETTINGS: u32 = 1 << (24 - 1) | 1 << (25 - 1);
/// Rules for routes: `RTNLGRP_IPV4_RULE` and `RTNLGRP_IPV6_RULE` of `linux/rtnetlink.h`, as bits.
const RULES: u32 = 1 << (8 - 1) | 1 << (19 - 1);
/// Tables of nftables: `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`, as a bit.
const NFTABLES: u32 = 1 << (7 - 1);

/// `RTM_NEWNETCONF` and `RTM_DELNETCONF` of `linux/rtnetlink.h`.
const NEW_SETTING: u16 = 80;
const OLD_SETTING: u16 = 81;
/// `NETCONFA_IFINDEX` of `linux/netconf.h`.
const SETTING_INTERFACE: u16 = 1;
/// `NFT_MSG_NEWGEN` of the subsystem `NFNL_SUBSYS_NFTABLES` (`linux/netfilter/nf_tables.h`).
const NEW_GENERATION: u16 = 10 << 8 | 15;
/// `NFTA_GEN_PROC_PID` and `NFTA_GEN_PROC_NAME`.
const GENERATION_PID: u16 = 2;
const GENERATION_NAME: u16 = 3;
/// The name of the table in notifications about tables and all that is in them.
const TABLE_NAME: u16 = 1;

/// A change of the network namespace, by any program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An interface.
    Link {
        /// Its index.
        index: u32,
        /// Packets pass, as in [`Interface::usable`](super::Interface::usable); never once it is
        /// deleted.
        usable: bool,
        /// Its MTU in bytes; 0 once it is deleted.
        mtu: u32,
    },
    /// An address of an interface.
    Address {
        /// The address.
        address: InterfaceAddress,
        /// The interface has it, and the kernel has checked that no other host does.
        present: bool,
        /// It is one of IPv6 that is deprecated or temporary (RFC 4862, 5.5.4; RFC 8981): it goes
        /// soon, and others need not know it.
        passing: bool,
    },
    /// A route of any kind; of several next hops, none is named.
    Route {
        /// The route.
        route: Route,
        /// Its table.
        table: u32,
        /// It was added or replaced, and not deleted.
        present: bool,
    },
    /// A rule for routes, with the mark of this program.
    Rule,
    /// A setting of an interface (`forwarding`, `rp_filter`), or of all.
    Setting {
        /// Its index; `None` for all.
        interface: Option<u32>,
    },
    /// A table of nftables, or something in it.
    Table {
        /// The name of the table.
        name: String,
    },
    /// The end of a change of nftables.
    Generation {
        /// The program that made it.
        program: String,
        /// Its process.
        pid: u32,
    },
    /// Some notifications were lost, because there were too many.
    Lost,
}

/// A socket that becomes readable when something changes in the network namespace of the thread that
/// opened it. Not blocking.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
    nftables: bool,
}

impl Monitor {
    /// Listens for changed interfaces, addresses, routes, rules for them (`ip rule`), and settings of interfaces.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system returns no netlink socket.
    pub fn of_network() -> Result<Self, NetlinkError> {
        Self::listen(open_socket(FLAGS)?, NETWORK | SETTINGS | RULES, false)
    }

    /// Listens for changes in nftables. It needs the capability CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system refuses the socket, or has no nftables.
    pub fn of_nftables() -> Result<Self, NetlinkError> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, FLAGS, protocol);
        let socket = socket.map_err(|error| NetlinkError::Io(error.into()))?;
        Self::listen(socket.into(), NFTABLES, true)
    }

    fn listen(socket: File, groups: u32, nftables: bool) -> Result<Self, NetlinkError> {
        // A smaller buffer only loses notifications earlier.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, WAITING_LEN)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, WAITING_LEN));
        // The kernel chooses the port.
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(|error| NetlinkError::Io(error.into()))?;
        Ok(Self { socket, nftables })
    }

    /// Reads all pending notifications and passes each change to `each`.
    ///
    /// # Errors
    /// Only when the socket itself fails.
    pub fn drain(&self, mut each: impl FnMut(Change)) -> io::Result<()> {
        let mut notice = vec![0; NOTICE_LEN];
        loop {
            match (&self.socket).read(&mut notice) {
                Ok(len) => {
                    let notice = notice.get(..len).unwrap_or_default();
                    for message in messages(notice) {
                        if self.nftables {
                            of_nftables(message).map(&mut each);
                        } else {
                            of_network(message).map(&mut each);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => each(Change::Lost),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Splits a datagram into its messages, each with its header (`struct nlmsghdr` of netlink(7)).
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..len.max(HEADER_LEN))?;
        bytes = bytes.get(len.max(HEADER_LEN).next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The length of the header of a message in bytes.
const HEADER_LEN: usize = 16;

/// The type of a message, at bytes 4 and 5 of its header.
fn kind(message: &[u8]) -> Option<u16> {
    let kind: &[u8; 2] = message.get(4..6)?.try_into().ok()?;
    Some(u16::from_ne_bytes(*kind))
}

/// The value of the attribute with this number, behind the header and a fixed part of `fixed` bytes.
fn attribute(message: &[u8], fixed: usize, number: u16) -> Option<&[u8]> {
    /// The bits of the type that are not its number: `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const FLAGS: u16 = 0xc000;
    let mut rest = message.get(HEADER_LEN + fixed..)?;
    loop {
        let [l0, l1, k0, k1] = *rest.first_chunk()?;
        let (len, kind) = (usize::from(u16::from_ne_bytes([l0, l1])), u16::from_ne_bytes([k0, k1]));
        let value = rest.get(4..len)?;
        if kind & !FLAGS == number {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

fn of_nftables(message: &[u8]) -> Option<Change> {
    // `struct nfgenmsg`.
    const FIXED: usize = 4;
    let text = |number| {
        let value = attribute(message, FIXED, number)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(value.get(..end)?).into_owned())
    };
    if kind(message)? != NEW_GENERATION {
        return Some(Change::Table {
            name: text(TABLE_NAME)?,
        });
    }
    let pid = attribute(message, FIXED, GENERATION_PID)?;
    Some(Change::Generation {
        program: text(GENERATION_NAME)?,
        pid: u32::from_be_bytes(pid.try_into().ok()?),
    })
}

fn of_network(message: &[u8]) -> Option<Change> {
    if matches!(kind(message)?, NEW_SETTING | OLD_SETTING) {
        // `struct netconfmsg` is one byte, and attributes begin at the next multiple of four.
        let index = attribute(message, 4, SETTING_INTERFACE)?;
        let index = i32::from_ne_bytes(index.try_into().ok()?);
        return Some(Change::Setting {
            interface: u32::try_from(index).ok(),
        });
    }
    let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else {
        // A later kernel says something that is not understood, so anything may have changed.
        return Some(Change::Lost);
    };
    let NetlinkPayload::InnerMessage(message) = message.payload else {
        return None;
    };
    match message {
        RouteNetlinkMessage::NewLink(_) => {
            let interface = interface(message)?;
            Some(Change::Link {
                index: interface.index,
                usable: interface.usable,
                mtu: interface.mtu,
            })
        }
        RouteNetlinkMessage::DelLink(link) => Some(Change::Link {
            index: link.header.index,
            usable: false,
            mtu: 0,
        }),
        RouteNetlinkMessage::NewAddress(address) => {
            let (present, passing) = (is_checked(&address), is_passing(&address));
            let address = interface_address(&address)?;
            Some(Change::Address {
                address,
                present,
                passing,
            })
        }
        RouteNetlinkMessage::DelAddress(address) => Some(Change::Address {
            address: interface_address(&address)?,
            present: false,
            passing: false,
        }),
        RouteNetlinkMessage::NewRoute(of) => of_route(&of, true),
        RouteNetlinkMessage::DelRoute(of) => of_route(&of, false),
        RouteNetlinkMessage::NewRule(rule) | RouteNetlinkMessage::DelRule(rule) => {
            is_own(&rule).then_some(Change::Rule)
        }
        _ => None,
    }
}

fn of_route(message: &RouteMessage, present: bool) -> Option<Change> {
    Some(Change::Route {
        route: any_route(message)?,
        table: table_of(message),
        present,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with this type, fixed part and attributes.
    fn message(kind: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend_from_slice(fixed);
        for (number, value) in attributes {
            bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
            bytes.extend_from_slice(&number.to_ne_bytes());
            bytes.extend_from_slice(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&len);
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    #[test]
    fn nftables_names_the_table_and_the_program() {
        let generation: &[(u16, &[u8])] = &[(1, &[0, 0, 0, 9]), (2, &[0, 0, 4, 0xd2]), (3, b"nft\0")];
        assert_eq!(
            of_nftables(&message(NEW_GENERATION, &[0; 4], generation)),
            Some(Change::Generation {
                program: "nft".to_owned(),
                pid: 1234
            })
        );
        // A table, and a set element behind other attributes.
        for attributes in [&[(1_u16, &b"weft\0"[..])][..], &[(3, &[0, 0, 0, 1]), (1, b"weft\0")]] {
            let name = "weft".to_owned();
            assert_eq!(
                of_nftables(&message(10 << 8, &[0; 4], attributes)),
                Some(Change::Table { name })
            );
        }
        assert_eq!(of_nftables(&message(10 << 8, &[0; 4], &[])), None);
    }

    #[test]
    fn truncated_notices_end_the_reading() {
        let whole = message(NEW_SETTING, &[2, 0, 0, 0], &[(1, &7_i32.to_ne_bytes())]);
        assert_eq!(of_network(&whole), Some(Change::Setting { interface: Some(7) }));
        let all = message(NEW_SETTING, &[2, 0, 0, 0], &[(1, &(-1_i32).to_ne_bytes())]);
        assert_eq!(of_network(&all), Some(Change::Setting { interface: None }));
        let both = [whole.clone(), all].concat();
        assert_eq!(messages(&both).count(), 2);
        for end in 0..whole.len() {
            let cut = &whole[..end];
            assert!(messages(cut).next().is_none() && attribute(cut, 4, 1).is_none());
        }
        // Lengths that a kernel never writes.
        let mut odd = whole;
        odd[..4].copy_from_slice(&[0; 4]);
        assert_eq!(messages(&odd).count(), 1);
        odd[20..22].copy_from_slice(&[0; 2]);
        assert_eq!(attribute(&odd, 4, 1), None);
    }
}
