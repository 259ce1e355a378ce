//! One set of fast keys: both directions, each with a key that advances in place.
//!
//! The key of a direction is replaced after a number of frames, by a one-way step that both ends
//! take independently. The phase bit of the header distinguishes neighbouring phases. Counters
//! continue over all phases, so one replay window serves them all, and the bit is never ambiguous:
//! a frame with the other bit is of the previous phase if its counter is below that of the first
//! frame of the present phase, and of the next phase otherwise.

use weft_contract::{CountedEpoch, FastKeys};
use weft_noise::aead::TAG_LEN;
use weft_noise::fast::{FastCipher, Secret, Suite};
use weft_noise::replay::ReplayWindow;
use weft_wire::fast;

use crate::fips::OpenFailure;

/// How long the previous key still opens late frames, in ms (L5).
const DRAIN: u64 = 10_000;
/// The number of intervals that a phase lasts at most while the peer has not acknowledged it. After
/// that nothing more is sealed. With the default interval that is 2^26 frames. RFC 8446 section 5.5
/// has 2^24.5 records of 16 KiB for AES-GCM, which is 2^28 of these frames.
const MAX_INTERVALS: u64 = 8;
/// The number of forgeries after which one set of keys opens nothing more (RFC 9001 section 6.6 has
/// 2^36 for ChaCha20-Poly1305 and 2^52 for AES-GCM).
const MAX_FORGERIES: u64 = 1 << 36;

/// The fast keys of one session epoch or hop.
pub(crate) struct FastEpoch {
    /// The number of the session epoch that they come from, or of the keys within their link.
    pub(crate) id: u32,
    pub(crate) our_index: u32,
    their_index: u32,
    /// The largest frame that the peer accepts, in bytes.
    pub(crate) max_payload: u16,
    /// Whether the peer reads frames of packets with their whole header.
    pub(crate) reads_full: bool,
    started: u64,
    /// Whether the peer holds the keys and receives this node's frames: a frame from it that does
    /// not ask for a confirm has opened.
    pub(super) proven: bool,
    /// Whether such a frame arrived over a direct path, so that this node's frames reach the peer
    /// directly too.
    pub(crate) direct: bool,
    /// The number of packets sent in pieces so far.
    fragmented: u32,
    send: Sending,
    recv: Receiving,
}

struct Sending {
    suite: Suite,
    secret: Secret,
    /// Made for the first frame. Keys that others have replaced, and keys that are not proven, take
    /// less memory without it.
    cipher: Option<FastCipher>,
    phase: u32,
    /// Whether the peer opens with this phase.
    acknowledged: bool,
    counter: u64,
    /// The counter at which the phase began.
    since: u64,
    /// The number of frames after which the next phase begins.
    interval: u64,
}

struct Receiving {
    suite: Suite,
    cipher: FastCipher,
    secret: Secret,
    /// The next phase, once a frame has claimed to be of it. Sessions with little traffic never
    /// reach it.
    next: Option<(Secret, FastCipher)>,
    /// The previous phase and the time until which it opens late frames, in ms.
    previous: Option<(FastCipher, u64)>,
    phase: u32,
    /// The counter of the first frame of the phase that was received.
    since: u64,
    /// Whether any frame has opened.
    heard: bool,
    window: ReplayWindow,
    forgeries: u64,
}

/// What an opened frame means for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// Whether its counter is the highest so far.
    pub(super) newest: bool,
    /// Whether it is the first of its phase. The peer then waits for an acknowledgement.
    pub(super) new_phase: bool,
}

/// The content of a frame, which begins behind the header.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    /// The end of the content in the frame.
    pub(super) end: usize,
    /// The last bytes of the content, which are not yet in the frame.
    pub(super) rest: &'a [u8],
}

/// The counter and the phase flag for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    counter: u64,
    phase: u8,
}

impl FastEpoch {
    pub(crate) fn new(now: u64, keys: &FastKeys) -> Self {
        let (send, recv) = (&keys.secrets.send, &keys.secrets.recv);
        Self {
            id: keys.id.0,
            our_index: keys.our_index.0,
            their_index: keys.their_index.0,
            max_payload: keys.max_payload.max(fast::LEAST_PAYLOAD),
            reads_full: keys.reads_full,
            started: now,
            proven: false,
            direct: false,
            fragmented: 0,
            send: Sending {
                suite: keys.suite,
                secret: send.clone(),
                cipher: None,
                phase: 0,
                acknowledged: true,
                counter: 0,
                since: 0,
                interval: keys.phase_frames.max(1),
            },
            recv: Receiving {
                suite: keys.suite,
                cipher: recv.cipher(keys.suite),
                secret: recv.clone(),
                next: None,
                previous: None,
                phase: 0,
                since: 0,
                heard: false,
                window: ReplayWindow::new(),
                forgeries: 0,
            },
        }
    }

    /// Returns the epoch that frames under these keys are counted for.
    pub(crate) fn counted(&self) -> CountedEpoch {
        CountedEpoch::fast(self.id)
    }

    /// Returns the number of frames sealed so far.
    pub(crate) fn sealed(&self) -> u64 {
        self.send.counter
    }

