//! When attempts begin and end.

use weft_wire::NodeAddr;

use super::{Output, RUNNING, Reach};
use crate::attempt::{Attempt, Due};
use crate::history::{End, Why};
use crate::message::Token;

impl Reach {
    /// Performs what is due of one peer.
    pub(super) fn drive(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else {
            return;
        };
        match peer.attempt.as_mut().and_then(|attempt| attempt.due(now)) {
            Some(Due::Message) => self.tell(addr),
            Some(Due::Ask) => self.ask_others(now, addr),
            Some(Due::Search) => self.consider_search(now, addr),
            Some(Due::End(end)) => {
                self.end(now, addr, end);
                if let Some(peer) = self.peers.get_mut(&addr) {
                    peer.try_again(now);
                }
            }
            Some(Due::Forget) => self.forget_attempt(addr),
            None => {}
        }
        if let Some(peer) = self.peers.get_mut(&addr)
            && let Some((at, why)) = peer.next.filter(|(at, _)| *at <= now)
        {
            peer.next = None;
            self.stop_waiting(addr);
            if let Some(peer) = self.peers.get_mut(&addr) {
                peer.waits = Some(at);
                self.waiting.insert((at, addr), why);
            }
        }
    }

    /// Begins the attempts that wait, the earliest first, while there are places.
    pub(super) fn start_waiting(&mut self, now: u64) {
        while self.running.len() < RUNNING {
            let Some(((_, addr), why)) = self.waiting.pop_first() else {
                return;
            };
            let Some(peer) = self.peers.get_mut(&addr) else {
                continue;
            };
            peer.waits = None;
            if peer.own_starts.take(now) {
                self.begin(now, addr, why);
            } else {
                peer.next = Some((peer.own_starts.next(now), why));
            }
            self.reindex(addr);
        }
    }

    /// Begins an attempt with a peer, in the place of the present one, and tells the peer.
    pub(super) fn begin(&mut self, now: u64, addr: NodeAddr, why: Why) {
        self.end(now, addr, End::Replaced);
        self.forget_attempt(addr);
        let own = Token::draw(&mut *self.rng);
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.attempt = Some(Attempt::new(now, own, why));
        }
        self.tell(addr);
    }

    /// Lets an attempt begin as soon as rate and places allow.
    pub(super) fn begin_soon(&mut self, now: u64, addr: NodeAddr, why: Why) {
        self.stop_waiting(addr);
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.next = Some((peer.own_starts.next(now), why));
        }
        self.drive(now, addr);
        self.reindex(addr);
    }

    /// The addresses of this node may have changed. If they have, peers with an attempt are told, and
    /// with other relayed peers one begins. Peers with an attempt are also told when more is known of
    /// this node's NATs, on which a search depends.
    pub(super) fn follow_candidates(&mut self, now: u64) {
        let (candidates, mappings) = (self.own.candidates(), self.own.mappings());
        // A search may succeed where the attempt before has failed.
        let moved = candidates != self.told || mappings.of_search() != self.told_mappings.of_search();
        if !moved && mappings == self.told_mappings {
            return;
        }
        (self.told, self.told_mappings) = (candidates, mappings);
        let relayed = self.peers.iter().filter(|(_, peer)| !peer.direct);
        for addr in relayed.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            self.reconsider_search(now, addr);
            self.reindex(addr);
            let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.waits.is_none()) else {
                continue;
            };
            match &peer.attempt {
                Some(attempt) if attempt.has_found() => {}
                Some(attempt) if attempt.has_ended() && !moved => {}
                Some(attempt) if attempt.has_ended() => self.begin_soon(now, addr, Why::Candidates),
                Some(_) if peer.own_starts.take(now) => self.tell(addr),
                // A message that is sent again has the new addresses.
                Some(_) => {}
                None if moved => self.begin_soon(now, addr, Why::Candidates),
                None => {}
            }
        }
        self.start_waiting(now);
        self.send_probes(now);
    }

    /// Ends the present attempt, if it has not ended. Probes are answered for a while.
    pub(super) fn end(&mut self, now: u64, addr: NodeAddr, end: End) {
        let Some(attempt) = self.peers.get_mut(&addr).and_then(|peer| peer.attempt.as_mut()) else {
            return;
        };
        if attempt.has_ended() {
            return;
        }
        let lingers = attempt.finish(now, end);
        self.end_search(addr);
        if !lingers {
            self.forget_attempt(addr);
        }
    }

    /// Forgets the attempt of a peer, but for what was tried.
    pub(super) fn forget_attempt(&mut self, addr: NodeAddr) {
        self.end_search(addr);
        if let Some(peer) = self.peers.get_mut(&addr)
            && let Some(attempt) = peer.attempt.take()
        {
            peer.last = Some(attempt.record());
            if let Some(round) = attempt.round {
                self.ignore(&round.key);
            }
        }
    }

    pub(super) fn ignore(&mut self, key: &crate::probe::Key) {
        if self.keys.remove(key).is_some() {
            self.outputs.push_back(Output::Ignore { token: *key });
        }
    }

    pub(super) fn stop_waiting(&mut self, addr: NodeAddr) {
        if let Some(peer) = self.peers.get_mut(&addr)
            && let Some(at) = peer.waits.take()
        {
            self.waiting.remove(&(at, addr));
        }
    }

    pub(super) fn remove_peer(&mut self, addr: NodeAddr) {
        self.stop_waiting(addr);
        self.forget_attempt(addr);
        if let Some(peer) = self.peers.remove(&addr) {
            self.index.remove(&(peer.indexed, addr));
            self.running.remove(&addr);
        }
    }
}
