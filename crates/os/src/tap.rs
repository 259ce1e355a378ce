//! The TAP interface: a network card whose cable is in this process's hand.
//!
//! Every read and every write carries one Ethernet frame. A plain interface has no virtio header and no offloads: the
//! kernel splits super-packets and completes checksums before it hands a frame over. One with offloads carries them as
//! they are, behind the header that [`crate::tun`] describes, whose offsets count from the Ethernet header. The
//! interface disappears with its [`Tap`].

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use crate::syscall;
use crate::tun::{Offloads, TunError, VNET_HEADER_LEN, attach, open_device, set_header_len};

/// Bytes of the Ethernet header: two addresses and the type.
pub const ETHERNET_HEADER_LEN: usize = 14;

/// A buffer of this length takes any read: the header and the longest packet of an interface whose MTU is the largest.
pub const FRAME_BUFFER_LEN: usize = ETHERNET_HEADER_LEN + 65_535;

/// The same for an interface with offloads: the virtio header in front.
pub const SUPER_FRAME_BUFFER_LEN: usize = VNET_HEADER_LEN + FRAME_BUFFER_LEN;

/// A TAP interface, not blocking. May be shared between threads.
#[derive(Debug)]
pub struct Tap {
    file: File,
    name: String,
    index: u32,
    offloads: Option<Offloads>,
}

impl Tap {
    /// Makes the plain interface `name` in the calling thread's network namespace, down and without addresses. A `%d` in
    /// the name becomes the first free number.
    ///
    /// # Errors
    /// One variant of [`TunError`] for each thing that can be wrong; nothing is left behind.
    pub fn create(name: &str) -> Result<Self, TunError> {
        Self::make(name, false)
    }

    /// The same with a virtio header in front of each frame, and the offloads that the kernel grants.
    ///
    /// # Errors
    /// As above.
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

    /// What the kernel may hand over, and take, unsplit and without checksums. None for a plain interface, whose frames
    /// have no virtio header.
    #[must_use]
    pub fn offloads(&self) -> Option<Offloads> {
        self.offloads
    }

    /// Reads one frame that the system sends. Returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. A frame longer than `buf` is cut without a word, so pass
    /// [`FRAME_BUFFER_LEN`] bytes, or [`SUPER_FRAME_BUFFER_LEN`].
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