    /// Returns the milliseconds since the keys were installed, for the clock in frames.
    pub(crate) fn timestamp(&self, now: u64) -> u32 {
        now.wrapping_sub(self.started) as u32
    }

    /// Returns the number of the next packet that goes in pieces. It wraps around only long after
    /// its first use is over.
    pub(super) fn next_fragmented(&mut self) -> u32 {
        self.fragmented = self.fragmented.wrapping_add(1);
        self.fragmented
    }

    /// Returns whether nothing more may be sealed at present. An acknowledgement of the peer may
    /// change that, unless the counter is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.send.is_spent()
    }

    /// Returns the phase of the frames from the peer.
    pub(super) fn opens_with(&self) -> u32 {
        self.recv.phase
    }

    /// Records that the peer opens with this phase.
    pub(super) fn acknowledge(&mut self, phase: u32) {
        self.send.acknowledged |= phase == self.send.phase;
    }

    /// Returns the counter and flag of the next frame, and first advances the key if that is due.
    /// Returns `None` if nothing may be sealed: the counter is used up, or the peer has not
    /// acknowledged the phase for [`MAX_INTERVALS`].
    pub(super) fn ticket(&mut self) -> Option<Ticket> {
        let send = &mut self.send;
        let counter = send.counter;
        if send.cipher.is_none() {
            send.prepare();
        }
        if send.acknowledged && counter - send.since >= send.interval {
            send.move_on();
        } else if send.is_spent() {
            return None;
        }
        send.counter = counter.checked_add(1)?;
        Some(Ticket {
            counter,
            phase: if send.phase & 1 == 1 { fast::FLAG_PHASE } else { 0 },
        })
    }

    /// Releases the cipher, since other keys seal from now on. A late answer makes it again.
    pub(super) fn rest(&mut self) {
        self.send.cipher = None;
    }

    /// Seals the content behind the header, whose last bytes are not yet in the frame. Writes the
    /// header in front of it and the tag behind it, and returns the length of the frame. Returns
    /// `None` if there is no room for the tag, the length does not fit its field, or the cipher was
    /// released after the ticket.
    pub(super) fn seal(
        &self,
        ticket: Ticket,
        kind: fast::Kind,
        flags: u8,
        frame: &mut [u8],
        content: Content<'_>,
    ) -> Option<usize> {
        let Content { end, rest } = content;
        let length = (end + TAG_LEN).checked_sub(fast::Header::LEN)?;
        let header = fast::Header {
            kind,
            flags: flags | ticket.phase,
            length: u16::try_from(length).ok()?,
            receiver_index: self.their_index,
            counter: ticket.counter,
        }
        .to_bytes();
        let (content, behind) = frame
            .get_mut(fast::Header::LEN..)?
            .split_at_mut_checked(length - TAG_LEN)?;
        if rest.len() > content.len() {
            return None;
        }
        let tag = self
            .send
            .cipher
            .as_ref()?
            .seal_from(ticket.counter, &header, content, rest);
        *behind.first_chunk_mut()? = tag;
        *frame.first_chunk_mut()? = header;
        Some(end + TAG_LEN)
    }

    /// Seals the part of a relayed frame that the next hop reads, or all of it, and writes the
    /// hop's header and tag in front.
    pub(super) fn seal_hop(&mut self, frame: &mut [u8], whole: bool) -> Option<()> {
        let length = u16::try_from(frame.len().checked_sub(fast::Header::LEN)?).ok()?;
        let (front, inner) = frame.split_at_mut_checked(fast::LABEL_AT)?;
        let sealed = if whole {
            inner
        } else {
            inner.get_mut(..fast::SEALED_HEADER)?
        };
        let ticket = self.ticket()?;
        let header = fast::Header {
            kind: fast::Kind::Relayed,
            flags: ticket.phase | if whole { fast::FLAG_WHOLE } else { 0 },
            length,
            receiver_index: self.their_index,
            counter: ticket.counter,
        }
        .to_bytes();
        let tag = self
            .send
            .cipher
            .as_ref()?
            .seal_in_place(ticket.counter, &header, sealed);
        let (header_room, tag_room) = front.split_at_mut_checked(fast::HOP_TAG_AT)?;
        header_room.copy_from_slice(&header);
        tag_room.copy_from_slice(&tag);
        Some(())
    }

    /// Opens in place the part of a relayed frame that this hop reads. On failure the bytes are
    /// undefined.
    pub(super) fn open_hop(
        &mut self,
        now: u64,
        header: &fast::Header,
        frame: &mut [u8],
    ) -> Result<Opened, OpenFailure> {
        const TAG_END: usize = fast::SEALED_HEADER + TAG_LEN;
        let (aad, rest) = frame.split_at_mut_checked(fast::Header::LEN).ok_or(OpenFailure::Tag)?;
        if header.flags & fast::FLAG_WHOLE != 0 {
            // The cipher expects the tag behind the content, and the frame has it in front.
            rest.rotate_left(TAG_LEN);
            let opened = self.open(now, header, aad, rest);
            rest.rotate_right(TAG_LEN);
            return opened;
        }
        let (tag, inner) = rest.split_first_chunk_mut::<TAG_LEN>().ok_or(OpenFailure::Tag)?;
        let sealed = inner.first_chunk_mut::<{ fast::SEALED_HEADER }>();
        let sealed = sealed.ok_or(OpenFailure::Tag)?;
        let mut together = [0; TAG_END];
        together[..fast::SEALED_HEADER].copy_from_slice(sealed);
        together[fast::SEALED_HEADER..].copy_from_slice(tag);
        let opened = self.open(now, header, aad, &mut together)?;
        sealed.copy_from_slice(&together[..fast::SEALED_HEADER]);
        Ok(opened)
    }

    /// Opens content and tag in place. On failure the bytes are undefined.
    pub(super) fn open(
        &mut self,
        now: u64,
        header: &fast::Header,
        aad: &[u8],
        sealed: &mut [u8],
    ) -> Result<Opened, OpenFailure> {
        let recv = &mut self.recv;
        recv.window.check(header.counter).map_err(|_| OpenFailure::Replay)?;
        let same = recv.is_phase_of(header);
        let old = !same && header.counter < recv.since;
        if !same && !old {
            recv.make_next();
        }
        let previous = recv.previous.as_ref().filter(|(_, until)| now < *until);
        let cipher = match (same, old) {
            (true, _) => &recv.cipher,
            (false, true) => &previous.ok_or(OpenFailure::Replay)?.0,
            (false, false) => &recv.next.as_ref().ok_or(OpenFailure::Replay)?.1,
        };
        if recv.forgeries >= MAX_FORGERIES || cipher.open_in_place(header.counter, aad, sealed).is_err() {
            recv.forgeries += 1;
            return Err(OpenFailure::Tag);
        }
        let newest = !std::mem::replace(&mut recv.heard, true) || header.counter > recv.window.highest();
        recv.window.accept(header.counter).map_err(|_| OpenFailure::Replay)?;
        let new_phase = !same && !old;
        if new_phase {
            recv.move_on(now, header.counter);
        }
        Ok(Opened { newest, new_phase })
    }
}

