//! The UDP sockets of a lane.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use weft_os::udp::{UdpSocket, is_too_long, is_transient};
use weft_packet::Transmit;

use crate::counters::PlaneCounters;
use crate::trace::{Queue, Stage, Tracer};

/// One wait for a full socket.
const WAIT: Duration = Duration::from_millis(10);
/// Waits before a train is given up: a second, longer than any queue that drains at all.
const MAX_WAITS: u32 = 100;

/// Sends trains. A full socket makes the lane wait, and through it the TUN's queue and the applications behind (L16).
pub(crate) struct Underlay<R> {
    sockets: Vec<UdpSocket>,
    pub(crate) counters: PlaneCounters,
    pub(crate) tracer: R,
}

impl<R: Tracer> Underlay<R> {
    pub(crate) fn new(sockets: Vec<UdpSocket>) -> Self {
        Self {
            sockets,
            counters: PlaneCounters::default(),
            tracer: R::new(),
        }
    }

    /// The same, measured or no longer.
    pub(crate) fn retraced<N: Tracer>(self) -> Underlay<N> {
        Underlay {
            sockets: self.sockets,
            counters: self.counters,
            tracer: N::new(),
        }
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.iter()
    }

    pub(crate) fn socket(&self, at: usize) -> Option<&UdpSocket> {
        self.sockets.get(at)
    }
}

impl<R: Tracer> Transmit for Underlay<R> {
    #[inline(always)]
    fn clock() -> u64 {
        R::clock()
    }

    #[inline(always)]
    fn sealed(&mut self, split: u64, seal: u64) {
        self.tracer.sealed(split, seal);
    }

    fn transmit(&mut self, to: SocketAddr, train: &[u8], segment: usize) {
        let Some(socket) = self
            .sockets
            .iter()
            .find(|socket| socket.local_address().is_ipv6() == to.is_ipv6())
        else {
            self.counters.send_no_socket += 1;
            return;
        };
        let (mut sent, mut waits) = (0, 0);
        while sent < train.len() {
            let rest = &train[sent..];
            let left = rest.len().div_ceil(segment) as u64;
            let began = R::clock();
            let result = socket.send(to, rest, u16::try_from(segment).ok());
            let bytes = *result.as_ref().unwrap_or(&0);
            let ended = self
                .tracer
                .note(Stage::UdpSend, began, 0, bytes.div_ceil(segment), bytes);
            match result {
                Ok(n) => (sent, waits) = (sent + n, 0),
                Err(error) if is_transient(&error) && waits < MAX_WAITS => {
                    waits += 1;
                    self.counters.send_waits += 1;
                    wait(socket, &error);
                    self.tracer.waited(Queue::Socket, R::clock() - ended);
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

/// Waits until the socket has room. A full device queue (ENOBUFS) is no state of the socket, so polling it returns
/// at once; a short pause then beats spinning (L16).
fn wait(socket: &UdpSocket, error: &io::Error) {
    if error.kind() == io::ErrorKind::WouldBlock {
        let _ = socket.wait_for_room(WAIT);
    } else {
        std::thread::sleep(Duration::from_micros(50));
    }
}
