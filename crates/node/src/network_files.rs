//! The files that keep networks between two runs: one for each, `network-ID.json`, and one with the
//! presences of its members, `presence-ID.json`.
//!
//! The founder's file may be the only place where the records are, so a file is synced to the disk
//! before it replaces the one before. [`weft_networks::kept`] has their format.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use weft_networks::{Network, kept};
use weft_noise::PublicKey;
use weft_roster::network_id::NetworkId;

use crate::statefile;

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
    let text = kept::to_text(network).map_err(invalid)?;
    statefile::write(&path(directory, network.id()), &text, true)
}

/// Writes the presences of a network as a whole or not at all. They are not synced to the disk: a crash
/// may lose them, and members tell them again.
///
/// # Errors
/// The error of the system; the old file stays.
pub fn save_presences(directory: &Path, network: &Network, times: (u64, u64)) -> io::Result<()> {
    let text = kept::presences_to_text(network, times).map_err(invalid)?;
    statefile::write(&presence_path(directory, network.id()), &text, false)
}

/// Reads the presences of a network. A file that cannot be used counts as none; the next one
/// replaces it.
pub fn load_presences(directory: &Path, network: &mut Network, times: (u64, u64)) {
    let path = presence_path(directory, network.id());
    let added = text(&path).and_then(|text| kept::add_presences(&text, network, times).map_err(invalid));
    match added {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::info!(path = %path.display(), %error, "where members were is not known");
        }
        _ => {}
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
    kept::from_text(&text(path)?, own).map_err(invalid)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(kept::MAX_LEN).read_to_string(&mut text)?;
    Ok(text)
}

fn invalid(why: kept::KeptError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
