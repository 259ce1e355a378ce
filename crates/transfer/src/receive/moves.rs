//! Which names this transfer has given, in this try or in an earlier one.

use std::collections::BTreeMap;

use crate::names::RelPath;
use crate::root::Root;

/// Where things are that got another name, and new folders, whose name may be the one that they were sent with.
#[derive(Debug)]
pub(super) struct Moves(BTreeMap<RelPath, RelPath>);

impl Moves {
    /// Takes over what earlier tries have kept. What is gone since, or never got its name, does not count.
    pub(super) fn new(kept: Vec<(RelPath, Vec<u8>)>, root: &Root) -> Self {
        let kept = kept.into_iter().filter_map(|(path, name)| {
            let name = RelPath::new(&name).ok()?;
            root.stat(&name).ok().flatten().map(|_| (path, name))
        });
        Self(kept.collect())
    }

    pub(super) fn insert(&mut self, path: RelPath, name: RelPath) {
        self.0.insert(path, name);
    }

    /// Returns where something is that has its name from this transfer, or that is in such a folder.
    pub(super) fn find(&self, path: &RelPath) -> Option<RelPath> {
        let mut folder = (!self.0.is_empty()).then(|| path.clone());
        while let Some(from) = folder {
            if let Some(to) = self.0.get(&from) {
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
