//! Binding: options, granted buffer sizes, errors.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::address::RawAddress;
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
        let grant = |force, plain, wanted: usize| {
            // The kernel doubles the value to make room for its overhead, and reports the doubled
            // one.
            let value = i32::try_from(wanted).unwrap_or(i32::MAX / 2);
            if syscall::set_option(fd, libc::SOL_SOCKET, force, value).is_err() {
                syscall::set_option(fd, libc::SOL_SOCKET, plain, value)?;
            }
            let granted = syscall::option(fd, libc::SOL_SOCKET, plain)?;
            Ok::<usize, io::Error>(usize::try_from(granted).unwrap_or(0) / 2)
        };
        let (wanted_receive, wanted_send) = (options.receive_buffer, options.send_buffer);
        Ok(Self {
            receive: grant(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, wanted_receive)?,
            send: grant(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, wanted_send)?,
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

/// Sets the options that must be set before the socket is bound.
pub(super) fn configure(fd: BorrowedFd<'_>, ipv6: bool, dual_stack: bool, options: BindOptions) -> io::Result<()> {
    if options.reuse_port {
        syscall::set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    if options.deaf {
        // A filter that returns 0 keeps no byte.
        bpf::attach(fd, libc::SO_ATTACH_FILTER, &mut [bpf::END_WITH_0])?;
    }
    if ipv6 {
        let only = i32::from(!dual_stack);
        syscall::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
    }
    forbid_fragments(fd, ipv6, dual_stack)
}

/// Sets DF, and makes the socket ignore the kernel's path MTU.
pub(super) fn forbid_fragments(fd: BorrowedFd<'_>, ipv6: bool, dual_stack: bool) -> io::Result<()> {
    if ipv6 {
        syscall::set_option(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )?;
        // IPv6 would otherwise fragment at the sender, down to the MTU of the interface.
        syscall::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)?;
    }
    if !ipv6 || dual_stack {
        syscall::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    Ok(())
}

/// Makes each receive report the ECN bits of the IP header.
pub(super) fn ask_for_ecn(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        syscall::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        // For IPv4 on the same socket. A socket for IPv6 alone may refuse it, and does not need it.
        let _ = syscall::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
        return Ok(());
    }
    syscall::set_option(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)
}

/// Returns the address of the bound socket.
pub(super) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    let mut len = raw.len();
    // SAFETY: the kernel writes at most `len` bytes, the size of the storage behind the pointer.
    syscall::check(unsafe { libc::getsockname(fd.as_raw_fd(), raw.as_mut_ptr(), &raw mut len) })?;
    raw.set_len(len);
    raw.decode().ok_or_else(|| io::ErrorKind::InvalidData.into())
}
