//! The TAP interface: a network card whose cable is in this process's hand.
//!
//! Every read and every write carries one Ethernet frame, without a virtio header and without offloads: the kernel
//! splits super-packets and completes checksums before it hands a frame over. The interface disappears with its
//! [`Tap`].

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::syscall;
use crate::tun::{TunError, attach, open_device};

/// Bytes of the Ethernet header: two addresses and the type.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// A buffer of this length takes any read: the header and the longest packet of an interface whose MTU is the largest.
pub const FRAME_BUFFER_LEN: usize = ETHERNET_HEADER_LEN + 65_535;

/// A TAP interface, not blocking. May be shared between threads.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    index: u32,
}

impl Tap {
    /// Makes the interface `name` in the calling thread's network namespace, down and without addresses. A `%d` in
    /// the name becomes the first free number.
    ///
    /// # Errors
    /// One variant of [`TunError`] for each thing that can be wrong; nothing is left behind.
    pub fn create(name: &str) -> Result<Self, TunError> {
        if !syscall::valid_interface_name(name) {
            return Err(TunError::InvalidName(name.to_owned()));
        }
        let file = open_device()?;
        let name = attach(&file, name, libc::IFF_TAP | libc::IFF_NO_PI)?;
        let index = syscall::interface_index(&name).map_err(TunError::Io)?;
        Ok(Self { file, name, index })
    }

    /// The name the interface got.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index of the interface, for netlink.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads one frame that the system sends. Returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. A frame longer than `buf` is cut without a word, so pass
    /// [`FRAME_BUFFER_LEN`] bytes.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buf)
    }

    /// Gives one frame to the system.
    ///
    /// # Errors
    /// `WouldBlock` if the system cannot take it now; `EIO` if the interface is down; `EINVAL` if it is shorter than
    /// its header.
    pub fn write(&self, frame: &[u8]) -> io::Result<usize> {
        (&self.file).write(frame)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
