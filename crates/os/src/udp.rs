//! The UDP socket of the underlay.
//!
//! - Many datagrams per call: several of one size are sent from one buffer (`UDP_SEGMENT`), and
//!   received into one (`UDP_GRO`). If the kernel or the device does not support it,
//!   [`UdpSocket::send`] sends them one by one and counts that (L20, L24).
//! - Datagrams are never fragmented: DF is set, and the kernel's own path MTU, which any host can
//!   lower with a forged ICMP message, is not used. Probing is the protocol's task (L15).
//! - Several sockets can share one port, and the kernel selects one by the content of a datagram
//!   ([`UdpSocket::share`]).
//! - An answer can leave from the address that was asked. A socket that is bound to no address returns
//!   the local end of each receive, and accepts one for each send ([`LocalEnd`]).
//! - A socket bound to `[::]` serves both IP versions; IPv4 peers appear as [`SocketAddr::V4`].

mod address;
mod bind;
mod bpf;
mod inquiry;
mod local;
mod message;
mod queue;
mod share;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use self::address::RawAddress;
pub use self::bind::{BindError, BindOptions, BufferSizes, MARK, mark};
pub use self::inquiry::{Finding, Inquiry};
pub use self::local::{AnswerDevice, Devices, LocalEnd};
pub use self::share::Steering;
use crate::poll::wait_writable;
use crate::syscall;

/// Maximum number of segments in one send (`UDP_MAX_SEGMENTS` of kernels before 6.9; L20).
pub const MAX_SEGMENTS: usize = 64;

/// Maximum number of bytes in one send: the payload of the largest IPv4 datagram (L20).
pub const MAX_SEND_LEN: usize = 65_507;

/// Length of a buffer that holds any receive.
pub const RECEIVE_BUFFER_LEN: usize = 65_535;

/// A bound UDP socket, non-blocking. May be shared between threads.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    /// Sends instead of this socket, from the same address.
    sender: Option<OwnedFd>,
    local: SocketAddr,
    ipv6: bool,
    buffers: BufferSizes,
    gro: bool,
    gso: AtomicBool,
    /// Where the interface of a [`LocalEnd`] counts.
    devices: Devices,
    counts: Counts,
}

impl UdpSocket {
    /// Binds `address` (port 0: any free port) in the calling thread's network namespace. `[::]`
    /// also serves IPv4; every other address serves its own version only.
    ///
    /// # Errors
    /// [`BindError`] has a variant for each cause.
    pub fn bind(address: SocketAddr, options: BindOptions) -> Result<Self, BindError> {
        let ipv6 = address.is_ipv6();
        let family = if ipv6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(family, SocketType::DGRAM, flags, None)
            .map_err(|error| BindError::new(address, error.into()))?;
        let dual_stack = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && !options.ipv6_only;
        bind::configure(fd.as_fd(), ipv6, dual_stack, options).map_err(BindError::Option)?;
        rustix::net::bind(&fd, &address).map_err(|error| BindError::new(address, error.into()))?;
        let local = bind::local_address(fd.as_fd()).map_err(BindError::Option)?;

        Self::finish(fd, local, options).map_err(BindError::Option)
    }

