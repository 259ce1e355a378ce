//! Epochs of one link or one session: keys that overlap while a rekey is under way.
//!
//! At most one epoch seals. The others only open: candidates that wait for proof, and old keys that
//! drain. The same rules serve FMP, where the receiver index names the epoch, and FSP, where a
//! frame does not name its epoch and each is tried.

use weft_contract::{CountedEpoch, EpochUse};
use weft_noise::Key;
use weft_noise::aead::{Cipher, TAG_LEN};
use weft_noise::replay::ReplayWindow;

use crate::counters::DropReason;

/// More epochs than a rekey can leave behind. A further one displaces the oldest that does not
/// seal.
pub(crate) const MAX_EPOCHS: usize = 8;

/// The reason for which a frame did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFailure {
    /// Its counter was received before or is behind the window.
    Replay,
    /// Its tag is wrong.
    Tag,
}

impl OpenFailure {
    /// Returns the reason to drop a FIPS frame of a link.
    pub(crate) const fn of_link(self) -> DropReason {
        match self {
            Self::Replay => DropReason::LinkReplay,
            Self::Tag => DropReason::LinkTag,
        }
    }

    /// Returns the reason to drop a fast frame.
    pub(crate) const fn of_fast(self) -> DropReason {
        match self {
            Self::Replay => DropReason::FastReplay,
            Self::Tag => DropReason::FastTag,
        }
    }
}

/// One set of keys and its state.
pub(crate) struct Epoch {
    /// The receiver index of this node (links) or the number of the epoch (sessions).
    pub(crate) id: u32,
    /// The receiver index of the peer; unused by sessions.
    pub(crate) their_index: u32,
    /// The K bit in frames that are sealed under this epoch.
    pub(crate) key_bit: bool,
    /// Whether the peer has used it.
    pub(crate) confirmed: bool,
    /// Whether this node was the initiator of the handshake.
    initiator: bool,
    /// The spin bit in frames that are sealed under this epoch.
    pub(crate) spin: bool,
    promotes: bool,
    started: u64,
    send: Key,
    /// Made for the first frame, and dropped when another epoch seals: most epochs of an idle peer
    /// only open.
    seal: Option<Cipher>,
    counter: u64,
    open: Cipher,
    window: ReplayWindow,
}

impl Epoch {
    /// Makes an epoch that begins now, from the keys of both directions.
    pub(crate) fn new(now: u64, id: u32, their_index: u32, send: &Key, recv: &Key, initiator: bool) -> Self {
        Self {
            id,
            their_index,
            key_bit: false,
            confirmed: false,
            initiator,
            spin: false,
            promotes: false,
            started: now,
            send: send.clone(),
            seal: None,
            counter: 0,
            open: Cipher::new(recv),
            window: ReplayWindow::new(),
        }
    }

    /// Returns the milliseconds since the epoch began, as FIPS writes them into inner headers. The
    /// value wraps after 49 days.
    pub(crate) fn timestamp(&self, now: u64) -> u32 {
        now.wrapping_sub(self.started) as u32
    }

    /// Processes the spin bit of the newest frame. The responder reflects it, and the initiator
    /// inverts it once it has returned. So it changes once in a round trip. Source: FIPS fips-mmp,
    /// "Spin Bit and RTT".
    #[inline]
    pub(crate) fn observe_spin(&mut self, bit: bool) {
        if !self.initiator {
            self.spin = bit;
        } else if bit == self.spin {
            self.spin = !bit;
        }
    }

    /// Returns the epoch that frames under these keys are counted for.
    pub(crate) fn counted(&self) -> CountedEpoch {
        CountedEpoch::fips(self.id)
    }

    /// Returns the number of frames sealed so far.
    pub(crate) fn sealed(&self) -> u64 {
        self.counter
    }

    /// Takes the next counter. Returns `None` once the last one is used: the epoch is then spent
    /// for good.
    pub(crate) fn next_counter(&mut self) -> Option<u64> {
        let counter = self.counter;
        if self.seal.is_none() {
            self.prepare();
        }
        self.counter = counter.checked_add(1)?;
        Some(counter)
    }

    #[cold]
    fn prepare(&mut self) {
        self.seal = Some(Cipher::new(&self.send));
    }

    /// Seals `plaintext` in place under a counter from [`Epoch::next_counter`] and returns the tag,
    /// or `None` if another epoch has begun to seal since.
    pub(crate) fn seal(&self, counter: u64, aad: &[u8], plaintext: &mut [u8]) -> Option<[u8; TAG_LEN]> {
        Some(self.seal.as_ref()?.seal_in_place(counter, aad, plaintext))
    }

