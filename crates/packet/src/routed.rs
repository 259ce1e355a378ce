//! From the TUN to the networks behind peers: the peer of a packet, and its frames.
//!
//! Only [`Kind::Full`](weft_wire::fast::Kind::Full) carries such packets. FIPS frames cannot, so
//! their senders receive an ICMP error while there are no fast frames.

use std::net::IpAddr;

use weft_wire::NodeAddr;
use weft_wire::ip::PROTOCOL_UDP;
use weft_wire::virtio::VirtioNetHdr;

use crate::counters::DropReason;
use crate::egress::Egress;
use crate::icmp::IcmpError;
use crate::inner::Inner;
use crate::lane::Lane;
use crate::lanes::Outbound;
use crate::networks::{Borders, addresses};
use crate::train::{Train, Transmit};

impl Lane {
    /// Processes a packet from the TUN that is not between the addresses of two nodes.
    #[cold]
    pub(crate) fn outbound_routed<T: Transmit>(
        &mut self,
        now: u64,
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) -> Outbound {
        let known = addresses(packet).filter(|(source, _)| source.is_ipv6() || !self.networks.is_empty());
        let Some((source, dest)) = known else {
            self.counters.drops.count(DropReason::NotIp);
            return Outbound::Done;
        };
        if !self.borders().is_ours(source) {
            self.counters.drops.count(DropReason::WrongSource);
            return Outbound::Done;
        }
        let Some(peer) = self.borders().peer_behind(dest) else {
            self.counters.drops.count(DropReason::NoRoute);
            self.answer(now, IcmpError::NoRoute, packet);
            return Outbound::Done;
        };
        let room = self.egress(&peer).full();
        if let Some(elsewhere) = self.goes_elsewhere(now, (peer, room), hdr, packet) {
            return elsewhere;
        }
        if !room.reads_full() {
            self.no_full_frames(now, (peer, room), hdr, packet, train);
            return Outbound::Done;
        }
        if self.is_own_datagram(&peer, dest, packet) {
            self.counters.drops.count(DropReason::UnderlayLoop);
            return Outbound::Done;
        }
        self.send_in_frames(now, (peer, room), hdr, packet, train);
        Outbound::Done
    }

    /// Returns the tables that decide between which addresses packets may pass.
    pub(crate) fn borders(&self) -> Borders<'_> {
        Borders {
            me: self.config.me,
            allowed: &self.allowed,
            networks: &self.networks,
        }
    }

    /// Handles a packet with its whole header that cannot go in a fast frame. It waits while an
    /// agreement on fast frames is possible. Otherwise it is dropped, and its sender receives an
    /// ICMP error.
    fn no_full_frames<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) {
        if room.fast.is_none() && (self.waits_for_fast(peer, hdr, packet) || self.hold(now, peer, hdr, packet, false)) {
            return;
        }
        self.counters.drops.count(DropReason::NoFullFrames);
        self.answer(now, IcmpError::AddressUnreachable, packet);
        // The packets that waited meet the same end.
        self.flush_queue(now, peer, train);
    }

    /// Returns whether this is a datagram of this node to the peer that it would go to next, which
    /// a route has led to the TUN. It would return repeatedly, and grow each time.
    fn is_own_datagram(&self, peer: &NodeAddr, dest: IpAddr, packet: &[u8]) -> bool {
        let link = self
            .sessions
            .get(peer)
            .and_then(|session| self.links.get(&session.link?));
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
