//! The transfers that outlive the process: a file for each, `queue/ID.json` of those from here and `inbox/ID.json` of
//! those to here. Those that have ended stay as history.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weft_os::file::with_suffix;

use crate::api::{Direction, Progress, RawPath, TransferId, TransferState};
use crate::document;

/// Transfers that have ended and are kept, of both directions. The one that ended first goes first.
pub const HISTORY: usize = 1000;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the receiving end is told of a cancel, in seconds.
const TELL: u64 = 24 * 3_600;
/// Files that are moved aside of one transfer.
const ASIDE: u32 = 100;

/// The pause after so many tries that failed one after the other: 2 s, 4 s, 8 s and so on, at most 30 s.
#[must_use]
pub fn backoff(tries: u32) -> Duration {
    let seconds = 2_u64.checked_pow(tries.max(1)).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(LONGEST_PAUSE)
}

/// A transfer from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// Its identity.
    pub id: TransferId,
    /// The files and folders: absolute paths.
    pub paths: Vec<RawPath>,
    /// The peer, as the user named it.
    pub peer: String,
    /// The key of the peer, once the daemon has said it: a peer that gets another name meanwhile is still meant, and
    /// another one with its name is not.
    pub npub: Option<String>,
    /// What the peer fetches of a share, for people. Nothing starts it here.
    #[serde(default)]
    pub share: Option<String>,
    /// The user there; `None` for the only one that receives.
    pub user: Option<String>,
    /// The folder below the receiver's; empty for that itself.
    pub into: String,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// Whether files that exist there are replaced.
    pub overwrite: bool,
    /// The most bytes a second.
    pub limit: Option<u64>,
    /// The same while its path goes through a relay.
    #[serde(default)]
    pub limit_relay: Option<u64>,
    /// What it does. In the file it is queued, paused or ended.
    pub state: TransferState,
    /// The reason for the state, for people.
    pub why: Option<String>,
    /// When it was begun, in seconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// How many tries have failed since the last one that moved something.
    pub tries: u32,
    /// Whether a try has reached the receiving end, which then keeps something of it.
    #[serde(default)]
    pub reached: bool,
    /// Until when the receiving end is to be told that it is cancelled, in seconds since 1970.
    #[serde(default)]
    pub tell_until: Option<u64>,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
}

/// What is fetched of a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// The share.
    pub share: String,
    /// What is below it; empty for the share itself.
    pub path: String,
    /// Patterns of names that are left out.
    pub exclude: Vec<String>,
    /// The most bytes a second.
    pub limit: Option<u64>,
    /// How many tries have failed since the last one that moved something.
    pub tries: u32,
}

impl Fetch {
    /// The share and the path below it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.path.is_empty() {
            true => self.share.clone(),
            false => format!("{}/{}", self.share, self.path),
        }
    }
}

/// A transfer to here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// Its identity, which the other end has chosen.
    pub id: TransferId,
    /// What is fetched; `None` for what was offered.
    #[serde(default)]
    pub fetch: Option<Fetch>,
    /// The key of the peer; of what is fetched empty until the daemon has said it.
    pub npub: String,
    /// The name of the peer, or its npub.
    pub peer: String,
    /// The user at the other end, if it said one.
    pub user: Option<String>,
    /// The names of the files and folders; what is no UTF-8 is escaped.
    pub names: Vec<String>,
    /// The folder below [`Incoming::folder`]; empty for that itself.
    pub into: String,
    /// Whether files that exist are replaced.
    #[serde(default)]
    pub overwrite: bool,
    /// What identifies the offer: a hash of its names, folder and flags.
    #[serde(default)]
    pub offer: String,
    /// The bytes that were offered, if that was known.
    #[serde(default)]
    pub offered: Option<u64>,
    /// The names at the top, as they were offered.
    #[serde(default)]
    pub tops: Vec<RawPath>,
    /// Patterns of those that the user wants; empty for all.
    #[serde(default)]
    pub only: Vec<String>,
    /// The folder of the user into which files came when it was accepted: absolute.
    pub folder: RawPath,
    /// What it does. In the file it waits for the user, runs (it is accepted), is paused, or has ended.
    pub state: TransferState,
    /// The reason for the state, for people.
    pub why: Option<String>,
    /// When it was offered, in seconds since 1970.
    pub begun: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
}

impl Incoming {
    /// Creates one of which nothing is known yet, and which runs. `begun` is in seconds since 1970.
    #[must_use]
    pub fn new(id: TransferId, peer: String, folder: RawPath, begun: u64) -> Self {
        Self {
            id,
            fetch: None,
            npub: String::new(),
            peer,
            user: None,
            names: Vec::new(),
            into: String::new(),
            overwrite: false,
            offer: String::new(),
            offered: None,
            tops: Vec::new(),
            only: Vec::new(),
            folder,
            state: TransferState::Running,
            why: None,
            begun,
            ended: None,
            progress: Progress::default(),
        }
    }
}

