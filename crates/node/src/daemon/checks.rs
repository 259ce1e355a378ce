//! Checks of peers: those that a client sees are asked whether they are there.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use weft_control::status::NetworkList;
use weft_core::{Path, PeerState, PeerStatus as CorePeer, Standing};
use weft_discovery::checks::GONE;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_wire::check::{self, Check};
use weft_wire::session::DataPorts;

use super::absence::{Absence, absence};
use super::run::Daemon;
use super::status_builder::Facts;
use super::why::{Known, why};

const PORTS: DataPorts = DataPorts {
    src: check::PORT,
    dst: check::PORT,
};

/// How long the answer to an echo is awaited that the rules deny: the peer may have newer ones, which allow it.
const DENIED: Duration = Duration::from_millis(500);

impl Facts {
    /// Corrects the standing of a peer by what is known from asking it. Returns for how many
    /// milliseconds it has given no answer, if so.
    pub(super) fn judge(&self, peer: &mut CorePeer, now: u64) -> Option<u64> {
        let heard = heard(peer, now);
        let known = self.checks.heard(&peer.key, heard);
        peer.heard = (known > 0).then(|| now.saturating_sub(known));
        if !can_be_asked(peer) {
            return None;
        }
        let silence = self.checks.silence(now, &peer.key, heard)?;
        let gone = peer.heard.is_none_or(|heard| heard >= GONE);
        let standing = if gone { Standing::Offline } else { Standing::Connecting };
        peer.standing = peer.standing.min(standing);
        peer.standing_since = peer.standing_since.min(silence);
        peer.online = None;
        Some(silence)
    }

    /// Returns the reason for the state of a peer, as text for the user.
    pub(super) fn why(&self, peer: &CorePeer, now: u64) -> String {
        let mut peer = peer.clone();
        let silence = self.judge(&mut peer, now);
        self.why_judged(&peer, silence)
    }

    /// Returns the same for a peer that [`judge`](Self::judge) has looked at, with its result.
    pub(super) fn why_judged(&self, peer: &CorePeer, silence: Option<u64>) -> String {
        let Some(silence) = silence else {
            let known = Known {
                inquiries: &self.inquiries,
                name: &self.name(&peer.key),
                is_member: self.is_member(&peer.key),
                no_network: self.no_network,
            };
            return why(peer, known);
        };
        let heard = peer.heard.map_or_else(
            || "it was never heard".to_owned(),
            |ms| format!("it was last heard {} s ago", ms / 1_000),
        );
        let by = match peer.path {
            Some(Path::Relayed(via)) => format!(" through {}", self.name(&via)),
            _ => String::new(),
        };
        format!("no answer{by} for {:.1} s; {heard}", silence as f64 / 1_000.0)
    }

    /// Returns why a peer is not there that [`judge`](Self::judge) has looked at, with its result. `alone`:
    /// there are other peers, and none is heard either.
    pub(super) fn absence(&self, peer: &CorePeer, silence: Option<u64>, alone: bool) -> Option<Absence> {
        let names = |path| {
            let via = match path {
                Some(Path::Relayed(via)) => self.name(&via),
                _ => String::new(),
            };
            [self.name(&peer.key), via]
        };
        absence(peer, silence, names, alone)
    }
}

/// What is heard within this time after an echo was sent may have been sent before it arrived.
const SAME_TIME: Duration = Duration::from_millis(300);

/// Returns how long an answer is awaited, of the time that the user has given.
fn patience(given: Duration, denied: bool) -> Duration {
    if denied { given.min(DENIED) } else { given }
}

/// Returns the time at which something of a peer was last received; 0: never.
fn heard(peer: &CorePeer, now: u64) -> u64 {
    peer.heard.map_or(0, |ago| now.saturating_sub(ago))
}

/// Returns true if only an answer tells that a peer is there. A link without a session has its
/// heartbeats.
fn can_be_asked(peer: &CorePeer) -> bool {
    match peer.state {
        PeerState::Session | PeerState::Payload => true,
        PeerState::Linked => matches!(peer.path, Some(Path::Relayed(_))),
        PeerState::Known | PeerState::Linking => false,
    }
}

impl Daemon {
    /// Asks the peers that were not heard lately, or one of them, whether they are there.
    pub(super) fn check_peers(&mut self, only: Option<&PublicKey>) {
        let now = boottime_ms();
        self.facts.checks.retain(now, |key| self.desired.members.contains(key));
        let peers: Vec<CorePeer> = match only {
            None => self.node.peer_status(now).collect(),
            Some(key) => self.node.status_of(now, key.node_addr()).into_iter().collect(),
        };
        for peer in peers.iter().filter(|peer| can_be_asked(peer)) {
            // FIPS nodes do not answer.
            if peer.version.is_none() && !self.facts.fast.has(&peer.key) {
                continue;
            }
            let rtt_us = peer.session.as_ref().and_then(|session| session.quality.rtt_us);
            let rtt = rtt_us.map(|us| u64::from(us) / 1_000);
            if let Some(number) = self.facts.checks.ask(now, peer.key, heard(peer, now), rtt) {
                // A question that is not sent has no answer.
                if !self.send_check(&peer.key, Check::Ask(number)) {
                    self.facts.checks.forget(&peer.key);
                }
            }
        }
    }

