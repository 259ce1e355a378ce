//! What the sockets and threads of every load have in common.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use weft_os::socket::bind_to_interface;

/// How often a waiting thread checks whether it must end.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Maximum time whose datagrams are sent at once after a stall.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(10);

/// A new socket for the IP version of `address`.
pub(crate) fn socket_for(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Makes a socket accept packets from `device` only. Before Linux 5.7 that takes a capability that
/// the process lacks; the token then has to suffice.
pub(crate) fn bind_device(socket: &OwnedFd, device: Option<&str>) {
    if let Some(device) = device {
        let _ = bind_to_interface(socket, device);
    }
}

/// Returns true if the time limit of a call has passed, or a signal has ended the call: with a time limit
/// it is not restarted, for example when the process is stopped and continues (signal(7)). ETIMEDOUT is
/// another error: TCP has given up.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
