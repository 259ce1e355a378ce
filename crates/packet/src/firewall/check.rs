//! The check of packets in both directions, with the memory of one lane.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weft_contract::rules::{Facts, Policy};
use weft_contract::{Bucket, FirstFlows, Rate};
use weft_wire::NodeAddr;
use weft_wire::ip::{PROTOCOL_TCP, PROTOCOL_UDP};

use super::common::CommonFlows;
use super::flow_key::{About, Direction, FlowKey, Packet, begins_flow, ends_connection};
use super::flows::{self, FlowTable};
use super::recent::RecentFlows;
use crate::counters::DropReason;
use crate::inner::{Inner, addresses};
use crate::tables::Routes;

/// ICMP errors a second for the denied packets of one peer.
const DENIALS: Rate = Rate {
    per_second: 10,
    burst: 10,
};

/// The firewall of one lane.
pub(crate) struct Firewall {
    common: Arc<CommonFlows>,
    pub(super) active: Option<Active>,
}

/// What becomes of a packet from a peer that is not dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes to the TUN.
    Pass,
    /// It is a fragment that waits for the first one of its packet.
    Held,
}

/// What has become of fragments that waited.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// Those that go to the TUN.
    pub(crate) passed: Vec<Vec<u8>>,
    /// The number of those that do not.
    pub(crate) dropped: u64,
}

/// The firewall of a lane while there is a policy.
pub(super) struct Active {
    policy: Arc<Policy>,
    flows: Arc<FlowTable>,
    pub(super) recent: RecentFlows,
    settled: Settled,
    /// What is left of the rate of errors about the denied packets of each peer.
    denials: BTreeMap<NodeAddr, Bucket>,
}

impl Firewall {
    /// Makes one that checks nothing. All lanes of a node have `common`.
    pub(crate) const fn new(common: Arc<CommonFlows>) -> Self {
        Self { common, active: None }
    }

    /// Returns the flows that are known, while there is a policy.
    pub(crate) fn flows(&self) -> Option<&FlowTable> {
        self.active.as_ref().map(|active| &*active.flows)
    }

    /// Applies another policy from now on, or none. `first`: there was none before, and this is what the
    /// flows begin with.
    pub(crate) fn set(&mut self, now: u64, policy: Option<Arc<Policy>>, first: Option<&FirstFlows>) {
        let before = self.active.take().map(|active| active.flows);
        self.active = policy.map(|policy| {
            let flows = before.unwrap_or_else(|| {
                let nothing = FirstFlows::default();
                self.common.of_policy(now, &policy, first.unwrap_or(&nothing))
            });
            Active {
                recent: RecentFlows::new(flows.hash_key()),
                settled: Settled::default(),
                flows,
                policy,
                denials: BTreeMap::new(),
            }
        });
    }

    /// Checks a packet of this host on its way to a peer, and makes its flow known.
    #[inline(always)]
    pub(crate) fn outbound(&mut self, now: u64, packet: &[u8]) -> Result<(), DropReason> {
        match &mut self.active {
            Some(active) if active.has_passed(now, packet, Direction::Out) => Ok(()),
            Some(active) => active.outbound(now, packet),
            None => Ok(()),
        }
    }

    /// Whether a packet with these ends, source first, may go to a peer: both are in one network with
    /// this node, or in its configuration.
    pub(crate) fn may_leave(&self, peer: NodeAddr, ends: (IpAddr, IpAddr)) -> bool {
        let active = self.active.as_ref();
        active.is_none_or(|active| active.policy.may_leave(peer, ends))
    }

    /// Takes one error about a denied packet of a peer from its rate. The peers are those of the
    /// policy, so their number is bounded. No error shows a peer what is in other networks.
    pub(crate) fn may_answer(&mut self, now: u64, peer: NodeAddr, packet: &[u8]) -> bool {
        let Some(active) = &mut self.active else { return false };
        if !addresses(packet).is_some_and(|ends| active.policy.concerns(peer, ends)) {
            return false;
        }
        let denials = active.denials.entry(peer).or_insert_with(|| Bucket::new(DENIALS, now));
        denials.take(DENIALS, now, 1) == 1
    }

    /// Checks a packet from a peer on its way to the TUN. Its source is one that the peer may use.
    /// `routes` tell what is behind the peer.
    #[inline]
    pub(crate) fn inbound(
        &mut self,
        now: u64,
        routes: &Routes,
        peer: NodeAddr,
        packet: &[u8],
    ) -> Result<Verdict, DropReason> {
        match &mut self.active {
            Some(active) if active.has_passed(now, packet, Direction::In) => Ok(Verdict::Pass),
            Some(active) => active.inbound(now, routes, peer, packet),
            None => Ok(Verdict::Pass),
        }
    }

    /// Whether fragments that waited are to be taken.
    #[inline]
    pub(crate) fn has_settled(&self) -> bool {
        let settled = self.active.as_ref().map(|active| &active.settled);
        settled.is_some_and(|settled| !settled.passed.is_empty() || settled.dropped > 0)
    }

    pub(crate) fn take_settled(&mut self) -> Settled {
        let settled = self.active.as_mut().map(|active| &mut active.settled);
        settled.map(std::mem::take).unwrap_or_default()
    }
}

impl Active {
    /// Whether a packet of the usual shape belongs to a flow that has passed lately.
    #[inline]
    fn has_passed(&self, now: u64, packet: &[u8], direction: Direction) -> bool {
        FlowKey::of_usual(packet, direction).is_some_and(|key| self.recent.has(now, &key, direction))
    }

