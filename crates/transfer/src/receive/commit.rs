//! The end of a transfer: what is staged is written to the disk, and then gets its names.

use std::io;

use super::{Memory, Session, failed};
use crate::journal::Record;
use crate::live::Failure;
use crate::names::{RelPath, display, numbered};
use crate::root::{Kind, Root};
use crate::wire::FromReceiver;

/// The highest number behind a name.
const MAX_NUMBER: u32 = 9_999;

impl Session {
    /// Stores everything for good: then the process can keep that it is done.
    pub(super) fn commit(&self) -> Result<(), Failure> {
        let storing = |error: io::Error| failed("what has arrived cannot be stored", &error);
        self.stage.tree.sync_fs().map_err(storing)?;
        // A later try knows by the journal which names are from here. It is on the disk before the first of them.
        let planned = self.walk(|path| self.plan(path), |_| Ok(()));
        planned.map_err(storing)?;
        self.journal().sync().map_err(storing)?;
        let placed = self.walk(|path| self.place(path), |path| self.stage.tree.remove_dir(path));
        placed.map_err(storing)?;
        self.finish_folders().map_err(storing)?;
        self.stage.root.sync_fs().map_err(storing)
    }

    /// Removes what is staged, once nothing needs it any more.
    pub(super) fn tidy(&self) {
        let removed = super::staging(&self.id).and_then(|staged| self.stage.root.remove_all(&staged));
        if let Err(error) = removed {
            let what = format!("what was staged of it cannot be removed ({error})");
            self.live.note(self.stage.root.path().display().to_string(), what);
        }
    }

    /// Passes on what is staged to `each`, which says whether folders have the name at both ends: then what is in them
    /// follows one by one, and then the folder itself goes to `behind`.
    fn walk(
        &self,
        each: impl Fn(&RelPath) -> io::Result<bool>,
        behind: impl Fn(&RelPath) -> io::Result<()>,
    ) -> io::Result<()> {
        let top = self.stage.tree.names()?;
        let mut left: Vec<Step> = top
            .iter()
            .rev()
            .filter_map(|name| RelPath::new(name).ok())
            .map(Step::Each)
            .collect();
        while let Some(step) = left.pop() {
            match step {
                Step::Behind(path) => behind(&path)?,
                Step::Each(path) => {
                    if each(&path)? {
                        let names = self.stage.tree.enter(&path)?.names()?;
                        let below: Vec<RelPath> = names.iter().rev().filter_map(|name| path.join(name).ok()).collect();
                        left.push(Step::Behind(path));
                        left.extend(below.into_iter().map(Step::Each));
                    }
                }
            }
        }
        Ok(())
    }

    /// Chooses the name of one thing, and keeps it where a later try could not know it. Returns whether folders have it
    /// at both ends.
    fn plan(&self, path: &RelPath) -> io::Result<bool> {
        let to = self.memory().moves.now(path);
        let is_own = to.name() == path.name();
        let name = match (kind(&self.stage.tree, path)?, kind(&self.stage.root, &to)?) {
            (_, None) if self.memory().moves.is_given(&to) => self.free_name(path, to.parent().as_ref())?,
            (Some(Kind::Dir), None) => Some(to),
            (_, None) => return Ok(false),
            (Some(Kind::Dir), Some(Kind::Dir)) if self.memory().moves.is_old(path) => return Ok(true),
            (Some(Kind::Dir), Some(Kind::Dir)) if is_own => {
                // It is the user's, even if it was not there before.
                self.memory().moves.forget(path);
                return Ok(true);
            }
            (Some(Kind::File), Some(Kind::File)) if self.overwrite && is_own => return Ok(false),
            _ => self.free_name(path, to.parent().as_ref())?,
        };
        let Some(name) = name else {
            let why = "left out: no name is free at the receiving end";
            self.live.note(path.display(), why.to_owned());
            let _ = self.say(&FromReceiver::Note(path.as_bytes().to_vec(), why.to_owned()));
            self.stage.tree.remove_all(path)?;
            return Ok(false);
        };
        self.memory().moves.insert(path.clone(), name.clone())?;
        self.journal().append(&Record::Moved {
            path: path.clone(),
            name: name.as_bytes().to_vec(),
            number: self.stage.number,
        })?;
        Ok(false)
    }

