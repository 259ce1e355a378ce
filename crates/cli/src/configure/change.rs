//! One change of the configuration: the file first, then the daemon.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use weft_config::Changes;
use weft_config::edit::EditError;
use weft_config::{Config, ConfigError, Pending};
use weft_control::status::{Document as _, Reloaded, Status};
use weft_control::{ControlCommand, ControlError};
use weft_os::clock::unix_s;
use weft_os::file::open_plain_in;
use weft_store::state::StatePaths;

use super::{NO_DAEMON, Options};
use crate::failure::Failure;

/// The configuration that a command addresses.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    /// The open file, if the daemon has named it: what was looked at is what is read.
    named: Option<File>,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file, once.
    pub(crate) fn text(&self) -> Result<String, ConfigError> {
        match &self.named {
            Some(file) => weft_config::read_open(file, &self.path),
            None => weft_config::read_text(&self.path),
        }
    }

    fn write(&self, text: &str) -> Result<Config, ConfigError> {
        match &self.named {
            Some(_) => weft_config::write_plain(&self.path, text),
            None => weft_config::write_text(&self.path, text),
        }
    }
}

/// A file that the daemon names, and that is not taken.
#[derive(Debug)]
pub(crate) struct NotTaken {
    pub(crate) named: PathBuf,
    /// The reason, as what the file is.
    pub(crate) why: String,
}

/// The configuration that a command addresses: the given one, or that of the state directory. `named`:
/// that of the running daemon, whose word counts for a file of the state directory alone: it may be in
/// other hands, and the command may be root's.
///
/// # Errors
/// The file that the daemon names, which is another one.
pub(crate) fn place(paths: &StatePaths, given: Option<&Path>, named: Option<&Path>) -> Result<Place, NotTaken> {
    let own = given.map_or_else(|| paths.config(), Path::to_owned);
    let found = match named.filter(|named| given.is_none() && *named != own && !same(Some(named), Some(&own))) {
        None => return Ok(Place { path: own, named: None }),
        Some(named) => open_named(paths, named).map_err(|why| NotTaken {
            named: named.to_owned(),
            why,
        })?,
    };
    let (path, file) = found;
    Ok(Place {
        path,
        named: Some(file),
    })
}

/// Whether two paths lead to one file. The state directory may be a link.
fn same(one: Option<&Path>, other: Option<&Path>) -> bool {
    let real = |path: Option<&Path>| path.and_then(|path| fs::canonicalize(path).ok());
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Opens a file of the state directory that the daemon names.
fn open_named(paths: &StatePaths, named: &Path) -> Result<(PathBuf, File), String> {
    let directory = paths.directory();
    let name = named.file_name().filter(|_| same(named.parent(), Some(directory)));
    let name = name.ok_or("is not in its state directory")?;
    let failed = |error: io::Error| match error.kind() {
        _ if Errno::from_io_error(&error) == Some(Errno::LOOP) => "is a link".to_owned(),
        io::ErrorKind::InvalidInput => "is no file".to_owned(),
        _ => format!("cannot be opened ({error})"),
    };
    let there = File::open(directory).map_err(failed)?;
    let file = open_plain_in(there, Path::new(name)).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    match found.nlink() {
        1 => Ok((directory.join(name), file)),
        _ => Err("has a second name, perhaps elsewhere".to_owned()),
    }
}

/// The configuration that a command addresses, after a question to the daemon.
///
/// # Errors
/// The daemon runs with another file than this command would take.
pub(super) fn addressed(paths: &StatePaths, given: Option<&Path>) -> Result<Place, Failure> {
    let named = match given {
        Some(_) => None,
        None => {
            let status = weft_control::call::<Status>(&paths.control(), &ControlCommand::Status {});
            status.ok().and_then(|status| status.node.config)
        }
    };
    place(paths, given, named.as_deref()).map_err(|NotTaken { named, why }| {
        Failure::Usage(format!(
            "the daemon runs with {}, which {why}; name that file in the command (--config FILE; `weft config` takes it \
             as its last word)",
            named.display()
        ))
    })
}

/// What became of a change.
pub(super) struct Made {
    /// The answer of the daemon, if one runs.
    pub(super) reloaded: Option<Reloaded>,
    changes: Changes,
}

impl Made {
    /// The document of the change. Without a daemon all of it takes effect when one starts.
    pub(super) fn document(&self) -> Reloaded {
        let offline = || Reloaded {
            schema: Reloaded::SCHEMA.to_owned(),
            live: Vec::new(),
            at_start: [&*self.changes.live, &self.changes.at_start]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            refused: Vec::new(),
            notes: vec![NO_DAEMON.to_owned()],
            confirm_s: None,
        };
        self.reloaded.clone().unwrap_or_else(offline)
    }
}

/// A change that is about to be made. No other command changes the file meanwhile.
pub(super) struct Change<'a> {
    paths: &'a StatePaths,
    place: Place,
    text: String,
    config: Config,
    confirm: Option<Duration>,
    _lock: File,
}

