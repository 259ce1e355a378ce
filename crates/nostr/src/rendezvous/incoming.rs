//! What relays send: cheap checks first, then budgets, then what costs.

use std::net::SocketAddr;

use weft_noise::PublicKey;

use super::peer::CROSSING;
use super::{Carrier, Now, Output, Progress, Rendezvous};
use crate::advert::{self, Advert, Endpoint, Transport};
use crate::event::Unverified;
use crate::message::RelayMessage;
use crate::signal::{Answer, Offer, SKEW, Signal, SignalError, TTL, punch_key};
use crate::wrap::{self, Seal};

impl Rendezvous {
    /// Handles a text message of a relay.
    pub fn handle_text(&mut self, now: Now, relay: usize, text: &str) {
        let Some(state) = self.relays.get_mut(relay).filter(|relay| relay.is_open()) else {
            return;
        };
        if !state.texts.take(now.ms) {
            self.counts.hasty_texts += 1;
            return;
        }
        match RelayMessage::parse(text) {
            Ok(RelayMessage::Event { event, .. }) => match event.body().kind {
                wrap::KIND => self.handle_message(now, relay, &event),
                advert::KIND => self.handle_advert(now, relay, *event),
                _ => self.counts.useless_events += 1,
            },
            Ok(RelayMessage::Accepted { accepted, reason, .. }) if !accepted => state.refuse(now.ms, reason),
            Ok(RelayMessage::Closed { reason, .. }) => {
                state.refuse(now.ms, reason);
                state.end_subscription(now.ms);
            }
            Ok(_) => {}
            Err(_) => self.counts.bad_texts += 1,
        }
        self.drive(now);
    }

    fn handle_message(&mut self, now: Now, relay: usize, outer: &Unverified) {
        let at = outer.body().created_at;
        let lately = at <= now.unix_s() + SKEW / 1_000 && at + (TTL + SKEW) / 1_000 >= now.unix_s();
        if !lately || wrap::check(&self.identity.public(), outer).is_err() {
            self.counts.useless_events += 1;
            return;
        }
        if self.seen_events.contains(outer.id()) {
            self.counts.repeated_events += 1;
            return;
        }
        let Some(state) = self.relays.get_mut(relay) else {
            return;
        };
        let free = state.messages.next(now.ms) <= now.ms && self.messages.next(now.ms) <= now.ms;
        if !(free && state.messages.take(now.ms) && self.messages.take(now.ms)) {
            self.counts.hasty_messages += 1;
            return;
        }
        // A copy with another content must not keep the genuine one out.
        if !outer.id_holds() {
            self.counts.bad_messages += 1;
            return;
        }
        self.seen_events.insert(now.ms, *outer.id());
        let Ok(seal) = Seal::unwrap(&self.identity, outer) else {
            self.counts.bad_messages += 1;
            return;
        };
        let known = PublicKey::from_bytes(seal.sender()).is_ok_and(|sender| self.peers.contains_key(&sender));
        if !known {
            self.counts.strangers += 1;
            return;
        }
        match seal.open(&self.identity) {
            Ok(opened) => {
                let signal = Signal::read(&opened.text);
                self.handle_signal(now, &opened.sender, signal, Carrier::Relays);
            }
            Err(_) => self.counts.bad_messages += 1,
        }
    }

    /// Handles a document that came in the session with a peer, as an offer or as an answer. A node
    /// that is not a peer changes nothing.
    pub fn handle_session_signal(&mut self, now: Now, sender: &PublicKey, offer: bool, text: &[u8]) {
        if !self.peers.contains_key(sender) {
            self.counts.strangers += 1;
            return;
        }
        let signal = std::str::from_utf8(text)
            .map_err(|_| SignalError::Form)
            .and_then(Signal::read);
        let signal = signal.and_then(|signal| match matches!(signal, Signal::Offer(_)) == offer {
            true => Ok(signal),
            false => Err(SignalError::Form),
        });
        self.handle_signal(now, sender, signal, Carrier::Session);
        self.drive(now);
    }

    /// Handles a document that a peer has proved to have sent.
    fn handle_signal(&mut self, now: Now, sender: &PublicKey, signal: Result<Signal, SignalError>, by: Carrier) {
        let done = match signal {
            Ok(Signal::Offer(offer)) => self.handle_offer(now, sender, &offer, by),
            Ok(Signal::Answer(answer)) => self.handle_answer(now, sender, &answer),
            Err(error) => Err(error),
        };
        let Err(error) = done else { return };
        match error {
            SignalError::Old | SignalError::Future => self.counts.stale_signals += 1,
            _ => self.counts.bad_signals += 1,
        }
        if let Some(peer) = self.peers.get_mut(sender) {
            peer.progress = Some(Progress::Faulty(error));
        }
    }

