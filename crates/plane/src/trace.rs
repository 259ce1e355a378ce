//! The time of each stage of a lane, measured while a client watches.
//!
//! The lane's thread is generic over a tracer. [`Off`] is empty and measures nothing; while a trace
//! is requested, the thread runs with [`On`] instead. So a thread that is not traced runs code
//! without a clock in it.

use weft_os::clock::monotonic_ns;

/// The stages of a lane's thread. Together they are all of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Asleep until a socket, the TUN or the core wakes it.
    Wait,
    /// Reading super-packets from the TUN.
    TunRead,
    /// Finding the session and the path of a packet, and all other work on outgoing packets that is
    /// not in the next three stages.
    Route,
    /// Cutting super-packets into packets that fit, headers and checksums included.
    Split,
    /// Sealing packets.
    Seal,
    /// Handing trains of datagrams to the kernel.
    UdpSend,
    /// Receiving datagrams from the kernel.
    UdpReceive,
    /// Classifying, opening and unpacking datagrams, and forwarding those for other nodes.
    Open,
    /// Finding packets that can be coalesced.
    Coalesce,
    /// Writing super-packets to the TUN.
    TunWrite,
    /// Commands of the core, and reports to it.
    Control,
    /// Waiting for room: in a full socket, or in another lane's inbox.
    Queue,
}

impl Stage {
    /// All stages, in the order of a packet from TUN to wire and from wire to TUN.
    pub const ALL: [Self; 12] = [
        Self::Wait,
        Self::TunRead,
        Self::Route,
        Self::Split,
        Self::Seal,
        Self::UdpSend,
        Self::UdpReceive,
        Self::Open,
        Self::Coalesce,
        Self::TunWrite,
        Self::Control,
        Self::Queue,
    ];

    /// The stage's name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::TunRead => "tun-read",
            Self::Route => "route",
            Self::Split => "split",
            Self::Seal => "seal",
            Self::UdpSend => "udp-send",
            Self::UdpReceive => "udp-receive",
            Self::Open => "open",
            Self::Coalesce => "coalesce",
            Self::TunWrite => "tun-write",
            Self::Control => "control",
            Self::Queue => "queue",
        }
    }
}

/// The work of one stage. With the feature `serde`, documents have it as it is here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
pub struct Work {
    /// System calls, or rounds for a stage without system calls.
    pub calls: u64,
    /// Packets, or datagrams.
    pub packets: u64,
    /// Bytes of the packets, if system calls move them.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Work {
    /// The work since `before`, earlier totals of the same stage.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            ns: self.ns.saturating_sub(before.ns),
        }
    }

    fn add(&mut self, packets: usize, bytes: usize, ns: u64) {
        self.calls += 1;
        self.packets += packets as u64;
        self.bytes += bytes as u64;
        self.ns += ns;
    }

    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.ns += other.ns;
    }
}

/// The waits in one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
pub struct Waits {
    /// Their number.
    pub count: u64,
    /// Nanoseconds in total.
    pub ns: u64,
}

impl Waits {
    /// The waits since `before`, earlier totals of the same queue.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            ns: self.ns.saturating_sub(before.ns),
        }
    }
}

/// The sizes of calls: packets in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)
)]
pub struct Sizes {
    /// Calls with 1 packet, 2, 3 to 4, 5 to 8, and so on; the last element counts all above 64.
    pub calls: [u64; 8],
    /// The largest number of packets in a call.
    pub max: u64,
    /// The largest number of bytes in a call.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_bytes: u64,
}

impl Sizes {
    /// The calls since `before`, earlier totals of the same calls. The largest values are those
    /// since tracing began.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (calls, before) in since.calls.iter_mut().zip(before.calls) {
            *calls = calls.saturating_sub(before);
        }
        since
    }

    fn add(&mut self, packets: usize, bytes: usize) {
        let class = packets.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(calls) = self.calls.get_mut(class.min(7)) {
            *calls += 1;
        }
        self.max = self.max.max(packets as u64);
        self.max_bytes = self.max_bytes.max(bytes as u64);
    }

    fn merge(&mut self, other: &Self) {
        for (sum, calls) in self.calls.iter_mut().zip(other.calls) {
            *sum += calls;
        }
        self.max = self.max.max(other.max);
        self.max_bytes = self.max_bytes.max(other.max_bytes);
    }
}

/// A queue of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Queue {
    /// Commands of the core, until the lane executes them.
    Commands,
    /// Trains, until a full socket has room: the lane waits meanwhile ([`Stage::Queue`]).
    Socket,
    /// A packet for another lane, until that lane's full inbox has room: this lane waits meanwhile
    /// ([`Stage::Queue`]).
    FullInbox,
    /// Batches from other lanes, until this lane processes them.
    Inbox,
}

impl Queue {
    /// All queues.
    pub const ALL: [Self; 4] = [Self::Commands, Self::Socket, Self::FullInbox, Self::Inbox];

