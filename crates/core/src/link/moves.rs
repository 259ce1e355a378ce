//! Where the peer may have moved to, until it has shown that it is there.
//!
//! A frame from a new address is a claim ([`Report::Roamed`](weft_packet::Report::Roamed)). The peer is asked there, with a
//! number that no other node can know, and asked where it was. It has moved if it answers at the new address and not at
//! the old one, or if it has said that it moves. Where both work it stays: a bystander that sends copies of frames from
//! elsewhere, and passes on the question, gains nothing (RFC 9000 section 9.3.3). docs/decisions/0022-path-validation.md.

use std::net::SocketAddr;

use rand_core::Rng as _;
use weft_packet::{Command, PATH_PROBE_LEN};
use weft_wire::fmp;

use super::Link;
use super::handshake::REKEY_RETRY;
use crate::Event;
use crate::context::Context;

/// Addresses in question at a time; the oldest makes room.
const MAX_MOVES: usize = 4;
/// Probes to each.
const TRIES: u8 = 3;
/// First wait for an answer, ms, or two round trips if that is more; doubles each time.
const FIRST_WAIT: u64 = 250;
const MAX_WAIT: u64 = 1_000;
/// An address that has answered is used from then on, and the old one for this long as well, or for a round trip: the
/// answer from there may be on its way. ms.
const MIN_SETTLE: u64 = 50;
const MAX_SETTLE: u64 = 500;
/// A later answer from the old address still brings the link back, ms.
const RETURN: u64 = 2_000;
/// How long a peer that said that it moves is taken to mean each new address, ms.
const ANNOUNCED: u64 = 3_000;

/// The addresses in question.
#[derive(Debug, Default)]
pub(super) struct Moves {
    list: Vec<Move>,
    settling: Option<Box<Settling>>,
    /// The peer has answered a probe in this life of the link; a FIPS daemon does not.
    answers: bool,
    /// The link is up and its peer has proven no address.
    unproven: bool,
    announced_until: u64,
    /// Where a peer that answers no probes seems to be, and the bytes that may go there.
    elsewhere: Option<(SocketAddr, u32)>,
}

/// One address in question. Times are ms.
#[derive(Debug)]
struct Move {
    to: SocketAddr,
    number: u64,
    /// For the path in use.
    here: u64,
    tries: u8,
    asked_at: u64,
    next: u64,
    /// Bytes that may go there.
    room: u32,
}

/// An address that has answered, before the one in use has.
#[derive(Debug)]
struct Settling {
    to: SocketAddr,
    from: SocketAddr,
    here: u64,
    /// The link has moved once this is past.
    at: u64,
    moved: bool,
}

impl Moves {
    /// New keys are in use, and the link goes where it went, or elsewhere; the peer has `proven` that it is there.
    pub(super) fn handle_proven(&mut self, same_path: bool, proven: bool) {
        if !same_path {
            self.settle();
        }
        self.unproven = !proven;
    }

    pub(super) fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// The path was proven otherwise, by a handshake.
    pub(super) fn settle(&mut self) {
        self.list.clear();
        (self.settling, self.elsewhere, self.unproven) = (None, None, false);
    }

    /// Where else new keys are asked for, if that much may go there.
    pub(super) fn take_room(&mut self, len: usize) -> Option<SocketAddr> {
        let (to, room) = self.elsewhere.as_mut()?;
        *room = room.checked_sub(u32::try_from(len).ok()?)?;
        Some(*to)
    }
}

