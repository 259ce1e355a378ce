//! The files that keep networks between two runs: one for each, `network-ID.json`, and one with the
//! presences of its members, `presence-ID.json`.
//!
//! The founder's file may be the only place where the records are, so a file is synced to the disk
//! before it replaces the one before, and its name behind that. A file that cannot be read stays where
//! it is until the records have come back from a member; one that a later version of Weft wrote stays
//! for good. [`weft_networks::kept`] has the format.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use weft_networks::kept::KeptError;
use weft_networks::{Network, kept};
use weft_noise::PublicKey;
use weft_os::file::with_suffix;
use weft_roster::network_id::NetworkId;

use crate::statefile;

/// The files of the networks of a node.
#[derive(Debug)]
pub struct NetworkFiles {
    directory: PathBuf,
    unusable: BTreeMap<NetworkId, Unusable>,
}

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it, as text for the user.
    pub why: String,
    /// A later version of Weft wrote it. It is not replaced.
    pub newer: bool,
}

/// The reason why a network is not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The system does not write the file. The old one stays.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The file is the new one, and the system does not promise that it stays so over a power failure.
    #[error("the directory is not synced: {0}")]
    Unsynced(io::Error),
    /// A later version of Weft wrote the file, and it is not replaced.
    #[error("the file {name} stays: {why}; update weft")]
    Newer {
        /// The name of the file.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

impl NetworkFiles {
    /// Reads all networks of a state directory. One whose file cannot be used is there, too: without
    /// records, which any member gives back ([`Network::is_lost`]). That is reported at WARN.
    #[must_use]
    pub fn load(directory: &Path, own: &PublicKey) -> (Self, Vec<Network>) {
        let mut loaded = Self {
            directory: directory.to_owned(),
            unusable: BTreeMap::new(),
        };
        let mut networks = Vec::new();
        for (id, path) in with_ids(directory, "network-") {
            let error = match read(&path, own) {
                Ok(network) if network.id() == id => {
                    networks.push(network);
                    continue;
                }
                Ok(network) => KeptError::Field(format!("it is the file of {}", network.id()).into()),
                Err(error) => error,
            };
            tracing::warn!(
                path = %path.display(), %error,
                "the file of a network cannot be used; it stays, and members give the records back"
            );
            let presences = text(&presence_path(directory, id)).ok();
            networks.push(kept::lost(own, id, presences.as_deref()));
            let newer = matches!(error, KeptError::Newer(_));
            let why = error.to_string();
            loaded.unusable.insert(id, Unusable { path, why, newer });
        }
        (loaded, networks)
    }

    /// The networks that are there, by the text of the file of each, and the files that cannot be used.
    #[must_use]
    pub fn texts(directory: &Path, own: &PublicKey) -> (Vec<String>, Vec<PathBuf>) {
        let (mut texts, mut unusable) = (Vec::new(), Vec::new());
        for path in files(directory) {
            match text(&path) {
                Ok(text) if kept::from_text(&text, own).is_ok() => texts.push(text),
                _ => unusable.push(path),
            }
        }
        (texts, unusable)
    }

    /// Writes a network from the text of its file, unless it is there. Returns it, and whether it was
    /// written.
    ///
    /// # Errors
    /// [`SaveError`]
    pub fn restore(directory: &Path, own: &PublicKey, text: &str) -> Result<(Network, bool), SaveError> {
        let network = kept::from_text(text, own).map_err(invalid)?;
        let path = path(directory, network.id());
        match read(&path, own) {
            Ok(_) => return Ok((network, false)),
            Err(KeptError::Newer(schema)) => {
                let name = path.file_name().unwrap_or_default().display().to_string();
                let why = KeptError::Newer(schema).to_string();
                return Err(SaveError::Newer { name, why });
            }
            Err(_) if path.exists() => keep_aside(&path)?,
            Err(_) => {}
        }
        save(directory, &network)?;
        Ok((network, true))
    }

    /// Writes a network as a whole or not at all. A file that could not be used is kept aside first,
    /// with `.bad` behind its name.
    ///
    /// # Errors
    /// [`SaveError`]
    pub fn save(&mut self, network: &Network) -> Result<(), SaveError> {
        let id = network.id();
        if let Some(unusable) = self.unusable.get(&id) {
            let path = unusable.path.clone();
            if unusable.newer {
                let name = path.file_name().unwrap_or_default().display().to_string();
                let why = unusable.why.clone();
                return Err(SaveError::Newer { name, why });
            }
            keep_aside(&path)?;
        }
        save(&self.directory, network)?;
        self.unusable.remove(&id);
        Ok(())
    }

    /// The file of a network, if it could not be used and is still there.
    #[must_use]
    pub fn unusable(&self, network: &NetworkId) -> Option<&Unusable> {
        self.unusable.get(network)
    }

    /// The files that could not be used and are still there.
    #[must_use]
    pub fn all_unusable(&self) -> &BTreeMap<NetworkId, Unusable> {
        &self.unusable
    }

    /// Removes the files of a network.
    ///
    /// # Errors
    /// [`SaveError::System`]: both files are still there. [`SaveError::Unsynced`]
    pub fn remove(&mut self, network: NetworkId) -> Result<(), SaveError> {
        let path = path(&self.directory, network);
        remove_file(&path)?;
        self.unusable.remove(&network);
        if let Err(error) = remove_file(&presence_path(&self.directory, network)) {
            tracing::info!(%network, %error, "where the members of a forgotten network were is still written");
        }
        statefile::sync_names(&path).map_err(SaveError::Unsynced)
    }
}

/// Writes a network as a whole or not at all, in place of whatever is there.
///
/// # Errors
/// [`SaveError::System`] and [`SaveError::Unsynced`]
pub fn save(directory: &Path, network: &Network) -> Result<(), SaveError> {
    let text = kept::to_text(network).map_err(invalid)?;
    let path = path(directory, network.id());
    statefile::write(&path, &text, true)?;
    statefile::sync_names(&path).map_err(SaveError::Unsynced)
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

/// Renames the files of all networks: they get `suffix` behind their names, and are networks no more. Returns
/// where they are.
///
/// # Errors
/// The error of the system; files before the one that fails are renamed.
pub fn set_aside(directory: &Path, suffix: &str) -> io::Result<Vec<PathBuf>> {
    let mut aside = Vec::new();
    for path in files(directory) {
        let to = with_suffix(&path, suffix);
        fs::rename(&path, &to)?;
        aside.push(to);
    }
    Ok(aside)
}

/// Files of a network that are kept aside; the last one is replaced by further ones.
const MAX_ASIDE: usize = 9;

/// Gives a file a second name, with `.bad` behind it, or `.bad2` to `.bad9` if there are such. The first one
/// stays until it is written again.
fn keep_aside(path: &Path) -> io::Result<()> {
    let names = (1..=MAX_ASIDE).map(|number| match number {
        1 => with_suffix(path, ".bad"),
        _ => with_suffix(path, &format!(".bad{number}")),
    });
    let names: Vec<PathBuf> = names.collect();
    let known = |name: &PathBuf| matches!((fs::read(name), fs::read(path)), (Ok(one), Ok(other)) if one == other);
    if names.iter().any(known) {
        return Ok(());
    }
    let free = names.iter().find(|name| !name.exists());
    let Some(aside) = free.or(names.last()) else {
        return Ok(());
    };
    remove_file(aside)?;
    match fs::hard_link(path, aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Not all file systems have second names.
        Err(_) => fs::copy(path, aside).map(drop),
        Ok(()) => Ok(()),
    }
}

/// Removes a file, if there is one.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn presence_path(directory: &Path, network: NetworkId) -> PathBuf {
    directory.join(format!("presence-{network}.json"))
}

/// The files of networks in a state directory.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    with_ids(directory, "network-").into_values().collect()
}

/// The files of presences in a state directory.
pub fn presence_files(directory: &Path) -> Vec<PathBuf> {
    with_ids(directory, "presence-").into_values().collect()
}

fn with_ids(directory: &Path, prefix: &str) -> BTreeMap<NetworkId, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let ours = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str())?;
        let id = name.strip_prefix(prefix)?.strip_suffix(".json")?.parse().ok()?;
        Some((id, path))
    };
    paths.filter_map(ours).collect()
}

fn path(directory: &Path, network: NetworkId) -> PathBuf {
    directory.join(format!("network-{network}.json"))
}

fn read(path: &Path, own: &PublicKey) -> Result<Network, KeptError> {
    let text = text(path).map_err(|error| KeptError::Field(error.into()))?;
    kept::from_text(&text, own)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(kept::MAX_LEN).read_to_string(&mut text)?;
    Ok(text)
}

fn invalid(why: KeptError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
