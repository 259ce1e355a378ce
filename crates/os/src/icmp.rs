//! Options of raw ICMP sockets.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use crate::syscall;

/// Forbids fragmentation of the messages of a socket to a target of its family. A message that is
/// too large is refused with `EMSGSIZE`: over IPv6 whatever the system knows about the path
/// (RFC 3542, section 11.2), over IPv4 where it exceeds the path MTU that the system knows (`ip(7)`,
/// `IP_PMTUDISC_DO`).
///
/// # Errors
/// If the target is IPv6 and the socket is not.
pub fn forbid_fragments(socket: impl AsFd, target: IpAddr) -> io::Result<()> {
    let (level, option, value) = match target {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
    };
    syscall::set_option(socket.as_fd(), level, option, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn the_option_is_set_on_sockets_of_the_family_only() {
        let [v4, v6] = ["127.0.0.1:0", "[::1]:0"].map(|address| UdpSocket::bind(address).unwrap());
        let [to_v4, to_v6] = ["127.0.0.1", "::1"].map(|address| address.parse().unwrap());
        assert!(forbid_fragments(&v4, to_v6).is_err());
        forbid_fragments(&v4, to_v4).unwrap();
        forbid_fragments(&v6, to_v6).unwrap();
        let option = |socket: &UdpSocket, level, name| syscall::option(socket.as_fd(), level, name).unwrap();
        let discover = option(&v4, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
        assert_eq!(discover, libc::IP_PMTUDISC_DO);
        assert_eq!(option(&v6, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG), 1);
    }
}
