//! A lane: the links and sessions that one thread owns, and the processing of their packets.
//!
//! Packets run to completion: [`Lane::outbound`] turns a TUN packet into sealed datagrams,
//! [`Lane::inbound`] a datagram into an IP packet. What is not bulk traffic leaves as a [`Report`].
//! The core's decisions arrive as a [`Command`](crate::Command).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_wire::link::LinkMessageType;
use weft_wire::{NodeAddr, fmp};

use crate::bounds;
use crate::control::{HandshakeLimits, LinkActivity, LinkId, Report, SessionActivity};
use crate::counters::{Counters, DropReason};
use crate::ecn::Seen;
use crate::fast::FastIndex;
use crate::frame::{self, Ends, IPV6_OVERHEAD, Layers};
use crate::gate::Gate;
use crate::icmp::{ErrorLimiter, IcmpError, MAX_ERROR_PACKET};
use crate::lanes::{Foreign, Place};
use crate::link::Link;
use crate::networks::Networks;
use crate::reports::ReportQueue;
use crate::session::Session;
use crate::shares::Shares;
use crate::train::{Train, Transmit};

mod apply;
mod check;
mod early;
mod place;
mod queue;

use early::Early;

/// The burst and the long-term rate of ICMPv6 errors (RFC 4443 section 2.4 f; FIPS: one per source
/// and 100 ms).
const ICMP_BURST: u32 = 20;
const ICMP_PER_SECOND: u32 = 100;

/// The settings of a lane, fixed when it is made.
#[derive(Clone, Copy, Debug)]
pub struct LaneConfig {
    /// The address of this node.
    pub me: NodeAddr,
    /// The largest UDP payload that the lane sends, in bytes (FIPS's `mtu`).
    pub mtu: u16,
    /// Whether probes determine the size of fast frames ([`SessionCommand::SizePath`](crate::SessionCommand::SizePath)). `mtu` then applies
    /// to FIPS frames and relayed frames only.
    pub probe: bool,
    /// Whether the lane forwards session datagrams of other nodes.
    pub transit: bool,
    /// The limits on link handshake messages that prove nothing.
    pub handshakes: HandshakeLimits,
}

/// The meaning of a receiver index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// The index of an epoch of this link.
    Keyed(LinkId),
    /// The index of a handshake in flight for this link; `true` once an early frame was reported.
    Armed(LinkId, bool),
}

/// The tables and counters of one thread of the packet path; see the module.
pub struct Lane {
    pub(crate) config: LaneConfig,
    pub(crate) place: Place,
    pub(crate) foreign: Foreign,
    pub(crate) links: BTreeMap<LinkId, Box<Link>>,
    pub(crate) indices: BTreeMap<u32, Index>,
    pub(crate) sessions: BTreeMap<NodeAddr, Box<Session>>,
    /// The version of the tables. It grows with each change, so that sessions recognise outdated
    /// values that they keep.
    pub(crate) version: u64,
    /// The owner of the keys for each receiver index of fast frames.
    pub(crate) fast_indices: BTreeMap<u32, FastIndex>,
    /// Whether relayed frames are sealed whole at each hop.
    pub(crate) whole: bool,
    /// The nodes that IP packets may go to and come from, by their IPv6 address.
    pub(crate) allowed: BTreeMap<[u8; 16], NodeAddr>,
    /// The networks behind them, and behind this node.
    pub(crate) networks: Networks,
    /// The nodes that receive data in fast frames only.
    fast_only: BTreeSet<NodeAddr>,
    /// The link of the next hop, for the destinations of forwarded datagrams.
    pub(crate) routes: BTreeMap<NodeAddr, LinkId>,
    pub(crate) gate: Gate,
    pub(crate) icmp_limit: ErrorLimiter,
    pub(crate) scratch: Vec<u8>,
    pub(crate) echo_token: Option<u64>,
    /// The congestion mark in the outer IP header of the datagrams that are being received.
    pub(crate) outer: Seen,
    pub(crate) counters: Counters,
    /// The shares of the sessions in the packets that wait in their queues.
    queued: Shares<NodeAddr>,
    early: Early,
    reports: ReportQueue<()>,
    replies: VecDeque<Vec<u8>>,
    /// The size of all replies together, in bytes.
    reply_bytes: usize,
}

