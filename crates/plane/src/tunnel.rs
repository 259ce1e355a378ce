//! The TUN queue of a lane: batches of received packets, coalesced and written.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::time::Duration;

use weft_os::udp::is_transient;
use weft_packet::checksum::Checksum;
use weft_packet::coalesce::{BatchFull, Coalescer, Group, MAX_SEGMENTS};
use weft_wire::virtio::VirtioNetHdr;

use crate::bind::Bind;
use crate::counters::PlaneCounters;
use crate::device::Device;
use crate::trace::{Stage, Tracer};
use crate::underlay::Underlay;

/// Maximum number of packets in one receive: the limit of segments in one send of the kernel
/// (UDP_MAX_SEGMENTS; 64 before Linux 6.9).
const MAX_RECEIVED: usize = 128;
/// Duration of one wait for a full TUN.
const WAIT: Duration = Duration::from_millis(10);
/// How long the TUN may accept nothing before the lane stops waiting for it, ns. From then on each
/// write is tried once, until one succeeds.
const PATIENCE: u64 = 1_000_000_000;
/// Maximum number of slices of one write: virtio header, header, and a payload of each packet.
const MAX_SLICES: usize = 2 + MAX_SEGMENTS;
/// Packets in one write up to which a short list of slices suffices, so that a single packet does
/// not pay for a long one.
const FEW: usize = 6;

/// The position of a packet in the batch's buffers.
#[derive(Clone)]
struct Place {
    buffer: usize,
    range: Range<usize>,
}

/// Writes packets to the TUN.
pub(crate) struct Tunnel<D> {
    pub(crate) tun: D,
    coalescer: Coalescer,
    places: Vec<Place>,
    /// Packets that did not fit in the batch and are not counted yet.
    refused: u64,
    /// When the TUN began to refuse for lack of room, if it has accepted nothing since.
    full_since: Option<u64>,
}

impl<D: Device> Tunnel<D> {
    /// A tunnel for batches of `receives` receives.
    pub(crate) fn new(tun: D, receives: usize) -> Self {
        let (offloads, batch) = (tun.offloads(), receives * MAX_RECEIVED);
        let coalescer = if offloads.tcp {
            Coalescer::new(batch, offloads.udp)
        } else {
            Coalescer::joining_nothing(batch)
        };
        Self {
            tun,
            coalescer,
            places: Vec::with_capacity(batch),
            refused: 0,
            full_since: None,
        }
    }

    /// Adds the packet at `range` of `buffers[buffer]`, which must stay unchanged until
    /// [`Tunnel::write_batch`].
    pub(crate) fn push(&mut self, buffer: usize, range: Range<usize>, packet: &[u8], checksum: Checksum) {
        match self.coalescer.push(self.places.len() as u32, packet, checksum) {
            Ok(()) => self.places.push(Place { buffer, range }),
            Err(BatchFull) => self.refused += 1,
        }
    }

    /// Writes the batch and empties it.
    pub(crate) fn write_batch<R: Tracer, B: Bind>(&mut self, buffers: &[Box<[u8]>], io: &mut Underlay<R, B>) {
        io.counters.tun_write_dropped += std::mem::take(&mut self.refused);
        if self.places.is_empty() {
            return;
        }
        for group in self.coalescer.groups() {
            let began = R::clock();
            let packets = group.packet_count();
            io.counters.tun_coalesced += u64::from(packets > 1);
            let virtio = group.virtio().to_bytes();
            let (mut few, mut many);
            let slices: &mut [IoSlice<'_>] = if packets <= FEW {
                few = [IoSlice::new(&[]); 2 + FEW];
                &mut few
            } else {
                many = [IoSlice::new(&[]); MAX_SLICES];
                &mut many
            };
            let count = gather(&group, &virtio, &self.places, buffers, slices);
            let began = io.tracer.note(Stage::Coalesce, began, 0, 0, 0);
            let bytes = write(
                &self.tun,
                &mut self.full_since,
                &slices[..count],
                packets,
                &mut io.counters,
            );
            io.tracer.note(Stage::TunWrite, began, 0, packets, bytes);
        }
        self.coalescer.clear();
        self.places.clear();
    }

    /// Writes one whole IP packet.
    pub(crate) fn write_one<R: Tracer, B: Bind>(&mut self, packet: &[u8], io: &mut Underlay<R, B>) {
        let virtio = VirtioNetHdr::default().to_bytes();
        let slices = [IoSlice::new(&virtio), IoSlice::new(packet)];
        let began = R::clock();
        let bytes = write(&self.tun, &mut self.full_since, &slices, 1, &mut io.counters);
        io.tracer.note(Stage::TunWrite, began, 0, 1, bytes);
    }
}

/// Collects the slices of one write and returns their number. A group never exceeds `slices`.
fn gather<'b>(
    group: &Group<'b>,
    virtio: &'b [u8],
    places: &[Place],
    buffers: &'b [Box<[u8]>],
    slices: &mut [IoSlice<'b>],
) -> usize {
    let pieces = group.pieces().filter_map(|piece| {
        let place = places.get(piece.packet as usize)?;
        let packet = buffers.get(place.buffer)?.get(place.range.clone())?;
        packet.get(piece.range)
    });
    let all = [virtio, group.header()].into_iter().chain(pieces);
    let mut count = 0;
    for (slot, bytes) in slices.iter_mut().zip(all) {
        *slot = IoSlice::new(bytes);
        count += 1;
    }
    count
}

