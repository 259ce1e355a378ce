//! The UDP sockets of a lane.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_os::poll::{Events, Interest, Poller};
use weft_os::udp::{UdpSocket, is_too_long, is_transient};
use weft_packet::Transmit;

use crate::counters::PlaneCounters;

/// One wait for a full socket.
const WAIT: Duration = Duration::from_millis(10);
/// Waits before a train is given up: a second, longer than any queue that drains at all.
const MAX_WAITS: u32 = 100;

/// Sends trains. A full socket makes the lane wait, and through it the TUN's queue and the applications behind (L16).
pub(crate) struct Underlay {
    sockets: Vec<Socket>,
    pub(crate) counters: PlaneCounters,
}

struct Socket {
    socket: UdpSocket,
    writable: Poller,
}

impl Underlay {
    pub(crate) fn new(sockets: Vec<UdpSocket>) -> io::Result<Self> {
        let sockets = sockets
            .into_iter()
            .map(|socket| {
                let writable = Poller::new()?;
                writable.add(&socket, 0, Interest::Writable)?;
                Ok(Socket { socket, writable })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            sockets,
            counters: PlaneCounters::default(),
        })
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.iter().map(|s| &s.socket)
    }

    pub(crate) fn socket(&self, at: usize) -> Option<&UdpSocket> {
        self.sockets.get(at).map(|s| &s.socket)
    }
}

impl Transmit for Underlay {
    fn transmit(&mut self, to: SocketAddr, train: &[u8], segment: usize) {
        let Some(socket) = self
            .sockets
            .iter()
            .find(|s| s.socket.local_address().is_ipv6() == to.is_ipv6())
        else {
            self.counters.send_no_socket += 1;
            return;
        };
        let (mut sent, mut waits) = (0, 0);
        while sent < train.len() {
            let rest = &train[sent..];
            let left = rest.len().div_ceil(segment) as u64;
            match socket.socket.send(to, rest, u16::try_from(segment).ok()) {
                Ok(n) => (sent, waits) = (sent + n, 0),
                Err(error) if is_transient(&error) && waits < MAX_WAITS => {
                    waits += 1;
                    self.counters.send_waits += 1;
                    socket.wait(&error);
                }
                Err(error) => {
                    let counter = if is_transient(&error) {
                        &mut self.counters.send_dropped
                    } else if is_too_long(&error) {
                        &mut self.counters.send_too_long
                    } else {
                        &mut self.counters.send_failed
                    };
                    *counter += left;
                    return;
                }
            }
        }
    }
}

impl Socket {
    /// Waits until the socket has room. A full device queue (ENOBUFS) is no state of the socket, so polling it returns
    /// at once; a short pause then beats spinning (L16).
    fn wait(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            let _ = self.writable.wait(&mut Events::with_capacity(1), Some(WAIT));
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
