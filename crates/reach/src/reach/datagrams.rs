//! Probes and their answers.

use std::net::SocketAddr;

use weft_wire::NodeAddr;

use super::{Output, Reach};
use crate::budget::OverBudget;
use crate::candidate::{Prefix, Refused, check, plain};
use crate::history::{End, Source};
use crate::probe::Probe;
use crate::round::{Aim, Round};

/// Bytes of a probe with its UDP and IP headers.
fn cost(to: SocketAddr) -> u32 {
    let headers = if to.is_ipv4() { 20 + 8 } else { 40 + 8 };
    headers + Probe::LEN as u32
}

impl Reach {
    /// Handles a datagram that ends in a token that is listened for, from this source. Nothing
    /// proves its sender: it may be a copy, and the source may be forged.
    pub fn handle_datagram(&mut self, now: u64, from: SocketAddr, bytes: &[u8]) {
        self.handle(now, None, from, bytes);
    }

    /// Handles a datagram that a socket of a search has received, like [`Reach::handle_datagram`].
    pub fn handle_socket_datagram(&mut self, now: u64, socket: u16, from: SocketAddr, bytes: &[u8]) {
        self.handle(now, Some(socket), from, bytes);
    }

    fn handle(&mut self, now: u64, socket: Option<u16>, from: SocketAddr, bytes: &[u8]) {
        let known = Probe::parse(bytes)
            .ok()
            .and_then(|probe| Some((probe, *self.keys.get(&probe.key)?)));
        let is_open = |addr, socket| {
            let search = self.round(addr).and_then(|round| round.search.as_ref());
            search.is_some_and(|search| search.is_open(socket))
        };
        let known = known.filter(|(_, addr)| socket.is_none_or(|socket| is_open(*addr, socket)));
        let Some((probe, addr)) = known else {
            self.counts.unknown_datagrams += 1;
            return;
        };
        let from = plain(from);
        if probe.ack {
            self.handle_ack(now, addr, socket, from, probe.sequence);
        } else {
            self.handle_probe(now, addr, socket, from, probe);
        }
        self.advance(now, addr);
    }

    /// A probe of the peer, as it seems: it is answered, and its source becomes a target.
    fn handle_probe(&mut self, now: u64, addr: NodeAddr, socket: Option<u16>, from: SocketAddr, probe: Probe) {
        if self.round(addr).is_some_and(|round| round.is_reflected(&probe)) {
            self.counts.reflected += 1;
            return;
        }
        let refused = if self.own.is_own(from) {
            Err(Refused::Own)
        } else {
            check(from)
        };
        if let Err(cause) = refused {
            return self.count_refused(cause);
        }
        let may_answer = self.acks.next(now) <= now;
        match may_answer.then(|| self.spend(now, addr, from)) {
            Some(Ok(counts)) => {
                self.acks.take(now);
                self.send(socket, from, Probe { ack: true, ..probe }, counts);
            }
            _ => self.counts.unanswered += 1,
        }
        let base = self.random();
        let Some(attempt) = self.peers.get_mut(&addr).and_then(|peer| peer.attempt.as_mut()) else {
            return;
        };
        // Only with this node's token could the key be made.
        attempt.note_answer();
        let probes = attempt.probes();
        let Some(round) = attempt.round.as_mut().filter(|_| probes) else {
            return;
        };
        match (socket, &mut round.search) {
            (Some(socket), Some(search)) => search.hear(now, socket, from),
            _ => {
                round.hear(now, from);
                round.add(now, from, Source::Heard, base);
            }
        }
    }

    /// An answer: if it is one to a probe that was sent there, the attempt has succeeded.
    fn handle_ack(&mut self, now: u64, addr: NodeAddr, socket: Option<u16>, from: SocketAddr, sequence: u32) {
        let Some(peer) = self.peers.get_mut(&addr) else {
            return;
        };
        let Some(attempt) = peer.attempt.as_mut() else {
            return;
        };
        let round = attempt.round.as_mut();
        let Some(source) = round.and_then(|round| round.handle_ack(socket, from, sequence)) else {
            self.counts.unknown_acks += 1;
            return;
        };
        attempt.note_answer();
        if attempt.probes() {
            // If no link follows, the next attempt does.
            peer.try_again(now);
            let (peer, at) = (addr, from);
            self.outputs.push_back(match socket {
                Some(socket) => Output::Adopt { peer, socket, at },
                None => Output::Found { peer, at, source },
            });
            self.end(now, addr, End::Found(from));
        }
    }

    /// Handles a probe or answer to this address that was not sent, because too much has gone there in
    /// other ways: it is probed no more.
    pub fn handle_unsent(&mut self, to: SocketAddr) {
        for addr in self.running.clone() {
            if let Some(round) = self.round_mut(addr) {
                let given_up = round.give_up_address(to, OverBudget::Hour);
                self.counts.over_budget += given_up;
            }
        }
    }