impl Lane {
    /// Makes the only lane of a node, without links.
    pub fn new(config: LaneConfig) -> Self {
        Self::at(config, Place::ALONE)
    }

    /// Makes one of several lanes, without links.
    pub fn at(config: LaneConfig, place: Place) -> Self {
        Self {
            config,
            place,
            foreign: Foreign::default(),
            links: BTreeMap::new(),
            indices: BTreeMap::new(),
            sessions: BTreeMap::new(),
            version: 0,
            fast_indices: BTreeMap::new(),
            whole: false,
            allowed: BTreeMap::new(),
            networks: Networks::default(),
            fast_only: BTreeSet::new(),
            routes: BTreeMap::new(),
            gate: Gate::new(config.handshakes),
            icmp_limit: ErrorLimiter::new(ICMP_BURST, ICMP_PER_SECOND, 0),
            scratch: Vec::new(),
            echo_token: None,
            outer: Seen::Nothing,
            counters: Counters::default(),
            queued: Shares::new(bounds::QUEUED),
            early: Early::new(),
            reports: ReportQueue::new(usize::MAX),
            replies: VecDeque::new(),
            reply_bytes: 0,
        }
    }

    /// Returns the size of the largest IP packet in one FIPS frame of this node's own link, in
    /// bytes.
    pub fn max_inner(&self) -> usize {
        usize::from(self.config.mtu) - IPV6_OVERHEAD
    }

    /// Returns the size of the largest TCP packet that the hosts at both ends of a session over
    /// this node's own link shall agree on, in bytes; see
    /// [`cautious_payload`](crate::mss::cautious_payload).
    pub fn max_tcp(&self) -> usize {
        usize::from(crate::mss::cautious_payload(self.config.mtu)) - IPV6_OVERHEAD
    }

