//! sendmsg and recvmsg, with the control messages for segmentation and ECN.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::address::RawAddress;
use crate::syscall;

/// Room for control messages, aligned as `cmsghdr` requires. It is zeroed first: stale data would
/// be read as the segment size of a message that has none (L25).
#[repr(C, align(8))]
struct Control([u8; 64]);

/// The ECN bits in the second byte of an IPv4 header, and in the traffic class of an IPv6 header
/// (RFC 3168).
const ECN_BITS: u8 = 0b11;

/// The raw result of a receive.
pub(super) struct RawReceived {
    pub(super) len: usize,
    pub(super) segment_size: Option<usize>,
    pub(super) ecn: u8,
    pub(super) from: SocketAddr,
    pub(super) truncated: bool,
}

/// Calls sendmsg. With a segment size, the kernel or the device splits `bytes` into datagrams.
pub(super) fn send(fd: BorrowedFd<'_>, to: &RawAddress, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; 64]);
    let mut header = empty_header();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if let Some(size) = segment_size {
        write_segment_size(&mut header, &mut control, size);
    }
    loop {
        // SAFETY: `header` points to the address, the bytes and the control message above, all of
        // which live through the call, and sendmsg writes to none of them.
        let result = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, 0) };
        match syscall::check_len(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[inline(always)]
fn empty_header() -> libc::msghdr {
    // SAFETY: `msghdr` is plain old data for which all zeros is a value.
    unsafe { std::mem::zeroed() }
}

fn write_segment_size(header: &mut libc::msghdr, control: &mut Control, size: u16) {
    const VALUE_LEN: u32 = size_of::<u16>() as u32;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
    let (space, len) = unsafe { (libc::CMSG_SPACE(VALUE_LEN), libc::CMSG_LEN(VALUE_LEN)) };
    header.msg_controllen = space as _;
    // SAFETY: the control buffer is aligned for `cmsghdr` and, with 64 bytes, longer than `space`
    // (24), so the first header and its value lie inside it.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = len as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(size);
    }
}

/// Calls recvmsg.
pub(super) fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<RawReceived> {
    let mut part = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let mut control = Control([0; 64]);
    let mut from = RawAddress::empty();
    let mut header = empty_header();
    header.msg_name = from.as_mut_ptr().cast();
    header.msg_namelen = from.len();
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Control>() as _;
    let len = loop {
        // SAFETY: the kernel writes the address, the bytes and the control messages into the buffers
        // above, each at most as long as `header` says.
        let result = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, 0) };
        match syscall::check_len(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result?,
        }
    };
    from.set_len(header.msg_namelen);
    let from = from.decode().ok_or(io::ErrorKind::InvalidData)?;
    let (segment_size, ecn) = told(&header);
    Ok(RawReceived {
        len,
        segment_size,
        ecn,
        from,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
    })
}

/// Parses the control messages: the size that UDP_GRO reports, or `None` if the message is a single
/// datagram; and the ECN bits of the IP header, 0 if not reported. The kernel does not coalesce
/// datagrams that differ in these (`inet_gro_receive`).
fn told(header: &libc::msghdr) -> (Option<usize>, u8) {
    let (mut segment_size, mut ecn) = (None, 0);
    // SAFETY: the kernel filled in the control messages that `header` describes; the macros walk
    // them inside `msg_controllen`, and a value is read only if its message is long enough for it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(current) = message.as_ref() {
            let holds = |len: usize| current.cmsg_len >= libc::CMSG_LEN(len as u32) as _;
            match (current.cmsg_level, current.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) if holds(size_of::<i32>()) => {
                    let size = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
                    segment_size = usize::try_from(size).ok().filter(|&size| size > 0);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) if holds(size_of::<u8>()) => {
                    ecn = libc::CMSG_DATA(message).read() & ECN_BITS;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if holds(size_of::<i32>()) => {
                    ecn = libc::CMSG_DATA(message).cast::<i32>().read_unaligned() as u8 & ECN_BITS;
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    (segment_size, ecn)
}