    /// Returns the first name with a number that is free in a folder, and that nothing else is to get, if there is one.
    fn free_name(&self, path: &RelPath, folder: Option<&RelPath>) -> io::Result<Option<RelPath>> {
        let below = |folder: Option<&RelPath>, number: u32| {
            let name = numbered(path.name(), number);
            // A path may be too long.
            match folder {
                Some(folder) => folder.join(&name).ok(),
                None => RelPath::new(&name).ok(),
            }
        };
        let Some(first) = below(folder, 2) else {
            return Ok(None);
        };
        let from = *self.memory().moves.number(&first)?;
        for number in from..=MAX_NUMBER {
            let names = (below(folder, number), below(path.parent().as_ref(), number));
            let (Some(to), Some(staged)) = names else {
                return Ok(None);
            };
            let is_free = !self.memory().moves.is_given(&to) && kind(&self.stage.root, &to)?.is_none();
            if is_free && kind(&self.stage.tree, &staged)?.is_none() {
                *self.memory().moves.number(&first)? = number + 1;
                return Ok(Some(to));
            }
        }
        Ok(None)
    }

    /// Gives one thing its name. Returns whether folders have it at both ends.
    fn place(&self, path: &RelPath) -> io::Result<bool> {
        for _ in 0..MAX_NUMBER {
            let Some(here) = kind(&self.stage.tree, path)? else {
                // It was left out.
                return Ok(false);
            };
            let to = self.memory().moves.now(path);
            match self.stage.tree.rename_to(path, &self.stage.root, &to, false) {
                Ok(()) => {
                    self.tell_name(path, &to);
                    return Ok(false);
                }
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
            let is_file = here == Kind::File && kind(&self.stage.root, &to)? == Some(Kind::File);
            if self.overwrite && is_file && to.name() == path.name() {
                self.stage.tree.rename_to(path, &self.stage.root, &to, true)?;
                return Ok(false);
            }
            // Another process has taken the name since it was chosen, with a file or folder of its own.
            if self.plan(path)? {
                return Ok(true);
            }
        }
        Err(io::Error::other(format!("no name stays free for {}", path.display())))
    }

    /// Says that something has come under another name.
    fn tell_name(&self, path: &RelPath, to: &RelPath) {
        if path.name() != to.name() {
            let what = format!("stored as {}: the name is taken", display(to.name()));
            self.live.note(path.display(), what.clone());
            // A lost connection shows where messages are read.
            let _ = self.say(&FromReceiver::Note(path.as_bytes().to_vec(), what));
        }
    }

    /// Gives the folders that this transfer has made their permissions and times.
    fn finish_folders(&self) -> io::Result<()> {
        let mut memory = self.memory();
        let Memory { folders, moves, .. } = &mut *memory;
        folders.backwards(|folder| {
            let Some(path) = moves.find(&folder.path) else {
                return Ok(());
            };
            // Someone may have moved it meanwhile.
            match self.stage.root.set_times(&path, folder.mtime_s, folder.mtime_ns) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                done => done?,
            }
            self.stage.root.set_mode(&path, folder.mode)
        })
    }
}

fn kind(root: &Root, path: &RelPath) -> io::Result<Option<Kind>> {
    Ok(root.stat(path)?.map(|meta| meta.kind))
}

fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory};
    matches!(
        error.kind(),
        AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory
    )
}

/// A step of a walk.
enum Step {
    Each(RelPath),
    /// A folder whose contents have been passed on.
    Behind(RelPath),
}
