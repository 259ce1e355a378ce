//! A lane: the links and sessions that one thread owns, and the processing of their packets.
//!
//! Packets run to completion: [`Lane::outbound`] turns a TUN packet into sealed datagrams,
//! [`Lane::inbound`] a datagram into an IP packet. What is not bulk traffic leaves as a [`Report`].
//! The core's decisions arrive as a [`Command`](weft_contract::Command).
//!
//! A lane has tables, which its frames and packets are looked up in, and an outbox. A
//! [`Sender`] is made of them to send.

use std::sync::Arc;

use weft_contract::{LaneConfig, LinkActivity, Place, Report, SessionActivity, Shares, bounds};
use weft_wire::NodeAddr;

use crate::awaited::Awaited;
use crate::counters::{Counters, DropReason};
use crate::early::Early;
use crate::ecn::Seen;
use crate::firewall::{CommonFlows, FlowTable};
use crate::foreign::Foreign;
use crate::gate::Gate;
use crate::outbox::Outbox;
use crate::sender::Sender;
use crate::tables::Tables;
use crate::train::{Train, Transmit};
use crate::wireguard::Tunnel;

mod apply;
mod check;

pub use check::Inspection;

/// The tables and counters of one thread of the packet path; see the module.
pub struct Lane {
    pub(crate) tables: Tables,
    pub(crate) out: Outbox,
    pub(crate) place: Place,
    pub(crate) foreign: Foreign,
    pub(crate) gate: Gate,
    pub(crate) awaited: Awaited,
    pub(crate) scratch: Vec<u8>,
    pub(crate) echo_token: Option<u64>,
    /// The congestion mark in the outer IP header of the datagrams that are being received.
    pub(crate) outer: Seen,
    /// The shares of the sessions in the packets that wait in their queues.
    queued: Shares<NodeAddr>,
    pub(crate) early: Early,
}

impl Lane {
    /// Makes the only lane of a node, without links.
    pub fn new(config: LaneConfig) -> Self {
        Self::at(config, Place::ALONE, Arc::new(CommonFlows::default()))
    }

    /// Makes all lanes of a node, without links: `count` of them, or fewer if that is above
    /// [`MAX_LANES`](weft_contract::MAX_LANES). They know the same flows.
    pub fn several(config: LaneConfig, count: u8) -> Vec<Self> {
        let common = Arc::new(CommonFlows::default());
        let places = (0..count).map_while(|number| Place::new(number, count));
        places.map(|place| Self::at(config, place, common.clone())).collect()
    }

    fn at(config: LaneConfig, place: Place, common: Arc<CommonFlows>) -> Self {
        Self {
            tables: Tables::new(config, common),
            out: Outbox::new(config.me),
            place,
            foreign: Foreign::default(),
            gate: Gate::new(config.handshakes),
            awaited: Awaited::new(),
            scratch: Vec::new(),
            echo_token: None,
            outer: Seen::Nothing,
            queued: Shares::new(bounds::QUEUED),
            early: Early::new(),
        }
    }

    /// Sets the ECN bits of the IP headers of the datagrams that are received next: 0 Not-ECT, 1
    /// ECT(1), 2 ECT(0), 3 CE (RFC 3168). They apply until the end of the next
    /// [`Lane::inbound_train`].
    pub fn outer_ecn(&mut self, bits: u8) {
        self.outer = Seen::outer(bits);
    }

    /// Returns the next report for the core.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.out.next_report()
    }

    /// Returns whether a report waits for the core.
    pub fn has_reports(&self) -> bool {
        self.out.has_reports()
    }

    /// Takes back a report for which the queue to the core had no room. A proof becomes the next
    /// report that [`Lane::poll_report`] returns, and the result is true. Any other report is
    /// dropped and counted.
    pub fn return_report(&mut self, report: Report) -> bool {
        self.out.return_report(report)
    }

    /// Returns the next IP packet for the TUN that [`Lane::inbound`] did not return: an ICMPv6
    /// error, a packet that arrived before its keys, or one reassembled from pieces. It has no
    /// virtio header.
    pub fn poll_reply(&mut self) -> Option<Vec<u8>> {
        self.out.next_reply()
    }

    /// Returns the datagrams of the last [`Lane::inbound_train`] that are for other lanes: the
    /// owner, and the datagrams as received, several for one lane one behind the other.
    pub fn foreign(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.foreign.runs()
    }

    /// Returns the number of flows that are known, ended ones included that no packet has displaced yet.
    /// All lanes of a node return the same number, and 0 while there are no rules.
    pub fn known_flows(&self) -> usize {
        self.tables.firewall.flows().map_or(0, FlowTable::len)
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.out.counters
    }

    /// Returns whether something waits that [`Lane::sample`] gives up after a time, so that calls
    /// of it must go on.
    pub fn gives_up_soon(&self) -> bool {
        let mut sessions = self.tables.sessions.iter();
        self.early.load().count > 0 || sessions.any(|(_, session)| session.reassembly.len() > 0)
    }

    /// Reports the activity of links and sessions that changed since the last call, and gives up
    /// what has waited for too long.
    pub fn sample(&mut self, now: u64) {
        let expired = self.early.expire(now);
        self.out.count_many(DropReason::Early, expired);
        let (mut links, mut sessions, mut passed) = (Vec::new(), Vec::new(), Vec::new());
        self.tables.links.for_each_mut(|link| {
            links.extend(link.sample().map(|totals| LinkActivity {
                link: link.id,
                totals,
                received: link.meter.received(),
            }));
        });
        self.tables.sessions.for_each_mut(|session| {
            session.reassembly.expire(now);
            let tunnel = session.wireguard.as_deref_mut().into_iter();
            passed.extend(
                tunnel
                    .flat_map(Tunnel::take_passed)
                    .map(|passed| (session.peer, passed)),
            );
            sessions.extend(session.sample().map(|totals| SessionActivity {
                peer: session.peer,
                totals,
                received: session.meter.received(),
                last_data: session.last_data,
                last_data_tx: session.last_data_tx,
                last_large_tx: session.last_large_tx,
                path_mtu: session.path_mtu,
            }));
        });
        for (peer, passed) in passed {
            self.out.report(Report::WireGuardTraffic(peer, passed));
        }
        if !links.is_empty() || !sessions.is_empty() {
            self.out.report(Report::Activity { links, sessions });
        }
    }

    /// Returns what is needed to send.
    #[inline]
    pub(crate) fn sender<'a, T: Transmit>(&'a mut self, now: u64, train: &'a mut Train<T>) -> Sender<'a, T> {
        Sender {
            now,
            tables: &mut self.tables,
            out: &mut self.out,
            place: self.place,
            queued: &mut self.queued,
            scratch: &mut self.scratch,
            train,
        }
    }
}
