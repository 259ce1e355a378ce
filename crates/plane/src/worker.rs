//! A lane's thread: it waits, processes batches of both directions alternately, and blocks neither
//! for long.

mod handover;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use weft_contract::Command;
use weft_os::clock::boottime_ms;
use weft_os::poll::{Events, Interest, Poller, Timer};
use weft_os::tun::VNET_HEADER_LEN;
use weft_packet::{HEADROOM, Lane, MAX_TRAIN_BYTES, MAX_TRAIN_SEGMENTS, Outbound, Train};
use weft_wire::virtio::VirtioNetHdr;

use self::handover::Handover;
use crate::bind::Bind;
use crate::counters::{Losses, PlaneCounters, Snapshot};
use crate::device::Device;
use crate::inbox;
use crate::priority::Priority;
use crate::setup::{LaneSetup, ReportSink};
use crate::shared::Shared;
use crate::trace::{Off, On, Queue, Stage, Tracer};
use crate::tunnel::Tunnel;
use crate::underlay::Underlay;

/// Receives, or reads of super-packets from the TUN, before the other direction is served. Up to 64
/// KiB each: more would delay acknowledgements, and with them the sender; fewer would cost more
/// rounds (docs/experiments/2026-11-21-turns.md). For small packets the number of reads is larger,
/// see [`goes_on`].
const READS: usize = 4;
/// Rounds before samples are checked.
const ROUNDS: usize = 16;
/// Datagrams of one receive between two checks for commands and reports. For the TUN the interval
/// is one read, which is a packet or a super-packet of 64 KiB.
const AT_ONCE: usize = 32;
/// Interval at which activity and counters are published while the lane is active.
const SAMPLE_MS: u64 = 250;

/// Of sockets in the set of sockets, whose events are not read: any wakes for all.
const FURTHER_TOKEN: u64 = u64::MAX;

const TUN_TOKEN: u64 = 0;
const DATAGRAMS_TOKEN: u64 = 1;
const WAKE_TOKEN: u64 = 2;
const SAMPLE_TOKEN: u64 = 3;

/// Runs a lane until it is stopped, or its TUN is gone. `preferred`: it may raise its priority.
pub(crate) fn run<D: Device, B: Bind>(mut worker: Worker<Off, D, B>, preferred: bool) {
    if preferred {
        worker.priority = Priority::ask();
    }
    let mut unwatched = Some(worker);
    while let Some(worker) = unwatched.and_then(Worker::run) {
        unwatched = worker.retraced::<On>().run().map(Worker::retraced);
    }
}

/// What a lane's thread owns, with a device `D`, sockets `B` and a tracer `R`.
pub(crate) struct Worker<R, D, B> {
    lane: Lane,
    tunnel: Tunnel<D>,
    train: Train<Underlay<R, B>>,
    reports: ReportSink,
    shared: Arc<Shared>,
    /// All lanes, including this one, in the order of their numbers.
    lanes: Arc<[Arc<Shared>]>,
    handover: Handover,
    poller: Poller,
    /// The sockets, a set within `poller`: through it, a datagram wakes this thread like any other
    /// event. A socket wakes with the hint that its waker is about to sleep, so the scheduler may
    /// queue this thread behind the waker, on the CPU of a sender or an interrupt, which keeps
    /// running (docs/decisions/0017-waking.md).
    datagrams: Poller,
    receive: Vec<Box<[u8]>>,
    read: Box<[u8]>,
    commands: VecDeque<Command>,
    next_sample: u64,
    /// Ends the wait when the next sample is due. Set once for each sample, not for each wait.
    sampler: Timer,
    sampler_set: bool,
    priority: Priority,
    /// Whether anything happened since the last sample.
    active: bool,
    losses: Losses,
}

