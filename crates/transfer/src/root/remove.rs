//! The removal of a folder with all that is in it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, fstat, unlinkat};
use rustix::io::Errno;

use super::Root;
use super::resolve::{change_mode, open_folder};
use crate::names::RelPath;

impl Root {
    /// Removes a file or a folder with all that is in it; nothing to remove is no error. No link is followed. Folders
    /// without permissions get them. One folder is open at a time, so trees are as deep as the system lets them be.
    ///
    /// # Errors
    /// The first error of the system, which ends the removal: `DirectoryNotEmpty` if another process goes on to put
    /// files there.
    pub fn remove_all(&self, rel: &RelPath) -> io::Result<()> {
        let place = match self.place(rel) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        let base = place.folder.as_fd();
        if !remove_one(base, place.name)? {
            remove_tree(base, place.name)?;
        }
        Ok(())
    }
}

/// A folder above the open one.
struct Above {
    /// Which it is: device and inode.
    id: (u64, u64),
    /// The name that the folder below it has there.
    name: Vec<u8>,
}

/// Removes a folder in an open one.
fn remove_tree(base: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    let mut above: Vec<Above> = Vec::new();
    let mut folder = enter(base, name)?;
    loop {
        if let Some(name) = empty(folder.as_fd())? {
            let below = enter(folder.as_fd(), &name)?;
            above.push(Above { id: id(&folder)?, name });
            folder = below;
        } else if let Some(parent) = above.pop() {
            // If another process moved the folder, the one above it is not the one from which it was entered.
            let up = open_folder(folder.as_fd(), b"..", OFlags::RDONLY)?;
            if id(&up)? != parent.id {
                return Err(io::Error::other("a folder was moved while it was removed"));
            }
            folder = up;
            remove_empty(folder.as_fd(), &parent.name)?;
        } else {
            return Ok(remove_empty(base, name)?);
        }
    }
}

/// Removes what is in a folder, up to the first folder that is not empty: its name.
fn empty(folder: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    // Some file systems leave names out of a listing while others are removed, so the last listing has no names.
    loop {
        let mut removed = false;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if !remove_one(folder, name)? {
                return Ok(Some(name.to_vec()));
            }
            removed = true;
        }
        if !removed {
            return Ok(None);
        }
    }
}

/// Removes a file or an empty folder: `false` for a folder that is not empty.
fn remove_one(folder: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    let refused = match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        // Linux says the one, POSIX the other for a folder.
        Err(error @ (Errno::ISDIR | Errno::PERM)) => error,
        Err(error) => return Err(error),
    };
    match remove_empty(folder, name) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(Errno::NOTDIR) => Err(refused),
        Err(error) => Err(error),
    }
}

/// Removes an empty folder, unless it is gone.
fn remove_empty(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Opens a folder whose files are to be removed.
fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let folder = match open_folder(parent, name, OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            change_mode(parent, name, Mode::RWXU)?;
            open_folder(parent, name, OFlags::RDONLY)
        }
        opened => opened,
    }?;
    if !Mode::from_raw_mode(fstat(&folder)?.st_mode).contains(Mode::RWXU) {
        // A folder of another user cannot be changed. What is in it says then whether it can be removed.
        let _ = fchmod(&folder, Mode::RWXU);
    }
    Ok(folder)
}

/// Which folder it is.
#[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
fn id(folder: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(folder)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}
