//! Sending: packets and messages, sealed under the keys in the tables into one train.
//!
//! The packets of one TUN read are sealed in one loop, whatever their encapsulation
//! ([`Encapsulate`]). Messages are sealed one by one: those of a link here, those of a session in
//! FIPS frames here and in fast frames in `fast/message.rs`.

use weft_contract::{Endpoint, Place, Shares};
use weft_wire::link::LinkMessageType;
use weft_wire::session::{DataPorts, SessionMessageType};
use weft_wire::{CoordsPair, NodeAddr, fmp};

use crate::counters::DropReason;
use crate::encapsulate::Sealing;
use crate::fips::frame::{self, Ends, Layers};
use crate::fips::{FipsFrames, LINK_FRAME_EVERY, RECORD_OVERHEAD, Records, SESSION_OVERHEAD};
use crate::link::Link;
use crate::outbox::Outbox;
use crate::split::Splitter;
use crate::tables::{Egress, Encapsulation, LinkKey, SessionKey, Tables};
use crate::train::{Train, Transmit};

/// The borrowed parts of a lane that seal and send: see the module.
pub(crate) struct Sender<'a, T> {
    /// The present time, in ms.
    pub(crate) now: u64,
    pub(crate) tables: &'a mut Tables,
    pub(crate) out: &'a mut Outbox,
    pub(crate) place: Place,
    /// The shares of the sessions in the packets that wait in their queues.
    pub(crate) queued: &'a mut Shares<NodeAddr>,
    /// A buffer.
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) train: &'a mut Train<T>,
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends the splitter's packets in frames as `egress` specifies.
    pub(crate) fn packets(&mut self, egress: Egress, splitter: Splitter<'_>) {
        let done = match egress.frames {
            Encapsulation::Fips => self.fips_packets::<false>(egress, splitter),
            Encapsulation::FipsWhole => self.fips_packets::<true>(egress, splitter),
            Encapsulation::Direct => self.records(egress, splitter),
            Encapsulation::WireGuard => self.wireguard_packets(egress, splitter),
            Encapsulation::Fast | Encapsulation::Relayed { .. } => self.fast_packets(egress, splitter),
        };
        self.out.counters.note(done);
    }

    fn fips_packets<const WHOLE: bool>(&mut self, egress: Egress, splitter: Splitter<'_>) -> Result<(), DropReason> {
        let config = self.tables.config;
        let (session, link) = self.tables.pair(egress).ok_or(DropReason::NoKeys)?;
        let mut frames = FipsFrames::<WHOLE> {
            layers: Layers::of(&mut link.epochs, &mut session.epochs, None).ok_or(DropReason::NoKeys)?,
            ends: Ends::of(&config, session.peer),
            max_tcp: egress.max_tcp(),
        };
        let sealing = Sealing {
            now: self.now,
            paths: &mut link.paths,
            counters: &mut self.out.counters,
            train: self.train,
        };
        let sent = sealing.all(
            &mut frames,
            splitter,
            egress.max_inner() + FipsFrames::<WHOLE>::OVERHEAD,
        );
        link.sent(self.now, sent.frames, sent.bytes, true);
        session.sent_packets(self.now, sent.frames, sent.carried);
        Ok(())
    }

    /// Sends packets in direct records, or in frames of the link if none has gone in one for a while.
    fn records(&mut self, egress: Egress, splitter: Splitter<'_>) -> Result<(), DropReason> {
        let now = self.now;
        let (session, link) = self.tables.pair(egress).ok_or(DropReason::NoKeys)?;
        let due = |at: u64| now.saturating_sub(at) >= LINK_FRAME_EVERY;
        if session.link_frame.is_none_or(due) {
            session.link_frame = Some(now);
            return self.fips_packets::<true>(egress, splitter);
        }
        let mut records = Records {
            session: session.epochs.pick_mut(None).ok_or(DropReason::NoKeys)?,
            max_tcp: egress.max_tcp(),
        };
        let sealing = Sealing {
            now,
            paths: &mut link.paths,
            counters: &mut self.out.counters,
            train: self.train,
        };
        let sent = sealing.all(&mut records, splitter, egress.max_inner() + RECORD_OVERHEAD);
        link.sent(now, sent.frames, sent.bytes, true);
        session.sent_packets(now, sent.frames, sent.carried);
        Ok(())
    }

    /// Seals a message to the neighbour of a link under the keys of `epoch`, or the present ones.
    pub(crate) fn link_message(&mut self, key: LinkKey, epoch: Option<u32>, msg_type: u8, body: &[u8]) {
        let done = self.try_link_message(key, epoch, msg_type, body);
        self.out.counters.note(done);
    }

    fn try_link_message(
        &mut self,
        key: LinkKey,
        epoch: Option<u32>,
        msg_type: u8,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let link = self.tables.links.get_mut(key).ok_or(DropReason::NoKeys)?;
        let len = link.seal(self.now, epoch, msg_type, body, self.train)?;
        let payload = msg_type == LinkMessageType::SessionDatagram.to_byte();
        link.sent(self.now, 1, len, payload);
        link.paths.commit(self.train, &mut self.out.counters, len);
        Ok(())
    }

    /// Sends a probe of a path, or the answer to one, to `to`, if the link has keys.
    pub(crate) fn probe_link(&mut self, key: LinkKey, to: Endpoint, msg_type: u8, body: &[u8]) {
        let Some(link) = self.tables.links.get_mut(key) else {
            return;
        };
        match link.seal(self.now, None, msg_type, body, self.train) {
            Ok(len) => {
                link.sent(self.now, 1, len, false);
                self.train.commit(to, len);
            }
            Err(DropReason::NoKeys) => {}
            Err(reason) => self.out.counters.drops.count(reason),
        }
    }

    /// Forwards the body of a session datagram to the next hop.
    pub(crate) fn forward(&mut self, key: LinkKey, marked: bool, body: &[u8]) -> Result<(), DropReason> {
        let link = self.tables.links.get_mut(key).ok_or(DropReason::ForwardFailed)?;
        // A mark stays for the rest of the path.
        let marked = marked || link.congested;
        let flags = if marked { fmp::FLAG_CE } else { 0 };
        let msg_type = LinkMessageType::SessionDatagram.to_byte();
        let len = match link.seal_flagged(self.now, None, flags, msg_type, body, self.train) {
            Err(DropReason::NoKeys) => return Err(DropReason::ForwardFailed),
            sealed => sealed?,
        };
        self.out.counters.ce_forwarded += u64::from(marked);
        self.out.counters.forwarded += 1;
        link.sent(self.now, 1, len, true);
        link.paths.commit(self.train, &mut self.out.counters, len);
        Ok(())
    }

    /// Seals a message to the peer of a session: in a fast frame if possible and no `epoch` is
    /// named, else in a FIPS frame under the keys of `epoch`, or the present ones.
    pub(crate) fn session_message(&mut self, key: SessionKey, epoch: Option<u32>, msg_type: u8, body: &[u8]) {
        if epoch.is_none() && self.fast_message(key, None, msg_type, body) {
            return;
        }
        let done = self.fips_message(key, epoch, msg_type, body);
        self.out.counters.note(done);
    }

    /// Seals a message of a service to the peer of a session, in a FIPS frame.
    pub(crate) fn service_message(&mut self, key: SessionKey, ports: DataPorts, bytes: &[u8]) {
        let body = [&ports.to_bytes()[..], bytes].concat();
        let done = self.fips_message(key, None, SessionMessageType::Data.to_byte(), &body);
        self.out.counters.note(done);
    }

    fn fips_message(
        &mut self,
        key: SessionKey,
        epoch: Option<u32>,
        msg_type: u8,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let egress = self.tables.egress(key);
        self.fips_frame(egress, epoch, (msg_type, body), None, true)
    }

    /// Seals a session message in a FIPS frame over the link of `egress`, under the keys of `epoch` or
    /// the present ones. Coordinates go in the clear, for the nodes on the path; a message whose
    /// coordinates do not fit a datagram is not sent. `counted`: whether the frame counts as payload of
    /// the link and as a message of the session.
    pub(crate) fn fips_frame(
        &mut self,
        egress: Egress,
        epoch: Option<u32>,
        (msg_type, body): (u8, &[u8]),
        coords: Option<CoordsPair<'_>>,
        counted: bool,
    ) -> Result<(), DropReason> {
        let config = self.tables.config;
        let (session, link) = self.tables.pair(egress).ok_or(DropReason::NoKeys)?;
        let ends = Ends::of(&config, session.peer);
        let layers = Layers::of(&mut link.epochs, &mut session.epochs, epoch);
        let mut layers = layers.ok_or(DropReason::NoKeys)?;
        let len = match coords {
            None => {
                let slot = self.train.reserve(SESSION_OVERHEAD + body.len());
                layers.seal_message(self.now, ends, msg_type, body, slot)
            }
            Some(coords) => {
                let slot = self.train.reserve(config.mtu.into());
                layers.seal_with_coords(self.now, ends, coords, (msg_type, body), slot)
            }
        };
        let len = len.ok_or(DropReason::EpochSpent)?;
        link.sent(self.now, 1, len, counted);
        if counted {
            session.sent_message(self.now);
        }
        link.paths.commit(self.train, &mut self.out.counters, len);
        Ok(())
    }
}

impl Link {
    /// Seals a link message into the room that `train` has next, under the keys of `epoch` or the
    /// present ones, and returns the length of the frame.
    pub(crate) fn seal<T: Transmit>(
        &mut self,
        now: u64,
        epoch: Option<u32>,
        msg_type: u8,
        body: &[u8],
        train: &mut Train<T>,
    ) -> Result<usize, DropReason> {
        self.seal_flagged(now, epoch, 0, msg_type, body, train)
    }

    fn seal_flagged<T: Transmit>(
        &mut self,
        now: u64,
        epoch: Option<u32>,
        flags: u8,
        msg_type: u8,
        body: &[u8],
        train: &mut Train<T>,
    ) -> Result<usize, DropReason> {
        let epoch = self.epochs.pick_mut(epoch).ok_or(DropReason::NoKeys)?;
        let end = frame::LINK_BODY_OFFSET + body.len();
        let slot = train.reserve(end + fmp::TAG_LEN);
        let room = slot.get_mut(frame::LINK_BODY_OFFSET..end);
        room.ok_or(DropReason::ControlTooLong)?.copy_from_slice(body);
        frame::seal_link(epoch, now, flags, msg_type, slot, end).ok_or(DropReason::EpochSpent)
    }
}
