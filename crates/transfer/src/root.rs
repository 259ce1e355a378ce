//! Files below one folder, and nowhere else.
//!
//! A path that a peer chose is resolved from an open folder on, without a step upwards and without following a link,
//! whatever another process changes at the same time. So nothing is read or written outside of the folder, also if a
//! part of the path is replaced by a symbolic link between two calls.

mod meta;
mod remove;
mod rename;
mod resolve;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fstatvfs, fsync, mkdirat, openat, readlinkat,
    statat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::{Errno, retry_on_intr};

use crate::names::RelPath;

pub use meta::{Kind, Meta};

/// The bits of modes that are set: never setuid, setgid or sticky.
const PERMISSIONS: u32 = 0o777;

/// An open folder, with the files below it.
///
/// Each path is relative to it. A component that is a symbolic link is an error in all functions, except for the last
/// component in those that concern a link itself. Two kinds of errors are common to all: `NotFound` if a folder of the
/// path is missing, and `NotADirectory` or the error of too many links (`ELOOP`) if one is a file or a link.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether paths are resolved step by step, because this system has no openat2(2).
    steps: AtomicBool,
}

impl Root {
    /// Opens a folder that exists. The path is the choice of the user, so its links are followed.
    ///
    /// # Errors
    /// The error of the system: `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        Ok(Self::of(fd, path.to_owned(), false))
    }

    /// Opens a folder, and makes it and those above it if they are missing, for this user alone (mode 0700).
    ///
    /// # Errors
    /// The error of the system.
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// A folder below this one as a root of its own: nothing above it is reached through it.
    ///
    /// # Errors
    /// The error of the system; `NotADirectory` if it is something else.
    pub fn enter(&self, rel: &RelPath) -> io::Result<Self> {
        let fd = self.folder(rel, OFlags::RDONLY)?;
        Ok(Self::of(fd, self.path.join(rel.as_path()), self.goes_by_steps()))
    }

    /// Makes a folder, whose parents exist, and says whether it did: `false` if it exists. Of `mode` the permissions
    /// count, without those that the mask of the process takes away.
    ///
    /// # Errors
    /// `AlreadyExists` if something else has that name, a link to a folder included, and the error of the system.
    pub fn make_dir(&self, rel: &RelPath, mode: u32) -> io::Result<bool> {
        let place = self.place(rel)?;
        match mkdirat(&place.folder, place.name, permissions(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => match self.stat(rel)? {
                Some(meta) if meta.kind == Kind::Dir => Ok(false),
                _ => Err(Errno::EXIST.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a folder and those above it, for this user alone (mode 0700). Those that exist are left as they are.
    ///
    /// # Errors
    /// As those of [`Root::make_dir`].
    pub fn make_dirs(&self, rel: &RelPath) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut next = Some(rel.clone());
        while let Some(rel) = next {
            match self.make_dir(&rel, 0o700) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => next = rel.parent(),
                Err(error) => return Err(error),
            }
            missing.push(rel);
        }
        missing
            .iter()
            .rev()
            .try_for_each(|rel| self.make_dir(rel, 0o700).map(drop))
    }

    /// Makes a file, for reading and writing, that no other user may read (mode 0600).
    ///
    /// # Errors
    /// `AlreadyExists` if anything has that name, and the error of the system.
    pub fn create_new(&self, rel: &RelPath) -> io::Result<File> {
        let place = self.place(rel)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(retry_on_intr(|| openat(&place.folder, place.name, flags, mode))?.into())
    }

    /// Opens a regular file for reading and writing. It never waits, as the opening of a FIFO does.
    ///
    /// # Errors
    /// `InvalidInput` if it is no regular file, a link included, and the error of the system.
    pub fn open_rw(&self, rel: &RelPath) -> io::Result<File> {
        self.open_file(rel, OFlags::RDWR)
    }

    /// Opens a regular file for reading. It never waits, as the opening of a FIFO does.
    ///
    /// # Errors
    /// As those of [`Root::open_rw`].
    pub fn open_read(&self, rel: &RelPath) -> io::Result<File> {
        self.open_file(rel, OFlags::RDONLY)
    }

    /// Makes a symbolic link. Its target is text that nothing here follows.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has that name, and the error of the system.
    pub fn symlink(&self, rel: &RelPath, target: &[u8]) -> io::Result<()> {
        let place = self.place(rel)?;
        Ok(symlinkat(target, &place.folder, place.name)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` if it is no link, and the error of the system.
    pub fn read_link(&self, rel: &RelPath) -> io::Result<Vec<u8>> {
        let place = self.place(rel)?;
        Ok(readlinkat(&place.folder, place.name, Vec::new())?.into_bytes())
    }

    /// What has that name; `None` if nothing has. A link is a link, whatever it leads to.
    ///
    /// # Errors
    /// The error of the system. If a folder of the path is missing, the answer is `None`.
    pub fn stat(&self, rel: &RelPath) -> io::Result<Option<Meta>> {
        Ok(self.raw_stat(rel)?.as_ref().map(Meta::of))
    }

    /// The names of what is in the folder itself, in ascending order of their bytes.
    ///
    /// # Errors
    /// The error of the system.
    pub fn names(&self) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.names_up_to(usize::MAX)?.0)
    }

    /// As [`Root::names`], at most so many of them, and whether there are more.
    ///
    /// # Errors
    /// The error of the system.
    pub fn names_up_to(&self, most: usize) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let mut names = Vec::new();
        let mut more = false;
        for entry in Dir::read_from(&self.fd)? {
            match entry?.file_name().to_bytes() {
                b"." | b".." => {}
                name if names.len() < most => names.push(name.to_vec()),
                _ => {
                    more = true;
                    break;
                }
            }
        }
        names.sort_unstable();
        Ok((names, more))
    }

    /// Removes a file, a link, or another thing that is no folder.
    ///
    /// # Errors
    /// `IsADirectory` for a folder, and the error of the system.
    pub fn remove_file(&self, rel: &RelPath) -> io::Result<()> {
        let place = self.place(rel)?;
        Ok(unlinkat(&place.folder, place.name, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, `NotADirectory`, and the error of the system.
    pub fn remove_dir(&self, rel: &RelPath) -> io::Result<()> {
        let place = self.place(rel)?;
        Ok(unlinkat(&place.folder, place.name, AtFlags::REMOVEDIR)?)
    }

    /// Sets the time of the last change of a file, folder or link: seconds since 1970, which may be negative, and
    /// nanoseconds.
    ///
    /// # Errors
    /// `InvalidInput` for 10^9 nanoseconds or more, and the error of the system.
    pub fn set_times(&self, rel: &RelPath, mtime_s: i64, mtime_ns: u32) -> io::Result<()> {
        // Greater values are commands to the system, such as the present time.
        if mtime_ns >= 1_000_000_000 {
            return Err(Errno::INVAL.into());
        }
        let kept = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let changed = Timespec {
            tv_sec: mtime_s,
            tv_nsec: mtime_ns.into(),
        };
        let times = Timestamps {
            last_access: kept,
            last_modification: changed,
        };
        let place = self.place(rel)?;
        Ok(utimensat(&place.folder, place.name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Sets the permissions of a regular file or folder. The mask of the process does not count.
    ///
    /// # Errors
    /// `InvalidInput` for anything else, and the error of the system.
    pub fn set_mode(&self, rel: &RelPath, mode: u32) -> io::Result<()> {
        let place = self.place(rel)?;
        resolve::change_mode(place.folder.as_fd(), place.name, permissions(mode))
    }

    /// Waits until all of the file system of this folder is on the disk.
    ///
    /// # Errors
    /// The error of the system, which is that of a write to the disk.
    pub fn sync_fs(&self) -> io::Result<()> {
        Ok(syncfs(&self.fd)?)
    }

    /// Waits until the names in the folder itself are on the disk.
    ///
    /// # Errors
    /// As those of [`Root::sync_fs`].
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.fd)?)
    }

    /// The bytes that this user can still write to the file system of this folder.
    ///
    /// # Errors
    /// The error of the system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let system = fstatvfs(&self.fd)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// The path with which the folder was opened, for messages. It may have been moved since.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// [`Root::stat`] with all that the system says.
    pub(crate) fn raw_stat(&self, rel: &RelPath) -> io::Result<Option<Stat>> {
        let found = self.place(rel).and_then(|place| {
            let stat = statat(&place.folder, place.name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(stat)
        });
        match found {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file.
    fn open_file(&self, rel: &RelPath, access: OFlags) -> io::Result<File> {
        let place = self.place(rel)?;
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| openat(&place.folder, place.name, flags, Mode::empty()));
        let file = File::from(opened.map_err(resolve::irregular)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(Errno::INVAL.into()),
        }
    }

    /// An open folder as a root.
    fn of(fd: OwnedFd, path: PathBuf, steps: bool) -> Self {
        Self {
            fd,
            path,
            steps: AtomicBool::new(steps),
        }
    }
}

/// The permissions of a mode.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & PERMISSIONS)
}

#[cfg(test)]
mod tests;