    /// Takes over a socket that was bound elsewhere, connected or not. It becomes non-blocking, and
    /// its datagrams are never fragmented. Of `options`, `reuse_port`, `ipv6_only` and `deaf` have
    /// no effect, as the socket is bound already.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn adopt(socket: std::net::UdpSocket, options: BindOptions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let fd = OwnedFd::from(socket);
        let local = bind::local_address(fd.as_fd())?;
        bind::forbid_fragments(fd.as_fd(), local.is_ipv6(), false)?;
        Self::finish(fd, local, options)
    }

    /// Returns the same socket under another descriptor, with the buffers and offloads of `options`.
    /// Of these, `reuse_port`, `ipv6_only` and `deaf` have no effect, as the socket is bound already.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn refit(&self, options: BindOptions) -> io::Result<Self> {
        Self::finish(self.fd.try_clone()?, self.local, options)
    }

    fn finish(fd: OwnedFd, local: SocketAddr, options: BindOptions) -> io::Result<Self> {
        let ipv6 = local.is_ipv6();
        let gro = options.gro && syscall::set_option(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        let gso = options.gso && syscall::option(fd.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT).is_ok();
        let buffers = BufferSizes::set(fd.as_fd(), options)?;
        bind::ask_for_ecn(fd.as_fd(), ipv6)?;
        if local.ip().is_unspecified() {
            local::ask(fd.as_fd(), ipv6)?;
        }
        Ok(Self {
            fd,
            sender: None,
            local,
            ipv6,
            buffers,
            gro,
            gso: AtomicBool::new(gso),
            devices: Devices::default(),
            counts: Counts::default(),
        })
    }

    /// The bound address with the port the system chose.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Sets the interfaces through which answers leave when the question came in there. An answer
    /// to what came to any other interface has the address that was asked as its source, and leaves
    /// as the system routes it.
    pub fn answer_through(&mut self, devices: Devices) {
        self.devices = devices;
    }

    /// The buffer sizes the kernel granted.
    #[must_use]
    pub fn buffers(&self) -> BufferSizes {
        self.buffers
    }

    /// Whether several segments leave in one call. Becomes false for good when the kernel or the
    /// device refuses.
    #[must_use]
    pub fn gso(&self) -> bool {
        self.gso.load(Ordering::Relaxed)
    }

    /// Whether the kernel coalesces received datagrams.
    #[must_use]
    pub fn gro(&self) -> bool {
        self.gro
    }

    /// Whether it sends through a descriptor that no thread waits for ([`UdpSocket::share`]).
    #[must_use]
    pub fn sends_apart(&self) -> bool {
        self.sender.is_some()
    }

    /// Waits until a send may succeed, at most for `timeout`; see [`wait_writable`].
    ///
    /// # Errors
    /// No error that a caller could act on.
    pub fn wait_for_room(&self, timeout: Duration) -> io::Result<bool> {
        wait_writable(self.outgoing(), timeout)
    }

    /// The counters of this socket so far. Asks the kernel for those that it keeps itself.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        UdpCounters {
            // Kernels before 4.12 do not report it.
            queue_dropped: queue::dropped(self.fd.as_fd()).unwrap_or(0),
            ..self.counts.snapshot()
        }
    }

    /// Sends `bytes` to `to` as datagrams of `segment_size` bytes, the last of which may be
    /// shorter; with `None`, or a size that `bytes` does not exceed, as one datagram.
    ///
    /// Returns how many bytes the kernel accepted: all of them, or, if it sends one by one and the
    /// socket became full in between, a multiple of `segment_size`; continue with the rest.
    ///
    /// # Errors
    /// Nothing was sent. `InvalidInput`: no bytes to split or size 0, more than [`MAX_SEGMENTS`] or
    /// [`MAX_SEND_LEN`]. [`is_transient`]: wait and try again (L16). [`is_too_long`]: a datagram
    /// exceeds the MTU of the interface. Any other error concerns the destination.
    pub fn send(&self, to: SocketAddr, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
        self.send_from(None, to, bytes, segment_size)
    }

    /// Like [`UdpSocket::send`], from a local end: an address of this host, and its interface if that
    /// is one of [`UdpSocket::answer_through`]. With `None`, the system selects both. So it does if
    /// the address or the route of the interface is gone, which is counted.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub fn send_from(
        &self,
        local: Option<LocalEnd>,
        to: SocketAddr,
        bytes: &[u8],
        segment_size: Option<u16>,
    ) -> io::Result<usize> {
        let to = self.destination(to)?;
        let Some(local) = local else {
            return self.send_to(&To { at: to, local: None }, bytes, segment_size);
        };
        let local = Some(self.devices.restrict(local));
        match self.send_to(&To { at: to, local }, bytes, segment_size) {
            Err(error) if local::may_be_gone(&error) => {
                Counts::add(&self.counts.local_ends_gone, 1);
                self.send_to(&To { at: to, local: None }, bytes, segment_size)
            }
            result => result,
        }
    }

    fn send_to(&self, to: &To, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
        let size = segment_size.map_or(bytes.len(), usize::from);
        if bytes.len() <= size {
            return self.send_plain(to, bytes);
        }
        if size == 0 || bytes.len() > MAX_SEND_LEN || bytes.len().div_ceil(size) > MAX_SEGMENTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.gso() {
            match message::send(self.outgoing(), to, bytes, Some(size as u16)) {
                Ok(len) => {
                    Counts::add(&self.counts.gso_sends, 1);
                    return Ok(len);
                }
                Err(error) if may_be_gso(&error) => return self.send_refused(to, bytes, size, &error),
                Err(error) => return Err(error),
            }
        }
        self.send_one_by_one(to, bytes, size)
    }

    /// Receives into `buf`: one datagram, or several of one size from one sender that the kernel
    /// coalesced.
    ///
    /// # Errors
    /// `WouldBlock` if there is none.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<Received> {
        let raw = message::receive(self.fd.as_fd(), buf)?;
        let received = Received {
            len: raw.len,
            segment_size: raw.segment_size.unwrap_or(raw.len),
            from: raw.from,
            local: raw.local,
            ecn: raw.ecn,
            truncated: raw.truncated,
        };
        let counter = if received.segment_size < received.len {
            &self.counts.gro_receives
        } else {
            &self.counts.plain_receives
        };
        Counts::add(counter, 1);
        Counts::add(&self.counts.segments_received, received.segments() as u64);
        Ok(received)
    }

    fn outgoing(&self) -> BorrowedFd<'_> {
        self.sender.as_ref().unwrap_or(&self.fd).as_fd()
    }

    fn destination(&self, to: SocketAddr) -> io::Result<RawAddress> {
        if to.is_ipv6() && !self.ipv6 {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        Ok(RawAddress::new(to, self.ipv6))
    }

    fn send_plain(&self, to: &To, bytes: &[u8]) -> io::Result<usize> {
        let len = message::send(self.outgoing(), to, bytes, None)?;
        Counts::add(&self.counts.plain_sends, 1);
        Ok(len)
    }

    /// Sends one by one the datagrams of a refused call, and learns from the result whether GSO
    /// does not work here at all.
    fn send_refused(&self, to: &To, bytes: &[u8], size: usize, error: &io::Error) -> io::Result<usize> {
        let sent = self.send_one_by_one(to, bytes, size);
        Counts::add(&self.counts.gso_refusals, 1);
        if shows_no_gso(error, &sent) {
            self.gso.store(false, Ordering::Relaxed);
        }
        sent
    }

    fn send_one_by_one(&self, to: &To, bytes: &[u8], size: usize) -> io::Result<usize> {
        let mut sent = 0;
        for segment in bytes.chunks(size) {
            match self.send_plain(to, segment) {
                Ok(len) => sent += len,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }
}

/// A destination, and the local end that it is sent from.
struct To {
    at: RawAddress,
    local: Option<LocalEnd>,
}

/// Whether the error may concern GSO, and not the destination or the socket. EMSGSIZE means that a
/// segment exceeds this path's MTU, or the whole send the device's limit; kernels before 6.14
/// return EINVAL for the former. Sending one by one tells the cases apart.
fn may_be_gso(error: &io::Error) -> bool {
    let known = [libc::EMSGSIZE, libc::EIO, libc::EINVAL, libc::EOPNOTSUPP];
    error.raw_os_error().is_some_and(|code| known.contains(&code))
}

/// Whether GSO does not work at all, judged by the error of the whole send and by the result of
/// sending its segments one by one: if those do not pass either, the path's MTU is too small for
/// them.
fn shows_no_gso(refused: &io::Error, alone: &io::Result<usize>) -> bool {
    alone.is_ok() && !is_too_long(refused)
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The result of one receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram; the last may be shorter. Equal to `len` if there is one datagram.
    pub segment_size: usize,
    /// The sender; an IPv4 sender is [`SocketAddr::V4`] on every socket.
    pub from: SocketAddr,
    /// The address and the interface that it came to, on a socket that is bound to no address.
    pub local: Option<LocalEnd>,
    /// The ECN bits of the IP headers (RFC 3168): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE. They are the
    /// same in every datagram.
    pub ecn: u8,
    /// The buffer was too short and the rest is lost; see [`RECEIVE_BUFFER_LEN`].
    pub truncated: bool,
}

impl Received {
    /// Number of datagrams.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.len.div_ceil(self.segment_size.max(1)).max(1)
    }

    /// The datagrams in `buf`, which must be the buffer of the receive. An empty datagram yields
    /// nothing.
    pub fn datagrams<'a>(&self, buf: &'a mut [u8]) -> std::slice::ChunksMut<'a, u8> {
        let len = self.len.min(buf.len());
        buf[..len].chunks_mut(self.segment_size.max(1))
    }
}

