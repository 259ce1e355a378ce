//! The null tunnel: the minimum cost of a tunnel, as a lower bound for others.
//!
//! Super-packets from the TUN are sent unchanged, with their virtio header, in as few UDP sends as
//! the kernel permits (`UDP_SEGMENT`), received coalesced (`UDP_GRO`), and written to the other TUN
//! in one call. No cryptography, no segmentation, no checksums, one peer, no loss handling: a
//! super-packet with a missing piece is dropped.
//!
//! Each datagram begins with [`Piece`]: the super-packet's number, its length, and the offset of
//! the piece. Pieces of one super-packet have the same size except for the last.
//!
//! With a cipher, each piece is also sealed and opened, which shows the cost of a cipher alone. The
//! key is the same everywhere and numbers repeat, so it keeps nothing secret.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::Duration;

use weft_noise::Key;
use weft_noise::aead::TAG_LEN;
use weft_noise::fast::{FastCipher, Secret, Suite};
use weft_os::poll::{Events, Interest, Poller};
use weft_os::tun::{READ_BUFFER_LEN, Tun};
use weft_os::udp::{MAX_SEGMENTS, MAX_SEND_LEN, RECEIVE_BUFFER_LEN, UdpSocket, is_transient};

/// Duration of one wait for a full socket or TUN.
const WAIT: Duration = Duration::from_millis(10);

/// The header of a datagram. All fields are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the super-packet, counted by the sender.
    pub number: u32,
    /// Bytes of the super-packet, less one: with its virtio header it may have 65,545.
    pub len: u32,
    /// Offset of the piece, in bytes.
    pub at: u32,
}

impl Piece {
    /// Bytes of the header.
    pub const LEN: usize = 12;

    /// A number that is unique for each piece, until the numbers of super-packets wrap.
    fn counter(self) -> u64 {
        u64::from(self.number) << 32 | u64::from(self.at)
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (to, from) in bytes.chunks_mut(4).zip([self.number, self.len, self.at]) {
            to.copy_from_slice(&from.to_be_bytes());
        }
        bytes
    }

    /// Splits a datagram into this header and the piece.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (header, piece) = datagram.split_first_chunk::<{ Self::LEN }>()?;
        let field = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let [number, len, at] = [field(0)?, field(4)?, field(8)?];
        Some((Self { number, len, at }, piece))
    }
}

/// The cipher of both ends.
#[must_use]
pub fn cipher(suite: Suite) -> FastCipher {
    Secret::from_key(&Key::from_bytes([7; 32])).cipher(suite)
}

/// Splits a super-packet into datagrams of at most `segment` bytes, one behind the other in
/// `train`; with a cipher, the bytes behind each header are sealed.
pub fn cut(number: u32, packet: &[u8], segment: usize, cipher: Option<&FastCipher>, train: &mut Vec<u8>) {
    train.clear();
    let overhead = Piece::LEN + cipher.map_or(0, |_| TAG_LEN);
    let room = segment.saturating_sub(overhead).max(1);
    for (n, piece) in packet.chunks(room).enumerate() {
        let header = Piece {
            number,
            len: packet.len() as u32,
            at: (n * room) as u32,
        };
        let aad = header.to_bytes();
        train.extend_from_slice(&aad);
        let begin = train.len();
        train.extend_from_slice(piece);
        if let Some((cipher, piece)) = cipher.zip(train.get_mut(begin..)) {
            let tag = cipher.seal_in_place(header.counter(), &aad, piece);
            train.extend_from_slice(&tag);
        }
    }
}

/// The header of a datagram and its piece, opened if there is a cipher.
fn take<'d>(datagram: &'d mut [u8], cipher: Option<&FastCipher>) -> Option<(Piece, &'d [u8])> {
    let Some(cipher) = cipher else {
        return Piece::parse(datagram);
    };
    let (header, _) = Piece::parse(datagram)?;
    let (aad, sealed) = datagram.split_at_mut(Piece::LEN);
    let piece = cipher.open_in_place(header.counter(), aad, sealed).ok()?;
    Some((header, piece))
}

/// Reassembles super-packets from datagrams in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Joiner {
    number: u32,
    len: usize,
    bytes: Vec<u8>,
}

