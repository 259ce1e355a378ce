//! The process of a user, `weft transferd`: it serves the verbs, keeps the queue going, and takes what members send.

mod ask;
mod back;
mod clean;
mod fetched;
mod get;
mod grants;
mod incoming;
mod limits;
mod listener;
mod nodes;
mod notify;
mod outgoing;
mod requests;
mod services;
mod shared;
mod shares;
mod status;
mod verbs;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_os::lock::{FileLock, LockError};

use self::grants::Grants;
use self::notify::Notifier;
use self::services::OfServices;
use self::shared::Listings;
use crate::api::{Direction, TransferId};
use crate::client::{self, ClientError};
use crate::document::Setting as _;
use crate::limits::Keeper;
use crate::live::{Live, Reason};
use crate::queue::{Outgoing, Store, backoff};
use crate::server::Server;
use crate::settings::{Settings, SettingsError};
use crate::shares::Shares;

/// How long the end waits for transfers that are under way.
const CLOSE: Duration = Duration::from_secs(5);
/// The pause between two looks whether the directory is still there.
const LOOK: Duration = Duration::from_secs(2);

/// Where a process has its files.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of its state and its socket.
    pub directory: PathBuf,
    /// The control socket of the daemon.
    pub control: PathBuf,
    /// The home directory of the user.
    pub home: Option<PathBuf>,
}

/// The reason why a process cannot run. Its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Another one runs.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its settings, shares or services are unusable.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Its socket has no place.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Its files cannot be used.
    #[error("the state of transfers cannot be used ({source}): {}; check the directory", .path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A transfer by its direction: a user may send to another one of the same machine's network.
type Key = (Direction, TransferId);

/// What all threads of the process share.
#[derive(Debug)]
struct Process {
    options: Options,
    /// Its version and its executable.
    version: String,
    store: Store,
    settings: Mutex<Settings>,
    shares: Mutex<Shares>,
    keeper: Arc<Keeper>,
    notifier: Notifier,
    lives: Mutex<BTreeMap<Key, Arc<Live>>>,
    /// The fetches of peers at present. Lock order: this one before `lives`.
    fetched: Mutex<BTreeMap<TransferId, Outgoing>>,
    grants: Grants,
    listings: Listings,
    services: OfServices,
    /// The lock of each change to the stored state of an incoming transfer, from its reading to its writing.
    deciding: Mutex<()>,
    /// Why nothing can come at present.
    why_not: Mutex<Option<String>>,
    /// The name of the user, once the daemon has said it.
    user: Mutex<String>,
    plan: Mutex<Plan>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// When each transfer of the queue is tried next.
#[derive(Debug, Default)]
struct Plan {
    next: BTreeMap<TransferId, Instant>,
    /// Changes since the start.
    version: u64,
}

/// Runs until a verb ends it, or its directory is gone.
///
/// # Errors
/// [`ProcessError`]
pub fn run(options: Options) -> Result<(), ProcessError> {
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| ProcessError::Io { path, source }
    };
    let private = |path: &PathBuf| DirBuilder::new().recursive(true).mode(0o700).create(path);
    private(&options.directory).map_err(failed(&options.directory))?;
    let _lock = FileLock::acquire(&options.directory.join("lock"))?;
    let outboards = options.directory.join("sent");
    private(&outboards).map_err(failed(&outboards))?;
    let store = Store::open(&options.directory).map_err(failed(&options.directory))?;
    let settings = Settings::load(&options.directory.join("settings.json"))?;
    let shares = Shares::load(&options.directory.join("shares.json"))?;
    let services = OfServices::load(&options)?;
    let socket = client::socket(&options.directory)?;
    let server = Server::bind(&socket).map_err(failed(&socket))?;
    let stopper = server.stopper();
    let process = Arc::new(Process::new(options, store, settings, shares, services));
    for body in [
        Process::receive,
        Process::schedule,
        Process::hear,
        Process::look_after_services,
        Process::remove_rests,
    ] {
        let process = Arc::clone(&process);
        thread::spawn(move || body(&process));
    }
    let watched = Arc::clone(&process);
    thread::spawn(move || {
        while watched.options.directory.exists() {
            thread::sleep(LOOK);
        }
        stopper.stop();
    });
    server.serve(Arc::clone(&process) as Arc<dyn crate::server::Handler>);
    process.close();
    Ok(())
}

/// The version of this process, behind a `+` the modification time, size and inode of its executable.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match fs::metadata("/proc/self/exe") {
        Ok(of) => format!("{version}+{}.{}.{}", of.mtime(), of.len(), of.ino()),
        Err(_) => version.to_owned(),
    }
}

impl Process {
    fn new(options: Options, store: Store, settings: Settings, shares: Shares, services: OfServices) -> Self {
        let keeper = Keeper::open(&options.directory.join("usage.json"), settings.limits.clone());
        Self {
            options,
            version: version(),
            store,
            keeper: Arc::new(keeper),
            notifier: Notifier::start(),
            settings: Mutex::new(settings),
            shares: Mutex::new(shares),
            lives: Mutex::default(),
            fetched: Mutex::default(),
            grants: Grants::default(),
            listings: Listings::default(),
            services,
            deciding: Mutex::default(),
            why_not: Mutex::new(Some("the daemon has not answered yet".to_owned())),
            user: Mutex::default(),
            plan: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    fn lives(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Live>>> {
        // No code panics while it holds the lock.
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deciding(&self) -> MutexGuard<'_, ()> {
        // No code panics while it holds the lock.
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        // No code panics while it holds the lock.
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        // No code panics while it holds the lock.
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetched(&self) -> MutexGuard<'_, BTreeMap<TransferId, Outgoing>> {
        // No code panics while it holds the lock.
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // No code panics while it holds the lock.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_not(&self) -> MutexGuard<'_, Option<String>> {
        // No code panics while it holds the lock.
        self.why_not.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn user(&self) -> MutexGuard<'_, String> {
        // No code panics while it holds the lock.
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, direction: Direction, id: TransferId) -> Option<Arc<Live>> {
        self.lives().get(&(direction, id)).cloned()
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Notes a change of the queue, the inbox or the settings.
    fn note_change(&self) {
        self.plan().version += 1;
        self.changed.notify_all();
    }

    /// Notes when a transfer is tried again. Returns the tries in vain since something that may have ended the wait.
    fn plan_try(&self, id: TransferId, tries: u32) -> u32 {
        let mut plan = self.plan();
        // The event has taken away what was planned.
        let tries = if plan.next.contains_key(&id) {
            tries.saturating_add(1)
        } else {
            1
        };
        plan.next.insert(id, Instant::now() + backoff(tries));
        tries
    }

    /// Tries all that waits at once.
    fn try_all(&self) {
        self.plan().next.clear();
        self.services.nudge();
        self.note_change();
    }

    /// Waits for a change, or until the time is over. Returns the present version.
    fn wait_for_change(&self, version: u64, limit: Duration) -> u64 {
        let plan = self.plan();
        let waited = self
            .changed
            .wait_timeout_while(plan, limit, |plan| plan.version == version && !self.is_stopping());
        match waited {
            Ok((plan, _)) => plan.version,
            Err(error) => error.into_inner().0.version,
        }
    }

    /// Ends all that is under way, so that it can go on when the process starts again.
    fn close(&self) {
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_all();
        self.services.stop();
        for live in self.lives().values() {
            live.stop().stop(Reason::Shutdown);
        }
        let end = Instant::now() + CLOSE;
        while !self.lives().is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        self.keeper.save(Instant::now(), true);
    }
}
