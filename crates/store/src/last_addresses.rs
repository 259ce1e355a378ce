//! The last address of each peer, kept so that a restarted node dials it at once.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use weft_noise::PublicKey;

use crate::statefile;

/// The `schema` of the file.
pub const SCHEMA: &str = "weft.known-peers/1";

/// The last address at which each peer proved its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastAddresses {
    addresses: BTreeMap<PublicKey, SocketAddr>,
}

impl LastAddresses {
    /// Reads `path`. A file that cannot be used is renamed (`.bad` behind its name) and reported at
    /// INFO: its content is discovered again.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        Self {
            addresses: statefile::load(path, SCHEMA, "last known addresses"),
        }
    }

    /// Writes `path` as a whole or not at all. It is not synced to the disk: a crash may lose it,
    /// but not truncate it.
    ///
    /// # Errors
    /// The error of the system; the old file stays.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        statefile::save(path, SCHEMA, &self.addresses)
    }

    /// The last address of `peer`.
    #[must_use]
    pub fn address(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.addresses.get(peer).copied()
    }

    /// Records the address of `peer`. Returns true if it is new, and should be saved
    /// ([`save`](Self::save)).
    pub fn note(&mut self, peer: PublicKey, address: SocketAddr) -> bool {
        self.addresses.insert(peer, address) != Some(address)
    }

    /// Forgets every peer for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&PublicKey) -> bool) {
        self.addresses.retain(|peer, _| keep(peer));
    }

    /// All peers and their addresses, by key.
    pub fn iter(&self) -> impl Iterator<Item = (PublicKey, SocketAddr)> {
        self.addresses.iter().map(|(peer, address)| (*peer, *address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn peer(byte: u8) -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn known() -> LastAddresses {
        let mut known = LastAddresses::default();
        assert!(known.note(peer(1), "192.0.2.2:2121".parse().unwrap()));
        assert!(known.note(peer(2), "[2001:db8::2]:2121".parse().unwrap()));
        known
    }

    #[test]
    fn survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers.json");
        assert_eq!(LastAddresses::load(&path), LastAddresses::default());
        known().save(&path).unwrap();
        known().save(&path).unwrap();
        assert_eq!(LastAddresses::load(&path), known());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn only_news_are_worth_saving() {
        let mut known = known();
        let (old, new) = ("192.0.2.2:2121".parse().unwrap(), "192.0.2.3:2121".parse().unwrap());
        assert!(!known.note(peer(1), old));
        assert!(known.note(peer(1), new));
        known.retain(|key| *key == peer(1));
        assert_eq!(known.iter().collect::<Vec<_>>(), [(peer(1), new)]);
    }

    #[test]
    fn unusable_files_are_kept_aside() {
        let good = serde_json::json!({"schema": SCHEMA, "peers": {peer(1).to_string(): "192.0.2.2:2121"}});
        for bad in [
            String::new(),
            "{".to_owned(),
            good.to_string().replace("known-peers/1", "known-peers/2"),
            good.to_string().replace("npub1", "npub2"),
            good.to_string().replace(":2121", ""),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("peers.json");
            fs::write(&path, &bad).unwrap();
            assert_eq!(LastAddresses::load(&path), LastAddresses::default(), "{bad}");
            assert!(!path.exists());
            assert_eq!(
                fs::read_to_string(weft_os::file::with_suffix(&path, ".bad")).unwrap(),
                bad
            );
        }
    }
}