    /// Says of the members of a list which of them can be reached, when they were last heard, and which are
    /// nvpn devices.
    pub(super) fn add_standings(&self, list: &mut NetworkList, now: u64) {
        let peers = self.node.peer_status(now).map(|mut peer| {
            self.facts.judge(&mut peer, now);
            (peer.key.node_addr().to_ipv6(), (peer.standing, peer.heard))
        });
        let peers: HashMap<Ipv6Addr, (Standing, Option<u64>)> = peers.collect();
        for member in list.networks.iter_mut().flat_map(|network| &mut network.members) {
            if let Some((standing, heard)) = peers.get(&member.address) {
                member.standing = Some(*standing);
                member.heard_s = heard.map(|ms| ms / 1_000);
                self.add_device(member, now);
            }
        }
    }

    /// Repeats questions that have no answer.
    pub(super) fn drive_checks(&mut self) {
        for (peer, number) in self.facts.checks.repeat(boottime_ms()) {
            self.send_check(&peer, Check::Ask(number));
        }
    }

    /// Handles a message of a peer.
    pub(super) fn handle_check(&mut self, peer: &PublicKey, bytes: &[u8]) {
        let now = boottime_ms();
        match Check::parse(bytes) {
            Ok(Check::Ask(number)) if self.facts.checks.may_answer(now, *peer) => {
                self.send_check(peer, Check::Answer(number));
            }
            Ok(Check::AskExit(number)) if self.facts.checks.may_answer(now, *peer) => self.tell_exit(*peer, number),
            Ok(Check::Ask(_) | Check::AskExit(_)) => {}
            Ok(Check::Exit(number, state)) => {
                if self.exits.handle_state(now, peer, number, state) {
                    self.answer_ready();
                }
            }
            Ok(Check::Answer(number)) => {
                if self.facts.checks.handle_answer(now, peer, number) {
                    self.answer_ready();
                }
            }
            Err(error) => tracing::debug!(peer = self.facts.name(peer), %error, "a check is ignored"),
        }
    }

    /// Returns true if there are other peers than this one, and none of them is connected.
    pub(super) fn hears_no_other(&self, key: &PublicKey, now: u64) -> bool {
        let others = self.node.peer_status(now).filter(|peer| peer.key != *key);
        let mut standings = others.map(|mut peer| {
            self.facts.judge(&mut peer, now);
            peer.standing
        });
        standings.next().is_some_and(|first| first < Standing::Connected)
            && standings.all(|standing| standing < Standing::Connected)
    }

    /// Returns the reason why no answer to an echo came that was sent so long ago, as text for the user.
    pub(super) fn why_no_echo(&self, peer: &CorePeer, sent: Duration) -> String {
        if let Some(denied) = self.why_denied(&peer.key) {
            return denied;
        }
        let now = boottime_ms();
        let mut judged = peer.clone();
        let silence = self.facts.judge(&mut judged, now);
        let heard = judged.heard.map(Duration::from_millis);
        if heard.is_some_and(|heard| heard < sent.saturating_sub(SAME_TIME)) {
            return "the node was heard since, but this echo did not come back: a firewall of its host drops echoes, or it got \
                    lost"
                .to_owned();
        }
        let alone = self.hears_no_other(&peer.key, now);
        let absence = self.facts.absence(&judged, silence, alone);
        match (absence, judged.heard) {
            (Some(absence), _) => absence.why,
            (None, Some(ms)) if silence.is_none() && judged.standing >= Standing::Connected => {
                format!(
                    "it is not known whether the node is there: it was last heard {} s ago, before this echo",
                    ms / 1_000
                )
            }
            (None, _) => self.facts.why_judged(&judged, silence),
        }
    }

    /// Returns the reason why the rules that this node knows deny an echo, as text for the user; `None`: they allow it.
    fn why_denied(&self, peer: &PublicKey) -> Option<String> {
        let [own, other] = [self.networks.own(), peer].map(|key| self.network_name(key));
        let why = self.why(&own, &other, None, "icmp", unix_s()).ok()?;
        let reason = why.reasons.last().map_or("a rule", String::as_str);
        (!why.allowed).then(|| format!("denied by rules: {reason}; `weft why {own} {other} icmp`"))
    }

    /// Returns how long the answer to an echo is awaited, of the time that the user has given.
    pub(super) fn echo_timeout(&self, peer: &PublicKey, given: Duration) -> Duration {
        patience(given, self.why_denied(peer).is_some())
    }

    /// Returns the name of a member in a network of this node, or its npub.
    pub(super) fn network_name(&self, key: &PublicKey) -> String {
        let mut names = self
            .networks
            .iter()
            .filter_map(|network| network.state().names.get(key));
        names.next().map_or_else(|| key.to_string(), ToString::to_string)
    }

    /// Sends a message. Returns false if the session has no room for it; the network may still lose it.
    pub(super) fn send_check(&mut self, peer: &PublicKey, check: Check) -> bool {
        let sent = self.node.send_service(boottime_ms(), peer, PORTS, &check.to_bytes());
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_that_rules_deny_is_not_awaited_for_long() {
        let [short, long] = [10, 5_000].map(Duration::from_millis);
        assert_eq!([short, long].map(|given| patience(given, false)), [short, long]);
        assert_eq!([short, long].map(|given| patience(given, true)), [short, DENIED]);
    }
}