/// What both directions have in common.
trait Kept: Clone + Serialize + DeserializeOwned {
    const SCHEMA: &'static str;
    const FOLDER: &'static str;
    const DIRECTION: Direction;

    fn id(&self) -> TransferId;
    /// When it was begun.
    fn begun(&self) -> u64;
    /// When it ended, if it has.
    fn ended(&self) -> Option<u64>;
    /// As it is after a restart.
    fn at_rest(self) -> Self;
}

impl Outgoing {
    /// Creates one of which nothing is known yet, and which is queued. `begun` is in seconds since 1970.
    #[must_use]
    pub fn new(id: TransferId, peer: String, paths: Vec<RawPath>, begun: u64) -> Self {
        Self {
            id,
            paths,
            peer,
            npub: None,
            share: None,
            user: None,
            into: String::new(),
            exclude: Vec::new(),
            overwrite: false,
            limit: None,
            limit_relay: None,
            state: TransferState::Queued,
            why: None,
            begun,
            ended: None,
            tries: 0,
            reached: false,
            tell_until: None,
            progress: Progress::default(),
        }
    }

    /// Notes that the receiving end has to be told of the end, if it knows of the transfer.
    pub fn tell_of_cancel(&mut self, now: u64) {
        self.tell_until = self.reached.then(|| now.saturating_add(TELL));
        self.tries = 0;
    }
}

impl Kept for Outgoing {
    const SCHEMA: &'static str = "weft.transfer-outgoing/1";
    const FOLDER: &'static str = "queue";
    const DIRECTION: Direction = Direction::Send;

    fn id(&self) -> TransferId {
        self.id
    }

    fn begun(&self) -> u64 {
        self.begun
    }

    fn ended(&self) -> Option<u64> {
        self.state.has_ended().then(|| self.ended.unwrap_or(self.begun))
    }

    fn at_rest(mut self) -> Self {
        if !self.state.has_ended() && self.state != TransferState::Paused {
            self.state = TransferState::Queued;
        }
        self
    }
}

impl Kept for Incoming {
    const SCHEMA: &'static str = "weft.transfer-incoming/1";
    const FOLDER: &'static str = "inbox";
    const DIRECTION: Direction = Direction::Receive;

    fn id(&self) -> TransferId {
        self.id
    }

    fn begun(&self) -> u64 {
        self.begun
    }

    fn ended(&self) -> Option<u64> {
        self.state.has_ended().then(|| self.ended.unwrap_or(self.begun))
    }

    fn at_rest(mut self) -> Self {
        if !self.state.has_ended() && !matches!(self.state, TransferState::Waiting | TransferState::Paused) {
            self.state = TransferState::Running;
        }
        self
    }
}

/// The files of all transfers. One process has them at a time.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    damaged: Vec<PathBuf>,
    kept: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    outgoing: BTreeMap<TransferId, Outgoing>,
    incoming: BTreeMap<TransferId, Incoming>,
}

