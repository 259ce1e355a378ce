//! The file of a configuration: who may write it, and the first one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use weft_os::file::{open_plain, with_suffix};
use weft_os::process::effective_uid;

use super::{Config, ConfigError, MAX_LEN};

/// Which links are followed to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// Those of this user and of root: the user has put the file elsewhere. Others may make links in the
    /// directory of the file, as the daemon may in that of its state.
    Trusted,
    /// None.
    None,
}

/// Reads the file `path`, which only this user and root may write.
pub(super) fn read(path: &Path, links: Links) -> Result<Vec<u8>, ConfigError> {
    let own = effective_uid();
    read_open(&open(path, links, own)?, path)
}

/// Reads an open file, which only this user and root may write.
pub(super) fn read_open(file: &File, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |source| unreadable(path, source);
    let own = effective_uid();
    check_access(path, &file.metadata().map_err(failed)?, own)?;
    let mut bytes = Vec::new();
    file.take(MAX_LEN as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_LEN {
        return Err(ConfigError::TooLong(path.to_owned()));
    }
    Ok(bytes)
}

fn open(path: &Path, links: Links, own: u32) -> Result<File, ConfigError> {
    open_plain(path).or_else(|error| match link_of(path) {
        None => Err(unreadable(path, error)),
        Some(owner) => {
            check_link(path, links, (owner, own))?;
            File::open(path).map_err(|error| unreadable(path, error))
        }
    })
}

fn unreadable(path: &Path, source: io::Error) -> ConfigError {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ConfigError::NotFound(path.to_owned()),
        _ => ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        },
    }
}

/// The owner of a link; `None` if there is none.
fn link_of(path: &Path) -> Option<u32> {
    let found = fs::symlink_metadata(path).ok()?;
    found.is_symlink().then(|| found.uid())
}

/// Refuses a link that is not followed. One that is followed stays what it is: in a directory where
/// others make links, only its owner removes it (the sticky bit).
fn check_link(path: &Path, links: Links, (owner, own): (u32, u32)) -> Result<(), ConfigError> {
    match links {
        Links::Trusted if owner == own || owner == 0 => Ok(()),
        _ => Err(ConfigError::Link {
            path: path.to_owned(),
            owner,
        }),
    }
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
/// a new file has mode 0600. Of a link that is followed, the file elsewhere is replaced.
pub(super) fn replace(path: &Path, text: &str, links: Links) -> Result<(), ConfigError> {
    let unwritable = |source| ConfigError::Unwritable {
        path: path.to_owned(),
        source,
    };
    let own = effective_uid();
    let target = match link_of(path) {
        Some(owner) => {
            check_link(path, links, (owner, own))?;
            fs::canonicalize(path).map_err(unwritable)?
        }
        None => path.to_owned(),
    };
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let new = with_suffix(&target, ".new");
    let write = || {
        // A file left by a crash would keep its mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        // The name may have become a link since: the rename replaces it, and it gives no mode.
        if let Ok(before) = fs::symlink_metadata(&target)
            && before.is_file()
        {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
            file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &target)?;
        File::open(directory)?.sync_all()
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
        fs::write(&file, "lanes = 1\n").unwrap();
        symlink(&file, &link).unwrap();
        // A link of one's own, as to a file in another place.
        assert_eq!(read(&link, Links::Trusted).unwrap(), b"lanes = 1\n");
        replace(&link, "lanes = 2\n", Links::Trusted).unwrap();
        let refused = |links| {
            matches!(read(&link, links), Err(ConfigError::Link { .. }))
                && matches!(replace(&link, "lanes = 3\n", links), Err(ConfigError::Link { .. }))
        };
        assert!(refused(Links::None));
        assert!(link.is_symlink());
        // Only root can make a link that is not its own.
        match effective_uid() {
            0 if lchown(&link, Some(4001), None).is_ok() => assert!(refused(Links::Trusted)),
            own => assert!(check_link(&link, Links::Trusted, (own + 1, own)).is_err()),
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "lanes = 2\n");
    }

    #[test]
    fn a_name_that_became_a_link_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let [victim, name] = ["victim", "name"].map(|name| directory.path().join(name));
        fs::write(&victim, "secret\n").unwrap();
        fs::write(&name, "lanes = 1\n").unwrap();
        let file = open_plain(&name).unwrap();
        fs::remove_file(&name).unwrap();
        symlink(&victim, &name).unwrap();
        assert_eq!(read_open(&file, &name).unwrap(), b"lanes = 1\n");
        assert!(replace(&name, "lanes = 2\n", Links::None).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret\n");
    }
}
