//! The end of a transfer: what is staged is written to the disk, and then gets its names.

use std::collections::BTreeSet;
use std::io;

use super::{Session, failed};
use crate::journal::Record;
use crate::live::Failure;
use crate::names::{RelPath, display, numbered};
use crate::root::{Kind, Root};
use crate::wire::FromReceiver;

/// The highest number behind a name.
const MAX_NUMBER: u32 = 9_999;

/// What happened to a name.
enum Placed {
    /// It has its name, or another one.
    As(RelPath),
    /// Folders have the name at both ends: what is in them is placed one by one.
    Merge,
}

impl Session {
    /// Stores everything for good.
    pub(super) fn commit(&self) -> Result<(), Failure> {
        let storing = |error: io::Error| failed("what has arrived cannot be stored", &error);
        self.stage.tree.sync_fs().map_err(storing)?;
        self.journal().sync().map_err(storing)?;
        let placed = self.place_all().map_err(storing)?;
        self.finish_folders(&placed).map_err(storing)?;
        self.stage.root.sync_fs().map_err(storing)?;
        let staged = super::staging(&self.id).map_err(storing)?;
        self.stage.root.remove_all(&staged).map_err(storing)?;
        self.stage.root.sync().map_err(storing)
    }

    /// Gives everything its name. Returns folders that were merged, and what came under another name.
    fn place_all(&self) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        let top = self.stage.tree.names()?;
        let mut left: Vec<Step> = top
            .iter()
            .rev()
            .filter_map(|name| RelPath::new(name).ok())
            .map(Step::Place)
            .collect();
        while let Some(step) = left.pop() {
            match step {
                Step::Remove(path) => self.stage.tree.remove_dir(&path)?,
                Step::Place(path) => match self.place(&path)? {
                    Placed::As(name) if name == path => {}
                    Placed::As(name) => outcome.renamed.push((path, name)),
                    Placed::Merge => {
                        left.push(Step::Remove(path.clone()));
                        let names = self.stage.tree.enter(&path)?.names()?;
                        let below = names.iter().rev().filter_map(|name| path.join(name).ok());
                        left.extend(below.map(Step::Place));
                        outcome.merged.insert(path);
                    }
                },
            }
        }
        Ok(outcome)
    }

    /// Gives one thing its name, or the next one that is free.
    fn place(&self, path: &RelPath) -> io::Result<Placed> {
        match self.stage.tree.rename_to(path, &self.stage.root, path, false) {
            Ok(()) => return Ok(Placed::As(path.clone())),
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(error),
        }
        let kind = |root: &Root| -> io::Result<Option<Kind>> { Ok(root.stat(path)?.map(|meta| meta.kind)) };
        let (new, old) = (kind(&self.stage.tree)?, kind(&self.stage.root)?);
        match (new, old) {
            (Some(Kind::Dir), Some(Kind::Dir)) => return Ok(Placed::Merge),
            (Some(Kind::File), Some(Kind::File)) if self.overwrite => {
                self.stage.tree.rename_to(path, &self.stage.root, path, true)?;
                return Ok(Placed::As(path.clone()));
            }
            _ => {}
        }
        for number in 2..=MAX_NUMBER {
            let name = numbered(path.name(), number);
            let to = match path.parent() {
                Some(parent) => parent.join(&name),
                None => RelPath::new(&name),
            };
            let to = to.map_err(io::Error::other)?;
            // Before it happens, so that a later try knows it.
            self.journal().append(&Record::Moved {
                path: path.clone(),
                name: to.as_bytes().to_vec(),
            })?;
            match self.stage.tree.rename_to(path, &self.stage.root, &to, false) {
                Ok(()) => {
                    let what = format!("stored as {}: the name is taken", display(&name));
                    self.live.note(path.display(), what.clone());
                    let _ = self.say(&FromReceiver::Note(path.as_bytes().to_vec(), what));
                    return Ok(Placed::As(to));
                }
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("no number is free for {}", path.display())))
    }

    /// Gives new folders their permissions and times.
    fn finish_folders(&self, outcome: &Outcome) -> io::Result<()> {
        let mut memory = self.memory();
        memory.folders.backwards(|folder| {
            if outcome.merged.contains(&folder.path) {
                return Ok(());
            }
            let path = outcome.now(&folder.path)?;
            // Someone may have moved it meanwhile.
            match self.stage.root.set_times(&path, folder.mtime_s, folder.mtime_ns) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                done => done?,
            }
            self.stage.root.set_mode(&path, folder.mode)
        })
    }
}

fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory};
    matches!(
        error.kind(),
        AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory
    )
}

/// A step of placing.
enum Step {
    Place(RelPath),
    /// A folder whose contents were placed.
    Remove(RelPath),
}

/// What came otherwise than it was staged.
#[derive(Default)]
struct Outcome {
    merged: BTreeSet<RelPath>,
    renamed: Vec<(RelPath, RelPath)>,
}

impl Outcome {
    /// Where something is now.
    fn now(&self, path: &RelPath) -> io::Result<RelPath> {
        let bytes = path.as_bytes();
        let moved = self.renamed.iter().find_map(|(from, to)| {
            let rest = bytes.strip_prefix(from.as_bytes())?;
            (rest.is_empty() || rest.starts_with(b"/")).then(|| [to.as_bytes(), rest].concat())
        });
        match moved {
            Some(moved) => RelPath::new(&moved).map_err(io::Error::other),
            None => Ok(path.clone()),
        }
    }
}
