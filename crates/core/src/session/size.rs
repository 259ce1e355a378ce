//! The size of a session's frames: the limit for sent frames, and the reports to the peer on the
//! frames that it sends.

use weft_contract::{Endpoint, PathSize, Relay, SendCommand, SessionCommand};
use weft_wire::fast::LARGEST_PROBED;
use weft_wire::session::{PathMtuNotification, SessionMessageType};

use super::Session;
use crate::context::Context;
use crate::path_mtu::{MIN_TOLD, PathMtu};
use crate::pmtu_search::{Change, Effect, PmtuSearch};
use crate::{Config, Event, KnownSize, SizeSource};

/// The largest UDP payload that a link of 1,500 bytes takes over IPv6. Over IPv4 it is
/// [`LARGEST_PROBED`]. Larger links are rare on the internet, and `[udp] mtu` sets their size.
const CEILING_V6: u16 = 1_452;

/// Paths that were left whose sizes are kept.
const MAX_OTHERS: usize = 4;

/// The search for the size of the path of fast frames.
pub(super) struct Probing {
    path: FastPath,
    search: PmtuSearch,
}

/// The path of fast frames, whose size a search finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FastPath {
    /// To this address of the peer.
    Direct(Endpoint),
    /// Through other nodes.
    Relayed(Relay),
}

impl FastPath {
    /// Returns the largest frame that is probed, in bytes of UDP payload. The family of the links
    /// behind a relay is not known.
    fn ceiling(self) -> u16 {
        match self {
            Self::Direct(path) if path.is_ipv6() => CEILING_V6,
            Self::Direct(_) => LARGEST_PROBED,
            Self::Relayed(relay) => relay.mtu.min(LARGEST_PROBED),
        }
    }

    /// Whether both are one path. The link takes the local end from the end that began the last
    /// handshake, so a path from no address in particular may become one from the address it led from.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Direct(one), Self::Direct(other)) => one.covers(other) || other.covers(one),
            _ => self == other,
        }
    }
}

impl Session {
    /// Returns the largest UDP payload that this node sends in the session, in bytes, if one was
    /// ever reported.
    pub(crate) fn path_mtu_out(&self) -> Option<u16> {
        self.mtu.as_ref().map(PathMtu::current)
    }

    /// Returns the smallest link on the path to this node, as the last frame reported.
    pub(crate) fn path_mtu_in(&self) -> Option<u16> {
        self.watch.seen()
    }

    /// Handles the peer's report on the smallest link that frames of this node have passed.
    pub(crate) fn handle_path_mtu(&mut self, ctx: &mut Context, now: u64, told: u16) {
        if told < MIN_TOLD {
            ctx.path_counters.refused += 1;
            return;
        }
        let srtt = self.metrics.srtt();
        if self.size(ctx).handle_told(now, told, srtt) {
            self.limit(ctx);
        }
    }

    /// Handles the claim of a node on the path that a frame of this node was too large.
    pub(crate) fn handle_mtu_exceeded(&mut self, ctx: &mut Context, now: u64, claimed: u16) {
        if claimed < MIN_TOLD {
            ctx.path_counters.refused += 1;
            return;
        }
        if self.is_up() && self.size(ctx).handle_hint(now, claimed) {
            self.limit(ctx);
        }
    }

    /// Handles a changed path.
    pub(super) fn handle_moved(&mut self, ctx: &mut Context, now: u64) {
        self.metrics.handle_moved();
        self.passing.settle();
        self.leave_path(now);
        if self.mtu.as_mut().is_some_and(PathMtu::handle_moved) {
            self.limit(ctx);
        }
    }

    /// Returns when the peer is due a report on the path to this node.
    pub(super) fn told_at(&self) -> u64 {
        if !self.is_up() || self.link.is_none() || self.finishing.is_some() {
            return u64::MAX;
        }
        let packets = self.liveness.totals().rx_payload;
        self.watch.due(packets, self.metrics.srtt())
    }

    pub(super) fn tell_path_mtu(&mut self, ctx: &mut Context, now: u64) {
        let Some(path_mtu) = self.watch.tell(now, self.liveness.totals().rx_payload) else {
            return;
        };
        let mut body = vec![0; PathMtuNotification::LEN];
        if (PathMtuNotification { path_mtu }).emit(&mut body).is_ok() {
            self.liveness.said(now);
            ctx.lane(SendCommand::OnSession {
                peer: self.peer.node_addr(),
                epoch: None,
                msg_type: SessionMessageType::PathMtuNotification.to_byte(),
                body,
            });
        }
    }

