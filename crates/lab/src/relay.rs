//! A middlebox for UDP: it forwards between two fixed peers and treats each datagram as a rule
//! decides.
//!
//! The relay runs on a host between two others. Each side is configured with the relay's address as
//! the address of the other, so neither notices it. The rule sees every datagram, so a test can
//! drop a particular one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cable::Direction;
use crate::host::Host;
use crate::world::WorldError;

/// The longest UDP payload.
const MAX_DATAGRAM: usize = 65_507;

/// How often a waiting thread checks whether the relay has ended.
const TICK: Duration = Duration::from_millis(50);

/// Socket buffer in bytes: large, so that the relay drops only by rule.
const SOCKET_BUFFER: usize = 8 << 20;

/// The rule's decision about a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is forwarded.
    Pass,
    /// It is dropped.
    Drop,
    /// It is forwarded twice.
    Duplicate,
    /// It is forwarded later; others overtake it.
    Delay(Duration),
    /// It is forwarded with one bit inverted, counted from the first bit of the first byte and
    /// wrapping at the end.
    Flip(usize),
}

/// One side of the relay: its listening address for a peer, and that peer's address.
#[derive(Debug, Clone, Copy)]
pub struct Leg {
    /// The relay's address on this side, which the peer has configured as that of the other peer.
    pub local: SocketAddr,
    /// The peer on this side. Datagrams from elsewhere are not forwarded.
    pub peer: SocketAddr,
}

/// The counters of a relay, in datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RelayCounts {
    /// Forwarded, including duplicates and delayed ones.
    pub forwarded: u64,
    /// Dropped by rule.
    pub dropped: u64,
    /// Duplicated by rule.
    pub duplicated: u64,
    /// Delayed by rule.
    pub delayed: u64,
    /// Changed by rule.
    pub flipped: u64,
    /// From an unknown source, or refused by the system when sending.
    pub failed: u64,
}

/// A running relay. It ends when it is dropped.
pub struct UdpRelay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl UdpRelay {
    /// Starts a relay on `host` between two legs. `rule` is called for each datagram, in the order
    /// of arrival of each direction.
    ///
    /// # Errors
    /// If an address is not the host's or is in use.
    pub fn start(
        host: &Host,
        a: Leg,
        b: Leg,
        rule: impl FnMut(Direction, &[u8]) -> Verdict + Send + 'static,
    ) -> Result<Self, RelayError> {
        let bind = |leg: Leg| bind(leg.local);
        let sockets = host.run(move || Ok::<_, RelayError>((bind(a)?, bind(b)?)))??;
        let (socket_a, socket_b) = (Arc::new(sockets.0), Arc::new(sockets.1));
        let shared = Arc::new(Shared {
            rule: Mutex::new(Box::new(rule)),
            ended: AtomicBool::new(false),
            counts: Counts::default(),
            delayed: Mutex::default(),
            more: Condvar::new(),
        });
        let lanes = [
            Lane::new(Direction::AToB, &socket_a, a.peer, &socket_b, b.peer),
            Lane::new(Direction::BToA, &socket_b, b.peer, &socket_a, a.peer),
        ];
        let mut threads = Vec::new();
        for lane in lanes {
            let shared = Arc::clone(&shared);
            threads.push(std::thread::spawn(move || shared.forward(&lane)));
        }
        let late = Arc::clone(&shared);
        threads.push(std::thread::spawn(move || late.send_delayed()));
        Ok(Self { shared, threads })
    }

    /// Its counters so far.
    #[must_use]
    pub fn counts(&self) -> RelayCounts {
        self.shared.counts.snapshot()
    }

    /// Replaces the rule from now on.
    pub fn set_rule(&self, rule: impl FnMut(Direction, &[u8]) -> Verdict + Send + 'static) {
        *lock(&self.shared.rule) = Box::new(rule);
    }
}

impl Drop for UdpRelay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The rule that changes nothing.
#[must_use]
pub fn pass(_: Direction, _: &[u8]) -> Verdict {
    Verdict::Pass
}