impl Joiner {
    /// Processes the datagrams of one receive, `segment` bytes each but the last, and passes each
    /// whole super-packet as its parts to `write`. With a cipher, pieces are opened in place.
    pub fn receive(
        &mut self,
        joined: &mut [u8],
        segment: usize,
        cipher: Option<&FastCipher>,
        mut write: impl FnMut(&[IoSlice<'_>]),
    ) {
        let datagrams = joined.chunks_mut(segment.max(1));
        let pieces: Vec<_> = datagrams.filter_map(|datagram| take(datagram, cipher)).collect();
        for run in pieces.chunk_by(|(a, _), (b, _)| a.number == b.number) {
            let Some(((first, _), (last, end))) = run.first().zip(run.last()) else {
                continue;
            };
            let held: usize = run.iter().map(|(_, piece)| piece.len()).sum();
            if first.at == 0 && held == first.len as usize {
                let parts: Vec<_> = run.iter().map(|(_, piece)| IoSlice::new(piece)).collect();
                write(&parts);
                continue;
            }
            self.keep(*first, run);
            if last.at as usize + end.len() == self.len && self.bytes.len() == self.len {
                write(&[IoSlice::new(&self.bytes)]);
            }
        }
    }

    /// Stores the start of a super-packet whose rest is in another receive.
    fn keep(&mut self, first: Piece, run: &[(Piece, &[u8])]) {
        if first.number != self.number || first.at == 0 {
            (self.number, self.len) = (first.number, first.len as usize);
            self.bytes.clear();
        }
        for (piece, bytes) in run {
            if piece.at as usize == self.bytes.len() && self.bytes.len() + bytes.len() <= self.len {
                self.bytes.extend_from_slice(bytes);
            }
        }
    }
}

/// Sends everything that is read from the TUN. Returns only on an error.
///
/// # Errors
/// The error of the system.
pub fn outward(
    tun: &Tun,
    socket: &UdpSocket,
    to: SocketAddr,
    segment: u16,
    cipher: Option<&FastCipher>,
) -> io::Result<()> {
    let readable = poller(tun, Interest::Readable)?;
    let writable = poller(socket, Interest::Writable)?;
    let (mut packet, mut train) = (vec![0; READ_BUFFER_LEN], Vec::new());
    let most = usize::from(segment) * MAX_SEGMENTS.min(MAX_SEND_LEN / usize::from(segment));
    let mut number = 0;
    loop {
        let len = match tun.read(&mut packet) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&readable, None)?;
                continue;
            }
            read => read?,
        };
        cut(
            number,
            packet.get(..len).unwrap_or_default(),
            segment.into(),
            cipher,
            &mut train,
        );
        number = number.wrapping_add(1);
        let mut rest = &train[..];
        while !rest.is_empty() {
            let now = rest.get(..most).unwrap_or(rest);
            match socket.send(to, now, Some(segment)) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if is_transient(&error) => wait(&writable, Some(WAIT))?,
                // The peer is not yet or no longer running.
                Err(_) => break,
            }
        }
    }
}

/// Writes everything that the socket receives to the TUN. Returns only on an error.
///
/// # Errors
/// The error of the system.
pub fn inward(tun: &Tun, socket: &UdpSocket, cipher: Option<&FastCipher>) -> io::Result<()> {
    let readable = poller(socket, Interest::Readable)?;
    let mut joiner = Joiner::default();
    let mut buffer = vec![0; RECEIVE_BUFFER_LEN];
    loop {
        match socket.recv(&mut buffer) {
            Ok(received) => {
                let joined = buffer.get_mut(..received.len).unwrap_or_default();
                // Packets that a full or foreign queue refuses are lost, as on any link.
                joiner.receive(joined, received.segment_size, cipher, |parts| drop(tun.writev(parts)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(&readable, None)?,
            // An ICMP error about an earlier datagram.
            Err(_) => {}
        }
    }
}

fn poller(of: impl std::os::fd::AsFd, interest: Interest) -> io::Result<Poller> {
    let poller = Poller::new()?;
    poller.add(of, 0, interest)?;
    Ok(poller)
}

fn wait(poller: &Poller, limit: Option<Duration>) -> io::Result<()> {
    poller.wait(&mut Events::with_capacity(1), limit)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(parts: &[IoSlice<'_>]) -> Vec<u8> {
        parts.iter().flat_map(|part| part.to_vec()).collect()
    }

    #[test]
    fn an_incomplete_packet_is_dropped_and_the_next_passes() {
        let (packet, mut train) = (vec![7; 250], Vec::new());
        let mut arrived = Vec::new();
        let mut joiner = Joiner::default();
        cut(1, &packet, 112, None, &mut train);
        joiner.receive(&mut train[..112], 112, None, |parts| arrived.push(whole(parts)));
        cut(2, &packet, 112, None, &mut train);
        joiner.receive(&mut train[112..], 112, None, |parts| arrived.push(whole(parts)));
        assert!(arrived.is_empty());
        cut(3, &packet, 112, None, &mut train);
        joiner.receive(&mut train, 112, None, |parts| arrived.push(whole(parts)));
        assert_eq!(arrived, [packet]);
    }

    #[test]
    fn a_sealed_packet_that_was_changed_is_not_taken() {
        let (packet, mut train, mut arrived) = (vec![7; 150], Vec::new(), 0);
        let cipher = cipher(Suite::Aes256Gcm);
        for spoiled in [Some(0), Some(Piece::LEN), Some(200), None] {
            cut(1, &packet, 112, Some(&cipher), &mut train);
            assert!(!train.windows(8).any(|bytes| bytes == [7; 8]));
            if let Some(at) = spoiled {
                train[at] ^= 1;
            }
            let mut joiner = Joiner::default();
            joiner.receive(&mut train, 112, Some(&cipher), |parts| {
                assert_eq!(whole(parts), packet);
                arrived += 1;
            });
            assert_eq!(arrived, usize::from(spoiled.is_none()));
        }
    }

    proptest! {
        #[test]
        fn cut_packets_are_joined_again(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..4_000), 1..6),
            segment in 40_usize..1_500,
            joined in 1_usize..9,
            suite in prop::option::of(prop::sample::select(&Suite::ALL)),
        ) {
            let cipher = suite.map(cipher);
            let (mut joiner, mut train, mut arrived) = (Joiner::default(), Vec::new(), Vec::new());
            for (number, packet) in packets.iter().enumerate() {
                cut(number as u32, packet, segment, cipher.as_ref(), &mut train);
                for receive in train.chunks_mut(segment * joined) {
                    joiner.receive(receive, segment, cipher.as_ref(), |parts| arrived.push(whole(parts)));
                }
            }
            prop_assert_eq!(arrived, packets);
        }

        #[test]
        fn rubbish_is_bounded(receives in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..50)) {
            let mut joiner = Joiner::default();
            for mut receive in receives {
                joiner.receive(&mut receive, 20, None, |parts| drop(whole(parts)));
                prop_assert!(joiner.bytes.capacity() <= 1 << 16);
            }
        }
    }
}
