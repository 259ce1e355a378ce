//! Emulated cables: every frame passes through this program, which delays, drops, duplicates,
//! reorders or limits it, for each direction according to [`Impairments`]. No kernel module is
//! needed.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use weft_lab::{emulator::{Cable, Impairments}, cable::Direction, world::{World, WorldError}};
//! # fn main() -> Result<(), WorldError> {
//! let world = World::new()?;
//! let (a, b) = (world.host("a")?, world.host("b")?);
//! let bad = Impairments {
//!     loss: 0.01,
//!     rate: Some(100_000_000),
//!     ..Impairments::delay(Duration::from_millis(20))
//! };
//! let link = world.emulated_link((&a, &["192.0.2.1/24"]), (&b, &["192.0.2.2/24"]), Cable::both(bad))?;
//! link.set(Direction::AToB, Impairments::default());
//! # Ok(()) }
//! ```
//!
//! The interface of each host is a TAP. With offloads its kernel hands over super-frames, as to a
//! network card that splits them itself; [`Pipe`], which is pure, decides about each of their
//! segments, and passes those that stay together on in one piece. A plain TAP passes plain frames,
//! split and with checksums (L24b). Each direction is a thread that reads a batch, runs it through
//! the pipe and writes what is due. The threads end with the [`Emulator`], and with the process. A
//! [`Witness`] sees the frames at either end, as they would be on a wire. A [firewall](Protection)
//! stands between an end and the rest of the cable.

mod pipe;
mod super_frame;
mod too_big;

use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use weft_os::poll::EventFd;
use weft_os::tap::{SUPER_FRAME_BUFFER_LEN, Tap};
use weft_os::tun::VNET_HEADER_LEN;

pub use self::pipe::{GATHER, Impairments, Pipe, PipeCounts, TooBig};
use self::super_frame::on_the_wire;
use crate::cable::Direction;
use crate::firewall::{Firewall, FirewallCounts, FirewallRules, Way};

/// Frames that are read before due frames are written.
const BATCH: usize = 64;

/// The impairments of an emulated cable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cable {
    /// From the first host to the second.
    pub a_to_b: Impairments,
    /// From the second host to the first.
    pub b_to_a: Impairments,
    /// The seed of all random decisions.
    pub seed: u64,
}

impl Cable {
    /// The same impairments in both directions.
    #[must_use]
    pub fn both(impairments: Impairments) -> Self {
        Self {
            a_to_b: impairments,
            b_to_a: impairments,
            seed: 1,
        }
    }
}

/// An end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The first host's.
    A,
    /// The second host's.
    B,
}

/// An observer of all frames at the ends of a cable, sent and received, like a packet capture on
/// the interface.
pub trait Witness: fmt::Debug + Send + Sync {
    /// A frame passes this end now; of a super-frame, each segment. Called by the threads of the
    /// cable, which wait meanwhile.
    fn frame(&self, end: End, frame: &[u8]);
}

/// The program in the middle of a cable. It ends when it is dropped.
#[derive(Debug)]
pub struct Emulator {
    lanes: [Arc<Lane>; 2],
    firewall: Option<Arc<Mutex<Firewall>>>,
    threads: Vec<JoinHandle<()>>,
}

/// A firewall at an end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    /// The end that it protects, and at which it stands.
    pub end: End,
    /// What it drops.
    pub rules: FirewallRules,
}

impl Emulator {
    /// Starts the emulation between two interfaces.
    pub(crate) fn start(a: Tap, b: Tap, cable: Cable, protection: Option<Protection>) -> io::Result<Self> {
        let (a, b) = (Arc::new(a), Arc::new(b));
        let firewall = protection.map(|with| Arc::new(Mutex::new(Firewall::new(with.rules))));
        let at = |end| {
            let firewall = firewall.as_ref().zip(protection);
            firewall.and_then(|(firewall, with)| (with.end == end).then(|| Arc::clone(firewall)))
        };
        let start = Instant::now();
        let lane = |(near, from): (End, &Arc<Tap>), (far, to): (End, &Arc<Tap>), impairments, seed| {
            Ok::<_, io::Error>(Arc::new(Lane {
                near,
                from: Arc::clone(from),
                far,
                to: Arc::clone(to),
                before: at(near),
                behind: at(far),
                witness: OnceLock::new(),
                pipe: Mutex::new(Pipe::new(impairments, seed)),
                ended: AtomicBool::new(false),
                wake: EventFd::new()?,
                start,
            }))
        };
        let lanes = [
            lane((End::A, &a), (End::B, &b), cable.a_to_b, cable.seed)?,
            lane((End::B, &b), (End::A, &a), cable.b_to_a, !cable.seed)?,
        ];
        let mut emulator = Self {
            lanes,
            firewall,
            threads: Vec::new(),
        };
        for lane in &emulator.lanes {
            let lane = Arc::clone(lane);
            let thread = std::thread::Builder::new().name("cable".to_owned());
            emulator.threads.push(thread.spawn(move || lane.run())?);
        }
        Ok(emulator)
    }

