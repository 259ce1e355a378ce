//! FSP: the end-to-end session with one node, over whatever path there is.
//!
//! The initiator keeps msg3 until a frame under the new keys has been received (L1). The responder
//! repeats its ack while msg3 is missing (L2). During a rekey, data stays on the old keys until the
//! new ones are proven. To the responder msg3 is the proof. The initiator sends small frames under
//! the new keys until the first frame of the peer under them is received.

mod epochs;
mod fast;
mod half_open;
mod handshake;
mod next_hop;
mod pace;
mod reports;
mod service;
mod size;

use weft_contract::{EpochId, LinkId, Measured, Relay, SendCommand, SessionActivity, SessionCommand};
use weft_noise::PublicKey;
use weft_noise::aead::TAG_LEN;
use weft_wire::NodeAddr;
use weft_wire::link::{LinkMessageType, SessionDatagram};
use weft_wire::session;

use self::epochs::{Epoch, Stage};
use self::fast::Fast;
use self::half_open::HalfOpen;
pub(crate) use self::handshake::HANDSHAKE_LIFE;
use self::handshake::{Finishing, Initiating, Lost};
use self::pace::Pace;
use self::service::Waiting;
use self::size::Probing;
use crate::context::Context;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::passing::Passing;
use crate::path_mtu::{PathMtu, PathWatch};
use crate::reports::{Reports, SESSION};
use crate::{Frames, SessionDown};

/// Time for which replaced keys still open late frames (L5).
const DRAIN: u64 = 10_000;
/// Time for which a session that became idle still opens received frames. It ends after the 90 s of
/// idleness at which FIPS ends a session.
const ASLEEP: u64 = 20_000;
/// After data without any received frame for this long, the peer may have lost its keys.
const UNANSWERED: u64 = 5_000;
/// After data without any received frame for this long, another path may work better. A live weft
/// node answers within 2 s.
const SILENT: u64 = 3_000;
/// An end that receives data but has nothing to send answers after this.
const PASSIVE_KEEPALIVE: u64 = 2_000;

/// The session with one configured peer.
pub(crate) struct Session {
    peer: PublicKey,
    /// The link with the peer itself.
    own_link: LinkId,
    we_are_smaller: bool,
    link: Option<LinkId>,
    epochs: Vec<Epoch>,
    next_id: u32,
    /// The coordinates of this node and of the peer. Handshakes report them to the nodes on the
    /// path.
    pub(crate) coords: (Vec<NodeAddr>, Vec<NodeAddr>),
    initiating: Option<Box<Initiating>>,
    finishing: Option<Box<Finishing>>,
    awaiting: HalfOpen,
    /// The last tag of the last msg3 that was accepted, which tells a repeat of it. A message that is
    /// forged with the same tag causes what a repeat does.
    last_msg3: Option<[u8; TAG_LEN]>,
    /// When a repeat of that msg3 was last answered.
    confirmed: u64,
    /// Set once frames under unknown keys were received.
    lost: Option<Box<Lost>>,
    /// When the nodes on the path were sent the coordinates of both ends.
    pub(crate) warms: Pace,
    /// The same, because the path changed.
    pub(crate) moves: Pace,
    /// When error signals caused a look-up of the peer.
    pub(crate) asks: Pace,
    /// When error signals caused a doubt of the path.
    pub(crate) doubts: Pace,
    fast: Option<Fast>,
    /// The result of the agreement of both ends, as far as it is known.
    frames: Option<Frames>,
    /// Data goes in fast frames or not at all.
    require_fast: bool,
    /// The peer reads fast frames of packets that keep their whole header.
    reads_full: bool,
    /// The version that the peer claims.
    version: Option<Box<str>>,
    /// Data has gone in fast frames, in this process or an earlier one.
    was_fast: bool,
    /// Fast frames under the keys in use also pass on the direct path.
    fast_direct: bool,
    /// The label of fast frames while the path is relayed.
    relay: Option<Relay>,
    /// The time since which packets wait.
    pub(crate) wanted: Option<u64>,
    not_before: u64,
    rekey_due: u64,
    pub(crate) rekeys: u64,
    pub(crate) up_since: Option<u64>,
    pub(crate) liveness: Liveness,
    /// Whether IP packets pass.
    pub(crate) passing: Passing,
    pub(crate) metrics: Metrics,
    reports: Reports,
    /// The size limit of sent frames, once one was reported.
    mtu: Option<PathMtu>,
    watch: PathWatch,
    /// The search for the size of the direct path.
    probing: Option<Probing>,
    /// The same for paths that were left, the latest first.
    other_sizes: Vec<Probing>,
    /// Messages of services that wait for the session.
    services: Option<Box<Waiting>>,
    pub(crate) last_data: u64,
    last_data_tx: u64,
    last_large_tx: u64,
    /// The link over which frames are received.
    arrives: Option<LinkId>,
    /// When frames began to arrive over it while the session was up.
    arrives_since: u64,
    /// That link has changed, and this node may have to follow.
    left: bool,
    /// The time from which it may follow.
    follow_from: u64,
    /// The time from which a silent path may become suspect again.
    doubt_from: u64,
    /// The overdue keys were reported.
    overdue_told: bool,
    /// The reason why the session last ended, and the time.
    pub(crate) last_down: Option<(u64, SessionDown)>,
}

