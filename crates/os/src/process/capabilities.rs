//! Capabilities of the calling thread: capabilities(7).

use std::io;

use super::privileges::PrivilegeError;
use crate::syscall;

pub(super) const CAP_SETGID: u32 = 6;
pub(super) const CAP_SETUID: u32 = 7;
const CAP_SETPCAP: u32 = 8;
pub(super) const CAP_NET_ADMIN: u32 = 12;
pub(super) const CAP_SYS_NICE: u32 = 23;

/// Whether the calling thread may change interfaces and routes of its network namespace.
#[must_use]
pub fn has_net_admin() -> bool {
    CapabilitySets::current().is_ok_and(|sets| sets.effective & bit(CAP_NET_ADMIN) != 0)
}

/// Drops CAP_SYS_NICE in the calling thread for good.
///
/// # Errors
/// [`PrivilegeError::Io`]; not known to occur.
pub fn give_up_nice() -> Result<(), PrivilegeError> {
    let mut sets = CapabilitySets::current().map_err(|e| PrivilegeError::new("read the capabilities", e))?;
    sets.permitted &= !bit(CAP_SYS_NICE);
    sets.effective = sets.permitted;
    sets.apply()
        .map_err(|e| PrivilegeError::new("drop the capabilities", e))
}

/// The capability sets of the calling thread, one bit each.
pub(super) struct CapabilitySets {
    pub(super) effective: u64,
    pub(super) permitted: u64,
    pub(super) inheritable: u64,
}

/// `struct __user_cap_header_struct` of `linux/capability.h`, which libc lacks.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`; version 3 uses two, the low half first.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

impl CapabilitySets {
    pub(super) fn current() -> io::Result<Self> {
        let mut header = CapHeader {
            version: CAP_VERSION_3,
            pid: 0,
        };
        let mut data = [CapData::default(); 2];
        // SAFETY: for version 3 the kernel writes two `CapData` and at most the header.
        let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let [low, high] = data;
        let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Ok(Self {
            effective: join(low.effective, high.effective),
            permitted: join(low.permitted, high.permitted),
            inheritable: join(low.inheritable, high.inheritable),
        })
    }

    pub(super) fn apply(&self) -> io::Result<()> {
        let mut header = CapHeader {
            version: CAP_VERSION_3,
            pid: 0,
        };
        let half = |shift: u32| CapData {
            effective: (self.effective >> shift) as u32,
            permitted: (self.permitted >> shift) as u32,
            inheritable: (self.inheritable >> shift) as u32,
        };
        let data = [half(0), half(32)];
        // SAFETY: for version 3 the kernel reads two `CapData` and the header.
        let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Reduces the bounding set to `kept`. A thread without CAP_SETPCAP cannot reduce it; then
/// `no_new_privs` makes the set useless.
pub(super) fn shrink_bounding_set(kept: u64) -> Result<(), PrivilegeError> {
    let sets = CapabilitySets::current().map_err(|e| PrivilegeError::new("read the capabilities", e))?;
    if sets.effective & bit(CAP_SETPCAP) == 0 {
        return Ok(());
    }
    for capability in (0..64).filter(|&c| kept & bit(c) == 0) {
        // The first that the kernel does not know comes after the last.
        if prctl(libc::PR_CAPBSET_READ, u64::from(capability)).is_err() {
            break;
        }
        prctl(libc::PR_CAPBSET_DROP, u64::from(capability))
            .map_err(|e| PrivilegeError::new("shrink the capability bounding set", e))?;
    }
    Ok(())
}

pub(super) fn prctl(option: i32, argument: u64) -> io::Result<i32> {
    // SAFETY: the options that this module and its siblings use take numbers, no pointers.
    syscall::check(unsafe { libc::prctl(option, argument, 0_u64, 0_u64, 0_u64) })
}

pub(super) const fn bit(capability: u32) -> u64 {
    1 << capability
}
