//! A file lock: one process per state directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A lock on a file, held until it is dropped or the process ends, however it ends. The file stays.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl Drop for FileLock {
    /// A process that was started meanwhile has the file, too, until it runs its program: closing this one does not
    /// end the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl FileLock {
    /// Takes the lock on `path` (flock(2)), creating the file (mode 0600) if it does not exist.
    ///
    /// # Errors
    /// [`LockError::Held`] at once if another holder exists, also in this process.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| LockError::Open {
                path: path.to_owned(),
                source,
            })?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(LockError::Held(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(LockError::Unsupported {
                path: path.to_owned(),
                source,
            }),
        }
    }
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another holder has it.
    #[error("{} is locked by another process", .0.display())]
    Held(PathBuf),
    /// The file cannot be opened or created.
    #[error("the lock file {} cannot be opened", .path.display())]
    Open {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file system does not support locks.
    #[error("the lock file {} cannot be locked", .path.display())]
    Unsupported {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_another_descriptor_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::acquire(&path).unwrap();
        // As a process has it that was forked and does not run its program yet.
        let inherited = lock.file.try_clone().unwrap();
        drop(lock);
        FileLock::acquire(&path).unwrap();
        drop(inherited);
    }

    #[test]
    fn held_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::acquire(&path).unwrap();
        assert!(matches!(FileLock::acquire(&path), Err(LockError::Held(at)) if at == path));
        drop(lock);
        let _again = FileLock::acquire(&path).unwrap();
    }

    #[test]
    fn a_missing_directory_is_named() {
        let path = Path::new("/nonexistent/weft/lock");
        assert!(matches!(FileLock::acquire(path), Err(LockError::Open { path: at, .. }) if at == path));
    }
}
