//! Messages in fast frames: of a session, and of the two ends of a hop.

use weft_wire::NodeAddr;
use weft_wire::fast;

use super::FastEpoch;
use crate::control::{EpochId, LinkId};
use crate::counters::DropReason;
use crate::lane::Lane;
use crate::train::{Train, Transmit};

impl Lane {
    /// Processes the message in a session's frame that opened under the keys of epoch `id`.
    pub(super) fn fast_message<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: u32,
        content: &[u8],
        train: &mut Train<T>,
    ) -> Result<(), DropReason> {
        let (&msg_type, body) = content.split_first().ok_or(DropReason::Malformed)?;
        let session = self.sessions.get_mut(&peer).ok_or(DropReason::NoKeys)?;
        session.received_message(now);
        match msg_type {
            fast::CONFIRM if body == [fast::CONFIRM_ASKS] => {
                let answer = (fast::CONFIRM, &[fast::CONFIRM_ANSWERS][..]);
                self.send_fast(now, peer, Some(id), answer, train);
            }
            fast::CONFIRM => {}
            fast::PROBE => {
                let number = *body.first_chunk().ok_or(DropReason::Malformed)?;
                self.answer_probe(now, peer, id, number, train);
            }
            fast::PHASE => {
                let phase = phase_in(body)?;
                session.fast.get_mut(id).ok_or(DropReason::NoKeys)?.acknowledge(phase);
                self.tables_changed();
                // Sends the packets that waited for the acknowledgement, if no other keys could
                // seal them.
                self.flush_queue(now, peer, train);
            }
            _ => {
                let number = session.fast.get_mut(id).ok_or(DropReason::NoKeys)?.number();
                self.session_message(now, peer, (EpochId(id), number), msg_type, body)?;
            }
        }
        Ok(())
    }

    /// Announces to the peer the phase of its frames.
    pub(crate) fn tell_phase<T: Transmit>(&mut self, now: u64, peer: NodeAddr, id: Option<u32>, train: &mut Train<T>) {
        let session = self.sessions.get_mut(&peer);
        let epoch = session.and_then(|s| match id {
            Some(id) => s.fast.get_mut(id),
            None => s.fast.current_mut(),
        });
        if let Some(phase) = epoch.map(|epoch| epoch.opens_with()).filter(|phase| *phase > 0) {
            self.send_fast(now, peer, id, (fast::PHASE, &phase.to_le_bytes()), train);
        }
    }

    /// Processes the message in a hop's frame that opened under its keys `key`.
    pub(super) fn hop_message<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        key: u32,
        content: &[u8],
        train: &mut Train<T>,
    ) -> Result<(), DropReason> {
        let (&msg_type, body) = content.split_first().ok_or(DropReason::Malformed)?;
        match msg_type {
            fast::CONFIRM if body == [fast::CONFIRM_ASKS] => {
                self.send_on_hop(now, id, Some(key), (fast::CONFIRM, &[fast::CONFIRM_ANSWERS]), train);
            }
            fast::PHASE => {
                let phase = phase_in(body)?;
                let epoch = self.hop_epoch(id, Some(key));
                epoch.ok_or(DropReason::NoKeys)?.acknowledge(phase);
                self.tables_changed();
            }
            _ => {}
        }
        Ok(())
    }

    /// Announces to the neighbour the phase of its frames.
    pub(crate) fn tell_hop_phase<T: Transmit>(&mut self, now: u64, id: LinkId, key: Option<u32>, train: &mut Train<T>) {
        let phase = self.hop_epoch(id, key).map(|epoch| epoch.opens_with());
        if let Some(phase) = phase.filter(|phase| *phase > 0) {
            self.send_on_hop(now, id, key, (fast::PHASE, &phase.to_le_bytes()), train);
        }
    }

    /// Seals a message to a neighbour under the keys of the hop.
    pub(crate) fn send_on_hop<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        key: Option<u32>,
        (msg_type, body): (u8, &[u8]),
        train: &mut Train<T>,
    ) {
        let Some(epoch) = self.hop_epoch(id, key) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let frame = train.reserve(fast::MESSAGE_OVERHEAD + body.len());
        let Some(len) = epoch.seal_message(now, msg_type, body, frame) else {
            self.counters.drops.count(DropReason::EpochSpent);
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        link.sent(now, 1, len, false);
        link.paths.commit(train, &mut self.counters, len);
        let spent = link.hop_is_spent();
        self.note_spent(spent);
    }

    fn hop_epoch(&mut self, id: LinkId, key: Option<u32>) -> Option<&mut FastEpoch> {
        let hop = &mut self.links.get_mut(&id)?.hop;
        match key {
            Some(key) => hop.get_mut(key),
            None => hop.current_mut(),
        }
    }
}

/// Returns the phase that a [`fast::PHASE`] message names.
fn phase_in(body: &[u8]) -> Result<u32, DropReason> {
    let phase = body.first_chunk().ok_or(DropReason::Malformed)?;
    Ok(u32::from_le_bytes(*phase))
}
