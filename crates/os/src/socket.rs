//! Options of sockets of any kind.

use std::io;
use std::os::fd::AsFd;

use crate::syscall;

/// The index of the interface `name` in the calling thread's network namespace.
///
/// # Errors
/// An error without a kind (ENODEV) if there is no such interface.
pub fn interface_index(name: &str) -> io::Result<u32> {
    syscall::interface_index(name)
}

/// Makes the socket send and receive by the interface `name` only.
///
/// # Errors
/// `PermissionDenied` before Linux 5.7 without CAP_NET_RAW; an error without a kind (ENODEV) if
/// there is no such interface.
pub fn bind_to_interface(socket: impl AsFd, name: &str) -> io::Result<()> {
    syscall::set_option_bytes(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}