impl<'a> Change<'a> {
    /// Reads the present configuration.
    pub(super) fn open(paths: &'a StatePaths, options: &Options) -> Result<Self, Failure> {
        let place = addressed(paths, options.config.as_deref())?;
        let lock = lock(place.path())?;
        let text = place.text().map_err(|error| match error {
            ConfigError::NotFound(path) => Failure::NoConfig(path),
            error => error.into(),
        })?;
        let config = Config::parse(&text, place.path())?;
        Ok(Self {
            paths,
            place,
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

    /// The text of the present configuration.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the change is taken back unless it is confirmed.
    pub(super) const fn waits(&self) -> bool {
        self.confirm.is_some()
    }

    /// The configuration that the change makes.
    pub(super) fn outcome(&self, edit: impl FnOnce(&str) -> Result<String, EditError>) -> Result<Config, Failure> {
        self.edited(edit).map(|(_, config)| config)
    }

    /// The text and the configuration that the change makes.
    fn edited(&self, edit: impl FnOnce(&str) -> Result<String, EditError>) -> Result<(String, Config), Failure> {
        let path = self.place.path();
        let new = edit(&self.text).map_err(|error| Failure::Edit {
            path: path.to_owned(),
            error,
        })?;
        let config = Config::parse(&new, path).map_err(without_line)?;
        Ok((new, config))
    }

    /// The file that is changed.
    pub(super) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Makes the change, and lets a running daemon read it. If the daemon refuses it, the file is
    /// as before.
    pub(super) fn make(self, edit: impl FnOnce(&str) -> Result<String, EditError>) -> Result<Made, Failure> {
        let path = self.place.path();
        let (new, config) = self.edited(edit)?;
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
            Some(limit) => Pending::begin(path, &self.text, unix_s(), limit)?,
            None => false,
        };
        let written = self.place.write(&new).map_err(Failure::from);
        let reloaded = written.and_then(|_| self.reload());
        if reloaded.is_err() {
            self.place.write(&self.text)?;
            // A change that waited before this one still does.
            if kept {
                Pending::confirm(path)?;
            }
        }
        reloaded.map(|reloaded| Made {
            reloaded,
            changes: self.config.changes(&config),
        })
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
        io::ErrorKind::NotFound => Failure::NoConfig(path.to_owned()),
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
        fs::create_dir_all(state.join("directory")).unwrap();
        let paths = StatePaths::new(state.clone());
        let file = |name: &str| {
            let path = directory.path().join(name);
            fs::write(&path, "").unwrap();
            path
        };
        let (elsewhere, other) = (file("elsewhere.toml"), file("state/other.toml"));
        let link = state.join("link.toml");
        symlink(&elsewhere, &link).unwrap();
        let second = state.join("second.toml");
        fs::hard_link(&elsewhere, &second).unwrap();
        let place = |paths: &StatePaths, given: Option<&Path>, named: Option<&Path>| {
            let place = place(paths, given, named).map_err(|refused| (refused.named, refused.why))?;
            Ok::<_, (PathBuf, String)>(place.path)
        };
        let named = |named: &Path| place(&paths, None, Some(named));
        assert_eq!(place(&paths, None, None), Ok(paths.config()));
        assert_eq!(named(&paths.config()), Ok(paths.config()));
        assert_eq!(named(&other), Ok(other.clone()));
        let outside = "is not in its state directory";
        for (bad, why) in [
            (&elsewhere, outside),
            (&link, "is a link"),
            (&second, "has a second name, perhaps elsewhere"),
            (
                &state.join("missing.toml"),
                "cannot be opened (No such file or directory (os error 2))",
            ),
            (&state.join("../elsewhere.toml"), outside),
            (&state.join(".."), outside),
            (&state.join("directory"), "is no file"),
            (&"/proc/self/environ".into(), outside),
        ] {
            assert_eq!(named(bad), Err((bad.clone(), why.to_owned())));
        }
        // The user's own word counts, and a state directory that is a link is the same one.
        assert_eq!(place(&paths, Some(&elsewhere), Some(&other)), Ok(elsewhere));
        let alias = directory.path().join("alias");
        symlink(&state, &alias).unwrap();
        fs::write(paths.config(), "").unwrap();
        let aliased = StatePaths::new(alias);
        assert_eq!(place(&aliased, None, Some(&paths.config())), Ok(aliased.config()));
    }

    #[test]
    fn a_named_file_that_becomes_a_link_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let [victim, named] = [directory.path().join("victim"), state.join("other.toml")];
        fs::write(&victim, "lanes = 3\n").unwrap();
        fs::write(&named, "lanes = 1\n").unwrap();
        let place = place(&StatePaths::new(state), None, Some(&named)).unwrap();
        // The daemon exchanges its file between the look and the rest.
        fs::remove_file(&named).unwrap();
        symlink(&victim, &named).unwrap();
        assert_eq!(place.text().unwrap(), "lanes = 1\n");
        assert!(place.write("lanes = 2\n").is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "lanes = 3\n");
    }
}
