//! Where a lane reads and writes inner packets.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::time::Duration;

use weft_os::clock::monotonic_ns;
use weft_os::poll::wait_writable;
use weft_os::tun::{Offloads, Tun};

/// A queue of inner packets: the TUN of the system, or in tests one in memory. Its descriptor is
/// readable while a read would succeed or fail for good.
///
/// Each read and each write transfers a virtio header of
/// [`VNET_HEADER_LEN`](weft_os::tun::VNET_HEADER_LEN) bytes and one IP packet, which the
/// [`Offloads`] allow to be a super-packet.
pub trait Device: AsFd {
    /// The super-packets and partial checksums that it passes in both directions.
    fn offloads(&self) -> Offloads;

    /// Reads a packet into `buf`, which holds any ([`READ_BUFFER_LEN`](weft_os::tun::READ_BUFFER_LEN)
    /// bytes). Returns the length of header and packet.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, `Interrupted` to be called again; any other error means that
    /// the device is gone, and ends the lane.
    fn read(&self, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes the packet that `parts` are together, header first. Returns their length.
    ///
    /// # Errors
    /// As [`is_transient`](weft_os::udp::is_transient) says if the device is full, `Interrupted` to
    /// be called again; after any other error the packet is dropped.
    fn writev(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until a write may succeed, at most for `time`.
    fn wait_for_room(&self, time: Duration);

    /// Nanoseconds on a monotonic clock, by which a device that stays full is given up.
    fn now(&self) -> u64 {
        monotonic_ns()
    }
}

impl Device for Tun {
    fn offloads(&self) -> Offloads {
        Tun::offloads(self)
    }

    #[inline(always)]
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        Tun::read(self, buf)
    }

    #[inline(always)]
    fn writev(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Tun::writev(self, parts)
    }

    fn wait_for_room(&self, time: Duration) {
        let _ = wait_writable(self, time);
    }
}
