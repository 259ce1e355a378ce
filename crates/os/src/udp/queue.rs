//! The kernel's figures of a socket's receive queue.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::syscall;

/// The index of the drops among the figures of `SO_MEMINFO` (`linux/sock_diag.h`); no later figure
/// is needed.
const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Datagrams dropped before they entered the queue.
pub(super) fn dropped(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut figures = [0_u32; DROPS + 1];
    let mut len = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `figures`, whose every value is a `u32`.
    syscall::check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &raw mut len,
        )
    })?;
    Ok(figures[DROPS].into())
}
