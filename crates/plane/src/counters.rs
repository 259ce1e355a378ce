//! What the IO around a lane counts (L16, L24: whether the fast path is in use can be seen).

use weft_os::udp::UdpCounters;
use weft_packet::Counters;

/// Running totals of one lane's IO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlaneCounters {
    /// TUN reads; each may carry a super-packet.
    pub tun_reads: u64,
    /// TUN writes; each may carry a super-packet.
    pub tun_writes: u64,
    /// TUN writes of several packets in one.
    pub tun_coalesced: u64,
    /// Times a full interface made the lane wait before it wrote.
    pub tun_write_waits: u64,
    /// Packets that the interface had no room for after a second of waiting, or a batch.
    pub tun_write_dropped: u64,
    /// Packets that the interface refused: it is down or gone, or finds fault with them.
    pub tun_write_failed: u64,
    /// Times a full socket (EWOULDBLOCK) made the lane wait before it sent.
    pub send_waits: u64,
    /// Times the queue of a device, or the kernel's memory, was full (ENOBUFS, ENOMEM), so that the lane tried again.
    pub send_waits_device: u64,
    /// Datagrams that were given up because the kernel took nothing for a second.
    pub send_dropped: u64,
    /// Datagrams larger than the path's first interface takes.
    pub send_too_long: u64,
    /// Datagrams that the system refused for another reason: no route, host unreachable.
    pub send_failed: u64,
    /// Datagrams for an IP version that no socket serves.
    pub send_no_socket: u64,
    /// Batches that other lanes gave to this one.
    pub handed_in: u64,
    /// Times another lane's full inbox made the lane wait before it gave it a packet.
    pub handed_waits: u64,
    /// Packets and datagrams for another lane, for which its inbox had no room.
    pub handed_dropped: u64,
    /// Messages of the core that were dropped because too many waited for the lane.
    pub commands_dropped: u64,
}

impl PlaneCounters {
    /// All of them by name, in the order of the fields.
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

/// Everything one lane counted, as of its last sample (at most 250 ms old while anything happens).
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The packet path.
    pub lane: Counters,
    /// The IO around it.
    pub plane: PlaneCounters,
    /// Each socket, in the order of [`LaneSetup::sockets`](crate::LaneSetup).
    pub sockets: Vec<UdpCounters>,
    /// Whether the system lets its thread go before others while it moves bulk; none before it was asked, and where that is
    /// not wished.
    pub preferred: Option<bool>,
    /// A socket that was to send trains in one call each has been told to send one by one.
    pub gso_refused: bool,
}

/// Between two log lines about packets that were dropped, ms.
const TELL_EVERY: u64 = 60_000;

/// Says in the log that packets were dropped because the kernel took nothing for long.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    told: (u64, u64),
    next: u64,
}

impl Losses {
    /// Writes one line if more was dropped than the last one told, at most once a minute.
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
