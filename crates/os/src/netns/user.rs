//! The right to create network namespaces: root has it, others get it in a user namespace.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;

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
        // SAFETY: both cannot fail and access no memory.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let line = |id| CString::new(format!("0 {id} 1")).unwrap_or_default();
        Self {
            uid: line(uid),
            gid: line(gid),
        }
    }
}

/// Moves a process of one thread into a new user namespace. Makes system calls only, so it may run
/// between fork and exec.
pub(crate) fn enter_user_namespace(maps: &IdMaps) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    syscall::check(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
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
    // SAFETY: no pointers are passed.
    syscall::check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Runs `attempt` in a forked child, which ends at once; returns the child's error. A child rather
/// than a thread, because a user namespace applies to whole processes. `attempt` may make system
/// calls only: other threads of the parent may hold any lock, including the allocator's.
fn try_in_child(attempt: impl FnOnce() -> io::Result<()>) -> Result<io::Result<()>, NamespaceError> {
    // SAFETY: the child makes system calls only, as documented above, and leaves by `_exit`.
    let child = syscall::check(unsafe { libc::fork() }).map_err(|source| NamespaceError::io("fork", source))?;
    if child == 0 {
        let code = match attempt() {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one `int` through a pointer to one.
        match syscall::check(unsafe { libc::waitpid(child, &raw mut status, 0) }) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(NamespaceError::io("wait for a child process", source)),
        }
    }
    Ok(match libc::WEXITSTATUS(status) {
        // A system call filter may kill the child instead of refusing the call.
        _ if !libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(libc::EPERM)),
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    })
}

/// Writes a file with system calls only.
fn write(path: &CStr, text: &CStr) -> io::Result<()> {
    let bytes = text.to_bytes();
    // SAFETY: `path` ends in a NUL byte; the pointer and the length describe `bytes`; the descriptor is
    // the one opened here.
    unsafe {
        let fd = syscall::check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = syscall::check_len(libc::write(fd, bytes.as_ptr().cast(), bytes.len()));
        libc::close(fd);
        written?;
    }
    Ok(())
}