impl Sending {
    #[cold]
    fn prepare(&mut self) {
        self.cipher = Some(self.secret.cipher(self.suite));
    }

    fn is_spent(&self) -> bool {
        let used = self.counter - self.since;
        !self.acknowledged && used >= self.interval.saturating_mul(MAX_INTERVALS) || self.counter == u64::MAX
    }

    fn move_on(&mut self) {
        self.secret = self.secret.next();
        self.prepare();
        self.phase = self.phase.wrapping_add(1);
        self.since = self.counter;
        self.acknowledged = false;
    }
}

impl Receiving {
    fn is_phase_of(&self, header: &fast::Header) -> bool {
        (header.flags & fast::FLAG_PHASE != 0) == (self.phase & 1 == 1)
    }

    /// Makes the key of the next phase once, so that further forged frames cost no more than any
    /// other.
    fn make_next(&mut self) {
        if self.next.is_none() {
            let secret = self.secret.next();
            let cipher = secret.cipher(self.suite);
            self.next = Some((secret, cipher));
        }
    }

    fn move_on(&mut self, now: u64, counter: u64) {
        let Some((secret, present)) = self.next.take() else {
            return;
        };
        self.secret = secret;
        self.previous = Some((std::mem::replace(&mut self.cipher, present), now + DRAIN));
        self.phase = self.phase.wrapping_add(1);
        self.since = counter;
    }
}

#[cfg(test)]
mod tests {
    use weft_contract::{EpochId, ReceiverIndex};
    use weft_noise::Key;
    use weft_noise::fast::LaneSecrets;

    use super::*;

    fn keys() -> FastEpoch {
        let secret = |byte| Secret::from_key(&Key::from_bytes([byte; 32]));
        let keys = FastKeys {
            id: EpochId(0),
            our_index: ReceiverIndex(1),
            their_index: ReceiverIndex(2),
            max_payload: 1_400,
            reads_full: true,
            suite: Suite::Aes256Gcm,
            secrets: LaneSecrets {
                send: secret(1),
                recv: secret(2),
            },
            phase_frames: 1 << 20,
        };
        FastEpoch::new(0, &keys)
    }

    /// The nonce follows from the counter alone, so the keys end with the last counter, whatever
    /// else would allow more frames.
    #[test]
    fn a_fast_counter_ends_and_is_not_used_again() {
        // A phase that began with that frame, one that continues, and one that is due to end.
        for (since, acknowledged) in [(u64::MAX - 1, false), (u64::MAX - 9, true), (0, true)] {
            let mut keys = keys();
            keys.send.counter = u64::MAX - 1;
            keys.send.since = since;
            keys.send.acknowledged = acknowledged;
            assert!(!keys.is_spent());
            assert_eq!(keys.ticket().unwrap().counter, u64::MAX - 1);
            for _ in 0..3 {
                assert!(keys.is_spent(), "an acknowledgement does not bring it back");
                assert_eq!(keys.ticket(), None);
                keys.acknowledge(keys.send.phase);
            }
        }
    }
}
