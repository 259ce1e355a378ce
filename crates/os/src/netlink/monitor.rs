//! Notifications of changed addresses, routes and links.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{SocketFlags, bind};

use super::{NetlinkError, open_socket};

/// Room for one notification. The kernel truncates a longer one, of which only the kind matters
/// here.
const NOTICE_LEN: usize = 8192;

/// The groups of notifications (`linux/rtnetlink.h`).
const GROUPS: libc::c_int = libc::RTMGRP_LINK
    | libc::RTMGRP_IPV4_IFADDR
    | libc::RTMGRP_IPV6_IFADDR
    | libc::RTMGRP_IPV4_ROUTE
    | libc::RTMGRP_IPV6_ROUTE;

/// A socket that becomes readable when an address, a route or a link changes in the network namespace of the thread
/// that opened it. Not blocking.
#[derive(Debug)]
pub struct Monitor {
    socket: File,
}

impl Monitor {
    /// Starts to listen.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system returns no netlink socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let socket = open_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // The kernel chooses the port.
        let address = SocketAddrNetlink::new(0, GROUPS as u32);
        bind(&socket, &address).map_err(|error| NetlinkError::Io(error.into()))?;
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
