//! Packets between a peer that speaks WireGuard and another one: they pass on in the lane, as at a router.

use weft_wire::ip::{Ipv4Header, Ipv6Header, version};
use weft_wire::virtio::VirtioNetHdr;

use crate::admit::Onward;
use crate::counters::DropReason;
use crate::icmp::IcmpError;
use crate::inner::{Inner, addresses, finish_header_v4};
use crate::lane::Lane;
use crate::sender::Sender;
use crate::tables::Encapsulation;
use crate::train::{Train, Transmit};
use crate::tun::{Outbound, TunPacket};

impl Lane {
    /// Returns the next packet for a peer that speaks WireGuard that another lane has to send: the first one.
    pub fn poll_onward(&mut self) -> Option<Vec<u8>> {
        self.out.next_onward()
    }

    /// Sends a packet that [`Lane::poll_onward`] of another lane returned: that lane has checked it.
    pub fn pass_on<T: Transmit>(&mut self, now: u64, packet: &[u8], train: &mut Train<T>) {
        let done = self.sender(now, train).pass_judged(packet);
        self.out.counters.note(done);
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends a packet that has come to the door and goes on to another peer.
    pub(crate) fn onward(&mut self, onward: Onward) {
        let done = self.try_onward(onward);
        self.out.counters.note(done);
    }

    fn try_onward(&mut self, onward: Onward) -> Result<(), DropReason> {
        let Onward { mut packet, judged } = onward;
        age(&mut packet)?;
        if !judged {
            let ends = addresses(&packet).ok_or(DropReason::Malformed)?;
            let key = self.tables.routes.peer_behind(ends.1).ok_or(DropReason::NoRoute)?;
            let peer = self.tables.sessions.get(key).map(|session| session.peer);
            if !peer.is_some_and(|peer| self.tables.firewall.may_leave(peer, ends)) {
                return Err(DropReason::ForeignDestination);
            }
        }
        self.pass_judged(&packet)
    }

    fn pass_judged(&mut self, packet: &[u8]) -> Result<(), DropReason> {
        let (_, dest) = addresses(packet).ok_or(DropReason::Malformed)?;
        let session = self.tables.routes.peer_behind(dest).ok_or(DropReason::NoRoute)?;
        let egress = self.tables.egress(session).full();
        let whole = TunPacket {
            hdr: VirtioNetHdr::default(),
            bytes: packet,
        };
        match self.goes_elsewhere(egress, whole) {
            Some(Outbound::HandOver(_)) => {
                self.out.onward(packet.to_vec());
                return Ok(());
            }
            Some(Outbound::Done) => return Ok(()),
            None => {}
        }
        let carried = match egress.reads_full() {
            true => Some(egress),
            false => egress.in_fips_whole(),
        };
        let egress = carried.ok_or(DropReason::NoFullFrames)?;
        let fits = || egress.frames != Encapsulation::WireGuard || packet.len() <= egress.max_inner();
        if fits() || Inner::parse(packet).is_ok_and(|inner| !inner.dont_fragment()) {
            self.in_frames(egress, whole);
            return Ok(());
        }
        // The error is for the peer that has sent the packet, and not for this host.
        let mtu = egress.max_inner() as u32;
        if let Some(error) = self.out.error(self.now, IcmpError::PacketTooBig { mtu }, packet) {
            self.send(TunPacket {
                hdr: VirtioNetHdr::default(),
                bytes: &error,
            });
        }
        Err(DropReason::TooBig)
    }
}

/// Takes one from the TTL of an IPv4 packet, or from the hop limit (RFC 1812 section 5.3.1, RFC 8200 section 3).
fn age(packet: &mut [u8]) -> Result<(), DropReason> {
    let at = match version(packet) {
        Some(4) => Ipv4Header::TTL_AT,
        Some(6) => Ipv6Header::HOP_LIMIT_AT,
        _ => return Err(DropReason::Malformed),
    };
    let left = packet.get_mut(at).ok_or(DropReason::Malformed)?;
    if *left <= 1 {
        return Err(DropReason::Ttl);
    }
    *left -= 1;
    if version(packet) == Some(4) {
        let len = usize::from(packet.first().map_or(0, |first| first & 0x0f)) * 4;
        let header = packet.get_mut(..len).ok_or(DropReason::Malformed)?;
        finish_header_v4(header);
    }
    Ok(())
}