/// Writes a group of `packets` packets, waiting for room if needed. Returns the bytes written.
fn write<D: Device>(
    tun: &D,
    full_since: &mut Option<u64>,
    slices: &[IoSlice<'_>],
    packets: usize,
    counters: &mut PlaneCounters,
) -> usize {
    counters.tun_writes += 1;
    loop {
        match tun.writev(slices) {
            Ok(bytes) => {
                *full_since = None;
                return bytes;
            }
            Err(error) if is_transient(&error) => {
                let now = tun.now();
                if now.saturating_sub(*full_since.get_or_insert(now)) >= PATIENCE {
                    counters.tun_write_dropped += packets as u64;
                    return 0;
                }
                counters.tun_write_waits += 1;
                tun.wait_for_room(WAIT);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                counters.tun_write_failed += packets as u64;
                return 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::os::fd::{AsFd, BorrowedFd};

    use weft_os::tun::Offloads;
    use weft_os::udp::UdpSocket;

    use super::*;
    use crate::trace::Off;

    const WOULD_BLOCK: i32 = 11;
    const IO: i32 = 5;

    /// Accepts every write except for the scripted failures; its clock advances while it waits.
    #[derive(Default)]
    struct Fake {
        failures: RefCell<VecDeque<i32>>,
        always: Cell<Option<i32>>,
        taken: RefCell<Vec<Vec<u8>>>,
        pieces: Cell<usize>,
        now: Cell<u64>,
    }

    impl AsFd for Fake {
        fn as_fd(&self) -> BorrowedFd<'_> {
            panic!("no thread waits for it")
        }
    }

    impl Device for &Fake {
        fn offloads(&self) -> Offloads {
            Offloads {
                checksum: true,
                tcp: true,
                udp: true,
            }
        }

        fn read(&self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn writev(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
            let failure = self.failures.borrow_mut().pop_front().or(self.always.get());
            if let Some(code) = failure {
                return Err(io::Error::from_raw_os_error(code));
            }
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.pieces.set(parts.len());
            self.taken.borrow_mut().push(bytes);
            Ok(0)
        }

        fn wait_for_room(&self, time: Duration) {
            self.now.set(self.now.get() + time.as_nanos() as u64);
        }

        fn now(&self) -> u64 {
            self.now.get()
        }
    }

    const PACKET: usize = 40 + 8 + 100;

    /// An IPv6 packet of UDP with the number `n` in its payload, whose checksum the kernel is to
    /// complete.
    fn packet(n: u8) -> Vec<u8> {
        let mut packet = vec![0; PACKET];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&108_u16.to_be_bytes());
        (packet[6], packet[7]) = (17, 64);
        (packet[8], packet[24]) = (0xfd, 0xfd);
        packet[40..44].copy_from_slice(&[0, 1, 0, 2]);
        packet[44..46].copy_from_slice(&108_u16.to_be_bytes());
        packet[46] = 1;
        packet[48..].fill(n);
        packet
    }

    /// Passes a batch of packets of one flow to the tunnel, which writes them in one call.
    fn write_train(tunnel: &mut Tunnel<&Fake>, io: &mut Underlay<Off, UdpSocket>, packets: u8) {
        let buffer: Vec<u8> = (0..packets).flat_map(packet).collect();
        let buffers = [buffer.into_boxed_slice()];
        for n in 0..usize::from(packets) {
            let range = n * PACKET..(n + 1) * PACKET;
            tunnel.push(0, range.clone(), &buffers[0][range], Checksum::Partial);
        }
        tunnel.write_batch(&buffers, io);
    }

    fn io() -> Underlay<Off, UdpSocket> {
        Underlay::new(Vec::new())
    }

    #[test]
    fn packets_refused_by_a_full_interface_are_written_later() {
        let fake = Fake::default();
        fake.failures.replace([WOULD_BLOCK; 50].into());
        let (mut tunnel, mut io) = (Tunnel::new(&fake, 4), io());
        write_train(&mut tunnel, &mut io, 64);
        assert_eq!(fake.pieces.get(), MAX_SLICES, "the longest train uses all of the list");
        tunnel.write_one(&packet(1), &mut io);
        let written: Vec<u8> = fake.taken.borrow().iter().flatten().copied().collect();
        assert_eq!(written.len(), 10 + 48 + 64 * 100 + 10 + PACKET);
        let payload: Vec<u8> = (0..64).flat_map(|n| [n; 100]).collect();
        assert!(written[58..].starts_with(&payload));
        let expected = PlaneCounters {
            tun_writes: 2,
            tun_coalesced: 1,
            tun_write_waits: 50,
            ..PlaneCounters::default()
        };
        assert_eq!(io.counters, expected);
    }

    #[test]
    fn a_lost_super_packet_counts_as_its_packets() {
        let fake = Fake::default();
        let (mut tunnel, mut io) = (Tunnel::new(&fake, 4), io());
        fake.failures.replace([IO].into());
        write_train(&mut tunnel, &mut io, 45);
        assert_eq!((io.counters.tun_write_failed, io.counters.tun_write_dropped), (45, 0));
        fake.always.set(Some(WOULD_BLOCK));
        write_train(&mut tunnel, &mut io, 44);
        let waited = fake.now.get();
        assert_eq!(waited, PATIENCE);
        // An interface that accepted nothing for a second is not waited for again.
        write_train(&mut tunnel, &mut io, 5);
        tunnel.write_one(&packet(1), &mut io);
        assert_eq!(fake.now.get(), waited);
        assert_eq!((io.counters.tun_write_failed, io.counters.tun_write_dropped), (45, 50));
        assert!(fake.taken.borrow().is_empty());
        fake.always.set(None);
        write_train(&mut tunnel, &mut io, 3);
        assert_eq!(fake.taken.borrow()[0].len(), 10 + 48 + 3 * 100);
        assert_eq!((io.counters.tun_write_failed, io.counters.tun_write_dropped), (45, 50));
    }
}
