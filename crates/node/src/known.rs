//! Where each peer was last reached, kept so that a restarted node dials again at once.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;

/// The `schema` of the file.
pub const SCHEMA: &str = "weft.known-peers/1";

/// The longest file that is read, in bytes: about 100,000 peers.
const MAX_LEN: u64 = 16 << 20;

/// The last address at which each peer proved its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownPeers {
    addresses: BTreeMap<PublicKey, SocketAddr>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    peers: BTreeMap<String, SocketAddr>,
}

impl KnownPeers {
    /// Reads `path`. A file that cannot be used is moved aside (`.bad` behind its name) and told about
    /// at INFO: what it held is found out again.
    #[must_use]
    pub fn load(path: &Path) -> Self {
        match Self::read(path) {
            Ok(known) => known,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => {
                let aside = with_suffix(path, ".bad");
                let kept = fs::rename(path, &aside).is_ok();
                tracing::info!(
                    path = %path.display(), %error, kept_as = kept.then(|| aside.display().to_string()),
                    "last known addresses are unusable; starting without"
                );
                Self::default()
            }
        }
    }

    /// Writes `path` as a whole or not at all. Not forced to the disk: it may be lost, not torn.
    ///
    /// # Errors
    /// What the system said; the old file stays.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let document = Document {
            schema: SCHEMA.to_owned(),
            peers: self.iter().map(|(key, address)| (key.to_string(), address)).collect(),
        };
        let mut text = serde_json::to_string_pretty(&document).map_err(io::Error::from)?;
        text.push('\n');
        let new = with_suffix(path, ".new");
        // What a crash left would keep its mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())
            .and_then(|()| fs::rename(&new, path))
            .inspect_err(|_| drop(fs::remove_file(&new)))
    }

    /// Where `peer` was last reached.
    #[must_use]
    pub fn address(&self, peer: &PublicKey) -> Option<SocketAddr> {
        self.addresses.get(peer).copied()
    }

    /// Notes where `peer` has been reached. True if that is news, and worth a [`save`](Self::save).
    pub fn note(&mut self, peer: PublicKey, address: SocketAddr) -> bool {
        self.addresses.insert(peer, address) != Some(address)
    }

    /// Forgets every peer for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&PublicKey) -> bool) {
        self.addresses.retain(|peer, _| keep(peer));
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = (PublicKey, SocketAddr)> {
        self.addresses.iter().map(|(peer, address)| (*peer, *address))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
        let mut text = String::new();
        File::open(path)?.take(MAX_LEN).read_to_string(&mut text)?;
        let document: Document = serde_json::from_str(&text).map_err(io::Error::from)?;
        if document.schema != SCHEMA {
            return Err(invalid(format!("its schema is not {SCHEMA}")));
        }
        let addresses = document
            .peers
            .iter()
            .map(|(npub, address)| Ok((npub.parse()?, *address)))
            .collect::<Result<_, weft_noise::KeyError>>()
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Self { addresses })
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn peer(byte: u8) -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn known() -> KnownPeers {
        let mut known = KnownPeers::default();
        assert!(known.note(peer(1), "192.0.2.2:2121".parse().unwrap()));
        assert!(known.note(peer(2), "[2001:db8::2]:2121".parse().unwrap()));
        known
    }

    #[test]
    fn survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers.json");
        assert_eq!(KnownPeers::load(&path), KnownPeers::default());
        known().save(&path).unwrap();
        known().save(&path).unwrap();
        assert_eq!(KnownPeers::load(&path), known());
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
    fn what_cannot_be_used_is_kept_aside() {
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
            assert_eq!(KnownPeers::load(&path), KnownPeers::default(), "{bad}");
            assert!(!path.exists());
            assert_eq!(fs::read_to_string(with_suffix(&path, ".bad")).unwrap(), bad);
        }
    }
}
