//! Features of network interfaces, as ethtool(8) shows and changes them: the ioctl `SIOCETHTOOL` of `linux/ethtool.h`.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::syscall;

// Commands, and the string set with the names of features (`linux/ethtool.h`).
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;

/// Bytes of a name, zero-padded (`ETH_GSTRING_LEN`).
const NAME_LEN: usize = 32;

/// Why a feature could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum EthtoolError {
    /// The name is not a valid interface name.
    #[error("{0:?} is no interface name")]
    InvalidName(String),
    /// The kernel has no feature of that name.
    #[error("this kernel knows no interface feature {0:?}")]
    NoFeature(String),
    /// The interface does not let it change, or it depends on another feature.
    #[error("{feature} of {interface} cannot be changed")]
    Fixed {
        /// The interface.
        interface: String,
        /// The feature.
        feature: String,
    },
    /// The kernel refused.
    #[error("the features of {interface} cannot be used ({source})")]
    Refused {
        /// The interface.
        interface: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns whether the feature `name`, such as `tx-udp-segmentation`, is active on `interface` of
/// the calling thread's network namespace.
///
/// # Errors
/// [`EthtoolError`].
pub fn feature(interface: &str, name: &str) -> Result<bool, EthtoolError> {
    let port = Port::new(interface)?;
    let features = port.features()?;
    let at = features.find(name)?;
    port.is_active(&features, at)
}

/// Switches a feature on or off; see [`feature()`].
///
/// # Errors
/// [`EthtoolError`]; the feature is then unchanged.
pub fn set_feature(interface: &str, name: &str, on: bool) -> Result<(), EthtoolError> {
    let port = Port::new(interface)?;
    let features = port.features()?;
    let at = features.find(name)?;
    // struct ethtool_sfeatures: command, words, then for each 32 features the bits to change and
    // their values.
    let mut request = vec![0; 2 + 2 * features.words()];
    (request[0], request[1]) = (ETHTOOL_SFEATURES, features.words() as u32);
    request[2 + 2 * (at / 32)] = 1 << (at % 32);
    request[3 + 2 * (at / 32)] = u32::from(on) << (at % 32);
    port.call(&mut request)?;
    // Success means only that the request was accepted.
    if port.is_active(&features, at)? == on {
        return Ok(());
    }
    Err(EthtoolError::Fixed {
        interface: interface.to_owned(),
        feature: name.to_owned(),
    })
}

/// The names of the kernel's features, by number.
struct Features(Vec<String>);

impl Features {
    fn find(&self, name: &str) -> Result<usize, EthtoolError> {
        let at = self.0.iter().position(|feature| feature == name);
        at.ok_or_else(|| EthtoolError::NoFeature(name.to_owned()))
    }

    fn words(&self) -> usize {
        self.0.len().div_ceil(32)
    }
}

/// An interface, and a socket for its ioctl.
struct Port {
    socket: OwnedFd,
    name: String,
}

impl Port {
    fn new(name: &str) -> Result<Self, EthtoolError> {
        if !syscall::valid_interface_name(name) {
            return Err(EthtoolError::InvalidName(name.to_owned()));
        }
        let name = name.to_owned();
        match socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None) {
            Ok(socket) => Ok(Self { socket, name }),
            Err(error) => Err(EthtoolError::Refused {
                interface: name,
                source: error.into(),
            }),
        }
    }

    /// The kernel's features. Their number depends on the kernel, not on the interface, and does
    /// not change.
    fn features(&self) -> Result<Features, EthtoolError> {
        // struct ethtool_sset_info: command, reserved, mask of sets (64 bits), and the length of each set in the mask.
        let mut request = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        let (low, high) = mask.split_at(4);
        for (word, half) in request[2..4].iter_mut().zip([low, high]) {
            *word = u32::from_ne_bytes(half.try_into().unwrap_or_default());
        }
        self.call(&mut request)?;
        let count = request[4] as usize;
        // struct ethtool_gstrings: command, set, length, then the names.
        let mut request = vec![0; 3 + count * NAME_LEN / 4];
        (request[0], request[1], request[2]) = (ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32);
        self.call(&mut request)?;
        let bytes: Vec<u8> = request[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let names = bytes.chunks(NAME_LEN).map(|name| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        });
        Ok(Features(names.collect()))
    }

    fn is_active(&self, features: &Features, at: usize) -> Result<bool, EthtoolError> {
        // struct ethtool_gfeatures: command, words, then for each 32 features the bits available,
        // requested, active and never changed.
        let mut request = vec![0; 2 + 4 * features.words()];
        (request[0], request[1]) = (ETHTOOL_GFEATURES, features.words() as u32);
        self.call(&mut request)?;
        Ok(request[2 + 4 * (at / 32) + 2] >> (at % 32) & 1 == 1)
    }

    /// One ioctl. `request` is the command's structure, with all the room that its lengths promise.
    fn call(&self, request: &mut [u32]) -> Result<(), EthtoolError> {
        let mut ifreq = syscall::interface_request(&self.name);
        ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: `ifreq` contains the interface name, zero-padded, and points to `request`, which
        // lives through the call, is aligned for its words, and is as long as the lengths in it
        // say: the callers size it so, and the kernel fills no more.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut ifreq) };
        match syscall::check(result) {
            Ok(_) => Ok(()),
            Err(source) => Err(EthtoolError::Refused {
                interface: self.name.clone(),
                source,
            }),
        }
    }
}
