//! Renames that replace nothing.

use std::io;

use rustix::fs::{AtFlags, FileType, RenameFlags, linkat, renameat, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use super::Root;
use super::resolve::Place;
use crate::names::RelPath;

impl Root {
    /// Renames a file, folder or link to a path below another root, or this one, in the same file system. With `replace`
    /// it takes the place of a file, or of an empty folder if it is a folder.
    ///
    /// Where the file system cannot refuse by itself to replace something, a file is linked and then unlinked, and the
    /// new name of a folder is looked up before: there an empty folder made by another process at that moment is lost.
    ///
    /// # Errors
    /// `AlreadyExists` without `replace` if anything has the new name, `CrossesDevices` if that is in another file
    /// system, and the error of the system.
    pub fn rename_to(&self, from: &RelPath, to_root: &Self, to: &RelPath, replace: bool) -> io::Result<()> {
        let (from, to) = (self.place(from)?, to_root.place(to)?);
        if replace {
            return Ok(renameat(&from.folder, from.name, &to.folder, to.name)?);
        }
        match renameat_with(&from.folder, from.name, &to.folder, to.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_by_links(&from, &to)?,
            renamed => renamed?,
        }
        Ok(())
    }
}

/// A rename that replaces nothing, where the file system has no such call (NFS, some of FUSE).
pub(super) fn rename_by_links(from: &Place<'_>, to: &Place<'_>) -> Result<(), Errno> {
    let stat = statat(&from.folder, from.name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return rename_if_free(from, to);
    }
    match linkat(&from.folder, from.name, &to.folder, to.name, AtFlags::empty()) {
        // There are no hard links, or none to this file.
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => return rename_if_free(from, to),
        linked => linked?,
    }
    let unlinked = unlinkat(&from.folder, from.name, AtFlags::empty());
    if unlinked.is_err() {
        // It keeps the old name alone; the error says why.
        let _ = unlinkat(&to.folder, to.name, AtFlags::empty());
    }
    unlinked
}

/// A rename after a look at the new name.
pub(super) fn rename_if_free(from: &Place<'_>, to: &Place<'_>) -> Result<(), Errno> {
    match statat(&to.folder, to.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(Errno::EXIST),
        Err(Errno::NOENT) => renameat(&from.folder, from.name, &to.folder, to.name),
        Err(error) => Err(error),
    }
}
