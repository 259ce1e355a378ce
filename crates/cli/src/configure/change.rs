//! One change of the configuration: the file first, then the daemon.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_config::edit::EditError;
use weft_config::{Config, ConfigError, Pending};
use weft_control::status::{Reloaded, Status};
use weft_control::{ControlCommand, ControlError};
use weft_os::clock::unix_s;
use weft_store::state::StatePaths;

use super::Options;
use crate::failure::Failure;

/// The configuration that a command addresses: the given one, or that of the state directory. `named`:
/// that of the running daemon, whose word counts for a file of the state directory alone: it may be in
/// other hands, and the command may be root's.
///
/// # Errors
/// The file that the daemon names, which is another one.
pub(crate) fn place(paths: &StatePaths, given: Option<&Path>, named: Option<&Path>) -> Result<PathBuf, PathBuf> {
    let own = given.map_or_else(|| paths.config(), Path::to_owned);
    let Some(named) = named.filter(|named| given.is_none() && *named != own) else {
        return Ok(own);
    };
    // The state directory may be a link.
    let real = |path: Option<&Path>| path.and_then(|path| fs::canonicalize(path).ok());
    let same = |one, other| real(one).is_some_and(|one| real(other) == Some(one));
    if same(Some(named), Some(&own)) {
        return Ok(own);
    }
    let plain = fs::symlink_metadata(named).is_ok_and(|file| file.is_file());
    match plain && same(named.parent(), Some(paths.directory())) {
        true => Ok(named.to_owned()),
        false => Err(named.to_owned()),
    }
}

/// The configuration that a command addresses, after a question to the daemon.
///
/// # Errors
/// The daemon runs with another file than this command would take.
pub(super) fn addressed(paths: &StatePaths, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let named = match given {
        Some(_) => None,
        None => {
            let status = weft_control::call::<Status>(&paths.control(), &ControlCommand::Status {});
            status.ok().and_then(|status| status.node.config)
        }
    };
    place(paths, given, named.as_deref()).map_err(|named| {
        Failure::Usage(format!(
            "the daemon runs with {}, which is not in its state directory; name that file in the command \
             (--config FILE; `weft config` takes it as its last word)",
            named.display()
        ))
    })
}

/// A change that is about to be made. No other command changes the file meanwhile.
pub(super) struct Change<'a> {
    paths: &'a StatePaths,
    path: PathBuf,
    text: String,
    config: Config,
    confirm: Option<Duration>,
    _lock: File,
}

impl<'a> Change<'a> {
    /// Reads the present configuration.
    pub(super) fn open(paths: &'a StatePaths, options: &Options) -> Result<Self, Failure> {
        let path = addressed(paths, options.config.as_deref())?;
        let lock = lock(&path)?;
        let text = weft_config::read_text(&path).map_err(|error| match error {
            ConfigError::NotFound(path) => Failure::NoConfig(path),
            error => error.into(),
        })?;
        let config = Config::parse(&text, &path)?;
        Ok(Self {
            paths,
            path,
            text,
            config,
            confirm: options.confirm,
            _lock: lock,
        })
    }

    /// The present configuration.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Makes the change, and lets a running daemon read it. If the daemon refuses it, the file is
    /// as before. Returns the answer of the daemon, if one runs.
    pub(super) fn make(
        self,
        edit: impl FnOnce(&str) -> Result<String, EditError>,
    ) -> Result<Option<Reloaded>, Failure> {
        let new = edit(&self.text).map_err(|error| Failure::Edit {
            path: self.path.clone(),
            error,
        })?;
        Config::parse(&new, &self.path).map_err(without_line)?;
        if self.confirm.is_some() {
            let running = weft_control::call::<Status>(&self.paths.control(), &ControlCommand::Status {});
            running.map_err(|error| match error {
                ControlError::NotRunning(_) => Failure::Usage(
                    "--confirm needs a running daemon, which takes the change back; leave it out, or start weft"
                        .to_owned(),
                ),
                error => error.into(),
            })?;
        }
        let kept = match self.confirm {
            Some(limit) => Pending::begin(&self.path, unix_s(), limit)?,
            None => false,
        };
        let written = weft_config::write_text(&self.path, &new).map_err(Failure::from);
        let reloaded = written.and_then(|_| self.reload());
        if reloaded.is_err() {
            weft_config::write_text(&self.path, &self.text)?;
            // A change that waited before this one still does.
            if kept {
                Pending::confirm(&self.path)?;
            }
        }
        reloaded
    }

    fn reload(&self) -> Result<Option<Reloaded>, Failure> {
        let confirm_s = self.confirm.map(|limit| limit.as_secs() as u32);
        match weft_control::call(&self.paths.control(), &ControlCommand::Reload { confirm_s }) {
            Ok(done) => Ok(Some(done)),
            Err(ControlError::NotRunning(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A fault of the new text is one of the change: the line is not in the file yet.
fn without_line(error: ConfigError) -> Failure {
    match error {
        ConfigError::Setting { key, problem, .. } => Failure::Usage(format!("{key}: {problem}")),
        error => error.into(),
    }
}

/// Locks the directory of the configuration, so that two commands do not overwrite each other's
/// change.
fn lock(path: &Path) -> Result<File, Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let locked = File::open(directory).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Failure::NoConfig(path.to_owned()),
        _ => ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        }
        .into(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_daemon_names_no_file_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let paths = StatePaths::new(state.clone());
        let file = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            path
        };
        let (elsewhere, other) = (file("elsewhere.toml"), file("state/other.toml"));
        let link = state.join("link.toml");
        symlink(&elsewhere, &link).unwrap();
        let named = |named: &Path| place(&paths, None, Some(named));
        assert_eq!(place(&paths, None, None), Ok(paths.config()));
        assert_eq!(named(&paths.config()), Ok(paths.config()));
        assert_eq!(named(&other), Ok(other.clone()));
        for bad in [
            &elsewhere,
            &link,
            &state.join("missing.toml"),
            &state.join("../elsewhere.toml"),
            Path::new("/proc/self/environ"),
        ] {
            assert_eq!(named(bad), Err(bad.to_owned()));
        }
        // The user's own word counts, and a state directory that is a link is the same one.
        assert_eq!(place(&paths, Some(&elsewhere), Some(&other)), Ok(elsewhere));
        let alias = directory.path().join("alias");
        symlink(&state, &alias).unwrap();
        fs::write(paths.config(), "").unwrap();
        let aliased = StatePaths::new(alias);
        assert_eq!(place(&aliased, None, Some(&paths.config())), Ok(aliased.config()));
    }
}
