//! What carries a lane's datagrams.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use weft_contract::{Endpoint, LocalEnd};
use weft_os::clock::monotonic_ns;
use weft_os::udp::{self, UdpSocket};

/// What one receive brought: datagrams of one length from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes in the buffer.
    pub len: usize,
    /// Bytes of each datagram; the last may be shorter. Equal to `len` if there is one datagram.
    pub segment_size: usize,
    /// The path that they came by: the sender, and the local end that it has sent to.
    pub from: Endpoint,
    /// The ECN bits of the IP headers (RFC 3168): 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
}

/// The counters of a [`Bind`]; each call counts once. A *train* is several datagrams in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BindCounters {
    /// Sends of trains.
    pub train_sends: u64,
    /// Sends of one datagram.
    pub single_sends: u64,
    /// Sends of trains that the carrier refused and that left one by one.
    pub train_refusals: u64,
    /// Receives of trains.
    pub train_receives: u64,
    /// Receives of one datagram.
    pub single_receives: u64,
    /// Datagrams received, in either kind of receive.
    pub datagrams_received: u64,
    /// Sends from a local end that is gone, which left from another.
    pub local_ends_gone: u64,
    /// Datagrams that the carrier dropped before they were received. The counter wraps at 2^32.
    pub dropped: u64,
}

impl std::ops::AddAssign for BindCounters {
    fn add_assign(&mut self, other: Self) {
        self.train_sends += other.train_sends;
        self.single_sends += other.single_sends;
        self.train_refusals += other.train_refusals;
        self.train_receives += other.train_receives;
        self.single_receives += other.single_receives;
        self.datagrams_received += other.datagrams_received;
        self.local_ends_gone += other.local_ends_gone;
        self.dropped += other.dropped;
    }
}

/// A local end that sends and receives datagrams: a UDP socket, another carrier, or in tests a
/// network in memory. Its descriptor is readable while a receive would succeed.
pub trait Bind: AsFd {
    /// Whether its destinations are of IPv6, or else of IPv4.
    fn is_ipv6(&self) -> bool;

    /// Sends `bytes` by the path `to` as datagrams of `segment_size` bytes, the last of which may be
    /// shorter, or as one. Returns how many bytes were accepted: all, or a multiple of
    /// `segment_size`.
    ///
    /// # Errors
    /// Nothing was sent. `WouldBlock`: wait for room. Otherwise as
    /// [`is_transient`](weft_os::udp::is_transient) and [`is_too_long`](weft_os::udp::is_too_long)
    /// say; any other error concerns the destination.
    fn send(&self, to: Endpoint, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize>;

    /// Receives into `buf`, which holds any receive
    /// ([`RECEIVE_BUFFER_LEN`](weft_os::udp::RECEIVE_BUFFER_LEN) bytes): one datagram, or several of
    /// one length from one sender.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. After any other error the lane waits for readiness again.
    fn recv(&self, buf: &mut [u8]) -> io::Result<Arrival>;

    /// Waits until a send may succeed, at most for `time`.
    fn wait_for_room(&self, time: Duration);

    /// The counters so far.
    fn counters(&self) -> BindCounters;

    /// Whether several datagrams leave in one call.
    fn sends_trains(&self) -> bool;

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
    fn is_ipv6(&self) -> bool {
        self.local_address().is_ipv6()
    }

    #[inline(always)]
    fn send(&self, to: Endpoint, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
        let local = to.local().map(|LocalEnd { ip, device }| udp::LocalEnd { ip, device });
        self.send_from(local, to.remote(), bytes, segment_size)
    }

    #[inline(always)]
    fn recv(&self, buf: &mut [u8]) -> io::Result<Arrival> {
        let received = UdpSocket::recv(self, buf)?;
        let local = received
            .local
            .map(|udp::LocalEnd { ip, device }| LocalEnd { ip, device });
        Ok(Arrival {
            len: received.len,
            segment_size: received.segment_size,
            from: Endpoint::from(received.from).with_local(local),
            ecn: received.ecn,
        })
    }

    fn wait_for_room(&self, time: Duration) {
        let _ = UdpSocket::wait_for_room(self, time);
    }

    fn counters(&self) -> BindCounters {
        let counters = UdpSocket::counters(self);
        BindCounters {
            train_sends: counters.gso_sends,
            single_sends: counters.plain_sends,
            train_refusals: counters.gso_refusals,
            train_receives: counters.gro_receives,
            single_receives: counters.plain_receives,
            datagrams_received: counters.segments_received,
            local_ends_gone: counters.local_ends_gone,
            dropped: counters.queue_dropped,
        }
    }

    fn sends_trains(&self) -> bool {
        self.gso()
    }
}
