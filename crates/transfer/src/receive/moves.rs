//! Which names this transfer has given, in this try or in an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::stage::Stage;
use crate::names::RelPath;
use crate::wire::WireError;

/// The most bytes of paths and names that are kept.
const MAX_BYTES: usize = 16 << 20;

/// Where things are that got another name, and new folders, whose name may be the one that they were sent with.
#[derive(Debug, Default)]
pub(super) struct Moves {
    names: BTreeMap<RelPath, RelPath>,
    /// The names that are given, or will be.
    given: BTreeSet<RelPath>,
    /// The number behind a name that is tried next, by the name with the first one.
    numbers: BTreeMap<RelPath, u32>,
    bytes: usize,
    /// The paths that earlier tries have given names.
    old: BTreeSet<RelPath>,
}

impl Moves {
    /// Takes over the records of earlier tries: path, name, and number of the try. A record does not count if its path is
    /// still staged in the tree of that try, as something else has the name then, or if nothing has the name.
    pub(super) fn new(kept: Vec<(RelPath, Vec<u8>, u32)>, stage: &Stage) -> io::Result<Self> {
        let mut moves = Self::default();
        for (path, name, number) in kept {
            let Ok(name) = RelPath::new(&name) else { continue };
            let is_there = stage.root.stat(&name).is_ok_and(|there| there.is_some());
            match is_there && !stage.is_staged(number, &path) {
                true => moves.insert(path, name)?,
                false => moves.forget(&path),
            }
        }
        moves.old = moves.names.keys().cloned().collect();
        Ok(moves)
    }

    /// Notes the name of a path.
    ///
    /// # Errors
    /// More names than are kept.
    pub(super) fn insert(&mut self, path: RelPath, name: RelPath) -> io::Result<()> {
        self.forget(&path);
        self.bytes += path.as_bytes().len() + 2 * name.as_bytes().len();
        if self.bytes > MAX_BYTES {
            return Err(WireError::new("more new folders and taken names than are kept").into());
        }
        self.given.insert(name.clone());
        self.names.insert(path, name);
        Ok(())
    }

    /// Forgets the name of a path that got none.
    pub(super) fn forget(&mut self, path: &RelPath) {
        if let Some(name) = self.names.remove(path) {
            self.bytes = self
                .bytes
                .saturating_sub(path.as_bytes().len() + 2 * name.as_bytes().len());
            self.given.remove(&name);
        }
    }

    /// Whether an earlier try has given something its name.
    pub(super) fn is_old(&self, path: &RelPath) -> bool {
        self.old.contains(path)
    }

    /// Whether something is to get a name.
    pub(super) fn is_given(&self, name: &RelPath) -> bool {
        self.given.contains(name)
    }

    /// The number that is tried next for a name, and room for the one after it. `first` has the first number.
    pub(super) fn number(&mut self, first: &RelPath) -> io::Result<&mut u32> {
        if !self.numbers.contains_key(first) {
            self.bytes += first.as_bytes().len();
        }
        match self.bytes > MAX_BYTES {
            true => Err(WireError::new("more taken names than are kept").into()),
            false => Ok(self.numbers.entry(first.clone()).or_insert(2)),
        }
    }

    /// Returns where something is that has its name from this transfer, or that is in such a folder.
    pub(super) fn find(&self, path: &RelPath) -> Option<RelPath> {
        let mut folder = (!self.names.is_empty()).then(|| path.clone());
        while let Some(from) = folder {
            if let Some(to) = self.names.get(&from) {
                let rest = path.as_bytes().get(from.as_bytes().len()..).unwrap_or_default();
                return RelPath::new(&[to.as_bytes(), rest].concat()).ok();
            }
            folder = from.parent();
        }
        None
    }

    /// Returns where something is, or will be.
    pub(super) fn now(&self, path: &RelPath) -> RelPath {
        self.find(path).unwrap_or_else(|| path.clone())
    }
}
