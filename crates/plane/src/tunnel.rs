//! The TUN queue of a lane: batches of received packets, coalesced and written.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use weft_os::poll::wait_writable;
use weft_os::tun::Tun;
use weft_packet::checksum::Checksum;
use weft_packet::coalesce::{BatchFull, Coalescer, Group};
use weft_wire::virtio::VirtioNetHdr;

use crate::counters::PlaneCounters;
use crate::trace::{Stage, Tracer};
use crate::underlay::Underlay;
use crate::worker::TURN;

/// Packets in one receive at the most: what the kernel cuts one send into (UDP_MAX_SEGMENTS; 64 before Linux 6.9).
const MAX_RECEIVED: usize = 128;
/// Packets in a batch: what the receives of one turn can bring.
const BATCH: usize = TURN * MAX_RECEIVED;
/// Longest wait for a TUN that is full.
const WAIT: Duration = Duration::from_millis(100);

/// Where a packet of the batch lies.
#[derive(Clone)]
struct Place {
    buffer: usize,
    range: Range<usize>,
}

/// Writes packets to the TUN.
pub(crate) struct Tunnel {
    pub(crate) tun: Tun,
    coalescer: Coalescer,
    places: Vec<Place>,
    /// Packets that the batch had no room for, and that are not counted yet.
    refused: u64,
}

impl Tunnel {
    pub(crate) fn new(tun: Tun) -> Self {
        let offloads = tun.offloads();
        let coalescer = if offloads.tcp {
            Coalescer::new(BATCH, offloads.udp)
        } else {
            Coalescer::joining_nothing(BATCH)
        };
        Self {
            tun,
            coalescer,
            places: Vec::with_capacity(BATCH),
            refused: 0,
        }
    }

    /// Adds the packet at `range` of `buffers[buffer]`, which must stay as it is until [`Tunnel::write_batch`].
    pub(crate) fn push(&mut self, buffer: usize, range: Range<usize>, packet: &[u8], checksum: Checksum) {
        match self.coalescer.push(self.places.len() as u32, packet, checksum) {
            Ok(()) => self.places.push(Place { buffer, range }),
            Err(BatchFull) => self.refused += 1,
        }
    }

    /// Writes the batch, and forgets it.
    pub(crate) fn write_batch<R: Tracer>(&mut self, buffers: &[Box<[u8]>], io: &mut Underlay<R>) {
        if self.places.is_empty() {
            return;
        }
        for group in self.coalescer.groups() {
            let began = R::clock();
            let mut slices = Vec::with_capacity(2 + group.packet_count());
            let virtio = group.virtio().to_bytes();
            slices.push(IoSlice::new(&virtio));
            slices.push(IoSlice::new(group.header()));
            gather(&group, &self.places, buffers, &mut slices);
            io.counters.tun_coalesced += u64::from(group.packet_count() > 1);
            let began = io.tracer.note(Stage::Coalesce, began, 0, 0, 0);
            let bytes = write(&self.tun, &slices, &mut io.counters);
            io.tracer.note(Stage::TunWrite, began, 0, group.packet_count(), bytes);
        }
        io.counters.tun_write_failed += std::mem::take(&mut self.refused);
        self.coalescer.clear();
        self.places.clear();
    }

    /// Writes one whole IP packet.
    pub(crate) fn write_one<R: Tracer>(&self, packet: &[u8], io: &mut Underlay<R>) {
        let virtio = VirtioNetHdr::default().to_bytes();
        let slices = [IoSlice::new(&virtio), IoSlice::new(packet)];
        let began = R::clock();
        let bytes = write(&self.tun, &slices, &mut io.counters);
        io.tracer.note(Stage::TunWrite, began, 0, 1, bytes);
    }
}

fn gather<'b>(group: &Group<'_>, places: &[Place], buffers: &'b [Box<[u8]>], slices: &mut Vec<IoSlice<'b>>) {
    for piece in group.pieces() {
        let place = places.get(piece.packet as usize);
        let packet = place.and_then(|p| buffers.get(p.buffer)?.get(p.range.clone()));
        if let Some(bytes) = packet.and_then(|packet| packet.get(piece.range)) {
            slices.push(IoSlice::new(bytes));
        }
    }
}

/// Writes, waiting for room if need be (L27), and returns how many bytes.
fn write(tun: &Tun, slices: &[IoSlice<'_>], counters: &mut PlaneCounters) -> usize {
    counters.tun_writes += 1;
    let written = match tun.writev(slices) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let _ = wait_writable(tun, WAIT);
            tun.writev(slices)
        }
        written => written,
    };
    counters.tun_write_failed += u64::from(written.is_err());
    written.unwrap_or(0)
}
