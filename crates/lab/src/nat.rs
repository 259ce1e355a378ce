//! NAT boxes: a router with one outer address, in user space, with an exact [`Behaviour`].
//!
//! A NAT box connects two [switches](crate::world::Switch). Hosts inside take its inner address as
//! their gateway:
//!
//! ```no_run
//! # use weft_lab::{nat::{NatConfig, NatKind}, world::{World, WorldError}};
//! # fn main() -> Result<(), WorldError> {
//! let world = World::new()?;
//! let (lan, wan) = (world.switch("lan")?, world.switch("wan")?);
//! let nat = world.nat(NatConfig::new(NatKind::Symmetric), (&lan, "10.0.0.1/24"), (&wan, "203.0.113.1/24"))?;
//! let (laptop, server) = (world.host("laptop")?, world.host("server")?);
//! lan.connect(&laptop, &["10.0.0.2/24"])?;
//! laptop.add_default_route(nat.inner())?;
//! wan.connect(&server, &["203.0.113.7/24"])?;
//! # Ok(()) }
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`behaviour`] | mapping, filtering, port assignment and the rest, as RFC 4787 names them |
//! | [`packet`] | IPv4 packets: their endpoints, and changing them with their checksums |
//! | [`table`] | mappings and filters |
//! | [`translate`] | packet in, packet out or drop: both directions, hairpin, ICMP errors |
//! | [`router`] | Ethernet and ARP around it |
//! | [`kernel`] | NAT boxes of the kernel, with nftables: nothing of the above |
//! | [`miniupnpd`] | NAT boxes of the kernel that map ports on request |
//! | [`nat64`] | from IPv6 to IPv4, with tayga(8) |
//!
//! All but the last two are pure. The NAT box is a thread between them and two TAP interfaces, which are
//! ports of the switches; it ends with the [`NatBox`], and with the process. It translates UDP, TCP
//! and ICMP echo, with the ICMP errors about them; it drops fragments, IPv6 and everything else.

pub mod behaviour;
pub mod kernel;
pub mod miniupnpd;
pub mod nat64;
pub mod packet;
pub mod router;
pub mod table;
pub mod translate;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use weft_os::poll::EventFd;
use weft_os::tap::{FRAME_BUFFER_LEN, Tap};

pub use self::behaviour::{Behaviour, Dependence, MappingLife, NatKind, PortAssignment, Refresh};
use self::router::{Mac, Router, RouterPort};
pub use self::translate::NatCounts;
use self::translate::{Side, Translator};

/// Frames read from one side before the other is served.
const BATCH: usize = 64;

/// What a NAT box is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatConfig {
    /// Its behaviour.
    pub behaviour: Behaviour,
    /// The router outside, for packets to other networks. None by default.
    pub gateway: Option<Ipv4Addr>,
    /// The seed for ports that are assigned at random.
    pub seed: u64,
}

impl NatConfig {
    /// A NAT box of this kind, with defaults otherwise.
    #[must_use]
    pub fn new(kind: NatKind) -> Self {
        Self::behaving(kind.behaviour())
    }

    /// A NAT box with this behaviour, with defaults otherwise.
    #[must_use]
    pub fn behaving(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            gateway: None,
            seed: 1,
        }
    }
}

/// A running NAT box. It ends when it is dropped.
#[derive(Debug)]
pub struct NatBox {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    router: Mutex<Router>,
    ended: AtomicBool,
    wake: EventFd,
}

impl NatBox {
    /// Starts a NAT box between two ports, each with its address and prefix length.
    pub(crate) fn start(
        config: NatConfig,
        (inner_tap, inner, inner_len): (Tap, Ipv4Addr, u8),
        (outer_tap, outer, outer_len): (Tap, Ipv4Addr, u8),
    ) -> io::Result<Self> {
        let router = Router::new(
            Translator::new(config.behaviour, config.seed, outer),
            RouterPort::new(next_mac(), inner, inner_len, None),
            RouterPort::new(next_mac(), outer, outer_len, config.gateway),
        );
        let shared = Arc::new(Shared {
            router: Mutex::new(router),
            ended: AtomicBool::new(false),
            wake: EventFd::new()?,
        });
        let worker = Worker {
            shared: Arc::clone(&shared),
            inside: inner_tap,
            outside: outer_tap,
            start: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("nat".to_owned());
        let thread = thread.spawn(move || worker.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Its address inside: the gateway of the hosts there.
    #[must_use]
    pub fn inner(&self) -> IpAddr {
        self.router().address(Side::Inside).into()
    }

    /// Its address outside.
    #[must_use]
    pub fn outer(&self) -> IpAddr {
        self.router().address(Side::Outside).into()
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> NatCounts {
        self.router().translator().counts()
    }

    /// The number of mappings, including those that have just expired.
    #[must_use]
    pub fn mappings(&self) -> usize {
        self.router().translator().table().len()
    }

    /// Deletes all mappings.
    pub fn forget(&self) {
        self.router().translator().table().clear();
    }

    /// Restarts the NAT box: it has no mappings and knows no neighbours. `outer` is its new address
    /// outside, with the prefix length; without it, it keeps the old one.
    pub fn reboot(&self, outer: Option<(Ipv4Addr, u8)>) {
        self.router().reboot(outer);
    }

    fn router(&self) -> MutexGuard<'_, Router> {
        lock(&self.shared.router)
    }
}

impl Drop for NatBox {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.wake.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of a NAT box.
struct Worker {
    shared: Arc<Shared>,
    inside: Tap,
    outside: Tap,
    start: Instant,
}

impl Worker {
    fn run(self) {
        let mut buf = vec![0; FRAME_BUFFER_LEN];
        while !self.shared.ended.load(Ordering::Relaxed) {
            self.wait();
            for side in [Side::Inside, Side::Outside] {
                self.take(side, &mut buf);
            }
            let frames = lock(&self.shared.router).handle_timeout(self.now());
            self.send(&frames);
        }
    }

    /// Waits until there is a frame, or a query is due.
    fn wait(&self) {
        let due = lock(&self.shared.router).poll_timeout();
        let left = due.map(|due| Duration::from_millis(due.saturating_sub(self.now())));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let fds = [self.inside.as_fd(), self.outside.as_fd(), self.shared.wake.as_fd()];
        let mut set = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // Whatever the result, frames that wait are read next.
        let _ = rustix::event::poll(&mut set, timeout.as_ref());
    }

    fn take(&self, side: Side, buf: &mut [u8]) {
        for _ in 0..BATCH {
            let Ok(len) = self.tap(side).read(buf) else {
                return;
            };
            let frame = buf.get_mut(..len).unwrap_or_default();
            let frames = lock(&self.shared.router).handle_frame(self.now(), side, frame);
            self.send(&frames);
        }
    }

    fn send(&self, frames: &[(Side, Vec<u8>)]) {
        for (side, frame) in frames {
            // A port that is down drops frames.
            let _ = self.tap(*side).write(frame);
        }
    }

    fn tap(&self, side: Side) -> &Tap {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A locally administered address that no other NAT box of this process has.
fn next_mac() -> Mac {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [a, b, c, d] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [0x02, 0x57, a, b, c, d]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