impl Store {
    /// Reads the transfers in `directory`, which is made if it does not exist. A file that cannot be used is reported
    /// and moved aside: `.damaged` is behind its name then.
    ///
    /// # Errors
    /// That of the system: the directories can be neither made nor read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut damaged = Vec::new();
        let all = All {
            outgoing: load(directory, &mut damaged)?,
            incoming: load(directory, &mut damaged)?,
        };
        Ok(Self {
            directory: directory.to_owned(),
            damaged,
            kept: Mutex::new(all),
        })
    }

    /// The files that could not be used when the store was opened, where they are now.
    #[must_use]
    pub fn damaged(&self) -> &[PathBuf] {
        &self.damaged
    }

    /// The transfers from here, as they were saved last, the newest last.
    #[must_use]
    pub fn outgoing(&self) -> Vec<Outgoing> {
        newest_last(self.all().outgoing.values())
    }

    /// The transfers to here, as they were saved last, the newest last.
    #[must_use]
    pub fn incoming(&self) -> Vec<Incoming> {
        newest_last(self.all().incoming.values())
    }

    /// Returns a transfer that is sent from here.
    #[must_use]
    pub fn find_outgoing(&self, id: TransferId) -> Option<Outgoing> {
        self.all().outgoing.get(&id).cloned()
    }

    /// Returns a transfer that comes here.
    #[must_use]
    pub fn find_incoming(&self, id: TransferId) -> Option<Incoming> {
        self.all().incoming.get(&id).cloned()
    }

    /// Saves a transfer from here. It is on the disk when this returns.
    ///
    /// # Errors
    /// That of the system; the file is as before.
    pub fn save_outgoing(&self, transfer: &Outgoing) -> io::Result<()> {
        let mut all = self.all();
        let transfer = self.write(transfer)?;
        all.outgoing.insert(transfer.id, transfer);
        self.forget(&mut all);
        Ok(())
    }

    /// Saves a transfer to here. It is on the disk when this returns.
    ///
    /// # Errors
    /// That of the system; the file is as before.
    pub fn save_incoming(&self, transfer: &Incoming) -> io::Result<()> {
        let mut all = self.all();
        let transfer = self.write(transfer)?;
        all.incoming.insert(transfer.id, transfer);
        self.forget(&mut all);
        Ok(())
    }

    /// Removes the file of a transfer, if there is one. That is on the disk when this returns.
    ///
    /// # Errors
    /// That of the system.
    pub fn remove(&self, direction: Direction, id: TransferId) -> io::Result<()> {
        self.drop_one(&mut self.all(), direction, id)
    }

    fn write<T: Kept>(&self, transfer: &T) -> io::Result<T> {
        let transfer = transfer.clone().at_rest();
        document::write(&path_of::<T>(&self.directory, transfer.id()), T::SCHEMA, &transfer)?;
        Ok(transfer)
    }

    fn drop_one(&self, all: &mut All, direction: Direction, id: TransferId) -> io::Result<()> {
        let path = match direction {
            Direction::Send => path_of::<Outgoing>(&self.directory, id),
            Direction::Receive => path_of::<Incoming>(&self.directory, id),
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => document::sync_names(&path)?,
        }
        match direction {
            Direction::Send => drop(all.outgoing.remove(&id)),
            Direction::Receive => drop(all.incoming.remove(&id)),
        }
        Ok(())
    }

    /// Drops what ended first, while more than [`HISTORY`] are kept.
    fn forget(&self, all: &mut All) {
        fn ended<T: Kept>(kept: &BTreeMap<TransferId, T>) -> impl Iterator<Item = (u64, Direction, TransferId)> {
            kept.values()
                .filter_map(|one| Some((one.ended()?, T::DIRECTION, one.id())))
        }
        let mut over: Vec<_> = ended(&all.outgoing).chain(ended(&all.incoming)).collect();
        over.sort_unstable_by_key(|(ended, _, id)| (*ended, *id));
        over.truncate(over.len().saturating_sub(HISTORY));
        for (_, direction, id) in over {
            if let Err(error) = self.drop_one(all, direction, id) {
                // The next one that is saved tries again.
                tracing::warn!(%id, %error, "a transfer that has ended cannot be removed from the history");
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // What is kept is changed after each file, in one step.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn newest_last<'a, T: Kept + 'a>(kept: impl Iterator<Item = &'a T>) -> Vec<T> {
    let mut all: Vec<T> = kept.cloned().collect();
    all.sort_by_key(|one| (one.begun(), one.id()));
    all
}

fn path_of<T: Kept>(directory: &Path, id: TransferId) -> PathBuf {
    directory.join(T::FOLDER).join(format!("{id}.json"))
}

fn load<T: Kept>(directory: &Path, damaged: &mut Vec<PathBuf>) -> io::Result<BTreeMap<TransferId, T>> {
    let folder = directory.join(T::FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut kept = BTreeMap::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Others are those that were moved aside, or that a crash left half written.
        let Some(id) = name.strip_suffix(".json") else {
            continue;
        };
        match load_one::<T>(&path, id) {
            Ok(transfer) => drop(kept.insert(transfer.id(), transfer)),
            Err(why) => {
                let aside = move_aside(&path)?;
                tracing::warn!(path = %path.display(), aside = %aside.display(), "a transfer is unusable: {why}");
                damaged.push(aside);
            }
        }
    }
    Ok(kept)
}

fn load_one<T: Kept>(path: &Path, name: &str) -> Result<T, String> {
    let transfer: Option<T> = document::read(path, T::SCHEMA).map_err(|why| why.to_string())?;
    let transfer = transfer.ok_or("it is gone")?;
    match transfer.id().to_string() == name {
        true => Ok(transfer.at_rest()),
        false => Err("it has the identifier of another transfer".to_owned()),
    }
}

/// Renames a file, and replaces none that was moved aside before.
fn move_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=ASIDE {
        let suffix = match number {
            1 => ".damaged".to_owned(),
            _ => format!(".{number}.damaged"),
        };
        let aside = with_suffix(path, &suffix);
        match renameat_with(CWD, path, CWD, &aside, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => {}
            renamed => {
                renamed?;
                return Ok(aside);
            }
        }
    }
    Err(io::Error::other(format!(
        "{ASIDE} files like {} were moved aside already; look at them",
        path.display()
    )))
}

#[cfg(test)]
mod tests;
