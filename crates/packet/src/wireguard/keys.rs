//! The keys of one peer that speaks WireGuard, its address, and what has passed under the keys.
//!
//! The form of a data message is in section 5.4.6 of the paper on WireGuard (J. Donenfeld, revision of 2020-06-01):
//! type 4 and three zeros, the receiver's index, a counter (both little-endian), the packet with its filling, a tag.

use weft_contract::{Endpoint, WireGuardKeys, WireGuardTraffic};
use weft_noise::aead::{Cipher, TAG_LEN};
use weft_noise::replay::ReplayWindow;

use crate::counters::DropReason;

/// The type of a data message, as the first four bytes have it.
const DATA: [u8; 4] = [4, 0, 0, 0];
/// The offset of the receiver's index, in bytes.
const RECEIVER_AT: usize = 4;
/// The offset of the counter, in bytes.
const COUNTER_AT: usize = 8;
/// The length of the header, in bytes.
pub(super) const HEADER_LEN: usize = 16;
/// The bytes that a message adds to a packet, beside the filling.
pub(crate) const MESSAGE_OVERHEAD: usize = HEADER_LEN + TAG_LEN;
/// The unit to which packets are filled, in bytes.
const PADDING: usize = 16;
/// The counter from which no message is sealed or opened under the same keys (paper, section 6.1).
const REJECT_AFTER_MESSAGES: u64 = u64::MAX - (1 << 13);
/// The most keys of one peer: those in use, those that it may use next, and two that are older.
const MAX_KEYS: usize = 4;

/// What has passed under keys since the last report.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// Packets that were sent before the last message that was received.
    sent: u64,
    /// Packets that were sent after it.
    sent_after: u64,
    received: u64,
    keepalives: u64,
    from: Option<Endpoint>,
}

/// The keys of one handshake.
pub(super) struct Keys {
    local: u32,
    remote: u32,
    send: Cipher,
    receive: Cipher,
    next: u64,
    window: ReplayWindow,
    /// The highest counter that was received.
    highest: Option<u64>,
    passed: Passed,
}

/// What was opened.
pub(super) struct Opened {
    /// Whether no message with a higher counter has come under the same keys.
    pub(super) newest: bool,
}

/// The keys of one peer, and where it is.
#[derive(Default)]
pub(crate) struct Tunnel {
    keys: Vec<Keys>,
    /// The index of the keys that seal.
    current: Option<u32>,
    path: Option<Endpoint>,
}

impl Keys {
    fn new(keys: &WireGuardKeys) -> Self {
        Self {
            local: keys.local,
            remote: keys.remote,
            send: Cipher::new(&keys.send),
            receive: Cipher::new(&keys.receive),
            next: 0,
            window: ReplayWindow::default(),
            highest: None,
            passed: Passed::default(),
        }
    }

    /// Seals the packet of `len` bytes that lies behind the header in `slot`, filled to a multiple of
    /// [`PADDING`] but not beyond `mtu`. Returns the length of the message, or `None` if the keys are used up.
    pub(super) fn seal(&mut self, slot: &mut [u8], len: usize, mtu: usize) -> Option<usize> {
        if self.next >= REJECT_AFTER_MESSAGES {
            return None;
        }
        let filled = len.next_multiple_of(PADDING).min(mtu.max(len));
        let (header, rest) = slot.split_at_mut_checked(HEADER_LEN)?;
        let (content, rest) = rest.split_at_mut_checked(filled)?;
        let tag = rest.get_mut(..TAG_LEN)?;
        content.get_mut(len..)?.fill(0);
        header.get_mut(..RECEIVER_AT)?.copy_from_slice(&DATA);
        header
            .get_mut(RECEIVER_AT..COUNTER_AT)?
            .copy_from_slice(&self.remote.to_le_bytes());
        header.get_mut(COUNTER_AT..)?.copy_from_slice(&self.next.to_le_bytes());
        tag.copy_from_slice(&self.send.seal_in_place(self.next, &[], content));
        self.next += 1;
        self.passed.sent_after += u64::from(len > 0);
        Some(filled + MESSAGE_OVERHEAD)
    }

    /// Opens a data message in place: its content, with the filling, then lies behind the header.
    pub(super) fn open(&mut self, message: &mut [u8]) -> Result<Opened, DropReason> {
        let (header, sealed) = message.split_at_mut_checked(HEADER_LEN).ok_or(DropReason::Malformed)?;
        let counter = header.last_chunk().copied().map(u64::from_le_bytes);
        let counter = counter.filter(|counter| *counter < REJECT_AFTER_MESSAGES);
        let counter = counter.ok_or(DropReason::Malformed)?;
        self.window.check(counter).map_err(|_| DropReason::WireGuardReplay)?;
        let opened = self.receive.open_in_place(counter, &[], sealed);
        opened.map_err(|_| DropReason::WireGuardForged)?;
        self.window.accept(counter).map_err(|_| DropReason::WireGuardReplay)?;
        let newest = self.highest.is_none_or(|highest| counter > highest);
        if newest {
            self.highest = Some(counter);
        }
        Ok(Opened { newest })
    }

