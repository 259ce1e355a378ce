//! Offers to peers, and answers: what is sent.

use weft_noise::PublicKey;

use super::{Carrier, Now, Output, Rendezvous};
use crate::message::publish;
use crate::signal::{MAX_IN_SESSION, Offer, Signal, TTL, session_id};
use crate::wrap::wrap;

impl Rendezvous {
    /// Makes an offer to each peer that is wanted due as soon as it may be.
    pub(super) fn offer_to_all(&mut self, now: Now) {
        let wanted = self.peers.iter_mut().filter(|(_, peer)| peer.wanted);
        let wanted = wanted.map(|(key, peer)| {
            peer.start_again();
            (*key, peer.may_offer(now.ms))
        });
        for (key, at) in wanted.collect::<Vec<_>>() {
            self.schedule(key, Some(at));
        }
    }

    /// Sends the offers that are due, as far as their rate allows.
    pub(super) fn send_offers(&mut self, now: Now) {
        while let Some((_, key)) = self.due.first().copied().filter(|(at, _)| *at <= now.ms) {
            if self.own.is_empty() {
                return;
            }
            let session = self.sessions.contains(&key);
            if !self.is_open() && !session {
                // The next relay or session makes it due again.
                self.schedule(key, None);
                continue;
            }
            if !self.offers.take(now.ms) {
                return;
            }
            let id = session_id(now.unix_ms, self.random());
            let offer = Offer::new(id, &self.identity.public(), &key, &self.own, now.unix_ms);
            let signal = Signal::Offer(offer.clone());
            self.send_signal(now, &key, &signal, Carrier::Relays);
            if session {
                self.send_signal(now, &key, &signal, Carrier::Session);
            }
            let next = self.peers.get_mut(&key).map(|peer| peer.sent(now.ms, offer));
            self.schedule(key, next);
        }
    }

    /// Sends a document to a peer: through all relays, since it may be at any of them, or in its
    /// session.
    pub(super) fn send_signal(&mut self, now: Now, peer: &PublicKey, signal: &Signal, by: Carrier) {
        match by {
            Carrier::Relays => self.send_to_relays(now, peer, signal),
            Carrier::Session => self.outputs.push_back(Output::Signal {
                peer: *peer,
                offer: matches!(signal, Signal::Offer(_)),
                text: signal.to_json_within(MAX_IN_SESSION),
            }),
        }
    }

    fn send_to_relays(&mut self, now: Now, peer: &PublicKey, signal: &Signal) {
        if !self.is_open() {
            return;
        }
        let expires = now.unix_s() + TTL / 1_000;
        let text = signal.to_json();
        if let Ok(event) = wrap(&self.identity, peer, &text, now.unix_s(), expires, &mut *self.rng) {
            self.send_to_all(&publish(&event));
        }
    }
}
