//! What the user lets peers read.

use std::fs;
use std::path::{Path, PathBuf};

use weft_config::peer::NodeRef;
use weft_control::status::Whois;
use weft_control::{ControlCommand, ControlError, ErrorCode};

use super::Process;
use super::verbs::refuse;
use crate::api::{RawPath, Refusal, RefusalCode, SHARES, ShareRequest, ShareStatus, Shares};
use crate::live::Reason;
use crate::names::display;
use crate::shares::{Reader, Share, Shares as Kept, check_name};
use crate::walk::{Source, WalkError};

impl Process {
    /// Returns the document of all shares.
    pub(super) fn list_shares(&self) -> Shares {
        let status = |share: &Share| ShareStatus {
            name: share.name.clone(),
            path: shown(&PathBuf::from(&share.path)),
            to: share.audience(),
            why_not: fs::metadata(PathBuf::from(&share.path))
                .err()
                .map(|error| format!("it cannot be read ({error})")),
        };
        Shares {
            schema: SHARES.to_owned(),
            shares: self.shares().all().iter().map(status).collect(),
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
        let to = request
            .to
            .iter()
            .map(|one| self.reader(one))
            .collect::<Result<_, _>>()?;
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
        for one in self.fetched().values() {
            let share = one.share.as_deref().and_then(|share| share.split('/').next());
            if let Some(live) = self.live(crate::api::Direction::Send, one.id)
                && share == Some(name)
            {
                live.stop().stop(Reason::Shutdown);
            }
        }
        Ok(self.list_shares())
    }

    fn change_shares(&self, change: impl FnOnce(&mut Kept) -> Result<(), Refusal>) -> Result<(), Refusal> {
        let mut shares = self.shares();
        let mut changed = shares.clone();
        change(&mut changed)?;
        let saved = changed.save(&self.options.directory.join("shares.json"));
        saved.map_err(|error| refuse(RefusalCode::Unsaved, error.to_string()))?;
        *shares = changed;
        Ok(())
    }

    /// Finds the one that a user names as a reader.
    fn reader(&self, text: &str) -> Result<Reader, Refusal> {
        let given = |name: &str| match name.is_empty() {
            true => Err(refuse(
                RefusalCode::BadRequest,
                "write MEMBER, tag:TAG or network:NETWORK",
            )),
            false => Ok(name.to_owned()),
        };
        if let Some(tag) = text.strip_prefix("tag:") {
            return given(tag).map(Reader::Tag);
        }
        if let Some(network) = text.strip_prefix("network:") {
            return given(network).map(Reader::Network);
        }
        let refused = |message: String| refuse(RefusalCode::Daemon, format!("{message}; nothing is shared"));
        let node: NodeRef = text
            .parse()
            .map_err(|error| refuse(RefusalCode::BadRequest, format!("{text} names no member: {error}")))?;
        let whois = match weft_control::call::<Whois>(&self.options.control, &ControlCommand::Whois { node }) {
            Ok(whois) => whois,
            Err(ControlError::Refused(refusal)) if refusal.code == ErrorCode::UnknownPeer => {
                return Err(refused(refusal.message));
            }
            Err(error) => return Err(refused(error.to_string())),
        };
        let name = display(text.as_bytes());
        match &whois.nodes[..] {
            [one] if one.own => Err(refused(format!("{name} is this node itself"))),
            [one] => Ok(Reader::Member {
                name: text.to_owned(),
                npub: one.npub.clone(),
            }),
            _ => Err(refused(format!(
                "several members are named {name}; write NAME.NETWORK.weft"
            ))),
        }
    }
}

/// A path as it is shown.
fn shown(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    display(path.as_os_str().as_bytes())
}