    /// Sets the impairments of one direction from now on.
    pub fn set(&self, direction: Direction, impairments: Impairments) {
        self.lane(direction).pipe().set(impairments);
    }

    /// The counters of one direction so far.
    #[must_use]
    pub fn counts(&self, direction: Direction) -> PipeCounts {
        self.lane(direction).pipe().counts()
    }

    /// The frames that the firewall has dropped so far; `None` without a firewall.
    #[must_use]
    pub fn firewall(&self) -> Option<FirewallCounts> {
        let firewall = self.firewall.as_ref()?;
        Some(firewall.lock().unwrap_or_else(PoisonError::into_inner).counts())
    }

    /// Makes `witness` see all frames from now on. The first witness stays.
    pub fn watch(&self, witness: &Arc<dyn Witness>) {
        for lane in &self.lanes {
            let _ = lane.witness.set(Arc::clone(witness));
        }
    }

    fn lane(&self, direction: Direction) -> &Lane {
        let [a_to_b, b_to_a] = &self.lanes;
        match direction {
            Direction::AToB => a_to_b,
            Direction::BToA => b_to_a,
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        for lane in &self.lanes {
            lane.ended.store(true, Ordering::Relaxed);
            lane.wake.wake();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One direction and its thread.
#[derive(Debug)]
struct Lane {
    near: End,
    from: Arc<Tap>,
    far: End,
    to: Arc<Tap>,
    /// The firewall through which frames leave their sender, and that through which they reach their
    /// receiver.
    before: Option<Arc<Mutex<Firewall>>>,
    behind: Option<Arc<Mutex<Firewall>>>,
    witness: OnceLock<Arc<dyn Witness>>,
    pipe: Mutex<Pipe>,
    ended: AtomicBool,
    wake: EventFd,
    start: Instant,
}

impl Lane {
    fn run(&self) {
        let (mut taken, mut given) = (vec![0; SUPER_FRAME_BUFFER_LEN], Vec::new());
        while !self.ended.load(Ordering::Relaxed) {
            self.wait();
            self.take(&mut taken);
            self.give(&mut given);
        }
    }

    /// Waits until a frame can be read or is due.
    fn wait(&self) {
        let due = self.pipe().next_due();
        let left = due.map(|due| Duration::from_nanos(due.saturating_sub(self.now())));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let fds = [self.from.as_fd(), self.wake.as_fd()];
        let mut set = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // Whatever the result, frames that wait are read next.
        let _ = rustix::event::poll(&mut set, timeout.as_ref());
    }

    fn take(&self, buf: &mut [u8]) {
        for _ in 0..BATCH {
            let Some(frame) = read(&self.from, buf) else {
                return;
            };
            self.tell(self.near, frame);
            if !self.admits(self.before.as_ref(), Way::Out, frame) {
                continue;
            }
            self.pipe().push(self.now(), frame, |answer| {
                let whole = [&[0; VNET_HEADER_LEN], answer].concat();
                self.tell(self.near, &whole);
                write(&self.from, &whole);
            });
        }
    }

    fn give(&self, frame: &mut Vec<u8>) {
        loop {
            // Not in the loop's head, which would keep the pipe locked.
            let is_due = self.pipe().pop(self.now(), frame);
            if !is_due {
                return;
            }
            if self.admits(self.behind.as_ref(), Way::In, frame) {
                self.tell(self.far, frame);
                write(&self.to, frame);
            }
        }
    }

    fn admits(&self, firewall: Option<&Arc<Mutex<Firewall>>>, way: Way, frame: &[u8]) -> bool {
        let Some(firewall) = firewall else { return true };
        let now = self.now() / 1_000_000;
        let frame = frame.get(VNET_HEADER_LEN..).unwrap_or_default();
        let mut firewall = firewall.lock().unwrap_or_else(PoisonError::into_inner);
        firewall.admits(now, way, frame)
    }

    fn tell(&self, end: End, frame: &[u8]) {
        if let Some(witness) = self.witness.get() {
            on_the_wire(frame, |segment| witness.frame(end, segment));
        }
    }

    fn pipe(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Reads the next frame, with a virtio header whether the interface has one or not; `None` if there
/// is none.
fn read<'a>(tap: &Tap, buf: &'a mut [u8]) -> Option<&'a [u8]> {
    if tap.offloads().is_some() {
        let len = tap.read(buf).ok()?;
        return buf.get(..len);
    }
    let (header, rest) = buf.split_at_mut_checked(VNET_HEADER_LEN)?;
    header.fill(0);
    let len = tap.read(rest).ok()?;
    buf.get(..VNET_HEADER_LEN + len)
}

/// Writes a frame to the host. An interface that is down drops it.
fn write(tap: &Tap, frame: &[u8]) {
    if tap.offloads().is_some() {
        let _ = tap.write(frame);
    } else {
        on_the_wire(frame, |segment| drop(tap.write(segment)));
    }
}
