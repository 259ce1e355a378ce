//! This process, and others, as the kernel sees them: rights, memory, processor time.

mod heap;
mod priority;
mod threads;

use std::fs;
use std::io;
use std::time::Duration;

pub use self::heap::heap_in_use;
pub use self::priority::{Turns, permit_nice, set_thread_turns, thread_turns};
pub use self::threads::{ThreadUsage, threads_of};
use crate::{clock, syscall};

const CAP_NET_ADMIN: u32 = 12;
const CAP_SETPCAP: u32 = 8;
const CAP_SYS_NICE: u32 = 23;

/// True if the calling thread may change interfaces and routes of its network namespace.
#[must_use]
pub fn has_net_admin() -> bool {
    CapabilitySets::current().is_ok_and(|sets| sets.effective & bit(CAP_NET_ADMIN) != 0)
}

/// Gives up every capability but CAP_NET_ADMIN, for good: also the ones that a program started later
/// could get. Call it before the process starts threads and after everything is open that needs more
/// (a port below 1024, a state directory of another user).
///
/// # Errors
/// [`PrivilegeError::SeveralThreads`] changes nothing, because capabilities belong to threads.
pub fn drop_privileges_to_net_admin() -> Result<(), PrivilegeError> {
    drop_privileges(bit(CAP_NET_ADMIN), bit(CAP_NET_ADMIN))
}

/// The same, but keeps CAP_SYS_NICE as well: for this thread and those that it starts, not for programs. Whoever does not need it
/// calls [`give_up_nice`].
///
/// # Errors
/// As [`drop_privileges_to_net_admin`].
pub fn drop_privileges_to_net_admin_and_nice() -> Result<(), PrivilegeError> {
    drop_privileges(bit(CAP_NET_ADMIN) | bit(CAP_SYS_NICE), bit(CAP_NET_ADMIN))
}

/// Gives up CAP_SYS_NICE in the calling thread, for good.
///
/// # Errors
/// [`PrivilegeError::Io`]; none is known.
pub fn give_up_nice() -> Result<(), PrivilegeError> {
    let mut sets = CapabilitySets::current().map_err(|e| PrivilegeError::new("read the capabilities", e))?;
    sets.permitted &= !bit(CAP_SYS_NICE);
    sets.effective = sets.permitted;
    sets.apply()
        .map_err(|e| PrivilegeError::new("drop the capabilities", e))
}

/// Gives up every capability, for good; see [`drop_privileges_to_net_admin`].
///
/// # Errors
/// As [`drop_privileges_to_net_admin`].
pub fn drop_all_privileges() -> Result<(), PrivilegeError> {
    drop_privileges(0, 0)
}

/// Keeps the capabilities with a bit in `kept`; programs started later can have those of `programs`.
fn drop_privileges(kept: u64, programs: u64) -> Result<(), PrivilegeError> {
    let threads = thread_count().map_err(|e| PrivilegeError::new("count the threads", e))?;
    if threads > 1 {
        return Err(PrivilegeError::SeveralThreads(threads));
    }
    let mut sets = CapabilitySets::current().map_err(|e| PrivilegeError::new("read the capabilities", e))?;
    // Who lacks CAP_SETPCAP cannot shrink the bounding set; then `no_new_privs` keeps it useless.
    if sets.effective & bit(CAP_SETPCAP) != 0 {
        drop_bounding_set(programs)?;
    }
    // An error means a kernel without ambient capabilities.
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u64);
    sets.permitted &= kept;
    sets.effective = sets.permitted;
    sets.inheritable = 0;
    sets.apply()
        .map_err(|e| PrivilegeError::new("drop the capabilities", e))?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(|e| PrivilegeError::new("forbid new privileges", e))?;
    Ok(())
}

/// Why the privileges were not dropped.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// Other threads would keep what this one gives up.
    #[error("privileges can only be dropped by a process with one thread; this one has {0}")]
    SeveralThreads(usize),
    /// A system call failed.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl PrivilegeError {
    fn new(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }
}

/// What a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory in RAM, in bytes.
    pub rss_bytes: u64,
    /// Processor time of all its threads so far, in and outside the kernel.
    pub cpu: Duration,
}

/// What this process uses.
///
/// # Errors
/// Without `/proc`.
pub fn usage() -> io::Result<Usage> {
    usage_of(std::process::id())
}

/// What the process `pid` uses.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn usage_of(pid: u32) -> io::Result<Usage> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm"))?;
    let pages = statm.split(' ').nth(1).and_then(|text| text.parse().ok());
    let pages: u64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: no pointers are passed.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(Usage {
        rss_bytes: pages * u64::try_from(page).unwrap_or(4096),
        cpu: cpu_time(pid)?,
    })
}

fn cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: the call writes one clock id through a pointer to one.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    let time = clock::read(clock).ok_or(io::ErrorKind::NotFound)?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The number of threads of this process. If there are several it looks again for up to 50 ms, because
/// a thread that was joined is listed for a moment longer.
///
/// # Errors
/// Without `/proc`.
pub fn thread_count() -> io::Result<usize> {
    let mut count = 0;
    for _ in 0..50 {
        count = fs::read_dir("/proc/self/task")?.count();
        if count <= 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(count)
}

/// The capability sets of the calling thread, one bit each.
struct CapabilitySets {
    effective: u64,
    permitted: u64,
    inheritable: u64,
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
    fn current() -> io::Result<Self> {
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

    fn apply(&self) -> io::Result<()> {
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

/// Leaves `kept` alone in the bounding set.
fn drop_bounding_set(kept: u64) -> Result<(), PrivilegeError> {
    for capability in (0..64).filter(|&c| kept & bit(c) == 0) {
        // The first that the kernel does not know is behind the last.
        if prctl(libc::PR_CAPBSET_READ, u64::from(capability)).is_err() {
            break;
        }
        prctl(libc::PR_CAPBSET_DROP, u64::from(capability))
            .map_err(|e| PrivilegeError::new("shrink the capability bounding set", e))?;
    }
    Ok(())
}

fn prctl(option: i32, argument: u64) -> io::Result<i32> {
    // SAFETY: the options used in this file take numbers, no pointers.
    syscall::check(unsafe { libc::prctl(option, argument, 0_u64, 0_u64, 0_u64) })
}

fn bit(capability: u32) -> u64 {
    1 << capability
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_grows_with_use() {
        let before = usage().unwrap();
        let block = vec![1_u8; 64 << 20];
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        let after = usage().unwrap();
        assert_eq!(sum, 64 << 20);
        assert!(after.rss_bytes >= before.rss_bytes + (32 << 20));
        assert!(after.cpu > before.cpu);
        drop(block);
    }

    #[test]
    fn usage_of_nobody_is_not_found() {
        // Above the largest process id that Linux gives out (2^22).
        let error = usage_of(5_000_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn other_threads_forbid_dropping() {
        let (ended, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || wait.recv());
            let before = has_net_admin();
            let refused = drop_privileges_to_net_admin();
            assert!(matches!(refused, Err(PrivilegeError::SeveralThreads(2..))));
            assert_eq!(has_net_admin(), before);
            drop(ended);
        });
    }
}
