//! Attempts that two nodes agreed on without a session, through a relay of Nostr for instance.

use std::net::SocketAddr;

use weft_wire::NodeAddr;

use super::{Output, RUNNING_OF_PEERS, Reach};
use crate::attempt::Attempt;
use crate::history::End;
use crate::message::{Candidate, Kind, Token};
use crate::peer::Peer;
use crate::probe::Key;

impl Reach {
    /// Sends probes with this key to these addresses from now on, in the place of the present attempt
    /// with the node, as the other node does. The node need not be a peer. Rates, budgets and places
    /// are those of attempts that peers begin. Returns whether there was a place.
    pub fn punch(&mut self, now: u64, addr: NodeAddr, key: Key, targets: &[SocketAddr]) -> bool {
        let others = self.running.iter().filter(|running| **running != addr).count();
        if others >= RUNNING_OF_PEERS || self.keys.contains_key(&key) {
            self.counts.busy += 1;
            return false;
        }
        let peer = self.peers.entry(addr).or_insert_with(Peer::new);
        if !peer.peer_starts.take(now) {
            self.counts.hasty_attempts += 1;
            return false;
        }
        self.end(now, addr, End::Replaced);
        self.forget_attempt(addr);
        let own = Token::draw(&mut *self.rng);
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.attempt = Some(Attempt::agreed(now, own, key));
        }
        self.keys.insert(key, addr);
        self.outputs.push_back(Output::Listen { token: key });
        let kind = Kind::Observed;
        let targets = targets.iter().map(|at| Candidate { kind, at: *at });
        self.add_targets(now, addr, targets.collect());
        self.advance(now, addr);
        true
    }
}
