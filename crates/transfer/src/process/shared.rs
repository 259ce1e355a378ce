//! What peers see of the shares of this user.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Process;
use super::grants::Grant;
use super::requests::{Refused, answer};
use crate::names::{RelPath, STAGED};
use crate::root::{Kind, Meta, Root};
use crate::shares::{Asker, Share};
use crate::walk::EntryKind;
use crate::wire::message::{ENTRIES_BYTES, Ended};
use crate::wire::request::{Answer, Listed, MAX_LISTED};

/// The most names of a folder that are sent.
pub(super) const MAX_NAMES: usize = 10_000;
/// Time limit of all answers to a question for names.
const LISTING: Duration = Duration::from_secs(60);
/// The most folders that are listed at a time, and those of one peer: their names are in memory until the peer has them.
const MAX_LISTINGS: (usize, usize) = (8, 2);
/// How long a question for names waits for others.
const TURN: Duration = Duration::from_secs(2);
/// The pause between two looks whether it has its turn.
const LOOK: Duration = Duration::from_millis(20);
/// The answer about a share that does not exist, and about one of others.
pub(super) const NO_SHARE: &str = "no such share, or not for this node";
/// The answer about a path.
pub(super) const NOT_THERE: &str = "no such file or folder in this share";

/// The peers that folders are being listed for.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<Vec<String>>);

/// A listing, until it is dropped.
pub(super) struct Place<'a>(&'a Listings, String);

impl Listings {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        // No code panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a peer, if there is one.
    pub(super) fn take(&self, npub: &str) -> Option<Place<'_>> {
        let mut all = self.lock();
        let own = all.iter().filter(|one| *one == npub).count();
        (all.len() < MAX_LISTINGS.0 && own < MAX_LISTINGS.1).then(|| {
            all.push(npub.to_owned());
            Place(self, npub.to_owned())
        })
    }

    /// Waits for a place, but not for long.
    fn wait(&self, npub: &str) -> Result<Place<'_>, Refused> {
        let end = Instant::now() + TURN;
        loop {
            match self.take(npub) {
                Some(place) => return Ok(place),
                None if Instant::now() < end => thread::sleep(LOOK),
                None => return Err((Ended::NotNow, "too many read names there at present".to_owned())),
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        if let Some(at) = all.iter().position(|one| *one == self.1) {
            all.swap_remove(at);
        }
    }
}

impl Grant {
    fn asker(&self) -> Asker<'_> {
        Asker {
            npub: &self.npub,
            networks: &self.networks,
            tags: &self.tags,
        }
    }
}

impl Process {
    /// Returns a share that the peer may read.
    pub(super) fn share_for(&self, name: &str, grant: &Grant) -> Result<Share, Refused> {
        let found = self.shares().find(name, grant.asker()).cloned();
        found.ok_or_else(|| (Ended::Fault, NO_SHARE.to_owned()))
    }

    /// Answers a question for names.
    pub(super) fn serve_browse(&self, stream: &TcpStream, grant: &Grant, share: &str, path: &[u8]) -> io::Result<()> {
        let listed = || {
            let place = self.listings.wait(&grant.npub)?;
            let (names, more) = match share.is_empty() {
                true => self.shares_of(grant),
                false => list(&self.share_for(share, grant)?, path)?,
            };
            Ok((names, more, place))
        };
        match listed() {
            Ok((names, more, _place)) => {
                let user = self.user().clone();
                send(stream, names, &Answer::End { more, user }, Instant::now() + LISTING)
            }
            Err((ended, why)) => answer(stream, &Answer::Refused(ended, why)),
        }
    }

    /// Returns the shares that the peer may read, and that are there.
    fn shares_of(&self, grant: &Grant) -> (Vec<Listed>, bool) {
        let shares = self.shares().clone();
        let own = shares.all().iter().filter(|share| share.is_for(grant.asker()));
        let found = own.filter_map(|share| top(&PathBuf::from(&share.path), share.name.as_bytes()).ok());
        (found.collect(), false)
    }
}

