//! Which hint led to the path of each peer. The core knows addresses only, so this table says where
//! each one came from.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use weft_core::{Hint, HintSource};
use weft_noise::PublicKey;

/// Addresses of one peer, at most. The oldest one goes first.
const MAX_ADDRESSES: usize = 16;

/// The addresses that the core was given, and those that led to a path.
#[derive(Debug, Default)]
pub(super) struct Hints {
    given: BTreeMap<PublicKey, VecDeque<Hint>>,
    led: BTreeMap<PublicKey, Hint>,
}

impl Hints {
    /// The core gets an address of a peer. The latest source of an address counts.
    pub(super) fn give(&mut self, peer: PublicKey, at: SocketAddr, source: HintSource) {
        let given = self.given.entry(peer).or_default();
        given.retain(|known| known.at != at);
        if given.len() >= MAX_ADDRESSES {
            given.pop_front();
        }
        given.push_back(Hint { at, source });
    }

    /// A peer has a link at an address now. `known`: what the tables of the node say of it.
    pub(super) fn note_path(&mut self, peer: PublicKey, at: SocketAddr, known: Option<HintSource>) {
        let given = || {
            let given = self.given.get(&peer)?.iter().find(|given| given.at == at)?;
            Some(given.source)
        };
        let source = known.or_else(given).unwrap_or(HintSource::Incoming);
        self.led.insert(peer, Hint { at, source });
    }

    /// The source of the address that led to a path.
    pub(super) fn of(&self, peer: &PublicKey, at: SocketAddr) -> Option<HintSource> {
        let led = self.led.get(peer).filter(|led| led.at == at);
        led.map(|led| led.source)
    }

    /// Forgets the peers for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(&PublicKey) -> bool) {
        self.given.retain(|peer, _| keep(peer));
        self.led.retain(|peer, _| keep(peer));
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn the_hint_of_the_path_is_the_one_that_was_dialled_last() {
        let peer = SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let at = |port| SocketAddr::from(([192, 168, 1, 2], port));
        let mut hints = Hints::default();
        hints.give(peer, at(1), HintSource::LastAddress);
        hints.give(peer, at(1), HintSource::Lan);
        assert_eq!(hints.of(&peer, at(1)), None, "no path yet");
        hints.note_path(peer, at(1), None);
        assert_eq!(hints.of(&peer, at(1)), Some(HintSource::Lan));
        hints.give(peer, at(1), HintSource::Probe);
        assert_eq!(hints.of(&peer, at(1)), Some(HintSource::Lan), "it led there before");
        hints.note_path(peer, at(1), Some(HintSource::Configured));
        assert_eq!(hints.of(&peer, at(1)), Some(HintSource::Configured));
        hints.note_path(peer, at(7), None);
        assert_eq!(hints.of(&peer, at(7)), Some(HintSource::Incoming));
        assert_eq!(hints.of(&peer, at(1)), None);
        for port in 0..100 {
            hints.give(peer, at(port), HintSource::Lan);
        }
        assert_eq!(hints.given[&peer].len(), MAX_ADDRESSES);
        hints.retain(|_| false);
        assert!(hints.given.is_empty() && hints.led.is_empty());
    }
}
