//! Files of the state directory with data that the daemon discovered: JSON, written as a whole or
//! not at all.
//!
//! If they are lost, the data is discovered again. So no write waits for the disk (L32), and a file
//! that cannot be used is renamed and does not prevent the start.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_noise::PublicKey;
use weft_os::file::with_suffix;

/// The longest file that is read, in bytes: about 100,000 peers.
const MAX_LEN: u64 = 16 << 20;

/// The content of such a file: a value for each peer, by its `npub`.
#[derive(Serialize, Deserialize)]
struct Document<T> {
    schema: String,
    peers: BTreeMap<String, T>,
}

/// Reads `path`, which must have this schema. A file that cannot be used is renamed (`.bad` behind
/// its name) and reported at INFO, with `what` as the name of its content. In that case, and if
/// there is no file, no peer is returned.
pub(crate) fn load<T: DeserializeOwned>(path: &Path, schema: &str, what: &str) -> BTreeMap<PublicKey, T> {
    match read(path, schema) {
        Ok(peers) => peers,
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => {
            let aside = with_suffix(path, ".bad");
            let kept = fs::rename(path, &aside).is_ok();
            tracing::info!(
                path = %path.display(), %error, kept_as = kept.then(|| aside.display().to_string()),
                "{what} are unusable; starting without"
            );
            BTreeMap::new()
        }
    }
}

/// Writes `path` as a whole or not at all. It is not synced to the disk: a crash may lose it, but
/// not truncate it.
///
/// # Errors
/// The error of the system; the old file stays.
pub(crate) fn save<T: Serialize>(path: &Path, schema: &str, peers: &BTreeMap<PublicKey, T>) -> io::Result<()> {
    let document = Document {
        schema: schema.to_owned(),
        peers: peers.iter().map(|(key, value)| (key.to_string(), value)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).map_err(io::Error::from)?;
    text.push('\n');
    write(path, &text, false)
}

/// Writes `path` as a whole or not at all, with mode 0600; if `sync`, to the disk before it replaces
/// the file there. A power failure may leave either file.
///
/// # Errors
/// The error of the system; the old file stays.
pub(crate) fn write(path: &Path, text: &str, sync: bool) -> io::Result<()> {
    write_on(&System, path, text, sync)
}

/// What [`write`] needs of the system, so that tests can let each step fail.
trait Disk {
    type File;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, text: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
}

/// The files of this host.
struct System;

impl Disk for System {
    type File = File;

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    fn write(&self, file: &mut File, text: &[u8]) -> io::Result<()> {
        file.write_all(text)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }
}

fn write_on<D: Disk>(disk: &D, path: &Path, text: &str, sync: bool) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    // A file left by a crash would keep its mode.
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&new)?;
    disk.write(&mut file, text.as_bytes())
        .and_then(|()| if sync { disk.sync(&file) } else { Ok(()) })
        .and_then(|()| disk.rename(&new, path))
        .inspect_err(|_| drop(disk.remove(&new)))
}

/// Has the names in the directory of `path` written to the disk: after [`write`] a power failure leaves
/// the new file, and after a removal none.
///
/// # Errors
/// The error of the system.
pub(crate) fn sync_names(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn read<T: DeserializeOwned>(path: &Path, schema: &str) -> io::Result<BTreeMap<PublicKey, T>> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LEN).read_to_string(&mut text)?;
    let document: Document<T> = serde_json::from_str(&text).map_err(io::Error::from)?;
    if document.schema != schema {
        return Err(invalid(format!("its schema is not {schema}")));
    }
    let peers = document.peers.into_iter();
    peers
        .map(|(npub, value)| Ok((npub.parse().map_err(invalid)?, value)))
        .collect()
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
