//! What arrives in direct records: sealed session messages that are datagrams of their own.
//!
//! A record names no keys. Its source address leads to the link that has it, and so to the session.

use weft_contract::{Endpoint, LinkId};
use weft_wire::{fmp, fsp};

use super::FipsIngress;
use crate::counters::DropReason;
use crate::early::SessionFrame;
use crate::ecn::Seen;
use crate::received::Inbound;
use crate::tables::SessionKey;
use crate::train::Transmit;

/// Returns whether a datagram is a direct record rather than a frame of a link.
pub(super) const fn is_record(prefix: fmp::CommonPrefix) -> bool {
    prefix.version == fsp::VERSION && prefix.flags & fsp::FLAG_DIRECT != 0
}

impl<T: Transmit> FipsIngress<'_, T> {
    /// Opens a direct record in place, and processes its content.
    pub(super) fn direct_record(&mut self, from: Endpoint, datagram: &mut [u8]) -> Result<Inbound, DropReason> {
        let len = datagram.len();
        let tables = &mut self.lane.tables;
        let (link, src) = tables.neighbour_at(from).ok_or(DropReason::RecordUnknown)?;
        let frame = SessionFrame {
            link,
            src,
            path_mtu: tables.config.mtu,
            marked: self.lane.outer == Seen::Ce,
            direct: true,
            at: 0..len,
        };
        self.session_frame(frame, datagram)
    }

    /// Accounts for a record of `len` bytes that a session has opened: its peer reads records, too.
    pub(super) fn note_record(&mut self, key: SessionKey, link: LinkId, len: usize) {
        let (now, tables) = (self.now, &mut self.lane.tables);
        tables.with_link(link, |link| link.received(now, 1, len));
        let session = tables.sessions.get_mut(key);
        if session.is_some_and(|session| !std::mem::replace(&mut session.reads_direct, true)) {
            tables.changed();
        }
    }
}
