//! FMP: the link with one neighbour, from the first dial to rekey and loss.
//!
//! A handshake message never replaces anything. Msg1 arms a candidate epoch next to the present
//! one; the lane promotes it when a frame authenticates under it. Msg2 proves that the responder
//! holds the keys, so the initiator seals with them at once. Old epochs stay open until they have
//! drained.

mod bond;
mod choice;
mod dials;
mod first_messages;
mod handshake;
mod health;
mod hop_keys;
mod keepalive;
mod moves;
mod narrow;
mod observed;
mod paths;
mod reports;
mod targets;
mod timers;
mod twins;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use weft_contract::{Endpoint, LinkActivity, LinkCommand, LinkId, ReceiverIndex, SendCommand};
use weft_noise::PublicKey;
use weft_noise::fast::Seed;
use weft_noise::tag::TagKeys;
use weft_wire::address;
use weft_wire::link::{
    Disconnect, DisconnectReason, ELSEWHERE, KEY_IN_TWO, LinkMessageType, MAX_PROBE, MOVED, PROBE_ANSWER, SPARE,
};

use self::bond::Bond;
use self::choice::Choice;
pub(crate) use self::dials::Dials;
use self::first_messages::Mark;
pub(crate) use self::first_messages::{First, FirstMessages};
use self::handshake::Attempt;
pub(crate) use self::health::Health;
use self::keepalive::Idle;
use self::moves::Moves;
pub(crate) use self::observed::Observed;
use self::paths::Paths;
pub(crate) use self::twins::Twins;
use crate::agreement::Agreement;
use crate::context::Context;
use crate::liveness::Liveness;
use crate::metrics::Metrics;
use crate::reports::{LINK, Reports};
use crate::{Event, Hint, LinkDown};

/// Time for which replaced keys still open late frames (L5).
const DRAIN: u64 = 10_000;
/// A candidate that has not been used for this long is forgotten.
const CANDIDATE_LIFE: u64 = 30_000;
/// An end that receives but has nothing to send answers after this, so that silence has a meaning.
const PASSIVE_KEEPALIVE: u64 = 1_000;
/// After payload without any received frame for this long, the peer may have restarted or roamed,
/// so this node dials while the present keys stay.
const UNANSWERED: u64 = 3_000;

/// Number of heartbeats after a change of this node's own network, so that the peer learns the new
/// address.
const ANNOUNCEMENTS: u32 = 3;
/// The time between them.
const ANNOUNCE_EVERY: u64 = 300;

/// An epoch that the lane holds for this link.
#[derive(Debug)]
struct Epoch {
    index: ReceiverIndex,
    remote_epoch: [u8; 8],
    /// When the handshake that made it began.
    began: u64,
    born: u64,
    stage: Stage,
    /// The handshake messages, kept by the responder to give a repeated msg1 the same answer.
    answered: Option<Box<handshake::Answered>>,
    /// The epoch replaces keys of a link that is up, rather than opening it.
    rekey: bool,
    /// The index of a handshake of this node that was in flight when the epoch was armed: one of
    /// the two has to lose.
    crossed: Option<ReceiverIndex>,
    /// The seed of keys for relayed frames, until they are derived.
    seed: Option<Seed>,
    /// The agreement on these keys.
    hop: Option<Agreement>,
}

impl Epoch {
    fn end_hop(&self, ctx: &mut Context, link: LinkId) {
        if let Some(hop) = &self.hop {
            ctx.free_fast_index(hop.our_index);
            ctx.change_link(link, LinkCommand::RetireHop { id: hop.id });
        }
    }
}

