//! What the user lets peers read.

use std::fs;
use std::path::{Path, PathBuf};

use super::verbs::refuse;
use super::{Process, nodes};
use crate::api::{RawPath, Refusal, RefusalCode, SHARES, ShareRequest, ShareStatus, Shares};
use crate::document::Setting as _;
use crate::names::display;
use crate::queue::Outgoing;
use crate::shares::{Share, Shares as Kept, check_name};
use crate::walk::{Source, WalkError};

impl Process {
    /// Returns the document of all shares.
    pub(super) fn list_shares(&self) -> Shares {
        let status = |share: &Share| ShareStatus {
            name: share.name.clone(),
            path: shown(&PathBuf::from(&share.path)),
            to: share.to.0.iter().map(ToString::to_string).collect(),
            why_not: fs::metadata(PathBuf::from(&share.path))
                .err()
                .map(|error| format!("it cannot be read ({error})")),
        };
        Shares {
            schema: SHARES.to_owned(),
            // A path may hang; what is shared stays in reach meanwhile.
            shares: self.shares().clone().all().iter().map(status).collect(),
            why_not: self.why_not().clone(),
        }
    }

    /// Shares a file or folder.
    pub(super) fn add_share(&self, request: ShareRequest) -> Result<Shares, Refusal> {
        let path = PathBuf::from(&request.path);
        if !path.is_absolute() {
            return Err(refuse(RefusalCode::BadRequest, "the path is not absolute"));
        }
        let last = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = request.name.or(last).unwrap_or_default();
        let wrong = |error: crate::shares::ShareError| refuse(RefusalCode::BadRequest, error.to_string());
        check_name(&name).map_err(wrong)?;
        Source::shared(&path, &name, None, &[]).map_err(|error| {
            let why = match error {
                WalkError::Unreadable { source, .. } => format!("{} cannot be shared ({source})", shown(&path)),
                other => other.to_string(),
            };
            refuse(RefusalCode::File, why)
        })?;
        let to = nodes::audience(&self.options.control, request.to)?;
        let share = Share {
            name,
            path: RawPath::from(path.as_path()),
            to,
        };
        self.change_shares(|kept| kept.add(share).map_err(wrong))?;
        Ok(self.list_shares())
    }

    /// Ends a share, and what is read of it.
    pub(super) fn remove_share(&self, name: &str) -> Result<Shares, Refusal> {
        let unknown = |error: crate::shares::ShareError| refuse(RefusalCode::BadRequest, error.to_string());
        self.change_shares(|kept| kept.remove(name).map(drop).map_err(unknown))?;
        let all: Vec<Outgoing> = self.fetched().values().cloned().collect();
        let is_of_it = |one: &&Outgoing| one.share.as_deref().and_then(|share| share.split('/').next()) == Some(name);
        for one in all.iter().filter(is_of_it) {
            self.stop_fetched(one, format!("{name} is shared no longer"));
        }
        Ok(self.list_shares())
    }

    fn change_shares(&self, change: impl FnOnce(&mut Kept) -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.shares()
            .change(&self.options.directory.join("shares.json"), change)
    }
}

/// A path as it is shown.
fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    display(path.as_os_str().as_bytes())
}
