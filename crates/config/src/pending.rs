//! A change of the configuration that is taken back unless it is confirmed.
//!
//! The text before the change is kept beside the configuration, with the time at which it is put
//! back. So the change is taken back after a crash or a reboot as well.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_os::file::with_suffix;

use super::file::Links;
use super::{ConfigError, file};

/// The first words of the first line of the kept text.
const HEAD: &str = "# weft: changed at ";

/// A change that waits for its confirmation. Times are seconds since 1970 (UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// When the configuration was changed.
    changed: u64,
    /// When the text before it is put back.
    ends: u64,
}

impl Pending {
    /// Keeps `text`, the present one of the configuration `path`, which is about to be changed at `now`.
    /// Keeps, of several changes, the text before the first one and the time of the last one. Returns
    /// whether none waited before.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing is kept then.
    pub fn begin(path: &Path, text: &str, now: u64, within: Duration) -> Result<bool, ConfigError> {
        let (before, first) = match read_kept(path)? {
            Some((_, before)) => (before, false),
            None => (text.to_owned(), true),
        };
        let ends = now + within.as_secs();
        let kept_text = format!("{HEAD}{now}, restored at {ends}\n{before}");
        file::replace(&kept(path), &kept_text, Links::None)?;
        Ok(first)
    }

    /// The change of the configuration `path` that waits, if there is one.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn find(path: &Path) -> Result<Option<Self>, ConfigError> {
        Ok(read_kept(path)?.map(|(pending, _)| pending))
    }

    /// Returns how long the change still has to be confirmed. `None`: its time is over, or the
    /// clock has been set back since.
    #[must_use]
    pub fn left(&self, now: u64) -> Option<Duration> {
        let left = self.ends.checked_sub(now).filter(|left| *left > 0)?;
        (now >= self.changed).then(|| Duration::from_secs(left))
    }

    /// Puts the kept text back. Without one nothing changes.
    ///
    /// # Errors
    /// [`ConfigError`]; the kept text stays.
    pub fn restore(path: &Path) -> Result<(), ConfigError> {
        match read_kept(path)? {
            Some((_, before)) => {
                file::replace(path, &before, Links::Trusted)?;
                Self::confirm(path)
            }
            None => Ok(()),
        }
    }

    /// Removes the kept text: the change stays. Without one nothing changes.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn confirm(path: &Path) -> Result<(), ConfigError> {
        let kept = kept(path);
        match fs::remove_file(&kept) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ConfigError::Unwritable { path: kept, source })
            }
            _ => Ok(()),
        }
    }

    /// Puts the kept text back if its time is over at `now`. Called before the configuration is
    /// read at a start. Returns the change that still waits, and whether one was taken back.
    ///
    /// # Errors
    /// [`ConfigError`]
    pub fn settle(path: &Path, now: u64) -> Result<(Option<Self>, bool), ConfigError> {
        match Self::find(path)? {
            Some(pending) if pending.left(now).is_some() => Ok((Some(pending), false)),
            Some(_) => Self::restore(path).map(|()| (None, true)),
            None => Ok((None, false)),
        }
    }
}

/// The place of the kept text.
fn kept(path: &Path) -> PathBuf {
    with_suffix(path, ".before")
}

/// The kept text and its times. A file that lacks its first line was not written by this program,
/// and counts as none.
fn read_kept(path: &Path) -> Result<Option<(Pending, String)>, ConfigError> {
    let kept = kept(path);
    // This program writes no link there.
    let text = match file::read(&kept, Links::None) {
        Err(ConfigError::NotFound(_)) => return Ok(None),
        bytes => super::text_of(bytes?, &kept)?,
    };
    let Some((line, before)) = text.split_once('\n') else {
        return Ok(None);
    };
    let times = line
        .strip_prefix(HEAD)
        .and_then(|times| times.split_once(", restored at "));
    let times = times.and_then(|(changed, ends)| Some((changed.parse().ok()?, ends.parse().ok()?)));
    Ok(times.map(|(changed, ends)| (Pending { changed, ends }, before.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        _directory: tempfile::TempDir,
        path: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("weft.toml");
            fs::write(&path, "lanes = 1\n").unwrap();
            Self {
                _directory: directory,
                path,
            }
        }

        fn change(&self, text: &str, now: u64) {
            Pending::begin(&self.path, &self.text(), now, Duration::from_secs(60)).unwrap();
            file::replace(&self.path, text, Links::Trusted).unwrap();
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.path).unwrap()
        }

        fn files(&self) -> usize {
            fs::read_dir(self.path.parent().unwrap()).unwrap().count()
        }
    }

    #[test]
    fn a_change_that_is_not_confirmed_is_taken_back_at_a_start() {
        let place = Place::new();
        assert_eq!(Pending::settle(&place.path, 0).unwrap(), (None, false));
        place.change("lanes = 2\n", 1_000);
        let (pending, back) = Pending::settle(&place.path, 1_059).unwrap();
        assert_eq!(
            (pending.unwrap().left(1_059), back),
            (Some(Duration::from_secs(1)), false)
        );
        assert_eq!(place.text(), "lanes = 2\n");
        assert_eq!(Pending::settle(&place.path, 1_060).unwrap(), (None, true));
        assert_eq!((place.text().as_str(), place.files()), ("lanes = 1\n", 1));
    }

    #[test]
    fn a_clock_that_was_set_back_ends_the_wait() {
        let place = Place::new();
        place.change("lanes = 2\n", 1_000);
        assert_eq!(Pending::settle(&place.path, 999).unwrap(), (None, true));
        assert_eq!(place.text(), "lanes = 1\n");
    }

    #[test]
    fn a_confirmed_change_stays() {
        let place = Place::new();
        place.change("lanes = 2\n", 1_000);
        Pending::confirm(&place.path).unwrap();
        assert_eq!(Pending::settle(&place.path, 9_999).unwrap(), (None, false));
        Pending::restore(&place.path).unwrap();
        assert_eq!((place.text().as_str(), place.files()), ("lanes = 2\n", 1));
    }

    #[test]
    fn of_several_changes_all_are_taken_back() {
        let place = Place::new();
        place.change("lanes = 2\n", 1_000);
        place.change("lanes = 3\n", 1_030);
        assert!(Pending::find(&place.path).unwrap().unwrap().left(1_080).is_some());
        Pending::restore(&place.path).unwrap();
        assert_eq!(place.text(), "lanes = 1\n");
    }
}
