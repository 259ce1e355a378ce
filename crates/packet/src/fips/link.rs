//! FIPS frames of links, from the wire: handshake messages, and frames under the keys of a link.

use std::ops::Range;

use weft_contract::{CountedEpoch, Endpoint, Layer, LinkReport, PATH_PROBE_LEN, ProbeKind, ReceiverIndex, Report};
use weft_wire::fmp;
use weft_wire::link::{HOP_CAPABILITIES, HOP_CAPABILITIES_ACK, LinkMessageType, OBSERVED, PROBE, PROBE_ANSWER};

use super::{FipsIngress, OpenFailure, Proof, direct};
use crate::awaited::Verdict;
use crate::counters::DropReason;
use crate::ecn::Seen;
use crate::kinds::MAX_CONTROL;
use crate::meter::Arrival;
use crate::paths;
use crate::received::Inbound;
use crate::tables::{Index, LinkKey};
use crate::train::Transmit;

impl<T: Transmit> FipsIngress<'_, T> {
    /// Processes a datagram, and opens it in place. A packet for the TUN is at the range that is
    /// returned.
    pub(crate) fn datagram(&mut self, from: Endpoint, datagram: &mut [u8]) -> Result<Inbound, DropReason> {
        let prefix = fmp::CommonPrefix::parse(datagram).map_err(|_| DropReason::Malformed)?;
        if prefix.phase == fmp::Phase::Established as u8 {
            if self.lane.tables.takes_whole && direct::is_record(prefix) {
                return self.direct_record(from, datagram);
            }
        } else {
            match self.lane.awaited.judge(self.now, datagram) {
                Verdict::Frame => {}
                Verdict::Refused => return Err(DropReason::Unawaited),
                Verdict::Awaited => {
                    let datagram = datagram.to_vec();
                    self.lane.out.report(Report::Outside { from, datagram });
                    return Ok(Inbound::Done);
                }
            }
        }
        match fmp::Phase::from_nibble(prefix.phase) {
            Some(fmp::Phase::Established) => self.established(from, datagram),
            Some(_) if prefix.version == fmp::VERSION => self.handshake(from, datagram),
            _ => Err(DropReason::Malformed),
        }
    }

    /// Passes a well-formed handshake message to the core, at a bounded rate.
    fn handshake(&mut self, from: Endpoint, datagram: &[u8]) -> Result<Inbound, DropReason> {
        let gate = &mut self.lane.gate;
        let wanted = if let Ok(msg1) = fmp::Msg1::parse(datagram) {
            gate.admits_msg1(self.now, from.ip(), &msg1)
        } else {
            // An answer is examined only if a handshake of this node waits for it.
            fmp::Msg2::parse(datagram).is_ok_and(|msg2| gate.admits_msg2(self.now, from.ip(), &msg2))
        };
        if !wanted {
            return Err(DropReason::Handshake);
        }
        let datagram = datagram.to_vec();
        self.lane.out.report(Report::Handshake { from, datagram });
        Ok(Inbound::Done)
    }

    fn established(&mut self, from: Endpoint, datagram: &mut [u8]) -> Result<Inbound, DropReason> {
        let mut header = fmp::EstablishedHeader::parse(datagram).map_err(|_| DropReason::Malformed)?;
        let Some(key) = self.classify(header.receiver_idx)? else {
            return Ok(Inbound::Done);
        };
        let (now, index) = (self.now, header.receiver_idx);
        let tables = &mut self.lane.tables;
        let link = tables.links.get_mut(key).ok_or(DropReason::NoKeys)?;
        let epoch = link.epochs.pick_mut(Some(index)).ok_or(DropReason::NoKeys)?;
        let (aad, sealed) = datagram.split_at_mut(fmp::EstablishedHeader::LEN);
        let newest = epoch.open(header.counter, aad, sealed).map_err(OpenFailure::of_link)?;
        if newest {
            epoch.observe_spin(header.flags & fmp::FLAG_SPIN != 0);
        }
        if self.lane.outer == Seen::Ce
            && let Some(flags) = datagram.get_mut(1)
        {
            // A CE mark of the underlay becomes a mark of the hop, whatever the frame contains. The
            // header has been authenticated before.
            header.flags |= fmp::FLAG_CE;
            *flags |= fmp::FLAG_CE;
        }
        link.received(now, 1, datagram.len());
        let proof = link
            .epochs
            .authenticated(index, header.flags & fmp::FLAG_KEY_EPOCH != 0);
        if proof == Proof::Promoted {
            link.settle_path(index, from);
        }
        // Late frames under old keys may come from an earlier address of the peer.
        let current = link.epochs.current().is_some_and(|e| e.id == index);
        let moved = match newest && current {
            true => link.paths.claimed(now, from, datagram.len(), || answer_len(datagram)),
            false => None,
        };
        let id = link.id;
        if proof == Proof::Promoted {
            let (path, proven) = (link.paths.proven(), link.paths.is_proven());
            tables.changed();
            self.lane.out.report_link(
                id,
                LinkReport::Proven {
                    index: ReceiverIndex(index),
                    path,
                    proven,
                },
            );
            self.lane.sender(now, self.train).flush_queues(id);
        }
        if let Some(room) = moved {
            self.lane.out.report(paths::moved(id, from, room));
        }
        self.link_message(key, &header, from, datagram)
    }

    /// Returns the link that an index belongs to, or `None` if its handshake is not finished. The
    /// latter is reported to the core once.
    fn classify(&mut self, index: u32) -> Result<Option<LinkKey>, DropReason> {
        match self.lane.tables.indices.get_mut(&index) {
            Some(Index::Keyed(key)) => Ok(Some(*key)),
            Some(Index::Armed(link, reported)) => {
                self.lane.out.counters.early_frames += 1;
                if !std::mem::replace(reported, true) {
                    let link = *link;
                    self.lane.out.report_link(
                        link,
                        LinkReport::EarlyFrame {
                            index: ReceiverIndex(index),
                        },
                    );
                }
                Ok(None)
            }
            None => Err(DropReason::UnknownIndex),
        }
    }

    /// Dispatches an opened link message. `datagram` holds its plaintext behind the header.
    fn link_message(
        &mut self,
        key: LinkKey,
        header: &fmp::EstablishedHeader,
        from: Endpoint,
        datagram: &mut [u8],
    ) -> Result<Inbound, DropReason> {
        let end = datagram.len().checked_sub(fmp::TAG_LEN).ok_or(DropReason::Malformed)?;
        let plain = datagram.get(fmp::EstablishedHeader::LEN..end);
        let parsed = plain.and_then(|plain| fmp::InnerHeader::parse(plain).ok());
        let (inner, body) = parsed.ok_or(DropReason::Malformed)?;
        let at = end - body.len()..end;
        let path_probe = match inner.msg_type {
            PROBE => ProbeKind::parse(body),
            _ => None,
        };
        let kind = LinkMessageType::from_byte(inner.msg_type);
        let link = self.lane.tables.links.get_mut(key).ok_or(DropReason::NoKeys)?;
        let id = link.id;
        link.received_payload(u64::from(calls_for_answer(inner.msg_type)));
        let epoch = CountedEpoch::fips(header.receiver_idx);
        if link.epochs.seals_with(header.receiver_idx) {
            let arrival = Arrival {
                epoch,
                counter: header.counter,
                timestamp: inner.timestamp,
                bytes: datagram.len(),
                ce: header.flags & fmp::FLAG_CE != 0,
            };
            link.meter.receive(self.now, arrival);
        }
        match kind {
            Some(LinkMessageType::Heartbeat) if at.is_empty() => Ok(Inbound::Done),
            Some(LinkMessageType::ReceiverReport) => {
                let on = Layer::Link(id);
                let report = self.lane.tables.measured(self.now, on, epoch, body)?;
                self.lane.out.report(report);
                Ok(Inbound::Done)
            }
            Some(LinkMessageType::SessionDatagram) => match self.session_datagram(key, datagram, at.clone())? {
                Some(inbound) => Ok(inbound),
                None => self.pass_to_core(key, header, inner.msg_type, datagram, at),
            },
            _ => match path_probe {
                Some((number, kind)) => {
                    self.lane.out.report_link(id, LinkReport::Probed { from, number, kind });
                    Ok(Inbound::Done)
                }
                None => self.pass_to_core(key, header, inner.msg_type, datagram, at),
            },
        }
    }

    /// Passes the message whose body is at `at` to the core.
    fn pass_to_core(
        &mut self,
        key: LinkKey,
        header: &fmp::EstablishedHeader,
        msg_type: u8,
        datagram: &[u8],
        at: Range<usize>,
    ) -> Result<Inbound, DropReason> {
        if at.len() > MAX_CONTROL {
            return Err(DropReason::ControlTooLong);
        }
        let link = self.lane.tables.links.get(key).ok_or(DropReason::NoKeys)?.id;
        let message = LinkReport::Message {
            index: ReceiverIndex(header.receiver_idx),
            msg_type,
            body: datagram.get(at).unwrap_or_default().to_vec(),
        };
        self.lane.out.report_link(link, message);
        Ok(Inbound::Done)
    }
}

