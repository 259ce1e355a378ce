//! JSON files that outlive the process: written as a whole or not at all, and on the disk before a verb is answered.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use weft_os::file::{open_plain, with_suffix};

use crate::settings::SettingsError;

/// The longest file that is read, in bytes. One of a transfer is far shorter.
const MAX_LEN: u64 = 16 << 20;

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// The system does not let it be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is not what such a file is.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// Another version of weft has written it.
    #[error("its schema is {0}, which this version of weft does not know")]
    Schema(String),
}

/// What a user has set, in a file of its own.
pub(crate) trait Setting: Clone + Default + Serialize + DeserializeOwned {
    /// The schema of the file.
    const SCHEMA: &'static str;
    /// The command that sets it.
    const COMMAND: &'static str;

    /// Reads the file `path`; the default if there is none.
    ///
    /// # Errors
    /// [`SettingsError::Unusable`] for a file that is damaged, or of another version: the default would then let in
    /// what the user does not want, or keep out what is wanted.
    fn load(path: &Path) -> Result<Self, SettingsError> {
        let read = read(path, Self::SCHEMA).map_err(|why| SettingsError::Unusable {
            of: Self::COMMAND,
            path: path.to_owned(),
            why: why.to_string(),
        });
        Ok(read?.unwrap_or_default())
    }

    /// Writes the file `path` as a whole, and to the disk.
    ///
    /// # Errors
    /// [`SettingsError::Unsaved`]; the old file stays.
    fn save(&self, path: &Path) -> Result<(), SettingsError> {
        write(path, Self::SCHEMA, self).map_err(|source| SettingsError::Unsaved {
            path: path.to_owned(),
            source,
        })
    }

    /// Makes a change that is on the disk when this returns.
    ///
    /// # Errors
    /// That of the change, or of [`Setting::save`]; nothing has changed.
    fn change<R, E: From<SettingsError>>(
        &mut self,
        path: &Path,
        change: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut changed = self.clone();
        let result = change(&mut changed)?;
        changed.save(path)?;
        *self = changed;
        Ok(result)
    }
}

#[derive(Serialize)]
struct With<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// Reads a document with this schema; `None` if the file does not exist.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<Option<T>, Unusable> {
    let file = match open_plain(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        return Err(Unusable::Damaged(format!("it has more than {MAX_LEN} bytes")));
    }
    let damaged = |error: serde_json::Error| Unusable::Damaged(error.to_string());
    // Looked at first: the fields of another version are other ones.
    let mut fields: Map<String, Value> = serde_json::from_slice(&text).map_err(damaged)?;
    match fields.remove("schema") {
        Some(Value::String(told)) if told == schema => {}
        Some(Value::String(told)) => return Err(Unusable::Schema(told.escape_debug().to_string())),
        _ => return Err(Unusable::Damaged("it has no schema".to_owned())),
    }
    serde_json::from_value(Value::Object(fields)).map(Some).map_err(damaged)
}

/// Writes a document with mode 0600, so that a power failure afterwards leaves the new file, and one meanwhile the
/// old or the new one.
pub(crate) fn write<T: Serialize>(path: &Path, schema: &str, body: &T) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(&With { schema, body }).map_err(io::Error::from)?;
    text.push(b'\n');
    let new = with_suffix(path, ".new");
    // A file left by a crash would keep its mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&text)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| drop(fs::remove_file(&new)))?;
    sync_names(path)
}

/// Has the names in the directory of `path` written to the disk.
pub(crate) fn sync_names(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
