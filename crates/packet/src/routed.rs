//! From the TUN to the subnets behind peers: the peer of a packet, and its frames.
//!
//! [`Kind::Full`](weft_wire::fast::Kind::Full) carries such packets, and towards nodes of nvpn FIPS
//! frames do ([`Egress::in_fips_whole`]). FIPS has nothing for them, so their senders receive an ICMP
//! error while there are neither.

use std::net::IpAddr;

use weft_wire::ip::PROTOCOL_UDP;

use crate::counters::DropReason;
use crate::icmp::IcmpError;
use crate::inner::{Inner, addresses};
use crate::sender::Sender;
use crate::tables::Egress;
use crate::train::Transmit;
use crate::tun::{Outbound, TunPacket};

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
        let carried = match egress.reads_full() {
            true => Some(egress),
            false => egress.in_fips_whole(),
        };
        match carried {
            None => self.no_full_frames(egress, packet),
            Some(_) if self.is_own_datagram(egress, (source, dest), packet.bytes) => {
                return Err(DropReason::UnderlayLoop);
            }
            Some(egress) if !egress.frames.is_fast() && self.waits_for_fast(session, packet) => {}
            Some(egress) => self.in_frames(egress, packet),
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

    /// Returns whether this is a datagram of this node to another one, which a route has led to the
    /// TUN. In the tunnel it would find its peer, and a link would seem to have one more path, which
    /// leads through itself: frames would return repeatedly, and grow each time.
    fn is_own_datagram(&self, egress: Egress, (source, dest): (IpAddr, IpAddr), packet: &[u8]) -> bool {
        let Ok(inner) = Inner::parse(packet) else {
            return false;
        };
        if inner.protocol() != PROTOCOL_UDP {
            return false;
        }
        let ports = inner
            .ports()
            .map(|[a, b, c, d]| [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
        let is_from_socket = |[port, _]: [u16; 2]| {
            self.tables.underlay_ports.contains(&port) && self.tables.routes.is_of_this_node(source)
        };
        if ports.is_some_and(is_from_socket) {
            return true;
        }
        // A listening address of the configuration may be another one than those of the interface.
        let link = egress.link.and_then(|link| self.tables.links.get(link));
        let path = link.map(|link| link.paths.proven());
        path.is_some_and(|path| path.ip() == dest && ports.is_none_or(|[_, port]| port == path.port()))
    }
}
