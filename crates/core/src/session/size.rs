//! How large the frames of a session may be: what we send, and what the other end is told of what it sends.

use std::net::SocketAddr;

use weft_packet::{Command, PathSize};
use weft_wire::session::{PathMtuNotification, SessionMessageType};

use super::Session;
use crate::context::Context;
use crate::path_mtu::{MIN_TOLD, PathMtu};
use crate::prober::{Change, Effect, Prober};
use crate::{Config, Event, KnownSize, SizeSource};

/// The largest UDP payload that a link of 1,500 bytes takes, over IPv4 and over IPv6. Larger ones are rare beyond one
/// machine room, and who has them sets the size.
const CEILING_V4: u16 = 1_472;
const CEILING_V6: u16 = 1_452;

/// What is being found out about a direct path.
pub(super) struct Probing {
    path: SocketAddr,
    prober: Prober,
}

impl Session {
    /// The largest UDP payload that we send in this session, bytes, if it was ever in question.
    pub(crate) fn path_mtu_out(&self) -> Option<u16> {
        self.mtu.as_ref().map(PathMtu::current)
    }

    /// The smallest link on the way to us, as the last frame told.
    pub(crate) fn path_mtu_in(&self) -> Option<u16> {
        self.watch.seen()
    }

    /// The other end tells what our frames have met on their way.
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

    /// A node on the way claims that a frame of ours was too large.
    pub(crate) fn handle_mtu_exceeded(&mut self, ctx: &mut Context, now: u64, claimed: u16) {
        if claimed < MIN_TOLD {
            ctx.path_counters.refused += 1;
            return;
        }
        if self.is_up() && self.size(ctx).handle_hint(now, claimed) {
            self.limit(ctx);
        }
    }

    /// The path is another one.
    pub(super) fn handle_moved(&mut self, ctx: &mut Context) {
        self.metrics.handle_moved();
        self.passing.settle();
        self.probing = None;
        if self.mtu.as_mut().is_some_and(PathMtu::handle_moved) {
            self.limit(ctx);
        }
    }

    /// When the other end is told of the path to us.
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
            ctx.lane(Command::SendOnSession {
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
            ctx.lane(Command::LimitSession { peer, mtu });
        }
    }
}

/// By probes, on a direct path that fast frames take.
impl Session {
    /// The size of fast frames and how it is known, while there is a path for them.
    pub(crate) fn known_size(&self, config: &Config) -> Option<KnownSize> {
        if !self.is_fast() {
            return None;
        }
        if !config.probe {
            let payload = self.path_mtu_out().unwrap_or(config.mtu);
            return Some(KnownSize {
                payload: payload.min(self.their_max_payload()),
                source: SizeSource::Set,
                searching: false,
            });
        }
        let prober = &self.probing.as_ref()?.prober;
        Some(KnownSize {
            payload: prober.current(),
            source: match prober.is_probed() {
                true => SizeSource::Probed,
                false => SizeSource::Assumed,
            },
            searching: prober.is_searching(),
        })
    }

    /// The direct path does not take the smallest size of full frames.
    pub(crate) fn is_narrow(&self) -> bool {
        let probing = self.probing.as_ref().filter(|_| self.is_fast());
        probing.is_some_and(|probing| probing.prober.is_narrow())
    }

    /// Packets go straight to `path` now, if they do. Another path than before has another size, which is not known.
    pub(crate) fn follow_path(&mut self, ctx: &mut Context, now: u64, path: Option<SocketAddr>) {
        let Some(path) = path.filter(|_| ctx.config.probe && self.is_fast()) else {
            return;
        };
        if self.probing.as_ref().is_some_and(|probing| probing.path == path) {
            return;
        }
        let ceiling = if path.is_ipv6() { CEILING_V6 } else { CEILING_V4 };
        let prober = Prober::new(now, ceiling.min(self.their_max_payload()), ctx.config.path_raise);
        ctx.lane(Command::SizePath {
            peer: self.peer.node_addr(),
            size: PathSize {
                payload: prober.current(),
                settled: false,
            },
        });
        self.probing = Some(Probing { path, prober });
        self.drive_probes(ctx, now);
    }

    /// The other end answers a probe.
    pub(crate) fn handle_probe_answer(&mut self, ctx: &mut Context, now: u64, body: &[u8]) {
        let (Some(id), Some(probing)) = (body.first_chunk(), &mut self.probing) else {
            return;
        };
        let mut effects = Vec::new();
        probing.prober.handle_answer(now, u16::from_le_bytes(*id), &mut effects);
        self.carry_out(ctx, effects);
        self.drive_probes(ctx, now);
    }

    /// Our own addresses or routes are others.
    pub(crate) fn doubt_size(&mut self) {
        if let Some(probing) = &mut self.probing {
            probing.prober.handle_network_change();
        }
    }

    /// When a probe is due.
    pub(super) fn probe_at(&self) -> u64 {
        let probing = self.probing.as_ref().filter(|_| self.is_fast());
        probing.map_or(u64::MAX, |probing| probing.prober.deadline(self.last_large_tx))
    }

    pub(super) fn drive_probes(&mut self, ctx: &mut Context, now: u64) {
        if now < self.probe_at() {
            return;
        }
        let Some(probing) = &mut self.probing else { return };
        let mut effects = Vec::new();
        probing.prober.handle_timeout(now, self.last_large_tx, &mut effects);
        self.carry_out(ctx, effects);
    }

    fn carry_out(&mut self, ctx: &mut Context, effects: Vec<Effect>) {
        let peer = self.peer.node_addr();
        let mut sized = false;
        for effect in effects {
            match effect {
                Effect::Probe { id, size } => {
                    ctx.path_counters.probes += u64::from(size > 0);
                    ctx.lane(Command::ProbePath { peer, id, size });
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
            ctx.lane(Command::SizePath {
                peer,
                size: PathSize {
                    payload: probing.prober.current(),
                    settled: !probing.prober.is_searching(),
                },
            });
        }
    }
}