/// A rule that drops the first `count` datagrams for which `chosen` is true and passes all others.
pub fn drop_first(
    count: usize,
    mut chosen: impl FnMut(Direction, &[u8]) -> bool + Send + 'static,
) -> impl FnMut(Direction, &[u8]) -> Verdict + Send + 'static {
    let mut left = count;
    move |direction, datagram| {
        if left > 0 && chosen(direction, datagram) {
            left -= 1;
            return Verdict::Drop;
        }
        Verdict::Pass
    }
}

/// The FMP phase of a datagram: the low nibble of its first byte (FIPS wire-formats, common
/// prefix); 1 and 2 are the two messages of the link handshake, 0 is an established frame. `None`
/// if the version in the high nibble is not 0.
#[must_use]
pub fn fmp_phase(datagram: &[u8]) -> Option<u8> {
    let first = datagram.first()?;
    (first >> 4 == 0).then_some(first & 0x0f)
}

/// Why a relay did not start.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The host is not usable.
    #[error(transparent)]
    World(#[from] WorldError),
    /// A leg's address cannot be bound.
    #[error("the relay cannot listen on {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

type Rule = Box<dyn FnMut(Direction, &[u8]) -> Verdict + Send>;

struct Shared {
    rule: Mutex<Rule>,
    ended: AtomicBool,
    counts: Counts,
    delayed: Mutex<BinaryHeap<Reverse<Late>>>,
    more: Condvar,
}

/// One direction: the source and the destination of its datagrams.
struct Lane {
    direction: Direction,
    from: Arc<UdpSocket>,
    source: SocketAddr,
    to: Arc<UdpSocket>,
    target: SocketAddr,
}

impl Lane {
    fn new(
        direction: Direction,
        from: &Arc<UdpSocket>,
        source: SocketAddr,
        to: &Arc<UdpSocket>,
        target: SocketAddr,
    ) -> Self {
        Self {
            direction,
            from: Arc::clone(from),
            source,
            to: Arc::clone(to),
            target,
        }
    }
}

impl Shared {
    fn forward(&self, lane: &Lane) {
        let mut buf = vec![0; MAX_DATAGRAM];
        while !self.ended.load(Ordering::Relaxed) {
            let Ok((len, source)) = lane.from.recv_from(&mut buf) else {
                continue;
            };
            let Some(datagram) = buf.get_mut(..len) else {
                continue;
            };
            if source != lane.source {
                count(&self.counts.failed);
                continue;
            }
            let verdict = lock(&self.rule)(lane.direction, datagram);
            self.apply(verdict, lane, datagram);
        }
    }

    fn apply(&self, verdict: Verdict, lane: &Lane, datagram: &mut [u8]) {
        match verdict {
            Verdict::Pass => self.send(&lane.to, datagram, lane.target),
            Verdict::Drop => count(&self.counts.dropped),
            Verdict::Duplicate => {
                count(&self.counts.duplicated);
                self.send(&lane.to, datagram, lane.target);
                self.send(&lane.to, datagram, lane.target);
            }
            Verdict::Delay(time) => {
                count(&self.counts.delayed);
                lock(&self.delayed).push(Reverse(Late {
                    due: Instant::now() + time,
                    socket: Arc::clone(&lane.to),
                    target: lane.target,
                    datagram: datagram.to_vec(),
                }));
                self.more.notify_all();
            }
            Verdict::Flip(bit) => {
                count(&self.counts.flipped);
                flip(datagram, bit);
                self.send(&lane.to, datagram, lane.target);
            }
        }
    }

    fn send(&self, socket: &UdpSocket, datagram: &[u8], target: SocketAddr) {
        match socket.send_to(datagram, target) {
            Ok(_) => count(&self.counts.forwarded),
            Err(_) => count(&self.counts.failed),
        }
    }

    /// Sends delayed datagrams when they are due.
    fn send_delayed(&self) {
        let mut waiting = lock(&self.delayed);
        while !self.ended.load(Ordering::Relaxed) {
            let now = Instant::now();
            let wait = match waiting.peek() {
                Some(Reverse(first)) if first.due <= now => Duration::ZERO,
                Some(Reverse(first)) => (first.due - now).min(TICK),
                None => TICK,
            };
            if wait.is_zero() {
                if let Some(Reverse(late)) = waiting.pop() {
                    self.send(&late.socket, &late.datagram, late.target);
                }
                continue;
            }
            let result = self.more.wait_timeout(waiting, wait);
            waiting = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A delayed datagram, ordered by its due time.
struct Late {
    due: Instant,
    socket: Arc<UdpSocket>,
    target: SocketAddr,
    datagram: Vec<u8>,
}

impl PartialEq for Late {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Late {}

impl PartialOrd for Late {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Late {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

#[derive(Default)]
struct Counts {
    forwarded: AtomicU64,
    dropped: AtomicU64,
    duplicated: AtomicU64,
    delayed: AtomicU64,
    flipped: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    fn snapshot(&self) -> RelayCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RelayCounts {
            forwarded: read(&self.forwarded),
            dropped: read(&self.dropped),
            duplicated: read(&self.duplicated),
            delayed: read(&self.delayed),
            flipped: read(&self.flipped),
            failed: read(&self.failed),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn flip(datagram: &mut [u8], bit: usize) {
    let bits = datagram.len() * 8;
    if bits > 0 {
        let bit = bit % bits;
        datagram[bit / 8] ^= 0x80 >> (bit % 8);
    }
}

fn bind(addr: SocketAddr) -> Result<UdpSocket, RelayError> {
    let failed = |source| RelayError::Bind { addr, source };
    let socket = UdpSocket::bind(addr).map_err(failed)?;
    socket.set_read_timeout(Some(TICK)).map_err(failed)?;
    // Beyond the system's limit it takes CAP_NET_ADMIN over the machine, which a user namespace
    // does not give.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER));
    Ok(socket)
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_the_bit_that_is_named_and_wraps() {
        let mut datagram = [0, 0];
        flip(&mut datagram, 0);
        assert_eq!(datagram, [0x80, 0]);
        flip(&mut datagram, 15);
        assert_eq!(datagram, [0x80, 1]);
        flip(&mut datagram, 16);
        assert_eq!(datagram, [0, 1]);
        flip(&mut [], 3);
    }

    #[test]
    fn knows_the_phase_of_version_0_only() {
        assert_eq!(fmp_phase(&[0x01, 9]), Some(1));
        assert_eq!(fmp_phase(&[0x02]), Some(2));
        assert_eq!(fmp_phase(&[0x00]), Some(0));
        assert_eq!(fmp_phase(&[0xa1]), None);
        assert_eq!(fmp_phase(&[]), None);
    }

    #[test]
    fn delayed_datagrams_leave_in_the_order_of_their_times() {
        let start = Instant::now();
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let target = socket.local_addr().unwrap();
        let mut delayed = BinaryHeap::new();
        for ms in [200, 100, 300] {
            delayed.push(Reverse(Late {
                due: start + Duration::from_millis(ms),
                socket: Arc::clone(&socket),
                target,
                datagram: Vec::new(),
            }));
        }
        let due = std::iter::from_fn(|| delayed.pop()).map(|Reverse(late)| (late.due - start).as_millis());
        assert_eq!(due.collect::<Vec<_>>(), [100, 200, 300]);
    }

    #[test]
    fn drops_the_first_chosen_ones_only() {
        let mut rule = drop_first(2, |direction, datagram| {
            direction == Direction::AToB && fmp_phase(datagram) == Some(1)
        });
        assert_eq!(rule(Direction::BToA, &[1]), Verdict::Pass);
        assert_eq!(rule(Direction::AToB, &[1]), Verdict::Drop);
        assert_eq!(rule(Direction::AToB, &[0]), Verdict::Pass);
        assert_eq!(rule(Direction::AToB, &[1]), Verdict::Drop);
        assert_eq!(rule(Direction::AToB, &[1]), Verdict::Pass);
    }
}
