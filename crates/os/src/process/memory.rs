//! Protection of memory that holds secrets against dumps and swap.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

use super::privileges::PrivilegeError;

/// Forbids core dumps of this process, for good: neither a file nor the program of `core_pattern`
/// gets its memory, and processes without CAP_SYS_PTRACE cannot attach to it. Programs that it
/// starts inherit the limit.
///
/// `PR_SET_DUMPABLE` alone decides if `core_pattern` names a program, which receives dumps
/// regardless of `RLIMIT_CORE` (core(5)). The kernel resets it at a change of user, so call this
/// function again after one.
///
/// # Errors
/// [`PrivilegeError::Io`]; not known to occur.
pub fn forbid_core_dumps() -> Result<(), PrivilegeError> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable))
        .map_err(|e| PrivilegeError::new("forbid core dumps", e))
}

/// Keeps the memory of this process out of swap, present and future, each page from its first use on.
///
/// Only if `RLIMIT_MEMLOCK` is unlimited or can be made so: under a limit the kernel would refuse
/// memory to a process that grows past it, including its stack, and kill it.
///
/// # Errors
/// [`LockMemoryError`]; nothing is locked then.
pub fn lock_memory() -> Result<(), LockMemoryError> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if let Some(limit) = getrlimit(Resource::Memlock).current
        && setrlimit(Resource::Memlock, unlimited).is_err()
    {
        return Err(LockMemoryError::Limit(limit));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(flags).map_err(|error| LockMemoryError::System(error.into()))
}

/// Why memory is not locked.
#[derive(Debug, thiserror::Error)]
pub enum LockMemoryError {
    /// `RLIMIT_MEMLOCK`, in bytes.
    #[error("the limit of locked memory is {} KiB; in a systemd unit LimitMEMLOCK=infinity lifts it", .0 / 1024)]
    Limit(u64),
    /// A system call failed.
    #[error("the system refused: {0}")]
    System(#[source] io::Error),
}

/// Ignores SIGINT, SIGTERM and SIGHUP: for a process that ends together with another one, which
/// also receives these signals.
///
/// # Errors
/// The error of the system call; not known to occur.
pub fn ignore_stop_signals() -> io::Result<()> {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: no handler runs: the signal is ignored.
        let before = unsafe { libc::signal(number, libc::SIG_IGN) };
        if before == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
