//! The TUN interface.
//!
//! Every read and every write transfers one packet behind a 10-byte virtio header (`struct
//! virtio_net_hdr` in `linux/virtio_net.h`, fields in the byte order of the machine). With the
//! offloads of [`Offloads`] that packet may be a super-packet of up to 64 KiB, which is split on
//! the way out and coalesced on the way in. The interface disappears with its last [`Tun`].

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use crate::syscall;

/// Bytes of the virtio header in front of each packet.
pub const VNET_HEADER_LEN: usize = 10;

/// Length of a buffer that holds any read: the header and the longest packet.
pub const READ_BUFFER_LEN: usize = VNET_HEADER_LEN + 65_535;

/// One queue of a TUN interface, non-blocking.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    index: u32,
    offloads: Offloads,
}

impl Tun {
    /// Creates the interface `name` in the calling thread's network namespace, down and without
    /// addresses. A `%d` in the name becomes the first free number.
    ///
    /// # Errors
    /// [`TunError`] has a variant for each cause; nothing is left behind.
    pub fn create(name: &str, options: TunOptions) -> Result<Self, TunError> {
        if !syscall::valid_interface_name(name) {
            return Err(TunError::InvalidName(name.to_owned()));
        }
        let file = open_device()?;
        let mut flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if options.multi_queue {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        let name = attach(&file, name, flags)?;
        set_header_len(&file).map_err(TunError::NoVirtioHeader)?;
        let offloads = if options.offloads {
            Offloads::negotiate(&file)
        } else {
            Offloads::default()
        };
        let index = syscall::interface_index(&name).map_err(TunError::Io)?;
        Ok(Self {
            file,
            name,
            index,
            offloads,
        })
    }

    /// Adds a queue to this interface; the kernel spreads flows over the queues.
    ///
    /// # Errors
    /// [`TunError::NoFurtherQueue`] if the interface was created without
    /// [`TunOptions::multi_queue`], or the kernel has no room for more.
    pub fn add_queue(&self) -> Result<Self, TunError> {
        let options = TunOptions {
            multi_queue: true,
            offloads: self.offloads.checksum,
        };
        Self::create(&self.name, options).map_err(|error| match error {
            TunError::NameTaken(name) => TunError::NoFurtherQueue(name),
            other => other,
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

    /// The super-packets and partial checksums that the interface passes in both directions.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Reads one packet that the system sends into the network: virtio header, then the IP packet.
    /// Returns the length of both.
    ///
    /// # Errors
    /// `WouldBlock` if there is none. A packet longer than `buf` is truncated silently, so pass
    /// [`READ_BUFFER_LEN`] bytes.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buf)
    }

    /// Passes one packet to the system: `parts` together are the virtio header and the IP packet.
    ///
    /// # Errors
    /// `WouldBlock` if the system has no room for it; `EIO` if the interface is down; `EINVAL` if
    /// the header contradicts the packet.
    pub fn writev(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(parts)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Options of a new interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunOptions {
    /// Whether [`Tun::add_queue`] is possible.
    pub multi_queue: bool,
    /// Whether to ask for segmentation and checksum offload.
    pub offloads: bool,
}

impl Default for TunOptions {
    fn default() -> Self {
        Self {
            multi_queue: false,
            offloads: true,
        }
    }
}

/// The offloads in force. All false: every packet fits the MTU and has its checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Packets may have `VIRTIO_NET_HDR_F_NEEDS_CSUM`, the checksum to be completed.
    pub checksum: bool,
    /// TCP super-packets of both IP versions.
    pub tcp: bool,
    /// UDP super-packets (`VIRTIO_NET_HDR_GSO_UDP_L4`) of both IP versions; Linux 6.2 and later.
    pub udp: bool,
}

impl Offloads {
    /// Asks for all offloads and returns those that the kernel grants.
    pub(crate) fn negotiate(file: &File) -> Self {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        let wishes = [
            (tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6, true, true),
            (tcp, true, false),
            (libc::TUN_F_CSUM, false, false),
        ];
        for (bits, tcp, udp) in wishes {
            // SAFETY: TUNSETOFFLOAD takes its argument by value and accesses no memory of this
            // process.
            let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, u64::from(bits)) };
            if result == 0 {
                return Self {
                    checksum: true,
                    tcp,
                    udp,
                };
            }
        }
        Self::default()
    }
}

/// Why a TUN or TAP interface could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The kernel has no TUN driver, or the device file does not exist.
    #[error("/dev/net/tun does not exist: load the `tun` module or pass the device to the container")]
    NoDevice,
    /// This user may not open the device file.
    #[error("/dev/net/tun may not be opened by this user")]
    DevicePermission,
    /// The process may open the device but not create interfaces.
    #[error("making a TUN interface needs the capability CAP_NET_ADMIN")]
    MissingCapability,
    /// An interface of that name exists.
    #[error("the interface name {0:?} is taken")]
    NameTaken(String),
    /// The interface is limited to one queue, or has as many as the kernel allows.
    #[error("the interface {0} takes no further queue")]
    NoFurtherQueue(String),
    /// The name is not a valid interface name.
    #[error("{0:?} is no interface name: 1 to 15 bytes, no slash, colon or space")]
    InvalidName(String),
    /// The kernel refused the virtio header.
    #[error("the TUN driver does not take a virtio header")]
    NoVirtioHeader(#[source] io::Error),
    /// Any other error.
    #[error("the TUN interface could not be made")]
    Io(#[source] io::Error),
}

pub(crate) fn open_device() -> Result<File, TunError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::NoDevice,
            Some(libc::EACCES | libc::EPERM) => TunError::DevicePermission,
            _ => TunError::Io(error),
        })
}

/// Calls TUNSETIFF; returns the name that the kernel chose.
pub(crate) fn attach(file: &File, name: &str, flags: libc::c_int) -> Result<String, TunError> {
    let mut request = syscall::interface_request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return Err(match error.raw_os_error() {
            Some(libc::EPERM) => TunError::MissingCapability,
            Some(libc::EBUSY | libc::EEXIST) => TunError::NameTaken(name.to_owned()),
            // The name belongs to an interface of another kind.
            Some(libc::EINVAL) if syscall::interface_index(name).is_ok() => TunError::NameTaken(name.to_owned()),
            _ => TunError::Io(error),
        });
    }
    let name = request.ifr_name.iter().map(|&c| c as u8);
    let name = name.take_while(|&b| b != 0).collect::<Vec<u8>>();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

pub(crate) fn set_header_len(file: &File) -> io::Result<()> {
    let len = VNET_HEADER_LEN as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one `int` through the pointer.
    syscall::check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const len) })?;
    Ok(())
}
