//! Notifications of changed addresses, routes and links, and of changed rules.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, netlink, socket_with};

use super::{NetlinkError, open_socket};

/// Room for one notification. The kernel truncates a longer one, of which only the kind matters
/// here.
const NOTICE_LEN: usize = 8192;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Addresses, routes and links (`linux/rtnetlink.h`).
const GROUPS: libc::c_int = libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE;

/// Rules for routes: `RTNLGRP_IPV4_RULE` and `RTNLGRP_IPV6_RULE` of `linux/rtnetlink.h`, as bits.
const RULES: u32 = 1 << (8 - 1) | 1 << (19 - 1);
/// Tables of nftables: `NFNLGRP_NFTABLES` of `linux/netfilter/nfnetlink.h`, as a bit.
const NFTABLES: u32 = 1 << (7 - 1);

/// A socket that becomes readable when something changes in the network namespace of the thread that
/// opened it. Not blocking.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
}

impl Monitor {
    /// Listens for changed addresses, routes and links.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system returns no netlink socket.
    pub fn open() -> Result<Self, NetlinkError> {
        Self::listen(open_socket(FLAGS)?, GROUPS as u32)
    }

    /// Listens for changed rules for routes (`ip rule`).
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system returns no netlink socket.
    pub fn of_rules() -> Result<Self, NetlinkError> {
        Self::listen(open_socket(FLAGS)?, RULES)
    }

    /// Listens for changes in nftables. It needs the capability CAP_NET_ADMIN.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system refuses the socket, or has no nftables.
    pub fn of_nftables() -> Result<Self, NetlinkError> {
        let protocol = Some(netlink::NETFILTER);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, FLAGS, protocol);
        Self::listen(socket.map_err(|error| NetlinkError::Io(error.into()))?.into(), NFTABLES)
    }

    fn listen(socket: File, groups: u32) -> Result<Self, NetlinkError> {
        // The kernel chooses the port.
        bind(&socket, &SocketAddrNetlink::new(0, groups)).map_err(|error| NetlinkError::Io(error.into()))?;
        Ok(Self { socket })
    }

    /// Reads all pending notifications. Returns true if there was one, or if some were lost because
    /// there were too many.
    ///
    /// # Errors
    /// Only when the socket itself fails.
    pub fn drain(&self) -> io::Result<bool> {
        let (mut changed, mut notice) = (false, [0; NOTICE_LEN]);
        loop {
            match (&self.socket).read(&mut notice) {
                Ok(_) => changed = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changed),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changed = true,
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
