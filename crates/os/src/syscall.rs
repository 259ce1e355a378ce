//! Helpers for system calls that several modules share, and the calls that rustix lacks.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// Turns a return value of -1 into the error in `errno`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Like [`check`], for calls that return a length.
pub(crate) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Sets a socket option to the bytes of a value that contains no pointer.
pub(crate) fn set_option_bytes(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`, which lives through the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), len) })?;
    Ok(())
}

/// Sets a socket option whose value is an `int`.
pub(crate) fn set_option(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_option_bytes(fd, level, option, &value.to_ne_bytes())
}

/// Reads a socket option that the kernel only writes to. Bytes that it does not write stay. Returns
/// how many it wrote.
pub(crate) fn option_bytes(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, all of them into `value`.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut len) })?;
    Ok(value.len().min(len as usize))
}

/// Reads a socket option whose value is an `int`.
pub(crate) fn option(fd: BorrowedFd<'_>, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value = [0; size_of::<c_int>()];
    option_bytes(fd, level, option, &mut value)?;
    Ok(c_int::from_ne_bytes(value))
}

/// The index of the interface `name` in the calling thread's network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<u32> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(netdevice::name_to_index(&socket, name)?)
}

/// The argument of an ioctl that concerns the interface `name`, of which the kernel reads at most
/// 15 bytes.
pub(crate) fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain old data for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    request
}

/// Whether the kernel accepts `name` as an interface name: 1 to 15 bytes, no slash, colon or space,
/// neither `.` nor `..`.
pub(crate) fn valid_interface_name(name: &str) -> bool {
    (1..libc::IFNAMSIZ).contains(&name.len())
        && name != "."
        && name != ".."
        && !name
            .bytes()
            .any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace() || b == 0x0b)
}
