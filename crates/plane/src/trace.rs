//! Where a lane's time goes, measured while it is watched.
//!
//! The lane's thread is made of [`Off`], which measures nothing and is nothing, until a trace is asked for; then it goes on
//! with [`On`] until the switch is turned back. So a thread that is not watched runs code without a clock in it.

use weft_os::clock::monotonic_ns;

/// What a lane's thread does, told apart. Together they are all of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// Asleep until a socket, the TUN or the core has something.
    Wait,
    /// Reading super-packets from the TUN.
    TunRead,
    /// Finding the session and the way of a packet, and all else on its way out that is not one of the next three.
    Route,
    /// Cutting super-packets into packets that fit, headers and checksums included.
    Split,
    /// Sealing packets.
    Seal,
    /// Handing trains of datagrams to the system.
    UdpSend,
    /// Taking datagrams from the system.
    UdpReceive,
    /// Classifying, opening and unpacking datagrams, and forwarding those of others.
    Open,
    /// Finding packets that belong together.
    Coalesce,
    /// Writing super-packets to the TUN.
    TunWrite,
    /// What the core asked for, and telling it what happened.
    Control,
    /// Waiting for room: in a full socket, or in another lane's inbox.
    Queue,
}

impl Stage {
    /// All of them, in the order of a packet's way out and in.
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

    /// Its name in documents.
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

/// What was done in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// System calls, or turns for a stage that makes none.
    pub calls: u64,
    /// Packets, or datagrams.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds.
    pub ns: u64,
}

impl Work {
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

/// How much one call took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Calls with 1 packet, 2, 3 to 4, 5 to 8, and so on; the last one has all above 64.
    pub calls: [u64; 8],
    /// The most packets.
    pub max: u64,
    /// The most bytes.
    pub max_bytes: u64,
}

impl Sizes {
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

/// A queue that something waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Queue {
    /// Commands of the core, until the lane carries them out.
    Commands,
    /// Trains, until a full socket has room: the lane waits with them ([`Stage::Queue`]).
    Socket,
    /// What another lane is to send, until its full inbox has room: the lane waits with it ([`Stage::Queue`]).
    FullInbox,
    /// What other lanes gave to this one, until it takes it.
    Inbox,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Commands, Self::Socket, Self::FullInbox, Self::Inbox];

    /// Its name in documents.
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

/// Totals since a lane is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Nanoseconds since then.
    pub elapsed_ns: u64,
    /// What one look at the clock costs, nanoseconds. Watching takes three for each packet that is sent.
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
    waits: [Work; Queue::ALL.len()],
    /// Nanoseconds in all stages.
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
            waits: [Work::default(); Queue::ALL.len()],
            noted: 0,
            started,
        }
    }

    /// The same of two lanes together: twice the time in the same time.
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
        for (sum, work) in self.waits.iter_mut().zip(other.waits) {
            sum.merge(work);
        }
        self.noted += other.noted;
        self
    }

    /// What was done in a stage.
    #[must_use]
    pub fn work(&self, stage: Stage) -> Work {
        self.work.get(stage as usize).copied().unwrap_or_default()
    }

    /// Waits in a queue: how many, and how long all of them took.
    #[must_use]
    pub fn waits(&self, queue: Queue) -> Work {
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

/// Measures a lane's thread, or does not.
pub(crate) trait Tracer: Sized {
    /// It does.
    const ON: bool;

    fn new() -> Self;

    /// Nanoseconds on a clock that never goes back; 0 where nothing is measured.
    fn clock() -> u64;

    /// `stage` took from `since` until now, but for what stages inside it took since [`Tracer::inner`] said so. Returns
    /// now.
    fn note(&mut self, stage: Stage, since: u64, inner: u64, packets: usize, bytes: usize) -> u64;

    /// A TUN read took this long, and was cut into so many packets.
    fn read(&mut self, ns: u64, packets: usize, bytes: usize);

    /// Splitting and sealing one packet took this long.
    fn sealed(&mut self, split: u64, seal: u64);

    /// Finding what belongs together in what one call received took this long.
    fn coalesced(&mut self, ns: u64);

    /// The time of all stages so far.
    fn inner(&self) -> u64;

    /// Something waited this long in a queue; the lane with it, if that is one of [`Stage::Queue`].
    fn waited(&mut self, queue: Queue, ns: u64);

    /// All so far.
    fn totals(&self) -> Option<Trace>;

    /// Packets that were split so far.
    fn split(&self) -> usize;
}

/// The lane is not watched.
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

/// The lane is watched.
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
            wait.add(0, 0, ns);
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
        // What is nested deeper counts once, too: the core's command made the lane send, and wait for that.
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
            (totals.waits(Queue::Inbox).ns, totals.waits(Queue::Inbox).calls),
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