    fn size(&mut self, ctx: &Context) -> &mut PathMtu {
        self.mtu.get_or_insert_with(|| PathMtu::new(ctx.config.mtu))
    }

    fn limit(&self, ctx: &mut Context) {
        if let Some(mtu) = self.path_mtu_out() {
            let peer = self.peer.node_addr();
            ctx.change_session(peer, SessionCommand::Limit { mtu });
        }
    }
}

/// The size by probes, on a path that takes fast frames.
impl Session {
    /// Returns the size of fast frames and its source, while there is a path for them.
    pub(crate) fn known_size(&self, config: &Config) -> Option<KnownSize> {
        if !self.is_fast_any() {
            return None;
        }
        if !config.probe {
            let payload = match self.relay().filter(|_| !self.is_fast()) {
                Some(relay) => config.mtu.min(relay.mtu),
                None => self.path_mtu_out().unwrap_or(config.mtu),
            };
            return Some(KnownSize {
                payload: payload.min(self.their_max_payload()),
                source: SizeSource::Set,
                searching: false,
            });
        }
        let search = &self.probing.as_ref()?.search;
        Some(KnownSize {
            payload: search.current(),
            source: match search.is_probed() {
                true => SizeSource::Probed,
                false => SizeSource::Assumed,
            },
            searching: search.is_searching(),
        })
    }

    /// Whether the path does not take the smallest size of full frames.
    pub(crate) fn is_narrow(&self) -> bool {
        let probing = self.probing.as_ref().filter(|_| self.is_fast_any());
        probing.is_some_and(|probing| probing.search.is_narrow())
    }

    /// Whether the direct path in use takes the smallest size of full frames, once that is known.
    pub(crate) fn direct_narrowness(&self) -> Option<(Endpoint, bool)> {
        let probing = self.probing.as_ref().filter(|_| self.is_fast())?;
        match probing.path {
            FastPath::Direct(path) if probing.search.is_narrow() => Some((path, true)),
            FastPath::Direct(path) if probing.search.is_probed() => Some((path, false)),
            _ => None,
        }
    }

    /// Forgets the sizes of all paths.
    pub(super) fn forget_sizes(&mut self) {
        (self.probing, self.other_sizes) = (None, Vec::new());
    }

    /// Keeps the size of the path that is left, in case packets return there. The size of a narrow path is not kept:
    /// packets return there only once it has recovered, or without another path.
    fn leave_path(&mut self, now: u64) {
        let left = self.probing.take().filter(|left| !left.search.is_narrow());
        let Some(mut left) = left else { return };
        left.search.rest(now);
        self.other_sizes.truncate(MAX_OTHERS - 1);
        self.other_sizes.reserve_exact(1);
        self.other_sizes.insert(0, left);
    }

    /// The largest payload that probes have proven to pass on a direct path, in bytes.
    pub(crate) fn proven_size(&self, path: Endpoint) -> Option<u16> {
        let path = FastPath::Direct(path);
        let mut known = self.probing.iter().chain(&self.other_sizes);
        let known = known.find(|known| known.path.is_same(path) && known.search.is_probed());
        known.map(|known| known.search.current())
    }

    /// Handles the path of packets: the direct address of the peer, or the label of the relay. The size
    /// of a path is not known at first. That of a path on which the session fell asleep, or which it
    /// left, is used again; the first large packets confirm it.
    pub(crate) fn follow_path(&mut self, ctx: &mut Context, now: u64, direct: Option<Endpoint>) {
        let path = match self.is_fast() {
            true => direct.map(FastPath::Direct),
            false => self.relay().map(FastPath::Relayed),
        };
        let Some(path) = path.filter(|_| ctx.config.probe && self.is_fast_any()) else {
            return;
        };
        let ceiling = path.ceiling().min(self.their_max_payload());
        if self.probing.as_ref().is_some_and(|probing| !probing.path.is_same(path)) {
            self.leave_path(now);
        }
        let known = self.probing.take().or_else(|| {
            let place = self.other_sizes.iter().position(|left| left.path.is_same(path))?;
            Some(self.other_sizes.remove(place))
        });
        let (search, is_told) = match known.map(|probing| probing.search) {
            Some(mut search) if search.ceiling() == ceiling => {
                let is_told = !search.wake();
                (search, is_told)
            }
            _ => (PmtuSearch::new(now, ceiling, ctx.config.path_raise), false),
        };
        let size = PathSize {
            payload: search.current(),
            settled: !search.is_searching(),
        };
        self.probing = Some(Probing { path, search });
        if !is_told {
            ctx.change_session(self.peer.node_addr(), SessionCommand::SizePath { size });
            self.drive_probes(ctx, now);
        }
    }

