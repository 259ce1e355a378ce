//! What a lane produces beside datagrams: counts, reports for the core, and packets for the TUN.

use std::collections::VecDeque;

use weft_contract::{LinkId, LinkReport, Report, ReportQueue, SessionReport, bounds};
use weft_wire::NodeAddr;

use crate::counters::{Counters, DropReason};
use crate::icmp::{ErrorLimiter, IcmpError, MAX_ERROR_PACKET};

/// The burst and the long-term rate of ICMPv6 errors (RFC 4443 section 2.4 f; FIPS: one per source
/// and 100 ms).
const ICMP_BURST: u32 = 20;
const ICMP_PER_SECOND: u32 = 100;

/// The counts, reports and replies of a lane. The last two wait until they are taken.
pub(crate) struct Outbox {
    me: NodeAddr,
    pub(crate) counters: Counters,
    reports: ReportQueue<()>,
    replies: VecDeque<Vec<u8>>,
    /// The size of all replies together, in bytes.
    reply_bytes: usize,
    /// Packets that the first lane has to send, and their size together, in bytes.
    onward: VecDeque<Vec<u8>>,
    onward_bytes: usize,
    icmp_limit: ErrorLimiter,
}

impl Outbox {
    /// Makes an empty one for the node `me`.
    pub(crate) fn new(me: NodeAddr) -> Self {
        Self {
            me,
            counters: Counters::default(),
            reports: ReportQueue::new(usize::MAX),
            replies: VecDeque::new(),
            reply_bytes: 0,
            onward: VecDeque::new(),
            onward_bytes: 0,
            icmp_limit: ErrorLimiter::new(ICMP_BURST, ICMP_PER_SECOND, 0),
        }
    }

    /// Adds a report for the core.
    pub(crate) fn report(&mut self, report: Report) {
        for dropped in self.reports.push((), report) {
            self.count_report(&dropped);
        }
    }

    /// Adds a report of a link.
    pub(crate) fn report_link(&mut self, link: LinkId, report: LinkReport) {
        self.report(Report::Link(link, report));
    }

    /// Adds a report of the session with a peer.
    pub(crate) fn report_session(&mut self, peer: NodeAddr, report: SessionReport) {
        self.report(Report::Session(peer, report));
    }

    /// Returns the next report for the core.
    pub(crate) fn next_report(&mut self) -> Option<Report> {
        self.reports.pop().map(|((), report)| report)
    }

    /// Returns whether a report waits for the core.
    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Takes back a report that the core did not take, if it is a proof. Any other is dropped.
    pub(crate) fn return_report(&mut self, report: Report) -> bool {
        let proof = report.is_proof();
        if proof {
            self.counters.proofs_waited += 1;
            self.reports.put_back((), report);
        } else {
            self.count_report(&report);
        }
        proof
    }

    /// Counts a drop.
    #[inline]
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.counters.drops.count(reason);
    }

    /// Counts `many` drops.
    pub(crate) fn count_many(&mut self, reason: DropReason, many: u64) {
        self.counters.drops.count_many(reason, many);
    }

    /// Answers a packet from the TUN with an ICMPv6 error, at a bounded rate.
    pub(crate) fn answer(&mut self, now: u64, error: IcmpError, offending: &[u8]) {
        if let Some(packet) = self.error(now, error, offending) {
            self.reply(packet);
        }
    }

    /// Returns an ICMPv6 error about a packet, at a bounded rate.
    pub(crate) fn error(&mut self, now: u64, error: IcmpError, offending: &[u8]) -> Option<Vec<u8>> {
        if !self.icmp_limit.allow(now) {
            return None;
        }
        let mut packet = vec![0; MAX_ERROR_PACKET];
        let len = error.build(self.me.to_ipv6(), offending, &mut packet)?;
        packet.truncate(len);
        self.counters.icmp_sent += 1;
        Some(packet)
    }

    /// Adds a packet for the TUN.
    pub(crate) fn reply(&mut self, packet: Vec<u8>) {
        let bytes = self.reply_bytes + packet.len();
        if self.replies.len() < bounds::REPLIES.count && bytes <= bounds::REPLIES.bytes {
            self.reply_bytes = bytes;
            self.replies.push_back(packet);
        } else {
            self.count(DropReason::Reply);
        }
    }

    /// Adds a packet that the first lane has to send.
    pub(crate) fn onward(&mut self, packet: Vec<u8>) {
        let bytes = self.onward_bytes + packet.len();
        if self.onward.len() < bounds::REPLIES.count && bytes <= bounds::REPLIES.bytes {
            self.onward_bytes = bytes;
            self.onward.push_back(packet);
        } else {
            self.count(DropReason::Reply);
        }
    }

    /// Returns the next packet that the first lane has to send.
    pub(crate) fn next_onward(&mut self) -> Option<Vec<u8>> {
        let packet = self.onward.pop_front()?;
        self.onward_bytes = self.onward_bytes.saturating_sub(packet.len());
        Some(packet)
    }

    /// Returns the next packet for the TUN.
    pub(crate) fn next_reply(&mut self) -> Option<Vec<u8>> {
        let reply = self.replies.pop_front()?;
        self.reply_bytes = self.reply_bytes.saturating_sub(reply.len());
        Some(reply)
    }

    /// Checks that what waits is bounded.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.reports.check()?;
        let (count, bytes) = (self.replies.len(), self.reply_bytes);
        if count > bounds::REPLIES.count || bytes > bounds::REPLIES.bytes {
            return Err(format!("{count} replies of {bytes} bytes"));
        }
        Ok(())
    }

    fn count_report(&mut self, dropped: &Report) {
        self.count(if dropped.is_handshake() {
            DropReason::HandshakeQueue
        } else {
            DropReason::Report
        });
    }
}
