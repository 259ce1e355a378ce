//! What the kernel says of the queue in front of a socket.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::syscall;

/// Which of the figures that `SO_MEMINFO` gives counts drops (`linux/sock_diag.h`); no other that is wanted lies behind it.
const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Datagrams dropped on their way into the queue.
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
