//! The list of what is sent: files, folders and links below the paths that a user names. Links inside are never
//! followed.

mod exclude;
mod groups;
mod identity;

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use self::exclude::Exclude;
pub use self::groups::DataGroups;
pub use self::identity::Identity;
use crate::names::{NameError, RelPath, STAGED, display, link_stays_inside};
use crate::root::{Kind, Root};

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
}

/// Something that is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path from the top of the transfer on.
    pub path: RelPath,
    /// Its kind.
    pub kind: EntryKind,
    /// Its permissions.
    pub mode: u32,
    /// When it was changed: seconds since 1970.
    pub mtime_s: i64,
    /// Nanoseconds beside them.
    pub mtime_ns: u32,
    /// Its size in bytes; 0 unless it is a file.
    pub size: u64,
    /// Those of them that are no holes, about.
    pub disk: u64,
    /// What it points to, if it is a link.
    pub target: Vec<u8>,
    /// What it is for the system.
    pub identity: Identity,
}

/// What a walk finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something that is sent.
    Entry(Entry),
    /// Something that is not.
    LeftOut {
        /// Its path, escaped.
        path: String,
        /// Why.
        why: String,
    },
}

/// The reason why paths cannot be sent. Its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// A path cannot be read.
    #[error("{} cannot be sent ({source})", display(.path.as_os_str().as_bytes()))]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A path has no name.
    #[error("{} has no name; send what is in it", display(.0.as_os_str().as_bytes()))]
    Nameless(PathBuf),
    /// A name cannot be sent.
    #[error("{} cannot be sent: {why}", display(.path.as_os_str().as_bytes()))]
    Name {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: NameError,
    },
    /// Two paths have one name.
    #[error("two of the paths are named {}; send them one after the other", display(.0))]
    Twice(Vec<u8>),
    /// A path is no file and no folder.
    #[error("{} is no file and no folder", display(.0.as_os_str().as_bytes()))]
    Special(PathBuf),
    /// A pattern is none.
    #[error("{pattern} is no pattern: {why}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
}

/// What a user sends.
#[derive(Debug)]
pub struct Source {
    tops: Vec<Top>,
    exclude: Exclude,
}

/// Something at the top of what is sent.
#[derive(Debug)]
struct Top {
    path: PathBuf,
    /// What a peer named below the path; a link in it leads nowhere.
    below: Option<RelPath>,
    name: RelPath,
}

impl Top {
    /// Looks at it: its kind, its identity, its mode and how many blocks of 512 bytes it has.
    fn look(&self) -> io::Result<(EntryKind, Identity, (u32, u64))> {
        let Some(below) = &self.below else {
            let metadata = fs::metadata(&self.path)?;
            let kind = match metadata.is_dir() {
                true => EntryKind::Dir,
                false => EntryKind::File,
            };
            return Ok((kind, Identity::of(&metadata), (metadata.mode(), metadata.blocks())));
        };
        let meta = Root::open(&self.path)?.stat(below)?.ok_or(io::ErrorKind::NotFound)?;
        let kind = match meta.kind {
            Kind::Dir => EntryKind::Dir,
            Kind::File => EntryKind::File,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok((kind, Identity::of_meta(&meta), (meta.mode, meta.blocks)))
    }

    /// Opens the folder that it is.
    fn root(&self) -> io::Result<Root> {
        let root = Root::open(&self.path)?;
        match &self.below {
            Some(below) => root.enter(below),
            None => Ok(root),
        }
    }

    /// Opens the file that it is.
    fn file(&self) -> io::Result<File> {
        match &self.below {
            Some(below) => Root::open(&self.path)?.open_read(below),
            // The user named it, so a link is followed.
            None => weft_os::file::open_plain(&fs::canonicalize(&self.path)?),
        }
    }
}

impl Source {
    /// Takes paths, each of which keeps its last name. A link that the user names is followed.
    ///
    /// # Errors
    /// [`WalkError`]
    pub fn new(paths: &[PathBuf], exclude: &[String]) -> Result<Self, WalkError> {
        let mut tops: Vec<Top> = Vec::new();
        for path in paths {
            let unreadable = |source| WalkError::Unreadable {
                path: path.clone(),
                source,
            };
            let kind = fs::metadata(path).map_err(unreadable)?.file_type();
            if !kind.is_file() && !kind.is_dir() {
                return Err(WalkError::Special(path.clone()));
            }
            // What cannot be read at all is named at once.
            match kind.is_dir() {
                true => drop(fs::read_dir(path).map_err(unreadable)?),
                false => drop(File::open(path).map_err(unreadable)?),
            }
            let resolved = match path.file_name() {
                Some(_) => path.clone(),
                None => fs::canonicalize(path).map_err(unreadable)?,
            };
            let name = resolved.file_name().ok_or_else(|| WalkError::Nameless(path.clone()))?;
            let name = RelPath::new(name.as_bytes()).map_err(|why| WalkError::Name {
                path: path.clone(),
                why,
            })?;
            if tops.iter().any(|top| top.name == name) {
                return Err(WalkError::Twice(name.as_bytes().to_vec()));
            }
            let (path, below) = (resolved, None);
            tops.push(Top { path, below, name });
        }
        let exclude = Exclude::new(exclude)?;
        Ok(Self { tops, exclude })
    }

