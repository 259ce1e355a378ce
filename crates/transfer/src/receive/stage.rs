//! The hidden folder of a transfer. Each try has a tree of its own, into which what it announces is moved from those
//! before; what is left in them at the end has no source any more.

use std::fs::File;
use std::io;
use std::path::Path;

use super::{below, staging};
use crate::api::TransferId;
use crate::journal::boot_id;
use crate::names::RelPath;
use crate::root::{Meta, Root};

/// The beginning of the name of a tree; its number and the boot in which it was made follow.
const TREE: &[u8] = b"tree-";
/// The most trees of earlier tries that are kept.
const MAX_EARLIER: usize = 64;

/// The folders of a transfer.
#[derive(Debug)]
pub(super) struct Stage {
    /// The folder that gets the files.
    pub(super) root: Root,
    /// The tree of this try, and the number of the try.
    pub(super) tree: Root,
    pub(super) number: u32,
    /// Those of earlier tries, the latest first.
    earlier: Vec<Earlier>,
    hidden: Root,
}

/// The tree of an earlier try.
#[derive(Debug)]
struct Earlier {
    number: u32,
    tree: Root,
    /// Whether it is of this boot: nothing of it was lost.
    same_boot: bool,
}

impl Stage {
    /// Opens the hidden folder, or makes it, and begins the tree of a try.
    pub(super) fn open(folder: &Path, into: &str, id: &TransferId) -> io::Result<Self> {
        let root = below(Root::create(folder)?, into)?;
        let hidden = staging(id)?;
        root.make_dir(&hidden, 0o700)?;
        let hidden = root.enter(&hidden)?;
        let boot = boot_of_name();
        let mut numbered: Vec<(u32, RelPath, bool)> = Vec::new();
        for name in hidden.names()? {
            let number = name.strip_prefix(TREE).and_then(|rest| rest.split_first_chunk::<8>());
            let number = number.and_then(|(digits, rest)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u32::from_str_radix(digits, 16).ok()?, rest == boot.as_bytes()))
            });
            if let Some((number, same_boot)) = number {
                numbered.push((number, own(&name)?, same_boot));
            }
        }
        numbered.sort_unstable_by_key(|(number, ..)| std::cmp::Reverse(*number));
        let next = numbered.first().map_or(0, |(last, ..)| last.saturating_add(1));
        for (_, name, _) in numbered.drain(numbered.len().min(MAX_EARLIER)..) {
            hidden.remove_all(&name)?;
        }
        let name = own(&[TREE, format!("{next:08x}{boot}").as_bytes()].concat())?;
        hidden.make_dir(&name, 0o700)?;
        let earlier = numbered.into_iter().map(|(number, name, same_boot)| {
            let tree = hidden.enter(&name)?;
            Ok(Earlier {
                number,
                tree,
                same_boot,
            })
        });
        Ok(Self {
            tree: hidden.enter(&name)?,
            number: next,
            earlier: earlier.collect::<io::Result<_>>()?,
            root,
            hidden,
        })
    }

    /// Opens the file of the journal.
    pub(super) fn journal(&self) -> io::Result<File> {
        let name = own(b"journal")?;
        match self.hidden.create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.hidden.open_rw(&name),
            created => created,
        }
    }

    /// Begins a file that this try alone needs.
    pub(super) fn fresh(&self, name: &[u8]) -> io::Result<File> {
        let name = own(name)?;
        if self.hidden.stat(&name)?.is_some() {
            self.hidden.remove_file(&name)?;
        }
        self.hidden.create_new(&name)
    }

    /// Looks for what an earlier try has staged. Returns its number among them, what it is, and whether nothing of it
    /// can have been lost.
    pub(super) fn find(&self, path: &RelPath) -> Option<(usize, Meta, bool)> {
        let mut earlier = self.earlier.iter().enumerate();
        earlier.find_map(|(number, one)| Some((number, one.tree.stat(path).ok().flatten()?, one.same_boot)))
    }

    /// Whether something is staged in the tree of the try with a number.
    pub(super) fn is_staged(&self, number: u32, path: &RelPath) -> bool {
        let of_try = self.earlier.iter().find(|one| one.number == number);
        of_try.is_some_and(|one| !matches!(one.tree.stat(path), Ok(None)))
    }

    /// Moves what [`find`](Self::find) has found into the tree of this try.
    pub(super) fn take(&self, number: usize, path: &RelPath) -> io::Result<()> {
        let earlier = self.earlier.get(number).ok_or(io::ErrorKind::NotFound)?;
        earlier.tree.rename_to(path, &self.tree, path, false)
    }
}

fn own(name: &[u8]) -> io::Result<RelPath> {
    RelPath::own(name).map_err(io::Error::other)
}

/// The boot in the name of a tree.
fn boot_of_name() -> String {
    TransferId(boot_id()).to_string()
}
