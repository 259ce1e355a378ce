//! Options of raw ICMPv6 sockets.

use std::io;
use std::os::fd::AsFd;

use crate::syscall;

/// Forbids fragmentation of the messages of an IPv6 socket, whatever the system knows about the
/// path: a message that is too large is refused with `EMSGSIZE` (RFC 3542, section 11.2).
///
/// # Errors
/// If `socket` is not an IPv6 socket.
pub fn forbid_fragments(socket: impl AsFd) -> io::Result<()> {
    syscall::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_option_is_set_on_ipv6_sockets_and_others_have_none() {
        let v4 = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(forbid_fragments(&v4).is_err());
        let v6 = UdpSocket::bind("[::1]:0").unwrap();
        forbid_fragments(&v6).unwrap();
        let option = syscall::option(v6.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG).unwrap();
        assert_eq!(option, 1);
    }
}