impl<R: Tracer, D: Device, B: Bind> Worker<R, D, B> {
    pub(crate) fn new(setup: LaneSetup<D, B>, shared: Arc<Shared>, lanes: Arc<[Arc<Shared>]>) -> io::Result<Self> {
        let (poller, datagrams) = (Poller::new()?, Poller::new()?);
        for (token, socket) in (0..).zip(&setup.sockets) {
            datagrams.add(socket, token, Interest::Readable)?;
        }
        poller.add(&datagrams, DATAGRAMS_TOKEN, Interest::Readable)?;
        poller.add(&setup.tun, TUN_TOKEN, Interest::Readable)?;
        poller.add(&shared.wake, WAKE_TOKEN, Interest::Readable)?;
        let sampler = Timer::new()?;
        poller.add(&sampler, SAMPLE_TOKEN, Interest::Readable)?;
        Ok(Self {
            lane: setup.lane,
            tunnel: Tunnel::new(setup.tun, READS),
            train: Train::new(Underlay::new(setup.sockets), setup.batch),
            reports: setup.reports,
            shared,
            lanes,
            handover: Handover::default(),
            poller,
            datagrams,
            receive: (0..READS).map(|_| inbox::buffer()).collect(),
            read: inbox::buffer(),
            commands: VecDeque::new(),
            next_sample: 0,
            sampler,
            sampler_set: false,
            priority: Priority::default(),
            active: true,
            losses: Losses::default(),
        })
    }

    /// Switches tracing on or off.
    fn retraced<N: Tracer>(self) -> Worker<N, D, B> {
        self.shared.publish_trace(None);
        Worker {
            lane: self.lane,
            tunnel: self.tunnel,
            train: self.train.redirect(Underlay::retraced),
            reports: self.reports,
            shared: self.shared,
            lanes: self.lanes,
            handover: self.handover,
            poller: self.poller,
            datagrams: self.datagrams,
            receive: self.receive,
            read: self.read,
            commands: self.commands,
            next_sample: 0,
            sampler: self.sampler,
            sampler_set: self.sampler_set,
            priority: self.priority,
            active: true,
            losses: self.losses,
        }
    }

    /// Returns `None` when it is stopped, and itself when tracing starts or ends.
    fn run(mut self) -> Option<Self> {
        let mut events = Events::with_capacity(16);
        loop {
            // Read before the commands: those queued before the stop are still executed.
            let stopping = self.shared.stopping();
            if self.shared.traced() != R::ON && !stopping {
                return Some(self);
            }
            let (began, inner) = self.mark();
            let now = boottime_ms();
            self.carry_out(now);
            if self.take_handed(now) {
                self.active = true;
                self.finish_round();
            }
            if stopping {
                break;
            }
            self.sample(now);
            let began = self.note(Stage::Control, began, inner, 0, 0);
            let waited = self.set_sampler(now).and_then(|()| self.poller.wait(&mut events, None));
            if let Err(error) = waited {
                tracing::error!(%error, "the packet thread cannot wait for its sockets and ends");
                break;
            }
            self.note(Stage::Wait, began, 0, 0, 0);
            let mut packets = false;
            for event in events.iter() {
                match event.token {
                    WAKE_TOKEN => drop(self.shared.wake.drain()),
                    SAMPLE_TOKEN => self.sampler_set = !self.sampler.drain(),
                    _ => packets = true,
                }
            }
            if packets && self.move_packets().is_err() {
                // Packets that were read before.
                self.train.flush();
                tracing::error!("the TUN interface is gone and the packet thread ends");
                break;
            }
        }
        self.publish();
        None
    }

    /// The start of a stage: the time, and the time of all stages so far, for [`Self::note`].
    #[inline(always)]
    fn mark(&self) -> (u64, u64) {
        (R::clock(), self.train.out().tracer.inner())
    }

    #[inline(always)]
    fn note(&mut self, stage: Stage, since: u64, inner: u64, packets: usize, bytes: usize) -> u64 {
        let tracer = &mut self.train.out_mut().tracer;
        tracer.note(stage, since, inner, packets, bytes)
    }

    fn carry_out(&mut self, now: u64) {
        if R::ON
            && let Some(ns) = self.shared.take_command_wait()
        {
            self.train.out_mut().tracer.waited(Queue::Commands, ns);
        }
        for change in self.shared.take_commands(&mut self.commands) {
            let further = self.train.out_mut().further();
            further.apply(change, &self.datagrams, FURTHER_TOKEN);
        }
        while let Some(command) = self.commands.pop_front() {
            self.active = true;
            self.lane.apply(now, command, &mut self.train);
        }
        self.finish_round();
    }

