//! Notifications of changed addresses, routes and links.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};

use super::NetlinkError;
use crate::syscall;

/// Room for one notification. The kernel truncates a longer one, of which only the kind matters
/// here.
const NOTICE_LEN: usize = 8192;

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
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers are passed.
        let fd = syscall::check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })
            .map_err(NetlinkError::Io)?;
        // SAFETY: the call above just created `fd`, and nothing else owns it.
        let socket = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let groups = [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
        ];
        for group in groups {
            syscall::set_option(
                socket.as_fd(),
                libc::SOL_NETLINK,
                libc::NETLINK_ADD_MEMBERSHIP,
                group as i32,
            )
            .map_err(NetlinkError::Io)?;
        }
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
