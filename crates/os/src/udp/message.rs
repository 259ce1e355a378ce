//! sendmsg and recvmsg, with the control messages for segmentation, ECN and local ends.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::To;
use super::address::RawAddress;
use super::local::{self, LocalEnd};
use crate::syscall;

/// Room for control messages, aligned as `cmsghdr` requires. It is zeroed first: stale data would
/// be read as the segment size of a message that has none (L25).
#[repr(C, align(8))]
struct Control([u8; Control::LEN]);

impl Control {
    /// Room for all that one message has: 24 bytes each for the size of segments, the ECN bits and an
    /// integer, 40 for a local end.
    const LEN: usize = 128;
}

/// The ECN bits in the second byte of an IPv4 header, and in the traffic class of an IPv6 header
/// (RFC 3168).
const ECN_BITS: u8 = 0b11;

/// The raw result of a receive.
pub(super) struct RawReceived {
    pub(super) len: usize,
    pub(super) segment_size: Option<usize>,
    pub(super) ecn: u8,
    pub(super) from: SocketAddr,
    pub(super) local: Option<LocalEnd>,
    pub(super) truncated: bool,
}

/// Calls sendmsg. With a segment size, the kernel or the device splits `bytes` into datagrams.
pub(super) fn send(fd: BorrowedFd<'_>, to: &To, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = Control([0; Control::LEN]);
    let mut header = empty_header();
    header.msg_name = to.at.as_ptr().cast_mut().cast();
    header.msg_namelen = to.at.len();
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    let mut written = Written::new(&mut control);
    if let Some(size) = segment_size {
        written.push(libc::SOL_UDP, libc::UDP_SEGMENT, size);
    }
    if let Some(local) = to.local {
        if to.at.is_ipv6() {
            written.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, local::to_ipv6(local));
        } else if let Some(info) = local::to_ipv4(local) {
            written.push(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
    }
    if written.len > 0 {
        header.msg_controllen = written.len as _;
        header.msg_control = control.0.as_mut_ptr().cast();
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

/// Control messages written one behind the other.
struct Written<'a> {
    control: &'a mut Control,
    len: usize,
}

impl<'a> Written<'a> {
    fn new(control: &'a mut Control) -> Self {
        Self { control, len: 0 }
    }

    /// Appends a message. `value` is of one of the kernel's types, without padding.
    fn push<V: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: V) {
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, len) = unsafe {
            (
                libc::CMSG_SPACE(size_of::<V>() as u32) as usize,
                libc::CMSG_LEN(size_of::<V>() as u32),
            )
        };
        let Some(room) = self.control.0.get_mut(self.len..self.len + space) else {
            return;
        };
        // SAFETY: `room` is as long as a header and its value need, and aligned for `cmsghdr`: the
        // buffer is, and each message before has a multiple of its alignment.
        unsafe {
            let message = room.as_mut_ptr().cast::<libc::cmsghdr>();
            (*message).cmsg_level = level;
            (*message).cmsg_type = kind;
            (*message).cmsg_len = len as _;
            libc::CMSG_DATA(message).cast::<V>().write_unaligned(value);
        }
        self.len += space;
    }
}

/// Calls recvmsg.
pub(super) fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<RawReceived> {
    let mut part = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let mut control = Control([0; Control::LEN]);
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
    let Told {
        segment_size,
        ecn,
        local,
    } = told(&header);
    Ok(RawReceived {
        len,
        segment_size,
        ecn,
        from,
        local,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
    })
}

/// What the control messages of a receive say.
#[derive(Default)]
struct Told {
    /// The size that UDP_GRO reports, or `None` if the message is a single datagram.
    segment_size: Option<usize>,
    /// The ECN bits of the IP header, 0 if not reported.
    ecn: u8,
    local: Option<LocalEnd>,
}

/// Parses the control messages. The kernel does not coalesce datagrams that differ in what they say
/// (`inet_gro_receive`).
fn told(header: &libc::msghdr) -> Told {
    let mut told = Told::default();
    // SAFETY: the kernel filled in the control messages that `header` describes; the macros walk
    // them inside `msg_controllen`, and a value is read only if its message is long enough for it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(current) = message.as_ref() {
            let holds = |len: usize| current.cmsg_len >= libc::CMSG_LEN(len as u32) as _;
            let value = libc::CMSG_DATA(message);
            match (current.cmsg_level, current.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) if holds(size_of::<i32>()) => {
                    let size = value.cast::<i32>().read_unaligned();
                    told.segment_size = usize::try_from(size).ok().filter(|&size| size > 0);
                }
                (libc::IPPROTO_IP, libc::IP_TOS) if holds(size_of::<u8>()) => {
                    told.ecn = value.read() & ECN_BITS;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if holds(size_of::<i32>()) => {
                    told.ecn = value.cast::<i32>().read_unaligned() as u8 & ECN_BITS;
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if holds(size_of::<libc::in_pktinfo>()) => {
                    told.local = local::of_ipv4(value.cast::<libc::in_pktinfo>().read_unaligned());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if holds(size_of::<libc::in6_pktinfo>()) => {
                    told.local = local::of_ipv6(value.cast::<libc::in6_pktinfo>().read_unaligned());
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    told
}