    /// Keeps the size of the path until the session wakes up.
    pub(super) fn rest_probes(&mut self, now: u64) {
        if let Some(probing) = &mut self.probing {
            probing.search.rest(now);
        }
    }

    /// Handles the peer's answer to a probe.
    pub(crate) fn handle_probe_answer(&mut self, ctx: &mut Context, now: u64, body: &[u8]) {
        let (Some(id), Some(probing)) = (body.first_chunk(), &mut self.probing) else {
            return;
        };
        let mut effects = Vec::new();
        probing.search.handle_answer(now, u16::from_le_bytes(*id), &mut effects);
        self.carry_out(ctx, effects);
        self.drive_probes(ctx, now);
    }

    /// Handles a change of this node's own addresses or routes.
    pub(crate) fn doubt_size(&mut self) {
        self.other_sizes = Vec::new();
        if let Some(probing) = &mut self.probing {
            probing.search.handle_network_change();
        }
    }

    /// Returns when a probe is due.
    pub(super) fn probe_at(&self) -> u64 {
        let probing = self.probing.as_ref().filter(|_| self.is_fast_any());
        probing.map_or(u64::MAX, |probing| probing.search.deadline(self.last_large_tx))
    }

    pub(super) fn drive_probes(&mut self, ctx: &mut Context, now: u64) {
        if now < self.probe_at() {
            return;
        }
        let Some(probing) = &mut self.probing else { return };
        let mut effects = Vec::new();
        probing.search.handle_timeout(now, self.last_large_tx, &mut effects);
        self.carry_out(ctx, effects);
    }

    fn carry_out(&mut self, ctx: &mut Context, effects: Vec<Effect>) {
        let peer = self.peer.node_addr();
        let mut sized = false;
        for effect in effects {
            match effect {
                Effect::Probe { id, size } => {
                    ctx.path_counters.probes += u64::from(size > 0);
                    ctx.change_session(peer, SessionCommand::ProbePath { id, size });
                }
                Effect::Size(payload, change) => {
                    sized = true;
                    let black_hole = change == Change::BlackHole;
                    ctx.path_counters.raises += u64::from(!black_hole);
                    ctx.path_counters.black_holes += u64::from(black_hole);
                    ctx.event(Event::PathSized {
                        peer: self.peer,
                        payload,
                        black_hole,
                    });
                }
                Effect::Settled => sized = true,
                Effect::Narrow(narrow) => ctx.event(Event::PathNarrow {
                    peer: self.peer,
                    narrow,
                }),
            }
        }
        if let Some(probing) = self.probing.as_ref().filter(|_| sized) {
            ctx.change_session(
                peer,
                SessionCommand::SizePath {
                    size: PathSize {
                        payload: probing.search.current(),
                        settled: !probing.search.is_searching(),
                    },
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use weft_contract::LocalEnd;

    use super::*;

    #[test]
    fn a_path_that_gets_its_local_end_has_the_same_size() {
        let at = |host, port| SocketAddr::from(([192, 0, 2, host], port));
        let from = |host| LocalEnd {
            ip: IpAddr::V4(Ipv4Addr::new(198, 51, 100, host)),
            device: 2,
        };
        let any = FastPath::Direct(at(1, 2_121).into());
        let [first, second] =
            [1, 2].map(|host| FastPath::Direct(Endpoint::from(at(1, 2_121)).with_local(Some(from(host)))));
        assert!(any.is_same(first) && first.is_same(any) && first.is_same(first));
        assert!(!first.is_same(second));
        for other in [at(2, 2_121), at(1, 2_122)] {
            assert!(!any.is_same(FastPath::Direct(other.into())));
        }
    }
}