    /// Opens ciphertext and tag in place, and returns whether the counter is the highest so far.
    /// The window moves only if the tag is right. On failure the bytes are undefined.
    pub(crate) fn open(&mut self, counter: u64, aad: &[u8], sealed: &mut [u8]) -> Result<bool, OpenFailure> {
        self.window.check(counter).map_err(|_| OpenFailure::Replay)?;
        self.open
            .open_in_place(counter, aad, sealed)
            .map_err(|_| OpenFailure::Tag)?;
        let newest = !self.confirmed || counter > self.window.highest();
        self.window.accept(counter).map_err(|_| OpenFailure::Replay)?;
        Ok(newest)
    }
}

/// The effect of an authenticated frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Nothing changed.
    None,
    /// A candidate was proven and now seals.
    Promoted,
    /// The peer used the epoch that seals for the first time.
    Confirmed,
}

/// The epochs of one link or session.
#[derive(Default)]
pub(crate) struct Epochs {
    list: Vec<Epoch>,
    current: Option<u32>,
}

impl Epochs {
    /// Adds an epoch. Returns the one that was removed for it, if any.
    pub(crate) fn install(&mut self, mut epoch: Epoch, usage: EpochUse) -> Option<u32> {
        let evicted = self.make_room();
        epoch.key_bit = self.current().is_some_and(|e| !e.key_bit);
        epoch.promotes = usage == EpochUse::Candidate;
        let id = epoch.id;
        self.list.reserve_exact(1);
        self.list.push(epoch);
        if usage == EpochUse::Send {
            self.seal_with(id);
        }
        evicted
    }

    /// Removes an epoch.
    pub(crate) fn retire(&mut self, id: u32) {
        self.list.retain(|e| e.id != id);
        if self.current == Some(id) {
            self.current = None;
        }
    }

    /// Seals with this epoch from now on, if it exists.
    pub(crate) fn select(&mut self, id: u32) {
        if self.list.iter().any(|e| e.id == id) {
            self.seal_with(id);
        }
    }

    fn seal_with(&mut self, id: u32) {
        self.current = Some(id);
        for other in self.list.iter_mut().filter(|e| e.id != id) {
            other.seal = None;
        }
    }

    /// Seals with none of them from now on.
    pub(crate) fn suspend(&mut self) {
        self.current = None;
    }

    /// Excludes a candidate from promotion.
    pub(crate) fn demote(&mut self, id: u32) {
        if let Some(epoch) = self.list.iter_mut().find(|e| e.id == id) {
            epoch.promotes = false;
        }
    }

    /// Returns the epoch that seals.
    pub(crate) fn current(&self) -> Option<&Epoch> {
        self.list.iter().find(|e| Some(e.id) == self.current)
    }

    /// Returns the epoch that seals.
    pub(crate) fn current_mut(&mut self) -> Option<&mut Epoch> {
        self.list.iter_mut().find(|e| Some(e.id) == self.current)
    }

    /// Returns whether this epoch seals.
    #[inline]
    pub(crate) fn seals_with(&self, id: u32) -> bool {
        self.current == Some(id)
    }

    /// Returns the epoch whose frames are counted so.
    pub(crate) fn counted(&self, epoch: CountedEpoch) -> Option<&Epoch> {
        self.list.iter().find(|e| e.counted() == epoch)
    }

    /// Returns an epoch by its number, or the one that seals.
    #[inline]
    pub(crate) fn pick_mut(&mut self, id: Option<u32>) -> Option<&mut Epoch> {
        match id {
            Some(id) => self.list.iter_mut().find(|e| e.id == id),
            None => self.current_mut(),
        }
    }

