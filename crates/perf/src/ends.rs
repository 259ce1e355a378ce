//! The addresses between which the flows of a run go. The server determines them by itself and does
//! not trust the client's claims.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

/// Both addresses of the flows of a run, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The server's own address, on which its sockets listen.
    pub here: IpAddr,
    /// The client's address: flows and greetings from others are ignored.
    pub there: IpAddr,
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
    #[error("its own address on the link is {here}, not {asked}; it may be behind NAT; leave --raw out")]
    Elsewhere {
        /// The address of the link.
        here: IpAddr,
        /// The requested address.
        asked: IpAddr,
    },
    /// The system does not report a source address for the link.
    #[error("it has no route to {there} ({source}); leave --raw out")]
    NoRoute {
        /// The remote address of the link.
        there: IpAddr,
        /// What the system said.
        source: io::Error,
    },
}

impl Ends {
    /// The addresses of the control connection. Inside the tunnel they belong to keys.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn inside(control: &TcpStream) -> io::Result<Self> {
        Ok(Self {
            here: control.local_addr()?.ip().to_canonical(),
            there: control.peer_addr()?.ip().to_canonical(),
        })
    }

    /// The addresses of the direct link with the client: `link` is its remote address, as the local
    /// daemon reports it. `asked` is the local one, as the client claims.
    ///
    /// # Errors
    /// [`NotOutside`].
    pub fn outside(asked: IpAddr, link: Option<SocketAddr>) -> Result<Self, NotOutside> {
        let link = link.ok_or(NotOutside::NoLink)?;
        let there = link.ip().to_canonical();
        if is_within(there) {
            return Err(NotOutside::Within(there));
        }
        let here = local_towards(link).map_err(|source| NotOutside::NoRoute { there, source })?;
        Self::of_link(asked.to_canonical(), here, there)
    }

    fn of_link(asked: IpAddr, here: IpAddr, there: IpAddr) -> Result<Self, NotOutside> {
        match asked == here && !is_within(here) {
            true => Ok(Self { here, there }),
            false => Err(NotOutside::Elsewhere { here, asked }),
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
        let (here, there) = (ip("192.0.2.2"), ip("192.0.2.1"));
        assert_eq!(Ends::of_link(here, here, there).unwrap(), Ends { here, there });
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
            let refused = Ends::of_link(ip(asked), here, there).unwrap_err();
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
            let refused = Ends::outside(ip(asked), Some(link.parse().unwrap()));
            assert!(matches!(refused, Err(NotOutside::Within(_))), "{refused:?}");
        }
        assert!(matches!(Ends::outside(ip("192.0.2.2"), None), Err(NotOutside::NoLink)));
    }
}