    /// Returns the next report for the core.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop().map(|((), report)| report)
    }

    /// Returns whether a report waits for the core.
    pub fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Takes back a report for which the queue to the core had no room. A proof becomes the next
    /// report that [`Lane::poll_report`] returns, and the result is true. Any other report is
    /// dropped and counted.
    pub fn return_report(&mut self, report: Report) -> bool {
        let proof = report.is_proof();
        if proof {
            self.counters.proofs_waited += 1;
            self.reports.put_back((), report);
        } else {
            self.count_dropped(&report);
        }
        proof
    }

    /// Returns the next IP packet for the TUN that [`Lane::inbound`] did not return: an ICMPv6
    /// error, a packet that arrived before its keys, or one reassembled from pieces. It has no
    /// virtio header.
    pub fn poll_reply(&mut self) -> Option<Vec<u8>> {
        let reply = self.replies.pop_front()?;
        self.reply_bytes = self.reply_bytes.saturating_sub(reply.len());
        Some(reply)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns whether something waits that [`Lane::sample`] gives up after a time, so that calls
    /// of it must go on.
    pub fn gives_up_soon(&self) -> bool {
        self.early.load().count > 0 || self.sessions.values().any(|session| session.reassembly.len() > 0)
    }

    /// Reports the activity of links and sessions that changed since the last call, and gives up
    /// what has waited for too long.
    pub fn sample(&mut self, now: u64) {
        let expired = self.early.expire(now);
        self.counters.drops.count_many(DropReason::Early, expired);
        let mut links = Vec::new();
        for (id, link) in &mut self.links {
            if let Some(totals) = link.sample() {
                links.push(LinkActivity {
                    link: *id,
                    totals,
                    received: link.meter.received(),
                });
            }
        }
        let mut sessions = Vec::new();
        for (peer, session) in &mut self.sessions {
            session.reassembly.expire(now);
            if let Some(totals) = session.sample() {
                sessions.push(SessionActivity {
                    peer: *peer,
                    totals,
                    received: session.meter.received(),
                    last_data: session.last_data,
                    last_data_tx: session.last_data_tx,
                    last_large_tx: session.last_large_tx,
                    path_mtu: session.path_mtu,
                });
            }
        }
        if !links.is_empty() || !sessions.is_empty() {
            self.report(Report::Activity { links, sessions });
        }
    }

    pub(crate) fn report(&mut self, report: Report) {
        for dropped in self.reports.push((), report) {
            self.count_dropped(&dropped);
        }
    }

    fn count_dropped(&mut self, report: &Report) {
        if report.is_handshake() {
            self.counters.drops.count(DropReason::HandshakeQueue);
        } else {
            self.counters.drops.count(DropReason::Report);
        }
    }

    /// Answers a packet from the TUN with an ICMPv6 error, at a bounded rate.
    pub(crate) fn answer(&mut self, now: u64, error: IcmpError, offending: &[u8]) {
        if !self.icmp_limit.allow(now) {
            return;
        }
        let mut packet = vec![0; MAX_ERROR_PACKET];
        if let Some(len) = error.build(self.config.me.to_ipv6(), offending, &mut packet) {
            packet.truncate(len);
            self.counters.icmp_sent += 1;
            self.push_reply(packet);
        }
    }

    pub(crate) fn push_reply(&mut self, packet: Vec<u8>) {
        let bytes = self.reply_bytes + packet.len();
        if self.replies.len() < bounds::REPLIES.count && bytes <= bounds::REPLIES.bytes {
            self.reply_bytes = bytes;
            self.replies.push_back(packet);
        } else {
            self.counters.drops.count(DropReason::Reply);
        }
    }

    /// Returns the addresses and the size for FIPS frames to `dest`.
    pub(crate) fn ends(&self, dest: NodeAddr) -> Ends {
        Ends {
            src: self.config.me,
            dest,
            path_mtu: self.config.mtu,
        }
    }

    pub(crate) fn send_on_link<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        epoch: Option<u32>,
        msg_type: u8,
        body: &[u8],
        train: &mut Train<T>,
    ) {
        let Some(link) = self.links.get_mut(&id) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let Some(epoch) = link.epochs.pick_mut(epoch) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let end = frame::LINK_BODY_OFFSET + body.len();
        let slot = train.reserve(end + fmp::TAG_LEN);
        let Some(room) = slot.get_mut(frame::LINK_BODY_OFFSET..end) else {
            return;
        };
        room.copy_from_slice(body);
        let Some(len) = frame::seal_link(epoch, now, 0, msg_type, slot, end) else {
            self.counters.drops.count(DropReason::EpochSpent);
            return;
        };
        let payload = msg_type == LinkMessageType::SessionDatagram.to_byte();
        link.sent(now, 1, len, payload);
        link.paths.commit(train, &mut self.counters, len);
    }

    pub(crate) fn send_on_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        epoch: Option<u32>,
        msg_type: u8,
        body: &[u8],
        train: &mut Train<T>,
    ) {
        if epoch.is_none() && self.send_fast(now, peer, None, (msg_type, body), train) {
            return;
        }
        let ends = self.ends(peer);
        let session = self.sessions.get_mut(&peer);
        let link = session.as_ref().and_then(|session| self.links.get_mut(&session.link?));
        let (Some(session), Some(link)) = (session, link) else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let (Some(link_epoch), Some(session_epoch)) = (link.epochs.current_mut(), session.epochs.pick_mut(epoch))
        else {
            self.counters.drops.count(DropReason::NoKeys);
            return;
        };
        let slot = train.reserve(frame::SESSION_OVERHEAD + body.len());
        let mut layers = Layers {
            link: link_epoch,
            session: session_epoch,
        };
        let Some(len) = layers.seal_message(now, ends, msg_type, body, slot) else {
            self.counters.drops.count(DropReason::EpochSpent);
            return;
        };
        link.sent(now, 1, len, true);
        session.sent_message(now);
        link.paths.commit(train, &mut self.counters, len);
    }
}
