//! Classic BPF programs for sockets.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::syscall;

/// Ends a program with the value 0.
pub(super) const END_WITH_0: libc::sock_filter = libc::sock_filter {
    code: (libc::BPF_RET | libc::BPF_K) as u16,
    jt: 0,
    jf: 0,
    k: 0,
};

/// Attaches a program to a socket; `option` determines its purpose.
pub(super) fn attach(fd: BorrowedFd<'_>, option: libc::c_int, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the pointer and the length describe `program`, whose filter is the slice above; both live through the
    // call, which copies them.
    syscall::check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}
