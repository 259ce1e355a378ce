//! The removal of what transfers leave behind that have ended.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_os::clock::unix_s;

use super::Process;
use crate::api::clean::{CLEANED, Cleaned};
use crate::api::{Direction, Note, TransferId, TransferState};
use crate::names::{RelPath, STAGED, display};
use crate::queue::Incoming;
use crate::receive;
use crate::root::{Kind, Meta, Root};

/// The folders inside each other that are looked into for their bytes.
const DEPTH: usize = 300;
/// How old something staged is, in seconds, that no record knows and that is removed: a week.
const OLD: u64 = 604_800;

impl Cleaned {
    fn failed(&mut self, path: &Path, error: &io::Error) {
        // Only a folder can hold staged files.
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            let name = display(path.to_string_lossy().as_bytes());
            let what = format!("it cannot be removed ({error})");
            self.left.push(Note { name, what });
        }
    }
}

impl Process {
    /// Removes what a kill has left of transfers to here between the record that they are done and their end.
    pub(super) fn remove_rests(self: &Arc<Self>) {
        let done = |one: &Incoming| one.state == TransferState::Done;
        for one in self.store.incoming().into_iter().filter(done) {
            match receive::discard(&PathBuf::from(&one.folder), &one.into, &one.id) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::info!(id = %one.id, %error, "what was staged of a transfer is not removed");
                }
                _ => {}
            }
        }
    }

    /// Removes the history, and what no transfer needs that goes on or waits.
    pub(super) fn clean(&self) -> Cleaned {
        let mut cleaned = Cleaned {
            schema: CLEANED.to_owned(),
            transfers: 0,
            staged: 0,
            hashes: 0,
            damaged: 0,
            bytes: 0,
            left: Vec::new(),
        };
        // The folders first: the history knows them.
        for (folder, into) in self.folders() {
            let entered = Root::open(&folder).and_then(|root| match into.is_empty() {
                true => Ok(root),
                false => root.enter(&RelPath::new(into.as_bytes()).map_err(io::Error::other)?),
            });
            match entered {
                Ok(root) => self.clean_folder(&root, &mut cleaned),
                Err(error) => cleaned.failed(&folder.join(into), &error),
            }
        }
        self.clean_state(&mut cleaned);
        self.clean_history(&mut cleaned);
        self.note_change();
        cleaned
    }

    /// The folders into which files come, or came.
    fn folders(&self) -> BTreeSet<(PathBuf, String)> {
        let kept = self.store.incoming().into_iter();
        let mut all: BTreeSet<(PathBuf, String)> = kept.map(|one| (PathBuf::from(&one.folder), one.into)).collect();
        let own: Vec<PathBuf> = all.iter().map(|(folder, _)| folder.clone()).collect();
        let set = self.settings().folder(self.options.home.as_deref());
        all.extend(own.into_iter().chain(set).map(|folder| (folder, String::new())));
        all
    }

    /// Whether a transfer to here goes on, or may go on.
    fn needs(&self, direction: Direction, id: TransferId) -> bool {
        let is_open = match direction {
            Direction::Receive => self.store.find_incoming(id).is_some_and(|one| !one.state.has_ended()),
            Direction::Send => self.store.find_outgoing(id).is_some_and(|one| !one.state.has_ended()),
        };
        is_open || self.live(direction, id).is_some()
    }

    fn clean_folder(&self, root: &Root, cleaned: &mut Cleaned) {
        let names = root.names().unwrap_or_else(|error| {
            cleaned.failed(root.path(), &error);
            Vec::new()
        });
        for name in names {
            let id = name
                .strip_prefix(STAGED)
                .and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
            let Some(id) = id.filter(|id| !self.needs(Direction::Receive, *id)) else {
                continue;
            };
            let removed = RelPath::own(&name).map_err(io::Error::other).and_then(|rel| {
                // A link with such a name is nothing that a transfer has made, and what no record here knows may be of
                // another process, or of another machine.
                let is_known = self.store.find_incoming(id).is_some();
                let is_rest = |there: Meta| {
                    let is_old = unix_s().saturating_sub(u64::try_from(there.mtime_s).unwrap_or(0)) > OLD;
                    there.kind == Kind::Dir && (is_known || is_old)
                };
                if !root.stat(&rel)?.is_some_and(is_rest) {
                    return Ok(None);
                }
                let bytes = bytes_of(root, &rel, DEPTH);
                // A transfer may have begun meanwhile.
                match self.needs(Direction::Receive, id) {
                    true => Ok(None),
                    false => root.remove_all(&rel).map(|()| Some(bytes)),
                }
            });
            match removed {
                Ok(Some(bytes)) => {
                    cleaned.staged += 1;
                    cleaned.bytes += bytes;
                }
                Ok(None) => {}
                Err(error) => cleaned.failed(&root.path().join(display(&name)), &error),
            }
        }
    }

    /// Removes hashes without a transfer, and files that were moved aside.
    fn clean_state(&self, cleaned: &mut Cleaned) {
        for folder in ["sent", "queue", "inbox"] {
            let folder = self.options.directory.join(folder);
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name().to_string_lossy().into_owned();
                let hashes = folder.ends_with("sent") && name.parse().is_ok_and(|id| !self.needs(Direction::Send, id));
                let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
                    continue;
                };
                if !hashes && !name.ends_with(".damaged") {
                    continue;
                }
                match fs::remove_file(entry.path()) {
                    Err(error) => cleaned.failed(&entry.path(), &error),
                    Ok(()) => {
                        cleaned.bytes += metadata.len();
                        cleaned.hashes += u64::from(hashes);
                        cleaned.damaged += u64::from(!hashes);
                    }
                }
            }
        }
    }

    fn clean_history(&self, cleaned: &mut Cleaned) {
        let incoming = self.store.incoming().into_iter();
        let incoming = incoming.filter(|one| one.state.has_ended());
        let outgoing = self.store.outgoing().into_iter();
        // The other end of one that is still to be told keeps what has come of it.
        let outgoing = outgoing.filter(|one| one.state.has_ended() && one.tell_until.is_none());
        let ended: Vec<(Direction, TransferId)> = incoming
            .map(|one| (Direction::Receive, one.id))
            .chain(outgoing.map(|one| (Direction::Send, one.id)))
            .collect();
        let _deciding = self.deciding();
        for (direction, id) in ended {
            // It may have been resumed meanwhile.
            if self.needs(direction, id) {
                continue;
            }
            match self.store.remove(direction, id) {
                Ok(()) => cleaned.transfers += 1,
                Err(error) => cleaned.failed(Path::new(&id.to_string()), &error),
            }
        }
    }
}

