//! The inbox of a lane: packets and datagrams that another lane has read and this one owns. A
//! buffer changes its owner without a copy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_contract::{Endpoint, bounds};
use weft_os::tun::READ_BUFFER_LEN;
use weft_os::udp::RECEIVE_BUFFER_LEN;
use weft_packet::HEADROOM;

/// Empty buffers kept for reuse.
const MAX_SPARE: usize = 8;
/// Room for a read of the TUN or a receive, with the header that must precede it.
const BUFFER_LEN: usize = if READ_BUFFER_LEN > HEADROOM + RECEIVE_BUFFER_LEN {
    READ_BUFFER_LEN
} else {
    HEADROOM + RECEIVE_BUFFER_LEN
};

/// Allocates a buffer for either.
pub(crate) fn buffer() -> Box<[u8]> {
    vec![0; BUFFER_LEN].into_boxed_slice()
}

/// A buffer that one lane hands to another.
pub(crate) struct Parcel {
    pub(crate) buffer: Box<[u8]>,
    pub(crate) content: Content,
    /// When it was handed over, ns, if the giving lane is traced; else 0.
    pub(crate) given: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// A read of the TUN, of this many bytes.
    Packet(usize),
    /// A packet of another peer for one that speaks WireGuard, of this many bytes.
    Onward(usize),
    /// Datagrams from one address: their bytes behind the headroom, the length `step` of each but
    /// the last, and their ECN bits.
    Datagrams {
        from: Endpoint,
        len: usize,
        step: usize,
        ecn: u8,
    },
}

/// The queue of what other lanes hand to one lane.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Whether the queue holds anything, so that checking an empty inbox needs no lock.
    waits: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// In the order of arrival.
    parcels: VecDeque<Parcel>,
    /// How many of the parcels are TUN packets. Datagrams have a separate limit, because nothing
    /// about them is verified: a flood of them must not crowd out packets.
    packets: usize,
    spare: Vec<Box<[u8]>>,
}

impl Queue {
    fn has_room(&self, content: Content) -> bool {
        match content {
            Content::Packet(_) | Content::Onward(_) => self.packets < bounds::HANDED_PACKETS,
            Content::Datagrams { .. } => self.parcels.len() - self.packets < bounds::HANDED_DATAGRAMS,
        }
    }
}

/// The result of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// It is queued; the owner has already been woken.
    Waits,
    /// It is the first in the queue: wake the owner.
    First,
    /// The queue is full.
    Full,
}

impl Inbox {
    /// Queues the buffer and replaces it by an empty one.
    pub(crate) fn give(&self, buffer: &mut Box<[u8]>, content: Content, now_ns: u64) -> Given {
        let mut queue = self.lock();
        if !queue.has_room(content) {
            return Given::Full;
        }
        queue.packets += usize::from(matches!(content, Content::Packet(_) | Content::Onward(_)));
        let empty = queue.spare.pop().unwrap_or_else(self::buffer);
        let buffer = std::mem::replace(buffer, empty);
        queue.parcels.push_back(Parcel {
            buffer,
            content,
            given: now_ns,
        });
        if self.waits.swap(true, Ordering::Relaxed) {
            Given::Waits
        } else {
            Given::First
        }
    }

    /// Moves the whole queue into `into`, which is empty, and returns the empty buffers.
    pub(crate) fn take(&self, into: &mut VecDeque<Parcel>, empty: &mut Vec<Box<[u8]>>) {
        if !self.waits.load(Ordering::Relaxed) {
            return;
        }
        let mut queue = self.lock();
        std::mem::swap(&mut queue.parcels, into);
        queue.packets = 0;
        let room = MAX_SPARE.saturating_sub(queue.spare.len());
        queue.spare.extend(empty.drain(..).take(room));
        self.waits.store(false, Ordering::Relaxed);
    }