    /// Takes what a peer names: `path`, which the user here chose, under another name, or something below it. No link
    /// below is followed, whatever another process changes meanwhile.
    ///
    /// # Errors
    /// [`WalkError`]
    pub fn shared(path: &Path, name: &str, below: Option<RelPath>, exclude: &[String]) -> Result<Self, WalkError> {
        let (path, exclude) = (path.to_owned(), Exclude::new(exclude)?);
        let name = below.as_ref().map_or(name.as_bytes(), RelPath::name);
        let name = RelPath::new(name).map_err(|why| WalkError::Name {
            path: path.clone(),
            why,
        })?;
        let top = Top { path, below, name };
        let opened = top.look().and_then(|(kind, ..)| match kind {
            EntryKind::Dir => top.root().map(drop),
            EntryKind::File | EntryKind::Link => top.file().map(drop),
        });
        match opened {
            Ok(()) => Ok(Self {
                tops: vec![top],
                exclude,
            }),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(WalkError::Special(top.path)),
            Err(source) => Err(WalkError::Unreadable { path: top.path, source }),
        }
    }

    /// The names at the top.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.tops.iter().map(|top| top.name.as_bytes().to_vec()).collect()
    }

    /// Passes on everything, a folder before what is in it, names in order. It ends early once `each` returns false.
    pub fn walk(&self, each: &mut dyn FnMut(Found) -> bool) {
        for top in &self.tops {
            if !self.walk_top(top, each) {
                return;
            }
        }
    }

    fn walk_top(&self, top: &Top, each: &mut dyn FnMut(Found) -> bool) -> bool {
        let entry = match self.top_entry(top) {
            Ok(entry) => entry,
            Err(error) => return each(left_out(top.name.as_bytes(), unreadable(&error))),
        };
        if self.exclude.matches(&entry.path, entry.kind == EntryKind::Dir) {
            return true;
        }
        let is_folder = entry.kind == EntryKind::Dir;
        if !each(Found::Entry(entry)) {
            return false;
        }
        match is_folder {
            true => self.walk_folders(top, each),
            false => true,
        }
    }

    fn top_entry(&self, top: &Top) -> io::Result<Entry> {
        let (kind, identity, facts) = top.look()?;
        Ok(entry(top.name.clone(), kind, &identity, facts))
    }

    /// Walks through a folder with a stack of open folders.
    fn walk_folders(&self, top: &Top, each: &mut dyn FnMut(Found) -> bool) -> bool {
        let open = |root: io::Result<Root>| -> io::Result<(Root, std::vec::IntoIter<Vec<u8>>)> {
            let root = root?;
            let names = root.names()?.into_iter();
            Ok((root, names))
        };
        let first = match open(top.root()) {
            Ok(first) => first,
            Err(error) => return each(left_out(top.name.as_bytes(), unreadable(&error))),
        };
        let mut stack = vec![(first, top.name.clone())];
        while let Some(((folder, names), path)) = stack.last_mut() {
            let Some(name) = names.next() else {
                stack.pop();
                continue;
            };
            let found = self.look_at(folder, path, &name);
            let below = match &found {
                Some(Found::Entry(entry)) if entry.kind == EntryKind::Dir => Some(entry.path.clone()),
                _ => None,
            };
            let deeper = below.map(|below| {
                let name = RelPath::own(&name).map_err(io::Error::other);
                (open(name.and_then(|name| folder.enter(&name))), below)
            });
            if found.is_some_and(|found| !each(found)) {
                return false;
            }
            match deeper {
                Some((Ok(opened), below)) => stack.push((opened, below)),
                Some((Err(error), below)) if !each(left_out(below.as_bytes(), unreadable(&error))) => return false,
                Some((Err(_), _)) | None => {}
            }
        }
        true
    }