#[cfg(test)]
impl Epoch {
    /// The epoch of a link that has just come up.
    fn current(index: ReceiverIndex, now: u64) -> Self {
        Self {
            index,
            remote_epoch: [0; 8],
            began: now,
            born: now,
            stage: Stage::Current,
            answered: None,
            rekey: false,
            crossed: None,
            seed: None,
            hop: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Candidate,
    Current,
    /// Opens frames until this time.
    Draining(u64),
}

/// The link with one peer.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) peer: PublicKey,
    we_are_smaller: bool,
    /// All that is known of where the peer is.
    paths: Paths,
    /// The one in use, while the link is up.
    path: Option<Endpoint>,
    epochs: Vec<Epoch>,
    /// The random number that the peer drew at its start, as last proven. If the link comes up
    /// again with another number, the peer has lost its state.
    known_start: Option<[u8; 8]>,
    attempt: Option<Box<Attempt>>,
    /// The keys of the tags of handshake messages, if this is a known node.
    pub(crate) tags: Option<TagKeys>,
    /// First messages of the peer that make no keys any more.
    spent: VecDeque<Mark>,
    next_dial: u64,
    /// Whether that is a place among those of all peers ([`Dials`]).
    has_place: bool,
    /// Attempts since the peer last answered.
    pub(crate) failures: u32,
    rekey_due: u64,
    pub(crate) rekeys: u64,
    pub(crate) up_since: Option<u64>,
    pub(crate) last_down: Option<(u64, LinkDown)>,
    pub(crate) liveness: Liveness,
    pub(crate) metrics: Metrics,
    /// Lanes mark what they forward over the link.
    congested: bool,
    reports: Reports,
    /// Whether the neighbour answers at present.
    pub(crate) health: Health,
    announcements: u32,
    announce_at: u64,
    /// The addresses to which the peer may have roamed.
    moves: Moves,
    /// The choice among several paths, while the link is up.
    choice: Option<Box<Choice>>,
    /// The paths that data may go on at the same time, if the user wants that.
    bond: Option<Box<Bond>>,
    /// The number of the next keys for relayed frames.
    next_hop: u32,
    /// The overdue keys were reported.
    overdue_told: bool,
    /// Whether two running nodes have the peer's key.
    pub(crate) twins: Twins,
    /// The address that the peer sees of this node.
    pub(crate) observed: Observed,
    /// What the ends of an idle link have agreed.
    idle: Option<Box<Idle>>,
}

/// What an event of the link means for the session above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// The link can take traffic; `restarted` means that the peer has lost its state.
    Up { restarted: bool },
}

impl Link {
    pub(crate) fn new(ctx: &mut Context, now: u64, id: LinkId, peer: PublicKey, addresses: &[Hint]) -> Self {
        // This node may be the only one that can dial, but nodes that start together need not all
        // dial at the same instant.
        let spread = ctx.jittered(40);
        Self {
            id,
            peer,
            we_are_smaller: ctx.me < peer.node_addr(),
            paths: Paths::new(now, addresses),
            path: None,
            epochs: Vec::new(),
            known_start: None,
            attempt: None,
            tags: None,
            spent: VecDeque::new(),
            next_dial: now + spread,
            has_place: false,
            failures: 0,
            rekey_due: u64::MAX,
            rekeys: 0,
            up_since: None,
            last_down: None,
            liveness: Liveness::new(now),
            metrics: Metrics::default(),
            congested: false,
            reports: Reports::new(&LINK),
            health: Health::new(),
            announcements: 0,
            announce_at: 0,
            moves: Moves::default(),
            choice: None,
            bond: None,
            next_hop: 0,
            overdue_told: false,
            twins: Twins::default(),
            observed: Observed::default(),
            idle: None,
        }
    }

