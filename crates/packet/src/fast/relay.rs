//! Across: fast frames of others, from one link to the next, and our own through others.
//!
//! A hop opens and seals what a frame tells it, a label and a TTL, and leaves the rest as it is. Here are frames one at a
//! time, which are copied; those of a receive go on from where they lie, see `carry`. docs/protocol/fast.md, "Relayed".

use std::net::SocketAddr;

use weft_wire::fast::{self, FLAG_CE, FLAG_WHOLE, HEADROOM, INNER_AT, Kind, LABEL_AT, MAX_HOPS, RelayHeader};

use super::keys::Opened;
use super::open::{Via, asks, frame_content};
use super::{FastEpoch, FastIndex};
use crate::control::{Carry, EpochId, FastKeys, LinkId, Relay, Report};
use crate::ecn::Seen;
use crate::inbound::Inbound;
use crate::lane::{Lane, Link};
use crate::paths;
use crate::train::{Train, Transmit};

/// How often at most a link may make us report a label that fails, ms.
const FAILED_LABEL_INTERVAL: u64 = 200;

impl Link {
    /// Seals for the next hop the frame of `len` bytes whose inner part lies at [`INNER_AT`].
    pub(super) fn seal_relayed(&mut self, relay: Relay, whole: bool, slot: &mut [u8], len: usize) -> Option<()> {
        let header = RelayHeader {
            label: relay.label,
            ttl: MAX_HOPS,
            marks: 0,
        };
        self.seal_for_hop(header, whole, slot, len)
    }

    fn seal_for_hop(&mut self, header: RelayHeader, whole: bool, slot: &mut [u8], len: usize) -> Option<()> {
        let frame = slot.get_mut(..len)?;
        frame.get_mut(LABEL_AT..INNER_AT)?.copy_from_slice(&header.to_bytes());
        self.hop.current_mut()?.seal_hop(frame, whole)
    }
}

