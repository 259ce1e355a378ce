//! The sockets of a lane: its ordinary ones, and further ones that come and go.

use std::io;
use std::time::Duration;

use weft_contract::Endpoint;
use weft_os::udp::{is_too_long, is_transient};
use weft_packet::Transmit;

use crate::bind::{Arrival, Bind, BindCounters};
use crate::counters::PlaneCounters;
use crate::further::Further;
use crate::trace::{Queue, Stage, Tracer};

/// Duration of one wait for a full socket.
const WAIT: Duration = Duration::from_millis(10);
/// Consecutive refusals of a full device that are retried without a pause.
const EAGER: u32 = 4;
/// The pause after that. The kernel's timer slack makes it about 50 us, in which a device of 1
/// Gbit/s sends four packets.
const PAUSE: Duration = Duration::from_micros(1);
/// How long the kernel may accept nothing before the lane stops waiting for it, ns: longer than any
/// queue that drains at all. From then on each train is tried once, until one is accepted, so that
/// a dead device does not stop the whole lane.
const PATIENCE: u64 = 1_000_000_000;

/// Sends trains. A full socket makes the lane wait, and so fills the TUN's queue and slows the
/// applications behind it (L16).
pub(crate) struct Underlay<R, B> {
    sockets: Vec<B>,
    further: Further,
    pub(crate) counters: PlaneCounters,
    pub(crate) tracer: R,
    full: Full,
}

/// When the kernel began to refuse for lack of room, ns, if it has accepted nothing since.
#[derive(Debug, Default)]
pub(crate) struct Full(Option<u64>);

impl<R: Tracer, B: Bind> Underlay<R, B> {
    pub(crate) fn new(sockets: Vec<B>) -> Self {
        Self {
            sockets,
            further: Further::default(),
            counters: PlaneCounters::default(),
            tracer: R::new(),
            full: Full::default(),
        }
    }

    /// Switches tracing on or off.
    pub(crate) fn retraced<N: Tracer>(self) -> Underlay<N, B> {
        Underlay {
            sockets: self.sockets,
            further: self.further,
            counters: self.counters,
            tracer: N::new(),
            full: self.full,
        }
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &B> {
        self.sockets.iter()
    }

    /// The sockets beside the ordinary ones.
    pub(crate) fn further(&mut self) -> &mut Further {
        &mut self.further
    }

    /// The number of sockets that this lane reads.
    #[inline]
    pub(crate) fn readable(&self) -> usize {
        self.sockets.len() + self.further.readable()
    }

    /// Receives from one of them: the ordinary ones come first.
    #[inline(always)]
    pub(crate) fn recv(&self, at: usize, buf: &mut [u8]) -> Option<Arrival> {
        match self.sockets.get(at) {
            Some(socket) => socket.recv(buf).ok(),
            None => self.further.recv(at - self.sockets.len(), buf),
        }
    }

    /// The counters of the sockets that this lane reads; those of all further ones are one entry.
    pub(crate) fn socket_counters(&self) -> Vec<BindCounters> {
        let ordinary = self.sockets.iter().map(Bind::counters);
        ordinary.chain(self.further.counters()).collect()
    }

    /// Sends a train from a further socket.
    #[cold]
    fn transmit_further(&mut self, path: Endpoint, train: &[u8], segment: usize) {
        let Some((socket, full)) = self.further.get(path.socket()) else {
            self.counters.send_no_socket += train.len().div_ceil(segment) as u64;
            return;
        };
        let sending = Sending {
            socket,
            counters: &mut self.counters,
            tracer: &mut self.tracer,
            full,
        };
        sending.all(path, train, segment);
    }
}

impl<R: Tracer, B: Bind> Transmit for Underlay<R, B> {
    #[inline(always)]
    fn clock() -> u64 {
        R::clock()
    }

