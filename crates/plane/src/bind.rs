//! What carries a lane's datagrams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use weft_os::clock::monotonic_ns;
use weft_os::udp::{Received, UdpCounters, UdpSocket};

/// A local address that sends and receives datagrams: a UDP socket, another carrier, or in tests a
/// network in memory. Its descriptor is readable while a receive would succeed.
pub trait Bind: AsFd {
    /// The local address. Its IP version is that of the destinations.
    fn local_address(&self) -> SocketAddr;

    /// Sends `bytes` to `to` as datagrams of `segment_size` bytes, the last of which may be
    /// shorter, or as one. Returns how many bytes were accepted: all, or a multiple of
    /// `segment_size`.
    ///
    /// # Errors
    /// Nothing was sent. `WouldBlock`: wait for room. Otherwise as
    /// [`is_transient`](weft_os::udp::is_transient) and [`is_too_long`](weft_os::udp::is_too_long)
    /// say; any other error concerns the destination.
    fn send(&self, to: SocketAddr, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize>;

    /// Receives into `buf`, which holds any receive
    /// ([`RECEIVE_BUFFER_LEN`](weft_os::udp::RECEIVE_BUFFER_LEN) bytes): one datagram, or several of
    /// one length from one sender.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. After any other error the lane waits for readiness again.
    fn recv(&self, buf: &mut [u8]) -> io::Result<Received>;

    /// Waits until a send may succeed, at most for `time`.
    fn wait_for_room(&self, time: Duration);

    /// The counters so far.
    fn counters(&self) -> UdpCounters;

    /// Whether several datagrams leave in one call.
    fn gso(&self) -> bool;

    /// Waits for `time`, because of an error for which there is no readiness.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Nanoseconds on a monotonic clock, by which a carrier that stays full is given up.
    fn now(&self) -> u64 {
        monotonic_ns()
    }
}

impl Bind for UdpSocket {
    fn local_address(&self) -> SocketAddr {
        UdpSocket::local_address(self)
    }

    #[inline(always)]
    fn send(&self, to: SocketAddr, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
        UdpSocket::send(self, to, bytes, segment_size)
    }

    #[inline(always)]
    fn recv(&self, buf: &mut [u8]) -> io::Result<Received> {
        UdpSocket::recv(self, buf)
    }

    fn wait_for_room(&self, time: Duration) {
        let _ = UdpSocket::wait_for_room(self, time);
    }

    fn counters(&self) -> UdpCounters {
        UdpSocket::counters(self)
    }

    fn gso(&self) -> bool {
        UdpSocket::gso(self)
    }
}
