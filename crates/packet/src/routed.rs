//! From the TUN to the networks behind peers: whose packet it is, and in what frames it goes.
//!
//! Only [`Kind::Full`](weft_wire::fast::Kind::Full) carries such packets. FIPS frames cannot, so while there are no fast
//! ones their senders are told.

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
    /// Takes a packet from the TUN that is not between the addresses of two nodes.
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

    /// Whom packets may be from, and for.
    pub(crate) fn borders(&self) -> Borders<'_> {
        Borders {
            me: self.config.me,
            allowed: &self.allowed,
            networks: &self.networks,
        }
    }

    /// Keeps a packet for as long as an agreement on fast frames takes, if there may be one; otherwise tells its sender.
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
        // Those that were kept learn the same.
        self.flush_queue(now, peer, train);
    }

    /// Whether this is a datagram of ours to the node that it would go to next, which a route has led back to us: it would
    /// come back again and again, a little longer each time.
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
