//! Messages of peers.

use weft_wire::NodeAddr;

use super::{Output, RUNNING, RUNNING_OF_PEERS, Reach};
use crate::attempt::Attempt;
use crate::candidate::{Refused, check, order};
use crate::history::{End, Source, Why};
use crate::message::{BadMessage, Candidate, Candidates, Kind, Token};
use crate::probe::key;
use crate::round::Round;

/// What a message means for the attempt with its sender.
enum Case {
    /// It belongs to the present attempt.
    Same,
    /// It brings the token that the present attempt waits for.
    Answer,
    /// The peer has begun a new attempt.
    Begins,
}

impl Reach {
    /// Handles a message of a peer, which the session with the peer has authenticated.
    ///
    /// # Errors
    /// [`BadMessage`]: it cannot be read, or its sender is no peer. Nothing has changed. Messages
    /// above a rate are only counted.
    pub fn handle_message(&mut self, now: u64, addr: NodeAddr, bytes: &[u8]) -> Result<(), BadMessage> {
        let peer = self.peers.get_mut(&addr).ok_or(BadMessage::NoPeer);
        let peer = peer.inspect_err(|_| self.counts.bad_messages += 1)?;
        if !peer.messages.take(now) {
            self.counts.hasty_messages += 1;
            return Ok(());
        }
        let message = Candidates::parse(bytes).inspect_err(|_| self.counts.bad_messages += 1)?;
        self.follow_message(now, addr, message);
        self.advance(now, addr);
        Ok(())
    }

    fn follow_message(&mut self, now: u64, addr: NodeAddr, message: Candidates) {
        let Some(peer) = self.peers.get_mut(&addr) else {
            return;
        };
        if peer.is_stale(message.token) {
            self.counts.stale_messages += 1;
            return;
        }
        peer.mappings = Some(message.mappings);
        let attempt = peer.attempt.as_ref();
        let theirs = attempt.map(|attempt| attempt.round.as_ref().map(|round| round.theirs));
        let case = match theirs {
            Some(Some(token)) if token == message.token => Case::Same,
            Some(None) => Case::Answer,
            _ => Case::Begins,
        };
        let joined = match case {
            Case::Same => false,
            Case::Answer if self.join(now, addr, message.token) => true,
            Case::Begins if self.begin_for(now, addr, message.token) => true,
            _ => return,
        };
        if let Some(round) = self.round_mut(addr) {
            round.mappings = message.mappings;
        }
        self.add_targets(now, addr, message.candidates);
        self.reconsider_search(now, addr);
        let Some(attempt) = self.peers.get_mut(&addr).and_then(|peer| peer.attempt.as_mut()) else {
            return;
        };
        let knows = message.echo == Some(attempt.own);
        if knows {
            attempt.note_answer();
        }
        // The peer has to learn this node's token, and that its own was learnt.
        if joined || !knows {
            self.tell(addr);
        }
    }

    /// Takes the peer's token into the attempt that waits for it. Returns whether there was a place.
    fn join(&mut self, now: u64, addr: NodeAddr, token: Token) -> bool {
        if self.running.len() >= RUNNING && !self.running.contains(&addr) {
            self.counts.busy += 1;
            return false;
        }
        self.listen(now, addr, token)
    }

    /// Begins the attempt that the peer has begun. Returns whether rate and places allow it.
    fn begin_for(&mut self, now: u64, addr: NodeAddr, token: Token) -> bool {
        let others = self.running.iter().filter(|other| **other != addr);
        let of_peers = |other: &&NodeAddr| {
            let attempt = self.peers.get(other).and_then(|peer| peer.attempt.as_ref());
            attempt.is_some_and(|attempt| attempt.why == Why::Peer)
        };
        let (all, of_peers) = (others.clone().count(), others.filter(of_peers).count());
        if all >= RUNNING || of_peers >= RUNNING_OF_PEERS {
            self.counts.busy += 1;
            return false;
        }
        let Some(peer) = self.peers.get_mut(&addr) else {
            return false;
        };
        if !peer.peer_starts.take(now) {
            self.counts.hasty_attempts += 1;
            return false;
        }
        // The peer may have this node's token of the present attempt already, which spares a message.
        let own = peer.attempt.as_ref().map(|attempt| attempt.own);
        peer.next = None;
        self.stop_waiting(addr);
        self.end(now, addr, End::Replaced);
        self.forget_attempt(addr);
        let own = own.unwrap_or_else(|| Token::draw(&mut *self.rng));
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.attempt = Some(Attempt::new(now, own, Why::Peer));
        }
        self.listen(now, addr, token)
    }

    /// Begins to listen for the probes of an attempt, whose tokens are both known now.
    fn listen(&mut self, now: u64, addr: NodeAddr, token: Token) -> bool {
        let Some(peer) = self.peers.get_mut(&addr) else {
            return false;
        };
        peer.learn(token);
        let Some(attempt) = peer.attempt.as_mut() else {
            return false;
        };
        let key = key(self.me, attempt.own, addr, token);
        attempt.round = Some(Round::new(now, token, key));
        self.keys.insert(key, addr);
        self.outputs.push_back(Output::Listen { token: key });
        self.reindex(addr);
        true
    }

    /// Adds what the peer named to the targets.
    pub(super) fn add_targets(&mut self, now: u64, addr: NodeAddr, mut candidates: Vec<Candidate>) {
        order(&mut candidates, self.own.host());
        for Candidate { kind, at } in candidates {
            let refused = match kind {
                Kind::Unknown(_) => Err(Refused::UnknownKind),
                _ if self.own.is_own(at) => Err(Refused::Own),
                _ => check(at),
            };
            let base = self.random();
            let attempt = self.peers.get_mut(&addr).and_then(|peer| peer.attempt.as_mut());
            let probes = attempt.as_ref().is_some_and(|attempt| attempt.probes());
            let Some(round) = attempt.and_then(|attempt| attempt.round.as_mut()).filter(|_| probes) else {
                return;
            };
            match refused {
                Ok(()) => round.add(now, at, Source::Told(kind), base),
                Err(cause) => {
                    round.refuse(at, kind, cause);
                    self.count_refused(cause);
                }
            }
        }
    }
}
