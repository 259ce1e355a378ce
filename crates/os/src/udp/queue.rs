//! The kernel's figures of a socket's receive queue.

use std::io;
use std::os::fd::BorrowedFd;

use crate::syscall;

/// The index of the drops among the figures of `SO_MEMINFO` (`linux/sock_diag.h`), each of which is
/// a `u32`; no later figure is needed.
const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

/// Datagrams dropped before they entered the queue.
pub(super) fn dropped(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut figures = [0; 4 * (DROPS + 1)];
    syscall::option_bytes(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut figures)?;
    Ok(figures
        .last_chunk()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes).into()))
}
