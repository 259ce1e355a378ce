//! Why an address does not answer, as far as the system and the network tell.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use crate::syscall;

/// What an inquiry shows. None of it is authenticated: an attacker near the path can forge ICMP. It
/// is for people, and decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The host answers that the port is closed (ICMP port unreachable, ECONNREFUSED).
    Refused,
    /// This machine or a router has no route to the network (ENETUNREACH).
    NoRoute,
    /// The host does not answer on its network, or a router or firewall says that it cannot be
    /// reached (EHOSTUNREACH).
    NoHost,
    /// The network of this machine is down (ENETDOWN).
    Down,
    /// A firewall or a policy of this machine forbids to send there (EPERM, EACCES).
    Forbidden,
    /// The system refuses for another reason; the error number.
    Other(i32),
}

impl Finding {
    fn new(error: &io::Error) -> Option<Self> {
        Some(match error.raw_os_error()? {
            libc::ECONNREFUSED => Self::Refused,
            libc::ENETUNREACH => Self::NoRoute,
            libc::EHOSTUNREACH | libc::EHOSTDOWN => Self::NoHost,
            libc::ENETDOWN => Self::Down,
            libc::EPERM | libc::EACCES => Self::Forbidden,
            // Says nothing about the destination.
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EINTR => return None,
            other => Self::Other(other),
        })
    }
}

/// An empty datagram to an address, from a socket of its own, so that an error concerns no other
/// traffic.
#[derive(Debug)]
pub struct Inquiry {
    socket: UdpSocket,
}

impl Inquiry {
    /// Sends the datagram. It is lost without a trace if all is well, or if a firewall drops it.
    ///
    /// # Errors
    /// What is known at once; none if the system is short of something and nothing is known.
    pub fn start(to: SocketAddr) -> Result<Self, Option<Finding>> {
        Self::send(to).map_err(|error| Finding::new(&error))
    }

    fn send(to: SocketAddr) -> io::Result<Self> {
        let any = match to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        super::bind::mark(socket.as_fd());
        // Without it a host that does not answer on its own network is not reported.
        let (level, option) = match to {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVERR),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        };
        syscall::set_option(socket.as_fd(), level, option, 1)?;
        socket.connect(to)?;
        socket.send(&[])?;
        Ok(Self { socket })
    }

    /// The address that this machine sends from.
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.socket.local_addr().ok().map(|address| address.ip())
    }

    /// What came back, once.
    #[must_use]
    pub fn finding(&self) -> Option<Finding> {
        let error = self.socket.take_error().ok().flatten()?;
        Finding::new(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_something_here_says_nothing_about_the_destination() {
        let of = |code| Finding::new(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::ECONNREFUSED), Some(Finding::Refused));
        assert_eq!(of(libc::ENETUNREACH), Some(Finding::NoRoute));
        assert_eq!(of(libc::EHOSTUNREACH), Some(Finding::NoHost));
        assert_eq!(of(libc::EPERM), Some(Finding::Forbidden));
        assert_eq!(of(libc::EMFILE), None);
        assert_eq!(of(libc::EINVAL), Some(Finding::Other(libc::EINVAL)));
    }
}