impl Session {
    pub(crate) fn new(me_smaller: bool, peer: PublicKey, own_link: LinkId) -> Self {
        Self {
            peer,
            own_link,
            we_are_smaller: me_smaller,
            link: None,
            epochs: Vec::new(),
            next_id: 0,
            coords: (Vec::new(), Vec::new()),
            initiating: None,
            finishing: None,
            awaiting: HalfOpen::default(),
            last_msg3: None,
            confirmed: 0,
            lost: None,
            warms: Pace::default(),
            moves: Pace::default(),
            asks: Pace::default(),
            doubts: Pace::default(),
            fast: None,
            frames: None,
            require_fast: false,
            reads_full: false,
            version: None,
            was_fast: false,
            fast_direct: false,
            relay: None,
            wanted: None,
            not_before: 0,
            rekey_due: u64::MAX,
            rekeys: 0,
            up_since: None,
            liveness: Liveness::new(0),
            passing: Passing::default(),
            metrics: Metrics::default(),
            reports: Reports::new(&SESSION),
            mtu: None,
            watch: PathWatch::default(),
            probing: None,
            other_sizes: Vec::new(),
            services: None,
            last_data: 0,
            last_data_tx: 0,
            last_large_tx: 0,
            arrives: None,
            arrives_since: 0,
            left: false,
            follow_from: 0,
            doubt_from: 0,
            overdue_told: false,
            last_down: None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.initiating.is_some() || !self.awaiting.is_empty()
    }

    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.current().map(|e| now.saturating_sub(e.born))
    }

    /// Handles a link to the next hop that came up.
    pub(crate) fn handle_link_up(&mut self, ctx: &mut Context, now: u64, link: LinkId, restarted: bool) {
        if self.link != Some(link) {
            self.handle_moved(ctx, now);
        }
        self.link = Some(link);
        self.hurry_agreement(now);
        ctx.change_session(self.peer.node_addr(), SessionCommand::Bind { link });
        let in_use =
            self.wanted.is_some() || now.saturating_sub(self.last_data) < ctx.config.session_idle && self.last_data > 0;
        if restarted && (self.is_up() || self.is_handshaking()) {
            self.take_down(ctx, SessionDown::PeerRestarted);
            if in_use {
                self.not_before = now;
                self.initiate(ctx, now);
            }
        } else if (self.wanted.is_some() && !self.is_up()) || (self.is_up() && in_use) {
            // A FIPS daemon forgets its session with the link, so this one is renewed before data
            // goes unanswered.
            self.not_before = now;
            self.initiate(ctx, now);
        } else if let Some(initiating) = &mut self.initiating {
            initiating.repeat.hurry(now);
        }
        self.flush_services(ctx, now);
    }

