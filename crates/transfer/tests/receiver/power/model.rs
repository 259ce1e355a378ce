//! What a disk may hold after a loss of power: some of the changes so far, of which those that were synced count.
//!
//! The model differs from real file systems:
//!
//! - A sync of a file makes its content durable, not its name; ext4, XFS and btrfs write the name of a new file with it.
//! - A sync of a folder makes its names durable, and a rename is durable if one of its two folders is: no rename is
//!   half done. POSIX promises less, and each file system with a journal keeps to it.
//! - Changes of one inode keep their order; those of different inodes do not. File systems with a journal also keep the
//!   order of names.
//! - A write is there as a whole, as zeros, or not at all; pages of it are not lost one by one.
//! - A sync writes everything from before its begin. No sync fails, and no disk lies about it.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A folder and a name in it.
pub(super) type Place = (u32, Vec<u8>);

/// What a new inode is.
#[derive(Clone, Debug)]
pub(super) enum Born {
    File,
    Dir(u32),
    Link(Vec<u8>),
}

/// A change.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Make {
        place: Place,
        ino: u32,
        born: Born,
    },
    Move {
        ino: u32,
        old: Place,
        new: Place,
    },
    Unlink {
        place: Place,
        ino: u32,
    },
    /// Without a place: at the end.
    Write {
        ino: u32,
        at: Option<u64>,
        bytes: Arc<[u8]>,
    },
    Size {
        ino: u32,
        len: u64,
    },
    Punch {
        ino: u32,
        at: u64,
        len: u64,
    },
    Mode {
        ino: u32,
        mode: u32,
    },
    Time {
        ino: u32,
        time: (i64, i64),
    },
}

/// What a sync is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    All,
    One(u32),
}

/// What a trace tells.
#[derive(Debug)]
pub(super) enum Event {
    Op(Op),
    Sync(Scope),
    /// The process keeps that everything is stored.
    Done,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    There,
    /// Of a write, only the size.
    Zeros,
    Lost,
}

impl Op {
    /// Whether it concerns names.
    pub(super) const fn is_name(&self) -> bool {
        matches!(self, Self::Make { .. } | Self::Move { .. } | Self::Unlink { .. })
    }

    /// Whether it concerns content.
    pub(super) const fn is_data(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Size { .. } | Self::Punch { .. })
    }

    pub(super) const fn ino(&self) -> u32 {
        match self {
            Self::Make { ino, .. }
            | Self::Move { ino, .. }
            | Self::Unlink { ino, .. }
            | Self::Write { ino, .. }
            | Self::Size { ino, .. }
            | Self::Punch { ino, .. }
            | Self::Mode { ino, .. }
            | Self::Time { ino, .. } => *ino,
        }
    }

    /// Whether a sync makes it durable.
    pub(super) const fn is_synced_by(&self, scope: Scope) -> bool {
        let Scope::One(synced) = scope else { return true };
        match self {
            Self::Make { place, .. } | Self::Unlink { place, .. } => place.0 == synced,
            Self::Move { old, new, .. } => old.0 == synced || new.0 == synced,
            other => other.ino() == synced,
        }
    }
}

/// Something in an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) what: What,
    pub(super) mode: u32,
    /// The time of the last change, if it was set.
    pub(super) time: Option<(i64, i64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Dir(BTreeMap<Vec<u8>, u32>),
    File(Vec<u8>),
    Link(Vec<u8>),
}

/// All below the folder, by path.
pub(super) type Image = BTreeMap<Vec<u8>, Node>;

