//! Protection of memory that holds secrets against dumps and swap.

use std::io;

use super::capabilities::prctl;
use super::privileges::PrivilegeError;
use crate::syscall;

/// The type of a resource limit's number, of which the C libraries have two.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

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
    let done = set_limit(libc::RLIMIT_CORE, 0, 0).and_then(|()| prctl(libc::PR_SET_DUMPABLE, 0));
    done.map(drop).map_err(|e| PrivilegeError::new("forbid core dumps", e))
}

/// Keeps the memory of this process out of swap, present and future, each page from its first use on.
///
/// Only if `RLIMIT_MEMLOCK` is unlimited or can be made so: under a limit the kernel would refuse
/// memory to a process that grows past it, including its stack, and kill it.
///
/// # Errors
/// [`LockMemoryError`]; nothing is locked then.
pub fn lock_memory() -> Result<(), LockMemoryError> {
    let limit = limit(libc::RLIMIT_MEMLOCK).map_err(LockMemoryError::System)?;
    if limit.rlim_cur != libc::RLIM_INFINITY
        && set_limit(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY).is_err()
    {
        return Err(LockMemoryError::Limit(limit.rlim_cur));
    }
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: no pointers are passed; locking changes no contents.
    syscall::check(unsafe { libc::mlockall(flags) }).map_err(LockMemoryError::System)?;
    Ok(())
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

fn limit(resource: Resource) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills in `limit`, which lives through the call.
    syscall::check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    Ok(limit)
}

fn set_limit(resource: Resource, rlim_cur: libc::rlim_t, rlim_max: libc::rlim_t) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur, rlim_max };
    // SAFETY: `limit` is initialised and lives through the call.
    syscall::check(unsafe { libc::setrlimit(resource, &raw const limit) })?;
    Ok(())
}
