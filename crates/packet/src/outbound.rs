//! From the TUN to the wire: route, split, seal.

use weft_wire::virtio::VirtioNetHdr;

use crate::counters::DropReason;
use crate::flow::FlowHasher;
use crate::fragments;
use crate::icmp::IcmpError;
use crate::lane::Lane;
use crate::sender::Sender;
use crate::split::{SplitError, Splitter};
use crate::tables::Egress;
use crate::train::{Train, Transmit};
use crate::tun::{Outbound, TunPacket};

/// The key of the hash by which flows have paths. Lanes have another one.
const PATHS: u64 = 0x5041_5448;

/// How long no packet for a node may have gone to the first lane before this one sends by itself,
/// in ms. The packets that went to the first lane have arrived by then, so this lane does not
/// overtake them.
const SETTLE: u64 = 20;

impl Lane {
    /// Processes one packet from the TUN: `hdr` as the kernel wrote it, and `packet`, the IP packet
    /// behind it, up to 64 KiB. Sealed datagrams are committed to `train`, which the caller flushes
    /// at the end of its batch. If the node has several lanes, this one may leave the packet to
    /// another ([`Outbound::HandOver`]).
    pub fn outbound<T: Transmit>(
        &mut self,
        now: u64,
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) -> Outbound {
        self.out.counters.tun_rx += 1;
        self.send_packet(now, hdr, packet, train)
    }

    /// Like [`Lane::outbound`] for a packet that was not just read from the TUN: it has waited,
    /// another lane has counted it and left it to this one, or the node itself has made it.
    pub fn send_packet<T: Transmit>(
        &mut self,
        now: u64,
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) -> Outbound {
        self.sender(now, train).send(TunPacket { hdr, bytes: packet })
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends a packet of this host, if it may and can go now.
    #[inline]
    pub(crate) fn send(&mut self, packet: TunPacket<'_>) -> Outbound {
        let Some(session) = self.tables.routes.between_nodes(packet.bytes) else {
            return self.send_routed(packet);
        };
        let egress = self.tables.egress(session);
        if let Some(elsewhere) = self.goes_elsewhere(egress, packet) {
            return elsewhere;
        }
        if egress.frames.is_fast() || !self.waits_for_fast(session, packet) {
            self.in_frames(egress, packet);
        }
        Outbound::Done
    }

    /// Handles a packet that cannot be sealed now: another lane seals it, or it waits for keys.
    #[inline]
    pub(crate) fn goes_elsewhere(&mut self, egress: Egress, packet: TunPacket<'_>) -> Option<Outbound> {
        if let Some(owner) = self.yields(egress) {
            return Some(Outbound::HandOver(owner));
        }
        if !self.place.is_first() || egress.ready {
            return None;
        }
        self.enqueue(egress.session, packet);
        Some(Outbound::Done)
    }

    /// Returns the lane that sends packets for a node, if it is another one. That is so if this
    /// lane has no fast keys or no path for them, and then for [`SETTLE`], so that its packets do
    /// not overtake the earlier ones.
    pub(crate) fn yields(&mut self, egress: Egress) -> Option<u8> {
        if self.place.is_first() {
            return None;
        }
        let (now, session) = (self.now, self.tables.sessions.get_mut(egress.session)?);
        if egress.frames.is_fast() && session.yielded.is_none_or(|at| now.saturating_sub(at) >= SETTLE) {
            return None;
        }
        session.yielded = Some(now);
        self.out.counters.handed_out += 1;
        Some(0)
    }

    /// Sends a packet in frames as `egress` specifies.
    #[inline(always)]
    pub(crate) fn in_frames(&mut self, egress: Egress, packet: TunPacket<'_>) {
        if let Err(reason) = self.tables.firewall.outbound(self.now, packet.bytes) {
            self.out.count(reason);
            self.out.answer(self.now, IcmpError::AddressUnreachable, packet.bytes);
            return;
        }
        if egress.bonded {
            return self.on_path_of_flow(egress, packet);
        }
        self.split(egress, packet);
    }

    #[inline]
    fn split(&mut self, egress: Egress, packet: TunPacket<'_>) {
        match Splitter::new(packet.hdr, packet.bytes, egress.max_inner()) {
            Ok(splitter) => self.packets(egress, splitter),
            Err(SplitError::TooBig { .. }) => self.oversized(egress, packet),
            Err(_) => self.out.count(DropReason::MalformedTun),
        }
    }

    /// Sends a packet on the path of its flow, which is one of several of the link.
    #[cold]
    fn on_path_of_flow(&mut self, egress: Egress, packet: TunPacket<'_>) {
        let hash = FlowHasher::new(PATHS).hash(packet.bytes);
        let Some(key) = egress.link else { return };
        let main = self.tables.links.get_mut(key).map(|link| link.paths.enter_flow(hash));
        self.split(egress, packet);
        if let Some((link, main)) = self.tables.links.get_mut(key).zip(main) {
            link.paths.leave_flow(main);
        }
    }

    /// Handles a packet that does not fit one frame. TCP is cut into smaller segments if the peer
    /// does the same. Other packets go in pieces up to a bound. A packet above the bound is
    /// dropped, and its sender receives an ICMPv6 Packet Too Big.
    fn oversized(&mut self, egress: Egress, packet: TunPacket<'_>) {
        let TunPacket { hdr, bytes } = packet;
        if let Some(splitter) = Splitter::recut(hdr, bytes, egress.max_inner()).filter(|_| egress.splits) {
            self.out.counters.tcp_recut += 1;
            self.packets(egress, splitter);
            return;
        }
        if egress.frames.is_whole() && self.in_fragments(egress, packet) {
            return;
        }
        if !egress.frames.is_fast() && egress.splits && self.hold(egress, packet, true) {
            return;
        }
        let most = match Splitter::new(hdr, bytes, usize::MAX) {
            Ok(splitter) if egress.is_full() && egress.frames.is_fast() => {
                egress.max_in_pieces(splitter.is_ipv6(), splitter.may_fragment())
            }
            _ => egress.max_fragmented(),
        };
        match Splitter::new(hdr, bytes, most) {
            Ok(splitter) => self.in_pieces(egress, splitter),
            Err(_) => {
                self.out.count(DropReason::TooBig);
                let error = IcmpError::PacketTooBig { mtu: most as u32 };
                self.out.answer(self.now, error, bytes);
            }
        }
    }
    /// Sends a packet that routers may fragment as fragments, and returns whether it is one.
    fn in_fragments(&mut self, egress: Egress, packet: TunPacket<'_>) -> bool {
        let Ok(splitter) = Splitter::new(packet.hdr, packet.bytes, usize::MAX) else {
            return false;
        };
        fragments::cut(splitter, egress.max_inner(), |fragment| {
            match Splitter::new(VirtioNetHdr::default(), fragment, usize::MAX) {
                Ok(splitter) => self.packets(egress, splitter),
                Err(_) => self.out.count(DropReason::MalformedTun),
            }
        })
    }
}
