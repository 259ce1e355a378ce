//! A device and a network in memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weft_contract::Endpoint;
use weft_os::poll::EventFd;
use weft_os::tun::Offloads;
use weft_plane::{Arrival, Bind, BindCounters, Device};

/// The error of a device that is gone, and of one that is full.
const EIO: i32 = 5;
const EAGAIN: i32 = 11;

/// What waits to be read, behind a descriptor that is readable meanwhile.
struct Queue<T> {
    items: Mutex<VecDeque<T>>,
    readable: EventFd,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self {
            items: Mutex::default(),
            readable: EventFd::new().unwrap(),
        }
    }

    /// Returns false if `most` wait already.
    fn push(&self, item: T, most: usize) -> bool {
        let mut items = self.items.lock().unwrap();
        let has_room = items.len() < most;
        if has_room {
            items.push_back(item);
            self.readable.wake();
        }
        has_room
    }

    fn pop(&self) -> io::Result<T> {
        let mut items = self.items.lock().unwrap();
        if items.len() <= 1 {
            self.readable.drain();
        }
        items.pop_front().ok_or_else(|| io::Error::from_raw_os_error(EAGAIN))
    }
}

/// The lane's end of a device.
pub(crate) struct MemoryDevice {
    /// `None`: the device is gone.
    reads: Arc<Queue<Option<Vec<u8>>>>,
    writes: Sender<Vec<u8>>,
    offloads: Offloads,
}

/// The system's end of a device.
pub(crate) struct System {
    reads: Arc<Queue<Option<Vec<u8>>>>,
    pub(crate) writes: Receiver<Vec<u8>>,
}

pub(crate) fn device(offloads: Offloads) -> (MemoryDevice, System) {
    let (reads, (sender, writes)) = (Arc::new(Queue::new()), channel());
    let lane = MemoryDevice {
        reads: reads.clone(),
        writes: sender,
        offloads,
    };
    (lane, System { reads, writes })
}

impl System {
    /// The system sends a packet, with its virtio header.
    pub(crate) fn send(&self, packet: Vec<u8>) {
        assert!(self.reads.push(Some(packet), usize::MAX));
    }

    /// From now on, reads fail.
    pub(crate) fn remove(&self) {
        assert!(self.reads.push(None, usize::MAX));
    }

    /// Whether the lane has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        Arc::strong_count(&self.reads) == 1
    }
}

impl AsFd for MemoryDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reads.readable.as_fd()
    }
}

impl Device for MemoryDevice {
    fn offloads(&self) -> Offloads {
        self.offloads
    }

    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let packet = self.reads.pop()?.ok_or_else(|| io::Error::from_raw_os_error(EIO))?;
        buf[..packet.len()].copy_from_slice(&packet);
        Ok(packet.len())
    }

    fn writev(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let packet: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let len = packet.len();
        // The test may have seen enough.
        let _ = self.writes.send(packet);
        Ok(len)
    }

    fn wait_for_room(&self, _: Duration) {
        std::thread::yield_now();
    }
}

/// A train on its way: source, bytes, and the length of each datagram but the last.
pub(crate) type InFlight = (Endpoint, Vec<u8>, usize);

/// An address of the network, with the queue of what was sent to it.
pub(crate) struct Address {
    pub(crate) address: Endpoint,
    arrived: Queue<InFlight>,
    /// How many trains the queue holds at most.
    most: Mutex<usize>,
    /// How many trains it refused.
    refused: Mutex<u64>,
}

impl Address {
    pub(crate) fn new(address: Endpoint) -> Arc<Self> {
        Arc::new(Self {
            address,
            arrived: Queue::new(),
            most: Mutex::new(usize::MAX),
            refused: Mutex::default(),
        })
    }

    pub(crate) fn set_most(&self, most: usize) {
        *self.most.lock().unwrap() = most;
    }

    pub(crate) fn refused(&self) -> u64 {
        *self.refused.lock().unwrap()
    }

    /// Takes the oldest train from the queue.
    pub(crate) fn take(&self) -> Option<InFlight> {
        self.arrived.pop().ok()
    }
}

/// A socket of a lane in a network of two addresses.
pub(crate) struct MemoryBind {
    pub(crate) own: Arc<Address>,
    pub(crate) other: Arc<Address>,
}

impl AsFd for MemoryBind {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.arrived.readable.as_fd()
    }
}

impl Bind for MemoryBind {
    fn is_ipv6(&self) -> bool {
        self.own.address.is_ipv6()
    }

    fn send(&self, to: Endpoint, bytes: &[u8], segment_size: Option<u16>) -> io::Result<usize> {
        assert_eq!(to.remote(), self.other.address.remote());
        let step = segment_size.map_or(bytes.len(), usize::from);
        let train = (self.own.address, bytes.to_vec(), step);
        if !self.other.arrived.push(train, *self.other.most.lock().unwrap()) {
            *self.other.refused.lock().unwrap() += 1;
            return Err(io::Error::from_raw_os_error(EAGAIN));
        }
        Ok(bytes.len())
    }

    fn recv(&self, buf: &mut [u8]) -> io::Result<Arrival> {
        let (from, bytes, step) = self.own.arrived.pop()?;
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(Arrival {
            len: bytes.len(),
            segment_size: step,
            from,
            ecn: 0,
        })
    }

    fn wait_for_room(&self, _: Duration) {
        std::thread::yield_now();
    }

    fn counters(&self) -> BindCounters {
        BindCounters::default()
    }

    fn sends_trains(&self) -> bool {
        true
    }

    /// It stands still, so nothing is given up.
    fn now(&self) -> u64 {
        0
    }
}
