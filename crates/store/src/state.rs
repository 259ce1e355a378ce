//! The state directory: the data that one node keeps between runs, and the place of its control
//! socket.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown};
use std::path::{Path, PathBuf};

use weft_config::Config;
use weft_os::file::with_suffix;
use weft_os::lock::{FileLock, LockError};
use weft_os::process::{Ids, effective_uid, give_file, is_service_group};

use crate::network_files;

/// The state directory of root's daemon.
const SYSTEM: &str = "/var/lib/weft";

/// The directory of the control socket of root's daemon, which all users can reach.
const RUN: &str = "/run/weft";

/// The directory of transfers in a state directory.
const TRANSFER: &str = "transfer";

/// The paths of the files of a state directory. The directory need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePaths {
    directory: PathBuf,
    /// The directory of the control socket, if that is another one.
    control: Option<PathBuf>,
}

impl StatePaths {
    /// The files under `directory`, the control socket among them.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            control: None,
        }
    }

    /// The files of root's daemon: in `/var/lib/weft`, but the control socket in `/run/weft`.
    #[must_use]
    pub fn system() -> Self {
        Self {
            directory: SYSTEM.into(),
            control: Some(RUN.into()),
        }
    }

    /// The files in the default directory: [`StatePaths::system`] for root; for other users those
    /// in `$XDG_STATE_HOME/weft`, or `~/.local/state/weft`.
    ///
    /// # Errors
    /// [`StateError::NoHome`] if the environment has no home directory.
    pub fn default_place() -> Result<Self, StateError> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        if effective_uid() == 0 {
            return Ok(Self::system());
        }
        absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
            .map(|base| Self::new(base.join("weft")))
            .ok_or(StateError::NoHome)
    }

    /// The files of the daemon that a command without a directory addresses: the first of these
    /// that has a socket.
    ///
    /// 1. The user's own daemon, in the default directory.
    /// 2. Root's daemon, in `/run/weft`. For root this is the first.
    /// 3. A daemon that root started with `--state /var/lib/weft`, or of a version that had its
    ///    socket there.
    ///
    /// If none has, root's daemon if it has run here, otherwise the user's own. A user without a home
    /// directory, as the jobs of many services are, has no daemon of its own: root's is meant.
    #[must_use]
    pub fn of_daemon() -> Self {
        let own = Self::default_place().unwrap_or_else(|_| Self::system());
        own.or_first_of([Self::system(), Self::new(SYSTEM)])
    }

    /// As [`StatePaths::of_daemon`], for a process that may be older than the daemon: without a node of the user's own,
    /// root's daemon is meant, also if it has never run here.
    #[must_use]
    pub fn of_later_daemon() -> Self {
        let found = Self::of_daemon();
        match found.is_of_a_node() {
            true => found,
            false => Self::system(),
        }
    }

    /// Returns the first of these paths and `others` that has a socket; otherwise those of root's
    /// daemon, the first of `others`, if only that has a directory.
    fn or_first_of(self, others: [Self; 2]) -> Self {
        let has_socket = |paths: &&Self| fs::symlink_metadata(paths.control()).is_ok();
        if has_socket(&&self) {
            return self;
        }
        if let Some(found) = others.iter().find(has_socket) {
            return found.clone();
        }
        let [system, _] = others;
        // The directory stays when root's daemon stops.
        match !self.is_of_a_node() && system.directory.exists() {
            true => system,
            false => self,
        }
    }

    /// Whether the directory has more than the files of transfers, which a user without a node has, too.
    fn is_of_a_node(&self) -> bool {
        let is_of_a_node = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != TRANSFER);
        match fs::read_dir(&self.directory) {
            Ok(mut entries) => entries.any(is_of_a_node),
            Err(_) => self.directory.exists(),
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

    /// The control socket: `control.sock`, in this directory or, for root's daemon, in `/run/weft`.
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.control.as_ref().unwrap_or(&self.directory).join("control.sock")
    }

    /// The directory of the control socket, if it is not the state directory. All users can reach
    /// the socket there.
    #[must_use]
    pub fn control_directory(&self) -> Option<&Path> {
        self.control.as_deref()
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

    /// The key and the port for devices with WireGuard: `wireguard.json`.
    #[must_use]
    pub fn wireguard(&self) -> PathBuf {
        self.directory.join("wireguard.json")
    }

    /// The directory of the process that moves the files of this user: `transfer`.
    #[must_use]
    pub fn transfer(&self) -> PathBuf {
        self.directory.join(TRANSFER)
    }

    /// The files that a daemon writes while it runs.
    fn written(&self) -> impl Iterator<Item = PathBuf> {
        let documents = [self.last_addresses(), self.fast_peers(), self.wireguard()].into_iter();
        let names = documents
            .chain(network_files::files(&self.directory))
            .chain(network_files::presence_files(&self.directory))
            .flat_map(|path| ["", ".new", ".bad"].map(|suffix| with_suffix(&path, suffix)));
        names.chain([self.directory.join("control.sock")])
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

    /// Creates the directory of the control socket if it is not the state directory: mode 0755, of
    /// the user of the daemon, who creates the socket there and removes it at the end.
    ///
    /// # Errors
    /// [`StateError::ControlDirectory`]; also if another user has put something there.
    pub fn open_control(&self, ids: Option<Ids>) -> Result<(), StateError> {
        let Some(directory) = self.paths.control_directory() else {
            return Ok(());
        };
        let failed = |source| StateError::ControlDirectory {
            path: directory.to_owned(),
            source,
        };
        match DirBuilder::new().mode(0o755).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => created.map_err(failed)?,
        }
        // Of the directory itself, not of a link. Only root can replace it after this check.
        let found = fs::symlink_metadata(directory).map_err(failed)?;
        let own = effective_uid();
        let daemon = ids.map_or(own, |ids| ids.uid);
        if !found.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if ![0, own, daemon].contains(&found.uid()) {
            return Err(failed(io::Error::other(format!("it belongs to uid {}", found.uid()))));
        }
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
            .and_then(|()| lchown(directory, Some(daemon), ids.map(|ids| ids.gid)))
            .map_err(failed)
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
        let control = self.paths.control.clone();
        Ok(Self {
            paths: StatePaths {
                control,
                ..StatePaths::new(".")
            },
            ..self
        })
    }
}

