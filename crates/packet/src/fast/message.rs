//! Messages in fast frames: of a session, and of the two ends of a hop.

use weft_wire::fast;

use super::FastEpoch;
use super::seal::HopSeal;
use crate::counters::DropReason;
use crate::link::Link;
use crate::sender::Sender;
use crate::tables::{Egress, FastPath, LinkKey, SessionKey, Tables};
use crate::train::Transmit;

/// The shortest body of a probe of the path MTU, in bytes: its number.
pub(super) const LEAST_PROBE: usize = 2;

impl<T: Transmit> Sender<'_, T> {
    /// Seals a session message in a fast frame under the keys of `id`, or the present ones, and
    /// returns whether it was sent.
    pub(crate) fn fast_message(&mut self, key: SessionKey, id: Option<u32>, msg_type: u8, body: &[u8]) -> bool {
        let sent = self.try_fast_message(key, id, msg_type, body);
        if let Err(Some(reason)) = sent {
            self.out.counters.drops.count(reason);
        }
        sent.is_ok()
    }

    /// Like [`Sender::fast_message`]. The error is a reason to drop the message, or `None` if there
    /// are no such keys, or no path for their frames.
    fn try_fast_message(
        &mut self,
        key: SessionKey,
        id: Option<u32>,
        msg_type: u8,
        body: &[u8],
    ) -> Result<(), Option<DropReason>> {
        let (whole, egress) = (self.tables.whole, self.tables.egress(key));
        let (session, link) = self.tables.pair(egress).ok_or(None)?;
        let path = FastPath::of(session, link).ok_or(None)?;
        let epoch = match id {
            Some(id) => session.fast.get_mut(id),
            None => session.fast.current_mut().filter(|keys| path.takes_data(keys)),
        };
        let epoch = epoch.ok_or(None)?;
        let (frames, inner_at) = (path.frames(), path.frames().inner_at());
        let slot = self.train.reserve(inner_at + fast::MESSAGE_OVERHEAD + body.len());
        let inner = slot.get_mut(inner_at..).ok_or(None)?;
        let sealed = epoch.seal_message(self.now, msg_type, body, inner);
        let len = inner_at + sealed.ok_or(DropReason::EpochSpent)?;
        if let Some(mut hop) = HopSeal::of(frames, link.hop.current_mut(), whole)? {
            let frame = slot.get_mut(..len).ok_or(None)?;
            hop.seal(frame).ok_or(DropReason::EpochSpent)?;
        }
        link.sent(self.now, 1, len, true);
        session.sent_message(self.now);
        link.paths.commit(self.train, &mut self.out.counters, len);
        self.tables.note_spent(egress);
        Ok(())
    }

    /// Announces to the peer of a session the phase of its frames.
    pub(crate) fn announce_phase(&mut self, key: SessionKey, id: Option<u32>) {
        let session = self.tables.sessions.get(key);
        let epoch = session.and_then(|session| session.fast.pick(id));
        if let Some(phase) = epoch.map(FastEpoch::opens_with).filter(|phase| *phase > 0) {
            self.fast_message(key, id, fast::PHASE, &phase.to_le_bytes());
        }
    }

    /// Sends a probe of the path MTU of `size` bytes in a datagram of its own. Its fate must not
    /// affect data, and the kernel refuses a whole train if it refuses one datagram of it.
    pub(crate) fn probe_path(&mut self, key: SessionKey, number: u16, size: u16) {
        let frames = self.tables.egress(key).frames;
        if !frames.is_fast() {
            return;
        }
        let len = usize::from(size)
            .saturating_sub(frames.inner_at() + fast::MESSAGE_OVERHEAD)
            .max(LEAST_PROBE);
        let mut body = vec![0; len];
        if let Some(place) = body.first_chunk_mut() {
            *place = number.to_le_bytes();
        }
        self.train.flush();
        self.fast_message(key, None, fast::PROBE, &body);
        self.train.flush();
    }

    /// Seals a message to a neighbour under the keys `id` of the hop, or the present ones.
    pub(crate) fn hop_message(&mut self, key: LinkKey, id: Option<u32>, msg_type: u8, body: &[u8]) {
        let done = self.try_hop_message(key, id, msg_type, body);
        self.out.counters.note(done);
    }

    fn try_hop_message(&mut self, key: LinkKey, id: Option<u32>, msg_type: u8, body: &[u8]) -> Result<(), DropReason> {
        let link = self.tables.links.get_mut(key).ok_or(DropReason::NoKeys)?;
        let epoch = link.hop.pick_mut(id).ok_or(DropReason::NoKeys)?;
        let frame = self.train.reserve(fast::MESSAGE_OVERHEAD + body.len());
        let len = epoch.seal_message(self.now, msg_type, body, frame);
        let len = len.ok_or(DropReason::EpochSpent)?;
        link.sent(self.now, 1, len, false);
        link.paths.commit(self.train, &mut self.out.counters, len);
        if link.hop_is_spent() {
            self.tables.changed();
        }
        Ok(())
    }

    /// Announces to the neighbour the phase of its frames under the keys of the hop.
    pub(crate) fn announce_hop_phase(&mut self, key: LinkKey, id: Option<u32>) {
        let link = self.tables.links.get(key);
        let phase = link.and_then(|link| link.hop.pick(id)).map(FastEpoch::opens_with);
        if let Some(phase) = phase.filter(|phase| *phase > 0) {
            self.hop_message(key, id, fast::PHASE, &phase.to_le_bytes());
        }
    }
}

impl Tables {
    /// Records a change if the keys that fast frames of a session need may seal nothing more.
    pub(super) fn note_spent(&mut self, egress: Egress) {
        let spent = self.pair(egress).is_some_and(|(session, link)| {
            let relayed = link.peer != session.peer;
            session.fast.current().is_some_and(FastEpoch::is_spent) || relayed && link.hop_is_spent()
        });
        if spent {
            self.changed();
        }
    }
}

impl Link {
    /// Returns whether the link's keys for relayed frames may seal nothing more.
    pub(super) fn hop_is_spent(&self) -> bool {
        self.hop.current().is_some_and(FastEpoch::is_spent)
    }
}

/// Returns the phase that a [`fast::PHASE`] message names.
pub(super) fn phase_in(body: &[u8]) -> Result<u32, DropReason> {
    let phase = body.first_chunk().ok_or(DropReason::Malformed)?;
    Ok(u32::from_le_bytes(*phase))
}
