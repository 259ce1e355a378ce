//! The file of a configuration: who may write it, and the first one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use weft_os::file::with_suffix;
use weft_os::process::effective_uid;

use super::{Config, ConfigError, MAX_LEN};

/// Reads the file `path`, which only this user and root may write.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ConfigError::NotFound(path.to_owned()),
        _ => ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        },
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    let own = effective_uid();
    check_access(path, &file.metadata().map_err(unreadable)?, own)?;
    let mut file = file.take(MAX_LEN as u64 + 1);
    file.read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_LEN {
        return Err(ConfigError::TooLong(path.to_owned()));
    }
    Ok(bytes)
}

/// Refuses a file that another user could have written, because the file decides which nodes may
/// send packets, and where to.
fn check_access(path: &Path, metadata: &fs::Metadata, own: u32) -> Result<(), ConfigError> {
    let path = path.to_owned();
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own && owner != 0 {
        return Err(ConfigError::Owner { path, owner, own });
    }
    // A pipe or a device has no content of its own.
    if metadata.is_file() && mode & 0o022 != 0 {
        return Err(ConfigError::Mode { path, mode });
    }
    Ok(())
}

/// Replaces the file `path` as a whole or not at all, and syncs it to the disk. Mode and owner stay;
/// a new file has mode 0600.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), ConfigError> {
    let unwritable = |source| ConfigError::Unwritable {
        path: path.to_owned(),
        source,
    };
    // A configuration may be a link to a file elsewhere, which is the one to replace.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let new = with_suffix(&target, ".new");
    let write = || {
        // A file left by a crash would keep its mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        if let Ok(before) = fs::metadata(&target) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
            file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &target)?;
        match target.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().inspect_err(|_| drop(fs::remove_file(&new))).map_err(unwritable)
}

/// Writes the first configuration to the new file `path` and syncs it to the disk.
pub(super) fn write_starter(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(Config::starter_text().as_bytes())
        .and_then(|()| file.sync_all())
        .inspect_err(|_| drop(fs::remove_file(path)))
}
