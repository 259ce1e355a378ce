//! Encapsulation: the packets of one TUN read, each placed in a frame and sealed there, in one loop.

use crate::counters::{Counters, DropReason};
use crate::paths::Paths;
use crate::split::Splitter;
use crate::train::{Train, Transmit};

/// One way to make frames of packets.
pub(crate) trait Encapsulate {
    /// Writes the part of the splitter's next packet that has to be written to its place in `slot`,
    /// which begins with the headroom of [`Train::reserve_with_headroom`]. Returns `None` if there
    /// is no further packet.
    fn place<'s>(&self, splitter: &mut Splitter<'s>, slot: &mut [u8]) -> Option<Placed<'s>>;

    /// Seals a packet where it was placed, and returns the length of the frame, or `None` if
    /// nothing more may be sealed under these keys.
    fn seal(&mut self, now: u64, packet: &Placed<'_>, slot: &mut [u8]) -> Option<usize>;
}

/// A packet in its frame, before sealing.
pub(crate) struct Placed<'a> {
    /// The length of the packet with its IP header, in bytes.
    pub(crate) len: usize,
    /// The end of the packet in the frame.
    pub(crate) end: usize,
    /// The last bytes of the packet, which are not in the frame.
    pub(crate) rest: &'a [u8],
    /// The flags of the frame.
    pub(crate) flags: u8,
}

/// The frames that were sent of one TUN read.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    /// The length of the frames, in bytes.
    pub(crate) bytes: usize,
    /// The length of the packets in them, in bytes.
    pub(crate) carried: usize,
}

/// Where the frames of one TUN read go.
pub(crate) struct Sealing<'a, T> {
    /// The present time, in ms.
    pub(crate) now: u64,
    pub(crate) paths: &'a mut Paths,
    pub(crate) counters: &'a mut Counters,
    pub(crate) train: &'a mut Train<T>,
}

impl<T: Transmit> Sealing<'_, T> {
    /// Seals and sends the splitter's packets in frames of at most `max_frame` bytes.
    #[inline]
    pub(crate) fn all<E: Encapsulate>(self, frames: &mut E, mut splitter: Splitter<'_>, max_frame: usize) -> Sent {
        let Self {
            now,
            paths,
            counters,
            train,
        } = self;
        let mut sent = Sent::default();
        loop {
            let began = T::clock();
            let slot = train.reserve_with_headroom(max_frame);
            let Some(packet) = frames.place(&mut splitter, slot) else {
                return sent;
            };
            let split = T::clock();
            let Some(len) = frames.seal(now, &packet, slot) else {
                counters.drops.count(DropReason::EpochSpent);
                return sent;
            };
            train.out_mut().sealed(split - began, T::clock() - split);
            sent.frames += 1;
            sent.bytes += len;
            sent.carried += packet.len;
            paths.commit(train, counters, len);
        }
    }
}
