//! The state directory: what one node keeps between runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use weft_os::lock::{FileLock, LockError};

use crate::config::Config;

/// Where the files of a state directory are. Knowing them needs no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePaths {
    directory: PathBuf,
}

impl StatePaths {
    /// The files under `directory`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// The files in the usual place: `/var/lib/weft` for root; for others `$XDG_STATE_HOME/weft`, or
    /// `~/.local/state/weft`.
    ///
    /// # Errors
    /// [`StateError::NoHome`] if the environment tells no place.
    pub fn default_place() -> Result<Self, StateError> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        if crate::keyfile::effective_uid().is_ok_and(|uid| uid == 0) {
            return Ok(Self::new("/var/lib/weft"));
        }
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|base| Self::new(base.join("weft")))
            .ok_or(StateError::NoHome)
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The configuration, unless another one is named: `weft.toml`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.join("weft.toml")
    }

    /// The secret key that `config` names; by default `identity.key`.
    #[must_use]
    pub fn key(&self, config: &Config) -> PathBuf {
        self.directory.join(&config.key_file)
    }

    /// The control socket: `control.sock`.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// The last known addresses of the peers: `peers.json`.
    #[must_use]
    pub fn known_peers(&self) -> PathBuf {
        self.directory.join("peers.json")
    }

    /// Which peers have ever been fast: `fast.json`.
    #[must_use]
    pub fn fast_peers(&self) -> PathBuf {
        self.directory.join("fast.json")
    }

    /// The lock: `lock`.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.directory.join("lock")
    }
}

/// A state directory that this process owns until it is dropped.
#[derive(Debug)]
pub struct StateDir {
    paths: StatePaths,
    _lock: FileLock,
}

impl StateDir {
    /// Makes the directory (mode 0700, parents too) if there is none, and takes its lock.
    ///
    /// # Errors
    /// [`StateError::InUse`] if another process owns it, one variant for each other cause.
    pub fn open(paths: StatePaths) -> Result<Self, StateError> {
        let directory = paths.directory();
        let failed = |source| StateError::Directory {
            path: directory.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed)?;
        let mode = fs::metadata(directory).map_err(failed)?.mode();
        // Anybody could put another socket or configuration in place. A group may be the user's own, and was
        // let in on purpose otherwise.
        if mode & 0o002 != 0 {
            return Err(StateError::Mode {
                path: directory.to_owned(),
                mode: mode & 0o7777,
            });
        }
        match FileLock::acquire(&paths.lock()) {
            Ok(lock) => Ok(Self { paths, _lock: lock }),
            Err(LockError::Held(_)) => Err(StateError::InUse(paths.directory)),
            Err(LockError::Open { source, .. } | LockError::Unsupported { source, .. }) => Err(failed(source)),
        }
    }

    /// Where its files are.
    #[must_use]
    pub fn paths(&self) -> &StatePaths {
        &self.paths
    }
}

/// Why there is no state directory. Printed, it is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
    #[error("no home directory is known (HOME is unset); name a state directory with --state")]
    NoHome,
    /// Another process has the lock.
    #[error("another weft process uses the state directory: {}; stop it with `weft down`, or choose another with --state", .0.display())]
    InUse(PathBuf),
    /// Everybody may write into it.
    #[error("everybody may write into the state directory (mode {mode:04o}): {path}; chmod 700 {path}", path = .path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It cannot be made, read or locked.
    #[error("the state directory cannot be used ({source}): {}; choose another with --state", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
