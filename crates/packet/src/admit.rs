//! The last steps of packets before the TUN.

use weft_contract::SessionReport;
use weft_wire::NodeAddr;
use weft_wire::virtio::VirtioNetHdr;

use crate::counters::DropReason;
use crate::echo;
use crate::firewall::{Settled, Verdict};
use crate::icmp::{IcmpError, MAX_ERROR_PACKET};
use crate::inner::Inner;
use crate::lane::Lane;
use crate::mss;
use crate::sender::Sender;
use crate::tables::SessionKey;
use crate::train::{Train, Transmit};
use crate::tun::TunPacket;

impl Lane {
    /// Processes an IP packet of `peer` that is about to go to the TUN: clamps the MSS and
    /// recognises echo replies.
    pub(crate) fn admit(&mut self, key: SessionKey, peer: NodeAddr, packet: &mut [u8]) {
        if mss::opens_connection(packet) {
            mss::clamp(packet, self.tables.egress(key).max_tcp());
        }
        if let Some(seq) = self.echo_token.and_then(|token| echo::reply(packet, token)) {
            self.out.report_session(peer, SessionReport::EchoReply { seq });
        }
    }

    /// Checks one packet from the peer of a session on its way to the TUN, and answers it if the
    /// rules deny it.
    pub(crate) fn check<T: Transmit>(
        &mut self,
        now: u64,
        key: SessionKey,
        packet: &[u8],
        train: &mut Train<T>,
    ) -> Result<Verdict, DropReason> {
        let peer = self.tables.sessions.get(key).ok_or(DropReason::NoKeys)?.peer;
        let tables = &mut self.tables;
        let checked = tables.firewall.inbound(now, &tables.routes, peer, packet);
        if checked == Err(DropReason::Denied) {
            self.sender(now, train).answer_denied(peer, packet);
        }
        self.settle_fragments();
        checked
    }

    /// Passes on the fragments that waited for the first one of their packet, if it has passed.
    #[inline]
    pub(crate) fn settle_fragments(&mut self) {
        if self.tables.firewall.has_settled() {
            self.pass_settled();
        }
    }

    #[cold]
    fn pass_settled(&mut self) {
        let Settled { passed, dropped } = self.tables.firewall.take_settled();
        self.out.count_many(DropReason::Denied, dropped);
        for packet in passed {
            self.out.counters.tun_tx += 1;
            self.out.reply(packet);
        }
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Sends the peer that a denied packet came from an ICMP error about it, within its rate. One
    /// about the first fragment of a packet suffices for all (RFC 1122 section 3.2.2).
    #[cold]
    pub(crate) fn answer_denied(&mut self, peer: NodeAddr, packet: &[u8]) {
        let is_later = Inner::parse(packet).is_ok_and(|inner| inner.is_later_fragment());
        if is_later || !self.tables.firewall.may_answer(self.now, peer, packet) {
            return;
        }
        let mut error = vec![0; MAX_ERROR_PACKET];
        let me = self.tables.config.me.to_ipv6();
        if let Some(len) = IcmpError::AdminProhibited.build(me, packet, &mut error) {
            self.out.counters.icmp_denied += 1;
            let bytes = error.get(..len).unwrap_or_default();
            let hdr = VirtioNetHdr::default();
            self.send(TunPacket { hdr, bytes });
        }
    }
}