/// Reads a path that a peer names below a share; `None` for the share itself.
///
/// # Errors
/// What is answered.
pub(super) fn below(path: &[u8]) -> Result<Option<RelPath>, Refused> {
    if path.is_empty() {
        return Ok(None);
    }
    let not_there = || (Ended::Fault, NOT_THERE.to_owned());
    let path = RelPath::new(path).map_err(|_| not_there())?;
    let is_staged = path.components().any(|name| name.starts_with(STAGED));
    match is_staged {
        true => Err(not_there()),
        false => Ok(Some(path)),
    }
}

/// What an error of the system means for a peer.
pub(super) fn refusal(error: &io::Error) -> Refused {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            (Ended::Fault, NOT_THERE.to_owned())
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            (Ended::Fault, NOT_THERE.to_owned())
        }
        _ => (Ended::NotNow, format!("it cannot be read there ({error})")),
    }
}

/// Looks at what the user shares; its own links are followed.
fn top(path: &Path, name: &[u8]) -> io::Result<Listed> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path)?;
    let kind = match found.file_type() {
        kind if kind.is_dir() => EntryKind::Dir,
        kind if kind.is_file() => EntryKind::File,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    Ok(Listed {
        kind,
        size: if kind == EntryKind::File { found.len() } else { 0 },
        mtime_s: found.mtime(),
        name: name.to_vec(),
    })
}

/// Returns the names of a folder in a share, or the one of a file, and whether there are more.
fn list(share: &Share, path: &[u8]) -> Result<(Vec<Listed>, bool), Refused> {
    let shared = PathBuf::from(&share.path);
    let below = below(path)?;
    let listed = || -> io::Result<(Vec<Listed>, bool)> {
        let Some(below) = below else {
            let top = top(&shared, share.name.as_bytes())?;
            return match top.kind {
                EntryKind::Dir => folder(&Root::open(&shared)?),
                EntryKind::File | EntryKind::Link => Ok((vec![top], false)),
            };
        };
        let root = Root::open(&shared)?;
        let meta = root.stat(&below)?.ok_or(io::ErrorKind::NotFound)?;
        match meta.kind {
            Kind::Dir => folder(&root.enter(&below)?),
            _ => Ok((one(&meta, below.name().to_vec()).into_iter().collect(), false)),
        }
    };
    listed().map_err(|error| refusal(&error))
}

fn folder(folder: &Root) -> io::Result<(Vec<Listed>, bool)> {
    let (names, more) = folder.names_up_to(MAX_NAMES)?;
    let look = |name: Vec<u8>| {
        let path = RelPath::own(&name).ok().filter(|_| !name.starts_with(STAGED))?;
        // What is gone again, or cannot be looked at, has no line.
        one(&folder.stat(&path).ok()??, name)
    };
    Ok((names.into_iter().filter_map(look).collect(), more))
}

fn one(meta: &Meta, name: Vec<u8>) -> Option<Listed> {
    let kind = match meta.kind {
        Kind::Dir => EntryKind::Dir,
        Kind::File => EntryKind::File,
        Kind::Link => EntryKind::Link,
        Kind::Fifo | Kind::Socket | Kind::Device => return None,
    };
    Some(Listed {
        kind,
        size: if kind == EntryKind::File { meta.size } else { 0 },
        mtime_s: meta.mtime_s,
        name,
    })
}

/// Sends names, as many in a message as it takes, and the `last` answer.
fn send(stream: &TcpStream, names: Vec<Listed>, last: &Answer, end: Instant) -> io::Result<()> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for name in names {
        bytes += 32 + name.name.len();
        batch.push(name);
        if batch.len() >= MAX_LISTED || bytes >= ENTRIES_BYTES {
            answer(stream, &Answer::Listed(std::mem::take(&mut batch)))?;
            bytes = 0;
            if Instant::now() >= end {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
    if !batch.is_empty() {
        answer(stream, &Answer::Listed(batch))?;
    }
    answer(stream, last)
}
