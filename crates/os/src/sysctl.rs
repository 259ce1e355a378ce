//! Settings of one interface that netlink does not cover. All of them apply to the network
//! namespace of the calling thread.

use std::fs;
use std::io;

use crate::syscall;

/// Disables IPv6 router advertisements on an interface, so that no default route or address appears
/// by itself.
///
/// # Errors
/// [`SysctlError::NoIpv6`] if the kernel has no IPv6; the others name the setting.
pub fn disable_router_advertisements(interface: &str) -> Result<(), SysctlError> {
    set_ipv6(interface, "accept_ra", "0")?;
    set_ipv6(interface, "autoconf", "0")
}

/// Turns IPv6 on for an interface: a new one has what `default.disable_ipv6` says.
///
/// # Errors
/// Like [`disable_router_advertisements`].
pub fn enable_ipv6(interface: &str) -> Result<(), SysctlError> {
    match ipv6_enabled(interface) {
        true => Ok(()),
        false => set_ipv6(interface, "disable_ipv6", "0"),
    }
}

/// Enables or disables IPv6 forwarding for this namespace (`all`) or one interface.
///
/// # Errors
/// Like [`disable_router_advertisements`].
pub fn set_ipv6_forwarding(interface: &str, on: bool) -> Result<(), SysctlError> {
    set_ipv6(interface, "forwarding", if on { "1" } else { "0" })
}

/// Enables or disables IPv4 forwarding for this namespace.
///
/// # Errors
/// [`SysctlError::Refused`] if the system does not allow it.
pub fn set_ipv4_forwarding(on: bool) -> Result<(), SysctlError> {
    write("/proc/sys/net/ipv4/ip_forward", if on { "1" } else { "0" })
}

/// Whether the calling thread's namespace has IPv6 and it is not disabled for `interface` (`all`:
/// for any).
#[must_use]
pub fn ipv6_enabled(interface: &str) -> bool {
    fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"))
        .is_ok_and(|value| value.trim() == "0")
}

/// Why a setting could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The kernel was started without IPv6.
    #[error("the kernel has no IPv6")]
    NoIpv6,
    /// The interface does not exist, or its name is invalid.
    #[error("there is no interface {0:?}")]
    NoInterface(String),
    /// The system refused; in a container `/proc/sys` is often read-only.
    #[error("{path} could not be set to {value}")]
    Refused {
        /// The file of the setting.
        path: String,
        /// The value that was to be written.
        value: String,
        /// The system's error.
        source: io::Error,
    },
}

fn set_ipv6(interface: &str, setting: &str, value: &str) -> Result<(), SysctlError> {
    const ROOT: &str = "/proc/sys/net/ipv6/conf";
    if !syscall::valid_interface_name(interface) {
        return Err(SysctlError::NoInterface(interface.to_owned()));
    }
    if !fs::exists(ROOT).unwrap_or(false) {
        return Err(SysctlError::NoIpv6);
    }
    let directory = format!("{ROOT}/{interface}");
    if !fs::exists(&directory).unwrap_or(false) {
        return Err(SysctlError::NoInterface(interface.to_owned()));
    }
    write(&format!("{directory}/{setting}"), value)
}

fn write(path: &str, value: &str) -> Result<(), SysctlError> {
    fs::write(path, value).map_err(|source| SysctlError::Refused {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}