    /// The queue's name in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Socket => "socket",
            Self::FullInbox => "full-inbox",
            Self::Inbox => "inbox",
        }
    }
}

/// Totals since tracing began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Nanoseconds since tracing began.
    pub elapsed_ns: u64,
    /// The cost of one reading of the clock, nanoseconds. Tracing takes three for each packet that
    /// is sent.
    pub clock_ns: u64,
    /// Packets in a TUN read.
    pub tun_reads: Sizes,
    /// Packets in a TUN write.
    pub tun_writes: Sizes,
    /// Datagrams in a call that sends (UDP_SEGMENT).
    pub sends: Sizes,
    /// Datagrams in a call that receives (UDP_GRO).
    pub receives: Sizes,
    work: [Work; Stage::ALL.len()],
    waits: [Waits; Queue::ALL.len()],
    /// Nanoseconds of all stages.
    noted: u64,
    started: u64,
}

impl Trace {
    fn new() -> Self {
        const LOOKS: u64 = 64;
        let before = monotonic_ns();
        for _ in 0..LOOKS {
            std::hint::black_box(monotonic_ns());
        }
        let started = monotonic_ns();
        Self {
            elapsed_ns: 0,
            clock_ns: (started - before) / LOOKS,
            tun_reads: Sizes::default(),
            tun_writes: Sizes::default(),
            sends: Sizes::default(),
            receives: Sizes::default(),
            work: [Work::default(); Stage::ALL.len()],
            waits: [Waits::default(); Queue::ALL.len()],
            noted: 0,
            started,
        }
    }

    /// Returns the sum of two lanes' traces: twice the time in the same interval.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.clock_ns = self.clock_ns.max(other.clock_ns);
        let sizes = [
            (&mut self.tun_reads, other.tun_reads),
            (&mut self.tun_writes, other.tun_writes),
            (&mut self.sends, other.sends),
            (&mut self.receives, other.receives),
        ];
        for (sum, sizes) in sizes {
            sum.merge(&sizes);
        }
        for (sum, work) in self.work.iter_mut().zip(other.work) {
            sum.merge(work);
        }
        for (sum, waits) in self.waits.iter_mut().zip(other.waits) {
            sum.count += waits.count;
            sum.ns += waits.ns;
        }
        self.noted += other.noted;
        self
    }

    /// The work of a stage.
    #[must_use]
    pub fn work(&self, stage: Stage) -> Work {
        self.work.get(stage as usize).copied().unwrap_or_default()
    }

    /// The waits in a queue.
    #[must_use]
    pub fn waits(&self, queue: Queue) -> Waits {
        self.waits.get(queue as usize).copied().unwrap_or_default()
    }

    fn add(&mut self, stage: Stage, packets: usize, bytes: usize, ns: u64) {
        self.noted += ns;
        if let Some(work) = self.work.get_mut(stage as usize) {
            work.add(packets, bytes, ns);
        }
        match stage {
            Stage::TunRead => self.tun_reads.add(packets, bytes),
            Stage::TunWrite => self.tun_writes.add(packets, bytes),
            Stage::UdpSend => self.sends.add(packets, bytes),
            Stage::UdpReceive => self.receives.add(packets, bytes),
            _ => {}
        }
    }
}

/// Traces a lane's thread, or does not.
pub(crate) trait Tracer: Sized {
    /// Whether this type traces.
    const ON: bool;

    fn new() -> Self;

    /// Nanoseconds on a monotonic clock; 0 if tracing is off.
    fn clock() -> u64;

    /// Adds the time from `since` until now to `stage`, less the time of nested stages since
    /// `inner` was read from [`Tracer::inner`]. Returns now.
    fn note(&mut self, stage: Stage, since: u64, inner: u64, packets: usize, bytes: usize) -> u64;

    /// Records the duration of a TUN read, and the number of packets it was cut into.
    fn read(&mut self, ns: u64, packets: usize, bytes: usize);

    /// Records the durations of splitting and of sealing one packet.
    fn sealed(&mut self, split: u64, seal: u64);

    /// Records the time of finding packets to coalesce in one receive.
    fn coalesced(&mut self, ns: u64);

    /// The time of all stages so far.
    fn inner(&self) -> u64;

    /// Records a wait in a queue; the lane itself waits if the queue belongs to [`Stage::Queue`].
    fn waited(&mut self, queue: Queue, ns: u64);

    /// The trace so far.
    fn totals(&self) -> Option<Trace>;

    /// The number of packets split so far.
    fn split(&self) -> usize;
}

/// Tracing is off.
pub(crate) struct Off;

impl Tracer for Off {
    const ON: bool = false;

    fn new() -> Self {
        Self
    }

    #[inline(always)]
    fn clock() -> u64 {
        0
    }

    #[inline(always)]
    fn note(&mut self, _: Stage, _: u64, _: u64, _: usize, _: usize) -> u64 {
        0
    }

    #[inline(always)]
    fn read(&mut self, _: u64, _: usize, _: usize) {}

    #[inline(always)]
    fn sealed(&mut self, _: u64, _: u64) {}

