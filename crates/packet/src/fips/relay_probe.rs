//! Probes of relayed paths, also of those that the session does not use. Nothing that the session
//! measures counts them, and an answer returns over the link that its probe came by.

use weft_contract::{EpochId, LinkId};
use weft_wire::session::{RELAY_PROBE, RELAY_PROBE_ANSWER, RelayProbe};
use weft_wire::{CoordsPair, NodeAddr};

use super::FipsIngress;
use crate::counters::DropReason;
use crate::kinds::{Duty, core_message};
use crate::received::Inbound;
use crate::sender::Sender;
use crate::tables::{LinkKey, SessionKey};
use crate::train::Transmit;

/// The coordinates of both ends of a session, the sender's first.
type BothCoords = (Vec<NodeAddr>, Vec<NodeAddr>);

impl<T: Transmit> FipsIngress<'_, T> {
    /// Processes a probe, or the answer to one, that arrived over `link` in a frame that opened under
    /// the keys of epoch `id`.
    pub(super) fn relay_probe(
        &mut self,
        key: SessionKey,
        link: LinkId,
        id: u32,
        (duty, body): (Duty, &[u8]),
    ) -> Result<Inbound, DropReason> {
        let probe = RelayProbe::parse(body).map_err(|_| DropReason::Malformed)?;
        let tables = &self.lane.tables;
        if duty == Duty::RelayProbe {
            let over = tables.links.key(&link).ok_or(DropReason::NoKeys)?;
            let mut sender = self.lane.sender(self.now, self.train);
            sender.relay_message(key, over, (RELAY_PROBE_ANSWER, &probe.to_bytes()), None)?;
        } else {
            let peer = tables.sessions.get(key).ok_or(DropReason::NoKeys)?.peer;
            self.lane
                .out
                .report(core_message(peer, EpochId(id), RELAY_PROBE_ANSWER, body)?);
        }
        Ok(Inbound::Done)
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends the peer of a session a probe over a link.
    pub(crate) fn probe_relay(&mut self, peer: NodeAddr, link: LinkId, number: u32, coords: Option<&BothCoords>) {
        let keys = self.tables.sessions.key(&peer).zip(self.tables.links.key(&link));
        let done = keys.ok_or(DropReason::NoKeys).and_then(|(session, over)| {
            let probe = RelayProbe { number };
            self.relay_message(session, over, (RELAY_PROBE, &probe.to_bytes()), coords)
        });
        self.out.counters.note(done);
    }

    /// Sends a message over a link. The session does not count it.
    fn relay_message(
        &mut self,
        key: SessionKey,
        over: LinkKey,
        message: (u8, &[u8]),
        coords: Option<&BothCoords>,
    ) -> Result<(), DropReason> {
        let egress = self.tables.egress(key).over(over);
        let coords = coords.map(|(src, dest)| CoordsPair::of(src, dest));
        self.fips_frame(egress, None, message, coords, false)
    }
}