    #[inline(always)]
    fn sealed(&mut self, split: u64, seal: u64) {
        self.tracer.sealed(split, seal);
    }

    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
        if !to.socket().is_ordinary() {
            return self.transmit_further(to, train, segment);
        }
        let Some(socket) = self.sockets.iter().find(|socket| socket.is_ipv6() == to.is_ipv6()) else {
            self.counters.send_no_socket += train.len().div_ceil(segment) as u64;
            return;
        };
        let sending = Sending {
            socket,
            counters: &mut self.counters,
            tracer: &mut self.tracer,
            full: &mut self.full,
        };
        sending.all(to, train, segment);
    }
}

/// What one train leaves by.
struct Sending<'a, R, S: ?Sized> {
    socket: &'a S,
    counters: &'a mut PlaneCounters,
    tracer: &'a mut R,
    full: &'a mut Full,
}

impl<R: Tracer, S: Bind + ?Sized> Sending<'_, R, S> {
    #[inline]
    fn all(self, to: Endpoint, train: &[u8], segment: usize) {
        let Self {
            socket,
            counters,
            tracer,
            full,
        } = self;
        let (mut sent, mut refusals) = (0, 0);
        while sent < train.len() {
            let rest = &train[sent..];
            let left = rest.len().div_ceil(segment) as u64;
            let began = R::clock();
            let result = socket.send(to, rest, u16::try_from(segment).ok());
            let bytes = *result.as_ref().unwrap_or(&0);
            let ended = tracer.note(Stage::UdpSend, began, 0, bytes.div_ceil(segment), bytes);
            match result {
                Ok(n) => {
                    (sent, refusals) = (sent + n, 0);
                    full.0 = None;
                }
                Err(error) if is_transient(&error) => {
                    let now = socket.now();
                    if now.saturating_sub(*full.0.get_or_insert(now)) >= PATIENCE {
                        counters.send_dropped += left;
                        return;
                    }
                    refusals += 1;
                    if error.kind() == io::ErrorKind::WouldBlock {
                        counters.send_waits += 1;
                        socket.wait_for_room(WAIT);
                    } else {
                        // A full device queue or memory (ENOBUFS, ENOMEM) is not a state of the
                        // socket: polling it returns at once, and a short pause beats spinning.
                        counters.send_waits_device += 1;
                        if refusals > EAGER {
                            socket.pause(PAUSE);
                        }
                    }
                    tracer.waited(Queue::Socket, R::clock() - ended);
                }
                Err(error) => {
                    let counter = if is_too_long(&error) {
                        &mut counters.send_too_long
                    } else {
                        &mut counters.send_failed
                    };
                    *counter += left;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::net::Ipv6Addr;
    use std::os::fd::{AsFd, BorrowedFd};

    use super::*;
    use crate::trace::Off;

    fn to() -> Endpoint {
        Endpoint::from(([127, 0, 0, 1], 9))
    }

    const WOULD_BLOCK: i32 = 11;
    const NO_BUFFERS: i32 = 105;
    const NO_MEMORY: i32 = 12;
    const TOO_LONG: i32 = 90;
    const IO: i32 = 5;

    /// Accepts every send except for the scripted failures; its clock advances while it waits.
    #[derive(Default)]
    struct Fake {
        failures: RefCell<VecDeque<i32>>,
        always: Cell<Option<i32>>,
        /// Maximum number of datagrams in one call.
        at_once: Cell<Option<usize>>,
        taken: RefCell<Vec<u8>>,
        now: Cell<u64>,
        pauses: Cell<u32>,
    }

    impl AsFd for Fake {
        fn as_fd(&self) -> BorrowedFd<'_> {
            panic!("no thread waits for it")
        }
    }

    impl Bind for &Fake {
        fn is_ipv6(&self) -> bool {
            false
        }

        fn send(&self, _: Endpoint, bytes: &[u8], segment: Option<u16>) -> io::Result<usize> {
            let failure = self.failures.borrow_mut().pop_front().or(self.always.get());
            if let Some(code) = failure {
                return Err(io::Error::from_raw_os_error(code));
            }
            let most = self
                .at_once
                .get()
                .map_or(bytes.len(), |n| n * usize::from(segment.unwrap()));
            let len = bytes.len().min(most);
            self.taken.borrow_mut().extend(&bytes[..len]);
            Ok(len)
        }

        fn recv(&self, _: &mut [u8]) -> io::Result<Arrival> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn counters(&self) -> BindCounters {
            BindCounters::default()
        }

        fn sends_trains(&self) -> bool {
            true
        }

        fn wait_for_room(&self, time: Duration) {
            self.now.set(self.now.get() + time.as_nanos() as u64);
        }

        fn pause(&self, _: Duration) {
            self.pauses.set(self.pauses.get() + 1);
            self.now.set(self.now.get() + 50_000);
        }

        fn now(&self) -> u64 {
            // A call takes some time.
            self.now.set(self.now.get() + 1_000);
            self.now.get()
        }
    }

    fn underlay(fake: &Fake) -> Underlay<Off, &Fake> {
        Underlay::new(vec![fake])
    }

    fn train(datagrams: usize) -> Vec<u8> {
        (0..datagrams * 100 - 30).map(|n| n as u8).collect()
    }

    #[test]
    fn datagrams_refused_for_a_while_arrive_in_order() {
        let fake = Fake::default();
        fake.failures.replace(
            [
                WOULD_BLOCK,
                NO_BUFFERS,
                WOULD_BLOCK,
                NO_MEMORY,
                NO_BUFFERS,
                NO_BUFFERS,
                NO_BUFFERS,
            ]
            .into(),
        );
        fake.at_once.set(Some(3));
        let mut underlay = underlay(&fake);
        underlay.transmit(to(), &train(10), 100);
        assert_eq!(*fake.taken.borrow(), train(10));
        let expected = PlaneCounters {
            send_waits: 2,
            send_waits_device: 5,
            ..PlaneCounters::default()
        };
        assert_eq!(underlay.counters, expected);
        assert_eq!(fake.pauses.get(), 3, "the refusals behind the first four");
    }

    #[test]
    fn a_lasting_refusal_costs_one_second_and_counts_each_datagram() {
        for code in [WOULD_BLOCK, NO_BUFFERS, NO_MEMORY] {
            let fake = Fake::default();
            fake.always.set(Some(code));
            let mut underlay = underlay(&fake);
            underlay.transmit(to(), &train(10), 100);
            let waited = fake.now.get();
            assert!((1_000_000_000..1_020_000_000).contains(&waited), "{code}: {waited}");
            underlay.transmit(to(), &train(7), 100);
            assert!(fake.now.get() - waited < 10_000, "the second train does not wait");
            assert_eq!(underlay.counters.send_dropped, 17);
            fake.always.set(None);
            underlay.transmit(to(), &train(5), 100);
            assert_eq!(*fake.taken.borrow(), train(5));
            // The next send waits again.
            fake.failures.borrow_mut().push_back(code);
            underlay.transmit(to(), &train(5), 100);
            assert_eq!(fake.taken.borrow().len(), 2 * train(5).len());
            let counters = underlay.counters;
            assert_eq!(
                (counters.send_dropped, counters.send_failed, counters.send_too_long),
                (17, 0, 0)
            );
            let waits = counters.send_waits + counters.send_waits_device;
            assert!(waits > 0 && (counters.send_waits == 0) == (code != WOULD_BLOCK));
        }
    }

    #[test]
    fn a_refusal_for_good_counts_the_datagrams_that_are_left() {
        let fake = Fake::default();
        let mut underlay = underlay(&fake);
        fake.failures.borrow_mut().push_back(TOO_LONG);
        underlay.transmit(to(), &train(10), 100);
        fake.failures.borrow_mut().push_back(IO);
        underlay.transmit(to(), &train(9), 100);
        underlay.transmit(Endpoint::from((Ipv6Addr::LOCALHOST, 9)), &train(8), 100);
        assert!(fake.taken.borrow().is_empty());
        let expected = PlaneCounters {
            send_too_long: 10,
            send_failed: 9,
            send_no_socket: 8,
            ..PlaneCounters::default()
        };
        assert_eq!(underlay.counters, expected);
        underlay.transmit(to(), &train(2), 100);
        assert_eq!(*fake.taken.borrow(), train(2));
    }
}
