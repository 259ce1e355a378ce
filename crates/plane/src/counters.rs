//! Counters of the IO around a lane (L16, L24: a user can see whether the fast path is in use).

use weft_packet::Counters;

use crate::bind::BindCounters;

/// Running totals of one lane's IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaneCounters {
    /// TUN reads; each may return a super-packet.
    pub tun_reads: u64,
    /// TUN writes; each may be a super-packet.
    pub tun_writes: u64,
    /// TUN writes of several packets.
    pub tun_coalesced: u64,
    /// Times a full interface made the lane wait before it wrote.
    pub tun_write_waits: u64,
    /// Packets that were dropped because the interface had no room for a second, or because the
    /// batch was full.
    pub tun_write_dropped: u64,
    /// Packets that the interface refused: it is down or gone, or rejects the packets.
    pub tun_write_failed: u64,
    /// Times a full socket (EWOULDBLOCK) made the lane wait before it sent.
    pub send_waits: u64,
    /// Times a device queue or the kernel's memory was full (ENOBUFS, ENOMEM), so that the lane
    /// tried again.
    pub send_waits_device: u64,
    /// Datagrams that were dropped because the kernel accepted none for a second.
    pub send_dropped: u64,
    /// Datagrams larger than the MTU of the path's first interface.
    pub send_too_long: u64,
    /// Datagrams that the system refused for another reason: no route, host unreachable.
    pub send_failed: u64,
    /// Datagrams for an IP version without a socket, or for a further socket that is gone.
    pub send_no_socket: u64,
    /// Batches that other lanes handed to this one.
    pub handed_in: u64,
    /// Times another lane's full inbox made the lane wait before it handed over a packet.
    pub handed_waits: u64,
    /// Packets and datagrams for another lane that were dropped because its inbox was full.
    pub handed_dropped: u64,
    /// Messages of the core that were dropped because too many waited for the lane.
    pub commands_dropped: u64,
}

impl PlaneCounters {
    /// All counters by name, in the order of the fields.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("tun_reads", self.tun_reads),
            ("tun_writes", self.tun_writes),
            ("tun_coalesced", self.tun_coalesced),
            ("tun_write_waits", self.tun_write_waits),
            ("tun_write_dropped", self.tun_write_dropped),
            ("tun_write_failed", self.tun_write_failed),
            ("send_waits", self.send_waits),
            ("send_waits_device", self.send_waits_device),
            ("send_dropped", self.send_dropped),
            ("send_too_long", self.send_too_long),
            ("send_failed", self.send_failed),
            ("send_no_socket", self.send_no_socket),
            ("handed_in", self.handed_in),
            ("handed_waits", self.handed_waits),
            ("handed_dropped", self.handed_dropped),
            ("commands_dropped", self.commands_dropped),
        ]
        .into_iter()
    }
}

/// All counters of one lane, as of its last sample (at most 250 ms old while the lane is active).
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Those of the packet path.
    pub lane: Counters,
    /// Those of the IO around it.
    pub plane: PlaneCounters,
    /// Those of each socket, in the order of [`LaneSetup::sockets`](crate::LaneSetup), and those of
    /// all further ones together.
    pub sockets: Vec<BindCounters>,
    /// Whether the system lets the thread raise its priority while it moves bulk; `None` before the
    /// first attempt, and if it is not configured.
    pub preferred: Option<bool>,
    /// Whether a socket sends each datagram by itself because the system refuses trains.
    pub trains_refused: bool,
}

/// Interval between two log lines about dropped packets, ms.
const TELL_EVERY: u64 = 60_000;

/// Logs that packets were dropped because the kernel accepted none for long.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    told: (u64, u64),
    next: u64,
}

impl Losses {
    /// Writes one line, at most once a minute, if packets were dropped since the last one.
    pub(crate) fn tell(&mut self, now: u64, counters: &PlaneCounters) {
        let dropped = (counters.send_dropped, counters.tun_write_dropped);
        if dropped == self.told || now < self.next {
            return;
        }
        let (datagrams, packets) = (dropped.0 - self.told.0, dropped.1 - self.told.1);
        (self.told, self.next) = (dropped, now + TELL_EVERY);
        tracing::warn!(
            datagrams,
            packets,
            "the kernel took nothing for a second, so datagrams to the network or packets to the interface were dropped; \
             look at the network device and its queue"
        );
    }
}
