//! The send batch: datagrams sealed one behind the other into one buffer, so that a train of equal
//! ones leaves in one system call (UDP_SEGMENT).

use weft_contract::Endpoint;
use weft_wire::fast::HEADROOM;

/// The largest train in bytes: the largest payload of an IPv4 datagram, which also bounds
/// UDP_SEGMENT (L20).
pub const MAX_TRAIN_BYTES: usize = 65_507;
/// The number of segments in a train that every kernel with UDP_SEGMENT accepts (L20).
pub const MAX_TRAIN_SEGMENTS: usize = 64;

/// The destination of trains: a socket, or a simulated network.
pub trait Transmit {
    /// Sends `train` to `to`, cut into datagrams of `segment` bytes; the last may be shorter.
    /// `train` is never empty.
    fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize);

    /// Returns nanoseconds on a monotonic clock if the packet path is measured; otherwise 0, at no
    /// cost.
    #[inline(always)]
    fn clock() -> u64
    where
        Self: Sized,
    {
        0
    }

    /// Reports that one packet was cut out of a TUN read, and sealed, with the duration of both
    /// steps on [`Transmit::clock`].
    #[inline(always)]
    fn sealed(&mut self, _split: u64, _seal: u64) {}
}

/// A buffer that collects datagrams for one destination and sends them as trains.
///
/// The caller reserves room, writes, and commits: a datagram is written once, to the place that it
/// is sent from.
pub struct Train<T> {
    out: T,
    /// Trains start behind the first [`HEADROOM`] bytes.
    buf: Box<[u8]>,
    len: usize,
    segment: usize,
    count: usize,
    /// Set by a shorter segment, which ends a train.
    closed: bool,
    to: Option<Endpoint>,
    max_segments: usize,
}

impl<T: Transmit> Train<T> {
    /// Makes an empty train of at most `max_segments` datagrams over `out`.
    pub fn new(out: T, max_segments: usize) -> Self {
        Self {
            out,
            buf: vec![0; HEADROOM + 2 * MAX_TRAIN_BYTES].into_boxed_slice(),
            len: 0,
            segment: 0,
            count: 0,
            closed: false,
            to: None,
            max_segments: max_segments.clamp(1, MAX_TRAIN_SEGMENTS),
        }
    }

    /// Returns room for one datagram of up to `len` bytes behind those that wait. A `len` above
    /// [`MAX_TRAIN_BYTES`] gives that many bytes. The content counts only after [`Train::commit`].
    pub fn reserve(&mut self, len: usize) -> &mut [u8] {
        &mut self.reserve_with_headroom(len)[HEADROOM..]
    }

    /// Like [`Train::reserve`], with [`HEADROOM`] bytes in front. These are the end of the datagram
    /// before, and must have their old value when the room is committed.
    pub fn reserve_with_headroom(&mut self, len: usize) -> &mut [u8] {
        let len = len.min(MAX_TRAIN_BYTES);
        &mut self.buf[self.len..self.len + HEADROOM + len]
    }

    /// Sends the `len` bytes just written into the reserved room to `to`, at once and alone. They
    /// stay in place, and may then be committed.
    pub fn send_aside(&mut self, to: Endpoint, len: usize) {
        let start = HEADROOM + self.len;
        let len = len.min(MAX_TRAIN_BYTES);
        if len > 0 {
            self.out.transmit(to, &self.buf[start..start + len], len);
        }
    }

    /// Adds the `len` bytes just written into the reserved room as one datagram to `to`.
    pub fn commit(&mut self, to: Endpoint, len: usize) {
        let len = len.min(MAX_TRAIN_BYTES);
        if !self.takes(to, len) {
            let start = HEADROOM + self.len;
            self.flush();
            self.buf.copy_within(start..start + len, HEADROOM);
        }
        if self.count == 0 {
            self.segment = len;
            self.to = Some(to);
        }
        self.closed = len < self.segment;
        self.len += len;
        self.count += 1;
        if self.closed || self.count == self.max_segments {
            self.flush();
        }
    }

    /// Sends the datagrams that wait.
    pub fn flush(&mut self) {
        if let Some(to) = self.to.take().filter(|_| self.count > 0) {
            self.out
                .transmit(to, &self.buf[HEADROOM..HEADROOM + self.len], self.segment);
        }
        (self.len, self.segment, self.count, self.closed) = (0, 0, 0, false);
    }

    /// Sends datagrams of `segment` bytes each but the last from where they are, after those that
    /// wait.
    pub fn send_from(&mut self, to: Endpoint, datagrams: &[u8], segment: usize) {
        self.flush();
        let segment = segment.clamp(1, MAX_TRAIN_BYTES);
        let most = self.max_segments.min(MAX_TRAIN_BYTES / segment) * segment;
        for train in datagrams.chunks(most) {
            self.out.transmit(to, train, segment.min(train.len()));
        }
    }

    /// Returns the same train over another transmitter. The datagrams that wait go to the old one.
    pub fn redirect<U: Transmit>(mut self, change: impl FnOnce(T) -> U) -> Train<U> {
        self.flush();
        Train {
            out: change(self.out),
            buf: self.buf,
            len: 0,
            segment: 0,
            count: 0,
            closed: false,
            to: None,
            max_segments: self.max_segments,
        }
    }

    /// Returns the transmitter of trains.
    pub fn out(&self) -> &T {
        &self.out
    }

    /// Returns the transmitter of trains.
    pub fn out_mut(&mut self) -> &mut T {
        &mut self.out
    }

    fn takes(&self, to: Endpoint, len: usize) -> bool {
        self.count == 0
            || (self.to == Some(to) && !self.closed && len <= self.segment && self.len + len <= MAX_TRAIN_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(Endpoint, Vec<u8>)>, usize);

    impl Transmit for Seen {
        fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
            assert!(train.len() <= MAX_TRAIN_BYTES && train.chunks(segment).count() <= MAX_TRAIN_SEGMENTS);
            self.1 += 1;
            self.0.extend(train.chunks(segment).map(|d| (to, d.to_vec())));
        }
    }

    fn addr(n: u8) -> Endpoint {
        Endpoint::from(([192, 0, 2, n], 2121))
    }

    proptest! {
        #[test]
        fn every_datagram_leaves_once_in_order(datagrams in prop::collection::vec((0u8..3, 1usize..3000), 0..200)) {
            let mut train = Train::new(Seen::default(), 64);
            let mut expected = Vec::new();
            for (i, (to, len)) in datagrams.into_iter().enumerate() {
                train.reserve(len)[..len].fill(i as u8);
                train.commit(addr(to), len);
                expected.push((addr(to), vec![i as u8; len]));
            }
            train.flush();
            prop_assert_eq!(&train.out().0, &expected);
        }
    }

    #[test]
    fn equal_datagrams_share_a_call() {
        let mut train = Train::new(Seen::default(), 64);
        for _ in 0..51 {
            train.reserve(1280);
            train.commit(addr(1), 1280);
        }
        train.reserve(100);
        train.commit(addr(1), 100);
        train.flush();
        assert_eq!((train.out().0.len(), train.out().1), (52, 1));
    }
}
