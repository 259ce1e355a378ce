//! The addresses between which the flows of a run go. The server determines them by itself and does
//! not trust the client's claims.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

/// Both addresses of the flows of a run, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The server's own address, on which its sockets listen.
    pub local: IpAddr,
    /// The client's address: flows and greetings from others are ignored.
    pub remote: IpAddr,
}

/// Why a run cannot go outside the tunnel.
#[derive(Debug, thiserror::Error)]
pub enum NotOutside {
    /// There is no link, or payload is relayed.
    #[error("it has no direct link with this node now; leave --raw out")]
    NoLink,
    /// The direct link stays within the machine.
    #[error("its link with this node is at {0}, which is not an address of another machine; leave --raw out")]
    Within(IpAddr),
    /// The requested address is not that of the link.
    #[error("its own address on the link is {local}, not {asked}; it may be behind NAT; leave --raw out")]
    Elsewhere {
        /// The address of the link.
        local: IpAddr,
        /// The requested address.
        asked: IpAddr,
    },
    /// The system does not report a source address for the link.
    #[error("it has no route to {remote} ({source}); leave --raw out")]
    NoRoute {
        /// The remote address of the link.
        remote: IpAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl Addresses {
    /// The addresses of the control connection. Inside the tunnel they belong to keys.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn inside(control: &TcpStream) -> io::Result<Self> {
        Ok(Self {
            local: control.local_addr()?.ip().to_canonical(),
            remote: control.peer_addr()?.ip().to_canonical(),
        })
    }

    /// The addresses of the direct link with the client: `link` is its remote address, as the local
    /// daemon reports it. `asked` is the local one, as the client claims.
    ///
    /// # Errors
    /// [`NotOutside`].
    pub fn outside(asked: IpAddr, link: Option<SocketAddr>) -> Result<Self, NotOutside> {
        let link = link.ok_or(NotOutside::NoLink)?;
        let remote = link.ip().to_canonical();
        if is_within(remote) {
            return Err(NotOutside::Within(remote));
        }
        let local = local_towards(link).map_err(|source| NotOutside::NoRoute { remote, source })?;
        Self::of_link(asked.to_canonical(), local, remote)
    }

    fn of_link(asked: IpAddr, local: IpAddr, remote: IpAddr) -> Result<Self, NotOutside> {
        match asked == local && !is_within(local) {
            true => Ok(Self { local, remote }),
            false => Err(NotOutside::Elsewhere { local, asked }),
        }
    }
}

/// Addresses that belong to no single other machine: unspecified, loopback, and multicast.
fn is_within(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_loopback() || address.is_multicast()
}

/// The source address of this machine towards `remote`, by its routes. Sends nothing.
fn local_towards(remote: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => [0_u8; 4].into(),
        SocketAddr::V6(_) => [0_u16; 8].into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(remote)?;
    Ok(socket.local_addr()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn raw_is_the_local_address_of_the_link_or_nothing() {
        let (local, remote) = (ip("192.0.2.2"), ip("192.0.2.1"));
        assert_eq!(
            Addresses::of_link(local, local, remote).unwrap(),
            Addresses { local, remote }
        );
        for asked in [
            "127.0.0.1",
            "127.0.0.5",
            "0.0.0.0",
            "::",
            "::1",
            "192.0.2.3",
            "198.51.100.2",
            "224.0.0.1",
        ] {
            let refused = Addresses::of_link(ip(asked), local, remote).unwrap_err();
            assert!(matches!(refused, NotOutside::Elsewhere { .. }), "{asked}: {refused}");
            let words = refused.to_string();
            assert!(
                words.starts_with("its own address on the link is 192.0.2.2, not "),
                "{words}"
            );
        }
    }

    #[test]
    fn a_link_within_the_machine_is_refused() {
        for (asked, link) in [
            ("127.0.0.1", "127.0.0.1:2121"),
            ("0.0.0.0", "0.0.0.0:2121"),
            ("::1", "[::1]:2121"),
        ] {
            let refused = Addresses::outside(ip(asked), Some(link.parse().unwrap()));
            assert!(matches!(refused, Err(NotOutside::Within(_))), "{refused:?}");
        }
        assert!(matches!(
            Addresses::outside(ip("192.0.2.2"), None),
            Err(NotOutside::NoLink)
        ));
    }
}