/// What is there after those of the changes that are.
pub(super) fn replay(ops: &[Op], fates: &[(Fate, bool)]) -> Image {
    let dir = |mode| Node {
        what: What::Dir(BTreeMap::new()),
        mode,
        time: None,
    };
    let mut nodes = BTreeMap::from([(0, dir(0o700))]);
    for (op, (fate, is_durable)) in ops.iter().zip(fates) {
        match op {
            _ if *fate == Fate::Lost => {}
            Op::Make { place, ino, born } => {
                let node = match born {
                    Born::Dir(mode) => dir(*mode),
                    Born::File => Node {
                        what: What::File(Vec::new()),
                        ..dir(0o600)
                    },
                    Born::Link(target) => Node {
                        what: What::Link(target.clone()),
                        ..dir(0o777)
                    },
                };
                nodes.insert(*ino, node);
                link(&mut nodes, place, *ino);
            }
            Op::Move { ino, new, .. } if nodes.contains_key(ino) => {
                unlink(&mut nodes, *ino);
                link(&mut nodes, new, *ino);
            }
            Op::Unlink { ino, .. } => {
                // No file system removes a folder that has names.
                let is_empty =
                    !matches!(nodes.get(ino), Some(Node { what: What::Dir(names), .. }) if !names.is_empty());
                if is_empty || *is_durable {
                    unlink(&mut nodes, *ino);
                }
            }
            Op::Mode { ino, mode } => drop(nodes.get_mut(ino).map(|node| node.mode = *mode)),
            Op::Time { ino, time } => drop(nodes.get_mut(ino).map(|node| node.time = Some(*time))),
            other => {
                if let Some(Node {
                    what: What::File(bytes),
                    time,
                    ..
                }) = nodes.get_mut(&other.ino())
                {
                    change(bytes, other, *fate);
                    *time = None;
                }
            }
        }
    }
    let mut image = Image::new();
    let mut left = vec![(Vec::new(), 0)];
    while let Some((path, ino)) = left.pop() {
        let mut node = nodes[&ino].clone();
        if let What::Dir(names) = &mut node.what {
            let inside = |name: &Vec<u8>| {
                if path.is_empty() {
                    name.clone()
                } else {
                    [&path[..], b"/", name].concat()
                }
            };
            left.extend(
                std::mem::take(names)
                    .into_iter()
                    .map(|(name, ino)| (inside(&name), ino)),
            );
        }
        if ino != 0 {
            image.insert(path, node);
        }
    }
    image
}

fn link(nodes: &mut BTreeMap<u32, Node>, (folder, name): &Place, ino: u32) {
    if let Some(Node {
        what: What::Dir(names),
        time,
        ..
    }) = nodes.get_mut(folder)
    {
        names.insert(name.clone(), ino);
        *time = None;
    }
}

/// Takes away the name of an inode.
fn unlink(nodes: &mut BTreeMap<u32, Node>, ino: u32) {
    for node in nodes.values_mut() {
        if let What::Dir(names) = &mut node.what {
            let before = names.len();
            names.retain(|_, other| *other != ino);
            if names.len() != before {
                node.time = None;
            }
        }
    }
}

fn change(file: &mut Vec<u8>, op: &Op, fate: Fate) {
    match op {
        Op::Write { at, bytes, .. } => {
            let at = at.map_or(file.len(), |at| at as usize);
            let end = at + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            if fate == Fate::There {
                file[at..end].copy_from_slice(bytes);
            }
        }
        Op::Size { len, .. } => file.resize(*len as usize, 0),
        Op::Punch { at, len, .. } => {
            let end = file.len().min((at + len) as usize);
            file[*at as usize..end].fill(0);
        }
        _ => {}
    }
}

/// Returns the path and the content of a file as they are to be made.
pub(super) type Translate<'a> = dyn Fn(&[u8], &[u8]) -> (Vec<u8>, Vec<u8>) + 'a;

/// Makes the files of an image.
pub(super) fn materialise(image: &Image, folder: &Path, translate: &Translate<'_>) {
    let path_of = |path: &[u8]| folder.join(std::ffi::OsStr::from_bytes(path));
    let mut made = Vec::new();
    for (path, node) in image {
        let content = if let What::File(bytes) = &node.what {
            &bytes[..]
        } else {
            b""
        };
        let (path, content) = translate(path, content);
        let path = path_of(&path);
        match &node.what {
            What::Dir(_) => DirBuilder::new().mode(0o700).create(&path).unwrap(),
            What::Link(target) => std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap(),
            What::File(_) => write(&File::create(&path).unwrap(), &content),
        }
        made.push((path, node));
    }
    // What is in a folder changes its time.
    for (path, node) in made
        .iter()
        .rev()
        .filter(|(_, node)| !matches!(node.what, What::Link(_)))
    {
        if let Some((seconds, nanoseconds)) = node.time {
            let time = UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32);
            File::open(path).unwrap().set_modified(time).unwrap();
        }
        std::fs::set_permissions(path, Permissions::from_mode(node.mode)).unwrap();
    }
}

/// Writes a file with holes where it is zero.
fn write(file: &File, content: &[u8]) {
    const PIECE: usize = 64 << 10;
    file.set_len(content.len() as u64).unwrap();
    for (number, piece) in (0..).zip(content.chunks(PIECE)) {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, number * PIECE as u64).unwrap();
        }
    }
}
