//! A media stream beside the load: few datagrams at an even pace, and the longest gap between two
//! that arrive. A viewer notices the gap, which an average hides.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::world::WorldError;

/// Datagrams a second, as many as a video has pictures.
pub const PER_SECOND: u32 = 60;

/// Payload of a datagram in bytes.
const SIZE: usize = 1_000;

/// The bytes of a datagram.
const PAYLOAD: [u8; SIZE] = [0x5a; SIZE];

/// The port of the receiver.
const PORT: u16 = 2127;

/// How long a waiting thread sleeps at most.
const TICK: Duration = Duration::from_millis(50);

/// How long datagrams may arrive after the last was sent.
const LINGER: Duration = Duration::from_millis(500);

/// The stream as its receiver saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Media {
    /// Datagrams that the sender's system accepted.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// The longest time between two that arrived, ms; the stream's whole time if none did.
    pub longest_gap_ms: f64,
}

/// The moments of a stream, since its start.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    sent: u64,
    /// When each datagram arrived.
    at: Vec<Duration>,
    /// When the last was sent.
    end: Duration,
}

impl Arrivals {
    /// The figures of the whole stream.
    pub(super) fn media(&self) -> Media {
        Media {
            sent: self.sent,
            received: self.at.len() as u64,
            longest_gap_ms: self.longest_gap().as_secs_f64() * 1e3,
        }
    }

    /// The longest gap between two arrivals, or behind the last; time before the first is the
    /// path's delay.
    pub(super) fn longest_gap(&self) -> Duration {
        let Some(last) = self.at.last() else { return self.end };
        let between = self.at.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        between.fold(self.end.saturating_sub(*last), Duration::max)
    }
}

/// Both sockets of a stream, in the network of their hosts.
pub(super) struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
    to: SocketAddr,
}

impl Stream {
    /// A stream from one host to another. The sockets are bound to no address, so that an address
    /// may come and go.
    pub(super) fn open(from: &Host, to: &Host, address: IpAddr) -> Result<io::Result<Self>, WorldError> {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let receiver = to.run(|| UdpSocket::bind((any, PORT)))?;
        let sender = from.run(|| UdpSocket::bind((any, 0)))?;
        let both = || -> io::Result<Self> {
            let (sender, receiver) = (sender?, receiver?);
            receiver.set_read_timeout(Some(TICK))?;
            Ok(Self {
                sender,
                receiver,
                to: SocketAddr::new(address, PORT),
            })
        };
        Ok(both())
    }

    /// Sends until `stop`. `arrived` is called for each datagram.
    pub(super) fn run(&self, stop: &AtomicBool, arrived: &(dyn Fn() + Sync)) -> Arrivals {
        let start = Instant::now();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| self.receive(start, stop, arrived));
            let (sent, end) = self.send(start, stop);
            let at = receiving.join().unwrap_or_default();
            Arrivals { sent, at, end }
        })
    }

    fn send(&self, start: Instant, stop: &AtomicBool) -> (u64, Duration) {
        let (mut sent, mut number) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            // One that cannot be sent counts as a part of the gap.
            sent += u64::from(self.sender.send_to(&PAYLOAD, self.to).is_ok());
            number += 1;
            let due = start + Duration::from_secs(1) * number / PER_SECOND;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        (sent, start.elapsed())
    }

    fn receive(&self, start: Instant, stop: &AtomicBool, arrived: &(dyn Fn() + Sync)) -> Vec<Duration> {
        // A byte more than a datagram has, so that longer ones of others are told apart.
        let (mut at, mut datagram) = (Vec::new(), [0; SIZE + 1]);
        let mut stopped: Option<Instant> = None;
        loop {
            if stop.load(Ordering::Relaxed) && stopped.get_or_insert_with(Instant::now).elapsed() > LINGER {
                return at;
            }
            let received = self.receiver.recv(&mut datagram);
            if received.is_ok_and(|len| datagram.get(..len) == Some(&PAYLOAD)) {
                at.push(start.elapsed());
                arrived();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(at: &[u64], end: u64) -> Arrivals {
        Arrivals {
            sent: 9,
            at: at.iter().map(|ms| Duration::from_millis(*ms)).collect(),
            end: Duration::from_millis(end),
        }
    }

    #[test]
    fn the_longest_gap_may_be_the_last() {
        assert_eq!(arrivals(&[30, 47, 147, 164], 180).media().longest_gap_ms, 100.0);
        assert_eq!(arrivals(&[30, 47], 547).media().longest_gap_ms, 500.0);
        assert_eq!(arrivals(&[], 547).media().longest_gap_ms, 547.0);
        // A datagram of the last moment arrives after the end.
        assert_eq!(arrivals(&[30, 50], 40).media().longest_gap_ms, 20.0);
    }
}
