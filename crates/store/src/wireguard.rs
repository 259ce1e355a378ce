//! What this node is for devices with WireGuard: its key, its port, and the secrets that it shares with them.
//!
//! Devices have the public key and the port in their files, so that a node that loses this file has lost its guests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weft_wireguard::keys::{PresharedKey, PrivateKey, PublicKey};
use zeroize::Zeroizing;

use crate::statefile;

/// The `schema` of the file.
pub const SCHEMA: &str = "weft.wireguard-keys/1";

/// The longest file that is read, in bytes: that of about 10,000 guests.
const MAX_LEN: u64 = 1 << 20;

/// The key, the port and the shared secrets.
#[derive(Clone)]
pub struct WireGuardKeys {
    /// The private key.
    pub private: PrivateKey,
    /// The UDP port that was bound last, which guests have in their files.
    pub port: Option<u16>,
    /// The preshared keys of guests, by their public key.
    pub preshared: BTreeMap<PublicKey, PresharedKey>,
}

/// The file cannot be used.
#[derive(Debug, Error)]
pub enum WireGuardKeysError {
    /// The system refuses it.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// It is malformed.
    #[error("it is malformed: {0}; a copy of it has to take its place, or guests need new files once it is removed")]
    Malformed(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Document {
    schema: String,
    private_key: Zeroizing<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(default)]
    preshared_keys: BTreeMap<String, Zeroizing<String>>,
}

impl WireGuardKeys {
    /// Makes those of a node without guests.
    #[must_use]
    pub const fn new(private: PrivateKey) -> Self {
        Self {
            private,
            port: None,
            preshared: BTreeMap::new(),
        }
    }

    /// Reads `path`. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// [`WireGuardKeysError`]. The file stays as it is: its private key may be what guests know.
    pub fn load(path: &Path) -> Result<Option<Self>, WireGuardKeysError> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(WireGuardKeysError::Unreadable)?,
        };
        let mut text = Zeroizing::new(String::new());
        let read = file.take(MAX_LEN).read_to_string(&mut text);
        read.map_err(WireGuardKeysError::Unreadable)?;
        Self::read(&text).map(Some)
    }

    fn read(text: &str) -> Result<Self, WireGuardKeysError> {
        let malformed = WireGuardKeysError::Malformed;
        let document: Document = serde_json::from_str(text).map_err(|_| malformed("no such JSON"))?;
        if document.schema != SCHEMA {
            return Err(malformed("another schema"));
        }
        let private = document.private_key.parse().map_err(|_| malformed("the private key"))?;
        let pair = |(key, preshared): (&String, &Zeroizing<String>)| {
            let key = key.parse().map_err(|_| malformed("the public key of a guest"))?;
            Ok((key, preshared.parse().map_err(|_| malformed("a preshared key"))?))
        };
        Ok(Self {
            private,
            port: document.port,
            preshared: document.preshared_keys.iter().map(pair).collect::<Result<_, _>>()?,
        })
    }

    /// Writes `path`, to the disk, as a whole or not at all.
    ///
    /// # Errors
    /// The error of the system; the old file stays.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let preshared = self.preshared.iter();
        let document = Document {
            schema: SCHEMA.to_owned(),
            private_key: self.private.to_text(),
            port: self.port,
            preshared_keys: preshared
                .map(|(key, secret)| (key.to_string(), secret.to_text()))
                .collect(),
        };
        let text = serde_json::to_string_pretty(&document).map_err(io::Error::from)?;
        let text = Zeroizing::new(text + "\n");
        statefile::write(path, &text, true)?;
        statefile::sync_names(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn keys() -> WireGuardKeys {
        let mut keys = WireGuardKeys::new(PrivateKey::from_bytes([7; 32]));
        keys.port = Some(51_821);
        let guest = PrivateKey::from_bytes([9; 32]).public();
        keys.preshared.insert(guest, PresharedKey::from_bytes([3; 32]));
        keys
    }

    #[test]
    fn keys_and_port_outlive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wireguard.json");
        assert!(WireGuardKeys::load(&path).unwrap().is_none());
        keys().save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = WireGuardKeys::load(&path).unwrap().unwrap();
        assert_eq!(read.private.public(), keys().private.public());
        assert_eq!(read.port, Some(51_821));
        let texts = |keys: &WireGuardKeys| {
            keys.preshared
                .values()
                .map(|key| key.to_text().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&read), texts(&keys()));
    }

    #[test]
    fn a_file_that_cannot_be_used_stays_and_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wireguard.json");
        keys().save(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let key = keys().private.to_text().to_string();
        for (bad, why) in [
            (String::new(), "no such JSON"),
            (good.replace("keys/1", "keys/2"), "another schema"),
            (good.replace(&key, "short"), "the private key"),
        ] {
            fs::write(&path, &bad).unwrap();
            let error = WireGuardKeys::load(&path).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains(&key), "no secret in an error");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
    }
}
