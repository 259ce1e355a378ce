//! Sessions in use whose path is relayed: which of the relays leads to the peer on the better path.

use std::collections::BTreeMap;

use weft_contract::{LinkId, SendCommand};
use weft_wire::NodeAddr;
use weft_wire::session::RelayProbe;

use super::Node;
use crate::relay_choice::{Effect, RelayChoice};

/// Maximum number of sessions whose relays are compared.
const MAX_CHOICES: usize = 64;
/// Maximum number of rounds of probes at the same time.
const MAX_ROUNDS: usize = 4;
/// The relays of a session are compared while an IP packet was sent within this time, in ms.
const IN_USE: u64 = 5_000;

/// The choices of the sessions in use.
#[derive(Debug)]
pub(super) struct RelayChoices {
    all: BTreeMap<NodeAddr, RelayChoice>,
    /// No choice has something to do before this.
    due: u64,
}

impl Default for RelayChoices {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            due: u64::MAX,
        }
    }
}

impl RelayChoices {
    /// Changes the choice of one session, if there is one.
    fn change(&mut self, addr: NodeAddr, f: impl FnOnce(&mut RelayChoice)) {
        if let Some(choice) = self.all.get_mut(&addr) {
            f(choice);
            self.due = self.due.min(choice.deadline());
        }
    }

    fn insert(&mut self, addr: NodeAddr, choice: RelayChoice) {
        self.due = self.due.min(choice.deadline());
        self.all.insert(addr, choice);
    }

    /// Checks that memory is bounded, and that no deadline is forgotten.
    ///
    /// # Errors
    /// The broken invariant, in words.
    pub(super) fn check(&self) -> Result<(), String> {
        let first = self.all.values().map(RelayChoice::deadline).min();
        if self.all.len() > MAX_CHOICES {
            return Err(format!("the relays of {} sessions are compared", self.all.len()));
        }
        match first {
            Some(at) if at < self.due => Err(format!("relays are due at {at}, not at {}", self.due)),
            _ => Ok(()),
        }
    }
}

impl Node {
    /// Handles activity of a session: while packets go over relays, these are compared.
    pub(super) fn note_relayed(&mut self, now: u64, addr: NodeAddr) {
        let Some(used) = self.compared_path(now, addr) else {
            return;
        };
        if self.relays.all.contains_key(&addr) {
            self.relays.change(addr, |choice| choice.handle_used(now, used));
        } else if self.relays.all.len() < MAX_CHOICES {
            self.relays.insert(addr, RelayChoice::new(now, used));
        }
    }

    /// Handles new measurements of a session.
    pub(super) fn note_relayed_quality(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr) else { return };
        self.relays.change(addr, |choice| {
            let quality = peer.session.metrics.quality(now);
            choice.handle_measured(now, quality.rtt_us.map(|rtt| u64::from(rtt) / 1_000), quality.loss_out);
        });
    }

    /// Handles the peer's answer to a probe.
    pub(super) fn handle_relay_answer(&mut self, now: u64, addr: NodeAddr, body: &[u8]) {
        match RelayProbe::parse(body) {
            Ok(answer) => self
                .relays
                .change(addr, |choice| choice.handle_answer(now, answer.number)),
            Err(_) => self.counters.messages_malformed += 1,
        }
    }

    /// Returns when [`Node::drive_relays`] has something to do.
    pub(super) fn relays_deadline(&self) -> u64 {
        self.relays.due
    }

    /// Performs what is due.
    pub(super) fn drive_relays(&mut self, now: u64) {
        if now < self.relays.due {
            return;
        }
        let due = self.relays.all.iter().filter(|(_, choice)| choice.deadline() <= now);
        for addr in due.map(|(addr, _)| *addr).collect::<Vec<_>>() {
            self.drive_relay(now, addr);
        }
        let all = self.relays.all.values();
        self.relays.due = all.map(RelayChoice::deadline).min().unwrap_or(u64::MAX);
    }

    fn drive_relay(&mut self, now: u64, addr: NodeAddr) {
        let used = self.compared_path(now, addr);
        let choice = self.relays.all.remove(&addr);
        let (Some(used), Some(mut choice)) = (used, choice) else {
            return;
        };
        choice.handle_used(now, used);
        let rounds = self.relays.all.values().filter(|choice| choice.is_probing()).count();
        if rounds >= MAX_ROUNDS {
            choice.postpone(now);
        }
        let quality = self.peers.get(&addr).map(|peer| peer.session.metrics.quality(now));
        let loss = quality.and_then(|quality| quality.loss_out).unwrap_or(0);
        let mut effects = Vec::new();
        choice.handle_timeout(now, loss, || self.other_relays(now, addr, used), &mut effects);
        self.relays.insert(addr, choice);
        for effect in effects {
            match effect {
                Effect::Probe { link, number, first } => self.probe_relay(addr, link, number, first),
                Effect::Favour(link) => self.prepare_relay(now, link, addr),
                Effect::Move(link) => self.move_to_relay(now, addr, link),
            }
        }
    }

    /// Returns the link to the relay of a session in use, if the peer answers probes.
    fn compared_path(&self, now: u64, addr: NodeAddr) -> Option<LinkId> {
        let session = &self.peers.get(&addr).filter(|peer| peer.configured)?.session;
        let in_use = session.passing.went().is_some_and(|at| now.saturating_sub(at) < IN_USE);
        let compared = self.ctx.config.mesh && in_use && session.is_up() && session.is_relayed();
        session.next_hop().filter(|_| compared && session.is_with_weft())
    }

    /// Returns the links over which the peer may be reached as well, the likeliest first. Announcements
    /// of the mesh leave out links besides the tree, so configured neighbours are candidates without an
    /// announcement. Other neighbours are not, because a probe shows a relay the two ends of the session.
    fn other_relays(&mut self, now: u64, addr: NodeAddr, used: LinkId) -> Vec<LinkId> {
        let announced = self.mesh.relays_to(now, addr);
        let configured = self.peers.iter().filter(|(_, peer)| peer.configured);
        let others = configured.map(|(via, _)| *via).filter(|via| *via != addr);
        let others = others.filter(|via| !announced.contains(via));
        let links = announced.iter().copied().chain(others).filter_map(|via| {
            let peer = self.peers.get(&via).filter(|peer| peer.link.is_healthy())?;
            Some(peer.link.id)
        });
        links.filter(|link| *link != used && !self.is_apart(*link)).collect()
    }

    fn probe_relay(&mut self, addr: NodeAddr, link: LinkId, number: u32, first: bool) {
        let Some(session) = self.peers.get(&addr).map(|peer| &peer.session) else {
            return;
        };
        // The nodes of a path that is not in use may not know where the ends are.
        let (src, dest) = &session.coords;
        let known = first && session.next_hop() != Some(link) && !src.is_empty() && !dest.is_empty();
        self.counters.relay_probes += 1;
        self.ctx.lane(SendCommand::ProbeRelay {
            peer: addr,
            link,
            number,
            coords: known.then(|| session.coords.clone()),
        });
    }

    /// Changes the path of a session to one whose probes the peer has answered.
    fn move_to_relay(&mut self, now: u64, addr: NodeAddr, link: LinkId) {
        let Some(via) = self.by_link.get(&link).copied() else {
            return;
        };
        if !self.peers.get(&via).is_some_and(|peer| peer.link.is_healthy()) {
            return;
        }
        self.counters.relay_moves += 1;
        self.mesh.prove_way(now, addr, via);
        self.change_path(now, addr, link);
        self.relay_session(now, addr);
    }
}