/// The bytes of the disk that a folder has, about: what cannot be read does not count.
fn bytes_of(root: &Root, folder: &RelPath, depth: usize) -> u64 {
    let Ok(folder) = root.enter(folder) else { return 0 };
    let names = folder.names().unwrap_or_default();
    let of_one = |name: Vec<u8>| {
        let rel = RelPath::own(&name).ok()?;
        let there = folder.stat(&rel).ok()??;
        Some(match there.kind {
            Kind::Dir if depth > 0 => bytes_of(&folder, &rel, depth - 1),
            _ => there.blocks.saturating_mul(512),
        })
    };
    names.into_iter().filter_map(of_one).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::super::incoming::tests::offer;
    use super::super::outgoing::tests::process;
    use super::*;
    use crate::api::RawPath;

    #[test]
    fn rests_of_transfers_that_are_done_go_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let process = process(&directory);
        let staged = |number: u8, state: TransferState| {
            let id = TransferId([number; 16]);
            let folder = directory.path().join("got");
            let staged = folder.join(format!("in/.weft-part-{id}"));
            fs::create_dir_all(staged.join("tree-0/d")).unwrap();
            let folder = RawPath::from(folder.as_path());
            let one = Incoming {
                id,
                state,
                folder,
                ..offer()
            };
            process.store.save_incoming(&one).unwrap();
            staged
        };
        let done = staged(1, TransferState::Done);
        let running = staged(2, TransferState::Running);
        process.remove_rests();
        assert_eq!([done, running].map(|folder| folder.exists()), [false, true]);
    }
}
