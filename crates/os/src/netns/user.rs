//! The right to create network namespaces: root has it, others get it in a user namespace.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::NamespaceError;
use crate::{process, syscall};

/// How this process can create network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It may create them directly.
    Privileged,
    /// It may create them once it is in a user namespace of its own.
    UserNamespace,
}

/// Checks whether network namespaces can be created, without changing this process: a thread tries,
/// and if it may not, a forked child.
///
/// # Errors
/// [`NamespaceError`] names the mechanism that forbids it and how to allow it.
pub fn probe() -> Result<Access, NamespaceError> {
    if super::on_new_thread(new_net_namespace)?.is_ok() {
        return Ok(Access::Privileged);
    }
    let maps = IdMaps::new();
    try_in_child(|| {
        enter_user_namespace(&maps)?;
        new_net_namespace()
    })?
    .map_err(explain_user)?;
    Ok(Access::UserNamespace)
}

/// Ensures that this process can create network namespaces. Root's process stays unchanged; another
/// user's process moves to a user namespace in which it is root, with no more rights outside than
/// before.
///
/// # Errors
/// [`NamespaceError`]; nothing has changed then. [`NamespaceError::SeveralThreads`] if the process
/// already has several threads.
pub fn enter() -> Result<Access, NamespaceError> {
    let access = probe()?;
    if access == Access::UserNamespace {
        match process::thread_count() {
            Ok(1) => {}
            Ok(threads) => return Err(NamespaceError::SeveralThreads(threads)),
            Err(error) => return Err(NamespaceError::io("count the threads", error)),
        }
        enter_user_namespace(&IdMaps::new()).map_err(explain_user)?;
    }
    Ok(access)
}

/// The contents of the maps of a user namespace in which the present user becomes root. Prepared
/// before a fork, while memory may still be allocated.
pub(crate) struct IdMaps {
    uid: CString,
    gid: CString,
}

impl IdMaps {
    pub(crate) fn new() -> Self {
        let line = |id| CString::new(format!("0 {id} 1")).unwrap_or_default();
        Self {
            uid: line(geteuid().as_raw()),
            gid: line(getegid().as_raw()),
        }
    }
}

/// Moves a process of one thread into a new user namespace. Makes system calls only, so it may run
/// between fork and exec.
pub(crate) fn enter_user_namespace(maps: &IdMaps) -> io::Result<()> {
    unshare(UnshareFlags::NEWUSER)?;
    // Linux 3.19 and later require this before a group map without privileges.
    write(c"/proc/self/setgroups", c"deny")?;
    write(c"/proc/self/uid_map", &maps.uid)?;
    write(c"/proc/self/gid_map", &maps.gid)
}

/// Explains why a network namespace was refused to a privileged process.
pub(super) fn explain_net(source: io::Error) -> NamespaceError {
    match source.raw_os_error() {
        Some(libc::ENOSPC) => NamespaceError::NetLimit,
        Some(libc::EINVAL | libc::ENOSYS) => NamespaceError::NoKernelSupport("network"),
        _ => NamespaceError::Forbidden(source),
    }
}

/// Explains why a user namespace and a network namespace in it were refused. Several mechanisms
/// answer EPERM; their settings show which one did.
fn explain_user(source: io::Error) -> NamespaceError {
    let is = |sysctl: &str, value: &str| {
        fs::read_to_string(format!("/proc/sys/{sysctl}")).is_ok_and(|text| text.trim() == value)
    };
    match source.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => NamespaceError::NoKernelSupport("user"),
        Some(libc::ENOSPC) if is("user/max_net_namespaces", "0") => NamespaceError::NetLimit,
        Some(libc::ENOSPC | libc::EUSERS) => NamespaceError::UserLimit,
        _ if is("user/max_user_namespaces", "0") => NamespaceError::UserLimit,
        _ if is("kernel/unprivileged_userns_clone", "0") => NamespaceError::UsersDisabled,
        _ if is("kernel/apparmor_restrict_unprivileged_userns", "1") => NamespaceError::AppArmor,
        _ => NamespaceError::Forbidden(source),
    }
}

/// Moves the calling thread into a new network namespace.
pub(super) fn new_net_namespace() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)
}

/// Moves the calling thread, or its process, into a new namespace.
fn unshare(namespace: UnshareFlags) -> io::Result<()> {
    // SAFETY: no namespace takes descriptors away from other threads; only `FILES` would.
    Ok(unsafe { unshare_unsafe(namespace) }?)
}

/// Runs `attempt` in a forked child, which ends at once; returns the child's error. A child rather
/// than a thread, because a user namespace applies to whole processes. `attempt` may make system
/// calls only: other threads of the parent may hold any lock, including the allocator's.
fn try_in_child(attempt: impl FnOnce() -> io::Result<()>) -> Result<io::Result<()>, NamespaceError> {
    // SAFETY: the child makes system calls only, as documented above, and leaves by `_exit`.
    let child = syscall::check(unsafe { libc::fork() }).map_err(|source| NamespaceError::io("fork", source))?;
    let Some(child) = Pid::from_raw(child) else {
        let code = match attempt() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) }
    };
    let ended = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
    let ended = ended.map_err(|error| NamespaceError::io("wait for a child process", error.into()))?;
    Ok(match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        // A system call filter may kill the child instead of refusing the call.
        None => Err(Errno::PERM.into()),
    })
}

/// Writes a file with system calls only.
fn write(path: &CStr, text: &CStr) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.to_bytes())?;
    Ok(())
}
