//! Handshake messages that come: who is answered, and which keys follow.

use std::net::SocketAddr;

use super::admission::Verdict;
use super::peer::Slot;
use super::{At, FLOOD, Interface, Output, canonical, free_index};
use crate::handshake::Opening;
use crate::keys::PublicKey;
use crate::message::{CookieReply, Initiation, Message, Response};
use crate::transport::Keys;

impl Interface {
    /// Handles a datagram that is no data message.
    pub fn handle_datagram(&mut self, at: At, from: SocketAddr, datagram: &[u8]) {
        let from = canonical(from);
        let Some(message) = Message::read(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if let Message::CookieReply(reply) = &message {
            return self.take_cookie(at.now, reply);
        }
        if !self.admission.is_for_us(datagram) {
            self.counters.not_for_us += 1;
            return;
        }
        match message {
            Message::Initiation(message) => {
                let sender = (from, message.sender);
                match self.admission.judge(at.now, sender, datagram, &mut *self.rng) {
                    Verdict::Read => self.answer(at, from, &message),
                    Verdict::Prove(reply) => {
                        self.counters.cookies += 1;
                        let bytes = reply.to_bytes();
                        self.out.push_back(Output::Send { to: from, bytes });
                    }
                    Verdict::TooMany => self.counters.too_many += 1,
                }
            }
            Message::Response(message) => self.finish(at, from, &message),
            Message::CookieReply(_) => {}
        }
    }

    /// Handles an initiation.
    fn answer(&mut self, at: At, from: SocketAddr, message: &Initiation) {
        let Ok(opening) = Opening::read(&self.own, message) else {
            self.counters.forged += 1;
            return;
        };
        let key = *opening.claimed();
        let Some(peer) = self.peers.get_mut(&key) else {
            self.counters.strangers += 1;
            return;
        };
        let Ok(proven) = opening.prove(&peer.remote) else {
            self.counters.forged += 1;
            return;
        };
        if peer.timestamp.is_some_and(|last| *proven.timestamp() <= last) || at.now < peer.answer_from {
            self.counters.replayed += 1;
            return;
        }
        (peer.timestamp, peer.answer_from) = (Some(*proven.timestamp()), at.now + FLOOD);
        let local = free_index(&self.indices, &mut *self.rng);
        let Ok((keys, response)) = proven.answer(&peer.remote, local, &mut *self.rng) else {
            self.counters.forged += 1;
            return;
        };
        let mut bytes = response.to_bytes();
        peer.jar.sign(at.now, &mut bytes);
        (peer.answered, peer.silent_at) = (Some(local), None);
        // The peer has begun, so this end has no reason to begin at the same time.
        peer.initiated = Some(at.now);
        let replaced = peer.coming.replace(Slot {
            local,
            born: at.now,
            initiator: false,
        });
        // The message may be one that an attacker has kept, if it is newer than the memory of this end. So it shows
        // where a peer is only if that is not known at all.
        if peer.endpoint.is_none() {
            self.follow(&key, from);
        }
        self.install(key, (keys, false), replaced);
        self.out.push_back(Output::Send { to: from, bytes });
    }

    /// Handles a response.
    fn finish(&mut self, at: At, from: SocketAddr, message: &Response) {
        let key = self.indices.get(&message.receiver).copied();
        let peer = key.and_then(|key| self.peers.get_mut(&key));
        let waiting = peer.and_then(|peer| Some((peer.attempt.take_if(|own| own.local == message.receiver)?, peer)));
        let (Some(key), Some((attempt, peer))) = (key, waiting) else {
            self.counters.unasked += 1;
            return;
        };
        if !peer.may_read_response(at.now) {
            self.counters.too_many += 1;
            peer.attempt = Some(attempt);
            return;
        }
        let Ok(keys) = attempt.handshake.finish(&self.own, &peer.remote, message) else {
            self.counters.forged += 1;
            peer.attempt = Some(attempt);
            return;
        };
        (peer.until, peer.silent_at, peer.sent) = (None, None, at.now);
        let older = peer.current.replace(Slot {
            local: attempt.local,
            born: at.now,
            initiator: true,
        });
        // With keys that wait, both ends have begun at once: each sends under the keys of its own handshake, and takes those of the other.
        let coming = peer.coming.take();
        let replaced = [peer.retreat(older), peer.retreat(coming)];
        self.follow(&key, from);
        self.install(key, (keys, true), replaced.into_iter().flatten());
        // The peer sends under the keys once a message under them has come.
        self.out.push_back(Output::Keepalive { peer: key });
    }

    fn install(&mut self, peer: PublicKey, (keys, use_now): (Keys, bool), replaced: impl IntoIterator<Item = Slot>) {
        self.indices.insert(keys.local, peer);
        self.out.push_back(Output::Install { peer, keys, use_now });
        for slot in replaced {
            self.retire(peer, slot);
        }
    }

    pub(super) fn retire(&mut self, peer: PublicKey, slot: Slot) {
        self.indices.remove(&slot.local);
        self.out.push_back(Output::Retire {
            peer,
            local: slot.local,
        });
    }

    /// Handles a cookie reply. The message that it is about is sent again when its time comes.
    fn take_cookie(&mut self, now: u64, reply: &CookieReply) {
        let peer = self
            .indices
            .get(&reply.receiver)
            .and_then(|key| self.peers.get_mut(key));
        let asked = peer.filter(|peer| {
            let local = peer.attempt.as_ref().map(|attempt| attempt.local);
            [local, peer.answered].contains(&Some(reply.receiver))
        });
        match asked.map(|peer| peer.jar.take(now, reply)) {
            Some(true) => {}
            Some(false) => self.counters.forged += 1,
            None => self.counters.unasked += 1,
        }
    }
}
