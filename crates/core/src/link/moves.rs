//! Addresses to which the peer may have roamed, until it has proven one.
//!
//! A frame from a new address is a claim ([`LinkReport::Roamed`](weft_contract::LinkReport::Roamed)).
//! This node probes the peer at that address, with a number that no other node can know, and at the
//! address in use. The peer has roamed if it answers at the new address and not at the old one, or
//! if it has announced a change of its addresses and has no reason to avoid the new one. If both
//! work, the link keeps the old one: a bystander that sends copies of frames from elsewhere, and
//! forwards the probe, gains nothing (RFC 9000 section 9.3.3).
//! docs/decisions/0022-path-validation.md.

use rand_core::Rng as _;
use weft_contract::{Endpoint, LinkCommand};
use weft_wire::fmp;

use super::Link;
use super::handshake::REKEY_RETRY;
use super::targets::kind_of_probe;
use crate::Event;
use crate::context::Context;

/// Addresses in question at a time; the oldest makes room.
const MAX_MOVES: usize = 4;
/// Probes to each.
const TRIES: u8 = 3;
/// First wait for an answer, in ms, or two round trips if that is more; doubles each time.
const FIRST_WAIT: u64 = 250;
const MAX_WAIT: u64 = 1_000;
/// An address that has answered is used from then on. The old one is used as well for this long, or
/// for a round trip, because its answer may be in flight. In ms.
const MIN_SETTLE: u64 = 50;
const MAX_SETTLE: u64 = 500;
/// A later answer from the old address still returns the link to it within this time, in ms.
const RETURN: u64 = 2_000;
/// Time for which a peer that has announced a change of its addresses is believed on each new
/// address, in ms.
const ANNOUNCED: u64 = 3_000;

/// The addresses in question.
#[derive(Debug, Default)]
pub(super) struct Moves {
    list: Vec<Move>,
    settling: Option<Box<Settling>>,
    /// The peer has answered a probe since the link came up; a FIPS daemon does not.
    answers: bool,
    /// The link is up and its peer has proven no address.
    unproven: bool,
    announced_until: u64,
    /// The presumed address of a peer that answers no probes, and the bytes that may be sent to it.
    elsewhere: Option<Box<(Endpoint, u32)>>,
}

/// One address in question. Times are ms.
#[derive(Debug)]
struct Move {
    to: Endpoint,
    number: u64,
    /// The number of the probe to the address in use.
    here: u64,
    tries: u8,
    asked_at: u64,
    next: u64,
    /// Bytes that may be sent to it.
    room: u32,
    /// The peer uses it only while no other of its paths works.
    spare: bool,
}

/// An address that has answered before the one in use has.
#[derive(Debug)]
struct Settling {
    to: Endpoint,
    from: Endpoint,
    here: u64,
    /// The change of address is complete once this time is past.
    at: u64,
    moved: bool,
}

impl Moves {
    /// Handles new keys in use. The link keeps its address (`same_path`) or takes another one;
    /// `proven` means that the peer has proven it.
    pub(super) fn handle_proven(&mut self, same_path: bool, proven: bool) {
        if !same_path {
            self.settle();
        }
        self.unproven = !proven;
    }

    pub(super) fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// Ends all questions, because the address is proven.
    pub(super) fn settle(&mut self) {
        self.list.clear();
        (self.settling, self.elsewhere, self.unproven) = (None, None, false);
    }

    /// Ends all questions about a link whose address is proven.
    pub(super) fn settle_if_proven(&mut self) {
        if !self.unproven {
            self.settle();
        }
    }

    /// The peer has said whether it uses an address in question only while no other works.
    pub(super) fn note_spare(&mut self, at: Endpoint, spare: bool) {
        if let Some(asked) = self.list.iter_mut().find(|asked| asked.to == at) {
            asked.spare = spare;
        }
    }

    /// Returns the other address to which a request for new keys of `len` bytes is sent, if its
    /// budget allows.
    pub(super) fn take_room(&mut self, len: usize) -> Option<Endpoint> {
        let (to, room) = self.elsewhere.as_deref_mut()?;
        *room = room.checked_sub(u32::try_from(len).ok()?)?;
        Some(*to)
    }
}

