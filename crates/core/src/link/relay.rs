//! Keys for relayed fast frames, once a link has to forward such frames.

use weft_packet::{EpochId, ReceiverIndex};

use super::{Link, Stage};
use crate::context::Context;
use crate::hop::{At, Hop};

impl Link {
    /// Whether relayed frames may be sent over the link.
    pub(crate) fn carries_relayed(&self) -> bool {
        self.is_up() && self.epochs.iter().any(|e| e.hop.as_ref().is_some_and(Hop::is_proven))
    }

    /// Begins the agreement on keys for relayed frames, once in each epoch.
    pub(crate) fn want_relayed(&mut self, ctx: &mut Context, now: u64) {
        if let Some(index) = self.current().filter(|e| e.hop.is_none()).map(|e| e.index) {
            self.begin_hop(ctx, now, index);
        }
    }

    fn begin_hop(&mut self, ctx: &mut Context, now: u64, index: ReceiverIndex) {
        let (link, id) = (self.id, EpochId(self.next_hop));
        let Some(epoch) = self.epochs.iter_mut().find(|e| e.index == index) else {
            return;
        };
        if !ctx.config.fast || !ctx.config.mesh || epoch.hop.is_some() {
            return;
        }
        let Some(seed) = epoch.seed.take() else { return };
        self.next_hop = self.next_hop.wrapping_add(1);
        epoch.hop = Hop::begin(ctx, now, id, seed);
        if let Some(hop) = &mut epoch.hop {
            hop.drive(ctx, now, At { link, index });
        }
    }

    /// Begins the agreement in the present epoch too, if an earlier one had it.
    pub(super) fn renew_hop(&mut self, ctx: &mut Context, now: u64) {
        if self.epochs.iter().any(|e| e.hop.is_some()) {
            self.want_relayed(ctx, now);
        }
    }

    /// Handles the neighbour's capabilities for relayed frames.
    pub(crate) fn handle_hop_capabilities(&mut self, ctx: &mut Context, now: u64, index: ReceiverIndex, body: &[u8]) {
        if self.current().is_some_and(|e| e.index == index) {
            self.begin_hop(ctx, now, index);
        }
        let link = self.id;
        if let Some(hop) = self.hop_of(index) {
            hop.handle_capabilities(ctx, now, At { link, index }, body);
        }
    }

    /// Handles the neighbour's acknowledgement of this node's capabilities.
    pub(crate) fn handle_hop_capabilities_ack(&mut self, index: ReceiverIndex, body: &[u8]) {
        if let Some(hop) = self.hop_of(index) {
            hop.handle_ack(body);
        }
    }

    /// Handles proof that relayed frames pass under these keys.
    pub(crate) fn handle_hop_proven(&mut self, id: EpochId) {
        let mut hops = self.epochs.iter_mut().filter_map(|e| e.hop.as_mut());
        if let Some(hop) = hops.find(|hop| hop.id == id) {
            hop.handle_proven();
        }
    }

    fn hop_of(&mut self, index: ReceiverIndex) -> Option<&mut Hop> {
        self.epochs.iter_mut().find(|e| e.index == index)?.hop.as_mut()
    }

    pub(super) fn hop_at(&self) -> u64 {
        let hops = self.epochs.iter().filter(|e| e.stage == Stage::Current);
        let next = hops.filter_map(|e| e.hop.as_ref()).map(Hop::deadline).min();
        next.unwrap_or(u64::MAX)
    }

    pub(super) fn drive_hop(&mut self, ctx: &mut Context, now: u64) {
        let link = self.id;
        for epoch in self.epochs.iter_mut().filter(|e| e.stage == Stage::Current) {
            let at = At {
                link,
                index: epoch.index,
            };
            if let Some(hop) = &mut epoch.hop {
                hop.drive(ctx, now, at);
            }
        }
    }
}

#[cfg(test)]
impl Link {
    /// Brings the link up with keys for relayed frames.
    pub(crate) fn open_for_relayed(&mut self, now: u64) {
        let mut epoch = super::Epoch::current(ReceiverIndex(self.id.0), now);
        epoch.hop = Some(Hop::proven(EpochId(0)));
        self.epochs.push(epoch);
    }

    /// Removes the keys for relayed frames.
    pub(crate) fn lose_hop(&mut self) {
        self.epochs.iter_mut().for_each(|epoch| epoch.hop = None);
    }
}