impl Link {
    /// A frame came from an address that the peer has not proven; `room` bytes may go there.
    pub(crate) fn handle_roamed(&mut self, ctx: &mut Context, now: u64, to: SocketAddr, room: u32) {
        if !self.is_up() {
            return;
        }
        if self.path == Some(to) && !self.moves.unproven {
            // A lane that has not heard of it.
            return self.place(ctx, to, None);
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
        });
        self.drive_moves(ctx, now);
    }

    /// The peer says that its own addresses have changed.
    pub(crate) fn handle_moving(&mut self, now: u64) {
        self.moves.announced_until = now + ANNOUNCED;
    }

    /// When a probe of a path is due, or its answer.
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
        let (id, path) = (self.id, self.path.filter(|_| !self.moves.unproven));
        let wait = self
            .metrics
            .srtt()
            .map_or(FIRST_WAIT, |srtt| (2 * srtt).clamp(FIRST_WAIT, MAX_WAIT));
        let mut failed = None;
        self.moves.list.retain_mut(|asked| {
            if now < asked.next {
                return true;
            }
            let left = asked.room.checked_sub(PATH_PROBE_LEN as u32);
            let Some(left) = left.filter(|_| asked.tries < TRIES) else {
                failed = Some((asked.to, asked.room));
                return false;
            };
            asked.room = left;
            let questions = [(Some(asked.to), asked.number), (path, asked.here)];
            for (to, number) in questions.into_iter().filter_map(|(to, number)| Some((to?, number))) {
                ctx.lane(Command::ProbeLink { link: id, to, number });
            }
            asked.next = now + (wait << asked.tries);
            asked.tries += 1;
            true
        });
        if let Some((to, room)) = failed.filter(|_| !self.moves.answers) {
            self.ask_by_handshake(now, to, room);
        }
    }

    /// A peer that answers no probes answers a handshake.
    fn ask_by_handshake(&mut self, now: u64, to: SocketAddr, room: u32) {
        let before = self.moves.elsewhere.filter(|(known, _)| *known == to);
        let room = before.map_or(room, |(_, so_far)| so_far.saturating_add(room));
        self.moves.elsewhere = Some((to, room));
        if let Some(born) = self.current().map(|epoch| epoch.born) {
            self.rekey_due = self.rekey_due.min(now.max(born + REKEY_RETRY));
        }
    }

    /// The peer got a probe of ours.
    pub(super) fn handle_path_answer(&mut self, ctx: &mut Context, now: u64, number: u64) {
        self.moves.answers = true;
        if let Some(settling) = self.moves.settling.take_if(|settling| settling.here == number) {
            let back = settling.from;
            if settling.moved {
                self.moved(ctx, back);
            }
            return self.place(ctx, back, None);
        }
        // The path in use works: whatever came from elsewhere, the peer has not left it.
        if now >= self.moves.announced_until {
            self.moves.list.retain(|asked| asked.here != number);
        }
        let Some(at) = self.moves.list.iter().position(|asked| asked.number == number) else {
            return;
        };
        let asked = self.moves.list.swap_remove(at);
        let announced = now < self.moves.announced_until;
        let Some(from) = self.path.filter(|_| !announced && !self.moves.unproven) else {
            self.moves.settle();
            self.place(ctx, asked.to, None);
            self.moved(ctx, asked.to);
            return;
        };
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

    /// The old address has had time to answer.
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
            self.moved(ctx, to);
        }
    }

    fn place(&self, ctx: &mut Context, path: SocketAddr, left: Option<SocketAddr>) {
        let (link, peer) = (self.id, self.peer.node_addr());
        ctx.lane(Command::PlaceLink { link, peer, path, left });
    }

    /// The link goes to `path` from now on, where the peer has shown to be.
    pub(super) fn moved(&mut self, ctx: &mut Context, path: SocketAddr) {
        let known = self.path.replace(path) == Some(path);
        self.last_path = Some(path);
        if !known {
            self.metrics.handle_moved();
            self.reports.handle_moved();
            ctx.event(Event::Roamed { peer: self.peer, path });
        }
    }

    /// The length of what asks for new keys.
    pub(super) fn elsewhere(&mut self) -> Option<SocketAddr> {
        self.moves.take_room(fmp::Msg1::LEN)
    }
}

#[cfg(test)]
mod tests;