    /// Whether data goes in fast frames, direct or relayed.
    pub(crate) fn is_fast_any(&self) -> bool {
        self.link.is_some() && matches!(self.frames(), Frames::Fast(_) | Frames::Relayed(_))
    }

    /// Handles the peer's receiver report: see [`Metrics::handle_report`].
    pub(crate) fn handle_report(&mut self, now: u64, measured: &Measured) {
        if self.metrics.handle_report(now, measured) {
            self.passing.handle_told(now);
        }
    }

    /// Whether data goes directly to the peer, in fast frames.
    pub(crate) fn is_fast(&self) -> bool {
        self.is_direct() && matches!(self.frames(), Frames::Fast(_))
    }

    /// Handles a packet that waits for this session.
    pub(crate) fn handle_wanted(&mut self, ctx: &mut Context, now: u64) {
        self.wanted.get_or_insert(now);
        if !self.is_up() {
            self.initiate(ctx, now);
        }
    }

    /// Handles a frame of the peer under a candidate epoch, which the lane seals with now.
    pub(crate) fn handle_proven(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        if self.epochs.iter().any(|e| e.id == id && e.stage == Stage::Candidate) {
            self.promote(ctx, now, id);
        }
        self.handle_confirmed(ctx, now, id);
    }

    /// Handles a frame of the peer under the epoch that this node seals with.
    pub(crate) fn handle_confirmed(&mut self, ctx: &mut Context, now: u64, id: EpochId) {
        self.liveness.heard(now);
        if self.finishing.take_if(|f| f.id == id).is_some() {
            self.awaiting.mark_crossed(id);
        }
        self.begin_agreement(ctx, now, id);
    }

    pub(crate) fn handle_activity(&mut self, now: u64, activity: &SessionActivity) {
        self.liveness.sample(now, &activity.totals, activity.last_data_tx);
        self.passing.sample(now, self.liveness.last_heard(), activity);
        self.last_data = self.last_data.max(activity.last_data);
        self.last_data_tx = activity.last_data_tx;
        self.last_large_tx = activity.last_large_tx;
        self.metrics.handle_received(now, &activity.received);
        self.watch.handle_seen(activity.path_mtu);
    }

    /// Shows the peer that this node is alive and holds the present keys.
    fn say_alive(&mut self, ctx: &mut Context, now: u64) {
        self.liveness.said(now);
        self.send_alive(ctx, None);
    }

    fn send_alive(&self, ctx: &mut Context, epoch: Option<EpochId>) {
        let peer = self.peer.node_addr();
        ctx.lane(SendCommand::OnSession {
            peer,
            epoch,
            msg_type: session::ALIVE,
            body: Vec::new(),
        });
    }

    fn send_datagram(&self, ctx: &mut Context, payload: &[u8]) {
        if let Some(link) = self.link {
            self.send_datagram_over(ctx, link, payload);
        }
    }

    fn send_datagram_over(&self, ctx: &mut Context, link: LinkId, payload: &[u8]) {
        let datagram = SessionDatagram {
            ttl: SessionDatagram::DEFAULT_TTL,
            path_mtu: ctx.config.mtu,
            src: ctx.me,
            dest: self.peer.node_addr(),
            payload,
        };
        let mut body = vec![0; datagram.wire_len()];
        if datagram.emit(&mut body).is_ok() {
            ctx.lane(SendCommand::OnLink {
                link,
                epoch: None,
                msg_type: LinkMessageType::SessionDatagram.to_byte(),
                body,
            });
        }
    }