    /// Processes small batches of both directions alternately while there are full ones. An error
    /// means that the TUN is gone.
    fn move_packets(&mut self) -> io::Result<()> {
        self.active = true;
        for _ in 0..ROUNDS {
            let (now, mut more) = (boottime_ms(), false);
            for socket in 0..self.train.out().readable() {
                more |= self.wire_to_tun(now, socket);
            }
            more |= self.tun_to_wire(now)?;
            let (began, inner) = self.mark();
            self.take_handed(now);
            self.finish_round();
            self.note(Stage::Control, began, inner, 0, 0);
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Moves a batch from one socket to the TUN. Returns true if there may be more.
    fn wire_to_tun(&mut self, now: u64, socket: usize) -> bool {
        let mut more = true;
        for at in 0..self.receive.len() {
            let began = R::clock();
            let Some(received) = self.train.out().recv(socket, &mut self.receive[at][HEADROOM..]) else {
                self.note(Stage::Wait, began, 0, 0, 0);
                more = false;
                break;
            };
            let count = received.len.div_ceil(received.segment_size.max(1));
            self.note(Stage::UdpReceive, began, 0, count, received.len);
            let (began, inner) = self.mark();
            let (mut coalesce, passed_on) = (0, self.lane.counters().passed_on());
            for part in parts(received.len, received.segment_size) {
                let room = self.receive[at].get_mut(part.start..HEADROOM + part.end);
                let tunnel = &mut self.tunnel;
                self.lane.outer_ecn(received.ecn);
                self.lane.inbound_train(
                    now,
                    received.from,
                    room.unwrap_or_default(),
                    received.segment_size,
                    &mut self.train,
                    |packet, range, checksum| {
                        let began = R::clock();
                        let range = part.start + range.start..part.start + range.end;
                        tunnel.push(at, range, packet, checksum);
                        coalesce += R::clock() - began;
                    },
                );
                self.give_foreign(&received);
                self.give_onward();
                self.attend(now);
            }
            // Frames that do not open do not raise the priority, so a flood gains nothing.
            if self.lane.counters().passed_on() != passed_on {
                self.priority.moved(received.len);
            }
            self.train.out_mut().tracer.coalesced(coalesce);
            self.note(Stage::Open, began, inner, count, 0);
        }
        self.tunnel.write_batch(&self.receive, self.train.out_mut());
        more
    }

    /// Moves a batch from the TUN to the wire. Returns true if there may be more. An error other
    /// than "would block" means that the TUN is gone.
    fn tun_to_wire(&mut self, now: u64) -> io::Result<bool> {
        let (mut reads, mut bytes, waits) = (0, 0, self.waits());
        // A send that waited for room has delayed the receive direction, so the round ends sooner.
        while goes_on(reads, bytes) && (reads < READS || self.waits() == waits) {
            let began = R::clock();
            let len = match self.tunnel.tun.read(&mut self.read) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    self.note(Stage::Wait, began, 0, 0, 0);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            };
            (reads, bytes) = (reads + 1, bytes + len);
            self.priority.moved(len);
            self.train.out_mut().counters.tun_reads += 1;
            debug_assert!(len >= VNET_HEADER_LEN);
            let read = R::clock();
            let (inner, split) = (self.mark().1, self.train.out().tracer.split());
            if let Ok((header, packet)) = VirtioNetHdr::parse(&self.read[..len])
                && let Outbound::HandOver(owner) = self.lane.outbound(now, header, packet, &mut self.train)
            {
                self.give_packet(owner, len);
            }
            self.attend(now);
            self.note(Stage::Route, read, inner, 1, 0);
            let packets = self.train.out().tracer.split() - split;
            self.train
                .out_mut()
                .tracer
                .read(read - began, packets, len - VNET_HEADER_LEN);
        }
        Ok(true)
    }

    /// Between two pieces of bulk: executes commands of the core, and passes reports to it.
    #[inline]
    fn attend(&mut self, now: u64) {
        if self.shared.commands_wait() {
            self.carry_out(now);
        } else if self.lane.has_reports() {
            self.offer_reports();
        }
    }

    /// Number of waits for room so far: in a socket, or in another lane's inbox.
    fn waits(&self) -> u64 {
        let counters = &self.train.out().counters;
        counters.send_waits + counters.send_waits_device + counters.handed_waits
    }

    fn finish_round(&mut self) {
        self.train.flush();
        while let Some(packet) = self.lane.poll_reply() {
            self.tunnel.write_one(&packet, self.train.out_mut());
        }
        self.offer_reports();
    }

    /// Passes reports to the core. A full queue means that the core is far behind. A dropped report
    /// has a successor: handshakes are repeated, queued packets reported each second, activity
    /// sampled. Proofs have none, so they stay here until there is room.
    fn offer_reports(&mut self) {
        while let Some(report) = self.lane.poll_report() {
            let mut waits = false;
            for refused in (self.reports)(report) {
                waits |= self.lane.return_report(refused);
            }
            if waits {
                // The next sample offers the report again.
                self.active = true;
                break;
            }
        }
    }

    /// Sets the timer so that the wait ends when the next sample is due, if there is one.
    fn set_sampler(&mut self, now: u64) -> io::Result<()> {
        if self.active && !self.sampler_set {
            self.sampler
                .set(Duration::from_millis(self.next_sample.saturating_sub(now)))?;
            self.sampler_set = true;
        }
        Ok(())
    }

    fn sample(&mut self, now: u64) {
        if !self.active || now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE_MS;
        // A client that traces also needs samples without activity.
        self.active = R::ON;
        self.priority.review();
        self.lane.sample(now);
        self.active |= self.lane.gives_up_soon();
        self.finish_round();
        self.losses.tell(now, &self.train.out().counters);
        self.publish();
    }

    fn publish(&self) {
        let underlay = self.train.out();
        if R::ON {
            self.shared.publish_trace(underlay.tracer.totals());
        }
        self.shared.publish(Snapshot {
            lane: *self.lane.counters(),
            plane: PlaneCounters {
                commands_dropped: self.shared.commands_dropped(),
                ..underlay.counters
            },
            sockets: underlay.socket_counters(),
            preferred: self.priority.granted,
            trains_refused: !underlay.sockets().all(Bind::sends_trains),
        });
    }
}

/// Whether a round that has read the TUN `reads` times, `bytes` bytes in all, reads it again: small
/// packets that wait are read until they fill a train, so that they share its system call.
fn goes_on(reads: usize, bytes: usize) -> bool {
    reads < READS || reads < MAX_TRAIN_SEGMENTS && bytes < MAX_TRAIN_BYTES
}

/// The ranges of the parts of a receive of `len` bytes, of [`AT_ONCE`] datagrams each but the last.
fn parts(len: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    let part = AT_ONCE * step.max(1);
    (0..len).step_by(part).map(move |start| start..len.min(start + part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receive_is_taken_in_parts_of_a_few_datagrams() {
        for (len, step) in [
            (0, 0),
            (1, 0),
            (1_400, 1_400),
            (44 * 1_400 + 7, 1_400),
            (128 * 100, 100),
            (33, 1),
        ] {
            let parts: Vec<_> = parts(len, step).collect();
            assert_eq!(parts.iter().map(ExactSizeIterator::len).sum::<usize>(), len);
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
            assert!(
                parts.iter().all(|part| part.len() <= AT_ONCE * step.max(1)),
                "{len} of {step}"
            );
            assert!(parts.iter().all(|part| part.start % step.max(1) == 0));
        }
    }

    #[test]
    fn a_round_takes_a_few_large_packets_or_a_train_of_small_ones() {
        let reads = |len: usize| (0..).find(|reads| !goes_on(*reads, reads * len)).unwrap();
        assert_eq!(
            [65_545, 20_000, 1_300, 100].map(reads),
            [READS, READS, 51, MAX_TRAIN_SEGMENTS]
        );
    }
}