    #[inline(always)]
    fn coalesced(&mut self, _: u64) {}

    #[inline(always)]
    fn inner(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn waited(&mut self, _: Queue, _: u64) {}

    fn totals(&self) -> Option<Trace> {
        None
    }

    #[inline(always)]
    fn split(&self) -> usize {
        0
    }
}

/// Tracing is on.
pub(crate) struct On(Box<Trace>);

impl Tracer for On {
    const ON: bool = true;

    fn new() -> Self {
        Self(Box::new(Trace::new()))
    }

    fn clock() -> u64 {
        monotonic_ns()
    }

    fn note(&mut self, stage: Stage, since: u64, inner: u64, packets: usize, bytes: usize) -> u64 {
        let now = monotonic_ns();
        let inside = match stage {
            Stage::Route | Stage::Open | Stage::Control => self.0.noted - inner,
            _ => 0,
        };
        let ns = now.saturating_sub(since).saturating_sub(inside);
        self.0.add(stage, packets, bytes, ns);
        now
    }

    fn read(&mut self, ns: u64, packets: usize, bytes: usize) {
        self.0.add(Stage::TunRead, packets, bytes, ns);
    }

    fn sealed(&mut self, split: u64, seal: u64) {
        self.0.add(Stage::Split, 1, 0, split);
        self.0.add(Stage::Seal, 1, 0, seal);
    }

    fn coalesced(&mut self, ns: u64) {
        self.0.add(Stage::Coalesce, 0, 0, ns);
    }

    fn inner(&self) -> u64 {
        self.0.noted
    }

    fn waited(&mut self, queue: Queue, ns: u64) {
        if let Some(wait) = self.0.waits.get_mut(queue as usize) {
            wait.count += 1;
            wait.ns += ns;
        }
        if matches!(queue, Queue::Socket | Queue::FullInbox) {
            self.0.add(Stage::Queue, 0, 0, ns);
        }
    }

    fn totals(&self) -> Option<Trace> {
        let mut totals = (*self.0).clone();
        totals.elapsed_ns = monotonic_ns().saturating_sub(totals.started);
        Some(totals)
    }

    fn split(&self) -> usize {
        self.0.work(Stage::Split).packets as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_into_classes_of_powers_of_two() {
        let mut sizes = Sizes::default();
        for packets in [1, 2, 3, 4, 5, 8, 9, 64, 65, 128] {
            sizes.add(packets, 1_000 * packets);
        }
        assert_eq!(sizes.calls, [1, 1, 2, 2, 1, 0, 1, 2]);
        assert_eq!((sizes.max, sizes.max_bytes), (128, 128_000));
    }

    #[test]
    fn a_stage_does_not_count_what_is_inside_it() {
        let mut on = On::new();
        let (since, inner) = (On::clock(), on.inner());
        on.sealed(1 << 60, 1 << 60);
        on.note(Stage::Route, since, inner, 1, 0);
        let totals = on.totals().unwrap();
        assert_eq!(totals.work(Stage::Route).ns, 0, "more was inside than there was");
        assert_eq!(totals.work(Stage::Seal).ns, 1 << 60);
        assert_eq!((on.split(), totals.work(Stage::Split).packets), (1, 1));
        // Deeper nesting counts once, too: a command of the core made the lane send, and wait for
        // room.
        let (since, inner) = (On::clock(), on.inner());
        on.waited(Queue::Socket, 1 << 60);
        on.waited(Queue::Inbox, 7);
        on.note(Stage::TunWrite, On::clock(), 0, 1, 60);
        on.note(Stage::Control, since, inner, 0, 0);
        let totals = on.totals().unwrap();
        assert_eq!(totals.work(Stage::Control).ns, 0);
        assert_eq!(
            (totals.work(Stage::Queue).ns, totals.work(Stage::Queue).calls),
            (1 << 60, 1)
        );
        assert_eq!(totals.waits(Queue::Socket).ns, 1 << 60);
        assert_eq!(
            (totals.waits(Queue::Inbox).ns, totals.waits(Queue::Inbox).count),
            (7, 1)
        );
    }

    #[test]
    fn lanes_add_up() {
        let (mut first, mut second) = (On::new(), On::new());
        first.sealed(10, 20);
        second.sealed(1, 2);
        second.waited(Queue::Commands, 5);
        let sum = first.totals().unwrap().and(&second.totals().unwrap());
        assert_eq!(
            sum.work(Stage::Seal),
            Work {
                calls: 2,
                packets: 2,
                bytes: 0,
                ns: 22
            }
        );
        assert_eq!((sum.waits(Queue::Commands).ns, sum.noted), (5, 33));
    }

    #[test]
    fn every_stage_and_queue_has_a_place_of_its_own() {
        for (at, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, at, "{}", stage.name());
        }
        for (at, queue) in Queue::ALL.into_iter().enumerate() {
            assert_eq!(queue as usize, at, "{}", queue.name());
        }
    }
}