/// The counters of a socket; each call counts once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Sends of several segments in one call.
    pub gso_sends: u64,
    /// Sends of one datagram.
    pub plain_sends: u64,
    /// Sends of several segments that the kernel refused and that were then sent one by one.
    pub gso_refusals: u64,
    /// Receives of several datagrams in one call.
    pub gro_receives: u64,
    /// Receives of one datagram.
    pub plain_receives: u64,
    /// Datagrams received, in either kind of receive.
    pub segments_received: u64,
    /// Sends from a local end that is gone, which left from another.
    pub local_ends_gone: u64,
    /// Datagrams that the kernel dropped before they were received: the socket's buffer was full,
    /// or their checksum wrong. The counter wraps at 2^32.
    pub queue_dropped: u64,
}

#[derive(Debug, Default)]
struct Counts {
    gso_sends: AtomicU64,
    plain_sends: AtomicU64,
    gso_refusals: AtomicU64,
    gro_receives: AtomicU64,
    plain_receives: AtomicU64,
    segments_received: AtomicU64,
    local_ends_gone: AtomicU64,
}

impl Counts {
    fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    fn snapshot(&self) -> UdpCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UdpCounters {
            gso_sends: read(&self.gso_sends),
            plain_sends: read(&self.plain_sends),
            gso_refusals: read(&self.gso_refusals),
            gro_receives: read(&self.gro_receives),
            plain_receives: read(&self.plain_receives),
            segments_received: read(&self.segments_received),
            local_ends_gone: read(&self.local_ends_gone),
            queue_dropped: 0,
        }
    }
}

/// Whether the same send can succeed in a moment: the socket, the queue of the device or the memory
/// is full (L16).
#[must_use]
pub fn is_transient(error: &io::Error) -> bool {
    // EAGAIN is EWOULDBLOCK.
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM))
}

/// Whether a datagram exceeds the MTU of the interface that it would leave by.
#[must_use]
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_path_mtu_does_not_switch_gso_off() {
        let error = io::Error::from_raw_os_error;
        for (refused, alone, shows) in [
            (libc::EIO, Ok(100), true),
            (libc::EINVAL, Ok(100), true),
            (libc::EOPNOTSUPP, Ok(100), true),
            // The path's MTU, as kernels from 6.14 on and before report it.
            (libc::EMSGSIZE, Err(libc::EMSGSIZE), false),
            (libc::EINVAL, Err(libc::EMSGSIZE), false),
            // The limit of the device.
            (libc::EMSGSIZE, Ok(100), false),
        ] {
            assert!(may_be_gso(&error(refused)));
            assert_eq!(
                shows_no_gso(&error(refused), &alone.map_err(error)),
                shows,
                "{refused} {alone:?}"
            );
        }
        assert!(!may_be_gso(&error(libc::ENETUNREACH)));
    }
}
