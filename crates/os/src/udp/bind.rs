//! Binding: options, granted buffer sizes, errors.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::sockopt;

use super::bpf;
use crate::syscall;

/// Options of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindOptions {
    /// Size of the receive buffer in bytes: payload and overhead.
    pub receive_buffer: usize,
    /// Size of the send buffer in bytes: payload and overhead.
    pub send_buffer: usize,
    /// Let several sockets of this user share the port; the kernel spreads senders over them (L29).
    pub reuse_port: bool,
    /// Let the kernel coalesce received datagrams.
    pub gro: bool,
    /// Send several segments in one call.
    pub gso: bool,
    /// `[::]` serves only IPv6, so that another socket can have the port for IPv4.
    pub ipv6_only: bool,
    /// The socket only sends: received datagrams are dropped.
    pub deaf: bool,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            reuse_port: false,
            gro: true,
            gso: true,
            ipv6_only: false,
            deaf: false,
        }
    }
}

/// The sizes of the socket buffers in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSizes {
    /// The receive buffer that the kernel granted.
    pub receive: usize,
    /// The send buffer that the kernel granted.
    pub send: usize,
    wanted_receive: usize,
    wanted_send: usize,
}

impl BufferSizes {
    /// The sysctl to raise if the receive buffer is smaller than requested, with the value that it
    /// needs (L43).
    #[must_use]
    pub fn receive_shortfall(&self) -> Option<(&'static str, usize)> {
        (self.receive < self.wanted_receive).then_some(("net.core.rmem_max", self.wanted_receive))
    }

    /// Like [`Self::receive_shortfall`], for the send buffer.
    #[must_use]
    pub fn send_shortfall(&self) -> Option<(&'static str, usize)> {
        (self.send < self.wanted_send).then_some(("net.core.wmem_max", self.wanted_send))
    }

    pub(super) fn set(fd: BorrowedFd<'_>, options: BindOptions) -> io::Result<Self> {
        // The kernel doubles a size to make room for its overhead, and reports the doubled one.
        let size = |wanted: usize| wanted.min(i32::MAX as usize / 2);
        let (wanted_receive, wanted_send) = (options.receive_buffer, options.send_buffer);
        sockopt::set_socket_recv_buffer_size_force(fd, size(wanted_receive))
            .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, size(wanted_receive)))?;
        sockopt::set_socket_send_buffer_size_force(fd, size(wanted_send))
            .or_else(|_| sockopt::set_socket_send_buffer_size(fd, size(wanted_send)))?;
        Ok(Self {
            receive: sockopt::socket_recv_buffer_size(fd)? / 2,
            send: sockopt::socket_send_buffer_size(fd)? / 2,
            wanted_receive,
            wanted_send,
        })
    }
}

/// Why a socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket has the port.
    #[error("UDP {0} is in use by another program")]
    InUse(SocketAddr),
    /// The port is privileged, or a policy of the system forbids it.
    #[error("binding UDP {0} is not permitted")]
    Permission(SocketAddr),
    /// No interface has this address.
    #[error("no interface has the address of UDP {0}")]
    NotAvailable(SocketAddr),
    /// The kernel has no IPv6 (or, in theory, no IPv4).
    #[error("this system does not speak the IP version of UDP {0}")]
    NoIpVersion(SocketAddr),
    /// A socket option was refused.
    #[error("a UDP socket option was refused")]
    Option(#[source] io::Error),
    /// Any other error.
    #[error("UDP {address} could not be bound")]
    Io {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl BindError {
    /// Whether the process, or the system, has no descriptor left.
    #[must_use]
    pub fn is_out_of_descriptors(&self) -> bool {
        let (Self::Io { source, .. } | Self::Option(source)) = self else {
            return false;
        };
        matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
    }

    pub(super) fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::InUse(address),
            Some(libc::EACCES | libc::EPERM) => Self::Permission(address),
            Some(libc::EADDRNOTAVAIL) => Self::NotAvailable(address),
            Some(libc::EAFNOSUPPORT) => Self::NoIpVersion(address),
            _ => Self::Io { address, source },
        }
    }
}

/// The bit of the mark (`SO_MARK` of socket(7)) that sockets for datagrams between nodes have, so
/// that rules of the system tell them from what passes through the interface. No other known
/// program uses this bit.
pub const MARK: u32 = 0x0200_0000;

/// Sets the options that must be set before the socket is bound.
pub(super) fn configure(fd: BorrowedFd<'_>, ipv6: bool, dual_stack: bool, options: BindOptions) -> io::Result<()> {
    if options.reuse_port {
        sockopt::set_socket_reuseport(fd, true)?;
    }
    if options.deaf {
        // A filter that returns 0 keeps no byte.
        bpf::attach(fd, libc::SO_ATTACH_FILTER, &mut [bpf::END_WITH_0])?;
    }
    if ipv6 {
        sockopt::set_ipv6_v6only(fd, !dual_stack)?;
    }
    mark(fd);
    forbid_fragments(fd, ipv6, dual_stack)
}

/// Marks a socket ([`MARK`]): for datagrams between nodes, or for what has to pass before nodes can
/// find each other.
pub fn mark(socket: impl AsFd) {
    let fd = socket.as_fd();
    // Without CAP_NET_ADMIN it is refused, and then nothing looks at marks either.
    let _ = syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, MARK as libc::c_int);
}

/// Sets DF, and makes the socket ignore the kernel's path MTU.
pub(super) fn forbid_fragments(fd: BorrowedFd<'_>, ipv6: bool, dual_stack: bool) -> io::Result<()> {
    if ipv6 {
        sockopt::set_ipv6_mtu_discover(fd, sockopt::Ipv6PathMtuDiscovery::PROBE)?;
        // IPv6 would otherwise fragment at the sender, down to the MTU of the interface.
        syscall::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
    }
    if !ipv6 || dual_stack {
        sockopt::set_ip_mtu_discover(fd, sockopt::Ipv4PathMtuDiscovery::PROBE)?;
    }
    Ok(())
}

/// Makes each receive report the ECN bits of the IP header.
pub(super) fn ask_for_ecn(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        sockopt::set_ipv6_recvtclass(fd, true)?;
        // For IPv4 on the same socket. A socket for IPv6 alone may refuse it, and does not need it.
        let _ = sockopt::set_ip_recvtos(fd, true);
        return Ok(());
    }
    Ok(sockopt::set_ip_recvtos(fd, true)?)
}

/// Returns the address of the bound socket; a mapped IPv4 address as IPv4.
pub(super) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let address = SocketAddr::try_from(rustix::net::getsockname(fd)?)?;
    Ok(match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    })
}