    fn handle_offer(&mut self, now: Now, sender: &PublicKey, offer: &Offer, by: Carrier) -> Result<(), SignalError> {
        let me = self.identity.public();
        offer.check(sender, &me, now.unix_ms)?;
        let Some(peer) = self.peers.get_mut(sender) else {
            return Ok(());
        };
        if !peer.answers.take(now.ms) {
            self.counts.hasty_offers += 1;
            return Ok(());
        }
        let session = (*sender, offer.session_id.clone());
        if !self.seen_sessions.insert(now.ms, session) {
            self.counts.replayed_signals += 1;
            let answered = peer.answered.clone().filter(|answer| answer.in_reply_to == offer.nonce);
            if let Some(answer) = answered.filter(|_| by == Carrier::Session) {
                self.send_signal(now, sender, &Signal::Answer(answer), by);
            }
            return Ok(());
        }
        // Of two offers that cross, that of the smaller node address is answered, as FIPS does; but one
        // that was not answered for a while did not arrive.
        let crossing = peer.offer.as_ref().is_some_and(|(sent, _)| now.ms < sent + CROSSING);
        if crossing && me.node_addr() < sender.node_addr() {
            self.counts.crossed_offers += 1;
            return Ok(());
        }
        let next = peer.agreed(now.ms);
        if peer.wanted {
            self.schedule(*sender, Some(next));
        }
        let nonce = format!("{:016x}", self.random());
        let answer = offer.answer(nonce, &self.own, now.unix_ms, now.unix_ms);
        if let Some(peer) = self.peers.get_mut(sender) {
            peer.answered = Some(answer.clone());
        }
        self.send_signal(now, sender, &Signal::Answer(answer), by);
        let targets = offer.targets(&self.own);
        self.punch(sender, &offer.session_id, targets);
        Ok(())
    }

    fn handle_answer(&mut self, now: Now, sender: &PublicKey, answer: &Answer) -> Result<(), SignalError> {
        let Some(peer) = self.peers.get_mut(sender) else {
            return Ok(());
        };
        let Some((_, offer)) = &peer.offer else {
            self.counts.replayed_signals += 1;
            return Ok(());
        };
        answer.check(offer, sender, now.unix_ms)?;
        peer.skew = answer.skew(offer, now.unix_ms).or(peer.skew);
        let next = peer.agreed(now.ms);
        if !answer.accepted {
            peer.progress = Some(Progress::Refused);
        }
        if peer.wanted {
            self.schedule(*sender, Some(next));
        }
        if answer.accepted {
            let targets = answer.targets(&self.own);
            self.punch(sender, &answer.session_id, targets);
        }
        Ok(())
    }

    fn punch(&mut self, peer: &PublicKey, session: &str, targets: Vec<SocketAddr>) {
        if !targets.is_empty() && !self.own.is_empty() {
            let (peer, key) = (*peer, punch_key(session));
            self.outputs.push_back(Output::Punch { peer, key, targets });
        }
    }

    fn handle_advert(&mut self, now: Now, relay: usize, event: Unverified) {
        let signer = PublicKey::from_bytes(event.pubkey()).ok();
        let wanted = signer.and_then(|key| Some((key, self.peers.get(&key).filter(|peer| peer.wanted)?)));
        let Some((key, peer)) = wanted else {
            self.counts.useless_events += 1;
            return;
        };
        let at = event.body().created_at;
        if peer.advertised.is_some_and(|last| at <= last) {
            self.counts.repeated_events += 1;
            return;
        }
        let Some(state) = self.relays.get_mut(relay) else {
            return;
        };
        let advert = state.adverts.take(now.ms).then(|| event.verify().ok()).flatten();
        let advert = advert.and_then(|event| Advert::read(event.body(), now.unix_s()).ok());
        let Some(advert) = advert else {
            self.counts.bad_adverts += 1;
            return;
        };
        let direct = advert.endpoints.iter().filter_map(|endpoint| match endpoint {
            Endpoint::At(Transport::Udp, at) => Some(*at),
            _ => None,
        });
        let direct: Vec<SocketAddr> = direct.collect();
        if !direct.is_empty() {
            let (peer, at) = (key, direct);
            self.outputs.push_back(Output::Advertised { peer, at });
        }
        // A peer that has just published is there.
        let Some(peer) = self.peers.get_mut(&key) else { return };
        peer.advertised = Some(at);
        if advert.takes_offers() && peer.progress != Some(Progress::Agreed) {
            peer.start_again();
            let due = peer.may_offer(now.ms);
            self.schedule(key, Some(due));
        }
    }
}
