//! The peers that have ever used fast frames, kept so that a downgrade is visible after a restart
//! too.
//!
//! Cryptography cannot distinguish a peer whose capabilities an attacker removes from a peer that
//! has none (docs/protocol/fast.md, "What an attacker can do"). A peer that used fast frames and no
//! longer does should be examined.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;

use crate::statefile;

/// The `schema` of the file.
pub const SCHEMA: &str = "weft.fast-peers/1";

/// Every peer that has used fast frames, and since when it no longer does, if so. Times are seconds
/// since 1970 (UTC).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPeers {
    peers: BTreeMap<PublicKey, Entry>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    downgraded_unix: Option<u64>,
}

impl FastPeers {
    /// Reads `path`. A file that cannot be used is renamed (`.bad` behind its name) and reported at
    /// INFO.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        Self {
            peers: statefile::load(path, SCHEMA, "memories of fast frames"),
        }
    }

    /// Writes `path` as a whole or not at all. It is not synced to the disk: a crash may lose it,
    /// but not truncate it.
    ///
    /// # Errors
    /// The error of the system; the old file stays.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        statefile::save(path, SCHEMA, &self.peers)
    }

    /// Records that data with `peer` goes in fast frames. Returns true if that is new, and should
    /// be saved ([`save`](Self::save)).
    pub fn note_fast(&mut self, peer: PublicKey) -> bool {
        self.peers.insert(peer, Entry::default()) != Some(Entry::default())
    }

    /// Records that the peer does not use fast frames, as found at `now`. Returns true if that is
    /// new: it used them before.
    pub fn note_downgraded(&mut self, peer: &PublicKey, now: u64) -> bool {
        match self.peers.get_mut(peer) {
            Some(Entry {
                downgraded_unix: since @ None,
            }) => {
                *since = Some(now);
                true
            }
            _ => false,
        }
    }

    /// The time since which `peer` no longer uses fast frames; `None` if it does, or never did.
    #[must_use]
    pub fn downgraded_since(&self, peer: &PublicKey) -> Option<u64> {
        self.peers.get(peer)?.downgraded_unix
    }

    /// Whether a peer has ever used fast frames.
    #[must_use]
    pub fn has(&self, peer: &PublicKey) -> bool {
        self.peers.contains_key(peer)
    }

    /// All peers that have ever used fast frames, by key.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.peers.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn peer(byte: u8) -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    #[test]
    fn the_first_failure_counts_until_it_works_again() {
        let mut peers = FastPeers::default();
        assert!(!peers.note_downgraded(&peer(1), 10), "it has never been fast");
        assert!(peers.note_fast(peer(1)) && !peers.note_fast(peer(1)));
        assert_eq!(peers.downgraded_since(&peer(1)), None);
        assert!(peers.note_downgraded(&peer(1), 20) && !peers.note_downgraded(&peer(1), 30));
        assert_eq!(peers.downgraded_since(&peer(1)), Some(20));
        assert!(peers.note_fast(peer(1)));
        assert_eq!(peers.downgraded_since(&peer(1)), None);
        assert_eq!(peers.iter().collect::<Vec<_>>(), [&peer(1)]);
    }

    #[test]
    fn survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fast.json");
        assert_eq!(FastPeers::load(&path), FastPeers::default());
        let mut peers = FastPeers::default();
        peers.note_fast(peer(1));
        peers.note_fast(peer(2));
        peers.note_downgraded(&peer(2), 1_700_000_000);
        peers.save(&path).unwrap();
        assert_eq!(FastPeers::load(&path), peers);
        let text = fs::read_to_string(&path).unwrap();
        for bad in [
            text.replace("fast-peers/1", "fast-peers/2"),
            text.replace("npub1", "npub2"),
            text.replace("1700000000", "\"then\""),
        ] {
            fs::write(&path, &bad).unwrap();
            assert_eq!(FastPeers::load(&path), FastPeers::default(), "{bad}");
            assert!(!path.exists());
        }
    }
}
