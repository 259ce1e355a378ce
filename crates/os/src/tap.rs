//! The TAP interface: an Ethernet device whose frames this process reads and writes.
//!
//! Every read and every write transfers one Ethernet frame. A plain interface has no virtio header
//! and no offloads: the kernel splits super-packets and completes checksums before it passes a
//! frame on. An interface with offloads passes them unchanged, behind the header that
//! [`crate::tun`] describes, whose offsets count from the Ethernet header. The interface disappears
//! with its [`Tap`].

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::syscall;
use crate::tun::{Offloads, TunError, VNET_HEADER_LEN, attach, open_device, set_header_len};

/// Bytes of the Ethernet header: two addresses and the type.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// Length of a buffer that holds any read: the header and the longest packet of an interface with
/// the largest MTU.
pub const FRAME_BUFFER_LEN: usize = ETHERNET_HEADER_LEN + 65_535;

/// Length of a buffer that holds any read of an interface with offloads: the virtio header comes
/// first.
pub const SUPER_FRAME_BUFFER_LEN: usize = VNET_HEADER_LEN + FRAME_BUFFER_LEN;

/// A TAP interface, non-blocking. May be shared between threads.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    index: u32,
    offloads: Option<Offloads>,
}

impl Tap {
    /// Creates the plain interface `name` in the calling thread's network namespace, down and
    /// without addresses. A `%d` in the name becomes the first free number.
    ///
    /// # Errors
    /// [`TunError`] has a variant for each cause; nothing is left behind.
    pub fn create(name: &str) -> Result<Self, TunError> {
        Self::make(name, false)
    }

    /// Like [`Self::create`], with a virtio header before each frame, and the offloads that the
    /// kernel grants.
    ///
    /// # Errors
    /// Like [`Self::create`].
    pub fn with_offloads(name: &str) -> Result<Self, TunError> {
        Self::make(name, true)
    }

    fn make(name: &str, offloads: bool) -> Result<Self, TunError> {
        if !syscall::valid_interface_name(name) {
            return Err(TunError::InvalidName(name.to_owned()));
        }
        let file = open_device()?;
        let header = if offloads { libc::IFF_VNET_HDR } else { 0 };
        let name = attach(&file, name, libc::IFF_TAP | libc::IFF_NO_PI | header)?;
        let offloads = if offloads {
            set_header_len(&file).map_err(TunError::NoVirtioHeader)?;
            Some(Offloads::negotiate(&file))
        } else {
            None
        };
        let index = syscall::interface_index(&name).map_err(TunError::Io)?;
        Ok(Self {
            file,
            name,
            index,
            offloads,
        })
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The index of the interface, for netlink.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The super-packets and partial checksums that the interface passes in both directions. `None`
    /// for a plain interface, whose frames have no virtio header.
    #[must_use]
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads
    }

    /// Reads one frame that the system sends. Returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. A frame longer than `buf` is truncated silently, so pass
    /// [`FRAME_BUFFER_LEN`] bytes, or [`SUPER_FRAME_BUFFER_LEN`].
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buf)
    }

    /// Passes one frame to the system.
    ///
    /// # Errors
    /// `WouldBlock` if the system has no room for it; `EIO` if the interface is down; `EINVAL` if
    /// it is shorter than its header.
    pub fn write(&self, frame: &[u8]) -> io::Result<usize> {
        (&self.file).write(frame)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
