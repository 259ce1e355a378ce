//! From the TUN to the subnets behind peers: the peer of a packet, and its frames.
//!
//! Only [`Kind::Full`](weft_wire::fast::Kind::Full) carries such packets. FIPS frames cannot, so
//! their senders receive an ICMP error while there are no fast frames.

use std::net::IpAddr;

use weft_wire::ip::PROTOCOL_UDP;

use crate::counters::DropReason;
use crate::icmp::IcmpError;
use crate::inner::Inner;
use crate::lanes::Outbound;
use crate::outbound::TunPacket;
use crate::sender::Sender;
use crate::tables::{Egress, addresses};
use crate::train::Transmit;

impl<T: Transmit> Sender<'_, T> {
    /// Sends a packet that is not between the addresses of two nodes.
    #[cold]
    pub(crate) fn send_routed(&mut self, packet: TunPacket<'_>) -> Outbound {
        match self.try_routed(packet) {
            Ok(outbound) => outbound,
            Err(reason) => {
                self.out.count(reason);
                Outbound::Done
            }
        }
    }

    fn try_routed(&mut self, packet: TunPacket<'_>) -> Result<Outbound, DropReason> {
        let routes = &self.tables.routes;
        let known = addresses(packet.bytes).filter(|(source, _)| source.is_ipv6() || routes.has_subnets());
        let (source, dest) = known.ok_or(DropReason::NotIp)?;
        if !routes.is_ours(source) {
            return Err(DropReason::WrongSource);
        }
        let Some(session) = routes.peer_behind(dest) else {
            self.out.answer(self.now, IcmpError::NoRoute, packet.bytes);
            return Err(DropReason::NoRoute);
        };
        let peer = self.tables.sessions.get(session).map(|session| session.peer);
        let may_leave = |peer| self.tables.firewall.may_leave(peer, (source, dest));
        if !peer.is_some_and(may_leave) {
            return Err(DropReason::WrongSource);
        }
        let egress = self.tables.egress(session).full();
        if let Some(elsewhere) = self.goes_elsewhere(egress, packet) {
            return Ok(elsewhere);
        }
        if !egress.reads_full() {
            self.no_full_frames(egress, packet);
        } else if self.is_own_datagram(egress, dest, packet.bytes) {
            return Err(DropReason::UnderlayLoop);
        } else {
            self.in_frames(egress, packet);
        }
        Ok(Outbound::Done)
    }

    /// Handles a packet with its whole header that cannot go in a fast frame. It waits while an
    /// agreement on fast frames is possible. Otherwise it is dropped, and its sender receives an
    /// ICMP error.
    fn no_full_frames(&mut self, egress: Egress, packet: TunPacket<'_>) {
        let (fast, session) = (egress.frames.is_fast(), egress.session);
        if !fast && (self.waits_for_fast(session, packet) || self.hold(egress, packet, false)) {
            return;
        }
        self.out.count(DropReason::NoFullFrames);
        self.out.answer(self.now, IcmpError::AddressUnreachable, packet.bytes);
        // The packets that waited meet the same end.
        self.flush_queue(session);
    }

    /// Returns whether this is a datagram of this node to the peer that it would go to next, which
    /// a route has led to the TUN. It would return repeatedly, and grow each time.
    fn is_own_datagram(&self, egress: Egress, dest: IpAddr, packet: &[u8]) -> bool {
        let link = egress.link.and_then(|link| self.tables.links.get(link));
        let Some(path) = link.map(|link| link.paths.proven()).filter(|path| path.ip() == dest) else {
            return false;
        };
        Inner::parse(packet).is_ok_and(|inner| {
            let [a, b] = path.port().to_be_bytes();
            let port = |ports: [u8; 4]| ports[2..] == [a, b];
            inner.protocol() == PROTOCOL_UDP && inner.ports().is_none_or(port)
        })
    }
}
