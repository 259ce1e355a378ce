//! The files that keep networks between two runs: one for each, `network-ID.json`, and one with the
//! presences of its members, `presence-ID.json`.
//!
//! The founder's file may be the only place where the records are, so a file is synced to the disk
//! before it replaces the one before.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_roster::invite::Proof;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::record::Record;
use weft_roster::set::{MAX_SET, RecordSet};

use super::Network;
use super::presence::Presence;
use crate::statefile;

/// The `schema` of a file.
pub const SCHEMA: &str = "weft.network/1";
/// The `schema` of a file with presences.
const PRESENCES: &str = "weft.presence/1";
/// The longest file that is read, in bytes: the records, their escapes, and the rest.
const MAX_LEN: u64 = 3 * MAX_SET as u64;

#[derive(Serialize, Deserialize)]
struct Content {
    schema: String,
    network: String,
    /// Each is the JSON of an event.
    records: Vec<String>,
    contacts: BTreeMap<String, Vec<SocketAddr>>,
    /// The name of the network on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// Its place in the order in which this node came into its networks.
    #[serde(default)]
    place: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joining: Option<Asked>,
}

#[derive(Serialize, Deserialize)]
struct Asked {
    /// Both are missing if an administrator has approved the node without an invite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invite: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

/// Reads all networks of the state directory. A file that cannot be used is renamed (`.bad` behind
/// its name) and reported at WARN.
#[must_use]
pub fn load(directory: &Path, own: &PublicKey) -> Vec<Network> {
    let mut networks = Vec::new();
    for path in files(directory) {
        match read(&path, own) {
            Ok(network) => networks.push(network),
            Err(error) => {
                let aside = statefile::with_suffix(&path, ".bad");
                let kept = fs::rename(&path, &aside).is_ok();
                tracing::warn!(
                    path = %path.display(), %error, kept_as = kept.then(|| aside.display().to_string()),
                    "the records of a network are unusable; join it again"
                );
            }
        }
    }
    networks
}

/// Writes a network as a whole or not at all.
///
/// # Errors
/// The error of the system; the old file stays.
pub fn save(directory: &Path, network: &Network) -> io::Result<()> {
    let content = Content {
        schema: SCHEMA.to_owned(),
        network: network.id().to_string(),
        records: network.set().records().map(|record| record.event().to_json()).collect(),
        contacts: network
            .contacts()
            .iter()
            .map(|(key, addresses)| (key.to_string(), addresses.clone()))
            .collect(),
        label: network.label().map(ToString::to_string),
        place: network.place(),
        joining: network.joining().map(|joining| Asked {
            invite: joining.proof.as_ref().map(|proof| hex::encode(proof.invite)),
            proof: joining.proof.as_ref().map(|proof| hex::encode(proof.signature)),
            name: joining.name.as_ref().map(ToString::to_string),
        }),
    };
    let text = serde_json::to_string(&content).map_err(io::Error::from)?;
    statefile::write(&path(directory, network.id()), &text, true)
}

#[derive(Serialize, Deserialize)]
struct Presences {
    schema: String,
    /// When it was written, in seconds since 1970.
    unix: u64,
    /// Each is a presence as in a document, in hexadecimal digits, with its age then.
    presences: Vec<String>,
}

/// Writes the presences of a network as a whole or not at all. They are not synced to the disk: a crash
/// may lose them, and members tell them again.
///
/// # Errors
/// The error of the system; the old file stays.
pub fn save_presences(directory: &Path, network: &Network, (now, unix): (u64, u64)) -> io::Result<()> {
    let text = |(presence, age): (&Presence, u64)| {
        let mut bytes = Vec::new();
        presence.emit(u32::try_from(age).unwrap_or(u32::MAX), &mut bytes);
        hex::encode(bytes)
    };
    let content = Presences {
        schema: PRESENCES.to_owned(),
        unix,
        presences: network.presences(now).map(text).collect(),
    };
    let text = serde_json::to_string(&content).map_err(io::Error::from)?;
    statefile::write(&presence_path(directory, network.id()), &text, false)
}

/// Reads the presences of a network. A file that cannot be used counts as none; the next one
/// replaces it.
pub fn load_presences(directory: &Path, network: &mut Network, (now, unix): (u64, u64)) {
    let path = presence_path(directory, network.id());
    match read_presences(&path) {
        Ok(content) => {
            let since = unix.saturating_sub(content.unix);
            for text in content.presences {
                let bytes = hex::decode(text).unwrap_or_default();
                if let Ok(((presence, age), [])) = Presence::read(&bytes) {
                    network.restore_presence(presence, u64::from(age) + since, now);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::info!(path = %path.display(), %error, "where members were is not known"),
    }
}

fn read_presences(path: &Path) -> io::Result<Presences> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LEN).read_to_string(&mut text)?;
    let content: Presences = serde_json::from_str(&text).map_err(io::Error::from)?;
    match content.schema == PRESENCES {
        true => Ok(content),
        false => Err(invalid(format!("its schema is not {PRESENCES}"))),
    }
}

fn presence_path(directory: &Path, network: NetworkId) -> PathBuf {
    directory.join(format!("presence-{network}.json"))
}

/// Removes the files of a network.
///
/// # Errors
/// The error of the system.
pub fn remove(directory: &Path, network: NetworkId) -> io::Result<()> {
    for path in [presence_path(directory, network), path(directory, network)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// The files of networks in a state directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    files_named(directory, "network-")
}

/// The files of presences in a state directory.
pub fn presence_files(directory: &Path) -> Vec<PathBuf> {
    files_named(directory, "presence-")
}

fn files_named(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = name.and_then(|name| name.strip_prefix(prefix)?.strip_suffix(".json"));
        id.is_some_and(|id| id.parse::<NetworkId>().is_ok())
    };
    let mut files: Vec<PathBuf> = paths.filter(ours).collect();
    files.sort();
    files
}

fn path(directory: &Path, network: NetworkId) -> PathBuf {
    directory.join(format!("network-{network}.json"))
}

fn read(path: &Path, own: &PublicKey) -> io::Result<Network> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LEN).read_to_string(&mut text)?;
    let content: Content = serde_json::from_str(&text).map_err(io::Error::from)?;
    if content.schema != SCHEMA {
        return Err(invalid(format!("its schema is not {SCHEMA}")));
    }
    let id = content.network.parse().map_err(invalid)?;
    let mut set = RecordSet::new(id);
    for json in &content.records {
        let record = Record::parse_of(id, json.as_bytes()).map_err(invalid)?;
        set.insert(&Arc::new(record));
    }
    let contacts = content.contacts.into_iter();
    let contacts = contacts.map(|(key, addresses)| Ok((key.parse().map_err(invalid)?, addresses)));
    let joining = content.joining.map(|asked| {
        let proof = match (&asked.invite, &asked.proof) {
            (None, None) => None,
            (Some(invite), Some(signature)) => Some(Proof {
                invite: hex::FromHex::from_hex(invite).map_err(invalid)?,
                signature: hex::FromHex::from_hex(signature).map_err(invalid)?,
            }),
            _ => return Err(invalid("invite and proof belong together")),
        };
        let name = asked.name.map(|name| Name::host(&name).map_err(invalid)).transpose()?;
        Ok::<_, io::Error>((proof, name))
    });
    let label = content.label.map(|label| Name::network(&label).map_err(invalid));
    let network = Network::kept(own, set, contacts.collect::<io::Result<_>>()?, joining.transpose()?);
    Ok(network.placed(label.transpose()?, content.place))
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
