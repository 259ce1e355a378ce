//! What a gateway announces to its network: that it has started, and may have lost its mappings
//! (RFC 6887, section 14.1; RFC 6886, section 3.2.1).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until};

/// Where announcements go: all hosts of the network, which each is without joining.
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 5350);
/// The time between two datagrams that are read.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket that hears announcements. Their content is not read: a gateway that announces anything is
/// asked for its mapping.
#[derive(Debug)]
pub struct Announcements {
    socket: UdpSocket,
    next: Instant,
}

impl Announcements {
    /// Opens the socket, which other programs may have, too. Needs a runtime.
    ///
    /// # Errors
    /// The system gives none.
    pub fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&TO.into())?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            next: Instant::now(),
        })
    }

    /// Waits for an announcement of a gateway. Safe to cancel.
    ///
    /// # Errors
    /// The socket is of no more use.
    pub async fn heard(&mut self, gateway: Ipv4Addr) -> io::Result<()> {
        loop {
            sleep_until(self.next).await;
            let (_, from) = self.socket.recv_from(&mut [0; 64]).await?;
            self.next = Instant::now() + PAUSE;
            if from == SocketAddr::from((gateway, crab_nat::GATEWAY_PORT)) {
                return Ok(());
            }
        }
    }
}