    fn keepalive_at(&self) -> u64 {
        if self.is_up() && self.link.is_some() {
            self.liveness.answer_at(PASSIVE_KEEPALIVE)
        } else {
            u64::MAX
        }
    }

    fn idle_at(&self, ctx: &Context) -> u64 {
        if self.is_up() {
            self.last_data + ctx.config.session_idle
        } else {
            u64::MAX
        }
    }

    fn initiate_at(&self) -> (u64, &'static str) {
        if self.initiating.is_some() || self.finishing.is_some() || self.link.is_none() {
            return (u64::MAX, "");
        }
        if !self.is_up() {
            return (self.wanted.map_or(u64::MAX, |_| self.not_before), "session wanted");
        }
        let unanswered = self.liveness.unanswered_at(UNANSWERED);
        if unanswered < self.rekey_due {
            (unanswered.max(self.not_before), "session unanswered")
        } else {
            (self.rekey_due, "session rekey")
        }
    }

    /// Returns the next moment at which [`Session::handle_timeout`] has something to do, and what.
    pub(crate) fn deadline(&self, ctx: &Context) -> (u64, &'static str) {
        [
            self.handshake_at(),
            (
                self.epochs.iter().map(Self::retire_at).min().unwrap_or(u64::MAX),
                "old session keys drained",
            ),
            self.initiate_at(),
            (self.report_at(ctx), "session report"),
            (self.told_at(), "path MTU"),
            (self.keepalive_at(), "session keepalive"),
            (self.idle_at(ctx), "session idle"),
            (self.follow_at(), "follow the other end"),
            (self.silent_at(), "session silent"),
            (self.agreement_at(), "fast frames"),
            (self.probe_at(), "path probe"),
            (self.warms.due().min(self.moves.due()), "coordinates"),
            (self.keys_end_at(ctx), "session keys too old"),
            (self.keys_overdue_at(ctx), "session keys overdue"),
        ]
        .into_iter()
        .min_by_key(|(at, _)| *at)
        .unwrap_or((u64::MAX, ""))
    }

    pub(crate) fn handle_timeout(&mut self, ctx: &mut Context, now: u64) {
        if now >= self.idle_at(ctx) {
            self.fall_asleep(ctx, now);
        }
        self.end_old_keys(ctx, now);
        self.retire(ctx, now);
        self.drive_handshakes(ctx, now);
        if now >= self.initiate_at().0 {
            self.renew(ctx, now);
        }
        self.drive_agreement(ctx, now);
        if now >= self.report_at(ctx) {
            self.send_reports(ctx, now);
        }
        if now >= self.told_at() {
            self.tell_path_mtu(ctx, now);
        }
        if now >= self.keepalive_at() {
            self.say_alive(ctx, now);
        }
        self.drive_probes(ctx, now);
    }

    /// Handles a jump of the clock, or a start from a restored image: another process may have the
    /// same keys and counters. Idle sessions get new keys too.
    pub(crate) fn handle_resumed(&mut self, ctx: &mut Context, now: u64) {
        if self.is_up() {
            self.not_before = now;
            self.initiate(ctx, now);
        }
    }

    /// Handles a due handshake: packets wait, or keys are old, or data goes unanswered.
    fn renew(&mut self, ctx: &mut Context, now: u64) {
        let answered = self.liveness.unanswered_at(UNANSWERED) > now;
        if self.is_up() && answered && now.saturating_sub(self.last_data) > ctx.config.rekey {
            // An idle session is not rekeyed: it ends, or its next packet causes the rekey.
            self.rekey_due = now + ctx.config.rekey;
            return;
        }
        self.liveness.settle();
        self.rekey_due = self.rekey_due.max(now + handshake::MIN_INITIATE);
        self.initiate(ctx, now);
    }

    /// Returns the number of handshakes that the peer, or an attacker in its name, has begun and
    /// not finished.
    pub(crate) fn half_open(&self) -> usize {
        self.awaiting.len()
    }
}
