//! From packets to data messages of WireGuard.

use super::keys::HEADER_LEN;
use super::{MESSAGE_OVERHEAD, Tunnel};
use crate::counters::DropReason;
use crate::sender::Sender;
use crate::split::Splitter;
use crate::tables::{Egress, SessionKey};
use crate::train::Transmit;

impl<T: Transmit> Sender<'_, T> {
    /// Seals the splitter's packets in data messages.
    pub(crate) fn wireguard_packets(&mut self, egress: Egress, mut splitter: Splitter<'_>) -> Result<(), DropReason> {
        // A guest has an IPv4 address alone. One of IPv6 would follow from what stands for it in tables.
        if splitter.is_ipv6() {
            return Err(DropReason::NoRoute);
        }
        let mtu = egress.max_inner();
        let session = self.tables.sessions.get_mut(egress.session).ok_or(DropReason::NoKeys)?;
        let tunnel = session.wireguard.as_deref_mut();
        let (keys, path) = tunnel.and_then(Tunnel::sealing).ok_or(DropReason::NoKeys)?;
        let (mut packets, mut carried) = (0, 0);
        loop {
            let slot = self.train.reserve(mtu + MESSAGE_OVERHEAD);
            let Some(len) = slot.get_mut(HEADER_LEN..).and_then(|room| splitter.next_into(room)) else {
                break;
            };
            let Some(total) = keys.seal(slot, len, mtu) else {
                self.out.counters.drops.count(DropReason::EpochSpent);
                break;
            };
            self.train.commit(path, total);
            (packets, carried) = (packets + 1, carried + len);
        }
        session.sent_packets(self.now, packets, carried);
        Ok(())
    }

    /// Sends a data message without a packet, if there are keys and a place for it.
    pub(crate) fn wireguard_keepalive(&mut self, key: SessionKey) {
        let session = self.tables.sessions.get_mut(key);
        let Some(session) = session else { return };
        let Some((keys, path)) = session.wireguard.as_deref_mut().and_then(Tunnel::sealing) else {
            return;
        };
        if let Some(len) = keys.seal(self.train.reserve(MESSAGE_OVERHEAD), 0, 0) {
            self.train.commit(path, len);
            session.sent_message(self.now);
        }
    }

    /// Sends the packets that wait for the keys of a peer, if there are keys and a place for them now.
    pub(crate) fn flush_tunnel(&mut self, key: SessionKey) {
        let egress = self.tables.egress(key);
        let Some(session) = self.tables.sessions.get_mut(key).filter(|_| egress.ready) else {
            return;
        };
        session.wanted = None;
        let peer = session.peer;
        for waiting in self.take_queue(peer) {
            // They have passed the rules, and some are not of this node.
            self.in_frames(egress, waiting.packet());
        }
    }
}
