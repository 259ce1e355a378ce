//! From the TUN to the wire: route, split, seal.

use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::counters::DropReason;
use crate::egress::Egress;
use crate::frame::{IP_OFFSET, IPV6_OVERHEAD, Layers};
use crate::icmp::IcmpError;
use crate::lane::Lane;
use crate::lanes::Outbound;
use crate::mss;
use crate::split::{SplitError, Splitter};
use crate::train::{Train, Transmit};

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
        self.counters.tun_rx += 1;
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
        let ours = self.config.me.to_ipv6().octets();
        let addresses = ipv6_addresses(packet).filter(|(source, _)| *source == ours);
        let Some(&peer) = addresses.and_then(|(_, dest)| self.allowed.get(&dest)) else {
            return self.outbound_routed(now, hdr, packet, train);
        };
        let room = self.egress(&peer);
        if let Some(elsewhere) = self.goes_elsewhere(now, (peer, room), hdr, packet) {
            return elsewhere;
        }
        if room.fast.is_some() || !self.waits_for_fast(peer, hdr, packet) {
            self.send_in_frames(now, (peer, room), hdr, packet, train);
        }
        Outbound::Done
    }

    /// Handles a packet for this node that cannot be sealed now: another lane seals it, or it waits
    /// for keys.
    #[inline]
    pub(crate) fn goes_elsewhere(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        hdr: VirtioNetHdr,
        packet: &[u8],
    ) -> Option<Outbound> {
        if let Some(owner) = self.yields(now, peer, room) {
            return Some(Outbound::HandOver(owner));
        }
        if !self.place.is_first() || room.ready {
            return None;
        }
        self.enqueue(now, peer, hdr, packet);
        Some(Outbound::Done)
    }

    /// Sends the packet or super-packet of one TUN read, in frames as `room` specifies.
    #[inline]
    pub(crate) fn send_in_frames<T: Transmit>(
        &mut self,
        now: u64,
        to: (NodeAddr, Egress),
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) {
        match Splitter::new(hdr, packet, to.1.max_inner()) {
            Ok(splitter) => self.seal_packets(now, to, splitter, train),
            Err(SplitError::TooBig { .. }) => self.oversized(now, to, hdr, packet, train),
            Err(_) => self.counters.drops.count(DropReason::MalformedTun),
        }
    }

    fn seal_packets<T: Transmit>(
        &mut self,
        now: u64,
        to: (NodeAddr, Egress),
        splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        match to.1.fast {
            Some(_) => self.seal_fast(now, to, splitter, train),
            None => self.seal_segments(now, to, splitter, train),
        }
    }

    /// Handles a packet that does not fit one frame. TCP is cut into smaller segments if the peer
    /// does the same. Other packets go in pieces up to a bound. A packet above the bound is
    /// dropped, and its sender receives an ICMPv6 Packet Too Big.
    fn oversized<T: Transmit>(
        &mut self,
        now: u64,
        to: (NodeAddr, Egress),
        hdr: VirtioNetHdr,
        packet: &[u8],
        train: &mut Train<T>,
    ) {
        let room = to.1;
        if let Some(splitter) = Splitter::recut(hdr, packet, room.max_inner()).filter(|_| room.splits) {
            self.counters.tcp_recut += 1;
            self.seal_packets(now, to, splitter, train);
            return;
        }
        if room.fast.is_none() && room.splits && self.hold(now, to.0, hdr, packet, true) {
            return;
        }
        let most = match Splitter::new(hdr, packet, usize::MAX) {
            Ok(splitter) if room.is_full() => room.max_in_pieces(splitter.is_ipv6(), splitter.may_fragment()),
            _ => room.max_fragmented(),
        };
        match Splitter::new(hdr, packet, most) {
            Ok(splitter) => self.seal_fragments(now, to, splitter, train),
            Err(_) => {
                self.counters.drops.count(DropReason::TooBig);
                self.answer(now, IcmpError::PacketTooBig { mtu: most as u32 }, packet);
            }
        }
    }

    fn seal_segments<T: Transmit>(
        &mut self,
        now: u64,
        (peer, room): (NodeAddr, Egress),
        mut splitter: Splitter<'_>,
        train: &mut Train<T>,
    ) {
        let (ends, max_inner, max_tcp) = (self.ends(peer), room.max_inner(), room.max_tcp());
        let session = self.sessions.get_mut(&peer);
        let link = session.as_ref().and_then(|session| self.links.get_mut(&session.link?));
        let (Some(session), Some(link)) = (session, link) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let (Some(link_epoch), Some(session_epoch)) = (link.epochs.current_mut(), session.epochs.current_mut()) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let mut layers = Layers {
            link: link_epoch,
            session: session_epoch,
        };
        let (mut frames, mut bytes, mut carried) = (0, 0, 0);
        loop {
            let began = T::clock();
            let slot = train.reserve(max_inner + IPV6_OVERHEAD);
            let Some(ip_len) = splitter.next_into(&mut slot[IP_OFFSET..]) else {
                break;
            };
            if mss::opens_connection(&slot[IP_OFFSET..IP_OFFSET + ip_len]) {
                mss::clamp(&mut slot[IP_OFFSET..IP_OFFSET + ip_len], max_tcp);
            }
            let split = T::clock();
            let Some(len) = layers.seal_ip(now, ends, slot, ip_len) else {
                self.counters.drops.count(DropReason::EpochSpent);
                break;
            };
            train.out_mut().sealed(split - began, T::clock() - split);
            (frames, bytes, carried) = (frames + 1, bytes + len, carried + ip_len);
            link.paths.commit(train, &mut self.counters, len);
        }
        link.sent(now, frames, bytes, true);
        session.sent_packets(now, frames, carried);
    }
}

/// Returns source and destination of an IPv6 packet.
fn ipv6_addresses(packet: &[u8]) -> Option<([u8; 16], [u8; 16])> {
    if packet.first()? >> 4 != 6 {
        return None;
    }
    Some((
        packet.get(8..24)?.try_into().ok()?,
        packet.get(24..40)?.try_into().ok()?,
    ))
}