    /// Returns the numbers of the epochs.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.iter().map(|e| e.id)
    }

    /// Writes the order in which to try the epochs for a frame with this K bit: those that match
    /// first, the sealing one before others. Returns their number.
    pub(crate) fn trial_order(&self, key_bit: bool, order: &mut [u32; MAX_EPOCHS]) -> usize {
        let rank = |e: &Epoch| (e.key_bit != key_bit, Some(e.id) != self.current);
        for (slot, epoch) in order.iter_mut().zip(&self.list) {
            *slot = epoch.id;
        }
        let n = self.list.len().min(MAX_EPOCHS);
        order[..n].sort_unstable_by_key(|id| self.list.iter().find(|e| e.id == *id).map(rank));
        n
    }

    /// Records that a frame under `id` was authenticated. The first one proves a candidate, or
    /// confirms the epoch that seals.
    ///
    /// The first frame also shows which K bit the peer uses for this epoch. FIPS flips its bit at a
    /// rekey but resets it at a fresh link, and ignores frames of a pending epoch with an
    /// unexpected bit, so this node adopts the peer's bit.
    #[inline]
    pub(crate) fn authenticated(&mut self, id: u32, key_bit: bool) -> Proof {
        let Some(epoch) = self.list.iter_mut().find(|e| e.id == id) else {
            return Proof::None;
        };
        if epoch.confirmed {
            return Proof::None;
        }
        epoch.confirmed = true;
        epoch.key_bit = key_bit;
        if self.current == Some(id) {
            Proof::Confirmed
        } else if epoch.promotes {
            self.seal_with(id);
            Proof::Promoted
        } else {
            Proof::None
        }
    }

    fn make_room(&mut self) -> Option<u32> {
        if self.list.len() < MAX_EPOCHS {
            return None;
        }
        let oldest = self.list.iter().position(|e| Some(e.id) != self.current)?;
        Some(self.list.remove(oldest).id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (Key, Key) {
        (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]))
    }

    fn with(uses: &[EpochUse]) -> Epochs {
        let mut epochs = Epochs::default();
        for (i, usage) in uses.iter().enumerate() {
            let (a, b) = keys();
            epochs.install(Epoch::new(0, i as u32, 0, &a, &b, i == 0), *usage);
        }
        epochs
    }

    #[test]
    fn a_candidate_seals_only_after_proof() {
        let mut epochs = with(&[EpochUse::Send, EpochUse::Candidate]);
        assert_eq!(epochs.current().map(|e| e.id), Some(0));
        assert_eq!(epochs.authenticated(1, true), Proof::Promoted);
        assert_eq!(epochs.current().map(|e| e.id), Some(1));
        assert_eq!(epochs.authenticated(1, true), Proof::None);
    }

    #[test]
    fn only_epochs_that_seal_hold_what_seals() {
        let mut epochs = with(&[EpochUse::Send, EpochUse::Candidate]);
        let prepared = |epochs: &Epochs| epochs.list.iter().map(|e| e.seal.is_some()).collect::<Vec<_>>();
        assert_eq!(prepared(&epochs), [false, false]);
        epochs.current_mut().and_then(Epoch::next_counter);
        assert_eq!(prepared(&epochs), [true, false]);
        assert_eq!(epochs.authenticated(1, true), Proof::Promoted);
        assert_eq!(prepared(&epochs), [false, false]);
        let late = epochs.pick_mut(Some(0)).unwrap();
        let counter = late.next_counter().unwrap();
        assert!(late.seal(counter, &[], &mut [0; 8]).is_some());
    }

    #[test]
    fn the_losing_epoch_is_never_promoted() {
        let mut epochs = with(&[EpochUse::Send, EpochUse::ReceiveOnly]);
        assert_eq!(epochs.authenticated(1, false), Proof::None);
        assert_eq!(epochs.current().map(|e| e.id), Some(0));
    }

    #[test]
    fn late_frames_of_old_keys_do_not_turn_the_clock_back() {
        let mut epochs = with(&[EpochUse::Send, EpochUse::Candidate]);
        assert_eq!(epochs.authenticated(0, false), Proof::Confirmed);
        epochs.authenticated(1, true);
        assert_eq!(epochs.authenticated(0, false), Proof::None);
        assert_eq!(epochs.current().map(|e| e.id), Some(1));
    }

    #[test]
    fn the_key_bit_alternates_and_follows_the_peer() {
        let mut epochs = with(&[EpochUse::Send, EpochUse::Send]);
        assert_eq!(epochs.current().map(|e| e.key_bit), Some(true));
        epochs.authenticated(1, false);
        assert_eq!(epochs.current().map(|e| e.key_bit), Some(false));
    }

    #[test]
    fn epochs_are_bounded_and_the_current_one_stays() {
        let mut epochs = with(&[EpochUse::Send]);
        for id in 1..100 {
            let (a, b) = keys();
            epochs.install(Epoch::new(0, id, 0, &a, &b, false), EpochUse::Candidate);
        }
        assert_eq!(epochs.ids().count(), MAX_EPOCHS);
        assert_eq!(epochs.current().map(|e| e.id), Some(0));
    }

    #[test]
    fn the_spin_bit_turns_once_in_a_round_trip() {
        let (mut ours, mut theirs) = (with(&[EpochUse::Send]), with(&[EpochUse::Send]));
        let (ours, theirs) = (ours.current_mut().unwrap(), theirs.current_mut().unwrap());
        theirs.initiator = false;
        let mut sent = Vec::new();
        for _ in 0..6 {
            theirs.observe_spin(ours.spin);
            theirs.observe_spin(ours.spin);
            sent.push(theirs.spin);
            ours.observe_spin(theirs.spin);
        }
        assert_eq!(sent, [false, true, false, true, false, true]);
    }

    #[test]
    fn counters_stop_hard() {
        let mut epochs = with(&[EpochUse::Send]);
        let epoch = epochs.current_mut().unwrap();
        epoch.counter = u64::MAX - 1;
        assert_eq!(epoch.next_counter(), Some(u64::MAX - 1));
        assert_eq!(epoch.next_counter(), None);
        assert_eq!(epoch.next_counter(), None);
    }
}