impl Link {
    /// Handles a frame from an address that the peer has not proven; `room` bytes may be sent to
    /// it.
    pub(crate) fn handle_roamed(&mut self, ctx: &mut Context, now: u64, to: Endpoint, room: u32) {
        if !self.is_up() {
            return;
        }
        if let Some(path) = self.proven_path().filter(|path| path.covers(to)) {
            // The lane does not know yet that the address is proven.
            return self.place(ctx, path, None);
        }
        if let Some(known) = self.moves.list.iter_mut().find(|known| known.to == to) {
            known.room = known.room.saturating_add(room);
            return;
        }
        if self.moves.list.len() == MAX_MOVES {
            self.moves.list.remove(0);
        }
        self.moves.list.push(Move {
            to,
            number: ctx.rng.next_u64(),
            here: ctx.rng.next_u64(),
            tries: 0,
            asked_at: now,
            next: now,
            room,
            spare: false,
        });
        self.drive_moves(ctx, now);
    }

    /// Handles the peer's announcement that its own addresses have changed.
    pub(crate) fn handle_moving(&mut self, now: u64) {
        self.moves.announced_until = now + ANNOUNCED;
        self.hurry_choice();
    }

    /// Returns when a probe of an address is due, or a pending change of the address.
    pub(super) fn moves_at(&self) -> u64 {
        let asking = self.moves.list.iter().map(|asked| asked.next).min();
        let settling = self.moves.settling.as_ref().map(|settling| match settling.moved {
            false => settling.at,
            true => settling.at + RETURN,
        });
        asking.into_iter().chain(settling).min().unwrap_or(u64::MAX)
    }

    pub(super) fn drive_moves(&mut self, ctx: &mut Context, now: u64) {
        self.settle_move(ctx, now);
        let bonded = self.bond.is_some();
        let (id, path, paths) = (self.id, self.proven_path(), &self.paths);
        let wait = self
            .metrics
            .srtt()
            .map_or(FIRST_WAIT, |srtt| (2 * srtt).clamp(FIRST_WAIT, MAX_WAIT));
        let mut failed = None;
        self.moves.list.retain_mut(|asked| {
            if now < asked.next {
                return true;
            }
            let len = kind_of_probe(ctx, paths, bonded, asked.to).probe_len();
            let left = asked.room.checked_sub(len as u32);
            let Some(left) = left.filter(|_| asked.tries < TRIES) else {
                failed = Some((asked.to, asked.room));
                return false;
            };
            asked.room = left;
            let questions = [(Some(asked.to), asked.number), (path, asked.here)];
            for (to, number) in questions.into_iter().filter_map(|(to, number)| Some((to?, number))) {
                let kind = kind_of_probe(ctx, paths, bonded, to);
                ctx.change_link(id, LinkCommand::Probe { to, number, kind });
            }
            asked.next = now + (wait << asked.tries);
            asked.tries += 1;
            true
        });
        if let Some((to, room)) = failed.filter(|_| !self.moves.answers) {
            self.ask_by_handshake(now, to, room);
        }
    }

    /// Probes by a handshake, which a peer that answers no probes does answer.
    fn ask_by_handshake(&mut self, now: u64, to: Endpoint, room: u32) {
        let before = self.moves.elsewhere.as_deref().filter(|(known, _)| *known == to);
        let room = before.map_or(room, |(_, so_far)| so_far.saturating_add(room));
        self.moves.elsewhere = Some(Box::new((to, room)));
        if let Some(born) = self.current().map(|epoch| epoch.born) {
            self.rekey_due = self.rekey_due.min(now.max(born + REKEY_RETRY));
        }
    }