    /// Marks the peer as a known node: handshake messages of both ends have tags from now on. Costs
    /// one Diffie-Hellman operation.
    pub(crate) fn know(&mut self, ctx: &Context) {
        if self.tags.is_none() {
            self.tags = Some(TagKeys::new(&ctx.identity, &self.peer));
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.current().is_some()
    }

    pub(crate) fn path(&self) -> Option<Endpoint> {
        self.path
    }

    pub(crate) fn age(&self, now: u64) -> Option<u64> {
        self.current().map(|e| now.saturating_sub(e.born))
    }

    fn current(&self) -> Option<&Epoch> {
        self.epochs.iter().find(|e| e.stage == Stage::Current)
    }

    /// Handles the lane's report of the first frame under a candidate, which it seals with now.
    /// `proven`: it sends to `path` because the peer has proven that address.
    pub(crate) fn handle_proven(
        &mut self,
        ctx: &mut Context,
        now: u64,
        index: ReceiverIndex,
        path: Endpoint,
        proven: bool,
    ) -> Effect {
        if !self
            .epochs
            .iter()
            .any(|e| e.index == index && e.stage == Stage::Candidate)
        {
            return Effect::None;
        }
        self.liveness.heard(now);
        if !self.we_are_smaller || self.attempt.as_ref().is_some_and(|a| a.rekey) {
            self.abandon_attempt(ctx);
        }
        self.moves.handle_proven(self.path == Some(path), proven);
        self.promote(ctx, now, index, path)
    }

    /// Makes an epoch the current one and lets the others drain.
    fn promote(&mut self, ctx: &mut Context, now: u64, index: ReceiverIndex, path: Endpoint) -> Effect {
        let was_up = self.is_up();
        let (mut remote_epoch, mut rekey, mut began, mut answered) = (None, false, now, None);
        for epoch in &mut self.epochs {
            if epoch.index == index {
                epoch.stage = Stage::Current;
                epoch.born = now;
                // The peer has received the answer.
                answered = epoch.answered.take();
                began = epoch.began;
                (remote_epoch, rekey) = (Some(epoch.remote_epoch), epoch.rekey);
            } else if epoch.stage == Stage::Current {
                epoch.stage = Stage::Draining(now + DRAIN);
            }
        }
        if let Some(answered) = answered {
            self.spend(ctx, &answered);
        }
        ctx.change_link(self.id, LinkCommand::SelectEpoch { index });
        if !self.moves.is_unproven() {
            ctx.place_link(self.id, self.peer.node_addr(), path);
        }
        self.renew_hop(ctx, now);
        if was_up {
            self.moved(ctx, now, path);
        } else {
            self.set_path(now, path);
        }
        self.rekey_due = now + ctx.jittered(ctx.config.rekey);
        self.failures = 0;
        self.renew_agreement();
        let restarted = self.known_start.is_some() && self.known_start != remote_epoch;
        self.known_start = remote_epoch;
        self.overdue_told = false;
        let path = path.remote();
        self.watch_for_twins(ctx, now, remote_epoch, began, path);
        self.tell_observed(ctx, now);
        if !was_up || restarted {
            self.up_since = Some(now);
            self.health = Health::new();
            self.offer_targets(now);
            self.offer_uplinks(ctx, now);
            ctx.event(Event::LinkUp {
                peer: self.peer,
                path,
                restarted,
            });
            return Effect::Up { restarted };
        }
        if rekey {
            self.rekeys += 1;
            ctx.event(Event::LinkRekeyed { peer: self.peer });
        }
        Effect::None
    }

    /// Reports to the daemon and to the peer that two running nodes have the peer's key.
    fn watch_for_twins(&mut self, ctx: &mut Context, now: u64, start: Option<[u8; 8]>, began: u64, path: SocketAddr) {
        let Some(other) = start.and_then(|start| self.twins.note(now, start, began, path)) else {
            return;
        };
        self.send(ctx, KEY_IN_TWO, address::to_bytes(other).to_vec());
        if self.twins.is_news(now) {
            ctx.event(Event::KeyInTwo {
                peer: self.peer,
                seen: [path, other],
            });
        }
    }

    /// Handles a jump of the clock, or a start from a restored image: another process may have the
    /// same keys and counters.
    pub(crate) fn handle_resumed(&mut self, now: u64) {
        self.rekey_due = self.rekey_due.min(now);
        self.end_agreement(now);
    }

    /// Handles a disconnect of the peer, and returns whether it ended the link. Only one under the
    /// present keys does.
    pub(crate) fn handle_disconnect(
        &mut self,
        ctx: &mut Context,
        now: u64,
        index: ReceiverIndex,
        reason: DisconnectReason,
    ) -> bool {
        if self.current().is_none_or(|e| e.index != index) {
            return false;
        }
        self.take_down(ctx, now, LinkDown::Disconnected(reason.to_byte()));
        self.next_dial = now + handshake::RESEND_MIN;
        true
    }

    pub(crate) fn handle_activity(&mut self, now: u64, activity: &LinkActivity) {
        let before = self.liveness.last_payload();
        self.liveness
            .sample(now, &activity.totals, activity.totals.last_payload_tx);
        self.note_payload(before);
        self.metrics.handle_received(now, &activity.received);
        self.health.review(now, &self.liveness);
    }

    /// Answers a probe of the neighbour.
    pub(crate) fn handle_probe(&mut self, ctx: &mut Context, now: u64, body: &[u8]) {
        if body.len() <= MAX_PROBE {
            self.renew_agreement();
            self.liveness.said(now);
            self.send(ctx, PROBE_ANSWER, body.to_vec());
        }
    }

    /// Handles the neighbour's answer to a probe.
    pub(crate) fn handle_probe_answer(&mut self, ctx: &mut Context, now: u64, body: &[u8]) {
        self.liveness.heard(now);
        // A peer of an earlier version returns the byte behind the number, too.
        if let Some((number, [] | [SPARE])) = body.split_first_chunk() {
            let number = u64::from_le_bytes(*number);
            let choice = self.choice.as_mut();
            let bond = self.bond.as_mut();
            if choice.is_some_and(|choice| choice.handle_answer(now, number)) {
                self.drive_choice(ctx, now);
            } else if bond.is_some_and(|bond| bond.handle_answer(now, number)) {
                self.drive_bond(ctx, now);
            } else {
                self.handle_path_answer(ctx, now, number);
            }
        } else if let Some((number, [ELSEWHERE])) = body.split_first_chunk() {
            self.handle_answer_elsewhere(ctx, now, u64::from_le_bytes(*number));
        } else if let Ok(number) = <[u8; 4]>::try_from(body) {
            self.health.handle_answer(now, u32::from_le_bytes(number));
        }
        self.health.review(now, &self.liveness);
    }

    /// Handles frames of the peer that arrive on another path.
    pub(crate) fn handle_left(&mut self, now: u64) {
        if self.is_up() {
            self.health.handle_left(now, &self.liveness);
        }
    }

    /// Whether the link is up and not suspect.
    pub(crate) fn is_healthy(&self) -> bool {
        self.is_up() && self.health.is_healthy()
    }

    /// Sends a disconnect, for an orderly stop.
    pub(crate) fn disconnect(&mut self, ctx: &mut Context, reason: DisconnectReason) {
        if self.is_up() {
            self.send(
                ctx,
                LinkMessageType::Disconnect.to_byte(),
                vec![Disconnect { reason }.reason.to_byte()],
            );
        }
    }

    /// Handles a change of this node's own addresses or routes. The peer learns the new address
    /// from the next frame, so it receives one now, and two more in case the new route is not ready
    /// yet. A peer that is not linked is dialled at once.
    pub(crate) fn handle_network_change(&mut self, ctx: &mut Context, now: u64) {
        if self.is_up() {
            self.announcements = ANNOUNCEMENTS;
            self.announce(ctx, now);
            self.hurry_choice();
            self.paths.hurry_narrow();
            self.look_at_once(now);
        } else if self.attempt.is_some() {
            self.hurry(now + handshake::RESEND_MIN);
        } else {
            self.next_dial = now;
        }
    }

    fn announce(&mut self, ctx: &mut Context, now: u64) {
        self.announcements = self.announcements.saturating_sub(1);
        self.announce_at = now + ANNOUNCE_EVERY;
        self.health.hurry(now);
        self.liveness.said(now);
        self.send(ctx, LinkMessageType::Heartbeat.to_byte(), vec![MOVED]);
    }

    fn send(&self, ctx: &mut Context, msg_type: u8, body: Vec<u8>) {
        ctx.lane(SendCommand::OnLink {
            link: self.id,
            epoch: None,
            msg_type,
            body,
        });
    }

    /// Returns `at` while the link is up, and `u64::MAX` otherwise.
    fn while_up(&self, at: u64) -> u64 {
        if self.is_up() { at } else { u64::MAX }
    }

    /// Returns when payload of this node will have been unanswered for longer than a live peer
    /// takes.
    pub(crate) fn unanswered_at(&self) -> u64 {
        self.while_up(self.liveness.unanswered_at(UNANSWERED))
    }

    fn take_down(&mut self, ctx: &mut Context, now: u64, reason: LinkDown) {
        self.abandon_attempt(ctx);
        for epoch in std::mem::take(&mut self.epochs) {
            if let Some(answered) = &epoch.answered {
                answered.forget(ctx);
            }
            ctx.free_index(epoch.index);
            epoch.end_hop(ctx, self.id);
        }
        ctx.change_link(self.id, LinkCommand::Remove);
        if let Some(path) = self.proven_path() {
            self.paths.note_proven(self.liveness.totals().last_rx, path);
        }
        self.path = None;
        self.paths.handle_down(now);
        self.up_since = None;
        self.liveness.settle();
        self.metrics = Metrics::default();
        self.congested = false;
        self.reports = Reports::new(&LINK);
        self.health = Health::new();
        self.announcements = 0;
        self.moves = Moves::default();
        self.observed.forget();
        self.choice = None;
        self.idle = None;
        self.bond = self.bond.take().map(|_| Box::default());
        self.last_down = Some((now, reason));
        self.next_dial = now;
        ctx.event(Event::LinkDown {
            peer: self.peer,
            reason,
        });
    }

    /// Returns when the oldest handshake began whose keys are held.
    pub(crate) fn begun(&self) -> u64 {
        self.epochs.iter().map(|e| e.began).min().unwrap_or(0)
    }

    /// Forgets the handshakes of a link that never came up.
    pub(crate) fn give_up(&mut self, ctx: &mut Context) {
        for epoch in std::mem::take(&mut self.epochs) {
            if let Some(answered) = &epoch.answered {
                answered.forget(ctx);
            }
            ctx.free_index(epoch.index);
        }
        ctx.change_link(self.id, LinkCommand::Remove);
    }

    /// Ends the link with a peer that was removed from the configuration, or the attempt to link.
    pub(crate) fn remove(&mut self, ctx: &mut Context, now: u64) {
        if self.is_up() {
            self.disconnect(ctx, DisconnectReason::ConfigurationChange);
            self.take_down(ctx, now, LinkDown::Removed);
        } else {
            self.abandon_attempt(ctx);
            self.give_up(ctx);
        }
    }

    /// Removes the first messages of a node that is forgotten.
    pub(crate) fn forget_messages(&mut self, ctx: &mut Context) {
        for mark in self.spent.drain(..) {
            ctx.first_messages.forget_mark(mark);
        }
    }

    /// Ends a link that came up after the last place was taken.
    pub(crate) fn turn_away(&mut self, ctx: &mut Context, now: u64) {
        self.disconnect(ctx, DisconnectReason::ResourceExhaustion);
        self.take_down(ctx, now, LinkDown::NoRoom);
    }

    /// Returns the number of epochs that this link holds, for the bound on the state that peers can
    /// cause.
    pub(crate) fn epochs_held(&self) -> usize {
        self.epochs.len()
    }

    /// Returns the indices of all epochs, and of the present one.
    pub(crate) fn held(&self) -> (BTreeSet<u32>, Option<u32>) {
        (
            self.epochs.iter().map(|e| e.index.0).collect(),
            self.current().map(|e| e.index.0),
        )
    }
}
