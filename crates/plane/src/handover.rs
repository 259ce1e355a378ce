//! Handover between lanes: packets and datagrams that one lane reads and another owns.
//!
//! It is needed if the kernel delivers to a lane that is not the owner: a flow whose packets come
//! out of this lane's TUN queue while only the first lane can send them, and datagrams that were
//! coalesced with those of another lane. A buffer changes its owner without a copy; if only a part
//! of it belongs to another lane, that part is copied. A lane touches another's inbox only here.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_os::tun::READ_BUFFER_LEN;
use weft_os::udp::{RECEIVE_BUFFER_LEN, Received};
use weft_packet::{HEADROOM, Outbound, bounds};
use weft_wire::virtio::VirtioNetHdr;

use crate::trace::{Queue as Waits, Stage, Tracer};
use crate::worker::Worker;

/// Empty buffers kept for reuse.
const MAX_SPARE: usize = 8;
/// Duration of one wait for a full inbox, and the number of waits before the batch is dropped: a
/// second in all, as for a socket.
const WAIT: Duration = Duration::from_micros(100);
const MAX_WAITS: u32 = 10_000;
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
    buffer: Box<[u8]>,
    content: Content,
    /// When it was handed over, ns, if the giving lane is traced; else 0.
    given: u64,
}

#[derive(Clone, Copy)]
enum Content {
    /// A read of the TUN, of this many bytes.
    Packet(usize),
    /// Datagrams from one address: their bytes behind the headroom, the length `step` of each but
    /// the last, and their ECN bits.
    Datagrams {
        from: SocketAddr,
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
            Content::Packet(_) => self.packets < bounds::HANDED_PACKETS,
            Content::Datagrams { .. } => self.parcels.len() - self.packets < bounds::HANDED_DATAGRAMS,
        }
    }
}

/// The result of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// It is queued; the owner has already been woken.
    Waits,
    /// It is the first in the queue: wake the owner.
    First,
    /// The queue is full.
    Full,
}

impl Inbox {
    /// Queues the buffer and replaces it by an empty one.
    fn give(&self, buffer: &mut Box<[u8]>, content: Content, now_ns: u64) -> Given {
        let mut queue = self.lock();
        if !queue.has_room(content) {
            return Given::Full;
        }
        queue.packets += usize::from(matches!(content, Content::Packet(_)));
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
    fn take(&self, into: &mut VecDeque<Parcel>, empty: &mut Vec<Box<[u8]>>) {
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

/// A lane's own buffers for handovers.
#[derive(Default)]
pub(crate) struct Handover {
    taken: VecDeque<Parcel>,
    empty: Vec<Box<[u8]>>,
    /// The buffer in which datagrams of another lane are collected.
    scratch: Option<Box<[u8]>>,
}

impl<R: Tracer> Worker<R> {
    /// Hands the last read of the TUN to its owner.
    pub(crate) fn give_packet(&mut self, owner: u8, len: usize) {
        let lanes = self.lanes.clone();
        let Some(lane) = lanes.get(usize::from(owner)) else {
            return;
        };
        let began = R::clock();
        let mut given = lane.inbox.give(&mut self.read, Content::Packet(len), began);
        let full = given == Given::Full;
        // As with a full socket, the backlog moves to the TUN's queue and the applications behind
        // it (L16). No deadlock is possible: the first lane hands over no packets, and no lane
        // waits with datagrams.
        for _ in 0..MAX_WAITS {
            if given != Given::Full {
                break;
            }
            self.train.out_mut().counters.handed_waits += 1;
            std::thread::sleep(WAIT);
            given = lane.inbox.give(&mut self.read, Content::Packet(len), R::clock());
        }
        if R::ON && full {
            let tracer = &mut self.train.out_mut().tracer;
            tracer.waited(Waits::FullInbox, R::clock() - began);
        }
        self.after_giving(owner, given, 1);
    }

    /// Hands those datagrams of the last receive that belong to other lanes to their owners.
    pub(crate) fn give_foreign(&mut self, received: &Received) {
        if self.lane.foreign().next().is_none() {
            return;
        }
        for owner in 0..self.lanes.len() as u8 {
            if self.lane.foreign().any(|(of, _)| of == owner) {
                self.give_datagrams(owner, received);
            }
        }
    }

    fn give_datagrams(&mut self, owner: u8, received: &Received) {
        let Some(lane) = self.lanes.get(usize::from(owner)) else {
            return;
        };
        let mut scratch = self.handover.scratch.take().unwrap_or_else(buffer);
        let mut end = HEADROOM;
        // All datagrams have one length, except the last of the whole receive; if it is in here, it
        // is the last here too.
        for (_, run) in self.lane.foreign().filter(|(of, _)| *of == owner) {
            if let Some(room) = scratch.get_mut(end..end + run.len()) {
                room.copy_from_slice(run);
                end += run.len();
            }
        }
        let len = end - HEADROOM;
        let content = Content::Datagrams {
            from: received.from,
            len,
            step: received.segment_size,
            ecn: received.ecn,
        };
        let given = lane.inbox.give(&mut scratch, content, R::clock());
        self.handover.scratch = Some(scratch);
        self.after_giving(owner, given, len.div_ceil(received.segment_size.max(1)) as u64);
    }

    fn after_giving(&mut self, owner: u8, given: Given, count: u64) {
        match (given, self.lanes.get(usize::from(owner))) {
            (Given::First, Some(lane)) => lane.wake.wake(),
            (Given::Full, _) => self.train.out_mut().counters.handed_dropped += count,
            _ => {}
        }
    }

    /// Processes everything that other lanes handed over. Returns whether there was anything.
    pub(crate) fn take_handed(&mut self, now: u64) -> bool {
        self.shared
            .inbox
            .take(&mut self.handover.taken, &mut self.handover.empty);
        let any = !self.handover.taken.is_empty();
        while let Some(mut parcel) = self.handover.taken.pop_front() {
            self.train.out_mut().counters.handed_in += 1;
            if R::ON && parcel.given > 0 {
                let waited = R::clock().saturating_sub(parcel.given);
                self.train.out_mut().tracer.waited(Waits::Inbox, waited);
            }
            self.take_parcel(now, &mut parcel);
            self.handover.empty.push(parcel.buffer);
        }
        any
    }

    fn take_parcel(&mut self, now: u64, parcel: &mut Parcel) {
        let (began, inner) = self.mark();
        match parcel.content {
            Content::Packet(len) => {
                let read = parcel.buffer.get(..len).unwrap_or_default();
                if let Ok((header, packet)) = VirtioNetHdr::parse(read)
                    && let Outbound::HandOver(_) = self.lane.send_packet(now, header, packet, &mut self.train)
                {
                    // Only the first lane is handed packets, and it hands none over.
                    self.train.out_mut().counters.handed_dropped += 1;
                }
                self.note(Stage::Route, began, inner, 1, 0);
            }
            Content::Datagrams { from, len, step, ecn } => {
                let room = parcel.buffer.get_mut(..HEADROOM + len).unwrap_or_default();
                let tunnel = &mut self.tunnel;
                self.lane.outer_ecn(ecn);
                self.lane
                    .inbound_train(now, from, room, step, &mut self.train, |packet, range, checksum| {
                        tunnel.push(0, range, packet, checksum);
                    });
                self.note(Stage::Open, began, inner, len.div_ceil(step.max(1)), 0);
                self.tunnel
                    .write_batch(std::slice::from_ref(&parcel.buffer), self.train.out_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
            from: SocketAddr::from(([192, 0, 2, 1], 2121)),
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