    /// Handles the peer's answer to a probe of an address.
    pub(super) fn handle_path_answer(&mut self, ctx: &mut Context, now: u64, number: u64) {
        self.moves.answers = true;
        if let Some(settling) = self.moves.settling.take_if(|settling| settling.here == number) {
            let back = settling.from;
            if settling.moved {
                self.moved(ctx, now, back);
            }
            return self.place(ctx, back, None);
        }
        // The address in use works, so the peer has not left it, whatever was received from
        // elsewhere.
        let path = self.proven_path();
        let (announced, paths) = (now < self.moves.announced_until, &self.paths);
        let is_heavier = |to| path.is_some_and(|path| paths.is_heavier(to, path));
        self.moves
            .list
            .retain(|asked| asked.here != number || announced && !is_heavier(asked.to));
        let Some(at) = self.moves.list.iter().position(|asked| asked.number == number) else {
            return;
        };
        let asked = self.moves.list.swap_remove(at);
        // A peer that avoids a path may still probe it.
        let announced = announced && !is_heavier(asked.to);
        let Some(from) = path.filter(|_| !announced) else {
            self.moves.settle();
            self.place(ctx, asked.to, None);
            self.moved(ctx, now, asked.to);
            return;
        };
        let choice = self.choice.get_or_insert_default();
        choice.note_works(&mut self.paths, now, from, asked.to);
        self.paths.note_spare(asked.to, asked.spare);
        self.note_own_spare(ctx);
        let rtt = now.saturating_sub(asked.asked_at);
        self.moves.settling = Some(Box::new(Settling {
            to: asked.to,
            from,
            here: asked.here,
            at: now + rtt.clamp(MIN_SETTLE, MAX_SETTLE),
            moved: false,
        }));
        self.place(ctx, asked.to, Some(from));
    }

    /// The peer says on the path in use that a probe has come from elsewhere. It shows that the path in use
    /// works if that one was probed, and nothing about another one.
    pub(super) fn handle_answer_elsewhere(&mut self, ctx: &mut Context, now: u64, number: u64) {
        let choice = self.choice.as_mut();
        if choice.is_some_and(|choice| choice.handle_answer_of_used(now, number)) {
            return self.drive_choice(ctx, now);
        }
        let mut asked = self.moves.list.iter();
        let settling = self.moves.settling.as_ref();
        if asked.any(|asked| asked.here == number) || settling.is_some_and(|settling| settling.here == number) {
            self.handle_path_answer(ctx, now, number);
        }
    }

    /// Completes the change of address after the old address has had time to answer.
    fn settle_move(&mut self, ctx: &mut Context, now: u64) {
        let Some(settling) = &mut self.moves.settling else {
            return;
        };
        if settling.moved {
            if now >= settling.at + RETURN {
                self.moves.settling = None;
            }
        } else if now >= settling.at {
            settling.moved = true;
            let to = settling.to;
            self.place(ctx, to, None);
            self.moved(ctx, now, to);
        }
    }

    pub(super) fn place(&self, ctx: &mut Context, path: Endpoint, left: Option<Endpoint>) {
        let (link, peer) = (self.id, self.peer.node_addr());
        ctx.change_link(link, LinkCommand::Place { peer, path, left });
    }

    /// Sets the path of the link. Returns the one before.
    pub(super) fn set_path(&mut self, now: u64, path: Endpoint) -> Option<Endpoint> {
        let left = self.path.replace(path);
        if self.proven_path().is_some() {
            self.paths.note_used(now, path);
        }
        left
    }

    /// Handles a link that goes to `path` from now on.
    pub(super) fn moved(&mut self, ctx: &mut Context, now: u64, path: Endpoint) {
        let left = self.set_path(now, path);
        let known = left == Some(path);
        if !known {
            let choice = self.choice.get_or_insert_default();
            choice.handle_moved(&mut self.paths, now, left, path);
            self.offer_uplinks(ctx, now);
            self.metrics.handle_moved();
            self.reports.handle_moved();
            self.tell_observed(ctx, now);
            if left.is_none_or(|left| left.remote() != path.remote()) {
                let path = path.remote();
                ctx.event(Event::Roamed { peer: self.peer, path });
            }
        }
    }

    /// Returns the other address to send a msg1 to, if its budget allows.
    pub(super) fn elsewhere(&mut self) -> Option<Endpoint> {
        self.moves.take_room(fmp::Msg1::LEN)
    }
}

#[cfg(test)]
mod tests;
