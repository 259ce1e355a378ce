//! Files of the state directory with data that the daemon discovered: JSON, written as a whole or
//! not at all.
//!
//! If they are lost, the data is discovered again. So no write waits for the disk (L32), and a file
//! that cannot be used is renamed and does not prevent the start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest file that is read, in bytes: about 100,000 peers.
const MAX_LEN: u64 = 16 << 20;

/// A document of such a file.
pub(crate) trait Document: Serialize + DeserializeOwned {
    /// Its `schema`.
    const SCHEMA: &'static str;

    /// The `schema` that was read.
    fn schema(&self) -> &str;
}

/// Reads `path` and returns the result of `take`. A file that cannot be used is renamed (`.bad`
/// behind its name) and reported at INFO, with `what` as the name of its content. In that case, and
/// if there is no file, the default is returned.
pub(crate) fn load<D: Document, T: Default>(path: &Path, what: &str, take: impl FnOnce(D) -> io::Result<T>) -> T {
    match read(path).and_then(take) {
        Ok(taken) => taken,
        Err(error) if error.kind() == io::ErrorKind::NotFound => T::default(),
        Err(error) => {
            let aside = with_suffix(path, ".bad");
            let kept = fs::rename(path, &aside).is_ok();
            tracing::info!(
                path = %path.display(), %error, kept_as = kept.then(|| aside.display().to_string()),
                "{what} are unusable; starting without"
            );
            T::default()
        }
    }
}

/// Writes `path` as a whole or not at all. It is not synced to the disk: a crash may lose it, but
/// not truncate it.
///
/// # Errors
/// The error of the system; the old file stays.
pub(crate) fn save(path: &Path, document: &impl Document) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(document).map_err(io::Error::from)?;
    text.push('\n');
    let new = with_suffix(path, ".new");
    // A file left by a crash would keep its mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| drop(fs::remove_file(&new)))
}

/// The error of a file that cannot be used.
pub(crate) fn invalid(why: &impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn read<D: Document>(path: &Path) -> io::Result<D> {
    let mut text = String::new();
    File::open(path)?.take(MAX_LEN).read_to_string(&mut text)?;
    let document: D = serde_json::from_str(&text).map_err(io::Error::from)?;
    if document.schema() != D::SCHEMA {
        return Err(invalid(&format_args!("its schema is not {}", D::SCHEMA)));
    }
    Ok(document)
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}