/// Returns the bytes with which the core answers the message of an opened frame on the path by which it
/// came: a probe of that path. `None`: it is such an answer, which goes where this node has asked.
fn answer_len(datagram: &[u8]) -> Option<usize> {
    let end = datagram.len().saturating_sub(fmp::TAG_LEN);
    let plain = datagram.get(fmp::EstablishedHeader::LEN..end);
    let parsed = plain.and_then(|plain| fmp::InnerHeader::parse(plain).ok());
    match parsed.map(|(inner, body)| (inner.msg_type, body)) {
        Some((PROBE, body)) if ProbeKind::parse(body).is_some() => Some(PATH_PROBE_LEN),
        Some((PROBE_ANSWER, _)) => None,
        _ => Some(0),
    }
}

/// Returns whether a message of this type may call for an answer. Tree and filter announcements,
/// reports, heartbeats and what new keys bring with them do not, and a probe has its own. A message of
/// unknown type may.
fn calls_for_answer(msg_type: u8) -> bool {
    let kind = LinkMessageType::from_byte(msg_type);
    !matches!(
        kind,
        Some(
            LinkMessageType::Heartbeat
                | LinkMessageType::SenderReport
                | LinkMessageType::ReceiverReport
                | LinkMessageType::TreeAnnounce
                | LinkMessageType::FilterAnnounce
        )
    ) && !matches!(
        msg_type,
        PROBE | PROBE_ANSWER | OBSERVED | HOP_CAPABILITIES | HOP_CAPABILITIES_ACK
    )
}
