//! The state directory: the data that one node keeps between runs.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use weft_os::lock::{FileLock, LockError};
use weft_os::process::{Ids, give_file, is_service_group};

use crate::config::Config;
use crate::keyfile::effective_uid;

/// The state directory of root's daemon.
const SYSTEM: &str = "/var/lib/weft";

/// The paths of the files of a state directory. The directory need not exist.
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

    /// The files in the default directory: `/var/lib/weft` for root; for other users
    /// `$XDG_STATE_HOME/weft`, or `~/.local/state/weft`.
    ///
    /// # Errors
    /// [`StateError::NoHome`] if the environment has no home directory.
    pub fn default_place() -> Result<Self, StateError> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        if effective_uid().is_ok_and(|uid| uid == 0) {
            return Ok(Self::new(SYSTEM));
        }
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|base| Self::new(base.join("weft")))
            .ok_or(StateError::NoHome)
    }

    /// The files of the daemon that a command without a directory addresses: those in the default
    /// directory if a daemon has a socket there, otherwise those of root's daemon if there is one.
    ///
    /// # Errors
    /// [`StateError::NoHome`], as [`StatePaths::default_place`].
    pub fn of_daemon() -> Result<Self, StateError> {
        Ok(Self::default_place()?.or_system(Self::new(SYSTEM)))
    }

    /// Returns these paths, or `system` if only there a daemon has, or may have, its socket.
    fn or_system(self, system: Self) -> Self {
        let of = |paths: &Self| fs::symlink_metadata(paths.control()).map_err(|error| error.kind());
        match (of(&self), of(&system)) {
            (Ok(_), _) => self,
            // A directory that this user cannot read may have a socket; a request there returns an
            // error that says what to do.
            (Err(_), Ok(_) | Err(io::ErrorKind::PermissionDenied)) => system,
            (Err(_), Err(_)) => self,
        }
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The configuration, unless another file is given: `weft.toml`.
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
    pub fn last_addresses(&self) -> PathBuf {
        self.directory.join("peers.json")
    }

    /// The peers that have ever used fast frames: `fast.json`.
    #[must_use]
    pub fn fast_peers(&self) -> PathBuf {
        self.directory.join("fast.json")
    }

    /// The files that a daemon writes while it runs.
    fn written(&self) -> impl Iterator<Item = PathBuf> {
        let documents = [self.last_addresses(), self.fast_peers()];
        let names = documents
            .into_iter()
            .flat_map(|path| ["", ".new", ".bad"].map(|suffix| crate::statefile::with_suffix(&path, suffix)));
        names.chain([self.control()])
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
    /// Creates the directory (mode 0700, with parents) if it does not exist, and takes its lock.
    ///
    /// # Errors
    /// [`StateError::InUse`] if another process owns it, one variant for each other cause.
    pub fn open(paths: StatePaths) -> Result<Self, StateError> {
        let directory = paths.directory();
        let failed = |source| StateError::unusable(directory, source);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(failed)?;
        check_directory(directory, &fs::metadata(directory).map_err(failed)?)?;
        match FileLock::acquire(&paths.lock()) {
            Ok(lock) => Ok(Self { paths, _lock: lock }),
            Err(LockError::Held(_)) => Err(StateError::InUse(paths.directory)),
            Err(LockError::Open { source, .. } | LockError::Unsupported { source, .. }) => Err(failed(source)),
        }
    }

    /// The paths of its files.
    #[must_use]
    pub fn paths(&self) -> &StatePaths {
        &self.paths
    }

    /// Permits the user `ids` to keep in the directory what a daemon discovers, and no more. The
    /// directory stays root's and gets the user's group and the sticky bit, so that the user can
    /// neither change nor replace the key, the configuration and the lock. Files of earlier runs
    /// that the daemon writes become the user's.
    ///
    /// # Errors
    /// [`StateError::Directory`] with the error of the system.
    pub fn hand_over(&self, ids: Ids) -> Result<(), StateError> {
        let directory = self.paths.directory();
        let failed = |source| StateError::unusable(directory, source);
        let mode = fs::metadata(directory).map_err(failed)?.mode();
        chown(directory, None, Some(ids.gid)).map_err(failed)?;
        // The group is set before the mode: the previous group must not get the right to write for
        // a moment.
        let mode = fs::Permissions::from_mode((mode & 0o705) | 0o1070);
        fs::set_permissions(directory, mode).map_err(failed)?;
        for path in self.paths.written() {
            match give_file(&path, ids) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(StateError::unusable(&path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the directory the process's working directory and uses relative paths from then on.
    /// After that the files can be reached even if the directories above are closed to the user
    /// that the process becomes.
    ///
    /// # Errors
    /// [`StateError::Directory`]
    pub fn enter(self) -> Result<Self, StateError> {
        let directory = self.paths.directory();
        std::env::set_current_dir(directory).map_err(|source| StateError::unusable(directory, source))?;
        Ok(Self {
            paths: StatePaths::new("."),
            ..self
        })
    }
}

/// Refuses a directory in which another user could replace the key, the socket or the
/// configuration: a directory of another user, and one into which a group or all users may write.
/// The group of root's daemon may, under the sticky bit; see [`StateDir::hand_over`].
fn check_directory(path: &Path, metadata: &fs::Metadata) -> Result<(), StateError> {
    let own = effective_uid().map_err(|source| StateError::unusable(path, source))?;
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != own && owner != 0 {
        let path = path.to_owned();
        return Err(StateError::Owner { path, owner, own });
    }
    let handed_over = || mode & 0o1000 != 0 && owner == 0 && is_service_group(metadata.gid());
    if mode & 0o002 != 0 || (mode & 0o020 != 0 && !handed_over()) {
        let path = path.to_owned();
        return Err(StateError::Mode { path, mode });
    }
    Ok(())
}

/// The reason why there is no state directory. Its text is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
    #[error("no home directory is known (HOME is unset); name a state directory with --state")]
    NoHome,
    /// Another process has the lock.
    #[error("another weft process uses the state directory: {}; stop it with `weft down`, or choose another with --state", .0.display())]
    InUse(PathBuf),
    /// The directory belongs to another user.
    #[error("the state directory belongs to another user (uid {owner}): {path}; run as that user, or chown {own} {path}", path = .path.display())]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// A group or all users may write into it.
    #[error("others may write into the state directory (mode {mode:04o}): {path}; chmod 700 {path}", path = .path.display())]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It cannot be created, read or locked.
    #[error("the state directory cannot be used ({source}): {}; choose another with --state", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl StateError {
    fn unusable(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Directory { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_finds_its_own_daemon_first_and_then_root_s() {
        let base = tempfile::tempdir().unwrap();
        let [own, system] = ["own", "system"].map(|name| StatePaths::new(base.path().join(name)));
        let find = || own.clone().or_system(system.clone());
        assert_eq!(find(), own, "no daemon anywhere");
        fs::create_dir(system.directory()).unwrap();
        assert_eq!(find(), own, "root's daemon has stopped");
        fs::write(system.control(), "").unwrap();
        assert_eq!(find(), system);
        fs::create_dir(own.directory()).unwrap();
        assert_eq!(find(), system);
        fs::write(own.control(), "").unwrap();
        assert_eq!(find(), own);
    }
}