    /// Counts a message that was opened: a packet, or a keepalive. `from`: where it came from, if it shows where the
    /// peer is.
    pub(super) fn count(&mut self, from: Option<Endpoint>, packet: bool) {
        let passed = &mut self.passed;
        passed.sent += std::mem::take(&mut passed.sent_after);
        passed.received += u64::from(packet);
        passed.keepalives += u64::from(!packet);
        passed.from = from.or(passed.from);
    }

    /// Returns what has passed since the last call, as one report or two.
    fn take_passed(&mut self) -> [Option<WireGuardTraffic>; 2] {
        let passed = std::mem::take(&mut self.passed);
        let traffic = WireGuardTraffic {
            local: self.local,
            sent: passed.sent,
            received: passed.received,
            keepalives: passed.keepalives,
            from: passed.from,
        };
        let after = WireGuardTraffic {
            sent: passed.sent_after,
            received: 0,
            keepalives: 0,
            from: None,
            ..traffic
        };
        let came = passed.received + passed.keepalives > 0;
        [
            Some(traffic).filter(|_| came),
            Some(after).filter(|after| after.sent > 0),
        ]
    }
}

impl Tunnel {
    /// Returns whether packets can be sealed and have a place to go.
    pub(crate) fn is_ready(&self) -> bool {
        self.path.is_some() && self.current.is_some()
    }

    /// Returns the indices of all keys.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().map(|keys| keys.local)
    }

    /// Sets where the peer is.
    pub(crate) fn place(&mut self, path: Endpoint) {
        self.path = Some(path);
    }

    /// Returns whether messages to the peer go to this address.
    pub(super) fn is_at(&self, path: Endpoint) -> bool {
        self.path == Some(path)
    }

    /// Adds keys. Returns the index of those that had to make room.
    pub(crate) fn install(&mut self, keys: &WireGuardKeys, use_now: bool) -> Option<u32> {
        self.keys.retain(|known| known.local != keys.local);
        let oldest = (self.keys.len() >= MAX_KEYS).then(|| self.keys.remove(0).local);
        self.keys.push(Keys::new(keys));
        if use_now {
            self.current = Some(keys.local);
        }
        oldest.inspect(|oldest| self.current = self.current.filter(|current| current != oldest))
    }

    /// Seals with these keys from now on, if there are such.
    pub(crate) fn select(&mut self, local: u32) {
        if self.indices().any(|index| index == local) {
            self.current = Some(local);
        }
    }

    /// Removes keys.
    pub(crate) fn retire(&mut self, local: u32) {
        self.keys.retain(|keys| keys.local != local);
        self.current = self.current.filter(|current| *current != local);
    }

    /// Returns whether the keys with this index seal.
    pub(super) fn is_current(&self, local: u32) -> bool {
        self.current == Some(local)
    }

    /// Returns the keys with an index, and whether they are younger than those that seal.
    pub(super) fn by_index(&mut self, local: u32) -> Option<(&mut Keys, bool)> {
        let at = self.keys.iter().position(|keys| keys.local == local)?;
        let current = self.keys.iter().position(|keys| Some(keys.local) == self.current);
        Some((self.keys.get_mut(at)?, current.is_none_or(|current| at > current)))
    }

    /// Returns the keys that seal, and where the messages go.
    pub(super) fn sealing(&mut self) -> Option<(&mut Keys, Endpoint)> {
        let (current, path) = (self.current?, self.path?);
        let keys = self.keys.iter_mut().find(|keys| keys.local == current)?;
        Some((keys, path))
    }

    /// Returns what has passed under all keys since the last call.
    pub(crate) fn take_passed(&mut self) -> impl Iterator<Item = WireGuardTraffic> {
        self.keys.iter_mut().flat_map(Keys::take_passed).flatten()
    }
}

/// Returns the receiver's index of a data message, or `None` if the datagram is not one.
pub(super) fn receiver(datagram: &[u8]) -> Option<u32> {
    let index = datagram.strip_prefix(&DATA)?.first_chunk()?;
    (datagram.len() >= MESSAGE_OVERHEAD).then(|| u32::from_le_bytes(*index))
}

/// Returns whether a datagram has the form of a message other than a data message: by type and length (paper, sections
/// 5.4.2, 5.4.3 and 5.4.7).
pub(super) fn is_handshake(datagram: &[u8]) -> bool {
    matches!(
        (datagram.first_chunk(), datagram.len()),
        (Some([1, 0, 0, 0]), 148) | (Some([2, 0, 0, 0]), 92) | (Some([3, 0, 0, 0]), 64)
    )
}

/// Returns the length of the IP packet at the start of what a message had: the rest is filling. `None` if there is no
/// whole packet.
pub(super) fn packet_len(content: &[u8]) -> Option<usize> {
    let field = |at: usize| Some(usize::from(u16::from_be_bytes(*content.get(at..)?.first_chunk()?)));
    let len = match content.first()? >> 4 {
        4 => field(2)?,
        6 => field(4)? + 40,
        _ => return None,
    };
    (len > 0 && len <= content.len()).then_some(len)
}
