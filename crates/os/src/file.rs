//! Files in ways that the standard library does not offer.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

/// Exchanges two files of one file system in one step: each name then has what the other one had, a
/// symbolic link included. At no time does either name lack a file.
///
/// # Errors
/// `InvalidInput` if the file system cannot do it (NFS), `ResourceBusy` if something is mounted on one
/// of them, and the other errors of the system.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// The path of a file beside `path`: its name with `suffix` behind it.
#[must_use]
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Opens a regular file to read it, unless the last step of its path is a symbolic link. It never waits,
/// as the opening of a FIFO does.
///
/// # Errors
/// As [`open_plain_in`].
pub fn open_plain(path: &Path) -> io::Result<File> {
    open_plain_in(CWD, path)
}

/// Opens a file as [`open_plain`] does, by its path from an open directory.
///
/// # Errors
/// The error of the system. It is that of too many links (`ELOOP`) for a link, and `InvalidInput` for
/// anything else that is not a regular file.
pub fn open_plain_in(directory: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat(directory, path, flags, Mode::empty())?);
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
    file.metadata()?.is_file().then_some(file).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_fifo_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("weft-fifo-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let refused = open_plain(&path).map(drop);
        fs::remove_file(&path).unwrap();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn files_and_links_change_places() {
        let directory = std::env::temp_dir().join(format!("weft-exchange-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.join(name));
        fs::write(&one, "1").unwrap();
        std::os::unix::fs::symlink(&one, &other).unwrap();
        assert!(open_plain(&one).is_ok() && open_plain(&other).is_err());
        exchange(&one, &other).unwrap();
        assert_eq!(fs::read_link(&one).unwrap(), one);
        assert_eq!(fs::read_to_string(&other).unwrap(), "1");
        let missing = exchange(&one, &directory.join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        fs::remove_dir_all(&directory).unwrap();
    }
}