impl Lane {
    /// Takes a frame under the keys of a hop, behind the first [`HEADROOM`] bytes of `room`.
    pub(super) fn hop_frame<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        id: LinkId,
        header: &fast::Header,
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Option<Inbound> {
        let frame = room.get_mut(HEADROOM..)?;
        let link = self.links.get_mut(&id)?;
        let epoch = link.hop.by_index_mut(header.receiver_index)?;
        let opened = match header.kind {
            Kind::Relayed => epoch.open_hop(now, header, frame),
            Kind::Message => {
                let (aad, sealed) = frame.split_at_mut_checked(fast::Header::LEN)?;
                epoch.open(now, header, aad, sealed)
            }
            // The two ends of a hop have nothing to say to each other but messages.
            Kind::Ipv6 | Kind::Full | Kind::Fragment => {
                self.counters.malformed += 1;
                return None;
            }
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                self.counters.fast_open_failed(failure);
                return None;
            }
        };
        let (key, proven) = (epoch.id, epoch.proven);
        let bytes = frame.len();
        link.totals.received(now, 1, bytes);
        self.hop_arrived(now, (from, bytes), id, key, opened);
        if !proven && !asks(header.kind, frame_content(room)) {
            self.links.get_mut(&id)?.hop.prove(key, true);
            self.report(Report::HopProven {
                link: id,
                id: EpochId(key),
            });
        }
        if opened.new_phase {
            self.tell_hop_phase(now, id, Some(key), train);
        }
        if header.kind == Kind::Message {
            self.hop_message(now, id, key, frame_content(room), train);
            return None;
        }
        self.relayed_frame(now, from, (id, header.flags), room, train)
    }

    /// A frame from a new address counts for the link as frames of the link itself do.
    fn hop_arrived(&mut self, now: u64, (from, bytes): (SocketAddr, usize), id: LinkId, key: u32, opened: Opened) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.totals.rx_payload += 1;
        let current = link.hop.current().is_some_and(|current| current.id == key);
        if opened.newest
            && current
            && let Some(room) = link.paths.came_from(now, from, bytes)
        {
            self.report(paths::moved(id, from, room));
        }
    }

    /// Takes a relayed frame whose hop has opened: for us, or for the next hop.
    pub(super) fn relayed_frame<T: Transmit>(
        &mut self,
        now: u64,
        from: SocketAddr,
        (id, flags): (LinkId, u8),
        room: &mut [u8],
        train: &mut Train<T>,
    ) -> Option<Inbound> {
        let frame = room.get_mut(HEADROOM..)?;
        let mut told = RelayHeader::parse(frame.get(LABEL_AT..)?).ok()?;
        if self.outer == Seen::Ce {
            told.marks |= FLAG_CE;
        }
        match self.links.get(&id)?.labels.get(&told.label).copied() {
            None => {
                self.counters.label_unknown += 1;
                self.label_failed(now, id, told.label);
                None
            }
            Some(Carry::On { link, label }) => {
                let on = RelayHeader { label, ..told };
                if self
                    .relay(now, link, on, flags & FLAG_WHOLE != 0, frame, train)
                    .is_none()
                {
                    self.counters.relay_failed += 1;
                    self.label_failed(now, id, told.label);
                }
                None
            }
            Some(Carry::Here) => {
                let marked = told.marks & FLAG_CE != 0;
                let inner = room.get_mut(INNER_AT..)?;
                let Ok(header) = fast::Header::parse(inner.get(HEADROOM..)?) else {
                    self.counters.malformed += 1;
                    return None;
                };
                let Some(&FastIndex::Session(peer)) = self.fast_indices.get(&header.receiver_index) else {
                    self.counters.fast_unknown += 1;
                    return None;
                };
                let via = Via { link: id, marked };
                match self.ends_frame(now, (from, Some(via)), peer, &header, inner, train)? {
                    Inbound::Packet(range, checksum) => {
                        Some(Inbound::Packet(range.start + INNER_AT..range.end + INNER_AT, checksum))
                    }
                    Inbound::Done => None,
                }
            }
        }
    }

    /// Carries a frame on; `None` if it cannot go there.
    fn relay<T: Transmit>(
        &mut self,
        now: u64,
        next: LinkId,
        mut told: RelayHeader,
        whole: bool,
        frame: &[u8],
        train: &mut Train<T>,
    ) -> Option<()> {
        if told.ttl <= 1 {
            self.counters.relay_ttl_expired += 1;
            return Some(());
        }
        let link = self.links.get_mut(&next)?;
        if frame.len() > usize::from(self.config.mtu) || link.hop.current().is_none() {
            return None;
        }
        told.ttl = told.ttl.min(MAX_HOPS) - 1;
        // Once marked it stays so for the rest of the way.
        told.marks = told.marks & FLAG_CE | if link.congested { FLAG_CE } else { 0 };
        let slot = train.reserve(frame.len());
        slot.get_mut(INNER_AT..frame.len())?
            .copy_from_slice(frame.get(INNER_AT..)?);
        // Who wants all of it sealed anew at each hop wants that of every one.
        link.seal_for_hop(told, whole || self.whole, slot, frame.len())?;
        self.counters.relayed += 1;
        self.counters.ce_forwarded += u64::from(told.marks & FLAG_CE);
        link.totals.sent(now, frame.len());
        link.totals.last_payload_tx = now;
        link.paths.commit(train, &mut self.counters, frame.len());
        Some(())
    }

    pub(super) fn label_failed(&mut self, now: u64, id: LinkId, label: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if link.last_failed_label == 0 || now.saturating_sub(link.last_failed_label) >= FAILED_LABEL_INTERVAL {
            link.last_failed_label = now.max(1);
            self.report(Report::LabelFailed { link: id, label });
        }
    }

    fn hop_message<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        key: u32,
        content: &[u8],
        train: &mut Train<T>,
    ) -> Option<()> {
        let Some((&msg_type, body)) = content.split_first() else {
            self.counters.malformed += 1;
            return None;
        };
        match msg_type {
            fast::CONFIRM if body == [fast::CONFIRM_ASKS] => {
                self.send_on_hop(now, id, Some(key), (fast::CONFIRM, &[fast::CONFIRM_ANSWERS]), train);
            }
            fast::PHASE => {
                let phase = u32::from_le_bytes(*body.first_chunk()?);
                self.links.get_mut(&id)?.hop.get_mut(key)?.acknowledge(phase);
            }
            _ => {}
        }
        Some(())
    }

    /// Tells the neighbour which phase its frames are opened with.
    pub(crate) fn tell_hop_phase<T: Transmit>(&mut self, now: u64, id: LinkId, key: Option<u32>, train: &mut Train<T>) {
        let phase = self.hop_epoch(id, key).map(|epoch| epoch.opens_with());
        if let Some(phase) = phase.filter(|phase| *phase > 0) {
            self.send_on_hop(now, id, key, (fast::PHASE, &phase.to_le_bytes()), train);
        }
    }

    /// Seals a message for a neighbour under the keys of the hop.
    pub(crate) fn send_on_hop<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        key: Option<u32>,
        (msg_type, body): (u8, &[u8]),
        train: &mut Train<T>,
    ) {
        let Some(epoch) = self.hop_epoch(id, key) else { return };
        let frame = train.reserve(fast::MESSAGE_OVERHEAD + body.len());
        let Some(len) = epoch.seal_message(now, msg_type, body, frame) else {
            self.counters.epoch_spent += 1;
            return;
        };
        let Some(link) = self.links.get_mut(&id) else { return };
        link.totals.sent(now, len);
        link.paths.commit(train, &mut self.counters, len);
    }

    fn hop_epoch(&mut self, id: LinkId, key: Option<u32>) -> Option<&mut FastEpoch> {
        let hop = &mut self.links.get_mut(&id)?.hop;
        match key {
            Some(key) => hop.get_mut(key),
            None => hop.current_mut(),
        }
    }

    pub(crate) fn install_hop(&mut self, now: u64, id: LinkId, keys: &FastKeys) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(index) = link.hop.install(FastEpoch::new(now, keys)) {
            self.fast_indices.remove(&index);
        }
        self.fast_indices.insert(keys.our_index, FastIndex::Hop(id));
    }

    pub(crate) fn retire_hop(&mut self, id: LinkId, key: EpochId) {
        let retired = self.links.get_mut(&id).and_then(|link| link.hop.retire(key.0));
        if let Some(index) = retired {
            self.fast_indices.remove(&index);
        }
    }

    pub(crate) fn set_label(&mut self, id: LinkId, label: u32, to: Carry) {
        if let Some(link) = self.links.get_mut(&id) {
            link.labels.insert(label, to);
        }
    }

    pub(crate) fn remove_label(&mut self, id: LinkId, label: u32) {
        if let Some(link) = self.links.get_mut(&id) {
            link.labels.remove(&label);
        }
    }
}
