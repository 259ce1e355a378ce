//! How a path below a root becomes an open folder and a name in it.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, chmodat, fchmod, fstat, openat, openat2};
use rustix::io::{Errno, retry_on_intr};

use super::Root;
use crate::names::RelPath;

/// A name in an open folder. The functions of the system that take it follow no link.
pub(super) struct Place<'a> {
    pub(super) folder: Folder<'a>,
    pub(super) name: &'a [u8],
}

/// An open folder: that of the root, or one below it.
pub(super) enum Folder<'a> {
    Own(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Folder<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(fd) => *fd,
            Self::Below(fd) => fd.as_fd(),
        }
    }
}

impl Root {
    /// The place of a path.
    pub(super) fn place<'a>(&'a self, rel: &'a RelPath) -> io::Result<Place<'a>> {
        let folder = match rel.parent() {
            Some(parent) => Folder::Below(self.folder(&parent, OFlags::PATH)?),
            None => Folder::Own(self.fd.as_fd()),
        };
        Ok(Place {
            folder,
            name: rel.name(),
        })
    }

    /// Opens a folder below the root.
    pub(super) fn folder(&self, rel: &RelPath, access: OFlags) -> io::Result<OwnedFd> {
        if !self.goes_by_steps() {
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match retry_on_intr(|| openat2(&self.fd, rel.as_bytes(), flags, Mode::empty(), how)) {
                // Kernels before 5.6 lack it, and filters of system calls that are older do not let it pass.
                Err(Errno::NOSYS | Errno::PERM) => self.steps.store(true, Ordering::Relaxed),
                opened => return Ok(opened?),
            }
        }
        self.step_by_step(rel, access)
    }

    /// Whether paths are resolved step by step.
    pub(super) fn goes_by_steps(&self) -> bool {
        self.steps.load(Ordering::Relaxed)
    }

    /// Opens a folder below the root as [`Root::folder`] does, one component after the other.
    fn step_by_step(&self, rel: &RelPath, access: OFlags) -> io::Result<OwnedFd> {
        let mut folder = Folder::Own(self.fd.as_fd());
        let mut names = rel.components().peekable();
        while let Some(name) = names.next() {
            let last = names.peek().is_none();
            let access = if last { access } else { OFlags::PATH };
            let next = open_folder(folder.as_fd(), name, access)?;
            if last {
                return Ok(next);
            }
            folder = Folder::Below(next);
        }
        // A path has a component.
        Err(Errno::INVAL.into())
    }
}

/// Opens a folder in an open one. A link is none.
pub(super) fn open_folder(folder: BorrowedFd<'_>, name: &[u8], access: OFlags) -> Result<OwnedFd, Errno> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| openat(folder, name, flags, Mode::empty()))
}

/// Sets the permissions of a regular file or folder.
pub(super) fn change_mode(folder: BorrowedFd<'_>, name: &[u8], mode: Mode) -> io::Result<()> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match retry_on_intr(|| openat(folder, name, flags | OFlags::RDONLY, Mode::empty())) {
        Ok(file) => {
            require_plain(&file)?;
            Ok(fchmod(file, mode)?)
        }
        // What its owner may not read is opened without that. Then only its path in /proc changes it: before Linux 6.6
        // the call with a name follows links.
        Err(Errno::ACCESS) => {
            let file = openat(folder, name, flags | OFlags::PATH, Mode::empty())?;
            require_plain(&file)?;
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            Ok(chmodat(CWD, path, mode, AtFlags::empty())?)
        }
        Err(error) => Err(irregular(error).into()),
    }
}

/// `INVAL` for an error with which the system refuses to open what is no regular file: links, sockets, folders.
pub(super) fn irregular(error: Errno) -> Errno {
    match error {
        Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::NODEV => Errno::INVAL,
        other => other,
    }
}

/// `INVAL` if something is neither a regular file nor a folder.
fn require_plain(file: &OwnedFd) -> Result<(), Errno> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(()),
        _ => Err(Errno::INVAL),
    }
}
