//! Handover between lanes: packets and datagrams that one lane reads and another owns.
//!
//! It is needed if the kernel delivers to a lane that is not the owner: a flow whose packets come
//! out of this lane's TUN queue while only the first lane can send them, and datagrams that were
//! coalesced with those of another lane. If only a part of a buffer belongs to another lane, that
//! part is copied. A lane touches another's inbox only here.

use std::collections::VecDeque;
use std::time::Duration;

use weft_packet::{HEADROOM, Outbound};
use weft_wire::virtio::VirtioNetHdr;

use super::Worker;
use crate::bind::{Arrival, Bind};
use crate::device::Device;
use crate::inbox::{Content, Given, Parcel, buffer};
use crate::trace::{Queue as Waits, Stage, Tracer};

/// Duration of one wait for a full inbox, and the number of waits before the batch is dropped: a
/// second in all, as for a socket.
const WAIT: Duration = Duration::from_micros(100);
const MAX_WAITS: u32 = 10_000;
/// A lane's own buffers for handovers.
#[derive(Default)]
pub(super) struct Handover {
    taken: VecDeque<Parcel>,
    empty: Vec<Box<[u8]>>,
    /// The buffer in which datagrams of another lane are collected.
    scratch: Option<Box<[u8]>>,
}

impl<R: Tracer, D: Device, B: Bind> Worker<R, D, B> {
    /// Hands the last read of the TUN to its owner.
    pub(super) fn give_packet(&mut self, owner: u8, len: usize) {
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
    pub(super) fn give_foreign(&mut self, received: &Arrival) {
        if self.lane.foreign().next().is_none() {
            return;
        }
        for owner in 0..self.lanes.len() as u8 {
            if self.lane.foreign().any(|(of, _)| of == owner) {
                self.give_datagrams(owner, received);
            }
        }
    }

    /// Hands packets to the first lane that it alone can send: those for peers that speak WireGuard.
    pub(super) fn give_onward(&mut self) {
        while let Some(packet) = self.lane.poll_onward() {
            let mut scratch = self.handover.scratch.take().unwrap_or_else(buffer);
            let given = match (self.lanes.first(), scratch.get_mut(..packet.len())) {
                (Some(first), Some(room)) => {
                    room.copy_from_slice(&packet);
                    first
                        .inbox
                        .give(&mut scratch, Content::Onward(packet.len()), R::clock())
                }
                _ => Given::Full,
            };
            self.handover.scratch = Some(scratch);
            self.after_giving(0, given, 1);
        }
    }

    fn give_datagrams(&mut self, owner: u8, received: &Arrival) {
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
    pub(super) fn take_handed(&mut self, now: u64) -> bool {
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
            Content::Onward(len) => {
                let packet = parcel.buffer.get(..len).unwrap_or_default();
                self.lane.pass_on(now, packet, &mut self.train);
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
                self.give_onward();
                self.note(Stage::Open, began, inner, len.div_ceil(step.max(1)), 0);
                self.tunnel
                    .write_batch(std::slice::from_ref(&parcel.buffer), self.train.out_mut());
            }
        }
    }
}