    fn outbound(&mut self, now: u64, packet: &[u8]) -> Result<(), DropReason> {
        let Ok(inner) = Inner::parse(packet) else {
            // The splitter names what is wrong with it.
            return Ok(());
        };
        let Packet::OfFlow(key) = Packet::of(&inner, Direction::Out) else {
            return Ok(());
        };
        if self.recent.has(now, &key, Direction::Out) && !ends_connection(&inner) {
            return Ok(());
        }
        let departure = flows::Departure {
            begins: begins_flow(&inner),
            ends: ends_connection(&inner),
        };
        if !self.flows.outbound(now, &key, departure) {
            return Err(DropReason::FlowsFull);
        }
        self.recent.add(now, key, Direction::Out);
        Ok(())
    }

    #[cold]
    fn inbound(&mut self, now: u64, routes: &Routes, peer: NodeAddr, packet: &[u8]) -> Result<Verdict, DropReason> {
        let inner = Inner::parse(packet).map_err(|_| DropReason::Malformed)?;
        if inner.is_source_routed() {
            // Its destination is not the one that the rules would be asked about.
            return Err(DropReason::Denied);
        }
        match Packet::of(&inner, Direction::In) {
            Packet::OfFlow(key) => self.inbound_flow(now, (routes, peer), &inner, key),
            Packet::Later(key) if self.flows.has_fragments(now, &key) => Ok(Verdict::Pass),
            Packet::Later(key) => self
                .decide(routes, peer, &inner)
                .or_else(|_| self.hold(now, peer, key, &inner)),
            // Whatever the rules say: no peer has a word about packets that go elsewhere.
            Packet::Error(about) if about.dest.is_some_and(|dest| !routes.leads_to(dest, peer)) => {
                Err(DropReason::Denied)
            }
            Packet::Error(About { flow: Some(key), .. }) if self.flows.has(now, &key) => Ok(Verdict::Pass),
            Packet::Error(_) => self.decide(routes, peer, &inner),
        }
    }

    fn inbound_flow(
        &mut self,
        now: u64,
        (routes, peer): (&Routes, NodeAddr),
        inner: &Inner<'_>,
        key: FlowKey,
    ) -> Result<Verdict, DropReason> {
        let policy = &self.policy;
        let fragments = FlowKey::of_fragments(inner, Direction::In);
        if !self.recent.has(now, &key, Direction::In) || ends_connection(inner) {
            let arrival = flows::Arrival {
                peer,
                generation: policy.generation(),
                ends: ends_connection(inner),
            };
            let passes = self
                .flows
                .inbound(now, &key, arrival, || is_allowed(policy, routes, peer, inner));
            if let (Err(reason), Some(fragments)) = (passes, &fragments) {
                self.settled.dropped += self.flows.drop_fragments(now, peer, fragments);
                return Err(reason);
            }
            passes?;
            self.recent.add(now, key, Direction::In);
        }
        if let Some(fragments) = fragments {
            let (waited, expired) = self.flows.pass_fragments(now, peer, &fragments);
            self.settled.passed.extend(waited);
            self.settled.dropped += expired;
        }
        Ok(Verdict::Pass)
    }

    /// Decides about a packet that belongs to no flow.
    fn decide(&self, routes: &Routes, peer: NodeAddr, inner: &Inner<'_>) -> Result<Verdict, DropReason> {
        let allowed = is_allowed(&self.policy, routes, peer, inner);
        allowed.then_some(Verdict::Pass).ok_or(DropReason::Denied)
    }

    /// Keeps a later fragment of a peer that has rules until the first one of its packet arrives.
    fn hold(&mut self, now: u64, peer: NodeAddr, key: FlowKey, inner: &Inner<'_>) -> Result<Verdict, DropReason> {
        if !self.policy.knows(peer) {
            return Err(DropReason::Denied);
        }
        match self.flows.hold_fragment(now, peer, key, inner.packet()) {
            Some(dropped) => {
                self.settled.dropped += dropped;
                Ok(Verdict::Held)
            }
            None => Ok(Verdict::Pass),
        }
    }
}

/// Whether a packet of a peer may begin a flow. The exit of this node carries answers of the Internet:
/// what it begins comes from its own addresses, or from a subnet behind it.
fn is_allowed(policy: &Policy, routes: &Routes, peer: NodeAddr, inner: &Inner<'_>) -> bool {
    let is_own = |source| !policy.is_exit(peer) || routes.is_near(source, peer);
    facts(inner).is_some_and(|facts| policy.allows(peer, &facts) && is_own(facts.source))
}

/// Returns what rules look at in the first packet of a flow.
fn facts(inner: &Inner<'_>) -> Option<Facts> {
    let (source, dest) = addresses(inner.packet())?;
    let has_ports = matches!(inner.protocol(), PROTOCOL_TCP | PROTOCOL_UDP);
    let ports = inner.ports().filter(|_| has_ports);
    Some(Facts {
        source,
        dest,
        protocol: inner.protocol(),
        port: ports.map(|ports| u16::from_be_bytes([ports[2], ports[3]])),
    })
}

/// Returns whether the rules allow the flow that a packet of a peer begins; false for one that is malformed or
/// source-routed.
#[must_use]
pub fn admits(policy: &Policy, peer: NodeAddr, packet: &[u8]) -> bool {
    let inner = Inner::parse(packet).ok().filter(|inner| !inner.is_source_routed());
    inner
        .and_then(|inner| facts(&inner))
        .is_some_and(|facts| policy.allows(peer, &facts))
}