    /// A panic elsewhere leaves the queue consistent: it is extended or taken in one step.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn filled(byte: u8) -> Box<[u8]> {
        let mut buffer = buffer();
        buffer[0] = byte;
        buffer
    }

    /// Two lanes hand over to a third, which sleeps after it has emptied its queue, and wakes only
    /// on the result of `give`.
    #[test]
    fn no_wake_up_is_lost_between_giver_and_sleeper() {
        const EACH: usize = 20_000;
        let inbox = Inbox::default();
        // Like an eventfd: a wake-up before the sleep is kept, and two count as one.
        let (wake, woken) = std::sync::mpsc::sync_channel(1);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (inbox, wake) = (&inbox, wake.clone());
                scope.spawn(move || {
                    let mut buffer = buffer();
                    for _ in 0..EACH {
                        loop {
                            match inbox.give(&mut buffer, Content::Packet(1), 0) {
                                Given::First => drop(wake.try_send(())),
                                Given::Waits => {}
                                Given::Full => {
                                    std::thread::yield_now();
                                    continue;
                                }
                            }
                            break;
                        }
                    }
                });
            }
            let (mut taken, mut empty, mut count) = (VecDeque::new(), Vec::new(), 0);
            while count < 2 * EACH {
                let asleep = woken.recv_timeout(Duration::from_mins(1));
                assert!(
                    asleep.is_ok(),
                    "{count} taken, {} wait and wake nobody",
                    inbox.lock().parcels.len()
                );
                inbox.take(&mut taken, &mut empty);
                count += taken.len();
                empty.extend(taken.drain(..).map(|parcel| parcel.buffer));
            }
        });
    }

    #[test]
    fn an_inbox_is_bounded_keeps_the_order_and_wakes_once() {
        let inbox = Inbox::default();
        let (mut taken, mut empty) = (VecDeque::new(), Vec::new());
        for round in 0..3 {
            for n in 0..bounds::HANDED_PACKETS as u8 {
                let mut buffer = filled(n);
                let given = inbox.give(&mut buffer, Content::Packet(1), 0);
                assert_eq!(given, if n == 0 { Given::First } else { Given::Waits });
                assert_eq!(buffer.len(), BUFFER_LEN);
            }
            let mut one_more = filled(99);
            assert_eq!(inbox.give(&mut one_more, Content::Packet(1), 0), Given::Full);
            assert_eq!(one_more[0], 99, "what finds no room stays where it is");
            inbox.take(&mut taken, &mut empty);
            let order: Vec<u8> = taken.iter().map(|parcel| parcel.buffer[0]).collect();
            assert_eq!(
                order,
                (0..bounds::HANDED_PACKETS as u8).collect::<Vec<_>>(),
                "round {round}"
            );
            empty.extend(taken.drain(..).map(|parcel| parcel.buffer));
            inbox.take(&mut taken, &mut empty);
            assert!(taken.is_empty());
            assert!(inbox.lock().spare.len() <= MAX_SPARE);
        }
    }

    /// Datagrams are handed over before anything about them is verified, so any host can send more
    /// of them than a lane processes.
    #[test]
    fn a_flood_of_datagrams_keeps_no_packet_out() {
        let inbox = Inbox::default();
        let flood = Content::Datagrams {
            from: Endpoint::from(([192, 0, 2, 1], 2121)),
            len: 60_000,
            step: 1_400,
            ecn: 0,
        };
        let given = (0..1_000).filter(|_| inbox.give(&mut filled(1), flood, 0) != Given::Full);
        assert_eq!(given.count(), bounds::HANDED_DATAGRAMS);
        for _ in 0..bounds::HANDED_PACKETS {
            assert_eq!(inbox.give(&mut filled(2), Content::Packet(60_000), 0), Given::Waits);
        }
        let (mut taken, mut empty) = (VecDeque::new(), Vec::new());
        inbox.take(&mut taken, &mut empty);
        assert_eq!(taken.len(), bounds::HANDED_DATAGRAMS + bounds::HANDED_PACKETS);
        // Packets do not crowd out datagrams either.
        while inbox.give(&mut filled(3), Content::Packet(1), 0) != Given::Full {}
        assert_eq!(inbox.give(&mut filled(4), flood, 0), Given::Waits);
    }
}
