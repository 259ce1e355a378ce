//! When a handshake is begun, a keepalive sent, and keys end.

use super::peer::{Attempt, Peer, Slot};
use super::{ATTEMPTS, At, Interface, JITTER, KEEPALIVE, Output, REKEY_TIMEOUT, Traffic, canonical, free_index};
use crate::handshake::begin;
use crate::keys::PublicKey;

impl Interface {
    /// Handles what has passed under the keys with the index `local` since the last report.
    pub fn note_traffic(&mut self, at: At, local: u32, traffic: Traffic) {
        let Some(key) = self.indices.get(&local).copied() else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&key) else { return };
        let Some(slot) = peer
            .slots()
            .into_iter()
            .find_map(|slot| slot.filter(|slot| slot.local == local))
        else {
            return;
        };
        if slot.ends() <= at.now {
            return;
        }
        let came = traffic.received + traffic.keepalives > 0;
        if traffic.sent > 0 {
            let jitter = u64::from(self.rng.next_u32()) % (JITTER + 1);
            (peer.sent, peer.alive_at) = (at.now, None);
            peer.silent_at
                .get_or_insert(at.now + KEEPALIVE + REKEY_TIMEOUT + jitter);
        }
        if came {
            peer.silent_at = None;
        }
        if traffic.received > 0 {
            peer.alive_at.get_or_insert(at.now + KEEPALIVE);
        }
        let worn = traffic.sent > 0 && peer.is_worn(at.now, &slot, true) || came && peer.is_worn(at.now, &slot, false);
        if came {
            let from = traffic.from.map(canonical);
            from.into_iter().for_each(|from| self.follow(&key, from));
            self.confirm(&key, slot);
        }
        if worn {
            self.start(at, &key);
        }
    }

    /// Sends under keys that the peer has made and used.
    fn confirm(&mut self, key: &PublicKey, slot: Slot) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.coming.take_if(|coming| *coming == slot).is_some() {
            // The peer has the keys, so it needs no further handshake of this end.
            let older = peer.current.replace(slot);
            let oldest = peer.retreat(older);
            peer.until = None;
            let attempt = peer.attempt.take();
            self.out.push_back(Output::Use {
                peer: *key,
                local: slot.local,
            });
            oldest.into_iter().for_each(|slot| self.retire(*key, slot));
            if let Some(attempt) = attempt {
                self.indices.remove(&attempt.local);
            }
        }
    }

    /// Begins a series of attempts, unless there is one.
    pub(super) fn start(&mut self, at: At, key: &PublicKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.until.is_none() {
            (peer.until, peer.tries) = (Some(at.now + ATTEMPTS), 0);
            peer.next = peer.initiated.map_or(at.now, |last| at.now.max(last + REKEY_TIMEOUT));
            self.drive_attempt(at, key);
        }
    }

    /// Sends an initiation if one is due.
    fn drive_attempt(&mut self, at: At, key: &PublicKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let Some(until) = peer.until else { return };
        let to = peer.target().filter(|_| at.now < until);
        if to.is_some() && at.now < peer.next {
            return;
        }
        if let Some(attempt) = peer.attempt.take() {
            self.indices.remove(&attempt.local);
        }
        let Some(to) = to else {
            (peer.until, peer.sent) = (None, at.now);
            self.out.push_back(Output::Unreachable { peer: *key });
            return;
        };
        peer.tries += 1;
        let local = free_index(&self.indices, &mut *self.rng);
        let jitter = u64::from(self.rng.next_u32()) % (JITTER + 1);
        (peer.initiated, peer.next) = (Some(at.now), at.now + REKEY_TIMEOUT + jitter);
        let timestamp = peer.times.next(at.unix);
        // One in 2^250 ephemeral keys is of no use; the next attempt has another.
        let Ok((handshake, message)) = begin(&self.own, &peer.remote, (local, timestamp), &mut *self.rng) else {
            return;
        };
        peer.attempt = Some(Attempt { handshake, local });
        let mut bytes = message.to_bytes();
        peer.jar.sign(at.now, &mut bytes);
        self.indices.insert(local, *key);
        self.out.push_back(Output::Send { to, bytes });
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, at: At) {
        let due = |peer: &Peer| peer.due().is_some_and(|due| due <= at.now);
        let keys: Vec<PublicKey> = self
            .peers
            .iter()
            .filter(|(_, peer)| due(peer))
            .map(|(key, _)| *key)
            .collect();
        for key in &keys {
            self.end_keys(at.now, key);
            self.drive_attempt(at, key);
            let Some(peer) = self.peers.get_mut(key) else { continue };
            if peer.silent_at.take_if(|due| *due <= at.now).is_some() {
                self.start(at, key);
            }
            self.keep_alive(at, key);
        }
    }

    fn end_keys(&mut self, now: u64, key: &PublicKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let ended = peer.slots().map(|slot| slot.take_if(|slot| slot.ends() <= now));
        ended.into_iter().flatten().for_each(|slot| self.retire(*key, slot));
    }

    fn keep_alive(&mut self, at: At, key: &PublicKey) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let answers = peer.alive_at.take_if(|due| *due <= at.now).is_some();
        let persists = peer.persistent_at().is_some_and(|due| due <= at.now);
        let usable = peer.usable(at.now).copied();
        if usable.is_some() && (answers || persists) {
            peer.sent = at.now;
            self.out.push_back(Output::Keepalive { peer: *key });
        }
        let worn = |peer: &Peer| usable.is_none_or(|slot| peer.is_worn(at.now, &slot, true));
        if persists && worn(peer) || answers && usable.is_some() && worn(peer) {
            self.start(at, key);
        }
    }

    /// Returns when [`Interface::handle_timeout`] has something to do, in ms. It looks at all peers; a datagram that was
    /// dropped changes nothing.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.peers.values().filter_map(Peer::due).min()
    }
}
