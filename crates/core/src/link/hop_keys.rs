//! Keys for relayed fast frames over a link, once it has to forward such frames.
//!
//! The neighbours agree on them for each epoch of the link ([`crate::agreement`]). The agreement
//! begins when this node needs such keys, or when the neighbour begins. docs/protocol/fast.md, "Hop
//! keys".

use weft_contract::{EpochId, LinkCommand, LinkId, ReceiverIndex, SendCommand};
use weft_wire::link::{HOP_CAPABILITIES, HOP_CAPABILITIES_ACK};

use super::{Epoch, Link, Stage};
use crate::agreement::{self, Agreement};
use crate::context::Context;

impl Link {
    /// Whether relayed frames may be sent over the link.
    pub(crate) fn carries_relayed(&self) -> bool {
        self.is_up()
            && self
                .epochs
                .iter()
                .any(|e| e.hop.as_ref().is_some_and(Agreement::is_proven))
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
        epoch.hop = Agreement::begin(ctx, now, id, seed, 1, "");
        epoch.drive_hop(ctx, now, link);
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
        let Some(epoch) = self.epochs.iter_mut().find(|e| e.index == index) else {
            return;
        };
        let accepted = epoch
            .hop
            .as_mut()
            .and_then(|hop| hop.handle_capabilities(ctx, now, body));
        let Some(accepted) = accepted else { return };
        for keys in accepted.keys {
            ctx.change_link(link, LinkCommand::InstallHop { keys });
        }
        epoch.send(ctx, link, HOP_CAPABILITIES_ACK, accepted.ack);
        epoch.drive_hop(ctx, now, link);
    }

    /// Handles the neighbour's acknowledgement of this node's capabilities.
    pub(crate) fn handle_hop_capabilities_ack(&mut self, index: ReceiverIndex, body: &[u8]) {
        let epoch = self.epochs.iter_mut().find(|e| e.index == index);
        if let Some(hop) = epoch.and_then(|epoch| epoch.hop.as_mut()) {
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

    pub(super) fn hop_at(&self) -> u64 {
        let current = self.epochs.iter().filter(|e| e.stage == Stage::Current);
        current.map(Epoch::hop_at).min().unwrap_or(u64::MAX)
    }

    pub(super) fn drive_hop(&mut self, ctx: &mut Context, now: u64) {
        for epoch in self.epochs.iter_mut().filter(|e| e.stage == Stage::Current) {
            epoch.drive_hop(ctx, now, self.id);
        }
    }
}

impl Epoch {
    fn hop_at(&self) -> u64 {
        match &self.hop {
            Some(hop)
                if matches!(
                    hop.stage,
                    agreement::Stage::Announcing | agreement::Stage::Requesting(..)
                ) =>
            {
                hop.next
            }
            _ => u64::MAX,
        }
    }

    fn drive_hop(&mut self, ctx: &mut Context, now: u64, link: LinkId) {
        if now < self.hop_at() {
            return;
        }
        let Some(hop) = &mut self.hop else { return };
        let announcement = hop.announce(now);
        if hop.request(now) {
            ctx.change_link(link, LinkCommand::ConfirmHop { id: hop.id });
        }
        if let Some(body) = announcement {
            self.send(ctx, link, HOP_CAPABILITIES, body);
        }
    }

    /// Sends a message under the keys of this epoch.
    fn send(&self, ctx: &mut Context, link: LinkId, msg_type: u8, body: Vec<u8>) {
        ctx.lane(SendCommand::OnLink {
            link,
            epoch: Some(self.index),
            msg_type,
            body,
        });
    }
}

#[cfg(test)]
impl Link {
    /// Brings the link up with keys for relayed frames.
    pub(crate) fn open_for_relayed(&mut self, now: u64) {
        let mut epoch = super::Epoch::current(ReceiverIndex(self.id.0), now);
        epoch.hop = Some(crate::agreement::Agreement::proven(EpochId(0)));
        self.epochs.push(epoch);
    }

    /// Removes the keys for relayed frames.
    pub(crate) fn lose_hop(&mut self) {
        self.epochs.iter_mut().for_each(|epoch| epoch.hop = None);
    }
}