    /// Looks at one name of a folder; `None` if it is excluded, or gone again.
    fn look_at(&self, folder: &Root, parent: &RelPath, name: &[u8]) -> Option<Found> {
        let whole = [parent.as_bytes(), b"/", name].concat();
        let path = match parent.join(name) {
            Ok(path) => path,
            Err(error) => return Some(left_out(&whole, error.to_string())),
        };
        if name.starts_with(STAGED) {
            return Some(left_out(&whole, "what is staged of another transfer".to_owned()));
        }
        let looked = RelPath::own(name).map_err(io::Error::other).and_then(|own| {
            let meta = folder.stat(&own)?;
            let target = match &meta {
                Some(meta) if meta.kind == Kind::Link => folder.read_link(&own)?,
                _ => Vec::new(),
            };
            Ok((meta, target))
        });
        let (meta, target) = match looked {
            Ok((Some(meta), target)) => (meta, target),
            Ok((None, _)) => return None,
            Err(error) => return Some(left_out(&whole, unreadable(&error))),
        };
        if self.exclude.matches(&path, meta.kind == Kind::Dir) {
            return None;
        }
        let kind = match meta.kind {
            Kind::Dir => EntryKind::Dir,
            Kind::File => EntryKind::File,
            Kind::Link if link_stays_inside(&path, &target) => EntryKind::Link,
            Kind::Link => return Some(left_out(&whole, "a link that leads out of what is sent".to_owned())),
            Kind::Fifo => return Some(left_out(&whole, "a FIFO".to_owned())),
            Kind::Socket => return Some(left_out(&whole, "a socket".to_owned())),
            Kind::Device => return Some(left_out(&whole, "a device".to_owned())),
        };
        let found = entry(path, kind, &Identity::of_meta(&meta), (meta.mode, meta.blocks));
        Some(Found::Entry(Entry { target, ..found }))
    }

    /// Opens a file that the walk found.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if it is no regular file any more.
    pub fn open(&self, path: &RelPath) -> io::Result<File> {
        let top = self.top_of(path)?;
        match below(path) {
            None => top.file(),
            Some(rest) => top.root()?.open_read(&rest),
        }
    }

    /// Looks at a file again.
    ///
    /// # Errors
    /// Those of the system; `InvalidInput` if it is no regular file any more.
    pub fn look(&self, path: &RelPath) -> io::Result<Entry> {
        let metadata = self.open(path)?.metadata()?;
        let identity = Identity::of(&metadata);
        Ok(entry(
            path.clone(),
            EntryKind::File,
            &identity,
            (metadata.mode(), metadata.blocks()),
        ))
    }

    fn top_of(&self, path: &RelPath) -> io::Result<&Top> {
        let found = self.tops.iter().find(|top| top.name.as_bytes() == path.first());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The part of a path below its first name.
fn below(path: &RelPath) -> Option<RelPath> {
    let bytes = path.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'/')?;
    RelPath::own(bytes.get(at + 1..)?).ok()
}

fn entry(path: RelPath, kind: EntryKind, identity: &Identity, (mode, blocks): (u32, u64)) -> Entry {
    let size = match kind {
        EntryKind::File => identity.size,
        EntryKind::Dir | EntryKind::Link => 0,
    };
    Entry {
        path,
        kind,
        mode: mode & 0o777,
        mtime_s: identity.mtime_s,
        mtime_ns: identity.mtime_ns,
        size,
        disk: size.min(blocks.saturating_mul(512)),
        target: Vec::new(),
        identity: *identity,
    }
}

fn left_out(path: &[u8], why: String) -> Found {
    Found::LeftOut {
        path: display(path),
        why,
    }
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read ({error})")
}

#[cfg(test)]
mod tests;
