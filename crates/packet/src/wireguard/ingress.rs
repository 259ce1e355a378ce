//! What arrives at the socket of WireGuard.
//!
//! The socket decides that a datagram is one of WireGuard: its first bytes are those of FIPS frames as well. Data
//! messages are opened here; all others go to the state machine outside of the lane, and nothing of them is
//! authenticated.

use std::ops::Range;

use weft_contract::{Endpoint, Report};
use weft_wire::fast::HEADROOM;

use super::keys::{HEADER_LEN, is_handshake, packet_len, receiver};
use crate::admit::{Door, Form};
use crate::checksum::Checksum;
use crate::counters::DropReason;
use crate::lane::Lane;
use crate::received::Received;
use crate::tables::SessionKey;
use crate::train::{Train, Transmit};

/// One receive from the socket of WireGuard, and what its processing needs.
pub(crate) struct WireGuardIngress<'a, T> {
    pub(crate) lane: &'a mut Lane,
    /// The present time, in ms.
    pub(crate) now: u64,
    /// The source address of the datagrams.
    pub(crate) from: Endpoint,
    pub(crate) train: &'a mut Train<T>,
}

/// What a run of data messages has shown.
#[derive(Default)]
struct Shown {
    /// The peer has used keys that do not seal yet.
    used: bool,
    /// The peer is somewhere else.
    moved: bool,
}

impl<T: Transmit> WireGuardIngress<'_, T> {
    /// Processes all datagrams of a receive. Calls `deliver` for each IP packet for the TUN, with its range in the
    /// room.
    #[cold]
    pub(crate) fn all(&mut self, received: &mut Received<'_>, deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum)) {
        self.lane.out.counters.udp_rx += received.count() as u64;
        while let Some(datagram) = received.head() {
            let Some(index) = receiver(datagram) else {
                match is_handshake(datagram) {
                    true => self.lane.out.report(Report::WireGuard {
                        from: self.from,
                        datagram: datagram.to_vec(),
                    }),
                    false => self.lane.out.count(DropReason::Malformed),
                }
                received.skip();
                continue;
            };
            let Some(key) = self.lane.tables.wireguard.indices.get(&index).copied() else {
                self.lane.out.count(DropReason::WireGuardUnknown);
                received.skip();
                continue;
            };
            if let Err(reason) = self.run(key, index, received, deliver) {
                self.lane.out.count(reason);
                received.skip();
            }
        }
    }

    /// Opens the messages at the front of `received` that are under the same keys.
    fn run(
        &mut self,
        key: SessionKey,
        index: u32,
        received: &mut Received<'_>,
        deliver: &mut impl FnMut(&[u8], Range<usize>, Checksum),
    ) -> Result<(), DropReason> {
        let (now, from, lane) = (self.now, self.from, &mut *self.lane);
        let seen = lane.outer;
        let egress = lane.tables.egress(key);
        let session = lane.tables.sessions.get_mut(key).ok_or(DropReason::NoKeys)?;
        let counters = &mut lane.out.counters;
        let checks = (&lane.tables.routes, &mut lane.tables.firewall);
        let mut door = Door::new(now, checks, (session, egress), None, seen);
        let (mut shown, mut keepalives) = (Shown::default(), 0);
        let tunnel = session.wireguard.as_deref_mut().ok_or(DropReason::NoKeys)?;
        let is_here = tunnel.is_at(from);
        let current = tunnel.is_current(index);
        let (keys, younger) = tunnel.by_index(index).ok_or(DropReason::WireGuardUnknown)?;
        loop {
            let (at, room) = received.head_in_room();
            let message = room.get_mut(HEADROOM..).unwrap_or_default();
            if receiver(message) != Some(index) {
                break;
            }
            let opened = match keys.open(message) {
                Ok(opened) => opened,
                Err(reason) => {
                    counters.drops.count(reason);
                    received.skip();
                    continue;
                }
            };
            let content = HEADER_LEN..message.len().saturating_sub(super::MESSAGE_OVERHEAD - HEADER_LEN);
            let content = message.get_mut(content).unwrap_or_default();
            // A message that was overtaken or held back may show a former address of the peer.
            let shows = opened.newest && (younger || current);
            keys.count(shows.then_some(from), !content.is_empty());
            shown.used |= younger;
            shown.moved |= shows && !is_here;
            if content.is_empty() {
                keepalives += 1;
                received.skip();
                continue;
            }
            let len = packet_len(content).ok_or(DropReason::Malformed);
            let packet = len.and_then(|len| content.get_mut(..len).ok_or(DropReason::Malformed));
            match packet.and_then(|packet| Ok((door.admit(Form::Whole, false, packet, counters)?, packet))) {
                Ok((Some(checksum), packet)) => {
                    let start = at + HEADROOM + HEADER_LEN;
                    deliver(packet, start..start + packet.len(), checksum);
                }
                Ok((None, _)) => {}
                Err(reason) => counters.drops.count(reason),
            }
            received.skip();
        }
        let tally = door.close();
        tally.account(now, session);
        for _ in 0..keepalives {
            session.received_message(now);
        }
        self.follow(key, index, &shown);
        self.lane.sender(now, self.train).settle(key, tally);
        Ok(())
    }

    /// Does what messages that opened call for: uses keys that the peer uses, sends to where it is, and reports that.
    fn follow(&mut self, key: SessionKey, index: u32, shown: &Shown) {
        if !shown.used && !shown.moved {
            return;
        }
        let tables = &mut self.lane.tables;
        let Some(session) = tables.sessions.get_mut(key) else {
            return;
        };
        let Some(tunnel) = session.wireguard.as_deref_mut() else {
            return;
        };
        if shown.used {
            tunnel.select(index);
        }
        if shown.moved {
            tunnel.place(self.from);
        }
        let peer = session.peer;
        for passed in tunnel.take_passed() {
            self.lane.out.report(Report::WireGuardTraffic(peer, passed));
        }
        tables.changed();
        self.lane.sender(self.now, self.train).flush_tunnel(key);
    }
}