/// Refuses a directory in which another user could replace the key, the socket or the
/// configuration: a directory of another user, and one into which a group or all users may write.
/// The group of root's daemon may, under the sticky bit; see [`StateDir::hand_over`].
fn check_directory(path: &Path, metadata: &fs::Metadata) -> Result<(), StateError> {
    let own = effective_uid();
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
    /// The directory of the control socket cannot be used.
    #[error("the directory of the control socket cannot be used ({source}): {}; remove it, or choose another place with --state", .path.display())]
    ControlDirectory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
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
        let place = |name: &str| base.path().join(name);
        let own = StatePaths::new(place("own"));
        let system = StatePaths {
            directory: place("system"),
            control: Some(place("run")),
        };
        let earlier = StatePaths::new(place("system"));
        let find = || own.clone().or_first_of([system.clone(), earlier.clone()]);
        assert_eq!(find(), own, "no daemon anywhere");
        fs::create_dir(system.directory()).unwrap();
        assert_eq!(find(), system, "root's daemon has stopped");
        fs::create_dir_all(own.transfer()).unwrap();
        assert_eq!(find(), system, "a user without a node has transfers");
        fs::write(own.config(), "").unwrap();
        assert_eq!(find(), own, "a node that does not run");
        fs::remove_dir_all(own.directory()).unwrap();
        fs::write(earlier.control(), "").unwrap();
        assert_eq!(find(), earlier, "with --state");
        fs::create_dir(place("run")).unwrap();
        fs::write(system.control(), "").unwrap();
        assert_eq!(find(), system);
        fs::create_dir(own.directory()).unwrap();
        assert_eq!(find(), system);
        fs::write(own.control(), "").unwrap();
        assert_eq!(find(), own);
    }

    #[test]
    fn the_directory_of_the_socket_is_made_and_no_link_is_followed() {
        let base = tempfile::tempdir().unwrap();
        let run = base.path().join("run");
        let open = || {
            let paths = StatePaths {
                directory: base.path().join("state"),
                control: Some(run.clone()),
            };
            StateDir::open(paths).unwrap().open_control(None)
        };
        open().unwrap();
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o7777, 0o755);
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
        open().unwrap();
        assert_eq!(fs::metadata(&run).unwrap().mode() & 0o7777, 0o755);
        fs::remove_dir(&run).unwrap();
        let elsewhere = base.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &run).unwrap();
        assert!(matches!(open(), Err(StateError::ControlDirectory { .. })));
        assert_eq!(fs::metadata(&elsewhere).unwrap().mode() & 0o7777, 0o700);
    }
}