    fn send(&mut self, socket: Option<u16>, to: SocketAddr, probe: Probe, counts: bool) {
        let datagram = probe.emit();
        self.outputs.push_back(match socket {
            Some(socket) => Output::ProbeFrom {
                socket,
                to,
                datagram,
                counts,
            },
            None => Output::Probe { to, datagram, counts },
        });
    }

    /// Sends the probes that are due, as far as their rate allows. Attempts take turns.
    pub(super) fn send_probes(&mut self, now: u64) {
        while self.probes.next(now) <= now {
            let Some((addr, aim)) = self.due_probe(now) else {
                return;
            };
            let sent = match aim {
                Aim::Target(target) => self.probe_target(now, addr, target),
                Aim::Search => self.probe_for_search(now, addr),
            };
            if sent {
                self.probes.take(now);
                self.served += 1;
                let served = self.served;
                if let Some(round) = self.round_mut(addr) {
                    round.served = served;
                }
            }
        }
    }

    /// Probes a target, or gives it up. Returns whether a probe was sent.
    fn probe_target(&mut self, now: u64, addr: NodeAddr, target: usize) -> bool {
        let Some(to) = self.round(addr).and_then(|round| round.address(target)) else {
            return false;
        };
        let spent = self.spend(now, addr, to);
        let Some(round) = self.round_mut(addr) else {
            return false;
        };
        let counts = match spent {
            Ok(counts) => counts,
            Err(cause) => {
                round.give_up(target, cause);
                self.counts.over_budget += 1;
                return false;
            }
        };
        let probe = round.probe(now, target);
        probe.map(|probe| self.send(None, to, probe, counts)).is_some()
    }

    /// Sends the next probe of a search. Returns whether there was one.
    fn probe_for_search(&mut self, now: u64, addr: NodeAddr) -> bool {
        let shot = self.round_mut(addr).and_then(|round| round.shot(now));
        shot.map(|(shot, probe)| self.send(shot.socket, shot.to, probe, false))
            .is_some()
    }

    /// Returns when the next probe is due.
    pub(super) fn next_probe(&self) -> Option<u64> {
        self.rounds()
            .filter_map(|(_, round)| round.next())
            .map(|(at, _)| at)
            .min()
    }

    /// Returns a target that is due: of the attempts that have one, the attempt that was served
    /// longest ago decides, so that many targets of one peer delay no other peer.
    fn due_probe(&self, now: u64) -> Option<(NodeAddr, Aim)> {
        let due = self.rounds().filter_map(|(addr, round)| {
            let (_, aim) = round.next().filter(|(at, _)| *at <= now)?;
            Some((round.served, addr, aim))
        });
        due.min().map(|(_, addr, aim)| (addr, aim))
    }

    /// The attempts whose targets are probed, at most [`RUNNING`](super::RUNNING).
    fn rounds(&self) -> impl Iterator<Item = (NodeAddr, &Round)> {
        self.running.iter().filter_map(|addr| {
            let attempt = self.peers.get(addr)?.attempt.as_ref()?;
            Some((*addr, attempt.round.as_ref().filter(|_| attempt.probes())?))
        })
    }

    /// Spends the bytes of a probe on an address. Returns whether they count: it has not answered, and a
    /// search does not pay for them.
    fn spend(&mut self, now: u64, addr: NodeAddr, to: SocketAddr) -> Result<bool, OverBudget> {
        let (prefix, bytes) = (Prefix::of(to.ip()), cost(to));
        let Some(round) = self
            .peers
            .get(&addr)
            .and_then(|peer| peer.attempt.as_ref()?.round.as_ref())
        else {
            return Err(OverBudget::Attempt);
        };
        if round.has_answered(to) {
            return Ok(false);
        }
        let search = self.round_mut(addr).and_then(|round| round.search.as_mut());
        if search.is_some_and(|search| search.spend(to)) {
            return Ok(false);
        }
        let Some(round) = self.round(addr) else {
            return Err(OverBudget::Attempt);
        };
        round.allows(prefix, bytes)?;
        self.budgets.spend(now, addr, prefix, bytes)?;
        if let Some(round) = self.round_mut(addr) {
            round.note_spent(prefix, bytes);
        }
        Ok(true)
    }

    pub(super) fn round(&self, addr: NodeAddr) -> Option<&Round> {
        self.peers.get(&addr)?.attempt.as_ref()?.round.as_ref()
    }

    pub(super) fn round_mut(&mut self, addr: NodeAddr) -> Option<&mut Round> {
        self.peers.get_mut(&addr)?.attempt.as_mut()?.round.as_mut()
    }
}
