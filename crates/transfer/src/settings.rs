//! Who may send files to this user, and where they come: `settings.json`.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::api::{RawPath, ReceiveMode};
use crate::document::Setting;
use crate::limits::Limits;

/// The settings of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The mode, which holds until [`Settings::until`].
    pub mode: ReceiveMode,
    /// When the mode ends, in seconds since 1970, and the mode that then holds again.
    #[serde(default)]
    pub until: Option<(u64, Box<ReceiveMode>)>,
    /// The folder into which files come; `None` for the [default](default_folder).
    #[serde(default)]
    pub folder: Option<RawPath>,
    /// The limits of transfers.
    #[serde(default, skip_serializing_if = "Limits::are_default")]
    pub limits: Limits,
}

/// The reason why the settings cannot be used. Its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read, or is not what it should be.
    #[error("the settings of `{of}` are unusable: {}: {why}; repair the file, or move it away and set them again", .path.display())]
    Unusable {
        /// The command that sets them.
        of: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file cannot be written.
    #[error("the settings cannot be saved ({source}): {}; check the disk", .path.display())]
    Unsaved {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: ReceiveMode::Ask,
            until: None,
            folder: None,
            limits: Limits::default(),
        }
    }
}

impl Setting for Settings {
    const SCHEMA: &'static str = "weft.transfer-settings/1";
    const COMMAND: &'static str = "weft receive";
}

impl Settings {
    /// The mode that holds at `now`, in seconds since 1970.
    #[must_use]
    pub fn effective(&self, now: u64) -> ReceiveMode {
        match &self.until {
            Some((end, former)) if *end <= now => (**former).clone(),
            _ => self.mode.clone(),
        }
    }

    /// The seconds from `now` on until the former mode holds again, if the present one ends.
    #[must_use]
    pub fn left(&self, now: u64) -> Option<u64> {
        let (end, _) = self.until.as_ref()?;
        end.checked_sub(now).filter(|left| *left > 0)
    }

    /// Sets the mode at `now`, for `for_s` seconds or for good. After a mode that ends, the last one that was set for
    /// good holds again, also if several follow each other.
    pub fn set_mode(&mut self, mode: ReceiveMode, for_s: Option<u64>, now: u64) {
        let for_good = match self.until.take() {
            Some((_, former)) => *former,
            None => self.mode.clone(),
        };
        self.until = for_s.map(|for_s| (now.saturating_add(for_s), Box::new(for_good)));
        self.mode = mode;
    }

    /// The folder into which files come; `None` if none is set and the user has no home.
    #[must_use]
    pub fn folder(&self, home: Option<&Path>) -> Option<PathBuf> {
        let set = self.folder.as_ref().map(PathBuf::from);
        set.or_else(|| home.map(default_folder))
    }
}

/// The folder without a setting: `Downloads` in the home of the user if that exists, otherwise `weft`.
#[must_use]
pub fn default_folder(home: &Path) -> PathBuf {
    let downloads = home.join("Downloads");
    match downloads.is_dir() {
        true => downloads,
        false => home.join("weft"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn tag(name: &str) -> ReceiveMode {
        ReceiveMode::Tag(name.to_owned())
    }

    #[test]
    fn settings_survive_and_have_defaults() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.json");
        assert_eq!(Settings::load(&path).unwrap(), Settings::default());
        let mut settings = Settings::default();
        settings.set_mode(tag("family"), Some(60), 1_000);
        settings.folder = Some(RawPath::Bytes(b"/tmp/\xff".to_vec()));
        settings.limits.quota = Some(5);
        settings.save(&path).unwrap();
        assert_eq!(Settings::load(&path).unwrap(), settings);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_mode_ends_and_the_last_one_for_good_holds_again() {
        let mut settings = Settings::default();
        settings.set_mode(ReceiveMode::Off, None, 0);
        settings.set_mode(ReceiveMode::Members, Some(60), 1_000);
        settings.set_mode(tag("family"), Some(60), 1_030);
        assert_eq!(
            (settings.effective(1_089), settings.left(1_089)),
            (tag("family"), Some(1))
        );
        assert_eq!(
            (settings.effective(1_090), settings.left(1_090)),
            (ReceiveMode::Off, None)
        );
        settings.set_mode(ReceiveMode::Ask, None, 1_040);
        assert_eq!(
            (settings.effective(9_999), settings.left(9_999)),
            (ReceiveMode::Ask, None)
        );
    }

    #[test]
    fn an_unusable_file_is_named_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.json");
        for (text, words) in [
            ("", "damaged"),
            ("{\"schema\":\"weft.transfer-settings/1\"}", "missing field `mode`"),
            (
                "{\"schema\":\"weft.transfer-settings/1\",\"mode\":\"all\"}",
                "unknown variant `all`",
            ),
            (
                "{\"schema\":\"weft.transfer-settings/1\",\"mode\":\"ask\",\"limits\":{\"sent\":1}}",
                "unknown field `sent`",
            ),
            (
                "{\"schema\":\"weft.transfer-settings/2\",\"mode\":\"ask\"}",
                "weft.transfer-settings/2, which this version",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let error = Settings::load(&path).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("settings.json"), "{error}");
            assert_eq!(error.lines().count(), 1);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let error = Settings::default()
            .save(Path::new("/proc/none/settings.json"))
            .unwrap_err();
        assert!(matches!(error, SettingsError::Unsaved { .. }));
    }

    #[test]
    fn files_come_into_downloads_or_a_folder_of_their_own() {
        let home = tempfile::tempdir().unwrap();
        let settings = Settings::default();
        assert_eq!(settings.folder(None), None);
        assert_eq!(settings.folder(Some(home.path())), Some(home.path().join("weft")));
        fs::create_dir(home.path().join("Downloads")).unwrap();
        assert_eq!(settings.folder(Some(home.path())), Some(home.path().join("Downloads")));
        let set = Settings {
            folder: Some(RawPath::Text("/srv".to_owned())),
            ..Settings::default()
        };
        assert_eq!(set.folder(None), Some("/srv".into()));
    }
}
